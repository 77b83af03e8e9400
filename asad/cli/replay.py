"""`asactl replay`: what would lending have done to a recorded cluster?"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from asad.catalog import run_names
from asad.cli import completion
from asad.errors import AsadError, UsageError
from asad.model import JobLog, Json, Machine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asad.config import Config
    from asad.replay.readers import Recorded
    from asad.replay.replay_settings import Settings
    from asad.replay.results import ReplayResult
    from asad.replay.workbench import Progress

NO_FIT = "does not fit on the machine"
"""Why jobs are left out with --skip-bad, among the counts."""


def _of(stage: str) -> str:
    """The names of a stage's policies, as replays call them."""
    return ", ".join(name for name, (of, _) in run_names().items() if of == stage)


@click.command(short_help="Replay an accounting log under several policies.")
@click.argument("log", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--policy",
    metavar="NAME,…",
    shell_complete=completion.policies,
    help=f"Policies: slurm (left alone), fcfs, conservative, fluid; {_of('share')} lend; {_of('place')} place and "
    f"lend; {_of('admit')} admit (sow and sow-paper plan statements of work); {_of('defer')} decide when "
    "deferrable jobs start; configured is what --config names. slurm is always run, as the baseline. [default: "
    "slurm,measured,asax; with --utility, --deferrable or --statements instead slurm and oasis, "
    "rollout-defer or sow]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replay what this asad.toml names, as `configured`: its policies of all stages, "
    "their options, its guard, experts, calibration and interval; policies that are "
    "named besides are put into their stage of it. Of the tables of cluster plugins "
    "[slurm.lend] alone has a part in a replay.",
)
@click.option(
    "--baseline",
    type=click.Choice(["auto", "recorded", "simulated"]),
    default="auto",
    show_default=True,
    help="Jobs start when and where the log has it (recorded), or when a simulated Slurm starts them; auto: as "
    "recorded where log and policies can carry that.",
)
@click.option(
    "--nodes",
    type=click.IntRange(1),
    metavar="N",
    help="Nodes of the machine (with --cores) [default: inferred from the log].",
)
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Cores of each node.")
@click.option(
    "--memory", metavar="SIZE", help="Memory of each node (128G); memory then counts in the replay."
)
@click.option(
    "--machine",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The machine from a slurm.conf or the output of scontrol show node or sinfo --json; memory then counts, "
    "unless slurm.conf says that it is not scheduled. Given again: what scontrol show partition, config and "
    "reservation print.",
)
@click.option(
    "--limits",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `sacctmgr -P show assoc tree` and `sacctmgr -P show qos` print: nothing is offered against a limit of "
    "user, account or QOS; may be given again.",
)
@click.option(
    "--no-infer",
    is_flag=True,
    help="Infer no limits where none are given. On recorded starts, nothing is offered against what a user, an account "
    "or a QOS never exceeded so far although there was room.",
)
@click.option(
    "--demand",
    metavar="FILE|beta:MEAN",
    help="CPU demand where the log has no CPU times: a TOML profile or a Beta distribution over applications "
    "[default: beta:0.6, one draw an application].",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of everything drawn: assumed demands, shares, placebo.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    metavar="K",
    help="Repeat with so many seeds in a row; the figures are their means, the JSON has deviations, and what is drawn, "
    "listed and stored is the first seed's [default: five where something is lent, three above 15 000 jobs, else one; "
    "of asactl whatif one].",
)
@click.option(
    "--store",
    metavar="URL",
    help="Where every decision is kept: a path, sqlite:///… or postgresql+psycopg://…; 'none' keeps nothing "
    "[default: asad.db in the state folder of the user].",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an HTML page with all figures; an existing file is replaced.",
)
@click.option("--full", is_flag=True, help="Print all tables as well.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--poll",
    default=None,
    metavar="TIME",
    help="Interval of asad's cycle [default: 30s, with --config its interval_s].",
)
@click.option(
    "--overrun",
    type=click.Choice(["kill", "run"]),
    default="kill",
    show_default=True,
    help="At its time limit a job is killed, or runs on as recorded and is then planned with its run time.",
)
@click.option(
    "--pass",
    "passes",
    type=click.Choice(["per-timestamp", "per-event"]),
    default="per-timestamp",
    show_default=True,
    help="A scheduling pass after all events of a second, or after each event.",
)
@click.option(
    "--utility",
    "utilities",
    multiple=True,
    metavar="RULE",
    help="What jobs are worth that do not state it: sigmoid(10,0.5,2h), or user=NAME:… or partition=NAME:… for some; "
    "may be given again.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="WORTH",
    help="What the jobs of one user may claim together at one time, by their hints or by "
    "--utility; 0: no bound.",
)
@click.option(
    "--statements",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Statements of work (TOML) for sow and sow-paper, instead of those that can be inferred as the log goes on.",
)
@click.option(
    "--value-per-core-hour",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="VALUE",
    help="What runs of inferred statements are taken to be worth.",
)
@click.option(
    "--slot", default="10m", show_default=True, metavar="TIME", help="Slot of the policies that admit."
)
@click.option(
    "--deferrable",
    multiple=True,
    metavar="WHICH",
    help="Take some jobs for deferrable: share=0.2,window=4h (drawn), or user=NAME,window=… or "
    "partition=NAME,window=…; may be given again.",
)
@click.option(
    "--use-sd",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="SD",
    help="Let the CPU use of each job vary on each node around what the log recorded, with"
    " this standard deviation as a share of its cores.",
)
@click.option(
    "--demand-error",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="ERROR",
    help="Let asad misjudge the CPU use of each application by up to this fraction, also where it was measured.",
)
@click.option(
    "--no-widen", is_flag=True, help="Guests run on their own cores alone, not on all of their nodes."
)
@click.option("--no-lending", is_flag=True, help="Lend nothing: every lending policy must then equal slurm.")
@click.option(
    "--columns", metavar="NAME,…", help="Columns of a log without a header, as sacct --helpformat names them."
)
@click.option(
    "--delimiter", metavar="TEXT", help="Delimiter of a text log [default: found from its first line]."
)
@click.option(
    "--format",
    "log_format",
    type=click.Choice(["swf", "sacct", "sacct-json", "csv"]),
    help="Format of the log [default: found from its content].",
)
@click.option("--cluster", metavar="NAME", help="The cluster to read, of a log that names several.")
@click.option(
    "--skip-bad", is_flag=True, help="Leave out bad lines and jobs that do not fit; count and list them."
)
@click.option(
    "--experts",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of expert trees, instead of those that asad ships.",
)
@click.option(
    "--contention",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Constants measured by asactl calibrate, instead of those that asad ships.",
)
@click.option(
    "--vary-demand/--no-vary-demand",
    default=None,
    help="Replay again with assumed demand 20 % lower and higher [default: up to 100 000 jobs].",
)
@click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="No progress bar; there is none either where standard error is no terminal.",
)
def replay(log: str, report: Path | None, full: bool, as_json: bool, **given: Any) -> None:
    """Replay LOG, the accounting log of a cluster, and say what lending idle shares would have changed.

    LOG is SWF, sacct -P text, sacct --json or CSV, plain or gzipped; - reads standard input. Its jobs start when and
    where they did, or on a simulated Slurm (--baseline), once left alone and once for every policy with asad beside.

    \b
    Examples:
      TZ=UTC sacct -aP -S 2024-01-01 -o ALL > log.txt
      asactl replay log.txt --machine /etc/slurm/slurm.conf --report page.html
      sacctmgr -P show assoc tree > limits.txt; sacctmgr -P show qos >> limits.txt
      asactl replay log.txt --limits limits.txt
      asactl replay KTH-SP2.swf.gz --nodes 100 --cores 1 --policy slurm,asax
    """
    from asad.cli.output import require_folder, schema_name

    require_folder(report, "--report")
    result = replayed(log, compare=True, **given)
    from asad.store.urls import shown_words

    result.settings["command"] = ["asactl", *shown_words(sys.argv[1:])]
    if report is not None:
        from asad.report.page import write_page

        try:
            write_page(result, report)
        except OSError as error:
            raise AsadError(f"--report {report}: {error.strerror}; name a file that can be written") from None
    if as_json:
        answer = {"schema": schema_name("replay"), **to_json(result)}
        click.echo(json.dumps(answer, indent=1, allow_nan=False))
        return

    from asad.report.table import print_first_screen, render_table
    from asad.report.terminal import terminal_console

    console = terminal_console(highlight=True)
    print_first_screen(result, console)
    if full:
        console.print()
        render_table(result, console)
    if report is not None:
        click.echo(f"\nThe page with all figures: {report}")


