"""What a policy brought and whom it cost, in sentences. Worse is put as plainly as better."""

from __future__ import annotations

from asad.replay.results import PolicyResult, ReplayResult
from asad.report import funnel, units
from asad.report.effects import ADMISSION, DEFERRAL, LENDING, STATEMENTS, effect_of
from asad.report.measures import BASELINE, affected, metric, relative, unshared

UNCHANGED = 0.005
"""A mean that moves by less than this fraction is called unchanged."""


def gains(result: ReplayResult, name: str) -> tuple[str, ...]:
    """What a policy that does not lend changed: what its kind is there for, then response and wait."""
    effect = effect_of(result.policies[name])
    own = [made(result, name) for made in OWN.get(effect, ())]
    nothing = (
        effect.nothing.format(units.plain(name))
        if effect.nothing and not affected(result.policies[name])
        else ""
    )
    return (*own, nothing or _gain(result, name))


def nothing_lent(result: ReplayResult, name: str) -> str:
    """That a policy lent nothing, and why; empty where it lent."""
    policy, shown = result.policies[name], units.plain(name)
    if affected(policy):
        return ""
    if why := funnel.nobody_to_lend_to(result, policy):
        return f"{shown} lent nothing: {why}."
    if funnel.had_something_to_lend(policy):
        return f"{shown} found nobody to lend to: no job became host or guest."
    return LENDING.nothing.format(shown)


def losses(policy: PolicyResult) -> tuple[str, ...]:
    """Who ends later under a policy that admits, defers or plans."""
    found = [_losers(policy)]
    displaced, placebo = unshared(policy)
    if displaced is not None:
        count = round(displaced)
        text = (
            f"{units.plural(count, 'other job')} would have ended later too"
            if count
            else "No other job would have"
        )
        found.append(f"{text}{_against_chance(displaced, placebo)}.")
    return tuple(found)


def _gain(result: ReplayResult, name: str) -> str:
    subject = effect_of(result.policies[name]).subject.format(units.plain(name))
    response, wait = (relative(result, name, key) for key in ("response_mean_s", "wait_mean_s"))
    if response is None:
        return f"{subject} cannot be judged: there is no mean response to compare."
    if wait is not None and max(abs(response), abs(wait)) < UNCHANGED:
        return f"{subject} would have left mean response and mean wait about as they were."
    text = f"{subject} would have {_verb(response, 'the mean response')}"
    if wait is None:
        return text + "."
    joint = "and" if (wait < 0) == (response < 0) or min(abs(response), abs(wait)) < UNCHANGED else "but"
    return f"{text}, {joint} {_verb(wait, 'the mean wait')}."


def _verb(moved: float, what: str) -> str:
    if abs(moved) < UNCHANGED:
        return f"left {what} about as it was"
    return f"{'cut' if moved < 0 else 'lengthened'} {what} by {units.percent(abs(moved))}"


def _worth(result: ReplayResult, name: str) -> str:
    """The total utility under a policy that admits, against that of the cluster left alone."""
    policy, base = result.policies[name], result.policies[BASELINE]
    own, before = metric(policy, "utility"), metric(base, "utility")
    shown = units.plain(name)
    if own is None or before is None:
        return f"What jobs are worth under {shown} is not known."
    figures = tuple(units.number(value, units.decimals_for(max(own, before))) for value in (before, own))
    admitted, declined = (int(metric(policy, key) or 0) for key in ("admitted", "declined"))
    asked = f"; it admitted {units.plural(admitted, 'job')} and left {units.number(declined)} to the queue."
    if not before:
        return f"{shown} brings the total utility of the jobs from {figures[0]} to {figures[1]}{asked}"
    moved = own / before - 1
    if abs(moved) < UNCHANGED:
        return f"{shown} would have left the total utility of the jobs about as it was ({figures[0]}){asked}"
    verb = "raised" if moved > 0 else "lowered"
    return (
        f"{shown} would have {verb} the total utility of the jobs by {units.percent(abs(moved))}, from {figures[0]} "
        f"to {figures[1]}{asked}"
    )


def _deferral(result: ReplayResult, name: str) -> str:
    """What deferrable jobs make of the time that they have, and what on-demand jobs have of that."""
    policy, base = result.policies[name], result.policies[BASELINE]
    shown = units.plain(name)
    missed, before, of = (
        int(metric(one, key) or 0)
        for one, key in ((policy, "missed"), (base, "missed"), (policy, "deferrable"))
    )
    text = (
        f"Under {shown}, {units.number(missed)} of {units.plural(of, 'deferrable job')} would have missed their latest "
        f"start (under {BASELINE} {units.number(before)})"
    )
    wait, was = (metric(one, "on_demand_wait_mean_s") for one in (policy, base))
    if wait is not None and was is not None:
        text += f"; the mean wait of on-demand jobs goes from {units.duration(was)} to {units.duration(wait)}"
    declared = result.settings.get("deferrable")
    if isinstance(declared, list) and declared:
        text += "; which jobs can wait is assumed"
    return text + "."


def _statements(result: ReplayResult, name: str) -> str:
    """What stated jobs are worth by their ends, against the cluster left alone."""
    policy, base = result.policies[name], result.policies[BASELINE]
    shown = units.plain(name)
    own, before = (metric(one, "welfare") or 0.0 for one in (policy, base))
    decimals = units.decimals_for(max(own, before))
    stated, planned, evicted = (int(metric(policy, key) or 0) for key in ("stated", "planned", "evicted"))
    text = (
        f"Under {shown}, stated jobs are worth {units.number(own, decimals)} to their owners, under {BASELINE} "
        f"{units.number(before, decimals)}; {units.number(planned)} of {units.plural(stated, 'statement')} had "
        f"a plan, and {units.plural(evicted, 'job')} had to go for others"
    )
    if result.settings.get("statements") == "inferred":
        text += "; the statements are inferred from the log, each from what had ended by then, their values assumed"
    return text + "."


OWN = {DEFERRAL: (_deferral,), STATEMENTS: (_statements,), ADMISSION: (_worth,)}
"""What a kind of policy is there for comes before the gain that all are measured by."""


def _losers(policy: PolicyResult) -> str:
    losers, of = int(policy.loser.sum()), affected(policy)
    worst = metric(policy, "loss_max_s")
    by = "" if worst is None or not losers else f", the worst of them by {units.duration(worst)}"
    if policy.deferring:
        return (
            f"{units.number(losers)} of the {units.plural(of, 'deferrable job')} that were held back would have ended "
            f"noticeably later{by}, as they may."
        )
    whom = effect_of(policy).touched
    if losers == 0:
        return f"None of the {units.number(of)} {whom} would have ended noticeably later."
    return f"{units.number(losers)} of {units.number(of)} {whom} would have ended noticeably later{by}."


def _against_chance(displaced: float, placebo: float | None) -> str:
    if placebo is None:
        return ""
    compared = (
        "more than"
        if displaced > 1.1 * placebo
        else "fewer than"
        if displaced < 0.9 * placebo
        else "about as many as"
    )
    return f", {compared} chance alone moves (placebo)"
