"""`asactl bench asax-paper`: the evaluation of the ASAx paper, run anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from asad.cli import completion
from asad_papers.harness import JSON, PAGE, Parts, Step, chosen, evaluate


@click.command("asax-paper", short_help="Tables 2 and 3 and Figure 3 of the ASAx paper.")
@click.option(
    "--seeds", type=click.IntRange(1), default=30, show_default=True, metavar="N", help="Number of seeds."
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="The first of them."
)
@click.option(
    "--sizes", default="64,128,256", show_default=True, metavar="CORES,…", help="Cores of the cluster."
)
@click.option(
    "--policy",
    "policies",
    default=None,
    metavar="NAME,…",
    shell_complete=completion.constant("asad_papers.asax.paper_workload:POLICIES"),
    help="Policies [default: all].",
)
@click.option("--chained", is_flag=True, help="A job for each stage of a workflow, which waits for the last.")
@click.option(
    "--ablation/--no-ablation",
    default=None,
    help="Also what the experts add, on the generated sample [default: with all policies].",
)
@click.option(
    "--static-fit",
    is_flag=True,
    help="Also fit what sharing a core would have had to cost for the paper's Static, and run all policies under that.",
)
@JSON
@PAGE
def asax_paper(
    seeds: int,
    seed: int,
    sizes: str,
    policies: str | None,
    chained: bool,
    ablation: bool | None,
    static_fit: bool,
    as_json: bool,
    page: Path | None,
) -> None:
    """The paper's 15 workflow runs, submitted three times on clusters of 64, 128 and 256 cores.

    Printed are means over the seeds of the third submission, ratios of means against Slurm, the paper's own figures
    (Tables 2 and 3) and the share of the greedy oracle's gain that each policy reaches; the page draws Figure 3 and
    what is learned by submission. What the paper leaves open and how it was filled stands in
    docs/explanation/asax.md. Then what the experts add, on the generated sample of 512 cores: the shipped trees beside
    one that says nothing and one that never lends, and `measured`, which asks none; as the sample is, with CPU use that
    varies, and with a fifth of the applications bound by memory bandwidth.
    """
    from asad_papers.asax import expert_ablation as experts_add
    from asad_papers.asax import paper_workload as paper
    from asad_papers.asax.paper_page import reading
    from asad_papers.asax.static_fit import fit_static

    names = paper.POLICIES if policies is None else chosen(policies, "--policy", paper.POLICIES)
    clusters = tuple(map(int, chosen(sizes, "--sizes", tuple(map(str, paper.SIZES)))))
    with_ablation = policies is None if ablation is None else ablation
    wanted = ["submissions", *["ablation"] * with_ablation, *["static fit"] * static_fit]

    def runs(step: Step) -> Parts:
        def submissions() -> Mapping[str, Any]:
            return paper.evaluate(
                seeds=range(seed, seed + seeds),
                sizes=clusters,
                policies=names,
                chained=chained,
                progress=lambda done, total: step(f"{done} of {total} replays"),
            )

        def fitted() -> Mapping[str, Any]:
            return fit_static(
                seeds=range(seed, seed + seeds),
                sizes=clusters,
                policies=tuple(dict.fromkeys(("slurm", "static", *names))),
                chained=chained,
                progress=lambda done, total: step(f"fit of Static: {done} of {total}"),
            )

        return {
            "submissions": submissions,
            "static fit": lambda: {"static_fit": fitted()},
            "ablation": lambda: {
                "ablation": experts_add.evaluate(
                    seed=seed, progress=lambda done, total: step(f"what experts add: {done} of {total}")
                )
            },
        }

    evaluate(
        runs,
        wanted,
        lambda: None,
        lambda document: reading(
            {
                "sizes": {size: document[size] for size in map(str, clusters)},
                "ablation": document.get("ablation"),
                "static_fit": document.get("static_fit"),
                "seeds": seeds,
                "chained": chained,
            }
        ),
        as_json,
        page,
    )