def replayed(
    log: str | Recorded,
    *,
    policy: str | None = None,
    config_file: Path | Config | None,
    baseline: Literal["auto", "recorded", "simulated"] = "auto",
    compare: bool = False,
    nodes: int | None,
    cores: int | None,
    memory: str | None,
    machine: tuple[Path, ...],
    limits: tuple[Path, ...] = (),
    no_infer: bool = False,
    demand: str | None,
    seed: int,
    repeat: int | None,
    store: str | None = None,
    poll: str | None = None,
    overrun: str,
    passes: str,
    utilities: tuple[str, ...],
    budget: float,
    statements: Path | None,
    value_per_core_hour: float,
    slot: str,
    deferrable: tuple[str, ...],
    use_sd: float,
    demand_error: float,
    no_widen: bool,
    no_lending: bool = False,
    columns: str | None,
    delimiter: str | None,
    log_format: str | None,
    cluster: str | None,
    skip_bad: bool,
    experts: Path | None = None,
    contention: Path | None = None,
    vary_demand: bool | None = None,
    quiet: bool,
) -> ReplayResult:
    """The replay that the options of the command describe; who replays a log again hands over what was read of it.

    Raises UsageError, LogError, MachineError, ConfigError for what they name, StoreError.
    """
    from asad.config import Config, load
    from asad.replay.baseline import resolved, usual_repeat
    from asad.replay.cpu_demand import DemandProfile, read_demand
    from asad.replay.policies import CONFIGURED, PLAIN, usual_policies
    from asad.replay.replay_settings import Settings
    from asad.replay.workload import fitting_rows

    _check_machine(nodes, cores, memory, machine)
    config = config_file if isinstance(config_file, Config) else load(config_file) if config_file else PLAIN
    if policy is None and config_file is not None:
        policies: tuple[str, ...] = ("slurm", CONFIGURED)
    elif policy is None:
        policies = usual_policies(
            utilities=bool(utilities), deferrable=bool(deferrable), statements=statements is not None
        )
    else:
        policies = tuple(dict.fromkeys(name.strip() for name in policy.split(",") if name.strip()))
    settings = Settings(
        policies=policies,
        baseline=baseline,
        compare=compare,
        seed=seed,
        repeat=repeat or 1,
        poll_s=seconds(poll, "--poll") if poll is not None else config.daemon.interval_s,
        config=config,
        overrun=overrun,
        per_event=passes == "per-event",
        use_memory=memory is not None or bool(machine),
        use_sd=use_sd,
        demand_error=demand_error,
        widen=not no_widen,
        lending=not no_lending,
        slot_s=seconds(slot, "--slot"),
        utilities=utilities,
        budget=budget,
        statements=statements,
        value_per_core_hour=value_per_core_hour,
        deferrable=deferrable,
        demand=read_demand(demand) if demand else DemandProfile(),
        experts=experts,
        limits=limits,
        infer_limits=not no_infer,
        cluster=cluster,
        contention=contention or (Path(config.guard.calibration) if config.guard.calibration else None),
        vary_demand=vary_demand,
    )
    read = (columns, delimiter, log_format, cluster, skip_bad)
    recorded = log_of(log, *read) if isinstance(log, str) else log
    _require_jobs(recorded)
    described = machine_for(recorded, nodes, cores, memory, machine)
    settings = dataclasses.replace(settings, use_memory=settings.use_memory and described.memory_counts)
    settings, why = resolved(settings, recorded)
    if repeat is None and compare:
        settings = dataclasses.replace(settings, repeat=usual_repeat(settings, len(recorded.jobs)))
    facts: dict[str, Json] = {"why_simulated": why}
    sha256 = _sha256(recorded.jobs)
    facts["sha256"] = sha256
    if skip_bad:
        recorded, left_out = _leave_out(recorded, fitting_rows(recorded, described, settings.use_memory))
        if left_out:
            facts["does_not_fit"] = left_out
    _require_jobs(recorded, described.origin)
    with _progress(show=not quiet and sys.stderr.isatty()) as progress:
        return _run(recorded, described, settings, store, facts, progress)


