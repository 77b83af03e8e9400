"""`python -m lab.soak`: days of a busy cluster through the daemon, and what of it grows. `make soak` calls it."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from lab.soak.daemon import START_S, SoakDaemon
from lab.soak.figures import FILLING, Series, Slope, census, kept_by_modules, of_process, of_store
from lab.soak.slurm import DAY_S, Load, MadeUpSlurm

OUT = Path("build") / "soak.json"
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
"""What asad.service sets: memory that squeue's answer took is released after each cycle."""
HOUR_S = 3600.0
SETTLED_DAYS = 2.0
"""From then on nothing may grow."""
SHOWN = ("rss_mib", "descriptors", "threads", "cycle_cpu_ms", "cycle_wall_ms", "store_mib")
KNOWN = {"rows learned": "one row for every name of an application"}
"""What grows with what comes, and why."""


class Soak:
    """One run."""

    def __init__(self, load: Load, seed: int, settings: dict[str, Any], folder: Path) -> None:
        self.load, self.settings = load, settings
        self.slurm = MadeUpSlurm(load, seed, START_S)
        cycles = max(1, round(load.days * DAY_S / settings["interval_s"]))
        self.daemon = SoakDaemon(folder, self.slurm, settings, cycles)
        self.daemon.after_cycle = self._measure
        self.series = Series()
        self._cpu_s = self._wall_s = 0.0
        self._since = 0
        self._next_s = self._census_s = 0.0
        self.report = lambda soak: None
        self.begin_s = time.monotonic()

    @property
    def day(self) -> float:
        return (self.slurm.now_s - START_S) / DAY_S

    def run(self) -> None:
        """All cycles. Raises whatever the daemon raises."""
        self.daemon.run()

    def _measure(self) -> None:
        """Every hour of the cluster the process and the mean cycle, every six the store and all containers."""
        daemon, slurm = self.daemon, self.slurm
        self._cpu_s, self._wall_s = self._cpu_s + daemon.cpu_s, self._wall_s + daemon.wall_s
        self._since += 1
        now_s = slurm.now_s - START_S
        if now_s < self._next_s:
            return
        self._next_s = now_s + HOUR_S
        daemon.asker.ask(next(map(str, slurm.running), "1"))
        figures = of_process() | {
            "cycle_cpu_ms": 1000.0 * self._cpu_s / self._since,
            "cycle_wall_ms": 1000.0 * self._wall_s / self._since,
            "jobs running": float(len(slurm.running)),
            "jobs waiting": float(len(slurm.waiting)),
            "guests running": float((slurm.lent > 0).sum()),
        }
        self._cpu_s = self._wall_s = 0.0
        self._since = 0
        if now_s >= self._census_s:
            self._census_s = now_s + 6 * HOUR_S
            figures |= of_store(daemon.config.store_url)
            held = census(daemon) | kept_by_modules()
            figures |= {f"entries {path}": float(count) for path, count in held.items()}
        self.series.add(self.day, figures)
        self.report(self)

    @property
    def settled_days(self) -> float:
        return min(SETTLED_DAYS, self.load.days / 3.0)

    def slopes(self) -> dict[str, Slope]:
        """Of what was measured since nothing may grow any more."""
        return self.series.slopes(self.settled_days, self.settings["retention_days"] + 1.0)

    def result(self) -> dict[str, Any]:
        """All that is to be known of the run."""
        daemon, slurm = self.daemon, self.slurm
        oldest_s = self.series.values.get("oldest_s", [slurm.now_s])[-1]
        return {
            "load": self.load._asdict(),
            "settings": self.settings,
            "cycles": daemon.cycle.number,
            "failed": daemon.figures.failed,
            "skipped": daemon.figures.skipped,
            "decisions": daemon.cycle.decisions,
            "submitted": slurm.submitted,
            "finished": slurm.finished,
            "applications": len(daemon.cluster.applications),
            "guests": slurm.guests,
            "asked": daemon.asker.asked,
            "unanswered": daemon.asker.failed,
            "dropped": daemon.writer.dropped,
            "oldest_row_days": (slurm.now_s - oldest_s) / DAY_S,
            "wall_s": round(time.monotonic() - self.begin_s, 1),
            "cpu_s": round(time.process_time(), 1),
            "settled_days": self.settled_days,
            "slopes": {name: _plain(found) for name, found in self.slopes().items()},
            "series": self.series.to_json(),
        }


def _plain(found: Slope) -> dict[str, Any]:
    values = {key: None if math.isnan(value) else value for key, value in found._asdict().items()}
    return values | {"grows": found.grows}


