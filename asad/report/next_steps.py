"""What a report advises to do next: at most two things, none of which its log or its figures contradict."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from asad.replay.results import ReplayResult
from asad.report import funnel, wait_reasons
from asad.report.effects import LENDING, effect_of
from asad.report.measures import SCHEDULERS, relative
from asad.report.wait_reasons import waited_for

MOST = 2
WORTH_IT = -0.01
"""A change of the mean response for which a live asad is worth a try."""
MANY = 0.1
"""So many of all jobs that what the log lacks of them moves its figures."""


def advice(result: ReplayResult, name: str | None) -> tuple[str, ...]:
    """Whole sentences without figures, the most important first."""
    if name is None or name in SCHEDULERS:
        return ("Replay a policy that lends as well: asax is what asad would use.",)
    found = tuple(islice(_in_order(result, name), MOST))
    return found or ("Nothing that this replay shows is for an operator to change.",)


def _in_order(result: ReplayResult, name: str) -> Iterator[str]:
    policy = result.policies[name]
    lends = effect_of(policy) is LENDING
    if lends and waited_for(result).get("limit", 0.0) >= wait_reasons.MOST:
        yield "Look at the limits that jobs waited for, by asactl waits: no lending can shorten that wait."
    nobody = funnel.nobody_to_lend_to(result, policy) if lends else ""
    if lends and result.limited is not None and len(result.limited) and (~result.limited).mean() > MANY:
        if "time_limit_s" in funnel.absent(result):
            yield "Export the log with sacct’s column TimelimitRaw: asad offers nothing to jobs without a time limit."
        else:
            yield "Have jobs state time limits, or set DefaultTime of partitions: asad offers nothing without one."
    elif nobody:
        yield f"Look for what else would help: lending cannot, as {nobody}."
        return
    if result.demand_sources.get("assumed", 0.0) > MANY:
        yield (
            "Export the log with sacct’s column TotalCPU (and without -X), or state how much CPU jobs use by --demand."
            if "cpu_time_s" in funnel.absent(result)
            else "State by --demand how much CPU the jobs use of which the log does not have it."
        )
    if result.log.get("format") == "swf" and result.baseline.get("why"):
        yield "Replay the sacct log of the same days, which has starts and nodes."
    if str(result.machine.get("origin", "")).startswith("inferred: "):
        yield "Describe the machine by --machine slurm.conf."
    if not lends or nobody:
        return
    row = funnel.largest(result, name)
    if row is not None:
        yield f"To lend more, {row.change} (“{row.reason}” keeps most of what can be changed)."
    moved = relative(result, name, "response_mean_s")
    if moved is not None and moved < WORTH_IT:
        yield "Let asad watch the cluster in mode observe, which measures what no log has, before it lends anything."
