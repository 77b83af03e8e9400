"""asad.toml → typed settings. What is not known here is an error, with the nearest name that is.

The defaults are those of docs/reference/configuration.md; a test holds the two to each other. Tables of cluster plugins
(`[slurm]`, or one named by `daemon.cluster`) and options of policies (`[share.asax]`) are kept as plain data: whoever
they belong to checks them.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from asad.bounded import MOST_NUMBER, toml_of
from asad.catalog import policy_names
from asad.errors import ConfigError

DEFAULT_PATH = Path("/etc/asad/asad.toml")
MAX_FILE_BYTES = 1024 * 1024
MODES = ("observe", "advise", "enforce")
Mode = Literal["observe", "advise", "enforce"]


def _setting(
    default: Any,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    address: bool = False,
    addresses: bool = False,
    secret: bool = False,
    policy_of: str = "",
) -> Any:
    """A key with its default, the range of a number, whether a text is `HOST:PORT` (or several), whether no error may
    repeat it, and of which stage it names a policy."""
    checks = {
        "least": least,
        "above": above,
        "most": most,
        "address": address,
        "addresses": addresses,
        "secret": secret,
        "policy_of": policy_of,
    }
    if isinstance(default, list):
        return field(default_factory=lambda: tuple(default), metadata=checks)
    return field(default=default, metadata=checks)


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """`[daemon]`"""

    mode: Mode = "observe"
    """`observe` measures and learns; `advise` also decides and records what it would do; `enforce` also acts."""
    cluster: str = "slurm"
    """Name of a cluster plugin (entry point group `asad.clusters`: `slurm`, `mesos`, `slurm+mesos`), or
    `recorded`."""
    interval_s: float = _setting(30.0, above=0.0, most=3600.0)
    """From the beginning of one cycle to that of the next."""
    state_dir: Path = Path("/var/lib/asad")
    """Journal of offers, lock and state store; refused if others may write to it. Another one needs a line in the
    units."""
    store: str = _setting("", secret=True)
    """Path or URL of the state store; empty: `asad.db` in `state_dir`."""
    socket: Path = Path("/run/asad/asad.sock")
    """Where `asactl` asks."""
    operators: str = ""
    """Group whose members may pause, resume, release and change the mode; empty: root and the daemon's user alone."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""
    retention_days: float = _setting(90.0, above=0.0, most=36_500.0)
    """Age at which decisions of live runs, quota changes and ledger entries are removed from the store."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """`[policies]`"""

    admit: str = _setting("everyone", policy_of="admit")
    """Who may run, when and how wide."""
    defer: str = _setting("at-once", policy_of="defer")
    """When deferrable jobs start."""
    place: str = _setting("native", policy_of="place")
    """Who places jobs."""
    share: str = _setting("asax", policy_of="share")
    """Who lends."""
    experts: str = ""
    """Folder of expert trees; empty: those that asad ships."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """`[guard]`. Shares and fractions in [0, 1]."""

    happiness_floor: float = _setting(1.0, least=0.0, most=100.0)
    """A host whose happiness is known and below this lends nothing more."""
    host_floor: float = _setting(0.1, least=0.0, most=1.0)
    """Share of its cores that a host keeps beyond the 95th percentile of its use (the host of a pair: beyond its mean
    use), and free cores beyond usual use."""
    pressure: float = _setting(0.2, above=0.0, most=1.0)
    """Where a host waited for CPU for more than this fraction of the last seconds, the newest guest of its node gives
    way; beside the host of a pair its guest does."""
    node_share_cap: float = _setting(0.9, least=0.0, most=1.0)
    """Most that is lent of one node (of a pair: of one host on it), to all guests together."""
    guests_cap: int = _setting(0, least=0)
    """Most guests at one time, running and offered; 0: no cap."""
    memory_bandwidth: float = _setting(0.02, least=0.0, most=1.0)
    """Part of its pace that a memory-bound host may lose to a memory-bound guest; where calibration says more, two
    such jobs do not meet on a node."""
    calibration: str = ""
    """The file that `asactl calibrate` wrote on one of these nodes; empty: the one that asad ships."""
    offer_patience_s: float = _setting(60.0, above=0.0)
    """An offer that was not taken for so long is withdrawn."""
    memory_slack: float = _setting(0.1, least=0.0, most=10.0)
    """No memory limit is below what a job uses and this part of it besides."""
    most_defer_s: float = _setting(86_400.0, above=0.0, most=31_536_000.0)
    """No job is deferred further ahead than this; admission defers no further either."""
    most_lease_s: float = _setting(3600.0, above=0.0, most=31_536_000.0)
    """No deferrable job is held back for longer without a further look."""


@dataclass(frozen=True, slots=True)
class NodesSettings:
    """`[nodes]`: how node actors and the daemon speak to each other."""

    listen: str = _setting("0.0.0.0:6820", address=True)
    """Where the daemon waits for actors."""
    auth: Literal["munge", "tls"] = "munge"
    """`munge` or `tls`."""
    user: str = "asad"
    """The daemon's user, whose messages an actor obeys."""
    munge_socket: str = ""
    """Empty: munge's own."""
    cert: str = ""
    """For TLS: file with its own certificate."""
    key: str = ""
    """For TLS: file with the key of that certificate."""
    ca: str = ""
    """For TLS: file with the authority that signed the certificates of both sides."""
    lease_s: float = _setting(0.0, least=0.0)
    """How long quotas hold without a completed cycle; 0: three cycles, at least 15 s."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`[node]`: the node actor's own."""

    daemon: str = _setting("localhost:6820", addresses=True)
    """Where the daemon listens; of several head nodes all, with commas between them."""
    node: str = ""
    """Name of the node in Slurm; empty: the host name."""
    sample_s: float = _setting(5.0, above=0.0, most=600.0)
    """Interval of the profile."""
    pressure_s: float = _setting(0.5, above=0.0, most=60.0)
    """Interval at which hosts with guests are looked at."""
    state_dir: Path = Path("/var/lib/asad-node")
    """Announced guests, and quotas to restore."""
    guest_partitions: tuple[str, ...] = _setting(["guest"])
    """Jobs of these partitions are guests."""
    widen: bool = True
    """Guests may run on every core of the node that Slurm may use, held by their quotas, and not on their own
    alone."""
    register: str = ""
    """Socket at which executors of Mesos register their jobs, `"/run/asad-progress/register.sock"` where a Mesos
    agent runs; empty: none."""

    @property
    def daemons(self) -> list[str]:
        """The addresses in `daemon`."""
        return [address.strip() for address in self.daemon.split(",")]


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """`[metrics]`"""

    listen: str = _setting("127.0.0.1:9620", address=True)
    """Where Prometheus scrapes; empty: nowhere."""


