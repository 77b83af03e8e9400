"""`python -m lab`: mixes under Slurm alone and under asad, side by side. `make lab` calls it.

Mixes whose jobs state what they are worth are there for admission: Slurm's own order against `oasis`. The others are
there for lending: Slurm alone, static lending and `asax`.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab import LabError
from lab.live import LiveAsad
from lab.measure import ALONE, ArrayLook, Comparison, JobRun, by_slot, compare, worths
from lab.mix import Mix, read_mix
from lab.run import MixRunner
from lab.slurm import RealSlurm

POLICIES = {
    "slurm": ("", "everyone"),
    "static": ("static", "everyone"),
    "asad": ("asax", "everyone"),
    "first-fit": ("exclusive", "everyone"),
    "oga": ("exclusive", "everyone"),
    "fifo": ("", "everyone"),
    "oasis": ("exclusive", "oasis"),
}
"""Name in the result → policies of asad's share and admit stages; no share policy: without asad."""
PLACES = ("first-fit", "oga")
"""Those that are policies of the place stage."""
LENDING, ADMISSION = ("slurm", "static", "asad"), ("fifo", "oasis")
"""What a mix is run under: if its jobs state no worth, and if they do."""
MIXES = ("half-light", "arrays")
LEARNS = frozenset(("asad", "oasis", "oga"))
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
    ("utility", "total utility", "{:.1f}"),
    ("throttle_changes", "changes of throttles", "{:g}"),
)
"""Figure, what it is called, how it is written."""
COMPARED = frozenset(("makespan_s", "response_mean_s", "wait_mean_s", "cpu_utilization", "utility"))
"""Figures of which the ratio to Slurm alone is reported too."""


class Lab:
    """All runs of one mix on one cluster."""

    def __init__(self, slurm: RealSlurm, mix: Mix, runs: int, learning: int, console: Console) -> None:
        self.slurm, self.mix, self.runs, self.learning, self.console = slurm, mix, runs, learning, console
        self.runner = MixRunner(slurm, self.show)
        self.done: dict[str, list[list[JobRun]]] = {}
        self.looks: dict[str, list[list[ArrayLook]]] = {}
        """Of each run that was measured, how its arrays were seen."""

    def show(self, text: str) -> None:
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
        """Learn and measure under one policy; what goes wrong is reported, and ends this policy alone."""
        share, admit = POLICIES[policy]
        runs, looks = self.done.setdefault(policy, []), self.looks.setdefault(policy, [])
        learning = self.learning if policy in LEARNS else 0
        try:
            asad = (
                LiveAsad(
                    self.slurm,
                    share,
                    admit,
                    self.mix.shape.slot_s,
                    policy if policy in PLACES else "native",
                )
                if share
                else contextlib.nullcontext()
            )
            with asad as live:
                for number in range(learning + self.runs):
                    title = (
                        f"{policy}: learning {number + 1}/{learning}"
                        if number < learning
                        else f"{policy}: run {number - learning + 1}/{self.runs}"
                    )
                    with self._progress(title) as update:
                        jobs = self.runner.run(self.mix, update, live.check if live is not None else None)
                    if live is not None and live.faults():
                        raise LabError(f"asad had faults of its own; it said:\n{live.last_words()}")
                    if number >= learning:
                        runs.append(jobs)
                        looks.append(self.runner.trace)
                    makespan_s = max(job.end_s for job in jobs) - min(job.submit_s for job in jobs)
                    if self.mix.has_worth:
                        utility = sum(worths(jobs, self.mix.worth).values())
                        self.show(f"{title}: {makespan_s:.0f} s, total utility {utility:.1f}")
                    else:
                        guests = sum(job.guest for job in jobs)
                        self.show(f"{title}: {makespan_s:.0f} s, {guests} guests")
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


def worth_table(lab: Lab, title: str) -> Table:
    """By job of the mix: when its last task ended and what that was worth, in the last run of each policy."""
    made = Table(title=title, box=box.SIMPLE_HEAD)
    for column in ("job", "tasks", "utility"):
        made.add_column(column)
    last = {policy: runs[-1] for policy, runs in lab.done.items() if runs}
    came = {policy: worths(jobs, lab.mix.worth) for policy, jobs in last.items()}
    for policy in last:
        made.add_column(policy, justify="right", no_wrap=True)
    for number, job in enumerate(lab.mix.jobs):
        cells = []
        for policy, jobs in last.items():
            mine = [run for run in jobs if run.number == number]
            took_s = max(run.end_s for run in mine) - min(run.submit_s for run in mine) if mine else math.nan
            worth = came[policy].get(number)
            cells.append(f"{took_s:.0f} s" + ("" if worth is None else f" → {worth:.1f}"))
        made.add_row(f"{number + 1} {job.name}", str(job.tasks), job.utility, *cells)
    return made


