"""`asactl sweep`: logs × configurations × seeds, on this machine, a Dask cluster, or the nodes of a Slurm."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from asad.bounded import printable
from asad.cli import completion
from asad.cli.listing_fields import Chosen
from asad.cli.listings import listed
from asad.cli.output import require_folder
from asad.cli.screen import JSON, STORE, YES, counted, duration, print_line, respond
from asad.errors import AsadError, UsageError
from asad.report.terminal import terminal_console
from asad.store import sweeps
from asad.store.store import Store

if TYPE_CHECKING:
    from asad.cli.sweep_tasks import Outcome, Sweep, Task
    from asad.sweep.coordinator import Workers

LINE_EVERY_S = 30.0
"""Where standard error is no terminal, progress is a line now and then."""
REPORT = click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an HTML page with means, confidence intervals and differences.",
)


def _sbatch(*names: str, metavar: str) -> Callable[[Any], Any]:
    """An option that is sbatch's own."""
    return click.option(*names, metavar=metavar, help=f"With --slurm: as sbatch's {names[0]}.")


@click.group()
def sweep() -> None:
    """Replay logs under several configurations, with several seeds: each a task of its own, kept in the store as soon
    as it is done."""


@sweep.command("run", short_help="Run a sweep, or go on with one.")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--log", "logs", multiple=True, metavar="FILE", help="A log, instead of a sweep file; may be given again."
)
@click.option(
    "--policy",
    metavar="NAME,…",
    shell_complete=completion.policies,
    help="Policies, each a configuration of its own; instead of a sweep file.",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="An asad.toml, a configuration too; may be given again.",
)
@click.option(
    "--seeds", metavar="N|N,…", help="So many seeds from 0 on, or these (`7,` for one) [default: 5]."
)
@click.option(
    "--baseline", metavar="NAME", help="Configuration that the others are compared with [default: the first]."
)
@click.option("--name", metavar="NAME", help="Under which the results are kept [default: that of the file].")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of asactl replay for every task, `nodes=100` or `use-sd=0.1`; may be given again.",
)
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes of this machine [default: its cores]."
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Run on the Dask cluster whose scheduler is at tcp://HOST:PORT or tls://HOST:PORT.",
)
@click.option(
    "--slurm", is_flag=True, help="Run on nodes of this machine's Slurm, in jobs that end with the sweep."
)
@click.option(
    "--nodes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="With --slurm: jobs, of one node each.",
)
@click.option(
    "--cpus-per-task",
    "-c",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="With --slurm: processes of each job, of one CPU each.",
)
@_sbatch("--partition", "-p", metavar="NAME")
@_sbatch("--account", "-A", metavar="NAME")
@_sbatch("--qos", "-q", metavar="NAME")
@_sbatch("--constraint", "-C", metavar="FEATURES")
@_sbatch("--time", "-t", metavar="TIME")
@_sbatch("--mem", metavar="SIZE")
@click.option(
    "--sbatch",
    "sbatch",
    multiple=True,
    metavar="OPTION",
    help="With --slurm: any other option of sbatch (--sbatch=--reservation=NAME); may be given again.",
)
@click.option(
    "--shared-folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="With --slurm: a folder that all nodes share, for the workers' keys and logs [default: the current one].",
)
@click.option(
    "--interface",
    metavar="NAME",
    help="With --slurm: network interface by which nodes reach each other (ib0).",
)
@STORE
@REPORT
@click.option("--retry-failed", is_flag=True, help="Run again what failed before.")
@click.option("--quiet", is_flag=True, help="No progress.")
@JSON
@click.pass_context
def run(
    context: click.Context,
    /,
    file: Path | None,
    logs: tuple[str, ...],
    policy: str | None,
    configs: tuple[str, ...],
    seeds: str | None,
    baseline: str | None,
    name: str | None,
    settings: tuple[str, ...],
    workers: int | None,
    dask: str | None,
    slurm: bool,
    store_url: str | None,
    report: Path | None,
    retry_failed: bool,
    quiet: bool,
    as_json: bool,
    **of_slurm: Any,
) -> None:
    """Run the sweep that FILE describes, or that the options do: every log under every configuration with every seed.

    What is in the store already is not run again, so that the same command goes on where one was killed, and runs
    what is new where the file names more. Leaves with 1 where a task failed; the others are run all the same.

    \b
    Examples:
      asactl sweep run sweep.toml --report sweep.html
      asactl sweep run --log log.txt --policy slurm,asax --seeds 10 \\
        --set nodes=16 --set cores=32
    """
    from asad.cli.sweep_tasks import read_sweep

    require_folder(report, "--report")
    hands = _workers(context, workers, dask, slurm, **of_slurm)
    given = {
        "logs": [{"log": str(Path(log).absolute())} for log in logs],
        "policies": [one.strip() for one in (policy or "").split(",") if one.strip()],
        "configurations": [{"config": str(Path(one).absolute()), "name": Path(one).stem} for one in configs],
        "seeds": None if seeds is None else _seeds(seeds),
        "baseline": baseline,
        "name": name,
    }
    whole = read_sweep(file, {key: value for key, value in given.items() if value}, settings)
    with Store.open(store_url) as store:
        there = sweeps.states(store, whole.name)
        skipped = ("done",) if retry_failed else ("done", "failed")
        missing = [task for task in whole.tasks if there.get(task.identity) not in skipped]
        if not quiet:
            print_line(_plan(whole, there, len(missing)), err=True)
        if missing:
            with hands as those, _progress(len(missing), quiet) as progress:
                _carry_out(whole, missing, those, store, progress)
        identities = {task.identity for task in whole.tasks}
        results = [one for one in sweeps.results(store, whole.name) if one.task in identities]
    _answer(results, report, as_json)
    context.exit(any(one.state == "failed" for one in results))


