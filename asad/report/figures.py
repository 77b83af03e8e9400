"""The figures of a report, each as the text of one SVG element that can stand in a page.

Every function takes the result and a width in pixels, and returns SVG whose letters and axes take the colour
of the surrounding text (`currentColor`), so that a figure reads on light and on dark paper. The same result
gives the same bytes. What does not apply (no experts, nothing lent) gives an empty string.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import Any
from xml.etree import ElementTree as ET  # only ever parses what matplotlib has just written

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator
from matplotlib.transforms import Affine2D

from asad.model import Floats
from asad.replay.results import PolicyResult, ReplayResult
from asad.report import units
from asad.report.measures import BASELINE, headline, metric

WIDE, NARROW = 860, 350
"""Widths of a figure on a page and on a telephone (pixels)."""

INK = "#0a0b0c"
"""Stands for the colour of the surrounding text until the figure is written."""

PAPER = "#fbfcfd"
"""Stands for the colour of the page below a figure, likewise."""

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.image_inline": True,
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11.5,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.8,
    "legend.frameon": False,
    "path.simplify": True,
}

# Mid-tones of the Okabe-Ito palette (made for colour-blind readers), each at least 3:1 on white and on the
# dark page.
# A dash goes with each colour, so that black-and-white print tells them apart as well.
PALETTE: dict[str, tuple[str, Any]] = {
    "slurm": ("#7d8590", "solid"),
    "asax": ("#1f7fd1", "solid"),
    "asax-paper": ("#b5659f", (0, (6, 2))),
    "static": ("#c47a00", (0, (3, 1.5))),
    "greedy-oracle": ("#00936b", (0, (7, 2, 1.5, 2))),
    "conservative": ("#d55e00", (0, (1.5, 1.5))),
    "fcfs": ("#94754c", (0, (4, 1.5, 1, 1.5, 1, 1.5))),
    "oasis": ("#2f8f9d", (0, (10, 2))),
    "oasis-paper": ("#9a6fb0", (0, (10, 2, 2, 2))),
}
SPARE: tuple[tuple[str, Any], ...] = (
    ("#5b7fa6", (0, (5, 1))),
    ("#8a7bd1", (0, (2, 1))),
    ("#6f8f3a", (0, (8, 2))),
    ("#b0646b", (0, (3, 3))),
)

CURVE_POINTS = 300
"""Points of a distribution's curve, whatever the number of jobs."""
BINS = 240
"""Bins of time that a figure shows at most."""
APPLICATIONS = 12
"""Applications shown in the figure of run time stretch."""
EXPERTS = 16
"""Experts shown in the figure of weights."""

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"


def look(result: ReplayResult, name: str) -> tuple[str, Any]:
    """Colour and dash of a policy: the same in every figure and every report that has the same policies."""
    if name in PALETTE:
        return PALETTE[name]
    others = [policy for policy in result.policies if policy not in PALETTE]
    return SPARE[others.index(name) % len(SPARE)]


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
                axes.text(-52, strip / 2, name, ha="right", va="center", weight="bold", **_pixels(axes))
                axes.text(1.02, 0.66, means, va="center", transform=axes.transAxes)
                axes.text(1.02, 0.34, busy, va="center", transform=axes.transAxes)
            else:
                axes.text(0, strip + 5, name, weight="bold", **_pixels(axes))
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
    largest = max(spread.p95 for row in rows for spread in (row.host, row.guest) if spread is not None)

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
                    [spread.p25, spread.p75],
                    [y, y],
                    color=colour,
                    linewidth=6,
                    alpha=0.55,
                    solid_capstyle="butt",
                )
                axes.plot(
                    [spread.median],
                    [y],
                    "D" if hollow else "o",
                    color=colour,
                    markersize=6.5,
                    markerfacecolor=PAPER if hollow else colour,
                )
                kind = "guest" if hollow else "host"
                axes.annotate(
                    units.plural(spread.jobs, kind),
                    (1, y),
                    xycoords=("axes fraction", "data"),
                    xytext=(10, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=10,
                )
            if wide:
                axes.annotate(
                    units.plain(row.application, 30),
                    (0, middle),
                    xycoords=("axes fraction", "data"),
                    xytext=(-12, 0),
                    textcoords="offset points",
                    ha="right",
                    va="center",
                    annotation_clip=False,
                )
            else:
                axes.annotate(
                    units.plain(row.application, 34),
                    (0, middle - 0.5),
                    xycoords=("axes fraction", "data"),
                    xytext=(0, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=10.5,
                    annotation_clip=False,
                    bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5},
                )
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xscale("log")
        axes.set_xlim(0.95 if min(_lows(rows)) >= 0.95 else min(_lows(rows)) * 0.95, max(largest * 1.06, 1.6))
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
    top = max(
        (float(policy.experts.weights.max(initial=0.0)) for policy in learners if policy.experts), default=1.0
    )
    ceiling = min(1.0, top * 1.08)
    last = max(int(policy.experts.round.max(initial=1)) for policy in learners if policy.experts)

    def draw(figure: Figure) -> None:
        for number, expert in enumerate(names):
            axes = axes_at(figure, left, head + number * (strip + gap), width - left - right, strip)
            ends = []
            for policy in learners:
                history = policy.experts
                if history is None or expert not in history.names:
                    continue
                colour, dash = look(result, policy.name)
                column = history.weights[:, history.names.index(expert)]
                axes.plot(history.round, column, color=colour, linestyle=dash, linewidth=1.6)
                axes.axhline(1 / len(history.names), color=INK, linewidth=0.7, alpha=0.35)
                ends.append((float(column[-1]), colour) if len(column) else (0.0, colour))
            axes.set_xlim(1, max(last, 2))
            axes.set_ylim(0, ceiling)
            # one scale for all strips, written once
            axes.set_yticks([0, ceiling], ["0", units.percent(ceiling)] if number == 0 else ["", ""])
            axes.tick_params(axis="y", labelsize=9)
            axes.tick_params(axis="x", labelbottom=expert == names[-1])
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: units.number(value)))
            shown = units.plain(expert, 18)
            if wide:
                axes.text(-48, strip / 2, shown, ha="right", va="center", **_pixels(axes))
                place = (1.015, 0.5)
            else:
                axes.text(0, strip + 5, shown, **_pixels(axes))
                place = (1, 1.3)
            text = " / ".join(units.percent(end) for end, _ in ends)
            axes.text(
                *place,
                text,
                ha="left" if wide else "right",
                va="center",
                transform=axes.transAxes,
                fontsize=10.5,
            )
        axes.set_xlabel("round of the learner")
        _policy_legend(figure, result, [policy.name for policy in learners], left, width)

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
        for number, policy in enumerate(learners):
            history = policy.experts
            if history is None:
                continue
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
    for policy in _learners(result):
        if policy.experts is not None:
            for number, name in enumerate(policy.experts.names):
                final[name] = max(final.get(name, 0.0), float(policy.experts.weights[-1, number]))
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


