"""What `sacctmgr -P show assoc [tree]` and `sacctmgr -P show qos` print.

Both may stand in one file or in several, in any order: a line that names columns begins a table. Which columns count
stands in `LIMITS`; those in minutes of use and of wall time are read past, and noted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from asad.errors import LogError
from asad.replay.readers import fields
from asad.replay.readers.accounting_log import BadValue, quoted
from asad.replay.readers.raw_bytes import plain_bytes

MOST_BYTES = 2**28
"""More than a million associations."""
MOST_BEFORE = 20
"""Lines before the first header: banners and warnings."""
MOST_DEPTH = 100
"""Accounts below each other."""
JOBS = "jobs"
"""The resource of limits that count jobs."""

LIMITS: Mapping[str, tuple[str, str]] = {
    "grptres": ("Grp", ""),
    "grpcpus": ("Grp", "cpu"),
    "grpmem": ("Grp", "mem"),
    "grpnodes": ("Grp", "node"),
    "grpjobs": ("Grp", JOBS),
    "maxtres": ("Max", ""),
    "maxtresperjob": ("Max", ""),
    "maxcpus": ("Max", "cpu"),
    "maxcpusperjob": ("Max", "cpu"),
    "maxnodes": ("Max", "node"),
    "maxnodesperjob": ("Max", "node"),
    "maxtrespernode": ("PerNode", ""),
    "maxjobs": ("MaxJobs", JOBS),
    "maxtrespu": ("PU", ""),
    "maxtresperuser": ("PU", ""),
    "maxcpuspu": ("PU", "cpu"),
    "maxcpusperuser": ("PU", "cpu"),
    "maxnodespu": ("PU", "node"),
    "maxnodesperuser": ("PU", "node"),
    "maxjobspu": ("PU", JOBS),
    "maxjobsperuser": ("PU", JOBS),
    "maxtrespa": ("PA", ""),
    "maxtresperacct": ("PA", ""),
    "maxtresperaccount": ("PA", ""),
    "maxjobspa": ("PA", JOBS),
    "maxjobsperacct": ("PA", JOBS),
    "maxjobsperaccount": ("PA", JOBS),
}
"""A column → what kind of limit it is, and of what ("": of the resources that its value names)."""
NOT_APPLIED: Mapping[str, str] = {
    "grptresmins": "GrpTRESMins",
    "grpcpumins": "GrpCPUMins",
    "grptresrunmins": "GrpTRESRunMins",
    "grpcpurunmins": "GrpCPURunMins",
    "maxtresmins": "MaxTRESMins",
    "maxtresminsperjob": "MaxTRESMins",
    "maxcpumins": "MaxCPUMins",
    "maxtresrunminspu": "MaxTRESRunMinsPU",
    "maxtresrunminspa": "MaxTRESRunMinsPA",
    "grpwall": "GrpWall",
    "maxwall": "MaxWall",
    "maxwalldurationperjob": "MaxWall",
}
"""Columns of minutes → the limit that is not applied."""
NAMES = {"defaultqos": "def qos", "parentname": "par name"}
OTHERS = frozenset(
    """
    cluster|account|user|partition|share|fairshare|priority|grpsubmit|grpsubmitjobs|maxsubmit|maxsubmitjobs|qos|def qos
    par name|id|rgt|lft|parentid|defaultaccount|name|descr|description|gracetime|preempt|preemptexempttime|preemptmode
    flags|usagethres|usagefactor|maxsubmitpu|maxsubmitpa|mintres|limitfactor|lineage|comment
    """.replace("\n", "|")
    .replace(" |", "|")
    .split("|")
)
"""Further columns of both tables."""
KNOWN = frozenset({*LIMITS, *NOT_APPLIED, *(name.strip() for name in OTHERS if name.strip())})
LEAST_KNOWN = 2
AGAIN = "write it again with `sacctmgr -P show assoc tree` and `sacctmgr -P show qos`"
PARENT = 2**31 - 1
"""What stands for `parent` where shares are written as numbers."""
_AMOUNT = re.compile(r"\d{1,18}(?:\.\d{1,9})?([KMGTP]?)", re.ASCII | re.IGNORECASE)

Amounts = Mapping[str, float]
"""By resource (`jobs`, `cpu`, `mem` in bytes, `node`, `gres/gpu:a100`): the most of it."""


@dataclass(frozen=True, slots=True)
class Association:
    """One row of associations: of an account as a whole where it names no user."""

    cluster: str
    account: str
    user: str
    partition: str
    parent: str | None
    """Account above; empty for the topmost one, None where the file does not say."""
    limits: Mapping[str, Amounts]
    """By kind (`LIMITS`). What it has of `Max` and `MaxJobs` is inherited from above already."""
    qos: tuple[str, ...]
    default_qos: str
    place: str
    share: float = 1.0
    """Its share of what its account gets, beside those of its siblings (`Share`); NaN for `parent`: it uses the share
    of its account together with all others that do."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What no other association has."""
        return self.cluster, self.account.casefold(), self.user, self.partition


