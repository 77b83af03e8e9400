"""`asactl bench oasis`: the evaluation of the OASiS paper, run anew."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from asad.cli.output import require_folder
from asad_papers.harness import JSON, PAGE, Doing, chosen, present, titled

PARTS = ("instances", "small", "sweep", "timeliness", "sensitivity", "growth")
GIVEN = ("instances", "small")
"""The parts that are run of given instances unless others are named."""


@click.command("oasis", short_help="Admission: figures 3 to 6 of the OASiS paper.")
@click.option(
    "--instances", "folder", type=click.Path(path_type=Path), metavar="DIR",
    help="Take the *.json of DIR, not drawn instances.",
)  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(1), default=5, show_default=True, metavar="N",
    help="Drawn instances of each number of jobs.",
)  # fmt: skip
@click.option("--scheme", "schemes", default=None, metavar="NAME,…", help="Schemes [default: all seven].")
@click.option(
    "--part", "parts", default=None, metavar="NAME,…",
    help="Parts [default: all six; of --instances, instances and small].",
)  # fmt: skip
@click.option(
    "--small", type=click.IntRange(1), default=30, show_default=True, metavar="N",
    help="Small cases that are compared with the offline optimum.",
)  # fmt: skip
@JSON
@PAGE
def oasis(
    folder: Path | None,
    seeds: int,
    schemes: str | None,
    parts: str | None,
    small: int,
    as_json: bool,
    page: Path | None,
) -> None:
    """OASiS beside FIFO, DRF, RRH and Dorm, with figures 3 to 6 of its paper.

    Parts: instances (50, 100 and 200 jobs, T = 100), sweep (Figure 3), timeliness (4), small (5: the offline optimum),
    sensitivity (6) and growth (of the time to decide). Without --instances they are drawn from the paper's
    distributions. oasis learns U and L from the jobs it sees, oasis-informed is given them, oasis-paper is the letter
    of the paper. What the paper leaves open, and how it was filled, stands in docs/explanation/oasis.md.
    """
    from asad_papers.oasis import scheme_figures as admission
    from asad_papers.oasis.scheme_instances import draw_instance, read_folder

    names = admission.SCHEMES if schemes is None else chosen(schemes, "--scheme", admission.SCHEMES)
    usual: tuple[str, ...] = PARTS if folder is None else GIVEN
    wanted = usual if parts is None else chosen(parts, "--part", PARTS)
    require_folder(page)
    if folder is not None:
        instances = read_folder(folder)
    else:
        instances = [draw_instance(jobs, seed) for jobs in admission.SIZES for seed in range(seeds)]
    # by name alone dorm is not swept: hours of MILPs
    swept = names if schemes is not None else tuple(name for name in names if name not in admission.SLOW)
    document: dict[str, Any] = {}
    with Doing(sys.stderr.isatty()) as step:
        step("compiling")
        admission.warm_up(names)
        if "instances" in wanted:
            document["instances"] = admission.compare(instances, names, step)
            document["sums"] = admission.sums(instances, document["instances"])
            document["competitive_bound"] = admission.competitive_bounds(instances, document["instances"])
        if "small" in wanted:
            document["small"] = admission.small_cases(small, step)
        if "sweep" in wanted:
            document["sweep"] = admission.sweep(range(min(seeds, 2)), swept, step)
        if "timeliness" in wanted:
            document["timeliness"] = admission.timeliness(0, names, step)
        if "sensitivity" in wanted:
            document["sensitivity"] = admission.sensitivity(instances, step)
        if "growth" in wanted:
            document["growth"] = admission.growth(step=step)

    def html() -> str:
        from asad_papers.oasis import scheme_page as report

        words = ["asactl", "bench", "oasis"]
        words += ["--instances", str(folder)] if folder else ["--seeds", str(seeds)]
        words += ["--scheme", schemes] if schemes else []
        words += ["--part", parts] if parts else []
        return report.page(document, shlex.join(words))

    present(document, as_json, page, html, _print)


def _print(document: Mapping[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    table = partial(titled, console)

    if "sums" in document:
        sums = document["sums"]
        shown = table(
            "Total utility, over instances of equal numbers of jobs", "scheme", *(f"{n} jobs" for n in sums)
        )
        for name in dict.fromkeys(name for row in sums.values() for name in row):
            shown.add_row(name, *(f"{row[name]:,.0f}" if name in row else "" for row in sums.values()))
        console.print(shown)
        speed = table("Deciding about one job (ms)", "scheme", "mean", "p99, worst instance")
        found = list(document["instances"].values())
        for name in found[0]:
            means = [row[name]["decide_ms_mean"] for row in found]
            speed.add_row(
                name,
                f"{sum(means) / len(means):.2f}",
                f"{max(row[name]['decide_ms_p99'] for row in found):.2f}",
            )
        console.print(speed)
    if "small" in document:
        small = document["small"]
        median, worst = (
            "none" if small[key] is None else f"{small[key]:.3f}" for key in ("ratio_median", "ratio_max")
        )
        none = [row["optimum"] for row in small["rows"] if row["ratio"] is None]
        console.print("\n[bold]Offline optimum over OASiS (Figure 5)[/]")
        text = f"{small['cases']} cases of 10 jobs in 10 slots, {small['proven']} optima proven: "
        text += f"median {median}, worst {worst}"
        if none:
            text += f"; and {len(none)} in which OASiS took nothing (optimum {', '.join(f'{one:.3g}' for one in none)})"
        console.print(text, soft_wrap=True)
    if document.get("sweep"):
        names = list(document["sweep"][0]["utility"])
        shown = table("Total utility (Figure 3)", "by", "", *names)
        for row in document["sweep"]:
            shown.add_row(row["by"], str(row["value"]), *(f"{row['utility'][name]:,.0f}" for name in names))
        console.print(shown)
    if "timeliness" in document:
        shown = table(
            "Completion less target, slots (Figure 4)",
            "scheme", "jobs", "done", "p10", "p25", "median", "p75", "p90", "sd", words=2,
        )  # fmt: skip
        for name, kinds in document["timeliness"].items():
            for kind, row in kinds.items():
                cells = (
                    "" if row[key] is None else f"{row[key]:.1f}"
                    for key in ("p10", "p25", "median", "p75", "p90", "sd")
                )
                shown.add_row(name, f"time-{kind}", f"{row['done']} of {row['jobs']}", *cells)
        console.print(shown)
    if "sensitivity" in document:
        rows = document["sensitivity"]
        sizes = sorted({row["jobs"] for row in rows})
        shown = table(
            "Utility with U or L misjudged (Figure 6)", "", "taken for", *(f"{n} jobs" for n in sizes)
        )
        for of, factor in sorted({(row["of"], row["factor"]) for row in rows}):
            here = {row["jobs"]: row["utility"] for row in rows if (row["of"], row["factor"]) == (of, factor)}
            shown.add_row(of, f"{factor:.0%}", *(f"{here[n]:,.0f}" for n in sizes))
        console.print(shown)
    if "growth" in document:
        shown = table("OASiS deciding about one job (ms)", "by", "", "mean", "p99")
        for row in document["growth"]:
            shown.add_row(
                row["by"], str(row["value"]), f"{row['decide_ms_mean']:.2f}", f"{row['decide_ms_p99']:.2f}"
            )
        console.print(shown)