def log_of(
    log: str,
    columns: str | None,
    delimiter: str | None,
    log_format: str | None,
    cluster: str | None,
    skip_bad: bool,
) -> Recorded:
    """The log that the options describe. Raises UsageError and LogError."""
    from asad.replay.readers import read_log

    names = [name.strip() for name in columns.split(",")] if columns else None
    return read_log(
        log, columns=names, delimiter=delimiter, skip_bad=skip_bad, format=log_format, cluster=cluster
    )


def machine_for(
    recorded: Recorded, nodes: int | None, cores: int | None, memory: str | None, machine: tuple[Path, ...]
) -> Machine:
    """The machine that the options describe, or that the log does. Raises UsageError and MachineError."""
    from asad.replay.beside_nodes import in_times_of
    from asad.replay.inferred_machine import infer
    from asad.replay.machine import from_flags
    from asad.replay.machine_files import read_machine

    _check_machine(nodes, cores, memory, machine)
    if machine:
        return in_times_of(read_machine(*machine), local_times=recorded.local_times)
    if nodes is not None and cores is not None:
        return from_flags(nodes, cores, memory)
    return infer(recorded)


def _check_machine(
    nodes: int | None, cores: int | None, memory: str | None, machine: tuple[Path, ...]
) -> None:
    """Raises UsageError for options that describe it twice, or by half."""
    if (nodes is None) != (cores is None):
        raise UsageError("--nodes and --cores go together: give both, or neither to infer the machine")
    if machine and nodes is not None:
        raise UsageError("--machine and --nodes both describe the machine; give one of them")
    if memory is not None and nodes is None:
        raise UsageError("--memory is memory of each node: give --nodes and --cores with it")


