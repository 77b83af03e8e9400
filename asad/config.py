"""asad.toml → typed settings. What is not known here is an error, with the nearest name that is.

The defaults are those of docs/reference/configuration.md; a test holds the two to each other. Tables of cluster plugins
(`[slurm]`, or one named by `daemon.cluster`) and options of policies (`[share.asax]`) are kept as plain data: whoever
they belong to checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from asad.bounded import printable, toml_of
from asad.catalog import policy_names
from asad.errors import ConfigError
from asad.tables import Fault, Is, Words, key_lines, nearest_of, read_table

DEFAULT_PATH = Path("/etc/asad/asad.toml")
MAX_FILE_BYTES = 1024 * 1024
MODES = ("observe", "advise", "enforce")
Mode = Literal["observe", "advise", "enforce"]


def split_address(text: str) -> tuple[str, int]:
    """`host:port` or `[address]:port` → host and port (0 to 65535). Raises ValueError that says what is wrong."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/@]+)):(\d{1,5})", text)
    if found is None:
        raise ValueError("is no address; write host:port, or [address]:port for IPv6")
    if int(found[3]) > 65_535:
        raise ValueError("has no such port; give one to 65535")
    return found[1] or found[2], int(found[3])


def _address(text: str) -> str:
    """`HOST:PORT`, or empty."""
    if text:
        split_address(text)
    return text


def _zone(text: str) -> str:
    """The name of a time zone, or empty."""
    if text:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            ZoneInfo(text)
        except (ZoneInfoNotFoundError, OSError):
            raise ValueError("is no time zone; write a name of `timedatectl list-timezones`") from None
    return text


class _Several(tuple[str, ...]):
    """Names, of which several may be given with `+` between them."""

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and all(
            super(_Several, self).__contains__(one) for one in text.split("+")
        )


def _admit_names() -> _Several:
    """Of policies of the admit stage."""
    return _Several(policy_names("admit"))


