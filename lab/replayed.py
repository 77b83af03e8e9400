"""`python -m lab.replayed MIX`: is a replay right? Its estimate of what asad brings, held against the real asad.

A mix is run on a real Slurm by turns under Slurm alone and under asad. The log of Slurm alone, as accounting has it, is
then replayed under `asax` with the configuration of that very daemon, once on the recorded starts and once on the
simulated Slurm, and what each replay says of the mean response is compared with what it really came to.

asad runs the mix some times before it is measured, and learns. So the replayed log has as many earlier runs of Slurm
alone before the one that counts; the jobs of that one alone are compared.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, get_args

import click
from rich import box
from rich.console import Console
from rich.table import Table

from asad.config import load
from asad.errors import AsadError
from asad.replay.baseline import resolved
from asad.replay.machine_files import read_machine
from asad.replay.readers import read_log
from asad.replay.replay_settings import Settings
from asad.replay.run import replay
from lab import LabError
from lab.live import WINDOW_S, LiveAsad
from lab.measure import JobRun
from lab.mix import Mix, read_mix
from lab.run import MixRunner
from lab.slurm import RealSlurm

Baseline = Literal["recorded", "simulated"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
POLICY = "asax"
BACKFILL_S = 2.0
"""The interval of the lab's backfill (`bf_interval` in lab/slurm.py)."""


# ------------------------------------------------------------------------------------------------------------- figures


class Outcome(NamedTuple):
    """Of one run, real or replayed."""

    alone_s: float
    """Mean response under Slurm alone."""
    asad_s: float
    """The same with asad."""
    guests: int

    @property
    def change(self) -> float:
        """Part by which asad changes it: -0.25 is a quarter less."""
        return self.asad_s / self.alone_s - 1


@dataclass(frozen=True, slots=True)
class Run:
    """What really came of it, and what the replays say."""

    real: Outcome
    replays: Mapping[Baseline, Outcome]

    def error_points(self, baseline: Baseline) -> float:
        """Change by a replay less the real one, in percentage points; below 0 the replay promised too much."""
        return 100 * (self.replays[baseline].change - self.real.change)

    def error_ratio(self, baseline: Baseline) -> float:
        """Response with asad over that without, by a replay, over the real one."""
        return (1 + self.replays[baseline].change) / (1 + self.real.change)

    def to_json(self) -> dict[str, Any]:
        rows: dict[str, Any] = {"real": _plain(self.real)}
        for baseline in self.replays:
            rows[baseline] = _plain(self.replays[baseline]) | {
                "error_points": self.error_points(baseline),
                "error_ratio": self.error_ratio(baseline),
            }
        return rows


def _plain(outcome: Outcome) -> dict[str, float]:
    return outcome._asdict() | {"change": outcome.change}


def mean_response_s(jobs: Sequence[JobRun]) -> float:
    """Mean of end - submission."""
    return statistics.fmean(job.end_s - job.submit_s for job in jobs)


def spread(values: Sequence[float], form: str) -> str:
    """The median and, of several, the lowest and the highest."""
    median = form.format(statistics.median(values))
    if len(values) == 1:
        return median
    return f"{median} ({form.format(min(values))} to {form.format(max(values))})"


def table(runs: Sequence[Run], title: str) -> Table:
    """What was real, and each replay: medians of all runs, with the lowest and the highest."""
    made = Table(title=title, box=box.SIMPLE_HEAD)
    made.add_column("")
    for column in ("Slurm alone (s)", "with asad (s)", "change", "error (points)", "error (ratio)", "guests"):
        made.add_column(column, justify="right", no_wrap=True)

    def row(name: str, outcomes: Sequence[Outcome], errors: tuple[str, str]) -> None:
        made.add_row(
            name,
            spread([one.alone_s for one in outcomes], "{:.1f}"),
            spread([one.asad_s for one in outcomes], "{:.1f}"),
            spread([one.change for one in outcomes], "{:+.1%}"),
            *errors,
            spread([one.guests for one in outcomes], "{:g}"),
        )

    row("real Slurm", [run.real for run in runs], ("", ""))
    for baseline in BASELINES:
        points = spread([run.error_points(baseline) for run in runs], "{:+.1f}")
        ratio = spread([run.error_ratio(baseline) for run in runs], "×{:.3f}")
        row(f"replay, {baseline}", [run.replays[baseline] for run in runs], (points, ratio))
    return made


# ------------------------------------------------------------------------------------------------------------- running


def replayed(
    log: Path, machine: Path, config: Path, baseline: Baseline, counts: frozenset[str], seed: int
) -> Outcome:
    """What a replay of `log` under the daemon's configuration says of the jobs whose ids count.

    Raises AsadError where it cannot be replayed so, LabError where one of those jobs is not in it.
    """
    loaded = load(config)
    settings = Settings(
        policies=("slurm", POLICY),
        baseline=baseline,
        seed=seed,
        poll_s=loaded.daemon.interval_s,
        window_s=WINDOW_S,
        backfill_interval_s=BACKFILL_S,
        use_memory=True,
        config=loaded,
        vary_demand=False,
    )
    recorded, described = read_log(str(log)), read_machine(machine)
    settings, _ = resolved(settings, recorded)
    result = replay(recorded, described, settings)
    rows = [row for row, job in enumerate(result.job_id.tolist()) if str(job) in counts]
    if len(rows) != len(counts):
        raise LabError(
            f"{log}: {len(rows)} of {len(counts)} jobs were read; look at its notes: {result.log['notes']}"
        )
    alone, asad = (
        float((result.policies[name].end_s[rows] - result.submit_s[rows]).mean())
        for name in ("slurm", POLICY)
    )
    return Outcome(alone, asad, int(result.policies[POLICY].guest[rows].sum()))


