"""The figures of a replay's report: each a drawing, and the numbers behind it, which are its text alternative too.

A new figure is a line of `CHARTS` with the two functions that it names; nothing else knows which figures there are.
A drawing takes the result and a width in pixels; what does not apply (no experts, nothing lent) gives an empty string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from asad.model import Floats
from asad.replay.results import ExpertHistory, PolicyResult, ReplayResult
from asad.report import units
from asad.report.drawing import (
    INK,
    PAPER,
    WIDE,
    axes_at,
    legend,
    look,
    pixels,
    policy_legend,
    svg,
)
from asad.report.measures import BASELINE, headline, metric

CURVE_POINTS = 300
"""Points of a distribution's curve, whatever the number of jobs."""
BINS = 240
"""Bins of time that a figure shows at most."""
APPLICATIONS = 12
"""Applications shown in the figure of run time stretch."""
EXPERTS = 16
"""Experts shown in the figure of weights."""

# ---------------------------------------------------------------------------------------------------- figures


def utilization(result: ReplayResult, width: int = WIDE) -> str:
    """Cores allocated and cores really busy over time: one strip a policy, all on one clock."""
    shown = [policy for policy in result.policies.values() if len(policy.allocated_fraction)]
    if not shown:
        return ""
    start = min(policy.series_time_s[0] for policy in shown)
    end = max(policy.series_time_s[-1] for policy in shown)
    unit, length = units.time_unit(end - start)
    wide = width >= 600
    left, right, strip, gap = (166, 118, 62, 18) if wide else (34, 8, 56, 34)
    head = 26 if wide else 46
    height = head + len(shown) * (strip + gap) + 34

    def draw(figure: Figure) -> None:
        for number, policy in enumerate(shown):
            axes = axes_at(figure, left, head + number * (strip + gap), width - left - right, strip)
            colour, _ = look(result, policy.name)
            edges, allocated, used = coarse(policy)
            x = (edges - start) / length
            axes.stairs(allocated, x, fill=True, color=colour, alpha=0.28, linewidth=0)
            axes.stairs(used, x, fill=True, color=colour, alpha=0.95, linewidth=0)
            axes.set_xlim(0, max((end - start) / length, 1e-9))
            axes.set_ylim(0, 1)
            axes.set_yticks([0, 0.5, 1], ["0", "50", "100 %"] if wide else ["0", "", "100"])
            axes.tick_params(axis="x", labelbottom=policy is shown[-1])
            allocated_mean, used_mean = mean_utilization(policy)
            means, busy = f"{units.percent(allocated_mean)} allocated", f"{units.percent(used_mean)} busy"
            name = units.plain(policy.name, 16)
            if wide:
                axes.text(-52, strip / 2, name, ha="right", va="center", weight="bold", **pixels(axes))
                axes.text(1.02, 0.66, means, va="center", transform=axes.transAxes)
                axes.text(1.02, 0.34, busy, va="center", transform=axes.transAxes)
            else:
                axes.text(0, strip + 5, name, weight="bold", **pixels(axes))
                axes.text(1, 1.09, f"{means}, {busy}", ha="right", fontsize=10, transform=axes.transAxes)
        axes.set_xlabel(f"time since the start of the log ({_TIME_WORDS[unit]})")
        swatches = [Line2D([], [], color="#7d8590", alpha=alpha, linewidth=8) for alpha in (0.28, 0.95)]
        legend(figure, swatches, ["allocated", "really busy"], left)

    return svg("utilization", width, height, draw)


def waiting(result: ReplayResult, width: int = WIDE) -> str:
    """Share of jobs that had started after waiting so long (logarithmic time), one curve a policy."""
    longest = max((float(np.nanmax(wait, initial=1.0)) for wait in _each(result, waits)), default=1.0)

    def ticks(axes: Axes) -> None:
        _time_ticks(axes, longest, width)
        axes.set_xlabel("wait")
        axes.set_ylabel("jobs that have started")

    return _distribution("waiting", result, waits, max(longest, 60.0), width, ticks)


