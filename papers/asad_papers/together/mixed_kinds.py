"""Jobs of all kinds, drawn onto a log, and what all stages together make of them beside each alone.

Kinds are drawn job by job by a seed, until each has its part of the core-hours; jobs without a time limit, and those
that others depend on or that depend on others, stay ordinary. What a kind means here:

- `statement`: announced two hours before its submission, with the run time that it will have, worth its core-hours
  until twice its run time after that (the window of the deferrable jobs at the least);
- `elastic`: the job is cut into up to 8 tasks of an array, as many as divide its cores, and is worth at most 100, by a
  sigmoid around twice its run time;
- `gang`: `components=` its nodes, or 2 of a job that does not say;
- `deferrable`: it may start four hours later;
- `ordinary`: all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.admit.sow.announcements import Announcement, Run
from asad.admit.sow.infer import Foreseen
from asad.config import Config
from asad.model import JobLog, Machine, name_of
from asad.replay.cpu_demand import assign
from asad.replay.playing import beside, leave_alone
from asad.replay.policies import CONFIGURED
from asad.replay.readers import Recorded
from asad.replay.replay_settings import Settings
from asad.replay.stated import Stated
from asad.replay.summary import summarise
from asad.replay.workbench import prepare

SHARES = {"statement": 0.1, "deferrable": 0.2, "elastic": 0.1, "gang": 0.1}
"""Parts of the core-hours, in the order in which kinds are drawn."""
WINDOW_S = 4 * 3600.0
AHEAD_S = 2 * 3600.0
MOST_TASKS = 8


class Mixed(NamedTuple):
    """A log with jobs of all kinds."""

    jobs: JobLog
    kind: NDArray[np.str_]
    """(n,) of each row."""
    made: list[Foreseen]
    """The statements."""


def mixed(jobs: JobLog, seed: int, shares: Mapping[str, float] = SHARES) -> Mixed:
    """Draw kinds onto a log; `shares` are of its core-hours."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0x70)))
    core_s = jobs.cores * jobs.run_s
    fit = np.isfinite(jobs.time_limit_s) & (jobs.depends_on < 0) & (jobs.run_s > 0)
    fit[jobs.depends_on[jobs.depends_on >= 0]] = False
    kind = np.full(len(jobs), "ordinary", dtype="U10")
    order = iter(rng.permutation(np.flatnonzero(fit)).tolist())
    for name, share in shares.items():
        left = share * core_s.sum()
        while left > 0 and (row := next(order, None)) is not None:
            kind[row] = name
            left -= core_s[row]
    made, names, application = [], list(jobs.applications), jobs.application.copy()
    for number, row in enumerate(np.flatnonzero(kind == "statement").tolist()):
        # numbers in a name are no part of its application, so that nothing else is learned of it
        name = f"{name_of(jobs.applications, int(application[row]))}_{number}"
        application[row] = len(names)
        names.append(name)
        run_s, submit_s = float(jobs.run_s[row]), float(jobs.submit_s[row])
        stated = Announcement(
            name, int(jobs.cores[row]), submit_s, (Run(0.0, run_s, 1.0),), float(core_s[row]) / 3600.0,
            "deadline", max(2.0 * run_s, run_s + WINDOW_S), "requeue-hold",
        )  # fmt: skip
        made.append(Foreseen(name_of(jobs.users, int(jobs.user[row])), submit_s - AHEAD_S, stated))
    tasks = np.ones(len(jobs), np.int64)
    for row in np.flatnonzero(kind == "elastic").tolist():
        cores = int(jobs.cores[row])
        tasks[row] = max(many for many in range(1, MOST_TASKS + 1) if cores % many == 0)
    lead = np.repeat(np.arange(len(jobs)), tasks)
    at = np.arange(len(lead)) - np.repeat(np.cumsum(tasks) - tasks, tasks)
    hints: dict[str, int] = {}
    hint = np.full(len(lead), -1, np.int32)
    for row, of in enumerate(lead.tolist()):
        text = _hint(jobs, of, str(kind[of]))
        if text:
            hint[row] = hints.setdefault(text, len(hints))
    cut = jobs.take(lead)
    job_id = [
        f"{1_000_000 + of}_{task}" if kind[of] == "elastic" else str(1_000_000 + of)
        for of, task in zip(lead.tolist(), at.tolist(), strict=True)
    ]
    drawn = replace(
        cut,
        job_id=np.array(job_id),
        cores=(cut.cores // tasks[lead]).astype(np.int32),
        nodes=np.where(tasks[lead] > 1, 0, cut.nodes).astype(np.int32),
        memory_bytes=cut.memory_bytes / tasks[lead],
        application=application[lead],
        applications=tuple(names),
        hint=hint,
        hints=tuple(hints),
    )
    return Mixed(drawn, kind[lead], made)


def _hint(jobs: JobLog, row: int, kind: str) -> str:
    if kind == "elastic":
        return f"utility=sigmoid(100, 0.05, {max(600, round(2 * float(jobs.run_s[row])))}s)"
    if kind == "gang":
        least = max(2, int(jobs.nodes[row])) if jobs.cores[row] > 1 else 1
        return f"components={least}-{max(least, int(jobs.cores[row]))}"
    return f"deferrable={WINDOW_S:g}s" if kind == "deferrable" else ""


def alone(config: Config) -> dict[str, Config]:
    """By what is on: the configuration with that alone, and whole."""
    p = config.policies
    off = replace(p, admit="everyone", defer="at-once", place="native", share="exclusive")
    made = {
        "lending": replace(off, share=p.share),
        "placing": replace(off, place=p.place),
        "deferral": replace(off, defer=p.defer),
        **{name: replace(off, admit=name) for name in p.admit.split("+")},
        "together": p,
    }
    return {name: replace(config, policies=policies) for name, policies in made.items()}


def compare(
    recorded: Recorded,
    machine: Machine,
    config: Config,
    seed: int,
    use_memory: bool,
    step: Callable[[str], None],
) -> dict[str, Any]:
    """The figures by what is on; `slurm` is the cluster left alone."""
    found = mixed(recorded.jobs, seed)
    drawn = replace(recorded, jobs=found.jobs)
    fingerprint, names = found.jobs.fingerprints()
    settings = Settings((CONFIGURED,), seed, config=config, use_memory=use_memory)
    demand = assign(found.jobs, fingerprint, names, settings.demand, seed)
    stated = Stated(found.made, found.jobs, settings.slot_s, inferred=False)
    bench = prepare(drawn, machine, settings, demand, [], stated=stated)
    figures: dict[str, Any] = {}
    for name, one in {"slurm": config, **alone(config)}.items():
        step(name)
        bench.settings = replace(settings, config=one)
        left_alone = name == "slurm"
        of = "slurm" if left_alone else CONFIGURED
        played = leave_alone(bench, of) if left_alone else beside(bench, of)
        result = summarise(bench, of, played)
        response_s = result.end_s - found.jobs.submit_s
        kept = ("missed", "deferrable", "welfare", "utility", "in_time", "cpu_utilization", "makespan_s",
            "evicted", "planned", "stated_jobs", "admitted", "declined")  # fmt: skip
        figures[name] = {key: result.metrics.get(key) for key in kept} | {
            "killed": int(played.column("killed").sum()),
            "guests": int(result.guest.sum()),
            "response_mean_s": {
                kind: float(response_s[found.kind == kind].mean()) if (found.kind == kind).any() else None
                for kind in (*SHARES, "ordinary")
            },
        }
    return figures


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By what is on, each figure of `compare` over several seeds: `mean`, and `error`, its standard error (None of one
    seed; both None where no run has the figure). `welfare_over_sow` and `ordinary_over_lending` are ratios within each
    seed, so that what the seeds differ by is not in their errors."""
    for run in runs:
        for one in run.values():
            one["welfare_over_sow"] = _ratio(one["welfare"], run["sow"]["welfare"]) if "sow" in run else None
            ordinary = one["response_mean_s"].get("ordinary")
            one["ordinary_over_lending"] = _ratio(ordinary, run["lending"]["response_mean_s"].get("ordinary"))
    return {name: _figures([run[name] for run in runs]) for name in runs[0]}


def _ratio(of: float | None, over: float | None) -> float | None:
    return None if of is None or not over else of / over


def _figures(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for key, first in found[0].items():
        if isinstance(first, Mapping):
            figures[key] = _figures([one[key] for one in found])
            continue
        values = np.array([one[key] for one in found if one[key] is not None], float)
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
        figures[key] = {
            "mean": float(values.mean()) if len(values) else None,
            "error": None if error is None else float(error),
        }
    return figures