@dataclass(frozen=True, slots=True)
class Qos:
    """One row of QOS."""

    name: str
    limits: Mapping[str, Amounts]
    factor: float
    """LimitFactor: what it multiplies the limits of associations on resources by."""
    place: str
    priority: float = 0.0
    """What its jobs have of the factor of QOS, before it is divided by the largest of all (`Priority`)."""
    flags: tuple[str, ...] = ()
    """As sacctmgr prints them: `DenyOnLimit`, `NoDecay`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the files hold."""

    files: tuple[str, ...]
    associations: tuple[Association, ...]
    qos: tuple[Qos, ...]
    not_applied: tuple[str, ...]
    """Limits that are read past, a sentence each."""


@dataclass(slots=True)
class _Found:
    associations: dict[tuple[str, str, str, str], Association] = field(default_factory=dict)
    qos: dict[str, Qos] = field(default_factory=dict)
    minutes: dict[str, int] = field(default_factory=dict)
    relative: list[str] = field(default_factory=list)
    above: list[tuple[int, str]] = field(default_factory=list)
    """(depth, account) of the accounts below which the next row of a tree stands."""


def read_limits(paths: Sequence[Path], cluster: str | None = None) -> Limits:
    """The limits of all files together, of one cluster.

    Raises LogError with file, line, column and remedy for what cannot be read, and where several clusters have
    associations and `cluster` chooses none.
    """
    found = _Found()
    for path in paths:
        _read(str(path), _text_of(path), found)
    names = tuple(str(path) for path in paths)
    return _chosen(names, found, cluster)


def limits_of(name: str, text: str, cluster: str | None = None) -> Limits:
    """The same of one text, which errors call `name`."""
    found = _Found()
    _read(name, text, found)
    return _chosen((name,), found, cluster)


def _chosen(names: tuple[str, ...], found: _Found, cluster: str | None) -> Limits:
    """What was found, of one cluster."""
    associations = tuple(found.associations.values())
    clusters = sorted({one.cluster for one in associations if one.cluster})
    shown = ", ".join(map(quoted, clusters[:3]))
    if cluster is not None and clusters:
        associations = tuple(one for one in associations if one.cluster in ("", cluster))
        if not associations:
            problem = f"no association of {quoted(cluster)}, but of {shown}"
            raise LogError(names[0], None, "Cluster", problem, "check --cluster")
    elif len(clusters) > 1:
        problem = f"associations of {len(clusters)} clusters ({shown})"
        raise LogError(names[0], None, "Cluster", problem, "choose one with --cluster NAME")
    _check_parents(names[0], associations)
    minutes = ", ".join(f"{limit} ({rows})" for limit, rows in found.minutes.items())
    notes = [f"limits on minutes of use and wall time (limit and rows: {minutes})"] if minutes else []
    notes += [
        f"those of QOS {quoted(name)}, which are percentages (flag Relative)" for name in found.relative
    ]
    return Limits(names, associations, tuple(found.qos.values()), tuple(notes))


def _check_parents(path: str, associations: Sequence[Association]) -> None:
    """Raises LogError where accounts are above each other in a circle, or too deep."""
    parents = {one.account.casefold(): (one.parent or "").casefold() for one in associations if not one.user}
    depth: dict[str, int] = {"": 0}
    for account in parents:
        chain: list[str] = []
        while account not in depth and account in parents and len(chain) <= MOST_DEPTH:
            chain.append(account)
            account = parents[account]
        base = depth.get(account, 0)
        if len(chain) + base > MOST_DEPTH:
            problem = f"account {quoted(chain[0])} has more than {MOST_DEPTH} accounts above it, or itself"
            raise LogError(path, None, "Par Name", problem, AGAIN)
        for height, name in enumerate(reversed(chain), 1):
            depth[name] = base + height


