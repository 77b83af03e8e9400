"""The page of `asactl bench osdec`: Tables 1, 2 and 4 of the OSDEC paper, measured here, in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from asad.report import units
from asad.report.drawing import INK, NARROW, WIDE, axes_at, legend, svg
from asad.report.page import bench_page, table_of

Document = Mapping[str, Any]
"""What `asactl bench osdec --json` prints."""

PACKINGS = {"prefix": ("prefix packing", "#94754c", "o"), "skip_fit": ("skip-fit packing", "#1f7fd1", "D")}
"""Key in the document → words, colour and mark."""


def page(document: Document, command: str) -> str:
    """The page as text. `command` is what was typed."""
    sections = [("verdict", "Verdict", _verdict(document))]
    for key, title, text in (
        ("policies", "Policies", _policies(document)),
        ("others", "Without windows, and other distributions", _others(document)),
    ):
        if text:
            sections.append((key, title, text))
    sections.append(("method", "How it was found", _method(command)))
    return bench_page(
        "deferral by OSDEC",
        "When deferrable jobs start, side by side",
        _facts(document),
        "Deferral by OSDEC: policies side by side",
        sections,
    )


def totals(document: Document, width: int) -> str:
    """The mean total of each policy, one mark a packing, with the deviation over seeds where there are several."""
    names = _names(document)
    if not names:
        return ""
    tall = 26 * len(names) + 10

    def draw(figure: Figure) -> None:
        left = 150 if width >= 600 else 108
        axes = axes_at(figure, left, 44, width - left - 26, tall)
        axes.grid(color=INK, alpha=0.12, linewidth=0.8)
        handles = []
        for key, (_, colour, mark) in PACKINGS.items():
            if key not in document:
                continue
            rows = [document[key][name] for name in names]
            axes.errorbar(
                [row["total_mean"] for row in rows], range(len(names)),
                xerr=[row["seeds_std"] or 0.0 for row in rows], color=colour, marker=mark, markersize=6,
                linestyle="none", capsize=3,
            )  # fmt: skip
            handles.append(Line2D([], [], color=colour, marker=mark, linestyle="none"))
        axes.set_yticks(range(len(names)), [units.plain(name, 24) for name in names])
        axes.invert_yaxis()
        axes.set_xlabel("total a trajectory")
        legend(figure, handles, [PACKINGS[key][0] for key in PACKINGS if key in document], left, 2)

    return svg("osdec-totals", width, tall + 44 + 52, draw)


def _names(document: Document) -> list[str]:
    return list(next((document[key] for key in PACKINGS if key in document), {}))


def _facts(document: Document) -> str:
    about = document["about"]
    return " · ".join(
        (
            units.plain(about["name"], 60),
            units.plural(about["trajectories"], "trajectory", "trajectories"),
            units.plural(about["steps"], "step"),
            units.plural(about["jobs"], "job"),
            f"ω1 = {about['omega_1']:g}, ω2 = {about['omega_2']:g}",
        )
    )


def _verdict(document: Document) -> str:
    said = []
    for key, (words, _, _) in PACKINGS.items():
        rows = document.get(key) or {}
        if not rows:
            continue
        best = max(rows, key=lambda name: rows[name]["total_mean"])
        text = (
            f"With {words}, {units.plain(best, 40)} earns most: {units.number(rows[best]['total_mean'], 1)}"
        )
        if best != "fifo" and rows.get("fifo", {}).get("total_mean", 0.0) > 0:
            text += (
                f", {units.change(rows[best]['total_mean'] / rows['fifo']['total_mean'] - 1)} against fifo"
            )
        said.append(text + ".")
    found = document.get("offline")
    if found:
        said.append(
            f"Who knows everything beforehand could earn at most {units.number(found['bound_mean'], 1)} on the first "
            f"{units.plural(found['trajectories'], 'trajectory', 'trajectories')}, and at most "
            f"{units.number(found['packed_bound_mean'], 1)} where no decision exceeds the capacity."
        )
    lead, *rest = said or ["No policies were compared."]
    return f'<p class="lead">{escape(lead)}</p>' + "".join(
        f'<p class="prose">{escape(text)}</p>' for text in rest
    )


def _policies(document: Document) -> str:
    parts = []
    heads = [
        "policy",
        "total",
        "seeds",
        "± over seeds",
        "± over trajectories",
        "utilization",
        "delay",
        "violation",
        "used",
    ]
    for key, (words, _, _) in PACKINGS.items():
        rows = document.get(key)
        if rows:
            parts.append(
                table_of(
                    f"{words.capitalize()} (Table 1)",
                    heads,
                    [
                        [
                            units.plain(name, 40),
                            units.number(row["total_mean"], 1),
                            str(row["seeds"]),
                            units.number(row["seeds_std"], 1) if row["seeds_std"] is not None else "",
                            units.number(row["total_std"], 1),
                            units.number(row["utilization"], 1),
                            units.number(row["delay"], 1),
                            units.number(row["violation"], 1),
                            units.percent(row["capacity_used"]),
                        ]
                        for name, row in rows.items()
                    ],
                )
            )
    if parts:
        parts.append(_figure("Total of each policy", totals(document, WIDE), totals(document, NARROW)))
    found = document.get("offline")
    if found:
        parts.append(
            table_of(
                "Against the clairvoyant optimum, on the trajectories that were solved",
                ["policy", "prefix", "skip-fit", "of the bound"],
                [
                    [
                        units.plain(name, 40),
                        *(units.number(found["policies"][key][name], 1) for key in PACKINGS),
                        units.percent(share),
                    ]
                    for name, share in found["reached"].items()
                ],
            )
        )
    printed = document.get("paper")
    if printed:
        parts.append(
            table_of(
                "As the paper prints it, on its own trace, which is not to be had",
                ["policy", "total", "utilization", "delay"],
                [
                    [name, *(units.number(row[key], 2) for key in ("total_mean", "utilization", "delay"))]
                    for name, row in printed.items()
                ],
            )
        )
    if "steps_per_s" in document:
        parts.append(
            table_of(
                "One decision with 200 jobs that wait, on one core of this machine",
                ["policy", "ms"],
                [[units.plain(name, 40), f"{ms:.3f}"] for name, ms in document["decide_ms_each"].items()],
            )
        )
        parts.append(
            f'<p class="prose">The environment does {units.number(document["steps_per_s"])} steps a second of a '
            f"heuristic, and {units.number(document['steps_per_s_stepped'])} when it is stepped from outside.</p>"
        )
    return "".join(parts)


def _others(document: Document) -> str:
    parts = []
    rows = (document.get("real_time") or {}).get("skip_fit")
    if rows:
        windows = document.get("skip_fit") or {}
        printed = document.get("paper") or {}
        parts.append(
            table_of(
                "Deferrable against real-time, skip-fit packing (Table 2): utilization",
                ["policy", "deferrable", "real-time", "gain", "gain in the paper"],
                [
                    [
                        units.plain(name, 40),
                        units.number(windows[name]["utilization"], 1) if name in windows else "",
                        units.number(row["utilization"], 1),
                        units.change(windows[name]["utilization"] / row["utilization"] - 1)
                        if name in windows and row["utilization"] > 0
                        else "",
                        units.change(printed[name]["deferrable"] / printed[name]["real_time"] - 1)
                        if name in printed
                        else "",
                    ]
                    for name, row in rows.items()
                ],
            )
        )
    rows = document.get("settings")
    if rows:
        names: Sequence[str] = list(next(iter(rows.values())))
        parts.append(
            table_of(
                "Other distributions of cores and durations (Table 4), skip-fit packing: total",
                ["setting", *(units.plain(name, 24) for name in names)],
                [[setting, *(units.number(row[name], 1) for name in names)] for setting, row in rows.items()],
            )
        )
    return "".join(parts)


def _figure(title: str, wide: str, narrow: str) -> str:
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3></figcaption>"
        f'<div class="drawing wide" role="img" aria-label="{escape(title)}">{wide}</div>'
        f'<div class="drawing narrow" role="img" aria-label="{escape(title)}">{narrow}</div></figure>'
    )


def _method(command: str) -> str:
    return (
        '<p class="prose">Every policy sees the same jobs and the capacity up to the present step, and no decision '
        "exceeds what is free. Total is what those started earn, c·d each, less ω1 for each step of delay and ω2 for "
        "each core above the capacity in a step. The optimum knows everything beforehand. What the paper leaves open, "
        "and how it is filled, stands in docs/explanation/osdec.md.</p>"
        f'<pre tabindex="0"><code>{escape(units.plain(command, 4_000))}</code></pre>'
    )
