"""What a sweep came to, as tables in a terminal and as a page: means over seeds, their intervals, and what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from asad.model import Json
from asad.report import units
from asad.report.measures import MEASURES, Measure, row_unit
from asad.report.reading import Piece, Plot, Reading, Section, Table
from asad.store.sweeps import SweepResult
from asad.sweep.estimates import CONFIDENCE, Cell, Estimate, cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = ("response_mean_s", "wait_mean_s", "bounded_slowdown_mean", "cpu_utilization", "losers")
"""Those that stand first; all others are folded."""
NO_FIGURE = ("wall_s", "jobs")
NOT_SHOWN = "not shown"
"""The interval of the difference holds 0."""
ROW, TOP, AXIS = 22, 8, 46
"""Height of a row of a plot, and of what stands above and below (pixels)."""
MOST_DECIMALS = 3
METHOD = (
    "Each task replays one log under one configuration with one seed. The seed draws what the log does not say: CPU "
    "demands that are assumed, how use varies and is misjudged where that was asked for, which jobs are deferrable, in "
    "which order equal nodes are tried where starts are those of the log, "
    "the shares that policies try, and the placebo. Intervals are Student’s, of "
    f"{CONFIDENCE:.0%} over the seeds; they say what chance does to the figure of this log, and nothing of other logs. "
    "Differences are taken seed by seed, for a seed draws the same for every configuration; one whose interval holds 0 "
    "is not shown to be any."
)


def reading(results: Sequence[SweepResult], figures: Sequence[str] = FIGURES) -> Reading:
    """How the results of one sweep read; there is at least one."""
    done, failed = ([one for one in results if one.state == state] for state in ("done", "failed"))
    baseline, tasks = baseline_of(results), max(int(one.settings["sweep"]["tasks"]) for one in results)
    found = cells(done, baseline)
    there = dict.fromkeys(cell.figure for cell in found)
    first = [name for name in figures if name in there]
    others = [name for name in MEASURES if name in there and name not in first and name not in NO_FIGURE]
    folded = [_table(found, MEASURES[one], baseline, fold=True) for one in others]
    sections: list[Section] = [
        ("figures", "Figures", [piece for one in first for piece in _pieces(found, MEASURES[one], baseline)]),
        ("others", "All other figures", folded),
        ("failed", "What failed", [_failures(failed)] if failed else []),
    ]
    logs, configurations, seeds = (
        len(set(names)) for names in zip(*(one.place for one in results), strict=True)
    )
    name = units.plain(results[0].sweep, 80)
    return Reading(
        kicker="sweep of replays",
        heading=name,
        title=f"{name}: a sweep of replays",
        facts=f"{units.plural(logs, 'log')} · {units.plural(configurations, 'configuration')} · "
        f"{units.plural(seeds, 'seed')} · {units.number(len(done))} of {units.plural(tasks, 'task')} done"
        + (f" · {units.number(len(failed))} failed" if failed else ""),
        verdict=[*_verdict(found, first, baseline, tasks - len(done), len(failed))],
        sections=sections,
        method=METHOD,
    )


def baseline_of(results: Sequence[SweepResult]) -> str:
    """The configuration that the newest result was to be compared with."""
    return str(max(results, key=lambda one: one.ended_at).settings["sweep"]["baseline"])


def to_json(results: Sequence[SweepResult]) -> dict[str, Json]:
    """The results of a sweep, and what they come to, for machines."""
    done = [one for one in results if one.state == "done"]
    return {
        "sweep": results[0].sweep,
        "tasks": max(int(one.settings["sweep"]["tasks"]) for one in results),
        "done": len(done),
        "failed": len(results) - len(done),
        "baseline": baseline_of(results),
        "confidence": CONFIDENCE,
        "figures": [
            {
                **cell._asdict(),
                "value": cell.value._asdict(),
                "difference": None if cell.difference is None else cell.difference._asdict(),
            }
            for cell in cells(done, baseline_of(results))
        ],
        "results": [
            one.to_json() | one.place._asdict() | {"log_path": one.log.get("path")} for one in results
        ],
    }


def _verdict(
    found: Sequence[Cell], first: Sequence[str], baseline: str, missing: int, failed: int
) -> Iterator[str]:
    """The configuration that is best by the first figure, on each log, and what is not there yet."""
    measure = MEASURES[first[0] if first else FIGURES[0]]
    compared = [cell for cell in found if cell.figure == measure.key and cell.relative is not None]
    if not compared:
        yield "There is nothing to compare yet: it takes the baseline and another configuration on the same log."
    for log in dict.fromkeys(cell.log for cell in compared):
        best = min(
            (cell for cell in compared if cell.log == log), key=lambda cell: -measure.better * _relative(cell)
        )
        what, base = f"{units.plain(log, 60)}: {measure.label.lower()}", units.plain(baseline, 60)
        if measure.better * _relative(best) <= 0:
            yield f"{what} is best under the baseline, {base}."
            continue
        shown = (
            ""
            if _judged(best, measure, baseline) == "better"
            else "; these seeds do not show it to be more than chance"
        )
        yield (
            f"{what} is best under {units.plain(best.configuration, 60)}, "
            f"{units.change(best.relative)} against {base}{shown}."
        )
    if any(cell.value.half_width == 0.0 for cell in compared):
        yield "Where no interval stands all seeds came to the same: nothing there was drawn, and one seed suffices."
    if missing:
        yield (
            f"{units.plural(missing, 'task')} of the sweep {'is' if missing == 1 else 'are'} not done"
            + (f", {units.number(failed)} of them failed" if failed else "")
            + "; the same command goes on with what is missing."
        )


def _relative(cell: Cell) -> float:
    return cell.relative or 0.0


def _pieces(found: Sequence[Cell], measure: Measure, baseline: str) -> Iterator[Piece]:
    yield _table(found, measure, baseline)
    compared = [cell for cell in found if cell.figure == measure.key and cell.relative is not None]
    explanation = (
        f"{measure.meaning} Against {units.plain(baseline, 60)}, seed by seed; the line is the interval."
    )
    yield Plot(f"{measure.label}, difference", explanation, partial(_drawn, compared, measure.key))


def _table(found: Sequence[Cell], measure: Measure, baseline: str, fold: bool = False) -> Table:
    """A row for each configuration on each log."""
    mine = [cell for cell in found if cell.figure == measure.key]
    symbol, factor, decimals = row_unit(measure, [cell.value.mean for cell in mine])
    widths = [
        one.half_width / factor
        for cell in mine
        for one in (cell.value, cell.difference)
        if one and one.half_width
    ]
    decimals = max(decimals, 1)  # means of counts, too
    if widths:  # so many that the narrowest interval is no 0
        decimals = max(decimals, min(MOST_DECIMALS, -math.floor(math.log10(min(widths)))))
    title = f"{measure.label} ({symbol})" if symbol else measure.label
    rows = [
        (
            units.plain(cell.log, 40),
            units.plain(cell.configuration, 40),
            units.number(cell.value.seeds),
            _shown(cell.value, factor, decimals),
            "" if cell.difference is None else _shown(cell.difference, factor, decimals, sign=True),
            "" if cell.relative is None else units.change(cell.relative),
            _judged(cell, measure, baseline),
        )
        for cell in mine
    ]
    heads = (
        "log",
        "configuration",
        "seeds",
        "mean",
        f"against {units.plain(baseline, 20)}",
        "relative",
        "verdict",
    )
    return Table(title, heads, rows, folded=measure.label if fold else "")


def _shown(value: Estimate, factor: float, decimals: int, sign: bool = False) -> str:
    mean = units.number(value.mean / factor, decimals)
    mean = f"+{mean}" if sign and value.mean > 0 else mean
    # where no seed drew anything there is no interval to show
    return f"{mean} ±{units.number(value.half_width / factor, decimals)}" if value.half_width else mean


def _judged(cell: Cell, measure: Measure, baseline: str) -> str:
    if cell.configuration == baseline:
        return "baseline"
    if cell.difference is None:
        return "not compared"
    if cell.difference.half_width is None:
        return "one seed"
    sign = cell.difference.sign * measure.better
    return {1: "better", -1: "worse"}.get(sign, NOT_SHOWN if measure.better else "")


def _failures(failed: Sequence[SweepResult]) -> Table:
    rows = [[units.plain(text) for text in (*map(str, one.place), one.failure)] for one in failed]
    return Table("What failed", ("log", "configuration", "seed", "why"), rows)


def _drawn(compared: Sequence[Cell], key: str, width: int) -> str:
    """Relative differences with their intervals, a row for each configuration on each log."""
    from asad.report.drawing import INK, WIDE, axes_at, svg

    drawn = [cell for cell in compared if cell.difference is not None and cell.relative is not None]
    if not drawn:
        return ""
    left, height = (280 if width >= WIDE else 150), ROW * len(drawn)
    letters = 38 if width >= WIDE else 20

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, TOP, width - left - 20, height)
        for row, cell in enumerate(drawn):
            assert cell.difference is not None
            percent = 100 * (cell.relative or 0.0)
            scale = percent / cell.difference.mean if cell.difference.mean else 0.0
            half = abs(scale) * (cell.difference.half_width or 0.0)
            axes.errorbar(
                percent, row, xerr=half, fmt="o", color="#1f7fd1", markersize=5, capsize=3, linewidth=1.8
            )
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.8)
        axes.set_ylim(len(drawn) - 0.4, -0.6)
        names = [units.plain(f"{cell.configuration} · {cell.log}", letters) for cell in drawn]
        axes.set_yticks(range(len(drawn)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("difference from the baseline (%)")

    return svg(f"sweep-{key}", width, TOP + height + AXIS, draw)
