"""The page of `asactl bench sow`: statements of work beside queues and reservations, in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from asad.report import units
from asad.report.drawing import INK, NARROW, WIDE, axes_at, legend, svg
from asad.report.page import bench_page, table_of

Document = Mapping[str, Any]
"""What `asactl bench sow --json` prints."""

LOOKS = {
    "sow": ("#1f7fd1", "D"),
    "sow-paper": ("#b5659f", "s"),
    "fcfs": ("#94754c", "o"),
    "reservation": ("#7d8590", "v"),
    "density": ("#00936b", "^"),
}
"""Colour and mark of a policy (Okabe-Ito, as everywhere)."""


def page(document: Document, instance: str, command: str) -> str:
    """The page as text. `command` is what was typed."""
    sections = [("verdict", "Verdict", _verdict(document))]
    for key, title, text in (
        ("policies", "Policies", _policies(document)),
        ("truthfulness", "Truthfulness and speed", _others(document)),
        ("seeds", "Fresh instances", _seeds(document)),
    ):
        if text:
            sections.append((key, title, text))
    sections.append(("method", "How it was found", _method(command)))
    return bench_page(
        "statements of work",
        "Jobs announced before they come",
        units.plain(instance, 60),
        "Statements of work: policies side by side",
        sections,
    )


def welfare(document: Document, width: int) -> str:
    """Welfare over the hindsight LP by policy, on the instance."""
    rows = document.get("policies") or {}
    if not rows:
        return ""
    tall = 30 * len(rows) + 8

    def draw(figure: Figure) -> None:
        left = 130 if width >= 600 else 100
        axes = axes_at(figure, left, 16, width - left - 30, tall)
        axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.8)
        for number, (name, row) in enumerate(rows.items()):
            colour, mark = LOOKS.get(name, ("#5b7fa6", "o"))
            axes.plot([0, row["welfare_ratio"]], [number, number], color=colour, linewidth=2, alpha=0.5)
            axes.plot([row["welfare_ratio"]], [number], mark, color=colour, markersize=7)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("welfare over the hindsight LP")

    return svg("sow-welfare", width, tall + 16 + 50, draw)


def by_load(document: Document, width: int) -> str:
    """Welfare over the hindsight LP against load, one mark an instance."""
    rows = document.get("seeds") or []
    if not rows:
        return ""
    names = list(rows[0]["policies"])
    loads = sorted({row["load"] for row in rows})
    lines = 1 if width >= 600 else -(-len(names) // 2)

    def draw(figure: Figure) -> None:
        left, top = (60, 20 + 18 * lines)
        axes = axes_at(figure, left, top, width - left - 20, 250)
        axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
        for number, name in enumerate(names):
            colour, mark = LOOKS.get(name, ("#5b7fa6", "o"))
            shift = (number - (len(names) - 1) / 2) * 0.09
            axes.plot(
                [loads.index(row["load"]) + shift for row in rows],
                [row["policies"][name]["welfare_ratio"] for row in rows],
                mark, color=colour, markersize=5, alpha=0.8, linestyle="none",
            )  # fmt: skip
        axes.set_xticks(range(len(loads)), [f"{load:g}" for load in loads])
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("demand over capacity")
        axes.set_ylabel("welfare / LP")
        marks = [
            Line2D([], [], color=LOOKS.get(name, ("#5b7fa6", "o"))[0], marker=LOOKS.get(name, ("", "o"))[1],
                   linestyle="none")
            for name in names
        ]  # fmt: skip
        legend(figure, marks, names, left, 9 if width >= 600 else 2)

    return svg("sow-by-load", width, 20 + 18 * lines + 250 + 50, draw)


def _verdict(document: Document) -> str:
    said = []
    rows = document.get("policies") or {}
    if "sow" in rows:
        own = rows["sow"]
        text = f"sow reaches {own['welfare_ratio']:.1%} of the hindsight LP"
        if "reservation" in rows and rows["reservation"]["welfare_ratio"] > 0.0:
            text += f", {own['welfare_ratio'] / rows['reservation']['welfare_ratio']:.1f} times worst-case reservation"
        said.append(
            text + f"; {own['evicted'] / max(1, own['planned']):.1%} of the jobs it planned had to go."
        )
    if "misreport_gain_max" in document:
        said.append(
            f"The best misreport that was found gains {document['misreport_gain_max']:.3g} of value; "
            f"{units.number(document['statements_per_s'])} statements a second are planned."
        )
    lead, *rest = said or ["No policies were compared."]
    return f'<p class="lead">{escape(lead)}</p>' + "".join(
        f'<p class="prose">{escape(text)}</p>' for text in rest
    )


def _policies(document: Document) -> str:
    rows = document.get("policies") or {}
    if not rows:
        return ""
    table = table_of(
        f"One instance; its hindsight LP is {units.number(document['hindsight_lp'], 1)}",
        ["policy", "welfare over LP", "planned", "evicted"],
        [
            [name, f"{row['welfare_ratio']:.3f}", units.number(row["planned"]), units.number(row["evicted"])]
            for name, row in rows.items()
        ],
    )
    return _figure("Welfare", welfare(document, WIDE), welfare(document, NARROW)) + table


def _others(document: Document) -> str:
    parts = []
    if "truthfulness" in document:
        found = document["truthfulness"]
        parts.append(
            table_of(
                f"Best gains over {units.plural(found['jobs'], 'job')}, in units of value",
                ["misreport of", "gain"],
                [[kind, f"{gain:.4f}"] for kind, gain in found["by_kind"].items()],
            )
        )
    if "speed" in document:
        found = document["speed"]
        parts.append(
            table_of(
                f"Statements a second, of {units.number(found['statements'])}",
                ["all", "first tenth", "last tenth"],
                [
                    [
                        units.number(found[key])
                        for key in ("statements_per_s", "first_tenth_per_s", "last_tenth_per_s")
                    ]
                ],
            )
        )
    if "stochastic" in document:
        parts.append(
            table_of(
                "Where what may come is known (sow-stochastic)",
                ["load", "welfare over LP", "planned", "evicted"],
                [
                    [
                        f"{row['load']:g}", f"{row['welfare_ratio']:.3f}", units.number(row["planned"]),
                        units.number(row["evicted"]),
                    ]
                    for row in document["stochastic"]
                ],
            )
        )  # fmt: skip
    return "".join(parts)


def _seeds(document: Document) -> str:
    rows = document.get("seeds") or []
    if not rows:
        return ""
    names = list(rows[0]["policies"])
    table = table_of(
        "Welfare over the hindsight LP",
        ["load", "seed", *names],
        [
            [
                f"{row['load']:g}",
                units.number(row["seed"]),
                *(f"{row['policies'][name]['welfare_ratio']:.3f}" for name in names),
            ]
            for row in rows
        ],
    )
    return (
        _figure("Welfare against load", by_load(document, WIDE), by_load(document, NARROW))
        + f"<details><summary>Each instance</summary>{table}</details>"
    )


def _figure(title: str, wide: str, narrow: str) -> str:
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3></figcaption>"
        f'<div class="drawing wide" role="img" aria-label="{escape(title)}">{wide}</div>'
        f'<div class="drawing narrow" role="img" aria-label="{escape(title)}">{narrow}</div></figure>'
    )


def _method(command: str) -> str:
    return (
        '<p class="prose">Every policy runs the same jobs, round by round; what runs is checked against the capacity. '
        "Evicted jobs are worth nothing. The hindsight LP knows all arrivals and durations beforehand, and may run "
        "jobs in parts; fcfs and density know a job’s duration when it arrives, sow and sow-paper do not. What the "
        "paper leaves open, and how it is filled, stands in docs/explanation/sow.md.</p>"
        f'<pre tabindex="0"><code>{escape(units.plain(command, 4_000))}</code></pre>'
    )
