"""`python -m lab`: one mix under Slurm alone, static lending and asad, side by side. `make lab` calls it."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab import LabError
from lab.live import LiveAsad
from lab.measure import Comparison, JobRun, compare
from lab.mix import Mix, read_mix
from lab.run import MixRunner
from lab.slurm import RealSlurm

POLICIES = {"slurm": "", "static": "static", "asad": "asax"}
"""Name in the result → policy of asad's share stage; empty: without asad."""
LEARNS = frozenset(("asad",))
"""Policies that are given the mix before it is measured."""
RESULT = Path(__file__).parent / "result.json"

ROWS = (
    ("makespan_s", "makespan (s)", "{:.1f}"),
    ("response_mean_s", "response, mean (s)", "{:.1f}"),
    ("wait_mean_s", "wait, mean (s)", "{:.1f}"),
    ("host_stretch_mean", "run time of hosts / alone", "{:.3f}"),
    ("guest_stretch_mean", "run time of guests / alone", "{:.3f}"),
    ("runtime_stretch_mean", "run time of all / alone", "{:.3f}"),
    ("cpu_utilization", "CPU use", "{:.1%}"),
    ("guests", "guests", "{:g}"),
    ("later", "guests later than by Slurm alone", "{:g}"),
    ("killed", "jobs not completed", "{:g}"),
)
"""Figure, what it is called, how it is written."""
COMPARED = frozenset(("makespan_s", "response_mean_s", "wait_mean_s", "cpu_utilization"))
"""Figures of which the ratio to Slurm alone is told too."""


