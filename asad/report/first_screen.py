"""What an operator reads first, on terminal and page: five parts, of at most `MOST_FIGURES` figures together.

Every word follows from a number; worse is put as plainly as better. The text is plain (names cleaned of control
characters) and not yet escaped for HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from asad.replay.fidelity import UNLIKE
from asad.replay.results import PolicyResult, ReplayResult
from asad.report import fidelity_table, next_steps, units, verdict, wait_reasons
from asad.report.effects import LENDING, effect_of
from asad.report.measures import BASELINE, SCHEDULERS, YARDSTICKS, affected, headline, metric, relative
from asad.report.verdict import UNCHANGED
from asad.report.wait_reasons import waited_for

MOST_FIGURES = 15
"""A duration or a number with its unit is one figure; the number of a job is its name."""
FIGURE = re.compile(
    rf"(?<![\w-])[+−±]?\d[\d{units.THIN}.]*(?:[{units.THIN}{units.SPACE}](?:%|d|h|min|s)\b|%)?"
)
PAIR = re.compile(
    rf"(\d[{units.THIN}{units.SPACE}](?:d|h|min))[{units.SPACE}]\d+[{units.THIN}{units.SPACE}](?:h|min|s)\b"
)
NUMBER_OF_JOB = re.compile(r"\bjob “[^”]*”")
COUNTED = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}


class Part(NamedTuple):
    """One of the five."""

    key: str
    title: str
    sentences: tuple[str, ...]


class Missing(NamedTuple):
    """What the figures do not know of so many jobs or lines."""

    number: int
    what: str
    """`job` or `line`."""
    one: str
    many: str
    """Ends the sentence that begins with them."""


def figures_in(text: str) -> int:
    """How many figures a reader meets in a text."""
    return len(FIGURE.findall(PAIR.sub(r"\1", NUMBER_OF_JOB.sub("", text))))


def parts(result: ReplayResult) -> list[Part]:
    """The five parts, each of one sentence or more."""
    name = headline(result)
    harm, steps = _harm(result, name), next_steps.advice(result, name)
    brought, missing = _brought(result, name), [one for one in _missing(result, name) if one.number]
    for with_median in (True, False):
        log = _log(result, with_median)
        left = MOST_FIGURES - sum(figures_in(text) for text in (*log, *brought, *harm, *steps))
        if left >= len(missing):
            break
    lent = name is not None and bool(result.policies[name].guest.any())
    lends = name is not None and effect_of(result.policies[name]) is LENDING
    shown = "lending" if lends else units.plain(name, 40) if name else "another policy"
    return [
        Part("log", "What the log says", log),
        Part("brought", f"What {shown} would have brought", brought),
        Part("harm", "Who would be worse off", harm),
        Part("missing", "What is not in it", (*_listed(missing, left), *_unknown(result, lent))),
        Part("next", "What to do next", steps),
    ]


# ------------------------------------------------------------------------------------------------- what the log says


def _log(result: ReplayResult, with_median: bool) -> tuple[str, ...]:
    jobs = units.plural(len(result.submit_s), "job")
    mean, median = (_recorded(result, key) for key in ("wait_mean_s", "wait_median_s"))
    if mean is None:
        return (f"{jobs}; when they started it does not record.",)
    if not with_median or median is None:
        half = ""
    else:
        half = f", half of them {f'for at most {units.duration(median)}' if median >= 0.5 else 'not at all'}"
    text = f"{jobs}, which waited for {units.duration(mean)} in the mean{half}."
    shares = waited_for(result)
    if not any(shares.values()):
        return (text,)
    reason = max(shares, key=lambda one: shares[one])
    why = wait_reasons.MEANING[reason].replace("its ", "the job’s ", 1)
    return (text, f"For {units.percent(shares[reason])} of that time {why}.")


def _recorded(result: ReplayResult, key: str) -> float | None:
    found = result.baseline.get("recorded")
    value = found.get(key) if isinstance(found, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _of_baseline(result: ReplayResult, which: str, key: str) -> float | None:
    """A figure of what else was compared: `held` or `simulated`."""
    found = result.baseline.get(which)
    value = found.get(key) if isinstance(found, dict) else None
    return float(value) if isinstance(value, int | float) else None


# ------------------------------------------------------------------------------------------------- what it brought


def _brought(result: ReplayResult, name: str | None) -> tuple[str, ...]:
    recorded = result.baseline.get("kind") == "recorded"
    begin = () if recorded else (_simulated(result),)
    if name is None:
        return (*begin, f"Only {BASELINE} was replayed, so there is nothing to compare it with.")
    policy = result.policies[name]
    if effect_of(policy) is not LENDING:
        return (*begin, *verdict.gains(result, name))
    if nothing := verdict.nothing_lent(result, name):
        return (*begin, nothing)
    span = change_range(result, name)
    if span is None:
        jobs = units.plural(len(result.submit_s), "job")
        return (*begin, f"{_subject(name)} cannot be judged: there is no mean response of {jobs} to compare.")
    kept = "With every recorded start kept" if recorded else "There"
    seeds = _seeds(result, name)
    by = f"{kept}, lending with {_subject(name)} would have {_moved_by(*span)}{seeds}: an estimate."
    how = (
        "Jobs that wait run at once as guests, on CPU that running jobs (their hosts) and free cores leave idle"
        if recorded
        else "Jobs that wait run earlier as guests, on CPU that running jobs (their hosts) and free cores leave idle."
    )
    if not recorded:
        return (*begin, by, how)
    held, queue = (_of_baseline(result, which, "response_change") for which in ("held", "simulated"))
    how += "; nobody moves up into the place that a guest leaves, but it is lent on"
    how += "." if held is None else f" ({units.change(held)} where it is not)."
    return (by, how) if queue is None else (by, how, _beside(result, queue))


def _subject(name: str) -> str:
    knows = ", which knows every job’s demand beforehand as no real policy can," if name in YARDSTICKS else ""
    return f"{units.plain(name)}{knows}"


def _simulated(result: ReplayResult) -> str:
    """That starts are a simulated Slurm's, why, and how like the cluster it is."""
    why = units.plain(str(result.baseline.get("why") or ""), 200)
    known = fidelity_table.goes_by(result)
    how = "backfill by its " + ", ".join(known) if known else "EASY backfill on one pool of nodes"
    text = f"Jobs start when a simulated Slurm ({how}) starts them, not when they did"
    text += f", since {why}" if why else ""
    recorded, wait = _recorded(result, "wait_mean_s"), metric(result.policies[BASELINE], "wait_mean_s")
    if recorded is None or wait is None:
        return f"{text}."
    return f"{text}; they wait for {units.duration(wait)} there in the mean{_like(result, recorded, wait)}."