def _text_of(path: Path) -> str:
    """The text of a file, uncompressed. Raises LogError."""
    raw = plain_bytes(str(path), str(path), MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise LogError(str(path), None, None, f"it has more than {MOST_BYTES} bytes", AGAIN)
    if b"\0" in raw:
        raise LogError(str(path), None, None, "it is no text", AGAIN)
    return raw.decode("utf-8", "replace")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not empty."""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if line.strip():
            yield number, line


def _names(line: str) -> tuple[str, ...] | None:
    """The columns that a line names, in lower case; None for a line that names none of the two tables."""
    cells = line.split("|")
    if len(cells) > 1 and not cells[-1]:
        cells.pop()
    names = tuple(NAMES.get(name := cell.strip().lower(), name) for cell in cells)
    known = sum(name in KNOWN for name in names)
    if known < max(LEAST_KNOWN, (len(names) + 1) // 2) or not {"account", "name"} & {*names}:
        return None
    return names


def _read(path: str, text: str, found: _Found) -> None:
    """Add what stands in one text. Raises LogError."""
    names: tuple[str, ...] | None = None
    trailing, before = False, 0
    for number, line in _lines(text):
        header = _names(line)
        if header is not None:
            names, trailing = header, line.endswith("|")
            found.above.clear()
            _check_header(path, number, names)
            continue
        if names is None:
            before += 1
            if "|" in line or before > MOST_BEFORE or line.lstrip()[:1] in "{[":
                break
            words = line.lower().split()
            if len(words) > 1 and sum(word in KNOWN for word in words) == len(words):
                problem = "columns are aligned by spaces and cut off"
                raise LogError(path, number, None, problem, AGAIN)
            continue
        cells = line.split("|")
        if trailing and len(cells) == len(names) + 1 and not cells[-1]:
            cells.pop()
        if len(cells) != len(names):
            problem = f"{len(cells)} fields, and its header names {len(names)} columns"
            raise LogError(path, number, None, problem, AGAIN)
        row = dict(zip(names, cells, strict=True))
        try:
            if "account" in row:
                _add_association(path, number, row, found)
            else:
                _add_qos(path, number, row, found)
        except BadValue as bad:
            raise LogError(path, number, bad.column, bad.problem, bad.remedy) from None
    if names is None:
        start = next((line for _, line in _lines(text)), "")
        problem = f"no line names columns of associations or QOS (it begins with {quoted(start)})"
        raise LogError(path, None, None, problem, AGAIN)


def _check_header(path: str, number: int, names: Sequence[str]) -> None:
    """Raises LogError for columns that stand twice, and for associations without users."""
    twice = next((name for at, name in enumerate(names) if name in KNOWN and name in names[:at]), None)
    if twice is not None:
        raise LogError(path, number, quoted(twice), "it stands there twice", AGAIN)
    if "account" in names and "user" not in names:
        raise LogError(path, number, "User", "associations do not name their users", AGAIN)


def _add_association(path: str, number: int, row: Mapping[str, str], found: _Found) -> None:
    """Raises BadValue, and LogError for one that is there with other limits."""
    account = row["account"].strip()
    if not account:
        raise BadValue("an association without an account", AGAIN, "Account")
    user, cluster = row["user"].strip(), row.get("cluster", "").strip()
    depth = len(row["account"]) - len(row["account"].lstrip(" "))
    parent = _parent(row, account, user, depth, found)
    one = Association(
        cluster,
        account,
        user,
        row.get("partition", "").strip(),
        parent,
        _limits(row, found),
        tuple(name.strip() for name in row.get("qos", "").split(",") if name.strip()),
        row.get("def qos", "").strip(),
        f"{path}:{number}",
        _share(row),
    )
    known = found.associations.get(one.key)
    if known is not None and known.limits != one.limits:
        raise LogError(
            path,
            number,
            "Account",
            f"the association of {quoted(account)} and {quoted(user)} stands at {known.place} with other limits",
            "give the output of one moment",
        )
    if known is not None and one.parent is None:
        one = replace(one, parent=known.parent)
    if known is not None and not {"share", "fairshare"} & row.keys():
        one = replace(one, share=known.share)
    found.associations[one.key] = one


def _parent(row: Mapping[str, str], account: str, user: str, depth: int, found: _Found) -> str | None:
    """The account above an association: by the tree's indentation, or by name; None where neither says it."""
    if user:
        return account
    above = found.above
    if account == "root":
        above.clear()
    while above and above[-1][0] >= depth:
        above.pop()
    by_depth = above[-1][1] if above else None
    if len(above) >= MOST_DEPTH:
        raise BadValue(f"more than {MOST_DEPTH} accounts below each other", AGAIN, "Account")
    above.append((depth, account))
    if "par name" in row:
        return row["par name"].strip()
    return "" if account == "root" else by_depth


def _add_qos(path: str, number: int, row: Mapping[str, str], found: _Found) -> None:
    """Raises BadValue, and LogError for one that is there with other limits."""
    name = row["name"].strip()
    if not name:
        raise BadValue("a QOS without a name", AGAIN, "Name")
    relative = "relative" in row.get("flags", "").lower().split(",")
    limits = {} if relative else _limits(row, found)
    factor = _factor(row.get("limitfactor", "").strip())
    priority = _number(row.get("priority", "").strip(), "Priority", 0.0)
    flags = tuple(flag.strip() for flag in row.get("flags", "").split(",") if flag.strip())
    known = found.qos.get(name.casefold())
    if known is not None and (known.limits, known.factor) != (limits, factor):
        raise LogError(
            path,
            number,
            "Name",
            f"QOS {quoted(name)} stands at {known.place} with other limits",
            "give the output of one moment",
        )
    if relative and known is None:
        found.relative.append(name)
    one = Qos(name, limits, factor, f"{path}:{number}", priority, flags)
    if known is not None:  # another list of them may have other columns
        one = replace(
            one,
            priority=priority if "priority" in row else known.priority,
            flags=flags if "flags" in row else known.flags,
        )
    found.qos[name.casefold()] = one


def _share(row: Mapping[str, str]) -> float:
    """Share, or Fairshare as other versions call it; 1 where there is none, NaN for `parent`. Raises BadValue."""
    column = "share" if "share" in row else "fairshare"
    text = row.get(column, "").strip()
    if text.lower() == "parent" or text == str(PARENT):
        return math.nan
    return _number(text, "Share" if column == "share" else "Fairshare", 1.0)


def _number(text: str, column: str, default: float) -> float:
    """A whole number; `default` where there is none. Raises BadValue."""
    if not text:
        return default
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII):
        raise BadValue(f"{quoted(text)} is not a number", "write one, like 10", column)
    return float(text)


