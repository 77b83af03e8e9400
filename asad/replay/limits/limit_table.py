"""Whom limits count together: groups of jobs, their ceilings, and who would lift one above them.

As Slurm has it (22.05, slurmctld's acct_policy.c), a job counts in up to four kinds of groups: its QOS, its user within
the QOS, its account within the QOS, and its association with all accounts above that. A limit of the job's QOS takes
the place of the same limit, on the same resource, of its associations. `Max` and `MaxJobs` of associations are
inherited, and sacctmgr prints what was inherited: those of the job's own association hold, `Grp` on each level. A limit
on a resource of which a job wants nothing does not hold it.

Jobs of one user, account, QOS and partition are one class: they count in the same groups, below the same ceilings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.bounded import printable
from asad.compiling import borrowing, compiled
from asad.model import Floats, Ints, JobLog, Json
from asad.replay.limits.sacctmgr_output import JOBS, Amounts, Association, Limits, Qos

SLACK = 1 + 1e-9
"""Sums of memory that was recorded rounded are compared with it."""
NO_LIMITS: Amounts = {}
PLAIN = (JOBS, "cpu", "mem", "node")
"""Resources that every log can have; gres come after them."""


HELD = "held"


class Group(NamedTuple):
    """Jobs that limits count together."""

    owner: str
    """Whose limit it is: `QOS normal`."""
    kind: str
    """`Grp`, `PU`, `PA`, `MaxJobs`; `HELD` where its limits are inferred."""
    of: str = ""
    """Whose jobs count, where they are not all of the owner's: `user ann`."""


@dataclass(frozen=True, slots=True)
class LimitTable:
    """Groups and ceilings of the jobs of a log: n jobs, C classes, at most K groups a class, G groups, R resources."""

    resources: tuple[str, ...]
    need: Floats
    """(n, R) what each job counts for."""
    class_of: Ints
    """(n,)"""
    class_groups: Ints
    """(C, K) numbers of groups, -1 for none."""
    class_ceiling: Floats
    """(C, K, R) inf where there is none for these jobs."""
    groups: tuple[Group, ...]
    alone: Ints
    """(n,) code into `alone_texts`: a limit that the job exceeds by itself, -1 for none."""
    alone_texts: tuple[str, ...]
    not_applied: tuple[str, ...]
    facts: Mapping[str, int] = field(default_factory=dict)
    """Counts for the reader: associations, QOS, jobs of no association, …"""
    files: tuple[str, ...] = ()

    def usage(self, *parts: Ints) -> Floats:
        """(G, R) what jobs of these rows use together."""
        used = np.zeros((len(self.groups), len(self.resources)))
        for rows in parts:
            _add(self.need, self.class_of, self.class_groups, np.ascontiguousarray(rows, np.int32), used)
        return used

    def over(self, usage: Floats, rows: Ints) -> NDArray[np.bool_]:
        """(rows,) who would lift a group above a ceiling, or exceeds a limit by itself."""
        found = np.empty(len(rows), np.bool_)
        rows = np.ascontiguousarray(rows, np.int32)
        _over(self.need, self.class_of, self.class_groups, self.class_ceiling, self.alone, usage, rows, found)
        return found

    def exceeded(self, usage: Floats, row: int) -> str:
        """The limit that the job would exceed, in an operator's terms; empty if none."""
        if (text := int(self.alone[row])) >= 0:
            return self.alone_texts[text]
        code, need = self.class_of[row], self.need[row]
        groups = [group for group in self.class_groups[code].tolist() if group >= 0]
        above = (need > 0) & (usage[groups] + need > self.class_ceiling[code, : len(groups)] * SLACK)
        # as Slurm does it, numbers of jobs first
        for columns in (slice(0, 1), slice(1, None)):
            for place, at in zip(*np.nonzero(above[:, columns]), strict=True):
                at += columns.start
                return self.limit_text(int(code), int(place), int(at))
        return ""

    def limit_text(self, code: int, place: int, resource: int) -> str:
        """The limit of a class of jobs in one of its groups, on a resource, in an operator's terms."""
        group = self.groups[self.class_groups[code, place]]
        return _text(group, self.resources[resource], float(self.class_ceiling[code, place, resource]))

    def to_json(self) -> dict[str, Json]:
        """What a reader has to know of it."""
        return {
            "files": list(self.files),
            "groups": len(self.groups),
            "jobs_counted": int((self.class_groups[self.class_of, 0] >= 0).sum()),
            "jobs_above_alone": int((self.alone >= 0).sum()),
            **dict(self.facts),
            "not_applied": list(self.not_applied),
        }