def slowdown(result: ReplayResult, width: int = WIDE) -> str:
    """Share of jobs whose bounded slowdown is at most so much (logarithmic), one curve a policy."""
    largest = max((float(np.nanmax(value, initial=1.0)) for value in _each(result, slowdowns)), default=1.0)

    def ticks(axes: Axes) -> None:
        top = max(1, int(np.ceil(np.log10(max(largest, 1.0)))))
        step = 1 if top <= 6 or width >= 600 else 2
        powers = range(0, top + 1, step)
        axes.set_xticks([10.0**power for power in powers], [units.number(10**power) for power in powers])
        axes.set_xlabel("bounded slowdown (10 s)")
        axes.set_ylabel("jobs with at most that")

    return _distribution("slowdown", result, slowdowns, max(largest, 10.0), width, ticks)


def stretch_by_application(result: ReplayResult, width: int = WIDE) -> str:
    """Run time over isolated run time of hosts and guests, for the applications that lending touches most.

    A dot is the median, the bar the middle half, the line the middle 90 %.
    """
    name = headline(result)
    rows = stretches(result)
    if name is None or not rows:
        return ""
    wide = width >= 600
    left, right, pitch = (230, 130, 40) if wide else (12, 92, 62)
    height = 30 + len(rows) * pitch + 46
    colour, _ = look(result, name)
    spreads = [spread for row in rows for spread in (row.host, row.guest) if spread is not None]
    lowest, largest = min(spread.p5 for spread in spreads), max(spread.p95 for spread in spreads)
    beside: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center",
    }  # fmt: skip

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, 30, width - left - right, len(rows) * pitch)
        axes.axvline(1, color=INK, linewidth=0.8, alpha=0.5)
        for number, row in enumerate(rows):
            middle = number if wide else number + 0.18
            for spread, offset, hollow in ((row.host, -0.17, False), (row.guest, 0.17, True)):
                if spread is None:
                    continue
                y = middle + offset
                axes.plot([spread.p5, spread.p95], [y, y], color=colour, linewidth=1.2)
                axes.plot(
                    [spread.p25, spread.p75], [y, y], color=colour, linewidth=6, alpha=0.55,
                    solid_capstyle="butt",
                )  # fmt: skip
                axes.plot(
                    [spread.median], [y], "D" if hollow else "o", color=colour, markersize=6.5,
                    markerfacecolor=PAPER if hollow else colour,
                )  # fmt: skip
                kind = "guest" if hollow else "host"
                axes.annotate(units.plural(spread.jobs, kind), (1, y), xytext=(10, 0), fontsize=10, **beside)
            if wide:
                axes.annotate(
                    units.plain(row.application, 30), (0, middle), xytext=(-12, 0), ha="right",
                    annotation_clip=False, **beside,
                )  # fmt: skip
            else:
                axes.annotate(
                    units.plain(row.application, 34), (0, middle - 0.5), xytext=(0, 0), fontsize=10.5,
                    annotation_clip=False, bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5},
                    **beside,
                )  # fmt: skip
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xscale("log")
        axes.set_xlim(0.95 if lowest >= 0.95 else lowest * 0.95, max(largest * 1.06, 1.6))
        marks = [
            mark for mark in (0.5, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100) if 0.9 <= mark <= max(largest, 1.5)
        ]
        if len(marks) > 6:
            marks = [mark for mark in marks if mark not in (1.25, 1.5, 3)]
        axes.set_xticks(marks, [f"{mark:g}×" for mark in marks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.8)
        axes.set_xlabel(f"run time over isolated run time, {units.plain(name, 18)}")
        marks_of_kind = [
            Line2D([], [], color=colour, marker=marker, markersize=6.5, linewidth=1.2, markerfacecolor=face)
            for marker, face in (("o", colour), ("D", PAPER))
        ]
        legend(figure, marks_of_kind, ["hosts", "guests"], left)

    return svg("stretch", width, height, draw)


def weights(result: ReplayResult, width: int = WIDE) -> str:
    """How much the learner listens to each expert, round by round: one strip an expert."""
    learners = _learners(result)
    names = expert_names(result)
    if not names:
        return ""
    wide = width >= 600
    left, right, strip, gap = (166, 86, 34, 12) if wide else (34, 8, 34, 28)
    head = 30 if wide else 46
    height = head + len(names) * (strip + gap) + 36
    ceiling = min(1.0, 1.08 * max(float(history.weights.max(initial=0.0)) for _, history in learners))
    last = max(int(history.round.max(initial=1)) for _, history in learners)

    def draw(figure: Figure) -> None:
        for number, expert in enumerate(names):
            axes = axes_at(figure, left, head + number * (strip + gap), width - left - right, strip)
            ends = []
            for policy, history in learners:
                if expert not in history.names:
                    continue
                colour, dash = look(result, policy.name)
                column = history.weights[:, history.names.index(expert)]
                axes.plot(history.round, column, color=colour, linestyle=dash, linewidth=1.6)
                axes.axhline(1 / len(history.names), color=INK, linewidth=0.7, alpha=0.35)
                ends.append(units.percent(float(column[-1])))
            axes.set_xlim(1, max(last, 2))
            axes.set_ylim(0, ceiling)
            # one scale for all strips, written once
            axes.set_yticks([0, ceiling], ["0", units.percent(ceiling)] if number == 0 else ["", ""])
            axes.tick_params(axis="y", labelsize=9)
            axes.tick_params(axis="x", labelbottom=expert == names[-1])
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.number(value)))
            shown = units.plain(expert, 18)
            if wide:
                axes.text(-48, strip / 2, shown, ha="right", va="center", **pixels(axes))
                place = (1.015, 0.5)
            else:
                axes.text(0, strip + 5, shown, **pixels(axes))
                place = (1, 1.3)
            axes.text(
                *place, " / ".join(ends), ha="left" if wide else "right", va="center",
                transform=axes.transAxes, fontsize=10.5,
            )  # fmt: skip
        axes.set_xlabel("round of the learner")
        policy_legend(figure, result, [policy.name for policy, _ in learners], left, width)

    return svg("weights", width, height, draw)


