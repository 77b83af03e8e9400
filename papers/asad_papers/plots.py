"""Plots that several evaluations draw: lines against an axis, with a legend above that fits the width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from asad.report import units
from asad.report.drawing import INK, axes_at, legend, svg

COLOURS = ("#1f7fd1", "#c47a00", "#00936b", "#b5659f")
"""For what has no colour of its own."""


class Curve(NamedTuple):
    """One line, or marks alone where `dash` is "none"."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dash: Any = "solid"
    mark: str = "o"


def is_wide(width: int) -> bool:
    """A page, not a telephone."""
    return width >= 600


def curves(
    key: str,
    width: int,
    drawn: Sequence[Curve],
    x: str,
    y: str,
    finish: Callable[[Axes], None] = lambda _: None,
    columns: int = 9,
) -> str:
    """The curves with what stands at their axes; `finish` sets scales, ticks and limits. Empty for no curves."""
    if not drawn:
        return ""
    wide = is_wide(width)
    columns = columns if wide else 2
    lines = -(-len(drawn) // columns)
    left, top, tall = 70 if wide else 62, 16 + 18 * lines, 300 if wide else 230

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, top, width - left - 26, tall)
        axes.grid(color=INK, alpha=0.12, linewidth=0.8)
        for curve in drawn:
            axes.plot(
                curve.x,
                curve.y,
                color=curve.colour,
                linestyle=curve.dash,
                linewidth=2,
                marker=curve.mark,
                markersize=4,
            )
        finish(axes)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        handles = [
            Line2D(
                [],
                [],
                color=curve.colour,
                linestyle=curve.dash,
                linewidth=2,
                marker=curve.mark * (curve.dash == "none"),
            )
            for curve in drawn
        ]
        legend(figure, handles, [units.plain(curve.name, 18) for curve in drawn], 66 if wide else 34, columns)

    return svg(key, width, top + tall + 48, draw)


def logarithmic(axes: Axes, which: str) -> None:
    """Axes "x", "y" or both without the ticks between the ones that are named."""
    for one in which:
        getattr(axes, f"set_{one}scale")("log")
        getattr(axes, f"{one}axis").set_minor_locator(NullLocator())
