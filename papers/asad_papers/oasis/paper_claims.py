"""The paper's figures beside ours, in whole sentences: what the paper says of each, what came out here, and where they
differ. The paper's figures are drawings; what is quoted is what its text (§V) says of them. Every comparison is made
from the document, so that another run may well say otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from asad.report import units
from asad_papers.harness import Document

OURS = "oasis"
NEAREST, WIDEST = 1.1, 1.5
"""Offline optimum over OASiS in the paper's Figure 5: from about the one to about the other."""


def claims(document: Document) -> Iterator[str]:
    """One note for each figure whose part was run."""
    if rows := document.get("sweep"):
        yield _note("Figure 3, total utility", *total_utility(rows))
    if table := document.get("timeliness"):
        yield _note("Figure 4, completion less target", *timeliness(table))
    if small := document.get("small"):
        yield _note("Figure 5, offline optimum over OASiS", *performance_ratio(small))
    if rows := document.get("sensitivity"):
        yield _note("Figure 6, inaccurate U / L", *inaccurate(rows))
    if testbed := document.get("testbed"):
        yield _note("Figure 8, total utility on a testbed", *testbed_utility(testbed["utility"]))
        yield _note("Figure 9, completion less target on a testbed", *timeliness(testbed["timeliness"]))


def _note(figure: str, paper: str, here: str, yardstick: str, differs: str) -> str:
    return (
        f"{figure}. The paper: {paper}. Here: {here}. Yardstick: {yardstick}. Where they differ: {differs}."
    )


def total_utility(rows: list[Mapping[str, Any]]) -> tuple[str, str, str, str]:
    """Of Figure 3."""
    leads = [(row, *_lead(row["utility"])) for row in rows]
    by_jobs = [(row, lead, other) for row, lead, other in leads if row["by"] == "jobs"]
    shown = ", ".join(f"{lead:.2f} times {other} at {row['value']} jobs" for row, lead, other in by_jobs)
    beaten = [f"{row['by']} {row['value']} ({other})" for row, lead, other in leads if lead < 1.0]
    grows = all(few[1] <= many[1] for few, many in pairwise(by_jobs))
    differs = [f"it is not the best at {', '.join(beaten)}"] if beaten else []
    if not grows:
        differs.append(
            "its lead over the best of the others does not grow with every step in the number of jobs"
        )
    if missing := [name for name in _PAPER if any(name not in row["utility"] for row in rows)]:
        differs.append(f"{', '.join(missing)} was not swept, and is in the tables of instances alone")
    last = by_jobs[-1][0] if by_jobs else rows[-1]
    part = last["utility"].get(OURS, 0.0) / last["alone"] if last.get("alone") else math.nan
    return (
        "OASiS is worth the most, above all with many jobs in the time",
        shown or "it was not swept by the number of jobs",
        f"{part:.0%} of what all jobs would be worth if each had the cluster for itself ({last['value']} {last['by']})",
        "; ".join(differs) or "nowhere",
    )


_PAPER = (OURS, "fifo", "drf", "rrh", "dorm")
"""The schemes of the paper."""


def _lead(utility: Mapping[str, float]) -> tuple[float, str]:
    """OASiS over the best of the others, and which that is."""
    others = {name: value for name, value in utility.items() if not name.startswith(OURS)}
    best = max(others, key=lambda name: others[name], default="")
    if not best or OURS not in utility:
        return math.nan, best or "none"
    return (utility[OURS] / others[best] if others[best] > 0 else math.inf), best