def _addresses(text: str) -> str:
    """One address or several, with commas between them; or empty."""
    for one in text.split(",") if text else ():
        split_address(one.strip())
    return text


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """`[daemon]`"""

    mode: Mode = "observe"
    """`observe` measures and learns; `advise` also decides and records what it would do; `enforce` also acts."""
    cluster: str = "slurm"
    """Name of a cluster plugin (entry point group `asad.clusters`: `slurm`, `mesos`, `slurm+mesos`), or
    `recorded`."""
    interval_s: Annotated[float, Is(above=0.0, most=3600.0)] = 30.0
    """From the beginning of one cycle to that of the next."""
    state_dir: Path = Path("/var/lib/asad")
    """Journal of offers, lock and state store; refused if others may write to it. Another one needs a line in the
    units."""
    store: Annotated[str, Is(secret=True)] = ""
    """Path or URL of the state store; empty: `asad.db` in `state_dir`."""
    socket: Path = Path("/run/asad/asad.sock")
    """Where `asactl` asks."""
    operators: str = ""
    """Group whose members may pause, resume, release and change the mode; empty: root and the daemon's user alone."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """`debug`, `info`, `warning` or `error`."""
    time_zone: Annotated[str, Is(made=_zone)] = ""
    """Zone in which `asactl` shows times, as `Europe/Berlin`; empty: that of the machine where it runs. The variable
    `TZ` of who asks goes first."""
    retention_days: Annotated[float, Is(above=0.0, most=36_500.0)] = 90.0
    """Age at which every row of live runs that names a job or a user is removed from the store, whatever `[store]`
    says; but for what was learned of applications, which goes 180 days after their last job."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`[store]`: how long the state store keeps what of live runs. What is removed is summed up by hour, and later by
    day, in tables that name neither jobs nor users."""

    decisions_days: Annotated[float, Is(above=0.0, most=36_500.0)] = 30.0
    """Age at which single decisions are summed up by hour, policy, kind and outcome; never above
    `[daemon] retention_days`."""
    quota_days: Annotated[float, Is(above=0.0, most=36_500.0)] = 14.0
    """Age at which single writes of node actors are summed up by hour, node and file; never above
    `[daemon] retention_days`."""
    hourly_days: Annotated[float, Is(above=0.0, most=36_500.0)] = 60.0
    """Age at which sums by hour become sums by day; also those of the ledger and of how jobs ended, whose single rows
    stay for `[daemon] retention_days`."""
    daily_days: Annotated[float, Is(above=0.0, most=36_500.0)] = 1825.0
    """Age at which sums by day are removed."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """`[policies]`"""

    admit: Annotated[str, Is(choices=_admit_names)] = "everyone"
    """Who may run, when and how wide."""
    defer: Annotated[str, Is(choices=partial(policy_names, "defer"))] = "at-once"
    """When deferrable jobs start."""
    place: Annotated[str, Is(choices=partial(policy_names, "place"))] = "native"
    """Who places jobs."""
    share: Annotated[str, Is(choices=partial(policy_names, "share"))] = "asax"
    """Who lends."""
    experts: str = ""
    """Folder of expert trees; empty: those that asad ships."""


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """`[guard]`. Shares and fractions in [0, 1]."""

    happiness_floor: Annotated[float, Is(least=0.0, most=100.0)] = 1.0
    """A host whose happiness is known and below this lends nothing more."""
    host_floor: Annotated[float, Is(least=0.0, most=1.0)] = 0.1
    """Share of its cores that a host keeps beyond the 95th percentile of its use (the host of a pair: beyond its mean
    use), and free cores beyond usual use."""
    pressure: Annotated[float, Is(above=0.0, most=1.0)] = 0.2
    """Where a host waited for CPU for more than this fraction of the last seconds, the newest guest of its node gives
    way; beside the host of a pair its guest does."""
    node_share_cap: Annotated[float, Is(least=0.0, most=1.0)] = 0.9
    """Most that is lent of one node (of a pair: of one host on it), to all guests together."""
    guests_cap: Annotated[int, Is(least=0)] = 0
    """Most guests at one time, running and offered; 0: no cap."""
    memory_bandwidth: Annotated[float, Is(least=0.0, most=1.0)] = 0.02
    """Part of its pace that a memory-bound host may lose to a memory-bound guest; where calibration says more, two
    such jobs do not meet on a node."""
    calibration: str = ""
    """The file that `asactl calibrate` wrote on one of these nodes; empty: the one that asad ships."""
    offer_patience_s: Annotated[float, Is(above=0.0)] = 60.0
    """An offer that was not taken for so long is withdrawn."""
    memory_slack: Annotated[float, Is(least=0.0, most=10.0)] = 0.1
    """No memory limit is below what a job uses and this part of it besides."""
    most_defer_s: Annotated[float, Is(above=0.0, most=31_536_000.0)] = 86_400.0
    """No job is deferred further ahead than this; admission defers no further either."""
    most_lease_s: Annotated[float, Is(above=0.0, most=31_536_000.0)] = 3600.0
    """No deferrable job is held back for longer without a further look."""


@dataclass(frozen=True, slots=True)
class NodesSettings:
    """`[nodes]`: how node actors and the daemon speak to each other."""

    listen: Annotated[str, Is(made=_address)] = "0.0.0.0:6820"
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
    lease_s: Annotated[float, Is(least=0.0)] = 0.0
    """How long quotas hold without a completed cycle; 0: three cycles, at least 15 s."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`[node]`: the node actor's own."""

    daemon: Annotated[str, Is(made=_addresses)] = "localhost:6820"
    """Where the daemon listens; of several head nodes all, with commas between them."""
    node: str = ""
    """Name of the node in Slurm; empty: the host name."""
    sample_s: Annotated[float, Is(above=0.0, most=600.0)] = 5.0
    """Interval of the profile."""
    pressure_s: Annotated[float, Is(above=0.0, most=60.0)] = 0.5
    """Interval at which hosts with guests are looked at."""
    state_dir: Path = Path("/var/lib/asad-node")
    """Announced guests, and quotas to restore."""
    guest_partitions: tuple[str, ...] = ("guest",)
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

    listen: Annotated[str, Is(made=_address)] = "127.0.0.1:9620"
    """Where Prometheus scrapes; empty: nowhere."""


@dataclass(frozen=True, slots=True)
class WebSettings:
    """`[web]`: what the daemon holds of the live page (`asad-web`), which is a process of its own."""

    user: str = "asad-web"
    """The user as whom `asad-web` runs: it may read statements of work too, to show them to their owners; empty: none
    but operators may."""
    private: Literal["auto", "yes", "no"] = "auto"
    """Does the page show to users no jobs but their own? `auto`: where Slurm's `PrivateData` has `jobs`."""