def _text(group: Group, resource: str, ceiling: float) -> str:
    """`QOS normal: MaxTRESPU cpu=8 of user ann`."""
    if group.kind == HELD:
        return printable(f"{group.owner}: never more than {ceiling:g} {resource} at one time so far")
    if resource == JOBS:
        name = {"Grp": "GrpJobs", "PU": "MaxJobsPU", "PA": "MaxJobsPA"}.get(group.kind, "MaxJobs")
        limit = f"{name}={ceiling:g}"
    else:
        name = {"Grp": "GrpTRES", "PU": "MaxTRESPU", "PA": "MaxTRESPA"}[group.kind]
        limit = f"{name} {resource}={_amount(resource, ceiling)}"
    return printable(f"{group.owner}: {limit}{f' of {group.of}' if group.of else ''}")


def _amount(resource: str, amount: float) -> str:
    """As sacctmgr writes it."""
    if resource != "mem":
        return f"{amount:.15g}"
    mebibytes = amount / 2**20
    return f"{mebibytes / 1024:g}G" if mebibytes % 1024 == 0 else f"{mebibytes:.15g}M"


# ---------------------------------------------------------------------------------------------------------- compiled


@compiled
def _add(need: Floats, class_of: Ints, class_groups: Ints, rows: Ints, used: Floats) -> None:
    """Add what jobs use to their groups."""
    for i in range(len(rows)):
        count_in(need, class_of, class_groups, rows[i], 1.0, used)


@borrowing
def count_in(need: Floats, class_of: Ints, class_groups: Ints, row: int, sign: float, used: Floats) -> None:
    """One job more, or less, in its groups."""
    code = class_of[row]
    for place in range(class_groups.shape[1]):
        group = class_groups[code, place]
        if group < 0:
            break
        for at in range(need.shape[1]):
            used[group, at] += sign * need[row, at]


@borrowing
def lifts_above(
    need: Floats, class_of: Ints, class_groups: Ints, class_ceiling: Floats, used: Floats, row: int
) -> bool:
    """Would one job more lift one of its groups above a ceiling?"""
    code = class_of[row]
    for place in range(class_groups.shape[1]):
        group = class_groups[code, place]
        if group < 0:
            break
        for at in range(need.shape[1]):
            wants = need[row, at]
            if wants > 0 and used[group, at] + wants > class_ceiling[code, place, at] * SLACK:
                return True
    return False


@compiled
def _over(
    need: Floats,
    class_of: Ints,
    class_groups: Ints,
    class_ceiling: Floats,
    alone: Ints,
    used: Floats,
    rows: Ints,
    found: NDArray[np.bool_],
) -> None:
    for i in range(len(rows)):
        found[i] = alone[rows[i]] >= 0 or lifts_above(
            need, class_of, class_groups, class_ceiling, used, rows[i]
        )


# ------------------------------------------------------------------------------------------------------------- made


def limit_table(limits: Limits, jobs: JobLog) -> LimitTable:
    """What limits the jobs of a log, and how they count."""
    return _Made(limits, jobs).table()