def risk(result: ReplayResult, width: int = WIDE) -> str:
    """Excess risk E_t of the learner against Theorem 1's bound on it, one panel a policy that learns."""
    learners = _learners(result)
    if not learners:
        return ""
    wide = width >= 600
    columns = min(len(learners), 2) if wide else 1
    rows = -(-len(learners) // columns)
    left, panel, between = 62, 210, 66
    each = (width - left - 14 - (columns - 1) * between) / columns
    height = 30 + rows * (panel + 70)

    def draw(figure: Figure) -> None:
        for number, (policy, history) in enumerate(learners):
            row, column = divmod(number, columns)
            axes = axes_at(figure, left + column * (each + between), 54 + row * (panel + 70), each, panel)
            colour, _ = look(result, policy.name)
            axes.plot(history.round, history.bound, color=colour, linestyle=(0, (5, 3)), linewidth=1.8)
            axes.plot(history.round, history.excess_risk, color=colour, linewidth=2.2)
            axes.set_title(units.plain(policy.name, 18), loc="left", fontsize=11.5, weight="bold")
            axes.set_xlim(1, max(int(history.round.max(initial=1)), 2))
            axes.set_ylim(bottom=min(0.0, float(history.excess_risk.min(initial=0.0)) * 1.08))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.number(value)))
            axes.yaxis.set_major_formatter(
                FuncFormatter(lambda value, _: f"{value:g}".replace("-", units.MINUS))
            )
            axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
            axes.set_xlabel("round of the learner")
            if column == 0:
                axes.set_ylabel("risk")
        lines = [
            Line2D([], [], color="#7d8590", linewidth=2, linestyle=dash) for dash in ("solid", (0, (5, 3)))
        ]
        legend(figure, lines, ["excess risk", "Theorem 1’s bound"], left)

    return svg("risk", width, height, draw)


