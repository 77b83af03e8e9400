"""The tasks of a sweep: what a sweep file says, as replays of one log under one configuration with one seed each."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import click
import numpy as np

from asad import __version__
from asad.bounded import printable, toml_of
from asad.cli.replay import replay, replayed
from asad.config import Config, of_document
from asad.errors import AsadError, ConfigError, UsageError
from asad.model import Json
from asad.store.store import file_sha256
from asad.store.sweeps import Place, SweepResult
from asad.tables import Is, Words, key_lines, nearest_of, read_table

if TYPE_CHECKING:
    from asad.replay.readers import Recorded

WARM_UP_JOBS = 200
"""So many jobs of a log are replayed before all else, so that workers find on disk what has to be compiled."""
MOST_SEEDS = 100_000
OWN = ("log", "seed", "repeat", "store", "report", "full", "as_json", "quiet", "vary_demand")
"""Options of a replay that the sweep itself decides."""
OPTIONS = {
    option.opts[0].removeprefix("--"): option
    for option in replay.params
    if isinstance(option, click.Option) and option.name not in OWN
}
"""Name of an option of `asactl replay` → that option: each can stand in a sweep file."""


def _seeds(value: Any) -> tuple[int, ...]:
    """Of a number the first so many, from 0."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SEEDS:
        return tuple(range(value))
    numbers = value if isinstance(value, list) else []
    if not numbers or not all(type(one) is int and 0 <= one < 2**63 for one in numbers):
        raise ValueError(
            f"is neither a number of seeds from 1 to {MOST_SEEDS} nor a list of seeds; write 10, or [3, 4]"
        )
    return tuple(dict.fromkeys(numbers))


