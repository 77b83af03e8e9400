"""The figures of a report: their keys in the JSON, their names, how they are written and what they mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from asad.replay.results import PolicyResult, ReplayResult
from asad.report import units

Kind = Literal["time", "core time", "ratio", "share", "count"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table by policy."""

    key: str
    """Key in `PolicyResult.metrics`."""
    label: str
    kind: Kind
    better: Literal[-1, 0, 1]
    """-1: less is better; 1: more is; 0: neither, or no matter of comparison."""
    meaning: str
    """Its definition, in one sentence or two."""


GROUPS: tuple[tuple[str, tuple[Measure, ...]], ...] = (
    (
        "What users see",
        (
            Measure(
                "response_mean_s",
                "Response, mean",
                "time",
                -1,
                "From submission to end, averaged over all jobs: waiting and running together.",
            ),
            Measure(
                "wait_mean_s", "Wait, mean", "time", -1, "From submission to start, averaged over all jobs."
            ),
            Measure(
                "wait_p95_s", "Wait, 95th percentile", "time", -1, "One job in twenty waits longer than this."
            ),
            Measure(
                "bounded_slowdown_mean",
                "Bounded slowdown, mean",
                "ratio",
                -1,
                "max(1, response ÷ max(isolated run time, 10 s)), averaged over all jobs. The isolated run "
                "time is "
                "what the job takes when it shares nothing, so a job slowed by lending cannot hide behind "
                "its longer "
                "run; the 10 s keep very short jobs from ruling the mean.",
            ),
        ),
    ),
    (
        "What the machine does",
        (
            Measure(
                "utilization",
                "Utilization",
                "share",
                0,
                "Work done for jobs, guests too (cores × isolated run time) ÷ (cores of the machine × makespan). "
                "Where jobs keep coming the makespan hardly moves, and neither does this.",
            ),
            Measure(
                "cpu_utilization",
                "CPU utilization",
                "share",
                1,
                "The same with the CPU that the jobs really used instead of all that they held.",
            ),
            Measure(
                "delivered_core_s",
                "Delivered core-hours",
                "core time",
                1,
                "Work done for jobs, in hours of one core running a job alone.",
            ),
            Measure(
                "makespan_s",
                "Makespan",
                "time",
                -1,
                "From the first submission to the last end. On a log with open arrivals the last "
                "submissions set it, so "
                "it says little about a policy.",
            ),
        ),
    ),
    (
        "What was lent",
        (
            Measure("guests", "Guests", "count", 0, "Jobs started beside a host, before their turn."),
            Measure(
                "lent_core_s",
                "Lent core-hours",
                "core time",
                0,
                "CPU of hosts’ allocations that guests were given.",
            ),
            Measure(
                "host_stretch_mean",
                "Run time stretch of hosts, mean",
                "ratio",
                0,
                "Run time ÷ isolated run time, over the jobs that lent something; 1 is unharmed.",
            ),
            Measure(
                "guest_stretch_mean",
                "Run time stretch of guests, mean",
                "ratio",
                0,
                "The same over the jobs started as guests, who run slower but start sooner.",
            ),
            Measure(
                "runtime_stretch_mean",
                "Run time stretch of all, mean",
                "ratio",
                0,
                "The same over all jobs.",
            ),
            Measure(
                "runtime_stretch_p95",
                "Run time stretch of all, 95th percentile",
                "ratio",
                0,
                "One job in twenty is stretched by more.",
            ),
        ),
    ),
    (
        "Who pays",
        (
            Measure(
                "losers",
                "Losers",
                "count",
                -1,
                "Hosts and guests that end later than in the same replay under slurm by more than 60 s or "
                "5 % of their "
                "response there, whichever is more.",
            ),
            Measure(
                "loss_p95_s", "Loss of losers, 95th percentile", "time", -1, "How much later losers end."
            ),
            Measure(
                "loss_max_s", "Loss of losers, worst", "time", -1, "The one that ends latest against slurm."
            ),
            Measure(
                "late",
                "Late jobs",
                "count",
                -1,
                "All jobs that end later by as much, shared or not: stretched guests, stretched hosts and displaced "
                "jobs together.",
            ),
            Measure("late_guests", "Late guests", "count", -1, "The guests among them."),
            Measure(
                "stretched_guests",
                "Stretched guests",
                "count",
                -1,
                "Late guests that would not be late, had they run for their isolated run time from the moment at "
                "which they started: sharing made them late. One that was a host too counts here.",
            ),
            Measure("stretched_hosts", "Stretched hosts", "count", -1, "The same of hosts."),
            Measure(
                "stretched_lateness_s",
                "Lateness of the stretched, in all",
                "time",
                0,
                "How much later stretched guests and hosts end, added up.",
            ),
            Measure(
                "displaced",
                "Displaced",
                "count",
                0,
                "All other late jobs, shared or not: they started later. Backfill is chaotic: a change of a "
                "second in a few run times moves many jobs, some up, some down.",
            ),
            Measure(
                "displaced_placebo",
                "Displaced by a placebo",
                "count",
                0,
                "Jobs that are late when nothing is lent and as many run times as lending touched are 1 s longer: what "
                "chance alone does.",
            ),
            Measure(
                "displaced_unshared",
                "Displaced, not shared",
                "count",
                0,
                "Late jobs that were neither host nor guest, nor admitted, deferred or throttled.",
            ),
            Measure(
                "displaced_unshared_placebo",
                "Displaced by a placebo, not lengthened",
                "count",
                0,
                "Jobs that are late under the placebo although their own run time was left as it is.",
            ),
            Measure(
                "lateness_over_saved",
                "Lateness over time saved",
                "share",
                -1,
                "How much later late jobs end, added up, over how much sooner jobs end that end sooner: what lending "
                "takes for each hour that it gives.",
            ),
            Measure(
                "killed",
                "Killed at the time limit",
                "count",
                -1,
                "Jobs whose limit was too short for them, and those that lending killed.",
            ),
            Measure(
                "killed_by_lending",
                "Killed by lending",
                "count",
                -1,
                "Jobs cut at a time limit that they would have kept alone: lending slowed them. Must be 0 but under "
                "static and asax-paper, which extend no limits.",
            ),
        ),
    ),
    (
        "The replay itself",
        (
            Measure("jobs", "Jobs", "count", 0, "Jobs replayed."),
            Measure(
                "limits_broken",
                "Limits broken",
                "count",
                -1,
                "Starts that break a limit of a user, an account or a QOS, and break none without lending; none where "
                "no limits are given.",
            ),
            Measure(
                "kept_by_limits",
                "Kept from offers by limits",
                "count",
                0,
                "Jobs that a limit of a user, an account or a QOS kept from being offered anything while they waited; "
                "none where no limits are given or inferred.",
            ),
            Measure(
                "moved",
                "On other nodes",
                "count",
                0,
                "Jobs that start on other nodes than recorded; none where starts are not those of the log.",
            ),
            Measure(
                "wall_s", "Simulation took", "time", 0, "Time of the simulation, without reading the log."
            ),
        ),
    ),
)