class Series:
    """Runs of a mix, by turns without and with asad, on one cluster."""

    def __init__(self, slurm: RealSlurm, mix: Mix, folder: Path, show: Callable[[str], None]) -> None:
        self.slurm, self.mix, self.folder, self.show = slurm, mix, folder, show
        self.runner = MixRunner(slurm, show)
        self.alone: list[list[JobRun]] = []
        """Every run under Slurm alone, those before the first that counts too."""
        self.discarded = 0
        """Runs that do not count because jobs did not complete, with or without asad."""
        self.machine = folder / "slurm.conf"

    def run(self, number: int, learning: int) -> Run | None:
        """One run without and one with asad; None while it learns, and where jobs did not complete."""
        alone = self.runner.run(self.mix, lambda ended, total: None)
        self.alone.append(alone)
        self.slurm.clear()
        with LiveAsad(self.slurm, POLICY, fresh=number == 0) as live:
            beside = self.runner.run(self.mix, lambda ended, total: None, live.check)
            if live.faults():
                raise LabError(f"asad had faults of its own; its log ends:\n{live.last_words()}")
            config = live.config
        self.slurm.clear()
        completed = [sum(job.completed for job in jobs) for jobs in (alone, beside)]
        real = Outcome(mean_response_s(alone), mean_response_s(beside), sum(job.guest for job in beside))
        learns = " (learning)" if number < learning else ""
        self.show(
            f"run {number + 1}{learns}: {real.alone_s:.1f} and {real.asad_s:.1f} s, {real.guests} guests"
        )
        if learns:
            return None
        if min(completed) < len(self.mix.jobs):
            self.discarded += 1
            self.show(
                f"this run does not count: of {len(self.mix.jobs)} jobs {completed[0]} completed under Slurm alone, "
                f"{completed[1]} under asad"
            )
            return None
        # accounting's node names and those of slurm.conf, without the name of the cluster
        log = self.folder / f"{self.mix.name}-{number + 1}.txt"
        log.write_text(self.runner.sample(self.alone[-1 - learning :]), encoding="utf-8")
        conf = self.slurm.conf.read_text(encoding="utf-8")
        self.machine.write_text(conf.replace(f"{self.slurm.name}n", "n"), encoding="utf-8")
        counts = frozenset(job.job_id for job in alone)
        return Run(
            real,
            {
                baseline: replayed(log, self.machine, config, baseline, counts, number)
                for baseline in BASELINES
            },
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("mix")
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs that count.")
@click.option(
    "--learning",
    type=click.IntRange(0, 100),
    default=2,
    show_default=True,
    help="Runs before them, in which asad learns; so many are in the replayed log, too.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0.05, 100),
    default=1.0,
    show_default=True,
    help="Multiplies all times of the mix.",
)
@click.option(
    "--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here."
)
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the replayed logs and their slurm.conf in this folder.",
)
def main(mix: str, runs: int, learning: int, scale: float, out: Path | None, logs: Path | None) -> None:
    """Hold replays of the lab's own log against the real asad, on MIX (a TOML file, or one of lab/mixes by name).

    Needs root, and a machine that is idle otherwise.
    """
    console = Console(stderr=True)

    def show(text: str) -> None:
        printable = "".join(letter if letter.isprintable() else " " for letter in text)
        console.print(
            f"{time.strftime('%H:%M:%S')} {printable}", markup=False, highlight=False, soft_wrap=True
        )

    done: list[Run] = []
    discarded = 0
    try:
        jobs = read_mix(Path(mix)).scaled(scale)
        if any(job.tasks > 1 or job.utility for job in jobs.jobs):
            raise LabError(
                f"{mix}: has arrays, or jobs that state what they are worth; choose a mix for lending"
            )
        shape = jobs.shape
        with (
            TemporaryDirectory() as temporary,
            RealSlurm(nodes=shape.nodes, cpus=shape.cpus, pin=shape.pin) as slurm,
        ):
            folder = logs or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            series = Series(slurm, jobs, folder, show)
            series.runner.calibrate()
            for number in range(learning + runs):
                run = series.run(number, learning)
                discarded = series.discarded
                if run is None:
                    continue
                done.append(run)
                if out is not None:  # after each, so that what has been measured is not lost
                    written = {
                        "mix": jobs.name,
                        "scale": scale,
                        "discarded": series.discarded,
                        "runs": [run.to_json() for run in done],
                    }
                    out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
        if not done:
            raise LabError(
                "in no run did all jobs complete; run on an idle machine, or with a greater --scale"
            )
    except (LabError, AsadError, OSError) as error:
        console.print(f"lab: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    finally:
        if done:
            title = f"{jobs.name}: mean response, median of {len(done)}"
            title += f" ({discarded} more did not count: jobs were killed)" if discarded else ""
            Console(width=150).print(table(done, title))


if __name__ == "__main__":
    main()
