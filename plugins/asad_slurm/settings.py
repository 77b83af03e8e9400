"""The table `[slurm]` of asad.toml, checked."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asad.errors import ConfigError
from asad_slurm.nodesets import expand

log = logging.getLogger(__name__)

TRANSPORTS = ("auto", "command", "pyslurm")
SHARE_USERS = ("as-slurm", "same", "account", "any")
LEND = ("multi-node", "gres", "whole-memory", "exclusive")
FORMER_LEND = frozenset(("shared-node",))
"""What all jobs do by now: still read, and passed over."""


@dataclass(frozen=True, slots=True)
class OptOut:
    """Who takes no part, neither as host nor as guest."""

    jobs: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    qos: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """Whose jobs are bound by memory bandwidth."""

    names: tuple[str, ...] = ()
    """Patterns of job names (`*`, `?`, `[…]`), upper and lower case apart."""
    partitions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Settings:
    """How Slurm is asked, and who may share with whom."""

    transport: str = "auto"
    """`command`: squeue and sinfo; `pyslurm`: a child process with pyslurm; `auto`: pyslurm where it is installed,
    answers and reports enough, else the commands."""
    timeout_s: float = 10.0
    """A command or child that has not answered by then is killed (0.1 to 600)."""
    guest_partitions: Mapping[str, str] = field(default_factory=lambda: {"batch": "guest"})
    """By partition in which jobs wait: the partition in which they run as guests."""
    share_users: str = "as-slurm"
    """Who may meet on a node: whoever Slurm itself would put there (`as-slurm`); jobs of the `same` user; of the same
    `account`; `any`. With `same` and `account` free cores are not lent, since a stranger may start there."""
    lend: frozenset[str] = frozenset()
    """Hosts that lend although they do not by default: `"multi-node"`, `"gres"`, `"whole-memory"`, `"exclusive"`."""
    opt_out: OptOut = OptOut()
    """Who takes no part: `jobs`, `users`, `accounts`, `partitions`, `qos` (lists of names), `nodes` (a node set,
    `"n[1-3]"`)."""
    memory_bound: MemoryBound = MemoryBound()
    """Whose jobs are bound by memory bandwidth: `names` (patterns of job names, `["stream*"]`), `partitions`
    (names)."""
    offer_patience_s: float = 60.0
    """An offer that has not been taken by then is withdrawn (1 to 86400)."""
    depth: int = 100
    """Waiting jobs that are looked at, in Slurm's order."""
    window_s: float = 60.0
    """A job counts as measured when the actors of all its nodes have watched it for this long."""
    most_extension: float = 1.0
    """A limit is extended by at most so many times what the job's user asked for (0 to 100); lending may take no more
    from a job."""
    journal_dir: str = ""
    """Folder of the journal of offers; empty: the daemon's state folder. With two head nodes one that both see."""
    mark_key: str = ""
    """File with the key by which a daemon recognises its own marks on jobs; empty: `mark.key`, made in the state
    folder. With two head nodes the same on both."""
    admitted_nice: int = -10_000
    """Added to the nice of an admitted job, so that Slurm tries it first (−2 000 000 000 to 0); `0` leaves it as it
    is."""