def _beside(result: ReplayResult, change: float) -> str:
    """What the simulated Slurm comes to, and how like the cluster it is."""
    recorded, wait = _recorded(result, "wait_mean_s"), _of_baseline(result, "simulated", "wait_mean_s")
    text = f"A simulated Slurm, where the queue moves up behind guests, comes to {units.change(change)}"
    if recorded is None or wait is None:
        return f"{text}."
    like = _like(result, recorded, wait)
    return f"{text}; without lending jobs wait for {units.duration(wait)} there in the mean{like}."


def _like(result: ReplayResult, recorded_s: float, simulated_s: float) -> str:
    """Whether that is this cluster: by the mean, and by who waits long."""
    if abs(simulated_s - recorded_s) > UNLIKE * recorded_s:
        return ": not this cluster"
    known = fidelity_table.rows(result)
    if known and not known[0]["alike"]:
        return ", about as long as recorded, but other jobs do: not this cluster"
    return ", about as long as recorded"


def change_range(result: ReplayResult, name: str) -> tuple[float, float] | None:
    """The lowest and the highest change of the mean response, over the seeds and over less and more assumed demand."""
    by_seed = result.repeats.get("response_change")
    own = by_seed.get(name) if isinstance(by_seed, dict) else None
    found = [float(one) for one in own if isinstance(one, int | float)] if isinstance(own, list) else []
    if not found and (one := relative(result, name, "response_mean_s")) is not None:
        found = [one]
    if not found:
        return None
    found += [one.response_change for one in result.verdicts if one.policy == name]
    return min(found), max(found)


