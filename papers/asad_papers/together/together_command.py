"""`asactl bench together`: one cluster with jobs of all kinds, all stages at once beside each alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from asad_papers.harness import JSON, PAGE, Document, Parts, Reading, Step, Table, evaluate

CONFIGURATION = """[policies]
admit = "sow+oasis"
defer = "lookahead"
place = "oga"
share = "asax"
[admit.oasis]
early = true
"""
SAMPLE = ("samples/generated-cluster.sacct.gz", 16, 32, "128G")
ROWS = {
    "missed": ("missed starts", 1),
    "welfare": ("welfare", 0),
    "welfare_over_sow": ("over sow's", 3),
    "ordinary_over_lending": ("ordinary/lending", 3),
    "utility": ("utility", 0),
    "cpu_utilization": ("CPU used", 3),
    "killed": ("killed", 1),
    "evicted": ("evicted", 1),
    "guests": ("guests", 0),
}
"""Key, its name in the table, and decimals."""


@click.command("together", short_help="All stages at once, on jobs of all kinds.")
@click.option("--log", metavar="LOG", help="Draw kinds onto this log, not onto the generated sample.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes of the machine of LOG.")
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Cores of each node.")
@click.option("--first", type=click.IntRange(1), metavar="N", help="Take the first N jobs of the log alone.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="The first seed of what is drawn.",
)
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=5, show_default=True, metavar="N", help="Number of seeds."
)
@JSON
@PAGE
def together(
    log: str | None,
    nodes: int | None,
    cores: int | None,
    first: int | None,
    seed: int,
    seeds: int,
    as_json: bool,
    page: Path | None,
) -> None:
    """A tenth of the core-hours is announced, a fifth deferrable, a tenth elastic arrays with utilities, a tenth gangs.

    One configuration (sow+oasis, lookahead, oga, asax) runs whole, and each of its stages alone, beside Slurm left
    alone. Figures are means over the seeds.
    """
    import dataclasses
    from importlib.resources import as_file, files

    import numpy as np

    from asad.config import parse
    from asad.replay.inferred_machine import infer
    from asad.replay.machine import from_flags
    from asad.replay.readers import read_log
    from asad_papers.together.mixed_kinds import compare, over_seeds

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

    def played(step: Step) -> dict[str, Any]:
        runs = []
        for number in range(seed, seed + seeds):
            seen = partial(_seeded, step, number)
            runs.append(compare(recorded, machine, config, number, use_memory, seen))
        return {"seeds": seeds, "first_seed": seed, "on": over_seeds(runs)}

    def parts(step: Step) -> Parts:
        return {"together": lambda: {"together": played(step)}}

    evaluate(parts, ("together",), lambda: None, _reading, as_json, page)


def _seeded(step: Step, seed: int, name: str) -> None:
    step(f"seed {seed}: {name}")


def _reading(document: Document) -> Reading:
    figures = document["together"]["on"]
    heads = ["", *figures]
    means, errors = ([*_rows(figures, key)] for key in ("mean", "error"))
    tables = [
        Table("What is on", heads, means),
        Table("Standard errors", heads, errors, folded="Each instance"),
    ]
    return Reading(
        kicker="One cluster, jobs of all kinds",
        heading="All stages at once",
        title="All stages at once",
        facts=f"each stage alone and all together, over the same drawn jobs, {document['together']['seeds']} seeds",
        verdict=["Each column is what is on; figures are means over the seeds."],
        sections=[("table", "What is on", tables)],
        method="Kinds are drawn onto the jobs of a log by a seed; each column of each seed is a replay of its own.",
    )


def _rows(figures: Mapping[str, Any], key: str) -> Iterator[list[str]]:
    """Of each figure its mean or standard error, by what is on."""
    for kind in figures["slurm"]["response_mean_s"]:
        yield [
            f"{kind}, min",
            *(_cell(one["response_mean_s"][kind][key], 1, 60.0) for one in figures.values()),
        ]
    for name, (text, digits) in ROWS.items():
        yield [text, *(_cell(one[name][key], digits) for one in figures.values())]


def _cell(value: float | None, digits: int, unit: float = 1.0) -> str:
    return "-" if value is None else f"{value / unit:.{digits}f}"