class _Made:
    """A table while it is made."""

    def __init__(self, limits: Limits, jobs: JobLog) -> None:
        self.limits, self.jobs = limits, jobs
        self.associations = {one.key[1:]: one for one in limits.associations}
        self.accounts_of: dict[str, list[Association]] = {}
        for one in limits.associations:
            if one.user:
                self.accounts_of.setdefault(one.user, []).append(one)
        self.qos = {one.name.casefold(): one for one in limits.qos}
        self.resources, self.need, self.unknown_memory = _needs(jobs)
        self.at = {name: place for place, name in enumerate(self.resources)}
        self.groups: dict[Group, int] = {}
        self.alone_texts: dict[str, int] = {}
        self.not_counted: set[str] = set()

    def table(self) -> LimitTable:
        """The table, class by class."""
        jobs, count = self.jobs, len(self.jobs)
        none = np.full(count, -1, np.int32)
        codes = np.column_stack(
            [
                jobs.user,
                none if jobs.account is None else jobs.account,
                none if jobs.qos is None else jobs.qos,
                jobs.partition,
            ]
        )
        classes, inverse = np.unique(codes, axis=0, return_inverse=True)
        class_of: Ints = inverse.reshape(-1).astype(np.int32)
        by_class = np.argsort(class_of, kind="stable")
        first = np.searchsorted(class_of[by_class], np.arange(len(classes) + 1))
        alone = none.copy()
        members: list[list[tuple[int, Floats]]] = []
        of_none = of_no_qos = 0
        for number, (user, account, qos, partition) in enumerate(classes.tolist()):
            rows = by_class[first[number] : first[number + 1]]
            association = self._association(
                _name(jobs.users, user), _name(jobs.accounts, account), _name(jobs.partitions, partition)
            )
            its_qos = self._qos(_name(jobs.qos_names, qos), association)
            of_none += len(rows) if association is None else 0
            of_no_qos += len(rows) if its_qos is None else 0
            self._check_alone(rows, its_qos, association, alone)
            members.append(self._members(_name(jobs.users, user), its_qos, association))
        widest = max(map(len, members), default=0) or 1
        class_groups = np.full((len(members), widest), -1, np.int32)
        ceiling = np.full((len(members), widest, len(self.resources)), np.inf)
        for number, groups in enumerate(members):
            for place, (group, most) in enumerate(groups):
                class_groups[number, place], ceiling[number, place] = group, most
        facts = {
            "associations": len(self.limits.associations),
            "qos": len(self.limits.qos),
            "jobs_without_association": of_none,
            "jobs_without_qos": of_no_qos,
        }
        return LimitTable(
            resources=self.resources,
            need=self.need,
            class_of=class_of,
            class_groups=class_groups,
            class_ceiling=ceiling,
            groups=tuple(self.groups),
            alone=alone,
            alone_texts=tuple(self.alone_texts),
            not_applied=tuple(self._not_applied()),
            facts=facts,
            files=self.limits.files,
        )

    # ----------------------------------------------------------------------------------------------- whose a job is

    def _association(self, user: str, account: str, partition: str) -> Association | None:
        """That of a job: of its partition before the user's own, and the account's where the user has none."""
        if not account:
            accounts = {one.account for one in self.accounts_of.get(user, ())}
            if len(accounts) != 1:
                return None
            (account,) = accounts
        account = account.casefold()
        for key in ((account, user, partition), (account, user, ""), (account, "", "")):
            if key in self.associations:
                return self.associations[key]
        return None

    def _qos(self, name: str, association: Association | None) -> Qos | None:
        """That of a job; where the log names none, Slurm's default."""
        if not name and association is not None:
            name = association.default_qos
            if not name and len(association.qos) == 1:
                (name,) = association.qos
        return self.qos.get((name or "normal").casefold())

    def _chain(self, association: Association | None) -> Iterable[Association]:
        """It and all accounts above it."""
        while association is not None:
            yield association
            parent = association.parent
            if parent is None:  # all that is known is that root is above
                parent = "root" if association.account != "root" else ""
            association = self.associations.get((parent.casefold(), "", "")) if parent else None

    # -------------------------------------------------------------------------------------------- groups and ceilings

    def _members(
        self, user: str, qos: Qos | None, association: Association | None
    ) -> list[tuple[int, Floats]]:
        """The groups in which jobs of a class count, and the ceilings that hold for them."""
        members: list[tuple[int, Floats]] = []
        its = {} if qos is None else qos.limits
        grp = its.get("Grp", NO_LIMITS)
        if qos is not None:
            owner = f"QOS {qos.name}"
            self._member(members, Group(owner, "Grp"), grp)
            if user:
                self._member(members, Group(owner, "PU", f"user {user}"), its.get("PU", NO_LIMITS))
            if association is not None:
                of = f"account {association.account}"
                self._member(members, Group(owner, "PA", of), its.get("PA", NO_LIMITS))
        factor = 1.0 if qos is None else qos.factor
        for level in self._chain(association):
            limits = level.limits.get("Grp", NO_LIMITS)
            self._member(members, Group(_owner(level), "Grp"), limits, grp, factor)
        if association is not None:
            limits = association.limits.get("MaxJobs", NO_LIMITS)
            per_user = its.get("PU", NO_LIMITS).keys() | its.get("PA", NO_LIMITS).keys()
            instead = {JOBS: 0.0} if JOBS in per_user else NO_LIMITS
            # an account passes it on to each of its users, also to one who has no association any more
            own = association if association.user else replace(association, user=user or "-")
            self._member(members, Group(_owner(own), "MaxJobs"), limits, instead)
        return members

    def _member(
        self,
        members: list[tuple[int, Floats]],
        group: Group,
        limits: Amounts,
        instead: Amounts = NO_LIMITS,
        factor: float = 1.0,
    ) -> None:
        """Jobs count in a group that has limits; those that are there `instead` leave its own without effect."""
        ceiling = self._ceiling(limits)
        if not np.isfinite(ceiling).any():
            return
        scaled = ceiling * factor
        scaled[0] = ceiling[0]  # LimitFactor is of resources, not of jobs
        scaled[np.isfinite(self._ceiling(instead))] = np.inf
        members.append((self.groups.setdefault(group, len(self.groups)), scaled))

    def _ceiling(self, limits: Amounts) -> Floats:
        """(R,) inf where there is no limit."""
        ceiling = np.full(len(self.resources), np.inf)
        for name, amount in limits.items():
            if name in self.at:
                ceiling[self.at[name]] = amount
            else:
                self.not_counted.add(name)
        return ceiling

    def _check_alone(
        self, rows: NDArray[np.intp], qos: Qos | None, association: Association | None, alone: Ints
    ) -> None:
        """Note which jobs of a class exceed a limit on one job, or on one node of it."""
        nodes = np.maximum(self.need[rows, 3], 1.0)
        for kind, name in (("PerNode", "MaxTRESPerNode"), ("Max", "MaxTRESPerJob")):
            of_qos = NO_LIMITS if qos is None else qos.limits.get(kind, NO_LIMITS)
            of_association = NO_LIMITS if association is None else association.limits.get(kind, NO_LIMITS)
            factor = 1.0 if qos is None else qos.factor
            own = {key: amount * factor for key, amount in of_association.items() if key not in of_qos}
            holders = [("" if qos is None else f"QOS {qos.name}", of_qos)]
            holders.append(("" if association is None else _owner(association), own))
            for owner, limits in holders:
                for at in np.flatnonzero(np.isfinite(most := self._ceiling(limits))).tolist():
                    wants = self.need[rows, at]
                    if kind == "PerNode":
                        wants = wants // nodes
                    beyond = rows[(wants > 0) & (wants > most[at] * SLACK)]
                    if len(beyond):
                        resource = self.resources[at]
                        text = f"{owner}: {name} {resource}={_amount(resource, float(most[at]))}"
                        alone[beyond] = self.alone_texts.setdefault(printable(text), len(self.alone_texts))

    def _not_applied(self) -> Iterable[str]:
        """What is read past, and what is not exact."""
        yield from self.limits.not_applied
        if self.not_counted:
            names = ", ".join(printable(name)[:60] for name in sorted(self.not_counted)[:10])
            yield f"limits on resources that the log does not have ({names})"
        unknown = [one.account for one in self.limits.associations if not one.user and one.parent is None]
        if unknown:
            yield (
                "limits of accounts on those below them: the file does not say which account lies below which; "
                "write it with `sacctmgr -P show assoc tree`"
            )
        if any("mem" in amounts for amounts in self._all()) and self.unknown_memory:
            yield f"limits on memory to {self.unknown_memory} jobs, whose memory the log does not have"

    def _all(self) -> Iterable[Amounts]:
        for association in self.limits.associations:
            yield from association.limits.values()
        for qos in self.limits.qos:
            yield from qos.limits.values()


