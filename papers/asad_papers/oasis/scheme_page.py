"""How the document of `asactl bench oasis` reads: figures 3 to 6, 8 and 9 of the OASiS paper, measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from asad.report import units
from asad.report.drawing import INK, PALETTE, axes_at, legend, svg
from asad_papers.harness import Document, Piece, Plot, Reading, Table
from asad_papers.oasis.paper_claims import claims
from asad_papers.plots import COLOURS, Curve, curves, logarithmic

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


METHOD = (
    "Every scheme runs the same jobs on the same servers, slot by slot; what it allots is checked against every "
    "capacity. A job is worth its utility in the slot in which its work is done, and nothing if it never is. What the "
    "paper leaves open, and how it is filled, stands in docs/explanation/oasis.md."
)


def reading(document: Document) -> Reading:
    """Its verdict, tables and figures."""
    return Reading(
        "admission by OASiS",
        "Schemes of admission, side by side",
        "Admission by OASiS: schemes side by side",
        _facts(document),
        _verdict(document),
        (
            ("paper", "The paper’s evaluation", list(claims(document))),
            ("instances", "Instances", [*_instances(document), *_apart(document)]),
            ("figures", "Figures", [*_tables(document), *_figures(document)]),
        ),
        METHOD,
    )


def total_utility(document: Document, by: str, width: int) -> str:
    """Figure 3: total utility against the number of jobs, slots or servers, one line a scheme."""
    rows = [row for row in document.get("sweep") or () if row["by"] == by]
    values = [row["value"] for row in rows]

    def finish(axes: Axes) -> None:
        axes.set_ylim(bottom=0)
        axes.set_xticks(values)

    drawn = [
        Curve(name, values, [row["utility"][name] for row in rows], *look(name))
        for name in (rows[0]["utility"] if rows else ())
    ]
    return curves(f"utility-{by}", width, drawn, AXES[by], "total utility", finish)


def testbed_utility(testbed: Mapping[str, Any], width: int) -> str:
    """Figure 8: total utility by scheme, the mean of its runs as a bar and each run as a mark."""
    schemes = list(testbed["utility"])
    left, right, pitch = (130, 130, 30) if width >= 600 else (96, 64, 30)

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, 8, width - left - right, len(schemes) * pitch)
        for number, name in enumerate(schemes):
            mean, runs, (colour, _) = testbed["utility"][name], testbed["runs"][name], look(name)
            axes.barh(number, mean, 0.6, color=colour, alpha=0.55)
            axes.plot(runs, [number] * len(runs), "o", color=colour, markersize=5)
            axes.annotate(
                f"{mean:.1f}", (1, number), xycoords=("axes fraction", "data"), xytext=(8, 0),
                textcoords="offset points", va="center", fontsize=10,
            )  # fmt: skip
        axes.set_yticks(range(len(schemes)), schemes)
        axes.set_ylim(len(schemes) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.8)
        axes.set_xlabel("total utility")

    return svg("testbed-utility", width, 8 + len(schemes) * pitch + 46, draw)


def timeliness(table: Mapping[str, Any], key: str, width: int) -> str:
    """Figures 4 and 9: completion less target: median, middle half and middle 80 %, by scheme and kind of job."""
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
                row = table[name].get(kind)
                if row is None:
                    continue
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

    return svg(key, width, 30 + len(schemes) * pitch + 46, draw)


def performance_ratio(document: Document, width: int) -> str:
    """Figure 5: offline optimum over utility, by number of servers and range of priorities."""
    rows = [row for row in (document.get("small") or {}).get("rows", ()) if row["ratio"] is not None]
    servers = sorted({row["servers"] for row in rows})
    worths = sorted({row["worth_max"] for row in rows})

    def finish(axes: Axes) -> None:
        axes.axhline(1, color=INK, linewidth=0.8, alpha=0.5)
        axes.set_xticks(range(len(servers)), [str(one) for one in servers])
        axes.set_xlim(-0.5, len(servers) - 0.5)
        axes.set_ylim(bottom=0.95)

    drawn = []
    for number, worth in enumerate(worths):
        here = [row for row in rows if row["worth_max"] == worth]
        shift = (number - (len(worths) - 1) / 2) * 0.22
        places = [servers.index(row["servers"]) + shift for row in here]
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(Curve(f"γ1 ≤ {worth:g}", places, [row["ratio"] for row in here], colour, "none"))
    return curves("ratio", width, drawn, AXES["servers"], "optimum / utility", finish)


def inaccurate(document: Document, of: str, width: int) -> str:
    """Figure 6: utility with U or L taken for a part or a multiple of what it is, over that with the true one."""
    rows = [row for row in document.get("sensitivity") or () if row["of"] == of]
    factors = sorted({row["factor"] for row in rows})

    def finish(axes: Axes) -> None:
        axes.axhline(1, color=INK, linewidth=0.8, alpha=0.5)
        logarithmic(axes, "x")
        usual = (0.01, 0.1, 0.5, 1, 2, 4, 10, 100) if width >= 600 else (0.01, 0.1, 1, 4, 10, 100)
        shown = [
            mark for mark in usual if factors[0] <= mark <= factors[-1] and (mark != 4 or factors[-1] == 4)
        ]
        axes.set_xticks(shown, [f"{100 * mark:g} %" if mark < 10 else f"×{mark:g}" for mark in shown])

    drawn = []
    for number, jobs in enumerate(sorted({row["jobs"] for row in rows})):
        utility = {row["factor"]: row["utility"] for row in rows if row["jobs"] == jobs}
        shares = {factor: value / utility[1] for factor, value in utility.items() if utility[1] > 0}
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(Curve(units.plural(jobs, "job"), list(shares), list(shares.values()), colour))
    label = f"utility over that with the true {of}"
    return curves(f"inaccurate-{of}", width, drawn, f"{of} taken for … of what it is", label, finish)


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
    for key, words in (("gpus", "with two types of GPUs"), ("bursts", "with arrivals in bursts")):
        if document.get(key):
            parts.append(f"{units.plural(len(document[key]['seeds']), 'instance')} {words}")
    if document.get("small"):
        parts.append(units.plural(document["small"]["cases"], "small case"))
    return " · ".join(parts) or "nothing was run"


def _verdict(document: Document) -> list[str]:
    sentences = []
    for jobs, row in (document.get("sums") or {}).items():
        schemes = {name: value for name, value in row.items() if not name.startswith("reference")}
        if "oasis" in schemes:
            others = {name: value for name, value in schemes.items() if not name.startswith("oasis")}
            text = f"With {jobs} jobs, OASiS reaches a total utility of {units.number(schemes['oasis'])}"
            if others:
                best = max(others, key=lambda name: others[name])
                text += f"; the best of the others, {best}, {units.number(others[best])}"
            sentences.append(text + ".")
    small = document.get("small") or {}
    if small.get("ratio_median") is not None:
        sentences.append(
            f"The offline optimum is {small['ratio_median']:.2f} times OASiS in the median of "
            f"{small['cases']} small cases, {small['ratio_max']:.2f} times in the worst"
            + (
                f", not counting {small['without_utility']} in which OASiS took nothing."
                if small["without_utility"]
                else "."
            )
        )
    return sentences or ["Nothing was compared."]


def _instances(document: Document) -> Iterator[Piece]:
    sums: Mapping[str, Mapping[str, float]] = document.get("sums") or {}
    if sums:
        yield Table(
            "Total utility, summed over the instances of equal numbers of jobs",
            ("scheme", *(f"{jobs} jobs" for jobs in sums)),
            [
                [name, *(units.number(row.get(name)) for row in sums.values())]
                for name in dict.fromkeys(name for row in sums.values() for name in row)
            ],
        )
        found = list(document["instances"].values())
        yield Table(
            "Deciding about one job (ms)",
            ("scheme", "mean", "p99, worst instance"),
            [
                [
                    name,
                    f"{sum(row[name]['decide_ms_mean'] for row in found) / len(found):.2f}",
                    f"{max(row[name]['decide_ms_p99'] for row in found):.2f}",
                ]
                for name in found[0]
            ],
        )
        columns = {"utility": 1, "admitted": 0, "done": 0, "decide_ms_mean": 2, "decide_ms_p99": 2}
        yield Table(
            "Each scheme on each instance",
            ("instance", "scheme", "utility", "admitted", "done", "decide ms", "p99"),
            [
                [
                    units.plain(instance, 60),
                    scheme,
                    *(units.number(row[key], n) for key, n in columns.items()),
                ]
                for instance, schemes in document["instances"].items()
                for scheme, row in schemes.items()
            ],
            folded="Each instance",
        )


def _apart(document: Document) -> Iterator[Piece]:
    """Instances with two types of GPUs, and with arrivals in bursts."""
    for key, title in (("gpus", "two types of GPUs"), ("bursts", "arrivals in bursts")):
        found = document.get(key)
        if not found:
            continue
        rows = [
            [
                name,
                units.number(utility),
                f"{found['over_drf'][name]:.2f}" if name in found["over_drf"] else "",
                *(units.number(row[name]["utility"]) for row in found["instances"].values()),
            ]
            for name, utility in found["sums"].items()
        ]
        heads = ("scheme", "sum", "over drf", *(f"seed {seed}" for seed in found["seeds"]))
        yield Table(f"Total utility with {title}, {units.plural(found['jobs'], 'job')} each", heads, rows)
        yield (
            f"Together they would be worth {units.number(found['alone'])} if each had the empty cluster for itself; no "
            "scheme reaches more."
        )


def _tables(document: Document) -> Iterator[Piece]:
    small = document.get("small")
    if small:
        median, worst = (
            "none" if small[key] is None else f"{small[key]:.3f}" for key in ("ratio_median", "ratio_max")
        )
        none = [f"{row['optimum']:.3g}" for row in small["rows"] if row["ratio"] is None]
        yield (
            f"Offline optimum over OASiS (Figure 5): {small['cases']} cases of 10 jobs in 10 slots, {small['proven']} "
            f"optima proven: median {median}, worst {worst}"
            + (f"; and {len(none)} in which OASiS took nothing (optimum {', '.join(none)})" if none else "")
        )
    if document.get("sweep"):
        names = list(document["sweep"][0]["utility"])
        yield Table(
            "Total utility (Figure 3)",
            ("by", "", *names),
            [
                [row["by"], str(row["value"]), *(units.number(row["utility"][name]) for name in names)]
                for row in document["sweep"]
            ],
        )
    if document.get("timeliness"):
        yield _lateness("Completion less target, slots (Figure 4)", document["timeliness"])
    if testbed := document.get("testbed"):
        most = max(len(runs) for runs in testbed["runs"].values())
        yield Table(
            "Total utility on a testbed (Figure 8)",
            ("scheme", "mean", *(f"run {number}" for number in range(1, most + 1))),
            [
                [name, units.number(mean, 1)]
                + [units.number(one, 1) for one in testbed["runs"][name]]
                + [""] * (most - len(testbed["runs"][name]))
                for name, mean in testbed["utility"].items()
            ],
        )
        yield _lateness("Completion less target on a testbed, slots (Figure 9)", testbed["timeliness"])
    rows = document.get("sensitivity")
    if rows:
        utility = {(row["of"], row["factor"], row["jobs"]): row["utility"] for row in rows}
        sizes = sorted({row["jobs"] for row in rows})
        yield Table(
            "Utility with U or L misjudged (Figure 6)",
            ("", "taken for", *(f"{jobs} jobs" for jobs in sizes)),
            [
                [of, f"{factor:.0%}", *(units.number(utility[of, factor, jobs]) for jobs in sizes)]
                for of, factor in sorted({key[:2] for key in utility})
            ],
        )
    if document.get("growth"):
        times = ("decide_ms_mean", "decide_ms_p99")
        yield Table(
            "OASiS deciding about one job (ms)",
            ("by", "", "mean", "p99"),
            [
                [row["by"], str(row["value"]), *(f"{row[key]:.2f}" for key in times)]
                for row in document["growth"]
            ],
        )


def _lateness(title: str, table: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    keys = ("p10", "p25", "median", "p75", "p90", "sd")
    return Table(
        title,
        ("scheme", "jobs", "done", *keys),
        [
            [
                name,
                f"time-{kind}",
                f"{row['done']} of {row['jobs']}",
                *("" if row[key] is None else f"{row[key]:.1f}" for key in keys),
            ]
            for name, kinds in table.items()
            for kind, row in kinds.items()
        ],
    )


def _figures(document: Document) -> Iterator[Plot]:
    small = document.get("small") or {}
    for by, words in (
        ("jobs", "the number of jobs"),
        ("slots", "time"),
        ("servers", "the number of servers"),
    ):
        yield Plot(
            f"Total utility against {words}",
            "Figure 3 of the paper. Means over the seeds. Dorm is left out unless asked for: its MILPs are slow.",
            partial(total_utility, document, by),
        )
    yield Plot(
        "How well targets are met",
        "Figure 4 of the paper: completion less target (γ3) of the jobs that were done, half of them time-sensitive, "
        "half time-critical. The mark is the median, the bar the middle half, the line the middle 80 %.",
        partial(timeliness, document.get("timeliness") or {}, "timeliness"),
    )
    if testbed := document.get("testbed"):
        yield Plot(
            "Total utility on a testbed",
            "Figure 8 of the paper: real arrays under real throttles. The bar is the mean, each mark a run.",
            partial(testbed_utility, testbed),
        )
        yield Plot(
            "How well targets are met on a testbed",
            "Figure 9 of the paper: completion less target of the jobs of all runs that were done. The mark is the "
            "median, the bar the middle half, the line the middle 80 %.",
            partial(timeliness, testbed["timeliness"], "testbed-timeliness"),
        )
    if small:
        explanation = "Figure 5 of the paper: 10 jobs in 10 slots; the optimum is a solver’s."
        if small["proven"] < small["cases"]:
            unproven = small["cases"] - small["proven"]
            explanation += f" In {unproven} it is not proven, and an upper bound stands for it."
        if small["without_utility"]:
            explanation += f" Not drawn: {small['without_utility']} in which OASiS took nothing."
        yield Plot("Offline optimum over OASiS", explanation, partial(performance_ratio, document))
    for of, other in (("U", "L"), ("L", "U")):
        explanation = f"Figure 6 of the paper: {of} over- and underestimated, {other} as it is."
        yield Plot(f"Inaccurate estimates of {of}", explanation, partial(inaccurate, document, of))
    yield Plot(
        "Time to decide",
        "What one arrival costs OASiS on one core of this machine, both axes logarithmic.",
        partial(growth, document),
    )