def _run(
    recorded: Recorded,
    machine: Machine,
    settings: Settings,
    store_url: str | None,
    facts: dict[str, Json],
    progress: Progress | None,
) -> ReplayResult:
    from asad.replay.run import repeat
    from asad.store.database import BULK_CACHE_MIB
    from asad.store.store import Store

    if store_url == "none":
        return repeat(recorded, machine, settings, log_facts=facts, progress=progress)
    with Store.open(store_url, cache_mib=BULK_CACHE_MIB) as store:
        return repeat(recorded, machine, settings, store=store, log_facts=facts, progress=progress)


def _require_jobs(recorded: Recorded, origin: str = "") -> None:
    """There is a job to replay. Raises UsageError, which says where they all went, and where the machine is from."""
    if len(recorded.jobs):
        return
    went = ", ".join(f"{reason}: {number}" for reason, number in recorded.counts.items() if number)
    hint = (
        f"describe the machine ({origin}) with --nodes, --cores and --memory or --machine FILE"
        if recorded.counts.get(NO_FIT)
        else "give a log of jobs that ran, or more of it"
    )
    raise UsageError(f"{recorded.path}: no job is left to replay ({went or 'it is empty'}); {hint}")


def _leave_out(recorded: Recorded, rows: NDArray[np.intp]) -> tuple[Recorded, int]:
    """The log without the jobs that do not fit, which are counted and reported; and how many they are."""
    missing = len(recorded.jobs) - len(rows)
    if missing == 0:
        return recorded, 0
    counts = {**recorded.counts, NO_FIT: missing}
    notes = [*recorded.notes, f"{missing} jobs do not fit on the machine and are left out"]
    return dataclasses.replace(recorded, jobs=recorded.jobs.take(rows), counts=counts, notes=notes), missing


def _sha256(jobs: JobLog) -> str:
    """A digest of what was read, so that the same jobs are known again whatever the file is called."""
    digest = hashlib.sha256()
    for column in dataclasses.fields(jobs):
        value = getattr(jobs, column.name)
        if value is None:
            continue
        if isinstance(value, tuple):
            digest.update("\0".join(value).encode("utf-8", "surrogatepass"))
        elif value.dtype.hasobject:
            digest.update("\0".join(map(str, value.tolist())).encode("utf-8", "surrogatepass"))
        else:
            digest.update(value.tobytes())
    return digest.hexdigest()


def seconds(text: str, option: str) -> float:
    """`30`, `30s`, `5m` or `1h` in seconds. Raises UsageError that names the option."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1.0)
    try:
        value = float(number) * unit
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{option} {text}: not a time; write 30s, 5m or 1h")
    return value


COMPILING = "compiling, this once"


@contextmanager
def _progress(show: bool) -> Iterator[Progress | None]:
    """A bar a policy on standard error, and one for what is compiled when a replay needs it for the first time."""
    if not show:
        yield None
        return
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from asad.compiling import watching
    from asad.report.terminal import terminal_console

    with Progress(
        TextColumn("{task.description:28}"),
        BarColumn(),
        TextColumn("{task.completed:>9,} of {task.total:,} {task.fields[of]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=terminal_console(stderr=True, highlight=True),
    ) as progress:
        tasks: dict[str, TaskID] = {}

        def advance(what: str, ended: int, jobs: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=jobs, of="jobs")
            progress.update(tasks[what], completed=ended, refresh=ended == jobs)

        def compiled(done: int, all_: int) -> None:
            if COMPILING not in tasks:
                tasks[COMPILING] = progress.add_task(COMPILING, total=all_, of="functions")
            progress.update(tasks[COMPILING], completed=done, total=all_, refresh=True)

        with watching(compiled):
            yield advance


def to_json(result: ReplayResult) -> dict[str, Json]:
    """The document of `--json`; the same log, configuration and seed give the same, but for `wall_s`."""
    from asad.report.job_groups import job_groups

    return {
        "log": result.log,
        "machine": result.machine,
        "settings": {key: value for key, value in result.settings.items() if key != "command"},
        "policies": {name: policy.to_json() for name, policy in result.policies.items()},
        "baseline": result.baseline,
        "repeats": result.repeats,
        "groups": [group._asdict() for group in job_groups(result)],
        "demand_sources": dict(result.demand_sources),
        "demand_verdicts": [
            {
                "demand_factor": verdict.demand_factor,
                "policy": verdict.policy,
                "response_change": verdict.response_change,
                "losers": verdict.losers,
                "lent_jobs": verdict.lent_jobs,
            }
            for verdict in result.verdicts
        ],
    }
