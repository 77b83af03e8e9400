"""`asactl bench sow`: statements of work, beside queues and reservations."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from asad_papers.harness import JSON, PAGE, Parts, Step, chosen, evaluate

PARTS = ("instance", "truthfulness", "speed", "seeds", "gpus", "samples", "stochastic")


@click.command("sow", short_help="Statements of work: welfare, truthfulness, speed.")
@click.option(
    "--instance", "path", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the instance of FILE (JSON), not a drawn one.",
)  # fmt: skip
@click.option(
    "--load", type=click.FloatRange(0, 100, min_open=True), default=2.0, show_default=True, metavar="X",
    help="Of the drawn instance: expected demand over capacity.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), metavar="N",
    help="Of what is drawn. [default: 0; of the parts seeds and gpus, one that the mechanisms' constants give]",
)  # fmt: skip
@click.option(
    "--part", "parts", default="instance", show_default=True, metavar="NAME,…", help="Parts, or all."
)
@JSON
@PAGE
def sow(
    path: Path | None, load: float, seed: int | None, parts: str, as_json: bool, page: Path | None
) -> None:
    """Statements of work (sow, sow-paper) beside fcfs, reservation and density, against the hindsight LP.

    Parts: instance (every policy on one instance, statements a second, the best misreport found); truthfulness (the
    search in detail); speed (40 000 statements, the first and the last tenth); seeds (five instances at loads 1, 2
    and 4 that nobody has looked at); gpus (the same with two types of GPUs, priced and first come); samples (how
    many futures sow draws, and what that changes); stochastic (the variant that knows what may come). What the
    paper leaves open, and how it was filled, stands in docs/explanation/sow.md.
    """
    from asad_papers.sow import statement_figures as sow_bench
    from asad_papers.sow.statement_instances import draw_sow_instance, fresh_seed, read_sow_instance
    from asad_papers.sow.statement_page import reading

    first = fresh_seed() if seed is None else seed
    seed = seed or 0
    wanted = chosen(parts, "--part", (*PARTS, "all"))
    instance = draw_sow_instance(load, seed) if path is None else read_sow_instance(path)

    def runs(step: Step) -> Parts:
        @cache
        def truth() -> dict[str, Any]:
            return sow_bench.truthfulness(instance, seed=seed, step=step)

        return {
            "instance": lambda: {
                **sow_bench.compare(instance, step=step),
                "statements_per_s": sow_bench.speed(instance, step=step),
                "misreport_gain_max": truth()["misreport_gain_max"],
            },
            "truthfulness": lambda: {"truthfulness": truth()},
            "speed": lambda: {"speed": sow_bench.growth(instance, step=step)},
            "seeds": lambda: {"seeds": sow_bench.seeds(range(first + 1, first + 6), step)},
            "gpus": lambda: {"gpus": sow_bench.gpus(range(first + 1, first + 6), step)},
            "samples": lambda: {"samples": sow_bench.samples(instance, step)},
            "stochastic": lambda: {
                "stochastic": [sow_bench.stochastic(each, seed, step) for each in sow_bench.LOADS]
            },
        }

    wanted = PARTS if "all" in wanted else wanted
    evaluate(runs, wanted, sow_bench.warm_up, partial(reading, instance=instance.name), as_json, page)