# --------------------------------------------------------------------------- the numbers that they show


def waits(result: ReplayResult, policy: PolicyResult) -> Floats:
    """(started jobs,) time from submission to start, in seconds."""
    value = policy.start_s - result.submit_s
    return np.maximum(value[np.isfinite(value)], 0.0)


def slowdowns(result: ReplayResult, policy: PolicyResult) -> Floats:
    """(ended jobs,) bounded slowdown: max(1, response over max(isolated run time, 10 s))."""
    response = policy.end_s - result.submit_s
    value = np.maximum(response / np.maximum(result.run_s, 10.0), 1.0)
    return value[np.isfinite(value)]


def coarse(policy: PolicyResult) -> tuple[Floats, Floats, Floats]:
    """Edges of time and the two series of a policy, in no more than `BINS` bins (means weighted by time)."""
    edges = policy.series_time_s
    bins = len(policy.allocated_fraction)
    if bins <= BINS:
        return edges, policy.allocated_fraction, policy.used_fraction
    first = np.unique(np.linspace(0, bins, BINS + 1).astype(np.intp))
    length = np.diff(edges)
    total = np.add.reduceat(length, first[:-1])
    allocated, used = (
        np.add.reduceat(series * length, first[:-1]) / np.maximum(total, 1e-12)
        for series in (policy.allocated_fraction, policy.used_fraction)
    )
    return edges[first], allocated, used