def throttle_table(lab: Lab, policy: str, title: str) -> Table:
    """Slot by slot, how the arrays were seen at the end of it in the last run of a policy."""
    made = Table(title=title, box=box.SIMPLE_HEAD)
    made.add_column("slot", justify="right")
    arrays = [number for number, job in enumerate(lab.mix.jobs) if job.tasks > 1]
    for number in arrays:
        made.add_column(f"{number + 1} {lab.mix.jobs[number].name}", justify="right")
    slots = by_slot(lab.looks[policy][-1], lab.mix.shape.slot_s)
    for slot in sorted(slots):
        cells = []
        for number in arrays:
            look = slots[slot].get(number)
            if look is None:
                cells.append("")
                continue
            throttle = "no bound" if look.throttle == 0 else f"at most {look.throttle}"
            waits = f"{throttle}, deferred" if look.deferred else throttle if look.waits else "none wait"
            cells.append(f"{look.running} run ({waits})")
        made.add_row(str(slot - min(slots)), *cells)
    return made


def kept(path: Path) -> dict[str, dict[str, float]]:
    """The figures of other policies that are there already; none if they cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: figures for name, figures in found.items() if name in POLICIES}


def table(comparison: Comparison, title: str) -> Table:
    """Figures by policy, medians of all runs, with the ratio to Slurm alone."""
    made = Table(title=title, box=box.SIMPLE_HEAD)
    made.add_column("")
    for policy in comparison.figures:
        made.add_column(policy, justify="right", no_wrap=True)
    for figure, name, form in ROWS:
        if all(math.isnan(getattr(figures, figure)) for figures in comparison.figures.values()):
            continue
        cells = []
        for policy, figures in comparison.figures.items():
            text = form.format(getattr(figures, figure))
            ratio = comparison.ratio(policy, figure)
            if figure in COMPARED and policy not in ALONE and not math.isnan(ratio):
                text += f"  ×{ratio:.2f}"
            cells.append(text)
        made.add_row(name, *cells)
    return made


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("mixes", nargs=-1, metavar="[MIX]...")
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
@click.option(
    "--nodes", type=click.IntRange(1, 64), help="Nodes of the cluster; what the mix says by default."
)
@click.option("--cpus", type=click.IntRange(1, 64), help="Cores of each node; what the mix says by default.")
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
    help="Only these (repeat it); all that suit the mix by default.",
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
    help="Write the figures here (JSON); those of other policies that are there stay.",
)
@click.option(
    "--logs", type=click.Path(file_okay=False, path_type=Path), help="Keep the daemons' logs in this folder."
)
def main(
    mixes: tuple[str, ...],
    runs: int,
    learning: int,
    scale: float,
    nodes: int | None,
    cpus: int | None,
    memory_mb: int,
    policies: tuple[str, ...],
    sample: Path | None,
    out: Path,
    logs: Path | None,
) -> None:
    """Run each MIX (a TOML file, or one by name) on a real Slurm on this machine.

    By name there are half-light, shared-node, shared-varied, all-compute, gangs, arrays, testbed and testbed-long.

    Under Slurm alone, with static lending and with asad, or (where jobs state what they are worth) in Slurm's own order
    and with admission; and print what came of each. half-light and arrays by default. Needs root.
    """
    console = Console(stderr=True)
    try:
        read = [read_mix(Path(mix)).scaled(scale) for mix in mixes or MIXES]
        missing = []
        for jobs in read:
            shape = replace(jobs.shape, nodes=nodes or jobs.shape.nodes, cpus=cpus or jobs.shape.cpus)
            chosen = policies or (ADMISSION if jobs.has_worth else LENDING)
            with RealSlurm(nodes=shape.nodes, cpus=shape.cpus, memory_mb=memory_mb, pin=shape.pin) as slurm:
                lab = Lab(slurm, replace(jobs, shape=shape), runs, learning, console)
                lab.runner.calibrate()
                rates = ", ".join(f"{name} {rate:.0f}" for name, rate in lab.runner.units_per_s.items())
                lab.show(
                    f"{shape.nodes} nodes of {shape.cpus} cores are up; units of work a CPU second: {rates}"
                )
                lab.show(
                    f"{jobs.name}: {len(jobs.jobs)} jobs, {jobs.core_s:.0f} core-seconds, {jobs.light_part:.0%} of "
                    "them in jobs that use less than half of their CPU"
                )
                for policy in chosen:
                    lab.run_policy(policy)
                alone = next((name for name in ALONE if lab.done.get(name)), None)
                if sample is not None and alone is not None:
                    sample.write_text(lab.runner.sample(lab.done[alone]), encoding="utf-8")
                if logs is not None:
                    lab.keep_logs(logs / jobs.name if len(read) > 1 else logs)
            cores = shape.nodes * shape.cpus
            comparison = compare(lab.done, cores, lab.nominal_s, lab.mix.worth, lab.looks)
            Console().print(table(comparison, f"{jobs.name}, median of {runs}"))
            if jobs.has_worth:
                Console().print(worth_table(lab, f"{jobs.name}: the last run, job by job"))
                for policy in comparison.figures:
                    Console().print(throttle_table(lab, policy, f"{policy}: arrays, slot by slot"))
            figures = kept(out) | comparison.to_json()
            out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
            console.print(f"figures: {out}", markup=False, soft_wrap=True)
            missing += [policy for policy in chosen if policy not in comparison.figures]
        if missing:
            raise LabError(f"no figures of {', '.join(missing)}; what went wrong stands above")
    except (LabError, OSError) as error:
        console.print(f"lab: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