def timeliness(table: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> tuple[str, str, str, str]:
    """Of Figures 4 and 9."""
    kinds = table.get(OURS, {})
    here, differs = [], []
    for kind, row in kinds.items():
        if row["median"] is None:
            here.append(f"no time-{kind} job was done")
            continue
        here.append(
            f"time-{kind} jobs are done {_slots(row['median'])} in the median, with a standard deviation of "
            f"{row['sd']:.1f} slots"
        )
        nearer = _below(table, kind, lambda one: abs(one["median"]))
        steadier = _below(table, kind, lambda one: one["sd"])
        if nearer:
            differs.append(f"for time-{kind} jobs {', '.join(nearer)} is nearer to the target in the median")
        if steadier:
            differs.append(f"for time-{kind} jobs {', '.join(steadier)} varies less")
    done = ", ".join(
        f"{name} {sum(row['done'] for row in of.values())} of {sum(row['jobs'] for row in of.values())}"
        for name, of in table.items()
    )
    return (
        "with OASiS completion less target is nearest to 0 for both kinds of jobs, and varies the least",
        "; ".join(here) or "OASiS was not run",
        f"0 is the target; of the jobs are done: {done}. Who is not done counts nowhere in such a figure, and who "
        "admits more hard cases looks worse",
        "; ".join(differs) or "nowhere",
    )


def _below(
    table: Mapping[str, Mapping[str, Mapping[str, Any]]], kind: str, of: Callable[[Mapping[str, Any]], float]
) -> list[str]:
    """Schemes with less of it than OASiS, of those that have done any job; not those that are OASiS too."""
    ours = of(table[OURS][kind])
    return [
        name
        for name, kinds in table.items()
        if not name.startswith(OURS)
        and kinds.get(kind, {}).get("median") is not None
        and of(kinds[kind]) < ours
    ]


def _slots(late: float) -> str:
    return f"{abs(late):.1f} slots {'early' if late < 0 else 'late'}"


def performance_ratio(small: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Of Figure 5."""
    ratios = [row["ratio"] for row in small["rows"] if row["ratio"] is not None]
    above = sum(ratio > WIDEST for ratio in ratios)
    below = sum(ratio < NEAREST for ratio in ratios)
    differs = []
    if below:
        differs.append(f"{below} of {len(small['rows'])} cases are nearer to the optimum than {NEAREST}")
    if above:
        differs.append(f"{above} are further from it than {WIDEST}")
    if small["without_utility"]:
        differs.append(f"in {small['without_utility']} OASiS took nothing, which the paper does not have")
    median = "infinite" if small["ratio_median"] is None else f"{small['ratio_median']:.2f}"
    worst = "none" if small["ratio_max"] is None else f"{small['ratio_max']:.2f}"
    return (
        f"around {NEAREST} to {WIDEST}, without a trend by servers or range of priorities",
        f"{median} in the median, {worst} at most, in {small['cases']} cases",
        f"the optimum itself, by a solver; {small['proven']} are proven, an upper bound stands for the others",
        "; ".join(differs) or "nowhere",
    )


def inaccurate(rows: list[Mapping[str, Any]]) -> tuple[str, str, str, str]:
    """Of Figure 6, with the greatest number of jobs."""
    jobs = max(row["jobs"] for row in rows)
    of = {(row["of"], row["factor"]): row["utility"] for row in rows if row["jobs"] == jobs}

    def part(which: str, factor: float) -> float:
        true = of[which, 1.0]
        return of[which, factor] / true if true else math.nan

    less, more = part("U", 0.5), part("U", 2.0)
    l_less, l_more = part("L", 2.0), part("L", 0.5)  # a greater L makes U / L less
    differs = []
    if not less >= more:
        differs.append("U at half is worth less than U at twice its value")
    if not l_less >= l_more:
        differs.append("L at twice its value, which makes U / L half, is worth less than L at half")
    differs.append(
        "the paper misjudges the quotient, and U and L follow from it; here each is misjudged by itself, and the "
        "instances have 100 slots"
    )
    return (
        "to underestimate U / L is better than to overestimate it where resources are scarce (T = 300)",
        f"with {units.plural(jobs, 'job')} U at half keeps {less:.1%} of the utility and at twice {more:.1%}; "
        f"U / L at half by L {l_less:.1%}, at twice by L {l_more:.1%}",
        "OASiS with U and L as they are (100 %)",
        "; ".join(differs),
    )


def testbed_utility(utility: Mapping[str, float]) -> tuple[str, str, str, str]:
    """Of Figure 8."""
    lead, best = _lead(utility)
    return (
        "as in the simulation, with a smaller lead, since few jobs can run",
        f"OASiS is worth {units.number(utility.get(OURS), 1)}, {lead:.2f} times {best}",
        ", ".join(f"{name} {value:.1f}" for name, value in utility.items() if name != OURS),
        "nowhere" if lead >= 1.0 else f"OASiS is not the best, {best} is",
    )