WORTH: tuple[str, tuple[Measure, ...]] = (
    "What jobs are worth",
    (
        Measure(
            "utility",
            "Total utility",
            "ratio",
            1,
            "What every job is worth by the time from its submission to its end, added up; an array is one job, and "
            "jobs without a utility count for nothing.",
        ),
        Measure(
            "valued",
            "Jobs with a utility",
            "count",
            0,
            "Jobs and arrays that state one, or have it by a rule.",
        ),
        Measure(
            "in_time", "Done by their target", "count", 0, "Those of them that ended by their target time."
        ),
        Measure(
            "timeliness_mean_s",
            "Timeliness, mean",
            "time",
            0,
            "Completion less target, averaged over those that have a target; below 0 is early.",
        ),
        Measure(
            "admitted",
            "Admitted",
            "count",
            0,
            "Jobs and arrays that got a schedule. Of them, and of who was deferred or throttled, losers are counted as "
            "of hosts and guests.",
        ),
        Measure(
            "declined",
            "Not admitted",
            "count",
            0,
            "Jobs and arrays whose last answer was no; they ran in the cluster’s own queue.",
        ),
    ),
)
"""Figures of a replay in which it was asked what jobs are worth; others have none of them."""

DEFERRAL: tuple[str, tuple[Measure, ...]] = (
    "What becomes of deferrable jobs",
    (
        Measure(
            "on_demand_wait_mean_s",
            "Wait of on-demand jobs, mean",
            "time",
            -1,
            "From submission to start, over the jobs that are not deferrable: deferrable ones must not delay them.",
        ),
        Measure(
            "on_demand_wait_p95_s",
            "Wait of on-demand jobs, 95th percentile",
            "time",
            -1,
            "One on-demand job in twenty waits longer than this.",
        ),
        Measure("deferrable", "Deferrable jobs", "count", 0, "Jobs that say so, or are declared so."),
        Measure(
            "missed",
            "Missed their latest start",
            "count",
            -1,
            "Deferrable jobs that started after their latest start.",
        ),
        Measure(
            "deferrable_delay_mean_s",
            "Delay of deferrable jobs, mean",
            "time",
            0,
            "From submission to start, averaged over them. They are deferred, so it may well be more.",
        ),
        Measure(
            "deferrable_utilization",
            "Utilization by deferrable jobs",
            "share",
            1,
            "Work of the deferrable jobs that started in time ÷ (cores of the machine × makespan).",
        ),
    ),
)
"""Figures of a replay in which it was asked what becomes of deferrable jobs; others have none of them."""

