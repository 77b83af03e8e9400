"""The funnel: where the core-hours went that batch left idle, and what would let more of them be lent.

Of a replay and of a live daemon; `Funnel` is what both count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from asad.ineligible import OPTED_OUT, Ineligible, NodeIneligible
from asad.replay.results import INELIGIBLE, PolicyResult, ReplayResult
from asad.report import units
from asad.report.measures import BASELINE, metric, ordered_policies

Funnel = Sequence[tuple[str, float]]
"""(reason, core-hours) in a fixed order."""
LENT = "lent"
LEFT_OVER = ("no memory", "no cores", "no waiting job that would gain")
"""Reasons for which nobody took what hosts would have lent."""

MEANINGS = {
    "unmeasured": "Nobody knows yet what the job uses: it is young, and its application is new.",
    INELIGIBLE: "The job does not lend at all.",
    "p95 above the mean": "The host’s use varies: what it leaves idle on average it needs at times.",
    "headroom": "Left to hosts beyond what they need at their busiest.",
    "kept for batch on free cores": "No job holds these cores; kept for what batch would use if it started there.",
    "share groups": "Only strangers waited, and strangers may not share here.",
    "expert's share": "The experts would lend no more of the host.",
    "no memory": "The node’s memory was taken or kept, by jobs and for those that could start there.",
    "no cores": "Each core of the node had its guest, or no waiting job was narrow enough.",
    "no waiting job that would gain": "Nobody waited who would have ended sooner as a guest.",
    LENT: "Guests used it.",
}
"""What a reason means, in one sentence."""

OPTION_LEND = "where it is safe let such jobs lend, by the option lend"
CHANGES = {
    "unmeasured": "observe for longer, so that more applications are known",
    INELIGIBLE: OPTION_LEND,
    "headroom": "lower the option headroom, and watch whether hosts are stretched",
    "share groups": "widen share_users, where strangers may see each other’s load",
    "expert's share": "edit the expert trees, or fit them to history",
    "no memory": "bring memory requests closer to what jobs use",
}
"""What an operator can change about a reason; there is nothing to change about the others."""
BY_OPTION_LEND = (
    *(Ineligible.SEVERAL_NODES, Ineligible.GRES, Ineligible.ALL_MEMORY, Ineligible.EXCLUSIVE),
    Ineligible.HETEROGENEOUS,
)
INELIGIBLE_CHANGES = {
    **{why.text: "" for why in Ineligible},
    **{f"node: {why.text}": "" for why in NodeIneligible},
    "its node is not wholly held by one job": "",
    **{why.text: OPTION_LEND for why in BY_OPTION_LEND},
    **{why.text: "ask those who opted out" for why in OPTED_OUT},
    Ineligible.NO_GUEST_PARTITION.text: "give such partitions a guest partition",
    Ineligible.NO_TIME_LIMIT.text: "have such jobs state a time limit",
    f"node: {NodeIneligible.OPTED_OUT.text}": "take such nodes out of opt_out",
    f"node: {NodeIneligible.NO_ACTOR.text}": "see why asad-node does not answer there",
}
"""The same by why a job or node is ineligible; a plugin may have reasons of its own."""


@dataclass(frozen=True, slots=True)
class Row:
    """One reason."""

    reason: str
    """Fit to be shown."""
    core_h: float
    share: float
    """Of all that was idle."""
    meaning: str
    """Empty of a reason that is not known here."""
    change: str
    """Empty if there is nothing to change about it."""


def rows(funnel: Funnel, changes: Mapping[str, str] = CHANGES) -> list[Row]:
    """The reasons in their order; none if nobody counted, or nothing was idle."""
    total = sum(core_h for _, core_h in funnel)
    if not total > 0:
        return []
    found = []
    for reason, core_h in funnel:
        kind = INELIGIBLE if reason.startswith(INELIGIBLE) else reason
        change = changes.get(kind, "")
        if kind == INELIGIBLE:
            change = INELIGIBLE_CHANGES.get(reason.removeprefix(INELIGIBLE), change)
        found.append(Row(units.plain(reason, 60), core_h, core_h / total, MEANINGS.get(kind, ""), change))
    return found


def counted(result: ReplayResult) -> list[str]:
    """The policies that have a funnel, in the order of the tables."""
    return [name for name in ordered_policies(result) if rows(result.policies[name].funnel)]


def advice(funnel: Funnel, *, live: bool = False) -> str:
    """One sentence: how much was lent, and the largest reason about which an operator can do something.

    `live`: it has come to pass.
    """
    return _advice(funnel, CHANGES, "", live=live)


def advice_of(result: ReplayResult, name: str) -> str:
    """The same of a policy that was replayed; nothing is advised that its log or its figures contradict."""
    policy = result.policies[name]
    return _advice(policy.funnel, _changes(result, policy), nobody_to_lend_to(result, policy))


def largest(result: ReplayResult, name: str) -> Row | None:
    """The largest reason that kept CPU from being lent, of those that an operator can change."""
    policy = result.policies[name]
    return _largest(rows(policy.funnel, _changes(result, policy)))


def _largest(found: Sequence[Row]) -> Row | None:
    largest = max((row for row in found if row.change), key=lambda row: row.share, default=None)
    return largest if largest is not None and largest.share > 0 else None


def nobody_to_lend_to(result: ReplayResult, policy: PolicyResult) -> str:
    """Why nothing that hosts keep could have been lent, whatever is changed about it: half a sentence, or empty."""
    if policy.guest.any() or not len(result.submit_s):
        return ""
    if result.settings.get("lending") is False:
        return "with --no-lending nothing is lent"
    poll_s = result.settings.get("poll_s")
    interval_s = float(poll_s) if isinstance(poll_s, int | float) else 0.0
    waited = result.policies[BASELINE].start_s - result.submit_s > interval_s
    if not waited.any():
        longer = (
            f" for longer than {units.duration(interval_s)}, the interval of asad’s cycle"
            if interval_s
            else ""
        )
        return f"no job waited{longer}"
    if result.limited is None or result.limited[waited].any():
        return ""
    remedy = (
        "replay a log with time limits" if "time_limit_s" in absent(result) else "give such jobs time limits"
    )
    who = (
        f"none of the {units.plural(int(waited.sum()), 'job')} that waited"
        if waited.sum() > 1
        else "no job that waited"
    )
    return f"{who} has a time limit, and asad offers nothing to jobs without one: {remedy}"


def had_something_to_lend(policy: PolicyResult) -> bool:
    """Whether nothing was lent although hosts or free cores would have lent some."""
    amounts = dict(policy.funnel)
    return not amounts.get(LENT) and any(amounts.get(reason, 0.0) > 0 for reason in LEFT_OVER)


def _changes(result: ReplayResult, policy: PolicyResult) -> dict[str, str]:
    """What can be changed about a reason, as far as the log and the figures of the policy allow it."""
    changes = {
        **CHANGES,
        "unmeasured": "replay a longer log: what applications use is learned as their jobs end",
    }
    if "application" in absent(result):
        changes["unmeasured"] = "replay a log with the names of jobs, by which applications are known again"
    if metric(policy, "stretched_hosts"):
        del changes["headroom"]
    if result.settings.get("memory") is False or "memory_bytes" in absent(result):
        del changes["no memory"]
    del changes["share groups"]  # an option of plugins, which have no part in a replay
    return changes


def absent(result: ReplayResult) -> list[str]:
    """The columns that no job of the log has."""
    found = result.log.get("absent")
    return [str(column) for column in found] if isinstance(found, list) else []


def _advice(funnel: Funnel, changes: Mapping[str, str], instead: str, *, live: bool = False) -> str:
    """How much was lent, and then `instead`, else the largest reason in `changes`."""
    found = rows(funnel, changes)
    if not found:
        return ""
    total = sum(row.core_h for row in found)
    lent = sum(row.share for row in found if row.reason == LENT)
    left, given = ("left", "was lent") if live else ("would have left", "would have been lent")
    text = f"Of the {units.number(total)} core-h that batch {left} idle, {units.percent(lent)} {given}"
    if instead:
        return f"{text}; {instead}."
    largest = _largest(found)
    if largest is None:
        return f"{text}; nothing that kept the rest is for an operator to change."
    return (
        f"{text}; the largest reason against it that an operator can change is “{largest.reason}” "
        f"({units.percent(largest.share)}): {largest.change}."
    )
