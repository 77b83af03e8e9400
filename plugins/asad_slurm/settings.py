"""The table `[slurm]` of asad.toml, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from asad.cluster.eligibility import Lend, lend_of
from asad.errors import ConfigError
from asad.tables import PLUGIN_WORDS, Is, read_or_raise
from asad_slurm.nodesets import expand


def _names(value: Any) -> frozenset[str]:
    """Names; jobs may be given by their numbers."""
    if not isinstance(value, list | tuple):
        raise ValueError('is no list of names; write ["…"]')
    return frozenset(map(str, value))


def _patterns(value: Any) -> tuple[str, ...]:
    return tuple(sorted(_names(value)))


Names = Annotated[frozenset[str], Is(made=_names, raw=True)]


def _nodes(value: Any) -> frozenset[str]:
    """The names of a node set."""
    if not isinstance(value, str):
        raise ValueError('is no node set; write nodes = "n[1-3]"')
    try:
        return frozenset(expand(value))
    except ValueError as error:
        problem = str(error).removeprefix(f"{value!r} ")
        raise ValueError(f'{problem}; write nodes = "n[1-3]"') from None


def _partition(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError('is no partition; write guest_partitions = {batch = "guest"}')
    return value


def _path(value: str) -> str:
    if value and not value.startswith("/"):
        raise ValueError('is no path from the root on; write "/…"')
    return value


Partition = Annotated[str, Is(made=_partition, raw=True)]


@dataclass(frozen=True, slots=True)
class OptOut:
    """Who takes no part, neither as host nor as guest."""

    jobs: Names = frozenset()
    users: Names = frozenset()
    accounts: Names = frozenset()
    partitions: Names = frozenset()
    qos: Names = frozenset()
    nodes: Annotated[frozenset[str], Is(made=_nodes, raw=True)] = frozenset()


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """Whose jobs are bound by memory bandwidth."""

    names: Annotated[tuple[str, ...], Is(made=_patterns, raw=True)] = ()
    """Patterns of job names (`*`, `?`, `[…]`), upper and lower case apart."""
    partitions: Names = frozenset()


@dataclass(frozen=True, slots=True)
class Settings:
    """How Slurm is asked, and who may share with whom."""

    transport: Literal["auto", "command", "pyslurm"] = "auto"
    """`command`: squeue and sinfo; `pyslurm`: a child process with pyslurm; `auto`: pyslurm where it is installed,
    answers and reports enough, else the commands."""
    timeout_s: Annotated[float, Is(0.1, 600.0)] = 10.0
    """A command or child that has not answered by then is killed."""
    guest_partitions: Mapping[str, Annotated[str, Is(made=_partition, raw=True)]] = field(
        default_factory=lambda: {"batch": "guest"}
    )
    """By partition in which jobs wait: the partition in which they run as guests."""
    share_users: Literal["as-slurm", "same", "account", "any"] = "as-slurm"
    """Who may meet on a node: whoever Slurm itself would put there (`as-slurm`); jobs of the `same` user; of the same
    `account`; `any`. With `same` and `account` free cores are not lent, since a stranger may start there."""
    lend: Lend = field(default_factory=Lend)
    """Which kinds of hosts lend: the table `[slurm.lend]`, below."""
    opt_out: OptOut = OptOut()
    """Who takes no part: `jobs`, `users`, `accounts`, `partitions`, `qos` (lists of names), `nodes` (a node set,
    `"n[1-3]"`)."""
    memory_bound: MemoryBound = MemoryBound()
    """Whose jobs are bound by memory bandwidth: `names` (patterns of job names, `["stream*"]`), `partitions`
    (names)."""
    offer_patience_s: Annotated[float, Is(1.0, 86_400.0)] = 60.0
    """An offer that has not been taken by then is withdrawn."""
    depth: Annotated[int, Is(1, 100_000)] = 100
    """Waiting jobs that are looked at, in Slurm's order."""
    window_s: Annotated[float, Is(0.0, 86_400.0)] = 60.0
    """A job counts as measured when the actors of all its nodes have watched it for this long."""
    most_extension: Annotated[float, Is(0.0, 100.0)] = 1.0
    """A limit is extended by at most so many times what the job's user asked for; lending may take no more
    from a job."""
    journal_dir: Annotated[str, Is(made=_path)] = ""
    """Folder of the journal of offers; empty: the daemon's state folder. With two head nodes one that both see."""
    mark_key: Annotated[str, Is(made=_path)] = ""
    """File with the key by which a daemon recognises its own marks on jobs; empty: `mark.key`, made in the state
    folder. With two head nodes the same on both."""
    admitted_nice: Annotated[int, Is(-2_000_000_000, 0)] = -10_000
    """Added to the nice of an admitted job, so that Slurm tries it first; `0` leaves it as it
    is."""


def read_settings(table: Mapping[str, Any]) -> Settings:
    """Check the table `[slurm]`. Raises ConfigError naming the key, and the nearest known one for an unknown key."""
    lend_of(table)  # has more to say about what is no table
    settings: Settings = read_or_raise(Settings, table, PLUGIN_WORDS, ("slurm",))
    partitions = settings.guest_partitions
    if "" in partitions:
        raise ConfigError('[slurm] guest_partitions: a source has no name; write {batch = "guest"}')
    if set(partitions) & set(partitions.values()):
        raise ConfigError(
            "[slurm] guest_partitions: a guest partition cannot be a source of guests as well; "
            "give each source partition a guest partition of its own"
        )
    return settings