def _seeds(text: str) -> int | list[int]:
    """`10`, or `3,4`, or `3,`. Raises UsageError."""
    try:
        return [int(one) for one in text.split(",") if one.strip()] if "," in text else int(text)
    except ValueError:
        raise UsageError(
            f"--seeds {text}: write a number of seeds, or some with commas between them"
        ) from None


def _plan(whole: Sweep, there: dict[str, str], missing: int) -> str:
    logs, configurations, seeds = map(len, (whole.logs, whole.configurations, whole.seeds))
    states = [there.get(task.identity) for task in whole.tasks]
    found = ", ".join(f"{states.count(state)} {state}" for state in ("done", "failed") if state in states)
    return (
        f"sweep {printable(whole.name)}: {counted(logs, 'log')} x {counted(configurations, 'configuration')} x "
        f"{counted(seeds, 'seed')} = {counted(len(whole.tasks), 'task')}; "
        + (f"in the store already: {found}; " if found else "")
        + (f"{missing} to do" if missing else "nothing to do")
    )


def _workers(
    context: click.Context,
    count: int | None,
    dask: str | None,
    slurm: bool,
    *,
    nodes: int,
    cpus_per_task: int,
    sbatch: tuple[str, ...],
    shared_folder: Path,
    interface: str | None,
    **options: str | None,
) -> AbstractContextManager[Workers]:
    """Who carries out the tasks; they are started on entry. Raises UsageError for options that do not go together."""
    of_slurm = ("nodes", "cpus_per_task", "sbatch", "shared_folder", "interface", *options)
    alone = [name for name in of_slurm if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if not slurm and alone:
        raise UsageError(f"--{alone[0].replace('_', '-')} is an option of --slurm; give that with it")
    if (count is not None) + (dask is not None) + slurm > 1:
        raise UsageError("--workers, --dask and --slurm each say where tasks run; give one of them")
    if dask is not None:
        from asad.sweep.dask_workers import by_address

        return by_address(dask)
    if slurm:
        from asad.sweep.dask_workers import on_slurm

        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        return on_slurm(nodes, cpus_per_task, [*given, *sbatch], shared_folder, interface)
    from asad.sweep.local_processes import Processes, cores

    return Processes(count or cores())


def _carry_out(
    whole: Sweep, missing: Sequence[Task], workers: Workers, store: Store, progress: Doing
) -> None:
    """Compile first, once and not in every worker; then run what is missing, and keep each result when it is there."""
    from asad.cli.sweep_tasks import Outcome, replay_task, warm_up_task
    from asad.sweep.coordinator import carry_out

    def keep(task: Task, outcome: Outcome | BaseException) -> None:
        if isinstance(outcome, BaseException):
            now = time.time()
            outcome = Outcome(now, now, str(outcome) or type(outcome).__name__)
        sweeps.keep(store, whole.result(task, outcome))
        progress.ended(failed=bool(outcome.failure))

    progress.write("compiling what is not compiled yet")
    one_each = {task.place.configuration: task for task in reversed(missing)}
    for task in one_each.values():
        carry_out([task], workers, warm_up_task, lambda task, outcome: None)
    carry_out(missing, workers, replay_task, keep, progress.look)


class Doing:
    """Progress with an estimate, for whom it may concern."""

    def __init__(self, total: int, write: Callable[[str], None], every_s: float) -> None:
        self.total, self.write, self.every_s = total, write, every_s
        self.done = self.failed = self.running = 0
        self.began_s = self.written_s = time.monotonic()

    def look(self, running: int) -> None:
        """So many tasks are in the workers' hands."""
        if self.done == 0 and self.running == 0:
            self.began_s = (
                time.monotonic()
            )  # of compiling, and of waiting for nodes, nothing is to be estimated
        self.running = running
        if time.monotonic() - self.written_s >= self.every_s:
            self.written_s = time.monotonic()
            self.write(str(self))

    def ended(self, failed: bool) -> None:
        """One more has ended."""
        self.done += 1
        self.failed += failed

    def __str__(self) -> str:
        parts = [f"{self.done} of {counted(self.total, 'task')}"]
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.running} running" if self.running else "waiting for workers"]
        if self.done:  # if it goes on as it did
            spent_s = time.monotonic() - self.began_s
            parts += [f"about {duration(spent_s / self.done * (self.total - self.done))} left"]
        return ", ".join(parts)


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Doing]:
    """On standard error: a line that is written anew on a terminal, elsewhere one now and then; none if `quiet`."""
    if quiet:
        yield Doing(total, lambda text: None, math.inf)
    elif sys.stderr.isatty():
        with terminal_console(stderr=True, highlight=True).status("…") as status:
            yield Doing(total, status.update, 0.0)
    else:
        yield Doing(total, partial(click.echo, err=True), LINE_EVERY_S)