def _seeds(result: ReplayResult, name: str) -> str:
    """Over what the range is."""
    seeds = result.repeats.get("seeds")
    count = len(seeds) if isinstance(seeds, list) else 1
    over = [f"{COUNTED.get(count, 'many')} seeds"] if count > 1 else []
    if any(one.policy == name and one.demand_factor != 1 for one in result.verdicts):
        over.append("assumed CPU demand a fifth lower and higher")
    return f" over {' and '.join(over)}" if over else ""


def _moved_by(low: float, high: float) -> str:
    what = "the mean response (from submission to end)"
    if max(abs(low), abs(high)) < UNCHANGED:
        return f"left {what} about as it was"
    if low < 0 <= high:
        return f"changed {what} by {units.change(low)} to {units.change(high)}"
    verb, ends = ("cut", (-high, -low)) if high < 0 else ("lengthened", (low, high))
    least, most = (units.percent(end) for end in ends)
    if least == most:  # a decimal more
        least, most = (f"{units.number(100 * end, 1)}{units.THIN}%" for end in ends)
    return f"{verb} {what} by {most}" if least == most else f"{verb} {what} by {least} to {most}"


# ------------------------------------------------------------------------------------------------- who is worse off


def _harm(result: ReplayResult, name: str | None) -> tuple[str, ...]:
    if name is None or name in SCHEDULERS:
        return ("No policy of this replay lends, so nobody pays for it.",)
    policy = result.policies[name]
    if policy.managed is not None:
        return verdict.losses(policy) if affected(policy) else ("Nobody: no job was touched.",)
    if not affected(policy):
        return ("Nobody: nothing was lent.",)
    guests, hosts, displaced = (
        round(metric(policy, key) or 0.0) for key in ("stretched_guests", "stretched_hosts", "displaced")
    )
    if guests or hosts or displaced:
        found = [_stretched(guests, hosts), *_displaced(result, policy, displaced), *_worst(result, policy)]
    else:
        found = [
            "No job would have ended noticeably later, be it slowed (stretched) or started later (displaced)."
        ]
    if (stretch := metric(policy, "guest_stretch_mean")) is not None:
        found.append(f"A guest runs {units.number(stretch, 2)} times as long as alone in the mean.")
    if killed := metric(policy, "killed_by_lending"):
        count = max(1, round(killed))
        found.append(
            f"Lending would have killed {units.plural(count, 'job')} at a time limit, which it never may."
        )
    return tuple(found)


def _stretched(guests: int, hosts: int) -> str:
    if not guests and not hosts:
        return "No guest and no host would have ended noticeably later because sharing slowed it (stretched)."
    who = [
        units.plural(count, what) if count else f"no {what}"
        for count, what in ((guests, "guest"), (hosts, "host"))
    ]
    text = " and ".join(who)
    return (
        f"{text[:1].upper()}{text[1:]} would have ended noticeably later because sharing slowed "
        f"{'them' if guests + hosts > 1 else 'it'} (stretched)."
    )


def _displaced(result: ReplayResult, policy: PolicyResult, count: int) -> Iterator[str]:
    recorded = result.baseline.get("kind") == "recorded"
    why = "became free later" if recorded else "were given to others first"
    who, whose = (
        (units.plural(count, "other job"), "its" if count == 1 else "their")
        if count
        else ("No other job", "its")
    )
    text = f"{who} would have because {whose} cores {why} (displaced)"
    placebo = None if recorded else metric(policy, "displaced_placebo")
    if placebo is None:
        yield f"{text}."
    else:
        yield f"{text}; chance alone displaces {units.number(placebo)} (placebo)."