@dataclass(frozen=True, slots=True)
class RecordedSettings:
    """`[recorded]`: what `cluster = "recorded"` plays."""

    log: str = ""
    """The log, in any form that `asactl replay` reads."""
    nodes: int = _setting(0, least=0)
    """Nodes of the machine; 0: inferred from the log."""
    cores: int = _setting(0, least=0)
    """Cores of each node."""
    memory: str = ""
    """Memory of each node (`128G`); memory then counts."""
    demand: str = ""
    """CPU demand where the log has none: a TOML profile or `beta:MEAN`."""
    speed: float = _setting(1000.0, above=0.0)
    """Seconds of the log in one second."""
    seed: int = _setting(0, least=0)
    """Seed of everything drawn."""
    stay: bool = False
    """Stay and answer when the log has ended."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one asad.toml."""

    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    policies: PolicySettings = field(default_factory=PolicySettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    nodes: NodesSettings = field(default_factory=NodesSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    recorded: RecordedSettings = field(default_factory=RecordedSettings)
    share: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of share policies by their name (`[share.asax]`), as plain data."""
    admit: Mapping[str, Any] = field(default_factory=dict)
    """Options of admit policies by their name (`[admit.oasis]`), and under `rules` a list of rules, as plain data."""
    defer: Mapping[str, Any] = field(default_factory=dict)
    """Options of defer policies by their name (`[defer.edf]`), and under `rules` a list of rules, as plain data."""
    place: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of place policies by their name (`[place.oga]`), as plain data."""
    clusters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Tables of cluster plugins by their name, as plain data."""
    path: Path | None = None
    """The file; None for the defaults."""

    @property
    def slurm(self) -> Mapping[str, Any]:
        """The table `[slurm]`."""
        return self.clusters.get("slurm", {})

    @property
    def store_url(self) -> str:
        """Path or URL of the state store."""
        return self.daemon.store or str(self.daemon.state_dir / "asad.db")

    @property
    def lease_s(self) -> float:
        """How long quotas hold without a completed cycle."""
        return self.nodes.lease_s or max(15.0, 3.0 * self.daemon.interval_s)

    def to_json(self) -> dict[str, Any]:
        """All settings as plain data, by table."""
        plain: dict[str, Any] = {
            name: {column.name: _plain(getattr(getattr(self, name), column.name)) for column in fields(table)}
            for name, table in TABLES.items()
        }
        plain["share"] = {name: dict(options) for name, options in self.share.items()}
        plain["admit"] = dict(self.admit)
        plain["defer"] = dict(self.defer)
        plain["place"] = {name: dict(options) for name, options in self.place.items()}
        return plain | {name: dict(table) for name, table in self.clusters.items()}


TABLES: dict[str, type[Any]] = {
    "daemon": DaemonSettings,
    "policies": PolicySettings,
    "guard": GuardSettings,
    "nodes": NodesSettings,
    "node": NodeSettings,
    "metrics": MetricsSettings,
    "recorded": RecordedSettings,
}
"""Name of a table → its settings."""
STAGES = {"share": "share.asax", "admit": "admit.oasis", "defer": "defer.edf", "place": "place.oga"}
"""Stages whose policies have options in tables of their own → such a table."""


def load(path: str | Path) -> Config:
    """The settings of a file.

    Raises ConfigError that names file, line, key and mend of everything that is wrong, a line each.
    """
    path = Path(path)
    try:
        raw = path.read_bytes() if path.stat().st_size <= MAX_FILE_BYTES else None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a configuration with --config") from error
    if raw is None:
        raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES // 1024} KiB; this is no configuration")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Config:
    """The settings that `text` holds; `path` is named in errors. Raises ConfigError as `load` does."""
    try:
        document = toml_of(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML: {_printable(str(error)[:200])}; mend what it names") from error
    faults: list[_Fault] = []
    settings: dict[str, Any] = {
        name: _read_table(name, table, document.get(name, {}), faults) for name, table in TABLES.items()
    }
    cluster = settings["daemon"].cluster  # slurm+mesos: each has its table
    plugins = {"slurm", cluster, *cluster.split("+")} - {*TABLES, *STAGES, ""}
    known = {*TABLES, *STAGES, *plugins}
    for name, value in document.items():
        if name not in known:
            faults.append(_Fault((name,), "unknown table", _nearest(name, sorted(known))))
        elif name in plugins and not isinstance(value, dict):
            faults.append(_Fault((name,), "not a table", f"write [{name}]"))
    for stage in STAGES:
        faults += _strange_options(stage, document.get(stage, {}))
    faults += _mistakes(settings)
    if faults:
        lines = key_lines(text)
        raise ConfigError("\n".join(fault.told(path, lines) for fault in faults))
    return Config(
        **settings,
        share=document.get("share", {}),
        admit=document.get("admit", {}),
        defer=document.get("defer", {}),
        place=document.get("place", {}),
        clusters={name: document[name] for name in sorted(plugins & document.keys())},
        path=path,
    )


@dataclass(frozen=True, slots=True)
class _Fault:
    key: tuple[str, ...]
    problem: str
    mend: str

    def told(self, path: Path, lines: Mapping[tuple[str, ...], int]) -> str:
        """`file:line: table.key: problem; mend`"""
        line = lines.get(self.key) or lines.get(self.key[:1])
        place = f"{path}:{line}" if line else str(path)
        key = ".".join(part[:80] for part in self.key)
        return f"{place}: {_printable(key)}: {_printable(self.problem)}; {_printable(self.mend)}"


def _strange_options(stage: str, given: Any) -> Iterator[_Fault]:
    """What is no table of options of a policy of a stage; rules are a list of tables. Options are for their owners."""
    tables = [] if not isinstance(given, dict) else [given[name] for name in given if name != "rules"]
    if not isinstance(given, dict) or not all(isinstance(options, dict) for options in tables):
        example = STAGES[stage]
        yield _Fault((stage,), "not a table of tables", f"write [{example}] and options under it")
        return
    policies = policy_names(stage)
    for name, options in given.items():
        if stage in ("admit", "defer") and name == "rules":
            if not isinstance(options, list) or not all(isinstance(rule, dict) for rule in options):
                yield _Fault(
                    (stage, name), "not a list of tables", f"write [[{stage}.rules]] above each rule"
                )
        elif name not in policies:
            yield _Fault((stage, name), f"no policy of the {stage} stage", _nearest(name, policies))


def _read_table(name: str, table: type[Any], given: Any, faults: list[_Fault]) -> Any:
    """The settings of one table; what is wrong goes to `faults`, and its default stands in."""
    if not isinstance(given, dict):
        faults.append(_Fault((name,), "not a table", f"write [{name}] and its keys below"))
        return table()
    types_of = get_type_hints(table)
    columns = {column.name: column for column in fields(table)}
    good = {}
    for key, value in given.items():
        if key not in columns:
            faults.append(_Fault((name, key), "unknown key", _nearest(key, list(columns))))
            continue
        checks = columns[key].metadata
        taken, wrong = _take(value, types_of[key], checks)
        if wrong:
            shown = "what is written there" if checks.get("secret") else f"{value!r:.80}"
            faults.append(_Fault((name, key), f"{shown} {wrong[0]}", wrong[1]))
        else:
            good[key] = taken
    return table(**good)


def _take(value: Any, wanted: Any, checks: Mapping[str, Any]) -> tuple[Any, tuple[str, str] | None]:
    """A value as `wanted`, or what is wrong with it and the mend."""
    if get_origin(wanted) is Literal or checks.get("policy_of"):
        choices = policy_names(checks["policy_of"]) if checks.get("policy_of") else get_args(wanted)
        if value not in choices or not isinstance(value, str):
            return None, ("is none of the choices", f"choose one of {', '.join(choices)}")
        return value, None
    if wanted is bool:
        return value, None if isinstance(value, bool) else ("is no truth value", "write true or false")
    if wanted in (int, float):
        return _take_number(value, wanted, checks)
    if isinstance(wanted, types.GenericAlias):  # a list of texts
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            return None, ("is no list of names", 'write ["name", "other"]')
        return tuple(value), None
    if not isinstance(value, str):
        return None, ("is no text", "write it in quotes")
    if "\0" in value or not value.isprintable():
        return None, ("holds control characters", "remove them")
    if wanted is Path:
        if not value.startswith("/"):
            return None, ("is no absolute path", "begin it with /")
        return Path(value), None
    if (checks.get("address") or checks.get("addresses")) and value:
        try:
            for one in value.split(",") if checks.get("addresses") else [value]:
                split_address(one.strip() if checks.get("addresses") else one)
        except ValueError as error:
            return None, (str(error), "write host:port, or [address]:port for IPv6")
    return value, None


def _take_number(
    value: Any, wanted: type[int] | type[float], checks: Mapping[str, Any]
) -> tuple[Any, tuple[str, str] | None]:
    if isinstance(value, bool) or not isinstance(value, int if wanted is int else int | float):
        return None, ("is no whole number" if wanted is int else "is no number", "write a number, no quotes")
    least, above, most = checks.get("least"), checks.get("above"), checks.get("most")
    bounds = [
        f"at least {least:g}" if least is not None else "",
        f"above {above:g}" if above is not None else "",
        f"at most {most:g}" if most is not None else "",
    ]
    outside = (
        not abs(value) <= MOST_NUMBER
        or (least is not None and value < least)
        or (above is not None and value <= above)
        or (most is not None and value > most)
    )
    if outside:
        return None, ("is out of range", f"give {' and '.join(filter(None, bounds)) or 'a finite number'}")
    return wanted(value), None


def _mistakes(settings: Mapping[str, Any]) -> Iterator[_Fault]:
    """What is wrong between keys that are right by themselves."""
    nodes, daemon, recorded = settings["nodes"], settings["daemon"], settings["recorded"]
    if nodes.auth == "tls":
        for key in ("cert", "key", "ca"):
            if not getattr(nodes, key):
                yield _Fault(("nodes", key), "is not given", 'auth = "tls" needs cert, key and ca')
    if 0 < nodes.lease_s < max(5.0, daemon.interval_s):
        yield _Fault(
            ("nodes", "lease_s"),
            f"{nodes.lease_s:g} is less than a cycle",
            "quotas would be lifted between two cycles; give three cycles, or 0",
        )
    if (recorded.nodes > 0) != (recorded.cores > 0):
        yield _Fault(("recorded", "cores"), "nodes and cores go together", "give both, or neither")
    if recorded.memory and recorded.nodes == 0:
        yield _Fault(("recorded", "memory"), "memory is that of each node", "give nodes and cores with it")


def split_address(text: str) -> tuple[str, int]:
    """`host:port` or `[address]:port` → host and port (0 to 65535). Raises ValueError that says what is wrong."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/@]+)):(\d{1,5})", text)
    if found is None:
        raise ValueError("is no address")
    if int(found[3]) > 65_535:
        raise ValueError("has no such port")
    return found[1] or found[2], int(found[3])


def default_of(table: str, key: str) -> Any:
    """What a key is if nobody gives it, as it would be written."""
    column = next(column for column in fields(TABLES[table]) if column.name == key)
    value = column.default if column.default_factory is MISSING else column.default_factory()
    return _plain(value)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Table and key → the line (from 1) on which it is written, as far as plain lines tell it."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        # what may be a blank stands in one place only, or a line of blanks is tried in all ways to divide it
        header = re.match(r"\s*\[\[?([\w.\"' \t-]+)\]\]?\s*(?:#.*)?$", line)
        key = re.match(r"\s*([\w\"'.-]+)\s*=", line)
        if header:
            table = tuple(part.strip("\"' \t") for part in header[1].split("."))
            lines.setdefault(table, number)
        elif key:
            lines.setdefault((*table, *(part.strip("\"'") for part in key[1].split("."))), number)
    return lines


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name[:80], names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def _printable(text: str) -> str:
    """Keys and values are shown in a terminal: what could steer it is spelt out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
