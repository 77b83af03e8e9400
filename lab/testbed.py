"""Figures 8 and 9 of OASiS on a real Slurm: arrays throttled by each scheme of the admit stage, and by Slurm alone.

`python -m lab.testbed --out FILE` writes what `asactl bench oasis --testbed FILE` reads. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from asad.admit.utility import Constant, parse_utility
from lab import LabError
from lab.live import LiveAsad
from lab.measure import JobRun, Worth, worths
from lab.mix import Mix, read_mix
from lab.run import MixRunner
from lab.slurm import RealSlurm

ALONE = "slurm"
SCHEMES = (ALONE, "fifo", "drf", "rrh", "dorm", "oasis")


def worth_of(mix: Mix) -> Worth:
    """What each job that states it is worth by the seconds it took."""
    slot_s = mix.shape.slot_s
    made = {n: parse_utility(job.utility, slot_s) for n, job in enumerate(mix.jobs) if job.utility}
    return {n: (lambda took_s, of=of: of(took_s / slot_s)) for n, of in made.items()}


def lateness(mix: Mix, runs: Sequence[Sequence[JobRun]]) -> dict[str, dict[str, Any]]:
    """By name of the jobs that have a target: how many, how many of them completed, and median and deviation of
    completion less target, in slots. Jobs of several runs count as jobs each."""
    slot_s, found = mix.shape.slot_s, {}
    for name in dict.fromkeys(job.name for job in mix.jobs):
        late, jobs = [], 0
        for n, job in enumerate(mix.jobs):
            if job.name != name:
                continue
            utility = parse_utility(job.utility, slot_s)
            if isinstance(utility, Constant):
                continue
            for run in runs:
                tasks = [task for task in run if task.number == n]
                jobs += 1
                if tasks and all(task.completed for task in tasks):
                    took_s = max(task.end_s for task in tasks) - min(task.submit_s for task in tasks)
                    late.append(took_s / slot_s - utility.target)  # type: ignore[attr-defined]
        if jobs:
            found[name] = {
                "jobs": jobs,
                "done": len(late),
                "median": statistics.median(late) if late else None,
                "sd": statistics.pstdev(late) if late else None,
            }
    return found


def figures(mix: Mix, runs: dict[str, list[list[JobRun]]]) -> dict[str, Any]:
    """`utility` by scheme (mean over its runs) and `timeliness` by scheme and kind."""
    worth = worth_of(mix)
    kept = {scheme: mine for scheme, mine in runs.items() if mine}
    return {
        "utility": {
            scheme: statistics.fmean(sum(worths(run, worth).values()) for run in mine)
            for scheme, mine in kept.items()
        },
        "timeliness": {scheme: lateness(mix, mine) for scheme, mine in kept.items()},
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--mix", default="testbed", show_default=True, help="A mix of which all jobs state a utility.")
@click.option("--runs", type=click.IntRange(1, 100), default=1, show_default=True, help="Measured runs.")
@click.option(
    "--learning", type=click.IntRange(0, 100), default=1, show_default=True, help="Runs before, for asad."
)
@click.option(
    "--scheme", "schemes", multiple=True, type=click.Choice(SCHEMES), help="Only these (repeat it)."
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="File (JSON).")
def main(mix: str, runs: int, learning: int, schemes: tuple[str, ...], out: Path) -> None:
    """Run the mix under every scheme and write total utility and timeliness, from accounting."""
    try:
        jobs, done = read_mix(Path(mix)), dict[str, list[list[JobRun]]]()
        shape = jobs.shape
        with RealSlurm(nodes=shape.nodes, cpus=shape.cpus, pin=shape.pin) as slurm:
            runner = MixRunner(slurm, lambda line: click.echo(line, err=True))
            runner.calibrate()
            for scheme in schemes or SCHEMES:
                alone = scheme == ALONE
                done[scheme] = []
                asad = (
                    contextlib.nullcontext() if alone else LiveAsad(slurm, "exclusive", scheme, shape.slot_s)
                )
                with asad as live:
                    for number in range(runs + (0 if alone else learning)):
                        ran = runner.run(jobs, lambda ended, total: None, live.check if live else None)
                        if live is not None and live.faults():
                            raise LabError(f"asad had faults of its own; it said:\n{live.last_words()}")
                        total = sum(worths(ran, worth_of(jobs)).values())
                        learns = not alone and number < learning
                        click.echo(
                            f"{scheme}: {total:.1f}{' (learning)' if learns else ''}, most tasks at a time set: "
                            f"{sorted({look.throttle for look in runner.trace if look.waits})}",
                            err=True,
                        )
                        if not learns:
                            done[scheme].append(ran)
                slurm.clear()
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(json.dumps(figures(jobs, done), indent=2) + "\n", encoding="utf-8")
    except (LabError, OSError) as error:
        click.echo(f"lab: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
