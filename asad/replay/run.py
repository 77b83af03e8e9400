"""A replay: one recorded workload under several policies, each against the same cluster left alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from asad.model import JobLog, Json, Machine
from asad.replay.baseline import lender, recorded_figures
from asad.replay.cpu_demand import assign
from asad.replay.fidelity import fidelity
from asad.replay.looking_back import Shown, follow_site, look_back, with_memory
from asad.replay.playing import Played, beside, leave_alone, pour
from asad.replay.policies import FLUID, SCHEDULING
from asad.replay.readers import Recorded
from asad.replay.replay_settings import VERDICT_JOBS, Settings
from asad.replay.results import Kind, PolicyResult, ReplayResult, Verdict
from asad.replay.site import site_of
from asad.replay.site_rules import SiteRules
from asad.replay.summary import job_ends, summarise, with_placebo
from asad.replay.workbench import Bench, Progress, prepare
from asad.replay.workload import build_workload
from asad.store import share_cases
from asad.store.store import Store


def replay(
    recorded: Recorded,
    machine: Machine,
    settings: Settings,
    *,
    store: Store | None = None,
    log_facts: dict[str, Json] | None = None,
    progress: Progress | None = None,
    shown: Shown | None = None,
) -> ReplayResult:
    """Replay `recorded` on `machine` under every policy of `settings`, and against Slurm left alone.

    With `store` every decision is kept as it is made, a run for each policy. `shown` is what the log shows, where that
    is known already. The same arguments give the same result, wall times aside. Raises MachineError,
    ConfigError, StoreError.
    """
    jobs = recorded.jobs
    fingerprint, names = jobs.fingerprints()
    site = site_of(machine)
    notes = [*recorded.notes, *machine.notes, *(site.notes if site is not None else ())]
    demand = assign(jobs, fingerprint, names, settings.demand, settings.seed)
    if beyond := int(np.count_nonzero(jobs.cpu_time_s > 1.01 * jobs.run_s * jobs.cores)):
        notes.append(
            f"{beyond} jobs have more CPU time than their cores could give while they ran: taken as all of it"
        )
    bench = prepare(recorded, machine, settings, demand, notes, progress, shown=shown)
    log: dict[str, Json] = {
        "path": recorded.path,
        "format": recorded.format,
        "jobs": len(jobs),
        "counts": dict(recorded.counts),
        "absent": list(recorded.absent),
        "skipped": len(recorded.bad),
        "skipped_lines": [str(error) for error in recorded.bad[:50]],
        "notes": list(notes),
        **({} if bench.limits is None else {"limits": bench.limits.to_json()}),
        **({} if bench.shown.inferred is None else {"limits_inferred": len(bench.shown.inferred)}),
        **(log_facts or {}),
    }
    baseline = leave_alone(bench, "slurm")
    results = {"slurm": summarise(bench, "slurm", baseline)}
    for name in settings.policies:
        if name == FLUID:
            results[name] = summarise(bench, name, pour(bench))
        elif name not in SCHEDULING:
            results[name] = _play_and_keep(bench, name, baseline, store, log)
        elif name != "slurm":
            results[name] = summarise(bench, name, leave_alone(bench, name))
    result = ReplayResult(
        log=log,
        machine=machine.to_json(),
        settings=settings.to_json(),
        demand_sources=demand.shares(),
        job_id=jobs.job_id,
        submit_s=bench.workload.submit_s,
        run_s=bench.workload.work_s,
        cores=bench.workload.cores,
        application=fingerprint,
        application_names=names,
        policies=results,
        limited=~np.isnan(bench.workload.limit_s),
        recorded_wait_s=np.maximum(jobs.start_s - jobs.queued_s, 0.0),
        kinds=_kinds(jobs),
    )
    result.baseline.update(
        {
            "kind": settings.baseline,
            "why": str(log.pop("why_simulated", "")),
            "recorded": recorded_figures(jobs),
            "why_waited": None,
            "chosen": 0 if bench.starts is None else bench.starts.chosen,
            "policy": None,
            "held": None,
            "simulated": None,
            "fidelity": [],
            **_goes_by(bench.site),
        }
    )
    if bench.starts is None:
        waits_s = baseline.cluster.jobs["start"] - baseline.cluster.jobs["eligible"]
        result.baseline["fidelity"] = fidelity(jobs, waits_s)
    if bench.starts is not None and settings.compare:
        result.baseline["why_waited"] = (
            None if bench.shown.waits is None else bench.shown.waits.to_json(jobs.cores)
        )
        result.baseline.update(_compared(bench, lender(settings), baseline))
    assumed = demand.shares()["assumed"] > 0
    vary = settings.vary_demand
    if vary is None:
        vary = assumed and settings.lending and len(jobs) <= VERDICT_JOBS
        if assumed and not vary and "asax" in settings.policies:
            notes.append("the assumed demand was not varied by ±20 %; --vary-demand does that")
            log["notes"] = list(notes)
    if vary and assumed:
        result.verdicts.extend(_verdicts(bench, baseline, fingerprint))
    return result


def repeat(
    recorded: Recorded,
    machine: Machine,
    settings: Settings,
    *,
    store: Store | None = None,
    log_facts: dict[str, Json] | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """`replay` with `settings.repeat` seeds in a row: the first result, with mean and deviation over all of them.

    Its figures are then the means; what is drawn, listed and kept in the store is the first seed's.
    """
    shown = look_back(recorded, machine, settings) if settings.repeat > 1 else None
    results = [
        replay(
            recorded,
            machine,
            replace(
                settings,
                seed=settings.seed + k,
                vary_demand=settings.vary_demand if k == 0 else False,
                compare=settings.compare and k == 0,
            ),
            store=store if k == 0 else None,
            log_facts=log_facts,
            progress=progress,
            shown=shown,
        )
        for k in range(settings.repeat)
    ]
    first = results[0]
    if settings.repeat == 1:
        return first
    moved: dict[str, Json] = {name: [_response_change(r, name) for r in results] for name in first.policies}
    spread: dict[str, Json] = {}
    for name, policy in first.policies.items():
        means: dict[str, Json] = {}
        for key in policy.metrics:
            values = [value for r in results if (value := r.policies[name].metrics[key]) is not None]
            if not values:
                continue
            mean = float(np.mean(values))
            means[key] = {"mean": mean, "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}
            if key != "jobs":
                policy.metrics[key] = mean
        spread[name] = means
    seeds: list[Json] = [settings.seed + k for k in range(settings.repeat)]
    first.repeats.update({"seeds": seeds, "policies": spread, "response_change": moved})
    return first


def _response_change(result: ReplayResult, name: str) -> float | None:
    """Mean response of a policy over that of the cluster left alone, minus 1."""
    own, alone = (result.policies[one].metrics["response_mean_s"] for one in (name, "slurm"))
    return own / alone - 1.0 if own is not None and alone else None


def _kinds(jobs: JobLog) -> dict[str, Kind]:
    """By what the jobs of a log can be grouped."""
    found = {"partition": Kind(jobs.partition, jobs.partitions)}
    if jobs.account is not None:
        found["account"] = Kind(jobs.account, jobs.accounts)
    if jobs.qos is not None:
        found["qos"] = Kind(jobs.qos, jobs.qos_names)
    if jobs.gres is not None:
        found["gres"] = Kind((jobs.gres >= 0).astype(np.int32), ("without gres", "with gres"))
    return {name: kind for name, kind in found.items() if (kind.code >= 0).any()}


def _compared(bench: Bench, name: str, baseline: Played) -> dict[str, Json]:
    """What else is to be known of recorded starts: a policy with vacated slots held, and the simulated Slurm."""
    settings, found = bench.settings, dict[str, Json]()
    simulated = with_memory(replace(settings, baseline="simulated"), bench.recorded, bench.machine)
    assert bench.demand is not None
    workload = build_workload(bench.recorded, bench.machine, simulated, bench.demand, [])
    other = replace(bench, settings=simulated, workload=workload, starts=None)
    passed_over: list[str] = []
    follow_site(other, passed_over)
    alone = leave_alone(other, "slurm", what="slurm, simulated")
    waits_s = alone.cluster.jobs["start"] - alone.cluster.jobs["eligible"]
    found["simulated"] = {"wait_mean_s": float(waits_s.mean())}
    found.update(_goes_by(other.site))
    if other.site is None and passed_over:  # why it goes by nothing
        found["not_simulated"] = [{"what": what, "jobs": len(workload)} for what in passed_over]
    found["fidelity"] = fidelity(bench.recorded.jobs, waits_s)
    if not name:
        return found
    held = replace(bench, settings=replace(settings, hold_vacated=True))
    for key, one, against in (("held", held, baseline), ("simulated", other, alone)):
        figures = summarise(one, name, beside(one, name, what=f"{name}, {key}"), against).metrics
        own = float((against.cluster.jobs["end"] - one.workload.submit_s).mean())
        response = figures["response_mean_s"]
        shown: dict[str, Json] = {
            "response_change": None if response is None else response / own - 1.0,
            "guests": figures["guests"],
            "late": figures["late"],
        }
        before = found.get(key)
        found[key] = {**(before if isinstance(before, dict) else {}), **shown}
    return {"policy": name, **found}


def _goes_by(site: SiteRules | None) -> dict[str, Json]:
    """What a simulated Slurm goes by beside cores and time, and what not."""
    left_out = {} if site is None else site.not_simulated
    return {
        "goes_by": [] if site is None else list(site.simulated),
        "not_simulated": [{"what": what, "jobs": count} for what, count in left_out.items()],
    }


def _play_and_keep(
    bench: Bench, name: str, baseline: Played, store: Store | None, log: dict[str, Json]
) -> PolicyResult:
    """One policy that does anything, recorded in the store if there is one."""
    if store is None:
        return with_placebo(bench, name, beside(bench, name), baseline)
    settings = {**bench.settings.to_json(), "policies": name}
    with store.begin_run(
        "replay", name, log, bench.machine.to_json(), settings, supersede_killed=True
    ) as run:
        played = beside(bench, name, run)
        share_cases.add(store, run.id, [played.cases] if played.cases is not None else [])
        result = with_placebo(bench, name, played, baseline)
        run.record_ends(job_ends(bench, result, baseline))
        run.finish(dict(result.metrics))
    return result


def _verdicts(bench: Bench, baseline: Played, fingerprint: NDArray[np.int32]) -> list[Verdict]:
    """The default policy again with every assumed demand 20 % lower and 20 % higher."""
    name = lender(bench.settings)
    if not name:
        return []
    verdicts = []
    for factor in (0.8, 1.2):
        profile = replace(bench.settings.demand, factor=factor)
        demand = assign(
            bench.recorded.jobs, fingerprint, bench.application_names, profile, bench.settings.seed
        )
        moved = replace(bench.workload, demand=demand.fraction)
        other = replace(bench, workload=moved)
        played = beside(other, name, what=f"{name}, demand ×{factor:g}")
        result = summarise(other, name, played, baseline)
        own = baseline.cluster.jobs["end"] - bench.workload.submit_s
        change = float((result.end_s - bench.workload.submit_s).mean() / own.mean() - 1.0)
        verdicts.append(
            Verdict(factor, name, change, int(result.loser.sum()), int((result.host | result.guest).sum()))
        )
    return verdicts
