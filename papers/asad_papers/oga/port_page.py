"""How the document of `asactl bench oga` reads: Table III and figures 2 to 7 of the OgaSched paper, measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from asad.report import units
from asad_papers.harness import Document, Piece, Plot, Reading, Table
from asad_papers.oga import port_beside_paper
from asad_papers.plots import Curve, curves, logarithmic

LOOKS: dict[str, tuple[str, Any]] = {
    "oga-strict": ("#1f7fd1", "solid"),
    "oga-reactive": ("#b5659f", (0, (6, 2))),
    "oga-reclaim": ("#00936b", (0, (7, 2, 1.5, 2))),
    "fairness": ("#7d8590", "solid"),
    "drf": ("#c47a00", (0, (3, 1.5))),
    "spread": ("#94754c", (0, (4, 1.5, 1, 1.5))),
    "binpack": ("#d55e00", (0, (1.5, 1.5))),
}
"""Colour and dash of a policy (Okabe-Ito, as everywhere)."""

AXES = {
    "horizon": ("slots T", "Table III: the time horizon."),
    "arrivals": ("probability of an arrival", "Table III: how often jobs arrive."),
    "density": ("ports an instance, mean", "Table III: how many ports an instance is connected to."),
    "nodes": ("instances", "Figure 3a: the number of instances."),
    "ports": ("ports", "Figure 3b: the number of ports."),
    "contention": ("contention level", "Figure 3c: what ports ask for, as a multiple of an instance."),
    "eta": ("η_0 of all modes", "Figure 4a: the first step."),
    "decay": ("decay", "Figure 4b: how the step changes from slot to slot."),
}
LOGARITHMIC = ("horizon", "nodes", "ports", "contention", "eta")


METHOD = (
    "Every policy divides the same capacities among the same arrivals, slot by slot. All but the strict mode see the "
    "arrivals of a slot first. Each allocation is checked against every cap and capacity; the best fixed allocation is "
    "a convex solver’s, with a dual bound. What the paper leaves open, and how it is filled, stands in "
    "docs/explanation/oga.md."
)


def reading(document: Document) -> Reading:
    """Its verdict, tables and figures."""
    return Reading(
        "placement by OgaSched",
        "Capacities among ports, side by side",
        "Placement by OgaSched: policies side by side",
        _facts(document),
        _verdict(document),
        (
            ("paper", "Beside the paper", list(port_beside_paper.tables(document))),
            ("policies", "Policies", list(_tables(document))),
            ("figures", "Figures", [*_rows_of_sweeps(document), *_figures(document)]),
        ),
        METHOD,
    )


def swept(document: Document, by: str, key: str, width: int) -> str:
    """Reward (or overhead) a slot against what is varied, one line a policy."""
    rows = [row for row in document.get("sweep") or () if row["by"] == by]
    numbers = by in LOGARITHMIC or by in ("arrivals", "density")
    places = [row["value"] if numbers else spot for spot, row in enumerate(rows)]

    def finish(axes: Axes) -> None:
        logarithmic(axes, "x" if by in LOGARITHMIC else "")
        axes.set_xticks(places, [str(row["value"]) for row in rows])  # of decay side by side: alike for long

    drawn = [
        Curve(name, places, [row[key][name] for row in rows], *LOOKS[name])
        for name in LOOKS
        if rows and name in rows[0][key]
    ]
    what = {"reward_mean": "reward", "overhead_mean": "overhead"}[key]
    return curves(f"oga-{by}-{key}", width, drawn, AXES[by][0], f"{what} a slot", finish, 4)


def over_time(document: Document, part: str, number: int, what: str, width: int) -> str:
    """Of the instance of that number of Figure 2 or 5: the "mean" reward until a slot, its "sum", or the "ratio" of the
    strict mode's to each baseline's."""
    row = document[part][number]
    at, average = row["slot"], row["average"]
    drawn = []
    for name, look in LOOKS.items():
        if what == "ratio" and name.startswith("oga"):
            continue
        y = [value * slot if what == "sum" else value for value, slot in zip(average[name], at, strict=True)]
        if what == "ratio":
            pairs = zip(average["oga-strict"], average[name], strict=True)
            y = [ours / theirs if theirs > 0 else float("nan") for ours, theirs in pairs]
        drawn.append(Curve(name, at, y, *look, mark=""))
    words = {"mean": "mean reward until the slot", "sum": "reward until the slot", "ratio": "strict over it"}
    return curves(f"oga-{part}-{number}-{what}", width, drawn, "slot", words[what], columns=4)


def growth(document: Document, width: int) -> str:
    """Time of a slot against the number of edges."""
    rows = document.get("growth") or ()
    edges = [row["edges"] for row in rows]

    def finish(axes: Axes) -> None:
        logarithmic(axes, "xy")
        axes.set_xticks(edges, [units.number(one) for one in edges])
        low, high = axes.get_ylim()
        shown = [mark for mark in (10**power for power in range(7)) if low <= mark <= high]
        axes.set_yticks(shown, [units.number(mark) for mark in shown])

    drawn = [
        Curve(name, edges, [row["slot_us"][name] for row in rows], *LOOKS[name])
        for name in (rows[0]["slot_us"] if rows else ())
    ]
    return curves("oga-growth", width, drawn, "edges", "µs a slot", finish, 4)


# ----------------------------------------------------------------------------------------------------- sections


def _facts(document: Document) -> str:
    one = document.get("instance")
    if not one:
        return "drawn instances"
    counts = (units.plural(one[f"{what}s"], what) for what in ("port", "instance", "edge", "slot"))
    return " · ".join((units.plain(one["name"], 60), *counts))


def _verdict(document: Document) -> list[str]:
    sentences = []
    rows = document.get("policies")
    if rows:
        others = {name: row["reward_mean"] for name, row in rows.items() if not name.startswith("oga")}
        best = max(others, key=lambda name: others[name])

        def against(name: str) -> str:
            value = rows[name]["reward_mean"]
            change = f" ({units.change(value / others[best] - 1)})" if others[best] > 0 else ""
            return f"{units.number(value, 2)}{change}"

        sentences.append(
            f"The strict mode reaches {against('oga-strict')} a slot, reclaim {against('oga-reclaim')}; the best "
            f"baseline, {best}, {units.number(others[best], 2)}."
        )
        sentences.append(
            f"No fixed allocation is worth more than {units.number(document['best_fixed_bound'], 2)}; strict falls "
            f"short of the best by {units.number(document['regret_per_slot'], 2)} a slot."
        )
    fresh = (document.get("seeds") or {}).get("same_parameters")
    if fresh:
        mean = fresh["gain_mean"]
        sentences.append(
            f"On {len(fresh['rows'])} fresh instances of the same α, β and utilities, strict gains "
            f"{units.change(mean['oga-strict'])} over the best baseline in the mean, reclaim "
            f"{units.change(mean['oga-reclaim'])}; with all drawn anew, "
            f"{units.change(document['seeds']['all_drawn']['gain_mean']['oga-strict'])} and "
            f"{units.change(document['seeds']['all_drawn']['gain_mean']['oga-reclaim'])}."
        )
    return sentences or ["No policies were compared on an instance."]


def _tables(document: Document) -> Iterator[Piece]:
    for title, rows in (
        ("Policies on the instance", document.get("policies")),
        ("100 ports on 1024 instances (Figure 5)", (document.get("large") or {}).get("policies")),
    ):
        if rows:
            yield Table(
                title,
                ("policy", "reward a slot", "slots/s", "violations", "gain", "overhead"),
                [
                    [
                        name,
                        *(
                            units.number(row[key], digits)
                            for key, digits in (
                                ("reward_mean", 2), ("slots_per_s", 0), ("violations", 0), ("gain_mean", 2),
                                ("overhead_mean", 2),
                            )
                        ),
                    ]
                    for name, row in rows.items()
                ],
            )  # fmt: skip
    if "policies" in document:
        share = document["strict_of_best_fixed"]
        yield (
            f"Best fixed allocation {document['best_fixed']:,.4f} (proven to "
            f"{document['best_fixed_bound'] - document['best_fixed']:.1g}); strict falls short of it by "
            f"{document['regret_per_slot']:,.2f} a slot"
            + ("" if share is None else f" and reaches {share:.1%}")
            + f". Bound (41): {document['regret_bound_per_slot']:,.0f} a slot."
        )
        others = document["others_slots_per_s"]
        yield Table(
            "Slots a second as others measured them, on their machines",
            ("size", *next(iter(others.values()))),
            [[size, *(f"{value:g}" for value in row.values())] for size, row in others.items()],
        )
    for key, words in (("same_parameters", "the same α, β and utilities"), ("all_drawn", "all drawn anew")):
        if "seeds" in document:
            found = document["seeds"][key]
            rows = [*((str(row["seed"]), row["gain"]) for row in found["rows"]), ("mean", found["gain_mean"])]
            yield Table(
                f"Fresh instances, {words}: gain over the best baseline",
                ("seed", "strict", "reclaim"),
                [
                    [name, *(_change(gain[mode]) for mode in ("oga-strict", "oga-reclaim"))]
                    for name, gain in rows
                ],
            )
    yield from _by_policy(
        "Several arrivals a port (section 3.4), reward a slot",
        {"up to": lambda row: str(row["most"])},
        document.get("several"),
        {"best fixed": "best_fixed"},
    )
    counts = {
        "at least": lambda row: str(row["least"]),
        "each with": lambda row: units.percent(row["enough"]),
    }
    yield from _by_policy(
        "Gangs of four components (section 3.5), reward a slot",
        counts,
        document.get("gangs"),
        {"relaxed best fixed": "relaxed_best_fixed"},
    )
    yield from _by_policy("Gangs that ran", counts, document.get("gangs"), {}, "started", units.percent)


def _by_policy(
    title: str,
    first: Mapping[str, Any],
    rows: Any,
    last: Mapping[str, str],
    key: str = "reward_mean",
    written: Any = lambda value: units.number(value, 1),
) -> Iterator[Table]:
    """A column a policy between those that say what was varied and those that hold for all, if there are rows."""
    if rows:
        yield Table(
            title,
            (*first, *rows[0][key], *last),
            [
                [
                    *(cell(row) for cell in first.values()),
                    *(written(value) for value in row[key].values()),
                    *(written(row[name]) for name in last.values()),
                ]
                for row in rows
            ],
        )


def _change(gain: float | None) -> str:
    return "" if gain is None else units.change(gain)


def _rows_of_sweeps(document: Document) -> Iterator[Table]:
    rows = document.get("sweep") or []
    for by in dict.fromkeys(row["by"] for row in rows):
        title = f"Reward a slot by {by}"
        if by == "utilities":
            title = (
                "Utilities of one form, and mixed (Figure 7), reward a slot; all linear: not divided by 64"
            )
        yield from _by_policy(
            title, {by: lambda row: str(row["value"])}, [row for row in rows if row["by"] == by], {}
        )
    yield from _by_policy(
        "Time of a slot (µs)", {"edges": lambda row: str(row["edges"])}, document.get("growth"), {}, "slot_us",
        units.number,
    )  # fmt: skip


def _figures(document: Document) -> Iterator[Plot]:
    for part, letter in (("figure2", "Figure 2"), ("figure5", "Figure 5")):
        for number, row in enumerate(document.get(part) or ()):
            of = f"({row['utility']} utilities, {row['slots']} slots)"
            for what, panel, words in (
                ("mean", "a", "average rewards"),
                ("sum", "b", "cumulative rewards"),
                ("ratio", "c", "the strict mode’s mean reward over each baseline’s"),
            ):
                yield _plot(
                    f"{letter}{panel}: {words} {of}.", partial(over_time, document, part, number, what)
                )
    for by, (_, words) in AXES.items():
        yield _plot(words, partial(swept, document, by, "reward_mean"))
        if by == "contention":
            overhead = partial(swept, document, by, "overhead_mean")
            yield _plot("Figure 6: the overhead under contention.", overhead)
    yield _plot("The time of a slot, on one core of this machine.", partial(growth, document))


def _plot(words: str, draw: Any) -> Plot:
    title = words.split(": ", 1)[-1].rstrip(".")
    return Plot(title[0].upper() + title[1:], words, draw)