def mean_utilization(policy: PolicyResult) -> tuple[float | None, float | None]:
    """Cores allocated and cores really busy, over the cores of the machine and the makespan."""
    return metric(policy, "utilization"), metric(policy, "cpu_utilization")


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of the run time stretch of some jobs."""

    jobs: int
    p5: float
    p25: float
    median: float
    p75: float
    p95: float


@dataclass(frozen=True, slots=True)
class ApplicationStretch:
    """How far lending stretches the runs of one application; None where it has no such jobs."""

    application: str
    host: Spread | None
    guest: Spread | None


def stretches(result: ReplayResult) -> list[ApplicationStretch]:
    """The applications with most hosts and guests under the headline policy, at most `APPLICATIONS`."""
    name = headline(result)
    if name is None:
        return []
    policy = result.policies[name]
    stretch = (policy.end_s - policy.start_s) / result.run_s
    sound = np.isfinite(stretch)
    # a guest that later lent some of its own cores is shown as the guest it began as
    guest, host = policy.guest & sound, policy.host & ~policy.guest & sound
    code = result.application.astype(np.int64) + 1
    touched = np.bincount(code[guest | host], minlength=1)
    most = np.argsort(-touched, kind="stable")[:APPLICATIONS]
    return [
        ApplicationStretch(
            application_name(result, int(one) - 1),
            _spread(stretch[host & (code == one)]),
            _spread(stretch[guest & (code == one)]),
        )
        for one in most
        if touched[one]
    ]


def application_name(result: ReplayResult, code: int) -> str:
    """Name of an application by its code; `not recorded` for -1."""
    return result.application_names[code] if 0 <= code < len(result.application_names) else "not recorded"


def expert_names(result: ReplayResult) -> list[str]:
    """The experts of all policies that learn, in their own order: the `EXPERTS` with most weight at last."""
    final: dict[str, float] = {}
    for _, history in _learners(result):
        for name, weight in zip(history.names, history.weights[-1].tolist(), strict=True):
            final[name] = max(final.get(name, 0.0), weight)
    kept = set(sorted(final, key=lambda name: -final[name])[:EXPERTS])
    return [name for name in final if name in kept]


# ---------------------------------------------------------------------------------------------- drawing

_TIME_WORDS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
_TIME_TICKS = (
    (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3_600, "1 h"), (21_600, "6 h"),
    (86_400, "1 d"), (604_800, "7 d"), (2_592_000, "30 d"), (31_536_000, "1 y"),
)  # fmt: skip


def _each(result: ReplayResult, values: Callable[[ReplayResult, PolicyResult], Floats]) -> list[Floats]:
    return [values(result, policy) for policy in result.policies.values()]


def _learners(result: ReplayResult) -> list[tuple[PolicyResult, ExpertHistory]]:
    policies = result.policies.values()
    return [(one, one.experts) for one in policies if one.experts is not None and len(one.experts.round)]


def _spread(stretch: Floats) -> Spread | None:
    if not len(stretch):
        return None
    return Spread(len(stretch), *(float(value) for value in np.percentile(stretch, [5, 25, 50, 75, 95])))


def _distribution(
    kind: str,
    result: ReplayResult,
    values: Callable[[ReplayResult, PolicyResult], Floats],
    largest: float,
    width: int,
    ticks: Callable[[Axes], None],
) -> str:
    if not len(result.submit_s):
        return ""
    wide = width >= 600
    left, head, tall = (66, 34, 300) if wide else (60, 34 + 18 * (-(-len(result.policies) // 2) - 1), 230)
    grid = np.geomspace(1.0, largest * 1.02, CURVE_POINTS)

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, head, width - left - 26, tall)
        for name, policy in result.policies.items():
            ordered = np.sort(values(result, policy))
            if not len(ordered):
                continue
            colour, dash = look(result, name)
            share = np.searchsorted(ordered, grid, side="right") / len(ordered)
            wider = int(name == BASELINE)  # and below the others
            axes.plot(grid, share, color=colour, linestyle=dash, linewidth=2 + wider, zorder=3 - wider)
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        ticks(axes)
        axes.set_xlim(1, grid[-1])
        axes.set_ylim(0, 1.0)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.grid(color=INK, alpha=0.12, linewidth=0.8)
        policy_legend(figure, result, list(result.policies), left, width)

    return svg(kind, width, head + tall + 48, draw)


def _time_ticks(axes: Axes, longest: float, width: int) -> None:
    marks = [mark for mark in _TIME_TICKS if mark[0] <= max(longest, 60.0)]
    if width < 600:
        marks = [mark for mark in marks if mark[1] in ("1 s", "1 min", "1 h", "1 d", "30 d")]
    axes.set_xticks([mark[0] for mark in marks], [mark[1] for mark in marks])


# ------------------------------------------------------------------------------------------- their numbers

Cells = tuple[str, ...]
Found = Iterator[tuple[str, list[Cells]]]
"""Of each policy (or whatever a figure has one sentence about) the sentence, and its rows in the table."""


def _utilization_numbers(result: ReplayResult) -> Found:
    for policy in result.policies.values():
        if len(policy.allocated_fraction):
            name = units.plain(policy.name)
            allocated, used = (units.percent(mean) for mean in mean_utilization(policy))
            text = f"{name}: {allocated} of the cores allocated and {used} really busy, on average"
            yield text, [(name, allocated, used, units.percent(float(policy.used_fraction.max())))]


def _quantiles(
    values: Callable[[ReplayResult, PolicyResult], Floats], show: Callable[[float], str]
) -> Callable[[ReplayResult], Found]:
    def numbers(result: ReplayResult) -> Found:
        for policy in result.policies.values():
            found = values(result, policy)
            if len(found):
                name = units.plain(policy.name)
                cells = [show(float(value)) for value in np.percentile(found, [25, 50, 75, 95, 99, 100])]
                text = f"{name}: half of the jobs at most {cells[1]}, 95{units.THIN}% at most {cells[3]}"
                yield text, [(name, *cells)]

    return numbers


def _stretch_numbers(result: ReplayResult) -> Found:
    for row in stretches(result):
        for kind, spread in (("hosts", row.host), ("guests", row.guest)):
            if spread is not None:
                values = (spread.p5, spread.p25, spread.median, spread.p75, spread.p95)
                cells = [units.number(value, 2) for value in values]
                name, jobs = units.plain(row.application, 60), units.number(spread.jobs)
                yield f"{name}, {jobs} {kind}: median {cells[2]}", [(name, kind, jobs, *cells)]


def _weight_numbers(result: ReplayResult) -> Found:
    for policy, history in _learners(result):
        name, experts = units.plain(policy.name), [units.plain(expert, 60) for expert in history.names]
        weights, at_first = history.weights, units.percent(1 / len(experts))
        best = int(np.argmax(weights[-1]))
        yield (
            f"{name} ends with {units.percent(float(weights[-1, best]))} on {experts[best]}",
            [
                (name, expert, at_first, *(units.percent(float(column[at])) for at in (len(column) // 2, -1)))
                for expert, column in zip(experts, weights.T, strict=True)
            ],
        )


def _risk_numbers(result: ReplayResult) -> Found:
    for policy, history in _learners(result):
        name, rounds = units.plain(policy.name), len(history.round)
        rows = [
            (
                name,
                units.number(int(history.round[number])),
                *(units.number(float(of[number]), 2) for of in (history.excess_risk, history.bound)),
            )
            for number in sorted({0, rounds // 2, rounds - 1})
        ]
        text = f"{name}: {rows[-1][2]} after {units.plural(int(history.round[-1]), 'round')}, bound {rows[-1][3]}"
        if over := int((history.excess_risk > history.bound).sum()):
            text += f", above the bound in {units.number(over)} of the rounds shown"
        yield text, rows


QUANTILES = ("Policy", "25 %", "Median", "75 %", "95 %", "99 %", "Most")


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure of the report."""

    title: str
    explanation: str
    draw: Callable[[ReplayResult, int], str]
    caption: str
    """Of the table of its numbers."""
    heads: Cells
    numbers: Callable[[ReplayResult], Found]


