"""`asactl calibrate`: measure the constants of the contention model on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich import box
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from asad.calibrate.crowds import crowd_windows, with_crowds
from asad.calibrate.fitting import MU
from asad.calibrate.groups import find_controller
from asad.calibrate.pairs import calibrate as measure
from asad.calibrate.pairs import window_count
from asad.calibrate.result import Calibration
from asad.calibrate.workloads import PAIRS
from asad.cli.screen import JSON, respond
from asad.errors import UsageError
from asad.report.terminal import terminal_console

NOISY_FRACTION = 0.05
"""Above this share of the cores taken by others, the operator is asked to measure again."""


def leave(number: int, frame: FrameType | None) -> None:
    """Turn SIGTERM into an exception, so that quotas and groups are cleaned up on the way out."""
    raise SystemExit(128 + number)


def screen(calibration: Calibration) -> Iterator[Table | str]:
    """Constants, then predicted and measured rates of every pair and crowd."""
    document: Any = calibration.to_json()
    facts = calibration.provenance
    constants = _table("Constants of the contention model", "lending", "constant")
    for heading in ("value", "spread (IQR)", "before clipping"):
        constants.add_column(heading, justify="right")
    for mode, table in (("idle", document), ("static", document.get("static"))):
        for key in MU if table else ():
            figures = (table[key], table["spread"][key], table["unclipped"][key])
            constants.add_row(mode, key, *(f"{figure:.3f}" for figure in figures))
    yield constants

    pairs = _table("Rates beside each other over rates alone", "host", "guest", "lending")
    _add_rates(pairs, "host", "guest")
    for row in document["measured"]["pair"]:
        pairs.add_row(row["host"], row["guest"], f"{row['mode']} {row['share']:.0%}", *_rates(row))
    yield pairs
    crowds = _table(
        "Several hosts and guests: mean rates over rates alone", "hosts, a core each", "guests", "on"
    )
    _add_rates(crowds, "hosts", "guests")
    for row in document["measured"]["crowd"]:
        hosts = f"{row['hosts']}{' (wait for each other)' if row['barrier'] else ''}"
        crowds.add_row(hosts, row["guests"], "all cores" if row["wide"] else "own cores", *_rates(row))
    yield crowds
    yield (
        f"{facts.cores} core(s), {facts.repeats} × {facts.seconds:g} s a window; quotas: {facts.quotas} "
        f"(cgroup {facts.cgroup}), idle class: {facts.idle_class}; "
        f"others took {calibration.other_fraction:.1%} of the cores."
    )


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _add_rates(table: Table, host: str, guest: str) -> None:
    """The columns that `_rates` fills."""
    for heading in (f"{host}\nmodel", "\nmeasured", f"{guest}\nmodel", "\nmeasured"):
        table.add_column(heading, justify="right", no_wrap=True)


def _rates(row: Mapping[str, Any]) -> Iterator[str]:
    """What the model predicts and what was measured, of host and guest."""
    for role in ("host", "guest"):
        yield f"{row[f'predicted_{role}']:.2f}"
        yield f"{row[f'measured_{role}']:.2f} ±{row[f'measured_{role}_iqr']:.2f}"


def write_whole(path: Path, text: str) -> None:
    """Replace `path` in one step, so that a reader never sees half a file."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"{path}: cannot be written ({error.strerror}); name a writable file") from error


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    help="Length of a window; a figure to rely on needs at least ten quota periods, that is 1 s.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Windows of each kind a pair.",
)
@click.option(
    "--cores",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Cores that each pair shares, one worker of each job a core.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the constants here, for `asactl replay` to use; without it nothing is stored.",
)
@JSON
def calibrate(seconds: float, repeat: int, cores: int, out: Path | None, as_json: bool) -> None:
    """Measure what sharing a core costs, and fit the contention model.

    Runs pairs of workloads (compute, memory streaming, part-time) on the same core under real CPU quotas, then
    several hosts and guests on the same cores, and compares their progress with their progress alone. Needs
    write access to a cgroup (root) for quotas; without it the guest runs under SCHED_IDLE, uncapped, and the
    result says so. Best on an otherwise idle
    node: it takes some minutes and keeps the cores that it measures busy.
    """
    notes = terminal_console(stderr=True, highlight=True)
    allowed = len(os.sched_getaffinity(0))
    if cores > allowed:
        raise UsageError(f"--cores {cores}: this process may use {allowed}; ask for at most that many")
    if out is not None and not out.absolute().parent.is_dir():
        raise UsageError(f"{out}: its folder does not exist; create it, or name another file")
    previous = signal.signal(signal.SIGTERM, leave)
    try:
        controller = find_controller()
        if controller is None:
            notes.print(
                "asactl: no cgroup with CPU quotas can be written: quotas are NOT real, the guest only runs "
                "under SCHED_IDLE. Run as root for real quotas.",
                markup=False,
            )
        windows = window_count(len(PAIRS), repeat, controller is not None) + crowd_windows(cores, repeat)
        with Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeRemainingColumn(),
            console=notes,
            refresh_per_second=1,  # drawing takes CPU from the measurement
            disable=not notes.is_terminal,
        ) as progress:
            task = progress.add_task("starting", total=windows)

            def on_window(what: str) -> None:
                progress.update(task, description=what[:36].ljust(36), advance=1)

            calibration = measure(seconds, repeat, cores, PAIRS, controller, on_window)
            calibration = with_crowds(calibration, controller, on_window)
    finally:
        signal.signal(signal.SIGTERM, previous)
    if calibration.leftovers:
        notes.print(f"removed groups of a killed run: {', '.join(calibration.leftovers)}", markup=False)
    if calibration.other_fraction > NOISY_FRACTION:
        notes.print(
            f"asactl: others took {calibration.other_fraction:.1%} of the cores; "
            "measure again on a quiet node",
            markup=False,
        )
    if out is not None:
        write_whole(out, calibration.to_toml())
    respond(as_json, calibration.to_json, lambda: screen(calibration))
    if out is None and not as_json:
        notes.print("Nothing was written; --out FILE keeps the constants.", markup=False)