@dataclass(frozen=True, slots=True)
class RecordedSettings:
    """`[recorded]`: what `cluster = "recorded"` plays."""

    log: str = ""
    """The log, in any form that `asactl replay` reads."""
    nodes: Annotated[int, Is(least=0)] = 0
    """Nodes of the machine; 0: inferred from the log."""
    cores: Annotated[int, Is(least=0)] = 0
    """Cores of each node."""
    memory: str = ""
    """Memory of each node (`128G`); memory then counts."""
    demand: str = ""
    """CPU demand where the log has none: a TOML profile or `beta:MEAN`."""
    speed: Annotated[float, Is(above=0.0)] = 1000.0
    """Seconds of the log in one second."""
    seed: Annotated[int, Is(least=0)] = 0
    """Seed of everything drawn."""
    stay: bool = False
    """Stay and answer when the log has ended."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one asad.toml."""

    daemon: DaemonSettings = field(default_factory=DaemonSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    policies: PolicySettings = field(default_factory=PolicySettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    nodes: NodesSettings = field(default_factory=NodesSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    web: WebSettings = field(default_factory=WebSettings)
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
    "store": StoreSettings,
    "policies": PolicySettings,
    "guard": GuardSettings,
    "nodes": NodesSettings,
    "node": NodeSettings,
    "metrics": MetricsSettings,
    "web": WebSettings,
    "recorded": RecordedSettings,
}
"""Name of a table → its settings."""
STAGES = {"share": "share.asax", "admit": "admit.oasis", "defer": "defer.edf", "place": "place.oga"}
"""Stages whose policies have options in tables of their own → such a table."""


def load(path: str | Path) -> Config:
    """The settings of a file.

    Raises ConfigError that names file, line, key and remedy of everything that is wrong, a line each.
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
        raise ConfigError(
            f"{path}: not TOML: {printable(str(error)[:200])}; correct what it names"
        ) from error
    return of_document(document, path, text)


def of_document(document: Mapping[str, Any], path: Path, text: str = "") -> Config:
    """The settings of tables that were read from `text`, whose lines errors name. Raises ConfigError as `load` does."""
    read_tables = {
        name: read_table(table, document.get(name, {}), Words(), (name,)) for name, table in TABLES.items()
    }
    settings = {name: table for name, (table, _) in read_tables.items()}
    faults = [fault for _, found in read_tables.values() for fault in found]
    cluster = settings["daemon"].cluster  # slurm+mesos: each has its table
    plugins = {"slurm", cluster, *cluster.split("+")} - {*TABLES, *STAGES, ""}
    known = {*TABLES, *STAGES, *plugins}
    for name, value in document.items():
        if name not in known:
            faults.append(_fault(f"unknown table; {nearest_of(name, sorted(known))}", name))
        elif name in plugins and not isinstance(value, dict):
            faults.append(_fault(f"not a table; write [{name}]", name))
    for stage in STAGES:
        faults += _strange_options(stage, document.get(stage, {}))
    faults += _mistakes(settings)
    if faults:
        lines = key_lines(text)
        raise ConfigError("\n".join(fault.located(str(path), lines) for fault in faults))
    return Config(
        **settings,
        share=document.get("share", {}),
        admit=document.get("admit", {}),
        defer=document.get("defer", {}),
        place=document.get("place", {}),
        clusters={name: document[name] for name in sorted(plugins & document.keys())},
        path=path,
    )


def _fault(text: str, *key: str) -> Fault:
    """What is wrong with a table, or with a key of it."""
    return Fault(key, printable(f"{'.'.join(part[:80] for part in key)}: {text}"))


def _strange_options(stage: str, given: Any) -> Iterator[Fault]:
    """What is no table of options of a policy of a stage; rules are a list of tables. Options are for their owners."""
    tables = [] if not isinstance(given, dict) else [given[name] for name in given if name != "rules"]
    if not isinstance(given, dict) or not all(isinstance(options, dict) for options in tables):
        yield _fault(f"not a table of tables; write [{STAGES[stage]}] and options under it", stage)
        return
    policies = policy_names(stage)
    for name, options in given.items():
        if stage in ("admit", "defer") and name == "rules":
            if not isinstance(options, list) or not all(isinstance(rule, dict) for rule in options):
                yield _fault(f"not a list of tables; write [[{stage}.rules]] above each rule", stage, name)
        elif name not in policies:
            yield _fault(f"no policy of the {stage} stage; {nearest_of(name, policies)}", stage, name)


def _mistakes(settings: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong between keys that are right by themselves."""
    nodes, daemon, recorded = settings["nodes"], settings["daemon"], settings["recorded"]
    if nodes.auth == "tls":
        for key in ("cert", "key", "ca"):
            if not getattr(nodes, key):
                yield _fault('is not given; auth = "tls" needs cert, key and ca', "nodes", key)
    if 0 < nodes.lease_s < max(5.0, daemon.interval_s):
        problem = f"{nodes.lease_s:g} is less than a cycle, quotas would be lifted between two"
        yield _fault(f"{problem}; give three cycles, or 0", "nodes", "lease_s")
    if (recorded.nodes > 0) != (recorded.cores > 0):
        yield _fault("nodes and cores go together; give both, or neither", "recorded", "cores")
    if recorded.memory and recorded.nodes == 0:
        yield _fault("memory is that of each node; give nodes and cores with it", "recorded", "memory")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
