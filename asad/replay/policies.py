"""Names of policies in a replay, by the stage that each drives, and which are replayed where nobody names one."""

from __future__ import annotations

SCHEDULING = {"slurm": "easy", "fcfs": "fcfs", "conservative": "conservative"}
"""Policies that leave the cluster alone → its own scheduler."""

FLUID = "fluid"
"""A yardstick, no bound: EASY where a job takes the CPU that it uses, and not the cores that it asks for."""

PAIRING = {"static": "static", "asax-paper": "static", "greedy-oracle": "idle"}
"""Policies that lend one guest a share of one host → how the guest is held, which decides what sharing costs."""

POOLING = {"measured": "idle", "asax": "idle", "pool-oracle": "idle"}
"""Policies that lend from the pools of nodes → the same."""

LENDING = PAIRING | POOLING
"""Policies of the share stage → the same."""

PLACING = dict.fromkeys(("first-fit", "fairness", "drf", "binpack", "spread", "oga"), "idle")
"""Policies of the place stage, which lend by themselves → how the guest is held."""

ADMITTING = {
    "oasis": "oasis",
    "oasis-paper": "oasis-paper",
    "fifo-admit": "fifo",
    "drf-admit": "drf",
    "rrh-admit": "rrh",
    "dorm-admit": "dorm",
}
"""Policies that admit, defer and throttle → the scheme of the admit stage; nobody lends beside it."""

DEFERRING = {
    "fifo-defer": "fifo",
    "sjf-defer": "sjf",
    "edf-defer": "edf",
    "tetris-defer": "tetris",
    "biggest-defer": "biggest",
    "linear-defer": "linear",
    "lookahead-defer": "lookahead",
    "rollout-defer": "rollout",
    "osdec": "osdec",
}
"""Policies that put deferrable jobs off → the policy of the defer stage; nobody lends or admits beside it."""

STATING = {"sow": "sow", "sow-paper": "sow-paper"}
"""Policies that plan statements of work → the mechanism; nobody lends, admits or defers beside it."""

POLICIES = (*SCHEDULING, FLUID, *LENDING, *PLACING, *ADMITTING, *DEFERRING, *STATING)

DEFAULT_POLICIES = ("slurm", "static", "measured", "asax", "pool-oracle")

BEST = {"utilities": "oasis", "deferrable": "rollout-defer", "statements": "sow"}
"""What a replay is told about its jobs → the policy that is best for such jobs; the evaluations tell why."""


def usual_policies(*, utilities: bool, deferrable: bool, statements: bool) -> tuple[str, ...]:
    """What is replayed where nobody names a policy: lending, or the best for jobs of the kinds that are declared."""
    told = {"utilities": utilities, "deferrable": deferrable, "statements": statements}
    best = tuple(BEST[kind] for kind, given in told.items() if given)
    return ("slurm", *best) if best else DEFAULT_POLICIES