def _worst(result: ReplayResult, policy: PolicyResult) -> Iterator[str]:
    """The job that ends latest against the cluster left alone, as the first seed has it."""
    later = policy.end_s - result.policies[BASELINE].end_s
    if len(later) and np.isfinite(later).any() and float(np.nanmax(later)) > 0:
        row = int(np.nanargmax(later))
        job = units.plain(result.job_id[row], 40)
        yield f"The worst off is job “{job}”, by {units.duration(float(later[row]))}."


# ------------------------------------------------------------------------------------------------- what is not in it


def _missing(result: ReplayResult, name: str | None) -> Iterator[Missing]:
    """What the log does not have, by how many jobs it concerns."""
    jobs = len(result.submit_s)
    recorded = result.baseline.get("kind") == "recorded"
    if result.limited is not None:
        nothing = "no time limit, and so nothing is offered to {} (sacct’s column TimelimitRaw)"
        count = int((~result.limited).sum())
        yield Missing(count, "job", f"has {nothing.format('it')}", f"have {nothing.format('them')}")
    for source, how in (("assumed", "assumed"), ("profiled", "taken from a profile")):
        uses = f"no CPU time, and so {{}} use of CPU is {how} (sacct’s column TotalCPU)"
        count = round(result.demand_sources.get(source, 0.0) * jobs)
        yield Missing(count, "job", f"has {uses.format('its')}", f"have {uses.format('their')}")
    chosen = result.baseline.get("chosen")
    if recorded and isinstance(chosen, int):
        free = "no node of the machine: {} on nodes that were free (sacct’s column NodeList)"
        yield Missing(chosen, "job", f"names {free.format('it runs')}", f"name {free.format('they run')}")
    if recorded and name is not None:
        where = "on other nodes than recorded, since {} not free yet"
        count = round(metric(result.policies[name], "moved") or 0.0)
        yield Missing(
            count, "job", f"starts {where.format('its own were')}", f"start {where.format('their own were')}"
        )
    for key, what, why in (
        ("skipped", "line", "cannot be read"),
        ("does_not_fit", "job", "too large for the machine"),
    ):
        count_of = result.log.get(key)
        count = count_of if isinstance(count_of, int) else len(count_of) if isinstance(count_of, list) else 0
        are = why if key == "skipped" else f"{{}} {why}"
        yield Missing(
            count, what, f"{are.format('is')} and is left out", f"{are.format('are')} and are left out"
        )


def _listed(missing: Sequence[Missing], figures: int) -> Iterator[str]:
    """A sentence for each, that of most jobs first; where there is no figure left for them they are some."""
    for place, one in enumerate(sorted(missing, key=lambda one: -one.number)):
        who = units.plural(one.number, one.what) if place < figures else f"Some {one.what}s"
        yield f"{who} {one.one if one.number == 1 and place < figures else one.many}."


def _unknown(result: ReplayResult, lent: bool) -> Iterator[str]:
    """What concerns all jobs."""
    given = bool(result.log.get("limits"))
    if result.baseline.get("kind") == "recorded":
        offered = ": jobs that waited for one are offered CPU as well; --limits gives them" if lent else ""
        if result.log.get("limits_inferred"):
            yield (
                "Limits of users, accounts and QOS are inferred from what each held at one time, and bind guests from "
                "when the log shows them; --limits gives them."
            )
        elif not given:
            yield f"Limits of users, accounts and QOS are not known{offered}."
    else:
        known = fidelity_table.goes_by(result)
        ordered = {"priorities", "the log's own priorities", "fair share"}.intersection(known)
        lacking = [] if "partitions" in known else ["partitions"]
        lacking += [] if ordered else ["priorities"]
        if given and "limits" not in known:
            yield "Limits bind guests alone."
        elif "limits" not in known:
            lacking.append("limits of users, accounts and QOS")
        if lacking:
            words = " and ".join((", ".join(lacking[:-1]), lacking[-1])) if lacking[1:] else lacking[0]
            yield f"{words[0].upper()}{words[1:]} are not simulated."
    if str(result.machine.get("origin", "")).startswith("inferred: "):
        yield "The machine is inferred from the log, for want of --machine or --nodes."
    notes = result.log.get("notes")
    if isinstance(notes, list) and notes:
        yield "All that was assumed stands on the page, and below with --full."
