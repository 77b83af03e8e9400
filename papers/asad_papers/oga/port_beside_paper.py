"""The OgaSched paper's figures beside ours, and the yardstick of each: what they say, and where they differ.

The paper's rewards are of machines and requests that it does not publish, so what is compared is the gain over its best
baseline, Fairness. Numbers of the paper are quoted from its section 4.1, Table III, and Figures 2 and 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from asad.report import units
from asad_papers.harness import Document, Table

FIGURE_2 = {"drf": 0.1133, "fairness": 0.0775, "binpack": 0.1389, "spread": 0.1344}
"""What OgaSched gains over each baseline (section 4.1)."""
TABLE_3: Mapping[str, Mapping[float, tuple[float, float]]] = {
    "horizon": {
        1000: (2578.53, 2532.24), 2000: (2886.33, 2582.80), 5000: (2911.37, 2552.41), 10000: (3104.98, 2436.22),
    },
    "arrivals": {
        0.3: (1904.87, 1295.53), 0.5: (2154.18, 1997.19), 0.7: (3117.29, 2628.02), 0.9: (2938.22, 2873.84),
    },
    "density": {2.0: (2816.18, 2501.54), 2.5: (2904.51, 2857.60), 3.0: (3127.47, 2918.98)},
}  # fmt: skip
"""Mean reward of OgaSched and of Fairness."""
ALWAYS = {"nodes": "Figure 3a", "ports": "Figure 3b", "contention": "Figure 3c", "utilities": "Figure 7"}
"""Figures without printed numbers, of which the paper says that OgaSched always leads."""
HOURS = {"figure2": ("Figure 2", 1.0, 8000), "figure5": ("Figure 5", 15.0, 10_000)}
"""How long OgaSched took for so many slots, on the paper's server."""
BASELINES = ("fairness", "drf", "binpack", "spread")
HEADS = ("figure", "setting", "paper", "strict", "reclaim", "yardstick", "where they differ")


def tables(document: Document) -> Iterator[Table]:
    """As far as the document has what is compared."""
    rows = [*_figure_2(document), *_table_3(document), *_leads(document), *_figure_5(document)]
    if rows:
        yield Table(
            "Gain over the best baseline: the paper’s, ours, and the yardstick",
            HEADS,
            rows,
            page_only=HEADS[5:],
        )
    times = [row for name in HOURS for row in _hours(document, name)]
    if times:
        yield Table(
            "Slots a second: the paper’s, ours", ("figure", "utilities", "paper", "strict", "reclaim"), times
        )


def _gain(reward: float, over: float) -> str:
    return units.change(reward / over - 1) if over > 0 else "—"


def _best(rewards: Mapping[str, float]) -> tuple[str, float]:
    name = max(BASELINES, key=lambda one: rewards[one])
    return name, rewards[name]


def _differs(paper: float | None, rewards: Mapping[str, float], fixed: float | None = None) -> str:
    """In a sentence; `paper` is its gain, None where it says only that OgaSched leads."""
    name, best = _best(rewards)
    if best <= 0:
        return "Overheads exceed what the baselines gain; the differences are no shares."
    strict = rewards["oga-strict"] / best - 1
    if fixed is not None and fixed < best:
        return (
            f"No fixed allocation is worth more than {units.number(fixed, 1)}, less than {name}: strict, which "
            "chooses before arrivals are seen, cannot lead here."
        )
    if strict <= 0:
        return f"{name} leads strict: what strict keeps for ports that do not arrive is lost."
    if paper is None:
        return "The same leads."
    much = "more" if strict > paper else "less"
    return f"The same leads, by {much}: {units.change(strict)} instead of {units.change(paper)}."


def _row(
    figure: str, setting: str, paper: float | None, rewards: Mapping[str, float], fixed: float | None = None
) -> Sequence[str]:
    name, best = _best(rewards)
    return (
        figure,
        setting,
        "leads" if paper is None else units.change(paper),
        _gain(rewards["oga-strict"], best),
        _gain(rewards["oga-reclaim"], best),
        f"{name} {units.number(best, 1)}"
        + ("" if fixed is None else f"; best fixed {units.number(fixed, 1)}"),
        _differs(paper, rewards, fixed),
    )


def _figure_2(document: Document) -> Iterator[Sequence[str]]:
    for row in document.get("figure2") or ():
        rewards = row["reward_mean"]
        for name, paper in FIGURE_2.items():
            # over each baseline, as if it were the only one
            alone = rewards | dict.fromkeys(BASELINES, rewards[name])
            _, *cells = _row("", f"over {name}", paper, alone, row["best_fixed"])
            cells[4] = (
                f"{name} {units.number(rewards[name], 1)}; best fixed {units.number(row['best_fixed'], 1)}"
            )
            yield ("Figure 2", *cells)


def _table_3(document: Document) -> Iterator[Sequence[str]]:
    for row in document.get("sweep") or ():
        theirs = TABLE_3.get(row["by"], {}).get(row["value"])
        if theirs:
            paper = theirs[0] / theirs[1] - 1
            yield _row("Table III", f"{row['by']} {row['value']}", paper, row["reward_mean"])


def _leads(document: Document) -> Iterator[Sequence[str]]:
    for row in document.get("sweep") or ():
        if row["by"] in ALWAYS:
            yield _row(ALWAYS[row["by"]], f"{row['by']} {row['value']}", None, row["reward_mean"])


def _figure_5(document: Document) -> Iterator[Sequence[str]]:
    for row in document.get("figure5") or ():
        yield _row("Figure 5", f"{row['utility']} utilities", None, row["reward_mean"], row["best_fixed"])


def _hours(document: Document, name: str) -> Iterator[Sequence[str]]:
    figure, hours, slots = HOURS[name]
    for row in document.get(name) or ():
        ours: dict[str, Any] = {mode: row["slots"] / taken for mode, taken in row["seconds"].items()}
        yield (
            figure,
            row["utility"],
            units.number(slots / hours / 3600, 2),
            units.number(ours["oga-strict"], 0),
            units.number(ours["oga-reclaim"], 0),
        )