def _factor(text: str) -> float:
    """LimitFactor; 1 where there is none. Raises BadValue."""
    if not text:
        return 1.0
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text, re.ASCII):
        raise BadValue(f"{quoted(text)} is not a factor", "write a number, like 2.0", "LimitFactor")
    return float(text) or 1.0


def _limits(row: Mapping[str, str], found: _Found) -> dict[str, dict[str, float]]:
    """The limits of a row, by kind. Raises BadValue."""
    limits: dict[str, dict[str, float]] = {}
    for column, text in row.items():
        text = text.strip()
        if not text:
            continue
        if column in NOT_APPLIED:
            found.minutes[NOT_APPLIED[column]] = found.minutes.get(NOT_APPLIED[column], 0) + 1
        elif column in LIMITS:
            kind, resource = LIMITS[column]
            try:
                amounts = {resource: _amount(resource, text)} if resource else _amounts(text)
            except BadValue as bad:
                raise BadValue(bad.problem, bad.remedy, column) from None
            limits.setdefault(kind, {}).update(amounts)
    return limits


def _amounts(text: str) -> dict[str, float]:
    """`cpu=8,mem=64G,gres/gpu:a100=2` by resource. Raises BadValue."""
    amounts = {}
    for part in text.split(","):
        name, equals, amount = part.strip().rpartition("=")
        if not equals or not name:
            raise BadValue(f"{quoted(text)} is not a list of resources", "write it like cpu=8,mem=64G")
        amounts[name.lower()] = _amount(name.lower(), amount.strip())
    return amounts


def _amount(resource: str, text: str) -> float:
    """So many of a resource, or bytes of memory. Raises BadValue."""
    if resource == "mem":
        return fields.memory(text)
    match = _AMOUNT.fullmatch(text)
    if not match:
        raise BadValue(f"{quoted(text)} is not an amount of {quoted(resource)}", "write a number, like 8")
    unit = match[1].upper()
    return float(text.rstrip("KMGTPkmgtp")) * 1024.0 ** ("KMGTP".index(unit) + 1 if unit else 0)