def show(console: Console, result: dict[str, Any], slopes: Mapping[str, Slope]) -> bool:
    """The table; is all flat?"""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("figure", "mean", "a day", "± standard error", "points", ""):
        table.add_column(name, justify="left" if name in ("figure", "") else "right")
    alike: dict[Slope, list[str]] = {}  # containers that grow together
    for name, found in slopes.items():
        if found.grows and name.startswith("entries "):
            alike.setdefault(found, []).append(name)
    growing = {names[0]: len(names) - 1 for names in alike.values()}
    fine = True
    for name in (*SHOWN, *(name for name in slopes if name.startswith("rows ")), *growing):
        if name not in slopes:
            continue
        found = slopes[name]
        why = KNOWN.get(name, "")
        fine = fine and (not found.grows or bool(why))
        verdict = f"grows{f': {why}' if why else ''}" if found.grows else "flat"
        if math.isnan(found.a_day):
            verdict = "fills up to the retention" if name in FILLING else "too short to say"
        more = f" and {growing[name]} alike" if growing.get(name) else ""
        figures = f"{found.mean:.6g}", f"{found.a_day:+.3g}", f"{found.error:.2g}", str(found.points)
        table.add_row(f"{name}{more}", *figures, verdict)
    console.print(table)
    console.print(
        f"{result['cycles']} cycles ({result['failed']} failed), {result['submitted']} jobs of "
        f"{result['applications']} applications, {result['guests']} guests, {result['decisions']} decisions; "
        f"{result['asked']} questions, {result['unanswered']} unanswered; from day {result['settled_days']:g} on; "
        f"oldest row {result['oldest_row_days']:.2f} days; {result['cpu_s']:.0f} s of CPU, {result['wall_s']:.0f} s"
    )
    return fine


@click.command()
@click.option("--days", default=30.0, show_default=True, help="Of the cluster.")
@click.option("--seed", default=1, show_default=True)
@click.option("--nodes", default=1000, show_default=True)
@click.option("--jobs", default=500_000, show_default=True, help="In thirty days.")
@click.option("--applications", default=100_000, show_default=True, help="Names of jobs in thirty days.")
@click.option(
    "--interval", default=300.0, show_default=True, help="Seconds of the cluster from cycle to cycle."
)
@click.option(
    "--retention", default=7.0, show_default=True, help="Days that the store keeps what was decided."
)
@click.option("--admit", default="everyone", show_default=True)
@click.option("--defer", default="at-once", show_default=True)
@click.option(
    "--trace", is_flag=True, help="Report where in the code what has grown since it settled was made (slow)."
)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
def main(
    days: float,
    seed: int,
    nodes: int,
    jobs: int,
    applications: int,
    interval: float,
    retention: float,
    admit: str,
    defer: str,
    trace: bool,
    out: Path,
) -> None:
    """Run the daemon over days of a busy, made-up cluster whose clock is advanced, and fail if anything grows."""
    if any(os.environ.get(name) != value for name, value in ALLOCATION.items()):
        os.execve(sys.executable, [sys.executable, "-m", "lab.soak", *sys.argv[1:]], os.environ | ALLOCATION)  # noqa: S606
    part = days / 30.0
    load = Load(nodes=nodes, jobs=round(jobs * part), applications=round(applications * part), days=days)
    settings = {"interval_s": interval, "retention_days": retention, "admit": admit, "defer": defer}
    console = Console(width=None if sys.stdout.isatty() else 160)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with (
        tempfile.TemporaryDirectory(prefix="asad-soak-") as name,
        Progress(*columns, console=console) as progress,
    ):
        soak = Soak(load, seed, settings, Path(name))
        task = progress.add_task("", total=days)
        first: list[tracemalloc.Snapshot] = []

        def report(soak: Soak) -> None:
            values = soak.series.values
            text = f"day {soak.day:.2f}: {values['rss_mib'][-1]:.0f} MiB, {values['cycle_cpu_ms'][-1]:.0f} ms a cycle"
            progress.update(task, completed=soak.day, description=text)
            if not console.is_terminal and len(values["rss_mib"]) % 6 == 0:
                console.print(text)
            if trace and not first and soak.day >= min(SETTLED_DAYS, days / 3.0):
                tracemalloc.start(5)
                first.append(tracemalloc.take_snapshot())

        soak.report = report
        soak.run()
    result = soak.result()
    if first:
        last = tracemalloc.take_snapshot()
        for found in last.compare_to(first[0], "traceback")[:15]:
            console.print(
                f"{found.size_diff / 2**20:+.2f} MiB", *found.traceback.format(), sep="\n", markup=False
            )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1, default=float) + "\n", encoding="utf-8")
    fine = show(console, result, soak.slopes())
    sys.exit(0 if fine and not result["failed"] and not result["unanswered"] else 1)


if __name__ == "__main__":
    main()