CHARTS = (
    Chart(
        "Utilization over time",
        "Pale: cores that batch jobs hold. Full: cores that really work. The gap between them is idle; part of it can "
        "be lent.",
        utilization,
        "Utilization, mean over the makespan",
        ("Policy", "Allocated, mean", "Really busy, mean", "Really busy, most"),
        _utilization_numbers,
    ),
    Chart(
        "How long jobs wait",
        "For every wait, the share of jobs that had started by then; a curve further up and left is better.",
        waiting,
        "Wait of started jobs",
        QUANTILES,
        _quantiles(waits, units.duration),
    ),
    Chart(
        "Bounded slowdown",
        "For every slowdown, the share of jobs with at most that; a curve further up and left is better.",
        slowdown,
        "Bounded slowdown",
        QUANTILES,
        _quantiles(slowdowns, lambda value: units.number(value, units.decimals_for(value))),
    ),
    Chart(
        "What lending costs while jobs run",
        "Run time over isolated run time, for the applications that lending touches most. The mark is the median, "
        "the bar the middle half of the jobs, the line the middle 90 %.",
        stretch_by_application,
        "Run time over isolated run time",
        ("Application", "Role", "Jobs", "5 %", "25 %", "Median", "75 %", "95 %"),
        _stretch_numbers,
    ),
    Chart(
        "Whom the learner listens to",
        "Weight of each expert, round by round, over the whole cluster. The thin line is where all experts began; the "
        "percentage is where each one ended.",
        weights,
        "Weights of the experts",
        ("Policy", "Expert", "At first", "Half-way", "At last"),
        _weight_numbers,
    ),
    Chart(
        "What learning costs",
        "How much more was lost than by the best single expert known only afterwards, and the most that Theorem 1 "
        "allows it to be.",
        risk,
        "Excess risk against Theorem 1’s bound",
        ("Policy", "Round", "Excess risk", "Bound"),
        _risk_numbers,
    ),
)
"""The figures in the order of the page."""