def _owner(association: Association) -> str:
    """Whose limit it is, in an operator's terms."""
    if not association.user:
        return f"account {association.account}"
    where = f" in partition {association.partition}" if association.partition else ""
    return f"user {association.user} of account {association.account}{where}"


def _name(names: tuple[str, ...], code: int) -> str:
    """Empty where nothing was recorded."""
    return names[code] if 0 <= code < len(names) else str(code) if code >= 0 else ""


def _needs(jobs: JobLog) -> tuple[tuple[str, ...], Floats, int]:
    """Resources, (n, R) what each job counts for, and of how many jobs the memory is not known."""
    amounts = [_gres_amounts(text) for text in jobs.gres_texts]
    gres = sorted({name for of_text in amounts for name in of_text})
    resources = (*PLAIN, *gres)
    need = np.zeros((len(jobs), len(resources)))
    need[:, 0], need[:, 1] = 1.0, jobs.cores
    unknown = ~np.isfinite(jobs.memory_bytes)
    # whole bytes, so that what was added can be taken away again to the byte
    need[:, 2] = np.where(unknown, 0.0, np.floor(np.where(unknown, 0.0, jobs.memory_bytes)))
    need[:, 3] = np.maximum(jobs.nodes, 1)
    if jobs.gres is not None and gres:
        table = np.array(
            [[of_text.get(name, 0.0) for name in gres] for of_text in amounts] + [[0.0] * len(gres)]
        )
        need[:, len(PLAIN) :] = table[jobs.gres]
    return resources, need, int(unknown.sum())


def _gres_amounts(text: str) -> dict[str, float]:
    """`gpu:a100:2,gpu:1` as Slurm counts it: 3 of gres/gpu, 2 of gres/gpu:a100."""
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.rpartition(":")
        if not number.isdecimal() or not name:
            continue
        family = name.partition(":")[0]
        for key in dict.fromkeys((family, name)):
            amounts[f"gres/{key}"] = amounts.get(f"gres/{key}", 0.0) + float(number)
    return amounts