STATED: tuple[str, tuple[Measure, ...]] = (
    "What becomes of statements of work",
    (
        Measure("stated", "Statements", "count", 0, "Jobs that were announced before they came."),
        Measure("stated_jobs", "Statements whose job came", "count", 0, "Worth is reported of these alone."),
        Measure(
            "welfare",
            "Welfare",
            "ratio",
            1,
            "Sum of what the ends of stated jobs are worth to their owners; of evicted ones nothing.",
        ),
        Measure("welfare_share", "Welfare of what could be", "share", 1, "Welfare ÷ the sum of all values."),
        Measure("planned", "Planned", "count", 0, "Statements that got a launch plan."),
        Measure("evicted", "Evicted", "count", -1, "Running jobs that went for others born earlier."),
        Measure("cancelled", "Plans cancelled", "count", -1, "Jobs that lost their plan before they ran."),
        Measure("payments", "Payments", "ratio", 0, "Sum of the prices that were charged on completion."),
    ),
)
"""Figures of a replay in which it was asked what becomes of statements of work; others have none of them."""

MEASURES = {
    measure.key: measure for _, measures in (*GROUPS, WORTH, DEFERRAL, STATED) for measure in measures
}
"""The same, by key."""

YARDSTICKS = ("pool-oracle", "greedy-oracle")
"""Policies that know what nobody can; the first that is there is shown as the yardstick."""
BASELINE = "slurm"
SCHEDULERS = frozenset({"slurm", "fcfs", "conservative", "fluid"})
"""Policies that lend nothing."""


def groups(result: ReplayResult) -> tuple[tuple[str, tuple[Measure, ...]], ...]:
    """The groups of figures that this replay has."""
    there = result.policies[BASELINE].metrics
    asked = ((WORTH, "utility"), (DEFERRAL, "deferrable"), (STATED, "stated"))
    more = [group for group, key in asked if key in there]
    return (GROUPS[0], *more, *GROUPS[1:])


def metric(policy: PolicyResult, key: str) -> float | None:
    """A figure of a policy, None where it has none."""
    value = policy.metrics.get(key)
    return None if value is None or math.isnan(value) else float(value)


def relative(result: ReplayResult, name: str, key: str) -> float | None:
    """A figure of policy `name` over slurm's, minus 1; None if either is missing or slurm's is 0."""
    base, value = metric(result.policies[BASELINE], key), metric(result.policies[name], key)
    return None if not base or value is None else value / base - 1


def headline(result: ReplayResult) -> str | None:
    """The policy that a report is about: the one asad would use, else the first that is not a yardstick."""
    names = [name for name in result.policies if name != BASELINE]
    lending = [name for name in names if name not in SCHEDULERS and name not in YARDSTICKS]
    for group in (["asax"], ["asax-paper"], lending, YARDSTICKS, names):
        for name in group:
            if name in names:
                return name
    return None


def ordered_policies(result: ReplayResult) -> list[str]:
    """The policies as a table shows them: slurm, the one that the report is about, the rest as asked for."""
    first = [BASELINE, headline(result)]
    return [name for name in first if name] + [name for name in result.policies if name not in first]


def affected(policy: PolicyResult) -> int:
    """Hosts, guests and who was admitted, deferred or throttled, each job once."""
    return int(policy.touched.sum())


def unshared(policy: PolicyResult) -> tuple[float | None, float | None]:
    """Late jobs that the policy did not touch, and how many chance alone moves of jobs that it leaves as they are.

    A result of before there were figures for that has them under the names of `displaced`.
    """
    keys = ("displaced_unshared", "displaced_unshared_placebo")
    if "displaced_unshared" not in policy.metrics:
        keys = ("displaced", "displaced_placebo")
    return metric(policy, keys[0]), metric(policy, keys[1])


def row_unit(measure: Measure, values: list[float | None]) -> tuple[str, float, int]:
    """One unit for a row: its symbol, the factor to divide by and the decimals to show.

    The largest value decides, so that the numbers of a row can be compared at a glance.
    """
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    if measure.kind == "time":
        symbol, factor = units.time_unit(largest)
        return symbol, factor, units.decimals_for(largest / factor)
    if measure.kind == "core time":
        return "core-h", 3_600.0, units.decimals_for(largest / 3_600)
    if measure.kind == "share":
        return "%", 0.01, 1
    return "", 1.0, 0 if measure.kind == "count" else units.decimals_for(largest)


def difference(result: ReplayResult, name: str, measure: Measure) -> tuple[str, int]:
    """How policy `name` differs from slurm in one figure: as text, and if that is better (1), worse (-1)
    or neither (0).

    Counts and stretches are figures of their own and get no difference (empty text).
    """
    neither = measure.better == 0 and measure.kind != "share"
    if name == BASELINE or neither or measure.kind == "count":
        return "", 0
    base, value = (metric(result.policies[which], measure.key) for which in (BASELINE, name))
    if base is None or value is None or (measure.kind != "share" and base == 0):
        return "", 0
    text = units.points(value - base) if measure.kind == "share" else units.change(value / base - 1)
    if text.startswith("±"):
        return text, 0
    return text, measure.better if value > base else -measure.better
