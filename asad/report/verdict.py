"""What a replay found, in words. Every word follows from a number; worse is put as plainly as better."""

from __future__ import annotations

from asad.replay.results import PolicyResult, ReplayResult
from asad.report import funnel, units
from asad.report.effects import ADMISSION, DEFERRAL, LENDING, STATEMENTS, effect_of
from asad.report.measures import (
    BASELINE,
    SCHEDULERS,
    YARDSTICKS,
    affected,
    headline,
    metric,
    relative,
    unshared,
)

UNCHANGED = 0.005
"""A mean that moves by less than this fraction is called unchanged."""


def sentences(result: ReplayResult) -> list[str]:
    """One to four sentences for an operator: the gain, who paid for it, whom chance moved, on what it rests.

    The text is plain (names cleaned of control characters) and not yet escaped for HTML.
    """
    name = headline(result)
    if name is None:
        return [f"Only {BASELINE} was replayed, so there is nothing to compare it with; " + _rests(result)]
    policy = result.policies[name]
    lends = name not in SCHEDULERS
    found = [own(result, name) for own in OWN.get(effect_of(policy), ())]
    found.append(_gain(result, name))
    if lends and affected(policy):
        if policy.managed is None and metric(policy, "late") is not None:
            found += [_stretched(policy), _moved(policy)]
        else:
            found += [_losers(policy), *_displaced(policy)]
    return [*found, _capital(_rests(result, name if lends else None))]


def _gain(result: ReplayResult, name: str) -> str:
    policy, base = result.policies[name], result.policies[BASELINE]
    shown, effect = units.plain(name), effect_of(policy)
    if effect.nothing and not affected(policy):
        why = funnel.nobody_to_lend_to(result, policy) if effect is LENDING else ""
        if why:
            return f"{shown} lent nothing: {why}."
        if effect is LENDING and funnel.had_something_to_lend(policy):
            return f"{shown} found nobody to lend to: no job became host or guest."
        return effect.nothing.format(shown)
    subject = effect.subject.format(shown)
    if name in YARDSTICKS:
        subject += " (which knows every job’s demand beforehand, as no real policy can)"
    response = relative(result, name, "response_mean_s")
    jobs = units.plural(len(result.submit_s), "job")
    if response is None:
        return f"{subject} cannot be judged: there is no mean response of {jobs} to compare."
    before = units.duration(metric(base, "response_mean_s"))
    after = units.duration(metric(policy, "response_mean_s"))
    if abs(response) < UNCHANGED:
        text = f"{subject} would have left the mean response of {jobs} about as it was ({before})"
    else:
        verb = "cut" if response < 0 else "lengthened"
        text = (
            f"{subject} would have {verb} the mean response of {jobs} by {units.percent(abs(response))}, "
            f"from {before} to {after}"
        )
    wait = relative(result, name, "wait_mean_s")
    if wait is None:
        return text + "."
    if abs(wait) < UNCHANGED:
        return text + ", and left the mean wait unchanged."
    joint = "and" if (wait < 0) == (response < 0) or abs(response) < UNCHANGED else "but"
    verb = "cut" if wait < 0 else "lengthened"
    return f"{text}, {joint} {verb} the mean wait by {units.percent(abs(wait))}."


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
        moved = units.change(wait / was - 1) if was else "no change" if wait == was else "more than nothing"
        text += f"; the mean wait of on-demand jobs goes from {units.duration(was)} to {units.duration(wait)} ({moved})"
    declared = result.settings.get("deferrable")
    if isinstance(declared, list) and declared:
        text += f"; which jobs can wait is assumed ({units.plain(' '.join(map(str, declared)), 120)})"
    return text + "."


def _statements(result: ReplayResult, name: str) -> str:
    """What stated jobs are worth by their ends, against the cluster left alone."""
    policy, base = result.policies[name], result.policies[BASELINE]
    shown = units.plain(name)
    own, before = (metric(one, "welfare") or 0.0 for one in (policy, base))
    decimals = units.decimals_for(max(own, before))
    stated, planned, evicted = (int(metric(policy, key) or 0) for key in ("stated", "planned", "evicted"))
    moved = f" ({units.change(own / before - 1)})" if before else ""
    text = (
        f"Under {shown}, stated jobs are worth {units.number(own, decimals)} to their owners, under {BASELINE} "
        f"{units.number(before, decimals)}{moved}; {units.number(planned)} of {units.plural(stated, 'statement')} had "
        f"a plan, and {units.plural(evicted, 'job')} had to go for others"
    )
    if result.settings.get("statements") == "inferred":
        text += "; the statements are inferred from the log, each from what had ended by then, their values assumed"
    return text + "."


OWN = {DEFERRAL: (_deferral,), STATEMENTS: (_statements,), ADMISSION: (_worth,)}
"""What a kind of policy is there for comes before the gain that all are measured by."""


