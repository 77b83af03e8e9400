"""`asactl bench together`: one cluster with jobs of all kinds, all stages at once beside each alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from asad_papers.harness import JSON, PAGE, Document, Parts, Reading, Step, Table, evaluate

CONFIGURATION = '[policies]\nadmit = "sow+oasis"\ndefer = "lookahead"\nshare = "asax"\n'
SAMPLE = ("samples/generated-cluster.sacct.gz", 16, 32, "128G")
HEADS = {
    "missed": "latest starts missed",
    "welfare": "welfare",
    "utility": "utility",
    "cpu_utilization": "CPU used",
    "killed": "killed",
    "evicted": "evicted",
    "guests": "guests",
}


@click.command("together", short_help="All stages at once, on jobs of all kinds.")
@click.option("--log", metavar="LOG", help="Draw kinds onto this log, not onto the generated sample.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes of the machine of LOG.")
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Cores of each node.")
@click.option("--first", type=click.IntRange(1), metavar="N", help="Take the first N jobs of the log alone.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of what is drawn."
)
@JSON
@PAGE
def together(
    log: str | None,
    nodes: int | None,
    cores: int | None,
    first: int | None,
    seed: int,
    as_json: bool,
    page: Path | None,
) -> None:
    """A tenth of the core-hours is announced, a fifth deferrable, a tenth elastic arrays with utilities, a tenth gangs.

    One configuration (sow+oasis, lookahead, asax) runs whole, and each of its stages alone, beside Slurm left alone.
    """
    import dataclasses
    from importlib.resources import as_file, files

    import numpy as np

    from asad.config import parse
    from asad.replay.machine import from_flags, infer
    from asad.replay.readers import read_log
    from asad_papers.together.mixed_kinds import compare

    if log is None:
        name, nodes, cores, memory = SAMPLE
        with as_file(files("asad_profiles") / name) as path:
            recorded = read_log(str(path))
        machine, use_memory = from_flags(nodes, cores, memory), True
    else:
        recorded, use_memory = read_log(log), False
        machine = from_flags(nodes, cores, None) if nodes and cores else infer(recorded)
    if first is not None:
        rows = np.arange(min(first, len(recorded.jobs)))
        recorded = dataclasses.replace(recorded, jobs=recorded.jobs.take(rows))
    config = parse(CONFIGURATION, Path("together"))

    def parts(step: Step) -> Parts:
        return {"together": lambda: {"together": compare(recorded, machine, config, seed, use_memory, step)}}

    evaluate(parts, ("together",), lambda: None, _reading, as_json, page)


def _reading(document: Document) -> Reading:
    figures = document["together"]
    kinds = list(figures["slurm"]["response_mean_s"])
    heads = ["on", *(f"response of {kind}, min" for kind in kinds), *HEADS.values()]
    rows = [
        [
            name,
            *(f"{one['response_mean_s'][kind] / 60:.1f}" for kind in kinds),
            *(_cell(one[k]) for k in HEADS),
        ]
        for name, one in figures.items()
    ]
    return Reading(
        kicker="One cluster, jobs of all kinds",
        heading="All stages at once",
        title="All stages at once",
        facts="each stage alone and all together, over the same drawn jobs",
        verdict=["Each row is one replay of the same jobs; what is on is named first."],
        sections=[("table", "What is on", [Table("What is on", heads, rows)])],
        method="Kinds are drawn onto the jobs of a log by a seed; each row is a replay of its own.",
    )


def _cell(value: Any) -> str:
    return (
        "-"
        if value is None
        else f"{value:.3f}"
        if isinstance(value, float) and value < 10
        else f"{value:.0f}"
    )
