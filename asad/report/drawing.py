"""Drawing: figures of any page as the text of one SVG element that can stand in it.

Letters and axes take the colour of the surrounding text (`currentColor`), so that a figure reads on light and on dark
paper. The same input gives the same bytes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from io import StringIO
from typing import Any
from xml.etree import ElementTree as ET  # only ever parses what matplotlib has just written

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Affine2D

from asad.replay.results import ReplayResult
from asad.report import units
from asad.report.measures import BASELINE

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
# A dash goes with each colour, so that black-and-white print distinguishes them as well.
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

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"


def look(result: ReplayResult, name: str) -> tuple[str, Any]:
    """Colour and dash of a policy: the same in every figure and every report that has the same policies."""
    if name in PALETTE:
        return PALETTE[name]
    others = [policy for policy in result.policies if policy not in PALETTE]
    return SPARE[others.index(name) % len(SPARE)]


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place in pixels from the upper left."""
    wide, tall = figure.get_size_inches() * 72
    return figure.add_axes((left / wide, 1 - (top + height) / tall, width / wide, height / tall))


def pixels(axes: Axes) -> dict[str, Any]:
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


def policy_legend(figure: Figure, result: ReplayResult, names: list[str], left: float, width: int) -> None:
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