def read_settings(table: Mapping[str, Any]) -> Settings:
    """Check the table `[slurm]`. Raises ConfigError naming the key, and the nearest known one for an unknown key."""
    defaults = Settings()
    _known(table, Settings.__dataclass_fields__, "slurm")
    partitions = _table(table, "guest_partitions", dict(defaults.guest_partitions))
    for source, guest in partitions.items():
        if not isinstance(guest, str) or not guest or not source:
            raise ConfigError(
                f"[slurm] guest_partitions.{source[:80]}: {guest!r:.80} is no partition; "
                'write guest_partitions = {batch = "guest"}'
            )
    if set(partitions) & set(partitions.values()):
        raise ConfigError(
            "[slurm] guest_partitions: a guest partition cannot be a source of guests as well; "
            "give each source partition a guest partition of its own"
        )
    return Settings(
        transport=_choice(table, "transport", TRANSPORTS, defaults.transport),
        timeout_s=_number(table, "timeout_s", defaults.timeout_s, 0.1, 600.0),
        guest_partitions=partitions,
        share_users=_choice(table, "share_users", SHARE_USERS, defaults.share_users),
        lend=_lend(table),
        opt_out=_opt_out(_table(table, "opt_out", {})),
        memory_bound=_memory_bound(_table(table, "memory_bound", {})),
        offer_patience_s=_number(table, "offer_patience_s", defaults.offer_patience_s, 1.0, 86400.0),
        depth=int(_number(table, "depth", defaults.depth, 1, 100_000)),
        journal_dir=_path(table, "journal_dir"),
        mark_key=_path(table, "mark_key"),
        most_extension=_number(table, "most_extension", defaults.most_extension, 0.0, 100.0),
        window_s=_number(table, "window_s", defaults.window_s, 0.0, 86400.0),
        admitted_nice=int(_number(table, "admitted_nice", defaults.admitted_nice, -2_000_000_000, 0)),
    )


def _lend(table: Mapping[str, Any]) -> frozenset[str]:
    named = _names(table, "lend", "[slurm] lend")
    for name in sorted(named & FORMER_LEND):
        log.warning("[slurm] lend: %r is what all jobs do by now; leave it out", name)
    chosen = named - FORMER_LEND
    for name in chosen:
        if name not in LEND:
            raise ConfigError(f"[slurm] lend: {name!r:.80} is unknown; choose from {', '.join(LEND)}")
    return chosen


def _opt_out(table: Mapping[str, Any]) -> OptOut:
    _known(table, OptOut.__dataclass_fields__, "slurm.opt_out")
    nodes = table.get("nodes", "")
    if not isinstance(nodes, str):
        raise ConfigError(f'[slurm.opt_out] nodes: {nodes!r:.80} is no node set; write nodes = "n[1-3]"')
    try:
        names = expand(nodes)
    except ValueError as error:
        raise ConfigError(f'[slurm.opt_out] nodes: {error}; write nodes = "n[1-3]"') from None
    return OptOut(
        **{
            key: _names(table, key, f"[slurm.opt_out] {key}")
            for key in ("jobs", "users", "accounts", "partitions", "qos")
        },
        nodes=frozenset(names),
    )


def _memory_bound(table: Mapping[str, Any]) -> MemoryBound:
    _known(table, MemoryBound.__dataclass_fields__, "slurm.memory_bound")
    return MemoryBound(
        names=tuple(sorted(_names(table, "names", "[slurm.memory_bound] names"))),
        partitions=_names(table, "partitions", "[slurm.memory_bound] partitions"),
    )


def _known(table: Mapping[str, Any], known: Mapping[str, object], name: str) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key[:80], known, n=1)
            mend = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"[{name}] {key[:80]}: there is no such setting; {mend}")


def _table(table: Mapping[str, Any], key: str, default: dict[str, Any]) -> dict[str, Any]:
    value = table.get(key, default)
    if not isinstance(value, Mapping):
        raise ConfigError(f"[slurm] {key}: {value!r:.80} is no table")
    return dict(value)


def _names(table: Mapping[str, Any], key: str, place: str) -> frozenset[str]:
    value = table.get(key, [])
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ConfigError(f'{place}: {value!r:.80} is no list of names; write {key} = ["…"]')
    return frozenset(str(name) for name in value)


def _choice(table: Mapping[str, Any], key: str, choices: tuple[str, ...], default: str) -> str:
    value = table.get(key, default)
    if value not in choices:
        raise ConfigError(f"[slurm] {key}: {value!r:.80} is unknown; choose from {', '.join(choices)}")
    return str(value)


def _path(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or (value and not value.startswith("/")):
        raise ConfigError(f'[slurm] {key}: {value!r} is no path from the root on; write {key} = "/…"')
    return value


def _number(table: Mapping[str, Any], key: str, default: float, least: float, most: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"[slurm] {key}: {value!r:.80} is no number from {least:g} to {most:g}")
    return float(value)