def _losers(policy: PolicyResult) -> str:
    losers, of = int(policy.loser.sum()), affected(policy)
    if policy.deferring:
        worst = metric(policy, "loss_max_s")
        by = "" if worst is None else f", the worst of them by {units.duration(worst)}"
        return (
            f"{units.number(losers)} of the {units.plural(of, 'deferrable job')} that were held back would have ended "
            f"noticeably later{by}, as they may."
        )
    whom = effect_of(policy).touched
    if losers == 0:
        text = f"None of the {units.number(of)} {whom} would have ended noticeably later"
    else:
        worst = metric(policy, "loss_max_s")
        by = "" if worst is None else f", the worst of them by {units.duration(worst)}"
        text = (
            f"{units.number(losers)} of {units.number(of)} {whom} ({units.percent(losers / of)}) would have "
            f"ended noticeably later{by}"
        )
    if policy.managed is not None:
        return f"{text}."
    return f"{text}; {_killed(policy)}."


def _killed(policy: PolicyResult) -> str:
    killed = metric(policy, "killed_by_lending")
    if killed is None:
        return "whether lending killed any job is not known"
    if killed == 0:
        return "nobody would have been killed by lending"
    return f"lending would have killed {units.plural(_whole(killed), 'job')}, which it never may"


def _stretched(policy: PolicyResult) -> str:
    """How many guests there were, and whom sharing itself made late."""
    guests, slowed, hosts = (
        _whole(metric(policy, key)) for key in ("guests", "stretched_guests", "stretched_hosts")
    )
    text = f"{units.plural(guests, 'job')} would have run as {'guests' if guests != 1 else 'a guest'}"
    if not slowed and not hosts:
        return f"{text}; sharing would have slowed none of them, and no host, enough to end late; {_killed(policy)}."
    part = f" ({units.percent(slowed / guests)})" if guests else ""
    beside = "no host" if not hosts else units.plural(hosts, "host")
    who = f"{units.number(slowed)} of them{part} and {beside}" if slowed else f"none of them, but {beside},"
    by = metric(policy, "stretched_lateness_s")
    in_all = "" if by is None else f" ({units.duration(by)} in all)"
    return f"{text}: {who} would have ended noticeably later because sharing slowed them{in_all}; {_killed(policy)}."


def _moved(policy: PolicyResult) -> str:
    """How many jobs are late for another reason, whom chance alone moves, and how lateness compares to the gain."""
    displaced, placebo = _whole(metric(policy, "displaced")), metric(policy, "displaced_placebo")
    if displaced == 0:
        by_chance = "" if placebo is None else f"; chance alone moves {units.number(placebo)} (placebo)"
        text = f"No job would have ended noticeably later for having started later{by_chance}."
    else:
        text = f"{units.plural(displaced, 'job')} would have ended later because the schedule moved around "
        text += ("it" if displaced == 1 else "them") + _against_chance(displaced, placebo) + "."
    ratio = metric(policy, "lateness_over_saved")
    if not _whole(metric(policy, "late")):
        return text
    if ratio is None:
        return f"{text} No job would have ended sooner."
    return f"{text} What late jobs lose is {units.percent(ratio)} of what all others save."


def _whole(count: float | None) -> int:
    """A count as a whole number: means over seeds have decimals."""
    return 0 if count is None else round(count)


def _against_chance(displaced: float, placebo: float | None) -> str:
    if placebo is None:
        return "; no placebo says how many of them chance alone would move"
    compared = (
        "more than"
        if displaced > 1.1 * placebo
        else "fewer than"
        if displaced < 0.9 * placebo
        else "about as many as"
    )
    return f", {compared} the {units.number(placebo)} that chance alone moves (placebo)"


def _displaced(policy: PolicyResult) -> list[str]:
    displaced, placebo = unshared(policy)
    if displaced is None:
        return []
    if displaced == 0:
        by_chance = "" if placebo is None else f"; chance alone moves {units.number(placebo)} (placebo)"
        return [f"No other job would have ended noticeably later{by_chance}."]
    text = f"{units.plural(_whole(displaced), 'other job')} would have ended later too"
    return [f"{text}{_against_chance(displaced, placebo)}."]


def _rests(result: ReplayResult, name: str | None = None) -> str:
    shares = [
        f"{word} for {units.percent(result.demand_sources[source])}"
        for source, word in (
            ("measured", "measured"),
            ("profiled", "taken from profiles"),
            ("assumed", "assumed"),
        )
        if result.demand_sources.get(source, 0.0) > 0
    ]
    if not shares:
        return "the log does not say on what CPU demand this rests."
    shares[0] += " of the jobs"
    listed = shares[0] if len(shares) == 1 else ", ".join(shares[:-1]) + " and " + shares[-1]
    text = f"CPU demand was {listed}"
    moved = sorted(
        (verdict for verdict in result.verdicts if verdict.policy == name and verdict.demand_factor != 1),
        key=lambda verdict: verdict.demand_factor,
    )
    if not moved:
        return text + "."
    listed = " and ".join(
        f"{units.change(verdict.response_change)} were it {units.percent(abs(verdict.demand_factor - 1))} "
        f"{'lower' if verdict.demand_factor < 1 else 'higher'}"
        for verdict in moved
    )
    signs = {verdict.response_change < 0 for verdict in moved}
    own = relative(result, name, "response_mean_s") if name else None
    signs |= set() if own is None else {own < 0}
    turn = ", so the verdict hangs on it" if len(signs) > 1 else ""
    return f"{text}; the change in mean response would be {listed}{turn}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