def _learners(result: ReplayResult) -> list[PolicyResult]:
    return [
        policy
        for policy in result.policies.values()
        if policy.experts is not None and len(policy.experts.round)
    ]


def _spread(stretch: Floats) -> Spread | None:
    if not len(stretch):
        return None
    return Spread(len(stretch), *(float(value) for value in np.percentile(stretch, [5, 25, 50, 75, 95])))


def _lows(rows: list[ApplicationStretch]) -> list[float]:
    return [spread.p5 for row in rows for spread in (row.host, row.guest) if spread is not None]


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
            axes.plot(
                grid,
                share,
                color=colour,
                linestyle=dash,
                linewidth=3 if name == BASELINE else 2,
                zorder=2 if name == BASELINE else 3,
            )
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        ticks(axes)
        axes.set_xlim(1, grid[-1])
        axes.set_ylim(0, 1.0)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.grid(color=INK, alpha=0.12, linewidth=0.8)
        _policy_legend(figure, result, list(result.policies), left, width)

    return svg(kind, width, head + tall + 48, draw)


def _time_ticks(axes: Axes, longest: float, width: int) -> None:
    marks = [mark for mark in _TIME_TICKS if mark[0] <= max(longest, 60.0)]
    if width < 600:
        marks = [mark for mark in marks if mark[1] in ("1 s", "1 min", "1 h", "1 d", "30 d")]
    axes.set_xticks([mark[0] for mark in marks], [mark[1] for mark in marks])


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in pixels from the upper left."""
    wide, tall = figure.get_size_inches() * 72
    return figure.add_axes((left / wide, 1 - (top + height) / tall, width / wide, height / tall))


def _pixels(axes: Axes) -> dict[str, Any]:
    """Place a text in pixels from the lower left corner of the axes."""
    box = axes.get_position()
    figure = axes.get_figure()
    if figure is None:  # pragma: no cover - axes are always made by `_axes`
        return {}
    wide, tall = figure.get_size_inches() * 72  # type: ignore[union-attr]
    return {"transform": Affine2D().translate(box.x0 * wide, box.y0 * tall), "clip_on": False}


def legend(figure: Figure, handles: list[Line2D], labels: list[str], left: float, columns: int = 9) -> None:
    wide, tall = figure.get_size_inches() * 72
    figure.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(left / wide, 1 - 3 / tall), borderaxespad=0,
        borderpad=0, ncols=min(columns, len(labels)), handlelength=2.6, columnspacing=1.8, handletextpad=0.6,
        fontsize=11,
    )  # fmt: skip


def _policy_legend(figure: Figure, result: ReplayResult, names: list[str], left: float, width: int) -> None:
    handles = []
    for name in names:
        colour, dash = look(result, name)
        handles.append(Line2D([], [], color=colour, linestyle=dash, linewidth=3 if name == BASELINE else 2))
    legend(figure, handles, [units.plain(name, 18) for name in names], left, 9 if width >= 600 else 2)


def svg(kind: str, width: int, height: float, draw: Callable[[Figure], None]) -> str:
    """Draw one figure: an `<svg>` element without prolog, metadata or style sheet, with ids of its own."""
    salt = f"{kind}-{width}"
    with matplotlib.style.context(["default", {**STYLE, "svg.hashsalt": salt}]), warnings.catch_warnings():
        # names of jobs may be in any script; the reader's browser has the letters, matplotlib needs only
        # their room
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support .* natively")
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _clean(text.getvalue(), salt)


def _clean(text: str, prefix: str) -> str:
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    root = ET.fromstring(text)  # noqa: S314 - written by matplotlib a moment ago
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                value = f"{prefix}-{value}"
            elif key == f"{{{XLINK}}}href":
                value = f"#{prefix}-{value[1:]}"
            elif key == "d":
                value = re.sub(r"(\.\d\d)\d+", r"\1", value)
                value = re.sub(r"\s+", " ", value).strip()
            elif key == "style":
                value = re.sub(
                    r"'DejaVu Sans'[^;]*",
                    "sans-serif",
                    value.replace(INK, "currentColor").replace(PAPER, "var(--paper, #fff)"),
                )
            value = value.replace("url(#", f"url(#{prefix}-")
            element.set(key, value)
        if element.tag != f"{{{SVG}}}text":
            element.text = None if element.text is not None and not element.text.strip() else element.text
        element.tail = None
    for key in ("width", "height"):
        root.attrib.pop(key, None)
    root.set("class", "figure")
    root.set("focusable", "false")
    return ET.tostring(root, encoding="unicode")
