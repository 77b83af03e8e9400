"""`asactl bench sow`: statements of work, beside queues and reservations."""

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

PARTS = ("instance", "truthfulness", "speed", "seeds", "stochastic")


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
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of what is drawn."
)
@click.option(
    "--part", "parts", default="instance", show_default=True, metavar="NAME,…", help="Parts, or all."
)
@JSON
@PAGE
def sow(path: Path | None, load: float, seed: int, parts: str, as_json: bool, page: Path | None) -> None:
    """Statements of work (sow, sow-paper) beside fcfs, reservation and density, against the hindsight LP.

    Parts: instance (every policy on one instance, statements a second, the best misreport found); truthfulness (the
    search in detail); speed (40 000 statements, the first and the last tenth); seeds (five fresh instances at loads 1,
    2 and 4); stochastic (the variant that knows what may come). What the paper leaves open, and how it was filled,
    stands in docs/explanation/sow.md.
    """
    from asad_papers.sow import statement_figures as sow_bench
    from asad_papers.sow.statement_instances import draw_sow_instance, read_sow_instance

    wanted = chosen(parts, "--part", (*PARTS, "all"))
    if "all" in wanted:
        wanted = PARTS
    require_folder(page)
    instance = draw_sow_instance(load, seed) if path is None else read_sow_instance(path)
    document: dict[str, Any] = {}
    with Doing(sys.stderr.isatty()) as step:
        step("compiling")
        sow_bench.warm_up()
        if "instance" in wanted:
            document |= sow_bench.compare(instance, step=step)
            document["statements_per_s"] = sow_bench.speed(instance, step=step)
        if "instance" in wanted or "truthfulness" in wanted:
            truth = sow_bench.truthfulness(instance, seed=seed, step=step)
        if "instance" in wanted:
            document["misreport_gain_max"] = truth["misreport_gain_max"]
        if "truthfulness" in wanted:
            document["truthfulness"] = truth
        if "speed" in wanted:
            document["speed"] = sow_bench.growth(instance, step=step)
        if "seeds" in wanted:
            document["seeds"] = sow_bench.seeds(range(seed + 1, seed + 6), step)
        if "stochastic" in wanted:
            document["stochastic"] = [sow_bench.stochastic(each, seed, step) for each in sow_bench.LOADS]

    def html() -> str:
        from asad_papers.sow import statement_page as report

        words = ["asactl", "bench", "sow"]
        words += ["--instance", str(path)] if path is not None else ["--load", f"{load:g}"]
        words += ["--seed", str(seed)] if seed else []
        words += ["--part", parts] if parts != "instance" else []
        return report.page(document, instance.name, shlex.join(words))

    present(document, as_json, page, html, _print)


def _print(document: Mapping[str, Any]) -> None:
    from rich.console import Console

    console = Console()
    table = partial(titled, console)
    if "policies" in document:
        shown = table("Welfare over the hindsight LP", "policy", "welfare", "planned", "evicted", "evicted %")
        for name, row in document["policies"].items():
            share = row["evicted"] / max(1, row["planned"])
            shown.add_row(
                name, f"{row['welfare_ratio']:.3f}", str(row["planned"]), str(row["evicted"]), f"{share:.1%}"
            )
        console.print(shown)
        console.print(
            f"Hindsight LP {document['hindsight_lp']:,.1f}. sow: {document['statements_per_s']:,.0f} statements/s; "
            f"best misreport found gains {document['misreport_gain_max']:.3g} of value.",
            soft_wrap=True,
        )
    if "truthfulness" in document:
        found = document["truthfulness"]
        shown = table("Best gains found, in units of value", "misreport of", "gain")
        for kind, gain in found["by_kind"].items():
            shown.add_row(kind, f"{gain:.4f}")
        console.print(shown)
        console.print(
            f"{found['jobs']} jobs, mean utility {found['utility_mean']:.2f}. With announced probabilities taken as "
            f"true {found['announced']:.2g}; no misreport at birth gains more than {found['bound']:.4f}; allowed "
            f"{found['allowed']:g} (2μ·v_max). Births deferred gain {found['birth_mean']:.4f} in the mean over jobs "
            f"(standard error of the best, {found['birth_error']:.3f}); that of the last job to be born, "
            f"{found['birth_of_last']:.4f}.",
            soft_wrap=True,
        )
    if "speed" in document:
        found = document["speed"]
        console.print(
            f"\n[bold]Speed[/]: {found['statements']:,} statements, {found['statements_per_s']:,.0f} a second; the "
            f"first tenth {found['first_tenth_per_s']:,.0f}, the last {found['last_tenth_per_s']:,.0f}.",
            soft_wrap=True,
        )
    if "seeds" in document:
        names = list(document["seeds"][0]["policies"])
        shown = table("Fresh instances: welfare over the hindsight LP", "load", "seed", *names, "sow evicted")
        for row in document["seeds"]:
            found = row["policies"]
            shown.add_row(
                f"{row['load']:g}",
                str(row["seed"]),
                *(f"{found[name]['welfare_ratio']:.3f}" for name in names),
                f"{found['sow']['evicted'] / max(1, found['sow']['planned']):.1%}",
            )
        console.print(shown)
    if "stochastic" in document:
        shown = table(
            "sow-stochastic, on a drawn prior",
            "load",
            "welfare",
            "planned",
            "evicted",
            "bundles of LP",
            "proven",
        )
        for row in document["stochastic"]:
            shown.add_row(
                f"{row['load']:g}", f"{row['welfare_ratio']:.3f}", str(row["planned"]), str(row["evicted"]),
                f"{row['bundles_of_lp']:.2f}", f"{row['proven']:.3f}",
            )  # fmt: skip
        console.print(shown)
