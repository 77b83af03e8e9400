"""How the document of `asactl bench osdec` reads: Tables 1, 2 and 4 of the OSDEC paper, measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from asad.report import units
from asad.report.drawing import INK, axes_at, legend, svg
from asad_papers.harness import Document, Piece, Plot, Reading, Table

PACKINGS = {"prefix": ("prefix packing", "#94754c", "o"), "skip_fit": ("skip-fit packing", "#1f7fd1", "D")}
"""Key in the document → words, colour and mark."""


METHOD = (
    "Every policy sees the same jobs and the capacity up to the present step, and no decision exceeds what is free. "
    "Total is what those started earn, c·d each, less ω1 for each step of delay and ω2 for each core above the "
    "capacity in a step. The optimum knows everything beforehand. What the paper leaves open, and how it is filled, "
    "stands in docs/explanation/osdec.md."
)


def reading(document: Document) -> Reading:
    """Its verdict, tables and figures."""
    return Reading(
        "deferral by OSDEC",
        "When deferrable jobs start, side by side",
        "Deferral by OSDEC: policies side by side",
        _facts(document),
        _verdict(document),
        (
            ("policies", "Policies", list(_policies(document))),
            ("others", "Without windows, and other distributions", list(_others(document))),
        ),
        METHOD,
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
    trajectories = units.plural(about["trajectories"], "trajectory", "trajectories")
    letter = ", d + 1 steps" if about["as_printed"] else ""
    return (
        f"{units.plain(about['name'], 60)}: {trajectories} of {units.plural(about['steps'], 'step')}, "
        f"{units.plural(about['jobs'], 'job')}; ω1 = {about['omega_1']:g}, ω2 = {about['omega_2']:g}{letter}"
    )


def _verdict(document: Document) -> list[str]:
    sentences = []
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
        sentences.append(text + ".")
    found = document.get("offline")
    if found:
        sentences.append(
            f"Who knows everything beforehand could earn at most {units.number(found['bound_mean'], 1)} on the first "
            f"{units.plural(found['trajectories'], 'trajectory', 'trajectories')}, and at most "
            f"{units.number(found['packed_bound_mean'], 1)} where no decision exceeds the capacity."
        )
    return sentences or ["No policies were compared."]


def _policies(document: Document) -> Iterator[Piece]:
    numbers = ("total_error", "utilization", "delay", "violation")
    for key, (words, _, _) in PACKINGS.items():
        rows = document.get(key) or {}
        base = rows.get("fifo", {}).get("total_mean")
        if rows:
            yield Table(
                f"{words.capitalize()} (Table 1)",
                (
                    "policy", "total", "over fifo", "±", "end unknown", "seeds", "±seeds", "±trajectories",
                    "utilization", "delay", "violation", "used",
                ),
                [
                    [
                        units.plain(name, 40),
                        units.number(row["total_mean"], 1),
                        f"{row['total_mean'] / base - 1:+.2%}" if base else "",
                        _error(row.get("over_fifo_error"), base),
                        units.number(row["endless_mean"], 1) if "endless_mean" in row else "",
                        str(row["seeds"]),
                        "" if row["seeds_std"] is None else units.number(row["seeds_std"], 1),
                        *(units.number(row[number], 1) for number in numbers),
                        units.percent(row["capacity_used"]),
                    ]
                    for name, row in rows.items()
                ],
                page_only=("seeds", "±trajectories", "utilization", "delay", "violation"),
            )  # fmt: skip
    trained = document.get("trained")
    if trained:
        yield from _trained(trained)
    yield Plot("Total of each policy", "", partial(totals, document))
    ours = document.get("prefix") or {}
    found = document.get("offline")
    if found:
        yield Table(
            f"The clairvoyant optimum of {units.plural(found['trajectories'], 'trajectory', 'trajectories')}",
            ("policy", "prefix", "skip-fit", "of the bound"),
            [
                [
                    units.plain(name, 40),
                    *(units.number(found["policies"][key][name], 1) for key in PACKINGS),
                    "" if share is None else f"{share:.1%}",
                ]
                for name, share in found["reached"].items()
            ]
            + [
                [words, *2 * [units.number(found[key], 1)], f"{found[key] / found['bound_mean']:.1%}"]
                for words, key in (
                    ("MILP, within the capacity", "packed_total_mean"),
                    ("MILP, (1) as printed", "total_mean"),
                )
                if found["bound_mean"] > 0
            ],
        )
        yield (
            f"Optimum {found['total_mean']:,.1f}, at most {found['bound_mean']:,.1f} (gap {found['gap_max']:.2%}); "
            f"where no decision exceeds the capacity {found['packed_total_mean']:,.1f}, at most "
            f"{found['packed_bound_mean']:,.1f} (gap {found['packed_gap_max']:.2%})."
        )
    if document.get("paper"):
        yield Table(
            "The paper's totals (prefix packing), on its own trace, and ours",
            ("policy", "total", "utilization", "delay", "over fifo", "over fifo here"),
            [
                [
                    name,
                    *(units.number(row[key], 2) for key in ("total_mean", "utilization", "delay")),
                    _gain(row["total_mean"], document["paper"]["fifo"]["total_mean"]),
                    _gain(*(ours.get(one, {}).get("total_mean") for one in (name, "fifo"))),
                ]
                for name, row in document["paper"].items()
            ],
        )
        yield (
            "Totals differ because the paper's trace and its cuts are not to be had, and ω1 = 2 and ω2 = 10 there; "
            "--delay 2 --violation 10 takes these. What can be held against each other is how far a policy is from "
            "fifo with the same packing. The yardsticks that the paper lacks are edf, linear, lookahead and rollout."
        )
    if "steps_per_s" in document:
        yield Table(
            "One decision with 200 jobs that wait, on one core of this machine",
            ("policy", "ms"),
            [[units.plain(name, 40), f"{ms:.3f}"] for name, ms in document["decide_ms_each"].items()],
        )
        yield (
            f"The environment does {units.number(document['steps_per_s'])} steps/s of a heuristic, and "
            f"{units.number(document['steps_per_s_stepped'])} when it is stepped from outside."
        )


def _others(document: Document) -> Iterator[Piece]:
    rows = (document.get("real_time") or {}).get("skip_fit")
    if rows:
        windows, printed = document.get("skip_fit") or {}, document.get("paper") or {}
        yield Table(
            "Deferrable against real-time, skip-fit packing (Table 2): utilization",
            ("policy", "deferrable", "real-time", "gain", "gain in the paper"),
            [
                [
                    units.plain(name, 40),
                    units.number(windows[name]["utilization"], 1) if name in windows else "",
                    units.number(row["utilization"], 1),
                    _gain(windows.get(name, {}).get("utilization"), row["utilization"]),
                    _gain(printed.get(name, {}).get("deferrable"), printed.get(name, {}).get("real_time")),
                ]
                for name, row in rows.items()
            ],
        )
    yield from _logs(document.get("logs") or {})
    rows = document.get("settings")
    if rows:
        names = list(next(iter(rows.values())))
        yield Table(
            "Other distributions of cores and durations (Table 4), skip-fit packing: total",
            ("setting", *(units.plain(name, 24) for name in names)),
            [[setting, *(units.number(row[name], 1) for name in names)] for setting, row in rows.items()],
        )


def _logs(logs: Mapping[str, Any]) -> Iterator[Piece]:
    if not logs:
        return
    names = list(next(iter(logs.values()))["policies"])

    def cell(found: Mapping[str, Any], name: str) -> str:
        row, base = found["policies"][name], found["policies"].get("fifo", {}).get("total_mean")
        if not base or name == "fifo":
            return f"{units.number(row['total_mean'])} ± {units.number(row['total_error'])}"
        return f"{row['total_mean'] / base - 1:+.1%} ± {row['over_fifo_error'] / base:.1%}"

    yield Table(
        "On-demand load of real logs, drawn deferrable jobs, skip-fit packing, end unknown: total of fifo, and over it",
        ("policy", *(units.plain(log, 12) for log in logs)),
        [
            *([units.plain(name, 40), *(cell(found, name) for found in logs.values())] for name in names),
            ["trajectories", *(str(found["trajectories"]) for found in logs.values())],
            ["mean capacity", *(units.number(found["mean_capacity"], 1) for found in logs.values())],
        ],
    )
    yield (
        "A cluster is scaled to 100 cores, and what all jobs of the log leave is the capacity; as many deferrable jobs "
        "are drawn as ask for 1.1 of it. Each log's last fifth is judged; lookahead, rollout and linear are fitted to "
        "what was before, the networks stay as they were trained on drawn days. ± is the standard error over "
        "trajectories, of the paired difference where a share is."
    )


def _trained(rows: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
    def cell(row: Mapping[str, Any], key: str) -> str:
        return f"{row[key]:+.1f} ± {row[key + '_error']:.1f}" if key in row else ""

    states = ("start", "improved", "last", "best")
    yield Table(
        "Networks, and what training added to what they began with",
        ("network", "steps", *states, "best less start", "last less improved", "information"),
        [
            [
                units.plain(row["name"], 40),
                units.number(row["steps"] or 0),
                *(units.number(row[state], 1) if state in row else "" for state in states),
                *(cell(row, key) for key in ("gain", "learner_gain", "information")),
            ]
            for row in rows
        ],
    )
    yield (
        "start: after the warm start by a teacher of prices; improved: after policy improvement by playing ahead, with "
        "which PPO (or REINFORCE) begins; last: with which it ends; best: what is the model. information: what the "
        "auxiliary tasks add to ppo-att of the same seed. ± is the standard error of the paired difference. Each row "
        "is by its own ω1, ω2 and packing, so totals of osdec-paper are not to be held against the others."
    )


def _error(value: float | None, base: float | None) -> str:
    return f"{value / base:.2%}" if value is not None and base else ""


def _gain(value: float | None, base: float | None) -> str:
    return units.change(value / base - 1) if value is not None and base else ""
