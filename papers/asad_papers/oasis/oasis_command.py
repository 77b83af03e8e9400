"""`asactl bench oasis`: the evaluation of the OASiS paper, run anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from asad.cli import completion
from asad.cli.output import require_folder
from asad_papers.harness import JSON, PAGE, Parts, Step, chosen, evaluate

PARTS = ("instances", "gpus", "bursts", "small", "sweep", "timeliness", "sensitivity", "growth")
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
@click.option(
    "--scheme",
    "schemes",
    default=None,
    metavar="NAME,…",
    shell_complete=completion.constant("asad_papers.oasis.scheme_figures:SCHEMES"),
    help="Schemes [default: all seven].",
)
@click.option(
    "--part", "parts", default=None, metavar="NAME,…",
    help="Parts [default: all eight; of --instances, instances and small].",
)  # fmt: skip
@click.option(
    "--small", type=click.IntRange(1), default=30, show_default=True, metavar="N",
    help="Small cases that are compared with the offline optimum.",
)  # fmt: skip
@click.option(
    "--testbed", type=click.Path(path_type=Path), metavar="FILE",
    help="Figures 8 and 9: what schemes reached on a testbed (JSON), to stand beside the paper's.",
)  # fmt: skip
@JSON
@PAGE
def oasis(
    folder: Path | None,
    seeds: int,
    schemes: str | None,
    parts: str | None,
    small: int,
    testbed: Path | None,
    as_json: bool,
    page: Path | None,
) -> None:
    """OASiS beside FIFO, DRF, RRH and Dorm, with figures 3 to 6 of its paper.

    Parts: instances (50, 100 and 200 jobs, T = 100), gpus (100 jobs, two types of GPUs), bursts (100 jobs that arrive
    in bursts), sweep (Figure 3), timeliness (4), small (5: the offline optimum),
    sensitivity (6) and growth (of the time to decide). Without --instances they are drawn from the paper's
    distributions. oasis learns U and L from the jobs it sees, oasis-informed is given them, oasis-paper is the letter
    of the paper. What the paper leaves open, and how it was filled, stands in docs/explanation/oasis.md.
    """
    from asad_papers.oasis import scheme_figures as admission
    from asad_papers.oasis.scheme_instances import draw_instance, read_folder, read_testbed
    from asad_papers.oasis.scheme_page import reading

    names = admission.SCHEMES if schemes is None else chosen(schemes, "--scheme", admission.SCHEMES)
    usual: tuple[str, ...] = PARTS if folder is None else GIVEN
    wanted = usual if parts is None else chosen(parts, "--part", PARTS)
    require_folder(page)
    always = None if testbed is None else {"testbed": read_testbed(testbed)}
    if folder is not None:
        instances = read_folder(folder)
    else:
        instances = [draw_instance(jobs, seed) for jobs in admission.SIZES for seed in range(seeds)]
    # by name alone dorm is not swept: hours of MILPs
    swept = names if schemes is not None else tuple(name for name in names if name not in admission.SLOW)

    def runs(step: Step) -> Parts:
        def compared() -> dict[str, Any]:
            table = admission.compare(instances, names, step)
            return {
                "instances": table,
                "alone": {one.name: admission.alone(one) for one in instances},
                "sums": admission.sums(instances, table),
                "competitive_bound": admission.competitive_bounds(instances, table),
            }

        def apart(kind: str) -> dict[str, Any]:
            return {kind: admission.drawn_apart(kind, range(seeds), names, step)}

        return {
            "instances": compared,
            "gpus": lambda: apart("gpus"),
            "bursts": lambda: apart("bursts"),
            "small": lambda: {"small": admission.small_cases(small, step)},
            "sweep": lambda: {"sweep": admission.sweep(range(min(seeds, 2)), swept, step)},
            "timeliness": lambda: {"timeliness": admission.timeliness(0, names, step)},
            "sensitivity": lambda: {"sensitivity": admission.sensitivity(instances, step)},
            "growth": lambda: {"growth": admission.growth(step=step)},
        }

    evaluate(runs, wanted, lambda: admission.warm_up(names), reading, as_json, page, always)
