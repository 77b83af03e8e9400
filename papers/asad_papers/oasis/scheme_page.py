"""The page of `asactl bench oasis`: figures 3 to 6 of the OASiS paper, measured here, in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from asad.report import units
from asad.report.drawing import INK, NARROW, PALETTE, WIDE, axes_at, legend, svg
from asad.report.page import bench_page, table_of

Document = Mapping[str, Any]
"""What `asactl bench oasis --json` prints."""

LOOKS: dict[str, tuple[str, Any]] = {
    "oasis": ("#1f7fd1", "solid"),
    "oasis-informed": ("#00936b", (0, (7, 2, 1.5, 2))),
    "oasis-paper": ("#b5659f", (0, (6, 2))),
    "fifo": ("#94754c", (0, (4, 1.5, 1, 1.5))),
    "drf": ("#7d8590", "solid"),
    "rrh": ("#c47a00", (0, (3, 1.5))),
    "dorm": ("#d55e00", (0, (1.5, 1.5))),
}
"""Colour and dash of a scheme (Okabe-Ito, as everywhere)."""

MARKS = {"sensitive": "o", "critical": "D"}

AXES = {
    "jobs": "jobs in 300 slots",
    "slots": "slots, with 200 jobs",
    "servers": "worker servers (and as many for parameters)",
}


GROWS = {"slots": "slots T", "workers": "most workers a job N", "servers": "servers H = K"}


def look(name: str) -> tuple[str, Any]:
    """Colour and dash of a scheme."""
    return LOOKS.get(name) or PALETTE.get(name) or ("#5b7fa6", (0, (5, 1)))


def page(document: Document, command: str) -> str:
    """The page as text. `command` is what was typed."""
    sections = [("verdict", "Verdict", _verdict(document))]
    if document.get("sums"):
        sections.append(("instances", "Instances", _instances(document)))
    drawn = _figures(document)
    if drawn:
        sections.append(("figures", "Figures", drawn))
    sections.append(("method", "How it was found", _method(command)))
    return bench_page(
        "admission by OASiS",
        "Schemes of admission, side by side",
        _facts(document),
        "Admission by OASiS: schemes side by side",
        sections,
    )


def total_utility(document: Document, by: str, width: int) -> str:
    """Figure 3: total utility against the number of jobs, slots or servers, one line a scheme."""
    rows = [row for row in document.get("sweep") or () if row["by"] == by]
    if not rows:
        return ""
    schemes = list(rows[0]["utility"])

    def draw(figure: Figure) -> None:
        axes = _plot(figure, width, len(schemes))
        for name in schemes:
            colour, dash = look(name)
            axes.plot(
                [row["value"] for row in rows], [row["utility"][name] for row in rows],
                color=colour, linestyle=dash, linewidth=2, marker="o", markersize=4,
            )  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_xticks([row["value"] for row in rows])
        axes.set_xlabel(AXES[by])
        axes.set_ylabel("total utility")
        _schemes(figure, schemes, width)

    return svg(f"utility-{by}", width, _height(width, len(schemes)), draw)


def timeliness(document: Document, width: int) -> str:
    """Figure 4: completion less target: median, middle half and middle 80 %, by scheme and kind of job."""
    table = document.get("timeliness") or {}
    if not table:
        return ""
    schemes = list(table)
    wide = width >= 600
    left, right, pitch = (130, 130, 40) if wide else (96, 64, 40)

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, 30, width - left - right, len(schemes) * pitch)
        axes.axvline(0, color=INK, linewidth=0.8, alpha=0.5)
        for number, name in enumerate(schemes):
            colour, _ = look(name)
            for kind, offset in (("sensitive", -0.17), ("critical", 0.17)):
                row = table[name][kind]
                y = number + offset
                if row["median"] is not None:
                    axes.plot([row["p10"], row["p90"]], [y, y], color=colour, linewidth=1.2)
                    axes.plot(
                        [row["p25"], row["p75"]],
                        [y, y],
                        color=colour,
                        linewidth=6,
                        alpha=0.55,
                        solid_capstyle="butt",
                    )
                    axes.plot([row["median"]], [y], MARKS[kind], color=colour, markersize=6)
                axes.annotate(
                    f"{row['done']} of {row['jobs']} done" if wide else f"{row['done']} of {row['jobs']}",
                    (1, y), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
                    va="center", fontsize=10,
                )  # fmt: skip
        axes.set_yticks(range(len(schemes)), schemes)
        axes.set_ylim(len(schemes) - 0.5, -0.5)
        axes.set_xscale("symlog", linthresh=10)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks([-10, -5, 0, 5, 10, 100], ["−10", "−5", "0", "5", "10", "100"])
        axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.8)
        axes.set_xlabel("completion less target (slots; logarithmic beyond ±10)")
        marks = [
            Line2D([], [], color=INK, marker=mark, linewidth=1.2, markersize=6) for mark in MARKS.values()
        ]
        legend(figure, marks, [f"time-{kind}" for kind in MARKS], left)

    return svg("timeliness", width, 30 + len(schemes) * pitch + 46, draw)


def performance_ratio(document: Document, width: int) -> str:
    """Figure 5: offline optimum over utility, by number of servers and range of priorities."""
    rows = [row for row in (document.get("small") or {}).get("rows", ()) if row["ratio"] is not None]
    if not rows:
        return ""
    servers = sorted({row["servers"] for row in rows})
    worths = sorted({row["worth_max"] for row in rows})
    colours = ["#1f7fd1", "#c47a00", "#00936b", "#b5659f"]

    def draw(figure: Figure) -> None:
        axes = _plot(figure, width, 2)
        axes.axhline(1, color=INK, linewidth=0.8, alpha=0.5)
        for number, worth in enumerate(worths):
            here = [row for row in rows if row["worth_max"] == worth]
            shift = (number - (len(worths) - 1) / 2) * 0.22
            axes.plot(
                [servers.index(row["servers"]) + shift for row in here], [row["ratio"] for row in here],
                linestyle="none", marker="o", markersize=6, alpha=0.75, color=colours[number % len(colours)],
            )  # fmt: skip
        axes.set_xticks(range(len(servers)), [str(one) for one in servers])
        axes.set_xlim(-0.5, len(servers) - 0.5)
        axes.set_ylim(bottom=0.95)
        axes.set_xlabel("worker servers (and as many for parameters)")
        axes.set_ylabel("optimum / utility")
        marks = [
            Line2D([], [], color=colours[number % len(colours)], marker="o", linestyle="none")
            for number in range(len(worths))
        ]
        legend(figure, marks, [f"γ1 ≤ {worth:g}" for worth in worths], 66 if width >= 600 else 34)

    return svg("ratio", width, _height(width, 2), draw)


def inaccurate(document: Document, of: str, width: int) -> str:
    """Figure 6: utility with U or L taken for a part or a multiple of what it is, over that with the true one."""
    rows = [row for row in document.get("sensitivity") or () if row["of"] == of]
    if not rows:
        return ""
    sizes = sorted({row["jobs"] for row in rows})
    factors = sorted({row["factor"] for row in rows})
    colours = ["#1f7fd1", "#c47a00", "#00936b", "#b5659f"]

    def draw(figure: Figure) -> None:
        axes = _plot(figure, width, 2)
        axes.axhline(1, color=INK, linewidth=0.8, alpha=0.5)
        for number, jobs in enumerate(sizes):
            here = [row for row in rows if row["jobs"] == jobs]
            true = next(row["utility"] for row in here if row["factor"] == 1)
            if true > 0:
                axes.plot(
                    [row["factor"] for row in here], [row["utility"] / true for row in here],
                    color=colours[number % len(colours)], linewidth=2, marker="o", markersize=4,
                )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        usual = (0.01, 0.1, 0.5, 1, 2, 4, 10, 100) if width >= 600 else (0.01, 0.1, 1, 4, 10, 100)
        shown = [
            mark for mark in usual if factors[0] <= mark <= factors[-1] and (mark != 4 or factors[-1] == 4)
        ]
        axes.set_xticks(shown, [f"{100 * mark:g} %" if mark < 10 else f"×{mark:g}" for mark in shown])
        axes.set_xlabel(f"{of} taken for … of what it is")
        axes.set_ylabel(f"utility over that with the true {of}")
        marks = [
            Line2D([], [], color=colours[number % len(colours)], linewidth=2) for number in range(len(sizes))
        ]
        legend(figure, marks, [units.plural(jobs, "job") for jobs in sizes], 66 if width >= 600 else 34)

    return svg(f"inaccurate-{of}", width, _height(width, 2), draw)


def growth(document: Document, width: int) -> str:
    """Time of a decision against slots, workers a job and servers: mean and 99th percentile, each against its axis."""
    rows = document.get("growth") or ()
    if not rows:
        return ""
    wide = width >= 600
    panels = [(by, label) for by, label in GROWS.items() if any(row["by"] == by for row in rows)]
    left, gap, tall = (66, 48, 220) if wide else (60, 70, 170)
    each = (width - left - 26 - gap * (len(panels) - 1)) / len(panels) if wide else width - left - 26
    height = 34 + tall + 48 if wide else 34 + len(panels) * (tall + gap)
    top = 1.1 * max(row["decide_ms_p99"] for row in rows)
    low = 0.8 * min(row["decide_ms_mean"] for row in rows)

    def draw(figure: Figure) -> None:
        colour, _ = look("oasis")
        for number, (by, label) in enumerate(panels):
            here = [row for row in rows if row["by"] == by]
            axes = (
                axes_at(figure, left + number * (each + gap), 34, each, tall)
                if wide
                else axes_at(figure, left, 34 + number * (tall + gap), each, tall)
            )
            for key, dash in (("decide_ms_mean", "solid"), ("decide_ms_p99", (0, (3, 1.5)))):
                axes.plot(
                    [row["value"] for row in here], [row[key] for row in here],
                    color=colour, linestyle=dash, linewidth=2, marker="o", markersize=4,
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_ylim(low, top)
            axes.yaxis.set_minor_locator(NullLocator())
            steps = [step * 10.0**power for power in range(-3, 5) for step in (1, 2, 5)]
            marks = [step for step in steps if low <= step <= top]
            axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticks([row["value"] for row in here], [str(row["value"]) for row in here])
            axes.grid(color=INK, alpha=0.12, linewidth=0.8)
            axes.set_xlabel(label)
            if number == 0 or not wide:
                axes.set_ylabel("ms a job")
        lines = [
            Line2D([], [], color=colour, linestyle=dash, linewidth=2) for dash in ("solid", (0, (3, 1.5)))
        ]
        legend(figure, lines, ["mean", "99 % of decisions"], left)

    return svg("growth", width, height, draw)


# ----------------------------------------------------------------------------------------------------- sections


def _facts(document: Document) -> str:
    parts = []
    if document.get("instances"):
        parts.append(units.plural(len(document["instances"]), "instance"))
    if document.get("small"):
        parts.append(units.plural(document["small"]["cases"], "small case"))
    return " · ".join(parts) or "nothing was run"


def _verdict(document: Document) -> str:
    said = []
    for jobs, row in (document.get("sums") or {}).items():
        schemes = {name: value for name, value in row.items() if not name.startswith("reference")}
        if "oasis" in schemes:
            others = {name: value for name, value in schemes.items() if not name.startswith("oasis")}
            text = f"With {jobs} jobs, OASiS reaches a total utility of {units.number(schemes['oasis'])}"
            if others:
                best = max(others, key=lambda name: others[name])
                text += f"; the best of the others, {best}, {units.number(others[best])}"
            said.append(text + ".")
    small = document.get("small") or {}
    if small.get("ratio_median") is not None:
        said.append(
            f"The offline optimum is {small['ratio_median']:.2f} times OASiS in the median of "
            f"{small['cases']} small cases, {small['ratio_max']:.2f} times in the worst"
            + (
                f", not counting {small['without_utility']} in which OASiS took nothing."
                if small["without_utility"]
                else "."
            )
        )
    lead, *rest = said or ["Nothing was compared."]
    return f'<p class="lead">{escape(lead)}</p>' + "".join(
        f'<p class="prose">{escape(text)}</p>' for text in rest
    )


def _instances(document: Document) -> str:
    sums: Mapping[str, Mapping[str, float]] = document["sums"]
    names = list(dict.fromkeys(name for row in sums.values() for name in row))
    by_jobs = table_of(
        "Total utility, summed over the instances of equal numbers of jobs",
        ["scheme", *(f"{jobs} jobs" for jobs in sums)],
        [[name, *(units.number(row.get(name)) for row in sums.values())] for name in names],
    )
    rows = [
        [
            units.plain(instance, 60),
            scheme,
            units.number(found["utility"], 1),
            units.number(found["admitted"]),
            units.number(found["done"]),
            units.number(found["decide_ms_mean"], 2),
            units.number(found["decide_ms_p99"], 2),
        ]
        for instance, schemes in document["instances"].items()
        for scheme, found in schemes.items()
    ]
    each = table_of(
        "Each scheme on each instance",
        ["instance", "scheme", "utility", "admitted", "done", "decide ms", "p99"],
        rows,
    )
    return f"{by_jobs}<details><summary>Each instance</summary>{each}</details>"


def _figures(document: Document) -> str:
    small = document.get("small") or {}
    parts = [
        _figure(
            f"Total utility against {words}",
            "Figure 3 of the paper. Means over the seeds. Dorm is left out unless asked for: its MILPs are slow.",
            total_utility(document, by, WIDE),
            total_utility(document, by, NARROW),
        )
        for by, words in (
            ("jobs", "the number of jobs"),
            ("slots", "time"),
            ("servers", "the number of servers"),
        )
    ]
    parts.append(
        _figure(
            "How well targets are met",
            "Figure 4 of the paper: completion less target (γ3) of the jobs that were done, half of them "
            "time-sensitive, half time-critical. The mark is the median, the bar the middle half, the line the "
            "middle 80 %.",
            timeliness(document, WIDE),
            timeliness(document, NARROW),
        )
    )
    if small:
        explanation = "Figure 5 of the paper: 10 jobs in 10 slots; the optimum is a solver’s."
        if small["proven"] < small["cases"]:
            unproven = small["cases"] - small["proven"]
            explanation += f" In {unproven} it is not proven, and an upper bound stands for it."
        if small["without_utility"]:
            explanation += f" Not drawn: {small['without_utility']} in which OASiS took nothing."
        parts.append(
            _figure(
                "Offline optimum over OASiS",
                explanation,
                performance_ratio(document, WIDE),
                performance_ratio(document, NARROW),
            )
        )
    parts += [
        _figure(
            f"Inaccurate estimates of {of}",
            f"Figure 6 of the paper: {of} over- and underestimated, {other} as it is.",
            inaccurate(document, of, WIDE),
            inaccurate(document, of, NARROW),
        )
        for of, other in (("U", "L"), ("L", "U"))
    ]
    parts.append(
        _figure(
            "Time to decide",
            "What one arrival costs OASiS on one core of this machine, both axes logarithmic.",
            growth(document, WIDE),
            growth(document, NARROW),
        )
    )
    return "".join(parts)


def _figure(title: str, explanation: str, wide: str, narrow: str) -> str:
    if not wide:
        return ""
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3><p>{escape(explanation)}</p></figcaption>"
        f'<div class="drawing wide" role="img" aria-label="{escape(title)}">{wide}</div>'
        f'<div class="drawing narrow" role="img" aria-label="{escape(title)}">{narrow}</div></figure>'
    )


def _method(command: str) -> str:
    return (
        '<p class="prose">Every scheme runs the same jobs on the same servers, slot by slot; what it allots is checked '
        "against every capacity. A job is worth its utility in the slot in which its work is done, and nothing if it "
        "never is. What the paper leaves open, and how it is filled, stands in docs/explanation/oasis.md.</p>"
        f'<pre tabindex="0"><code>{escape(units.plain(command, 4_000))}</code></pre>'
    )


# ------------------------------------------------------------------------------------------------------ drawing


def _lines_of_legend(width: int, entries: int) -> int:
    return 1 if width >= 600 else -(-entries // 2)


def _height(width: int, entries: int) -> int:
    return 16 + 18 * _lines_of_legend(width, entries) + (300 if width >= 600 else 230) + 48


def _plot(figure: Figure, width: int, entries: int) -> Any:
    left, tall = (66, 300) if width >= 600 else (60, 230)
    axes = axes_at(figure, left, 16 + 18 * _lines_of_legend(width, entries), width - left - 26, tall)
    axes.grid(color=INK, alpha=0.12, linewidth=0.8)
    return axes


def _schemes(figure: Figure, names: Sequence[str], width: int) -> None:
    handles = []
    for name in names:
        colour, dash = look(name)
        handles.append(Line2D([], [], color=colour, linestyle=dash, linewidth=2))
    legend(
        figure,
        handles,
        [units.plain(name, 18) for name in names],
        66 if width >= 600 else 34,
        9 if width >= 600 else 2,
    )
