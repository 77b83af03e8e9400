"""`asactl bench oga`: the evaluation of the OgaSched paper, run anew."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from asad_papers.harness import JSON, PAGE, Parts, Step, chosen, evaluate

SWEEPS = (
    "horizon", "arrivals", "density", "nodes", "ports", "contention", "utilities", "eta", "decay",
)  # fmt: skip
FIGURES = ("figure2", "figure5")
PARTS = ("instance", *FIGURES, "seeds", *SWEEPS, "several", "gangs", "large", "growth")


@click.command("oga", short_help="Placement: OgaSched, its baselines and its sweeps.")
@click.option(
    "--instance", "path", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the instance of FILE (.npz), not a drawn one.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N",
    help="Of the drawn instance; the first of those of part seeds is N + 1.",
)  # fmt: skip
@click.option(
    "--eta", type=click.FloatRange(0, min_open=True), default=None, metavar="η",
    help="η_0 of the strict mode [default: the instance's].",
)  # fmt: skip
@click.option(
    "--reciprocal-scale", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True,
    metavar="S", help="Reciprocal utilities are 1/(Sα) − 1/(y + Sα); the paper prints 1.",
)  # fmt: skip
@click.option(
    "--part", "parts", default="instance", show_default=True, metavar="NAME,…", help="Parts, or all."
)
@click.option(
    "--repeat", type=click.IntRange(1), default=3, show_default=True, metavar="N",
    help="Runs for each speed; the fastest counts.",
)  # fmt: skip
@JSON
@PAGE
def oga(
    path: Path | None,
    seed: int,
    eta: float | None,
    reciprocal_scale: float,
    parts: str,
    repeat: int,
    as_json: bool,
    page: Path | None,
) -> None:
    """OgaSched in three modes beside Fairness, DRF, BinPacking and Spreading, with the paper's figures.

    Parts: instance; figure2, figure5 (rewards over time); seeds (ten fresh instances); horizon, arrivals, density
    (Table III); nodes, ports, contention (Figures 3 and 6); eta, decay (4); utilities (7); several (§3.4); gangs
    (§3.5); large, growth (speed). What the paper leaves open, and how it was filled, stands in docs/explanation/oga.md.
    """
    from asad_papers.oga import port_figures as ports_bench
    from asad_papers.oga.port_curves import figure
    from asad_papers.oga.port_instances import draw_port_instance, read_port_instance
    from asad_papers.oga.port_page import reading

    wanted = chosen(parts, "--part", (*PARTS, "all"))
    instance = draw_port_instance(seed) if path is None else read_port_instance(path, reciprocal_scale)

    def runs(step: Step) -> Parts:
        def swept(name: str) -> dict[str, Any]:
            return {"sweep": ports_bench.sweep(name, step)}

        def drawn(name: str) -> dict[str, Any]:
            return {name: figure(name, step)}

        return {
            "instance": lambda: ports_bench.compare(instance, eta, step, repeat),
            **{name: partial(drawn, name) for name in FIGURES},
            "seeds": lambda: {"seeds": ports_bench.seeds(range(seed + 1, seed + 11), step=step)},
            **{name: partial(swept, name) for name in SWEEPS},
            "several": lambda: {"several": ports_bench.several(step=step)},
            "gangs": lambda: {"gangs": ports_bench.gangs(step=step)},
            "large": lambda: {"large": ports_bench.large(step, repeat)},
            "growth": lambda: {"growth": ports_bench.growth(step)},
        }

    evaluate(runs, PARTS if "all" in wanted else wanted, ports_bench.warm_up, reading, as_json, page)