class Lab:
    """All runs of one mix on one cluster."""

    def __init__(self, slurm: RealSlurm, mix: Mix, runs: int, learning: int, console: Console) -> None:
        self.slurm, self.mix, self.runs, self.learning, self.console = slurm, mix, runs, learning, console
        self.runner = MixRunner(slurm, self.tell)
        self.done: dict[str, list[list[JobRun]]] = {}

    def tell(self, text: str) -> None:
        """A line for whoever watches; jobs' names may be in it, so control characters are left out."""
        printable = "".join(letter if letter.isprintable() else " " for letter in text)
        self.console.print(
            f"{time.strftime('%H:%M:%S')} {printable}", markup=False, highlight=False, soft_wrap=True
        )

    @property
    def nominal_s(self) -> dict[int, float]:
        """Run time of each job alone, by the mix."""
        return {number: job.alone_s for number, job in enumerate(self.mix.jobs)}

    def run_policy(self, policy: str) -> None:
        """Learn and measure under one policy; what goes wrong is told, and ends this policy alone."""
        share = POLICIES[policy]
        runs = self.done.setdefault(policy, [])
        learning = self.learning if policy in LEARNS else 0
        try:
            with LiveAsad(self.slurm, share) if share else contextlib.nullcontext() as live:
                for number in range(learning + self.runs):
                    title = (
                        f"{policy}: learning {number + 1}/{learning}"
                        if number < learning
                        else f"{policy}: run {number - learning + 1}/{self.runs}"
                    )
                    with self._progress(title) as update:
                        jobs = self.runner.run(self.mix, update, live.check if live is not None else None)
                    if number >= learning:
                        runs.append(jobs)
                    makespan_s = max(job.end_s for job in jobs) - min(job.submit_s for job in jobs)
                    guests = sum(job.guest for job in jobs)
                    self.tell(f"{title}: {makespan_s:.0f} s, {guests} guests")
        except LabError as error:
            self.console.print(f"{policy} ends here: {error}", markup=False, highlight=False, soft_wrap=True)
        finally:
            self.slurm.clear()

    @contextlib.contextmanager
    def _progress(self, title: str) -> Iterator[Callable[[int, int], None]]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # drawing takes CPU from what is measured
        with Progress(
            *columns,
            console=self.console,
            transient=True,
            refresh_per_second=1,
            disable=not self.console.is_terminal,
        ) as progress:
            task = progress.add_task(title, total=len(self.mix.jobs))
            yield lambda ended, total: progress.update(task, completed=ended, total=total)

    def keep_logs(self, folder: Path) -> None:
        """Copy what the daemons wrote to where it outlives the cluster."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        paths = [*(self.slurm.folder / "log").iterdir(), *self.slurm.folder.glob("asad-*/*.log")]
        paths += [
            *self.slurm.folder.glob("asad-*/state/*.db"),
            *self.slurm.folder.glob("asad-*/state/*.journal"),
        ]
        for path in paths:
            shutil.copyfile(path, folder / "-".join(path.relative_to(self.slurm.folder).parts))


def table(comparison: Comparison, title: str) -> Table:
    """Figures by policy, medians of all runs, with the ratio to Slurm alone."""
    made = Table(title=title, box=box.SIMPLE_HEAD)
    made.add_column("")
    for policy in comparison.figures:
        made.add_column(policy, justify="right", no_wrap=True)
    for figure, name, form in ROWS:
        cells = []
        for policy, figures in comparison.figures.items():
            text = form.format(getattr(figures, figure))
            ratio = comparison.ratio(policy, figure)
            if figure in COMPARED and policy != "slurm" and not math.isnan(ratio):
                text += f"  ×{ratio:.2f}"
            cells.append(text)
        made.add_row(name, *cells)
    return made


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("mix", default="half-light")
@click.option(
    "--runs",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Measured runs; their median counts.",
)
@click.option(
    "--learning",
    type=click.IntRange(0, 100),
    default=2,
    show_default=True,
    help="How often asad runs the mix before it is measured.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.05, 100),
    default=1.0,
    show_default=True,
    help="Multiplies all times of the mix.",
)
@click.option("--nodes", type=click.IntRange(1, 64), default=2, show_default=True)
@click.option("--cpus", type=click.IntRange(1, 64), default=1, show_default=True, help="Cores of each node.")
@click.option(
    "--memory",
    "memory_mb",
    type=click.IntRange(500),
    default=4000,
    show_default=True,
    help="Memory of each node (MB).",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(tuple(POLICIES)),
    help="Only these (repeat it); all by default.",
)
@click.option(
    "--sacct",
    "sample",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write accounting's dump of the runs of Slurm alone here.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULT,
    help="Write the figures here (JSON).",
)
@click.option(
    "--logs", type=click.Path(file_okay=False, path_type=Path), help="Keep the daemons' logs in this folder."
)
def main(
    mix: str,
    runs: int,
    learning: int,
    scale: float,
    nodes: int,
    cpus: int,
    memory_mb: int,
    policies: tuple[str, ...],
    sample: Path | None,
    out: Path,
    logs: Path | None,
) -> None:
    """Run MIX (a TOML file, or half-light or all-compute) on a real Slurm on this machine.

    Under Slurm alone, with static lending and with asad, and print what came of each. Needs root.
    """
    console = Console(stderr=True)
    try:
        jobs = read_mix(Path(mix)).scaled(scale)
        with RealSlurm(nodes=nodes, cpus=cpus, memory_mb=memory_mb) as slurm:
            lab = Lab(slurm, jobs, runs, learning, console)
            lab.runner.calibrate()
            rates = ", ".join(f"{name} {rate:.0f}" for name, rate in lab.runner.units_per_s.items())
            lab.tell(f"{nodes} nodes of {cpus} cores are up; units of work a CPU second: {rates}")
            lab.tell(
                f"{jobs.name}: {len(jobs.jobs)} jobs, {jobs.core_s:.0f} core-seconds, {jobs.light_part:.0%} of them in "
                "jobs that use less than half of their CPU"
            )
            for policy in policies or tuple(POLICIES):
                lab.run_policy(policy)
            if sample is not None and lab.done.get("slurm"):
                sample.write_text(lab.runner.sample(lab.done["slurm"]), encoding="utf-8")
            if logs is not None:
                lab.keep_logs(logs)
        comparison = compare(lab.done, nodes * cpus, lab.nominal_s)
        Console().print(table(comparison, f"{jobs.name}, median of {runs}"))
        out.write_text(json.dumps(comparison.to_json(), indent=2) + "\n", encoding="utf-8")
        console.print(f"figures: {out}", markup=False, soft_wrap=True)
        missing = [policy for policy in policies or POLICIES if policy not in comparison.figures]
        if missing:
            raise LabError(f"no figures of {', '.join(missing)}; what went wrong stands above")
    except (LabError, OSError) as error:
        console.print(f"lab: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
