"""Figures 8 and 9 of OASiS on a real Slurm: arrays throttled by each scheme of the admit stage, and by Slurm alone.

`python -m lab.testbed --out FILE` writes what `asactl bench oasis --testbed FILE` reads. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from asad.admit.utility import Constant, parse_utility
from asad_papers.oasis.scheme_instances import lateness
from lab import LabError
from lab.live import LiveAsad
from lab.measure import JobRun, worths
from lab.mix import Mix, read_mix
from lab.run import MixRunner
from lab.slurm import RealSlurm

ALONE = "slurm"
EARLY = "oasis-early"
SCHEMES = (ALONE, "fifo", "drf", "rrh", "dorm", "oasis", EARLY)
"""Slurm alone, and schemes of the admit stage; `oasis-early` is `oasis` with `early = true`."""


def timeliness(mix: Mix, runs: Sequence[Sequence[JobRun]]) -> dict[str, dict[str, float | None]]:
    """By name of the jobs that have a target: completion less target, in slots, as `asactl bench oasis` has it. Jobs
    of several runs count as jobs each; one of which a task failed is not done."""
    late: dict[str, list[float]] = {}
    jobs: dict[str, int] = {}
    slot_s = mix.shape.slot_s
    for n, job in enumerate(mix.jobs):
        utility = parse_utility(job.utility, slot_s)
        if isinstance(utility, Constant):
            continue
        mine = late.setdefault(job.name, [])
        jobs[job.name] = jobs.get(job.name, 0) + len(runs)
        for run in runs:
            tasks = [task for task in run if task.number == n]
            if tasks and all(task.completed for task in tasks):
                took_s = max(task.end_s for task in tasks) - min(task.submit_s for task in tasks)
                mine.append(took_s / slot_s - utility.target)  # type: ignore[attr-defined]
    return {name: lateness(mine, jobs[name]) for name, mine in late.items()}


def figures(mix: Mix, done: Mapping[str, Sequence[Sequence[JobRun]]]) -> dict[str, Any]:
    """By scheme: `utility` (mean over its runs), `runs` (of each), and `timeliness` by kind."""
    ran = {scheme: runs for scheme, runs in done.items() if runs}
    each = {scheme: [sum(worths(run, mix.worth).values()) for run in runs] for scheme, runs in ran.items()}
    return {
        "utility": {scheme: statistics.fmean(values) for scheme, values in each.items()},
        "runs": each,
        "timeliness": {scheme: timeliness(mix, runs) for scheme, runs in ran.items()},
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--mix", default="testbed", show_default=True, help="A mix of which all jobs state a utility.")
@click.option("--runs", type=click.IntRange(1, 100), default=2, show_default=True, help="Measured runs.")
@click.option(
    "--learning",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    help="Runs before the first, for asad.",
)
@click.option(
    "--scheme", "schemes", multiple=True, type=click.Choice(SCHEMES), help="Only these (repeat it)."
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File (JSON).")
def main(mix: str, runs: int, learning: int, schemes: tuple[str, ...], out: Path) -> None:
    """Run the mix under every scheme and write total utility and timeliness, from accounting.

    The file is written after each run, so that what has been measured is not lost.
    """
    try:
        jobs, done = read_mix(Path(mix)), dict[str, list[list[JobRun]]]()
        shape = jobs.shape
        out.parent.mkdir(parents=True, exist_ok=True)
        with RealSlurm(nodes=shape.nodes, cpus=shape.cpus, pin=shape.pin) as slurm:
            runner = MixRunner(slurm, lambda line: click.echo(line, err=True))
            runner.calibrate()
            for number in range(runs):  # in turn, so that whatever else the machine does hits all of them
                for scheme in schemes or SCHEMES:
                    ran = measured(runner, jobs, scheme, learning if number == 0 else 0, fresh=number == 0)
                    done.setdefault(scheme, []).append(ran)
                    out.write_text(json.dumps(figures(jobs, done), indent=2) + "\n", encoding="utf-8")
    except (LabError, OSError) as error:
        click.echo(f"lab: {error}", err=True)
        sys.exit(1)


def measured(runner: MixRunner, mix: Mix, scheme: str, learning: int, fresh: bool) -> list[JobRun]:
    """One run under a scheme, after so many that asad learns from; where asad is not `fresh`, it still knows what it
    learned before. Raises LabError where it ends or has a fault of its own."""
    slurm, alone = runner.slurm, scheme == ALONE
    admit, more = ("oasis", "early = true") if scheme == EARLY else (scheme, "")
    asad = (
        contextlib.nullcontext()
        if alone
        else LiveAsad(slurm, "exclusive", admit, mix.shape.slot_s, fresh=fresh, more=more, name=scheme)
    )
    with asad as live:
        for number in range(1 if alone else learning + 1):
            ran = runner.run(mix, lambda ended, total: None, live.check if live else None)
            if live is not None and live.faults():
                raise LabError(f"{scheme}: asad had faults of its own; it said:\n{live.last_words()}")
            (total,) = figures(mix, {scheme: [ran]})["utility"].values()
            learns = not alone and number < learning
            click.echo(
                f"{scheme}: {total:.1f}{' (learning)' if learns else ''}, most tasks at a time set: "
                f"{sorted({look.throttle for look in runner.trace if look.waits})}",
                err=True,
            )
    slurm.clear()
    return ran


if __name__ == "__main__":
    main()
