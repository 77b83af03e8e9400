"""What a cluster's own Slurm goes by beside cores and time: tables of the scheduler SLURM, empty for all others.

Sizes: n jobs, N nodes, G kinds of gres, C classes of jobs with the same limits, at most K groups each, R resources that
limits are on, A accounts and users.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

RULE = np.dtype(
    [
        ("base", "f8"),  # what of its priority never changes
        ("reach", "i4"),  # where it may run: a row of `Rules.reach_at`
        ("wide", "i4"),  # nodes, on each of which it has even parts of its cores; 0 for any cores there are
        ("gres", "i4"),  # kind of gres, -1 for none
        ("gres_each", "i4"),  # so many of them on each node
        ("limits", "i4"),  # class, -1 for none
        ("leaf", "i4"),  # row of `Rules.account` that its use is charged to, -1 for none
        ("shape", "i4"),  # jobs of one shape have room where any of them has
    ],
    align=True,
)
CLOSURE = np.dtype(
    [
        ("begin", "f8"),
        ("end", "f8"),
        ("node", "i4"),
        (
            "foreseen",
            "?",
        ),  # planned: nobody starts who would run into it; else nobody knows of it before, nor its end
    ],
    align=True,
)
ACCOUNT = np.dtype(
    [
        ("share", "f8"),
        ("usage", "f8"),  # decayed core-seconds of its own
        ("total", "f8"),  # and of all below it
        ("level", "f8"),  # its part of what its siblings may use, over its part of what they did
        ("factor", "f8"),  # of fair share, in [0, 1]
        ("parent", "i4"),  # an earlier row, -1 for none
        ("child", "i4"),  # first and next one below the same parent, -1 for none
        ("sibling", "i4"),
        ("user", "?"),
    ],
    align=True,
)
TERMS = np.dtype(
    [
        ("age", "f8"),  # weights
        ("fair_share", "f8"),
        ("max_age", "f8"),
        ("half_life", "f8"),  # of use, inf for none
        ("period", "f8"),  # how often fair share is computed anew
        ("window", "f8"),  # how far ahead backfill plans
        ("shared", "f8"),  # when fair share was computed last
        ("depth", "i8"),  # so many waiting jobs are looked at in a pass
        ("charged", "i8"),  # so many of those that have ended are charged for the last time
        ("woken", "i8"),  # so many moments of `wake` have passed
        ("tree", "?"),  # fair share by rank in a tree; else by the classic formula
    ],
    align=True,
)


class Rules(NamedTuple):
    """Beside what is given, room for what a pass counts."""

    rule: NDArray[Any]  # (n,) RULE
    reach_at: NDArray[
        np.int64
    ]  # (M + 1,) the nodes of reach k are those from here to the next, as they are taken
    reach_node: NDArray[np.int32]
    terms: NDArray[Any]  # (1,) TERMS
    node_gres: NDArray[np.int32]  # (N, G)
    need: NDArray[np.float64]  # (n, R) what each job adds to its groups
    groups: NDArray[np.int32]  # (C, K) -1 for none
    ceiling: NDArray[np.float64]  # (C, K, R) inf for none
    closure: NDArray[Any]  # CLOSURE: no job may run there then
    wake: NDArray[np.float64]  # when closures end, in order
    account: NDArray[Any]  # (A,) ACCOUNT
    used: NDArray[np.float64]  # what each group uses now
    gres: NDArray[np.int32]  # (N, G) what is free now
    room: NDArray[np.int8]  # of each shape: is there room for it now? 2 where nobody has looked


def are_rules(state: types.NamedTuple) -> bool:
    """Has a state rules, by its type for compiled code? Else it has an empty tuple."""
    return isinstance(state.types[state.fields.index("rules")], types.NamedTuple)


def own_rules(rules: Rules) -> Rules:
    """A copy that a simulation may change."""
    return Rules._make(table.copy() for table in rules)