def _answer(results: Sequence[sweeps.SweepResult], report: Path | None, as_json: bool) -> None:
    from asad.report.html import write_whole
    from asad.store.urls import shown_words
    from asad.sweep.sweep_page import reading, to_json

    found = reading(results)
    if report is not None:
        try:
            write_whole(found.page(shlex.join(["asactl", *shown_words(sys.argv[1:])])), report)
        except OSError as error:
            raise AsadError(f"--report {report}: {error.strerror}; name a file that can be written") from None
    if as_json:
        respond(True, lambda: to_json(results), list)
        return
    found.print()
    if report is not None:
        click.echo(f"\nThe page with all figures: {report}")


# ------------------------------------------------------------------------------------------------ what is kept


@sweep.command("list", short_help="List the sweeps in the store.")
@STORE
@listed("sweep list")
@JSON
def list_command(store_url: str | None, chosen: Chosen, as_json: bool) -> None:
    """List the sweeps in the store, the newest first."""
    with Store.open(store_url, create=False) as store:
        found = chosen.ordered([_summary(sweeps.results(store, name)) for name in sweeps.names(store)])
    empty = "the store holds no sweeps yet; `asactl sweep run` makes some"
    respond(as_json, {"sweeps": found}, lambda: chosen.shown(found, empty=empty))


def _summary(results: Sequence[sweeps.SweepResult]) -> dict[str, Any]:
    logs, configurations, seeds = (
        len(set(names)) for names in zip(*(one.place for one in results), strict=True)
    )
    return {
        "sweep": results[0].sweep,
        "logs": logs,
        "configurations": configurations,
        "seeds": seeds,
        "tasks": max(int(one.settings["sweep"]["tasks"]) for one in results),
        "done": sum(one.state == "done" for one in results),
        "failed": sum(one.state == "failed" for one in results),
        "ended_at": max(one.ended_at for one in results),
    }


@sweep.command("show", short_help="Show what a sweep came to.")
@click.argument("name", shell_complete=completion.sweep_names)
@STORE
@REPORT
@JSON
def show(name: str, store_url: str | None, report: Path | None, as_json: bool) -> None:
    """Show means over seeds, their confidence intervals, and differences from the baseline, of what is there."""
    require_folder(report, "--report")
    with Store.open(store_url, create=False) as store:
        results = sweeps.results(store, name)
    _answer(results, report, as_json)


@sweep.command("rm", short_help="Remove a sweep.")
@click.argument("name", shell_complete=completion.sweep_names)
@STORE
@YES
@JSON
def remove(name: str, store_url: str | None, yes: bool, as_json: bool) -> None:
    """Remove all results of a sweep."""
    with Store.open(store_url, create=False) as store:
        results = sweeps.results(store, name)
        what = f"sweep {printable(name)} with {counted(len(results), 'result')}"
        if not yes:
            click.confirm(f"Remove {what} from {printable(str(store))}?", abort=True, err=as_json)
        sweeps.remove(store, name)
    respond(as_json, {"removed": name, "results": len(results)}, lambda: [f"removed {what}"], indent=None)
