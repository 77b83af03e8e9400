"""Who may lend and who may be a guest, by what is known of a job alone: the rules for live clusters and for replays.

A plugin gives the facts that its resource manager reports of a job, and puts before these rules what it alone has
(guest partitions, opt-outs). A replay has the facts of all jobs of its log as columns: each combination of them is
asked about once. What depends on other jobs, on nodes or on measurements is added by those who see them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.errors import ConfigError
from asad.ineligible import Ineligible
from asad.model import Codes
from asad.tables import PLUGIN_WORDS, read_or_raise

PLACE = ("slurm", "lend")


@dataclass(frozen=True, slots=True)
class Lend:
    """`[slurm.lend]`: which kinds of hosts lend, live and in replays."""

    multi_node: bool = True
    """Jobs on several nodes, and parts of heterogeneous jobs."""
    gres: bool = False
    """Jobs with gres. Memory and PCIe of the node are shared with guests; what slows such a job keeps its GPUs
    waiting."""
    whole_memory: bool = False
    """Jobs with `--mem=0` or without a memory limit. Slurm seldom finds memory for a guest beside them."""
    exclusive: bool = False
    """Jobs with `--exclusive`. Slurm seldom starts a guest beside them."""


class JobFacts(NamedTuple):
    """What the rules ask of a job. The defaults are for what nobody knows of it, as of most in an accounting log."""

    nodes: int = 1
    """That it runs on or asks for; more than two are as two."""
    gres: bool = False
    whole_memory: bool = False
    exclusive: bool = False
    heterogeneous: bool = False
    licences: bool = False
    reservation: bool = False
    dependency: bool = False
    """On a job that has not ended."""
    suspended: bool = False
    time_limit: bool = True
    """It has one, and it is finite."""
    waits_turn: bool = True
    """Nothing but its turn keeps it waiting."""
    estimate: bool = True
    """Its start has been estimated."""
    limit: bool = False
    """A limit of its user, account or QOS keeps it from starting, which binds guests too."""


def lend_of(table: Mapping[str, Any]) -> Lend:
    """The switches in the table of a plugin, `[slurm]`. Raises ConfigError that names the key."""
    given = table.get("lend", {})
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"[slurm] lend: {given!r:.80} is no table; write [slurm.lend] and below it "
            + ", ".join(f"{switch.name} = true or false" for switch in fields(Lend))
        )
    lend: Lend = read_or_raise(Lend, given, PLUGIN_WORDS, PLACE)
    return lend


def host_ineligible(facts: JobFacts, lend: Lend) -> Ineligible:
    """Why a running job may not lend: `Ineligible.NO` for nothing."""
    return _first(
        (Ineligible.HETEROGENEOUS, facts.heterogeneous and not lend.multi_node),
        (Ineligible.SEVERAL_NODES, facts.nodes > 1 and not lend.multi_node),
        (Ineligible.GRES, facts.gres and not lend.gres),
        (Ineligible.ALL_MEMORY, facts.whole_memory and not lend.whole_memory),
        (Ineligible.EXCLUSIVE, facts.exclusive and not lend.exclusive),
        (Ineligible.RESERVATION, facts.reservation),
        (Ineligible.NOT_ITS_TURN, facts.suspended),
    )


def guest_ineligible(facts: JobFacts) -> Ineligible:
    """Why a waiting job may not be a guest: `Ineligible.NO` for nothing."""
    return _first(
        (Ineligible.GRES, facts.gres),
        (Ineligible.ALL_MEMORY, facts.whole_memory),
        (Ineligible.EXCLUSIVE, facts.exclusive),
        (Ineligible.LICENCES, facts.licences),
        (Ineligible.RESERVATION, facts.reservation),
        (Ineligible.DEPENDENCY, facts.dependency),
        (Ineligible.NO_TIME_LIMIT, not facts.time_limit),
        (Ineligible.HETEROGENEOUS, facts.heterogeneous),
        (Ineligible.LIMIT, facts.limit),
        (Ineligible.NOT_ITS_TURN, not facts.waits_turn),
        (Ineligible.NO_ESTIMATE, not facts.estimate),
    )


def _first(*reasons: tuple[Ineligible, object]) -> Ineligible:
    """The first reason that holds."""
    return next((reason for reason, holds in reasons if holds), Ineligible.NO)


# ---------------------------------------------------------------------------------------------------------- columns


def hosts_ineligible(facts: Mapping[str, NDArray[Any]], lend: Lend) -> Codes | None:
    """(n,) `host_ineligible` of jobs whose facts are columns by their names in `JobFacts`; None: all may lend."""
    return _column(facts, lambda one: host_ineligible(one, lend))


def guests_ineligible(facts: Mapping[str, NDArray[Any]]) -> Codes | None:
    """(n,) `guest_ineligible` of jobs whose facts are columns by their names in `JobFacts`; None: all may be
    guests."""
    return _column(facts, guest_ineligible)


def _column(facts: Mapping[str, NDArray[Any]], why: Callable[[JobFacts], Ineligible]) -> Codes | None:
    """The reason of each row, looked for once for each combination of facts that there is."""
    key = np.zeros(len(next(iter(facts.values()))), np.int32)
    for column in facts.values():
        key = key * 3 + np.clip(column, 0, 2).astype(
            np.int32
        )  # facts are truths, but for the number of nodes
    reasons = np.zeros(3 ** len(facts), np.int8)
    for found in np.flatnonzero(np.bincount(key)).tolist():
        digits = (found // 3**place % 3 for place in reversed(range(len(facts))))
        values = {
            name: digit if name == "nodes" else bool(digit) for name, digit in zip(facts, digits, strict=True)
        }
        reasons[found] = why(JobFacts(**values))
    codes: Codes = reasons[key]
    return codes if codes.any() else None
