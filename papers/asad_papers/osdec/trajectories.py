"""From where the commands of deferral learn: a file of trajectories, an accounting log, or drawn ones."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from asad.errors import AsadError, UsageError

if TYPE_CHECKING:
    from asad.defer.jobs import Trajectories

F = TypeVar("F", bound=Callable[..., Any])
OPTIONS = (
    click.option(
        "--log",
        "path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Learn from FILE: trajectories (.npz), or an accounting log.",
    ),
    click.option(
        "--generate", "many", type=click.IntRange(5), metavar="N", help="Learn from N drawn trajectories."
    ),
    click.option(
        "--setting",
        default="recorded",
        show_default=True,
        metavar="NAME",
        help="From what they are drawn, as in asactl bench osdec.",
    ),
    click.option(
        "--deferrable",
        default="share=0.2,window=4h",
        show_default=True,
        metavar="WORDS",
        help="Of an accounting log: which share of the jobs is taken for deferrable, and by how much.",
    ),
    click.option(
        "--step", default="30m", show_default=True, metavar="TIME", help="Of an accounting log: one step."
    ),
    click.option(
        "--cores",
        type=click.IntRange(1),
        metavar="N",
        help="Of an accounting log: cores of the cluster [default: the most in use].",
    ),
)


KEPT = 0.2
"""Part of the trajectories that nothing is learned from: there the figures are measured, and the best is chosen."""


def of_trajectories(command: F) -> F:
    """The options that `trajectories` reads, for a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def trajectories(
    first_seed: int,
    path: Path | None,
    many: int | None,
    setting: str,
    deferrable: str,
    step: str,
    cores: int | None,
) -> tuple[Trajectories, float]:
    """What there is to learn from, and the steps of a day; `first_seed` is that of the first drawn one.

    Raises UsageError for none or two sources, and what reading them raises.
    """
    from asad_papers.osdec.deferral_instances import SETTINGS, Setting, draw_trajectories, read_trajectories

    if path is None and many is not None:
        from asad_papers.harness import chosen

        (name,) = chosen(setting, "--setting", tuple(SETTINGS))[:1]
        drawn = draw_trajectories(range(first_seed, first_seed + many), SETTINGS[name])
        return drawn, float(SETTINGS[name].period)
    if path is None or many is not None:
        raise UsageError("asactl defer: learn from --log FILE or from --generate N; give one of them")
    if path.suffix == ".npz":
        return read_trajectories(path), float(Setting().period)
    from asad.cli.replay import seconds
    from asad.replay.readers import read_log
    from asad_papers.osdec.deferral_logs import from_log, parse_deferrable

    step_s = seconds(step, "--step")
    share, window_s = parse_deferrable(deferrable)
    return from_log(read_log(path).jobs, cores, step_s, share, window_s)


def split(found: Trajectories, command: str, least: int) -> tuple[Trajectories, Trajectories]:
    """What is learned from, and what is kept aside. Raises UsageError for fewer than `least`."""
    many = len(found)
    if many < least:
        raise UsageError(
            f"defer {command}: {many} trajectories are too few to learn from; give at least {least} "
            "(of a log: a longer one)"
        )
    kept = max(1, round(KEPT * many))
    return found.take(range(many - kept)), found.take(range(many - kept, many))


def make_folder(folder: Path) -> None:
    """For what is learned. Raises UsageError where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be made ({error.strerror})") from error


def on_real_load(path: Path, columns: str | None) -> tuple[Trajectories, float]:
    """The on-demand load of an accounting log, scaled to a cluster of 100 cores, with drawn deferrable jobs; and the
    steps of a day. Raises what reading it raises.
    """
    from asad.replay.readers import read_log
    from asad_papers.osdec.deferral_instances import Setting, draw_jobs
    from asad_papers.osdec.deferral_logs import DAY_S, on_demand

    setting = Setting()
    recorded = read_log(path, columns=None if columns is None else columns.split(","))
    capacity, steps_a_day = on_demand(recorded, DAY_S / setting.period, setting.total)
    return draw_jobs(capacity, setting), float(steps_a_day)


def real_loads(paths: Sequence[Path], columns: str | None) -> list[tuple[str, Trajectories, float]]:
    """Name, trajectories and steps a day of each log; for no paths, of those in the folder that ASAD_TRACES names.

    Without it that is ../shared/traces. Of a folder, logs are left out that cannot be read without `columns`. Raises
    what reading those that were named raises.
    """
    if paths:
        return [(_stem(path), *on_real_load(path, columns)) for path in paths]
    folder = Path(os.environ.get("ASAD_TRACES") or "../shared/traces")
    found = []
    for path in sorted(folder.glob("*")):
        if re.search(r"\.(swf|sacct|csv)(\.gz)?$", path.name):
            with contextlib.suppress(AsadError):
                found.append((_stem(path), *on_real_load(path, None)))
    return found


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]