def _tables(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("is no list of tables; write [[logs]] or [[configurations]] above each")
    return value


@dataclass(frozen=True, slots=True)
class SweepFile:
    """A sweep file, or what stands for one on the command line."""

    logs: Annotated[Any, Is(raw=True, made=_tables)] = ()
    """`[[logs]]`: each a `log`, a `name` (its file's, by default) and options of `asactl replay` for it."""
    configurations: Annotated[Any, Is(raw=True, made=_tables)] = ()
    """`[[configurations]]`: each a `name`, a `policy` or `config` (an asad.toml), `set` (tables of an asad.toml that
    replace what the file says), and options of `asactl replay`."""
    policies: tuple[str, ...] = ()
    """Policies that are replayed by themselves, each a configuration of its own name."""
    replay: Mapping[str, Any] = field(default_factory=dict)
    """Options of `asactl replay` for every task."""
    seeds: Annotated[Any, Is(raw=True, made=_seeds)] = (0, 1, 2, 3, 4)
    """How many seeds, from 0 on, or a list of them."""
    baseline: str = ""
    """The configuration that the others are compared with; empty: the first."""
    name: str = ""
    """Under which the results are kept; empty: that of the file."""


@dataclass(frozen=True, slots=True)
class Task:
    """One replay, as it travels to a worker."""

    identity: str
    """SHA-256 of the log's content, the configuration with the content of all files that it names, the seed, and
    asad's version."""
    place: Place
    policy: str
    log: str
    log_sha256: str
    options: Mapping[str, Any]
    """Of `replayed`."""
    config: Config | None
    rank: int = 0
    """From 0, among all of the sweep."""
    version: str = __version__


class Outcome(NamedTuple):
    """What became of a task."""

    started_at: float
    ended_at: float
    failure: str
    """Empty: it is done."""
    metrics: Mapping[str, Json] = {}
    log: Mapping[str, Json] = {}
    machine: Mapping[str, Json] = {}
    settings: Mapping[str, Json] = {}
    worker: str = ""
    """The machine that carried it out."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """All tasks of a sweep."""

    name: str
    logs: tuple[str, ...]
    configurations: tuple[str, ...]
    seeds: tuple[int, ...]
    baseline: str
    tasks: tuple[Task, ...]
    """Seed by seed, so that what is there first compares all configurations."""

    def result(self, task: Task, outcome: Outcome) -> SweepResult:
        """The row that is kept of a task."""
        place = task.place._asdict() | {
            "rank": task.rank,
            "tasks": len(self.tasks),
            "baseline": self.baseline,
            "worker": outcome.worker,
        }
        return SweepResult(
            sweep=self.name,
            task=task.identity,
            policy=task.policy,
            log={"path": task.log, "sha256": task.log_sha256, **outcome.log},
            machine=dict(outcome.machine),
            settings={**outcome.settings, "seed": task.place.seed, "sweep": place},
            started_at=outcome.started_at,
            ended_at=outcome.ended_at,
            state="failed" if outcome.failure else "done",
            failure=outcome.failure,
            metrics=dict(outcome.metrics),
        )


# ------------------------------------------------------------------------------------------------ reading


def read_sweep(path: Path | None, given: Mapping[str, Any], settings: Sequence[str] = ()) -> Sweep:
    """The sweep that a file describes, or what was `given` instead of its keys; `settings` are options of a replay.

    Relative paths in the file begin at its folder. Raises ConfigError that names file, line, key and remedy, a line
    each, and UsageError for settings.
    """
    text = ""
    try:
        if path is not None:
            text = path.read_text(encoding="utf-8")
        document = {**toml_of(text), **given}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a sweep file") from None
    except ValueError as error:  # of TOML, or no UTF-8
        raise ConfigError(f"{path}: {printable(str(error)[:200])}; correct the TOML") from None
    source = str(path or "the command")
    file, faults = read_table(SweepFile, document, Words(), ())
    if faults:
        lines = key_lines(text)
        raise ConfigError("\n".join(fault.located(source, lines) for fault in faults))
    name = file.name or (path.stem if path is not None else "")
    if not name:
        raise UsageError("a sweep without a file has no name; give one with --name")
    file = replace(file, replay={**file.replay, **dict(map(_setting, settings))}, name=name)
    return made(file, Path() if path is None else path.parent, source)


def _setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE of the command line. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(
            f"--set {printable(text)}: write KEY=VALUE, an option of asactl replay and what it is given"
        )
    if value in ("true", "false"):
        return key, value == "true"
    return key, str(Path(value).absolute()) if _is_path(key, value) else value


def _is_path(key: str, value: Any) -> bool:
    """Is that the value of an option that names a file?"""
    option = OPTIONS.get(key.replace("_", "-"))
    is_path = option is not None and isinstance(option.type, click.Path)
    return is_path or (key == "demand" and not str(value).startswith("beta:"))


def made(file: SweepFile, folder: Path, source: str) -> Sweep:
    """The sweep of such a file; `source` is what errors name. Raises ConfigError."""
    configurations = [*({"name": one, "policy": one} for one in file.policies), *file.configurations]
    if not file.logs:
        raise ConfigError(f'{source}: it names no log; write [[logs]] and under it log = "FILE"')
    if not configurations:
        raise ConfigError(
            f'{source}: it names no configuration; write policies = ["asax"], or [[configurations]]'
        )
    logs = [_named(log, "log", f"{source}: [[logs]] {number}") for number, log in enumerate(file.logs, 1)]
    configurations = [
        _named(one, "policy", f"{source}: [[configurations]] {number}")
        for number, one in enumerate(configurations, 1)
    ]
    names = [
        _different(source, kind, tables)
        for kind, tables in (("log", logs), ("configuration", configurations))
    ]
    baseline = file.baseline or names[1][0]
    if baseline not in names[1]:
        raise ConfigError(f"{source}: baseline {baseline!r}: {nearest_of(baseline, names[1])}")
    kinds = [
        _kind(log, one, file.replay, folder, f"{source}: log {log['name']!r}, configuration {one['name']!r}")
        for log in logs
        for one in configurations
    ]
    tasks = tuple(
        replace(
            kind,
            identity=_digest({"seed": seed, "of": kind.identity}),
            place=kind.place._replace(seed=seed),
            rank=rank,
        )
        for rank, (seed, kind) in enumerate(product(file.seeds, kinds))
    )
    return Sweep(file.name, tuple(names[0]), tuple(names[1]), file.seeds, baseline, tasks)


def _named(table: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    """A log or a configuration with its name, by default that of the file or policy that it names."""
    given = table.get("name", table.get(key, table.get("config")))
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f'{where}: it has no name; give name = "…" in quotes')
    if key == "log" and not isinstance(table.get(key), str):
        raise ConfigError(f"{where}: log = {table.get(key)!r:.80}; give the file of a log in quotes")
    return {
        **table,
        "name": given if "name" in table else Path(given).name.split(".")[0] if key == "log" else given,
    }


def _different(source: str, kind: str, tables: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [str(table["name"]) for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{source}: two of its {kind}s are called {name!r}; give each a name of its own"
            )
    return names


def _kind(
    log: Mapping[str, Any],
    configuration: Mapping[str, Any],
    common: Mapping[str, Any],
    folder: Path,
    where: str,
) -> Task:
    """The task of a log under a configuration, for any seed."""
    from asad.replay.policies import CONFIGURED, all_policies

    given = {key: value for table in (common, log, configuration) for key, value in table.items()}
    changes, file = given.pop("set", {}), folder / str(given.pop("log"))
    given.pop("name")
    params = _params(given, folder, where)
    config = _config(params.pop("config_file"), changes, where)
    policy = params.pop("policy") or (CONFIGURED if config is not None else "")
    if policy not in all_policies() or (policy == CONFIGURED and config is None):
        hint = nearest_of(policy, all_policies()) if policy else 'give a policy, or config = "asad.toml"'
        raise ConfigError(f"{where}: policy {policy!r} is not one that can be replayed; {hint}")
    try:
        sha256 = file_sha256(file)
        files: dict[str, Any] = {
            key: _content(value) for key, value in params.items() if isinstance(value, Path)
        }
        for key in ("limits", "machine"):
            if params[key]:
                files[key] = [_content(path) for path in params[key]]
        if params.get("demand") and not params["demand"].startswith("beta:"):
            files["demand"] = _content(Path(params["demand"]))
        if config is not None:
            named = {"experts": config.policies.experts, "calibration": config.guard.calibration}
            files |= {f"configured {key}": _content(Path(path)) for key, path in named.items() if path}
    except OSError as error:
        raise ConfigError(
            f"{where}: {error.filename}: {error.strerror}; name a file that can be read"
        ) from None
    identity = _digest(
        {
            "log": sha256,
            "policy": policy,
            "options": {key: value for key, value in params.items() if key not in files},
            "files": files,
            "config": None if config is None else config.to_json(),
            "asad": __version__,
        }
    )
    place = Place(str(log["name"]), str(configuration["name"]), 0)
    return Task(identity, place, policy, str(file.absolute()), sha256, params, config)


def _params(given: Mapping[str, Any], folder: Path, where: str) -> dict[str, Any]:
    """Options of `asactl replay`, read and checked by that very command."""
    words = []
    for key, value in given.items():
        option = OPTIONS.get(key.replace("_", "-"))
        if option is None:
            raise ConfigError(
                f"{where}: {printable(key[:80])}: unknown key; {nearest_of(key, list(OPTIONS))}"
            )
        if option.is_flag:
            if not isinstance(value, bool):
                raise ConfigError(f"{where}: {key} = {value!r:.80}; write true or false")
            words += [option.opts[0]] * value
            continue
        for one in value if option.multiple and isinstance(value, list) else [value]:
            if isinstance(one, dict | list | bool):
                raise ConfigError(f"{where}: {key} = {one!r:.80}; give a number, or a text in quotes")
            words.append(f"{option.opts[0]}={(folder / str(one)).absolute() if _is_path(key, one) else one}")
    try:
        params = replay.make_context("replay", [*words, "--", "log"]).params
    except click.UsageError as error:
        raise ConfigError(f"{where}: {printable(error.format_message())}") from None
    return {key: value for key, value in params.items() if key not in OWN}


def _config(file: Path | None, changes: Any, where: str) -> Config | None:
    """An asad.toml with what `set` changes of it; None for neither."""
    if file is None and not changes:
        return None
    try:
        document = toml_of(file.read_text(encoding="utf-8")) if file is not None else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {file}: {printable(str(error)[:200])}; correct it") from None
    if not isinstance(changes, dict) or not all(isinstance(table, dict) for table in changes.values()):
        raise ConfigError(
            f"{where}: set = {changes!r:.80}; write tables as in asad.toml, set.guard.host_floor = 0.2"
        )
    return of_document(_merged(document, changes), file or Path(where))


def _merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(document[key], value)
        for key, value in changes.items()
        if _are_tables(document, key, value)
    }
    return {**document, **changes, **both}


def _are_tables(document: Mapping[str, Any], key: str, value: Any) -> bool:
    return isinstance(value, dict) and isinstance(document.get(key), dict)


def _content(path: Path) -> list[tuple[str, str]]:
    """Of a file, or of all files of a folder, the name within it and the digest of its content."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    return [(str(one.relative_to(path)), file_sha256(one)) for one in files]


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------ in a worker


def replay_task(task: Task) -> Outcome:
    """Carry out a task, in a worker. What it comes to follows from the task alone, times aside; it raises nothing."""
    return _carried_out(task, None)


def warm_up_task(task: Task) -> Outcome:
    """The same with the first jobs of the log, so that what has to be compiled is on disk when many begin."""
    return _carried_out(task, WARM_UP_JOBS)


def _carried_out(task: Task, most_jobs: int | None) -> Outcome:
    begun = time.time()
    try:
        if task.version != __version__:
            raise AsadError(
                f"this worker has asad {__version__}, the coordinator {task.version}; install the same"
            )
        how = ("columns", "delimiter", "log_format", "skip_bad", "cluster")
        recorded = _recorded(task.log, task.log_sha256, *(task.options[name] for name in how))
        if most_jobs is not None:
            recorded = replace(
                recorded, jobs=recorded.jobs.take(np.arange(min(most_jobs, len(recorded.jobs))))
            )
        result = replayed(
            recorded,
            **task.options,
            policy=task.policy,
            config_file=task.config,
            seed=task.place.seed,
            repeat=1,
            store="none",
            vary_demand=False,
            quiet=True,
        )
    except Exception as error:  # whatever it is, it is this task's own; the others go on
        failure = str(error) if isinstance(error, AsadError) else f"{type(error).__name__}: {error}"
        return Outcome(begun, time.time(), failure or type(error).__name__)
    metrics = result.policies[task.policy].metrics
    machine = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    return Outcome(begun, time.time(), "", metrics, result.log, result.machine, result.settings, machine)


@lru_cache(maxsize=2)
def _recorded(
    log: str,
    sha256: str,
    columns: str | None,
    delimiter: str | None,
    log_format: str | None,
    skip_bad: bool,
    cluster: str | None,
) -> Recorded:
    """A log; a worker that is given task after task of it reads it once."""
    from asad.replay.readers import read_log

    try:
        found = file_sha256(Path(log))
    except OSError as error:
        raise AsadError(
            f"{log}: {error.strerror}; workers read logs by the same path, from a shared file system"
        ) from None
    if found != sha256:
        raise AsadError(f"{log}: it is not the file that the sweep began with; begin the sweep anew")
    names = [name.strip() for name in columns.split(",")] if columns else None
    return read_log(
        log, columns=names, delimiter=delimiter, skip_bad=skip_bad, format=log_format, cluster=cluster
    )
