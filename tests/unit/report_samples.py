"""Made-up results of replays, plausible enough to be looked at."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from asad.replay.results import INELIGIBLE, ExpertHistory, Kind, PolicyResult, ReplayResult, Verdict

EXPERTS = ("cpu", "memory", "stage", "interval", "happiness", "pressure", "fair share", "cluster load")
# how each policy treats a job: factor on its wait, share of jobs that become hosts and guests, and how far
# they stretch
TREATMENT = {
    "slurm": (1.0, 0.0, 0.0),
    "fcfs": (2.1, 0.0, 0.0),
    "conservative": (1.06, 0.0, 0.0),
    "static": (0.86, 0.16, 0.24),
    "asax": (0.78, 0.15, 0.05),
    "asax-paper": (0.9, 0.07, 0.08),
    "greedy-oracle": (0.71, 0.18, 0.03),
}
IDLE = (0.06, 0.05, 0.12, 0.11, 0.09, 0.0, 0.17, 0.03, 0.04, 0.14, 0.19)
"""Parts of what is idle, by the reasons of the funnel."""
HOSTILE = '<script>alert("$x^$")</script>\x1b[2J\u202e\udc80 & 日本語 حرف ' + "long " * 60


def history(rounds: int, seed: int, count: int = len(EXPERTS)) -> ExpertHistory:
    rng = np.random.default_rng(seed)
    number = np.arange(1, rounds + 1)
    loss = rng.beta(2, 4, size=(rounds, count)) + np.linspace(0, 0.35, count)[rng.permutation(count)]
    risk = loss.cumsum(axis=0)
    rate = np.sqrt(np.log(count) / number)
    weights = np.exp(-rate[:, None] * (risk - risk.min(axis=1, keepdims=True)))
    weights /= weights.sum(axis=1, keepdims=True)
    bound = (np.log(count) + 0.5 * (rate**2).cumsum()) / rate
    mixed = (weights * loss).sum(axis=1).cumsum()
    return ExpertHistory(
        EXPERTS[:count],
        number.astype(np.int32),
        weights,
        risk,
        np.minimum(mixed - risk.min(axis=1), 0.6 * bound),
        bound,
    )


def idle(core_h: float, more: float) -> tuple[tuple[str, float], ...]:
    """A funnel of `core_h` in all, of which a policy lends `more` than another."""
    reasons = [
        *("unmeasured", f"{INELIGIBLE}it opted out", "p95 above the mean", "headroom"),
        *("kept for batch on free cores", "share groups", "expert's share", "no memory", "no cores"),
        *("no waiting job that would gain", "lent"),
    ]
    parts = np.array(IDLE) * np.where(np.array(reasons) == "lent", 1 + more, 1)
    return tuple(zip(reasons, (parts / parts.sum() * core_h).tolist(), strict=True))


def replay(
    jobs: int = 2_000,
    policies: tuple[str, ...] = ("slurm", "static", "asax", "asax-paper", "greedy-oracle"),
    *,
    seed: int = 1,
    cores: int = 1_024,
    bins: int = 300,
) -> ReplayResult:
    """A result with `jobs` jobs; everything follows from `seed`."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.uniform(0, 86_400 * 30, jobs))
    run = rng.lognormal(8, 1.6, jobs) + 1
    wait = rng.lognormal(8.3, 2.4, jobs) * (rng.random(jobs) < 0.75)
    held = (2 ** rng.integers(0, 8, jobs)).astype(np.int32)
    names = tuple(f"user{number}/{name}/{2**number}" for number, name in enumerate(
        ("montage", "blast", "statistics", "synthetic", "gromacs-npt-production-long", "openfoam", "vasp_std",
         "lammps", "python3", "interactive", "wrf.exe", "cp2k.psmp", "R", "nwchem", "train.sh")))  # fmt: skip
    application = np.minimum(rng.geometric(0.2, jobs) - 2, len(names) - 1).astype(np.int32)
    found = {}
    base_end = submit + wait + run
    for number, name in enumerate(policies):
        factor, lent, stretched = TREATMENT.get(name, (0.95, 0.05, 0.05))
        own = np.random.default_rng([seed, number])
        kind = own.random(jobs)
        host, guest = kind < lent / 2, (kind >= lent / 2) & (kind < lent)
        stretch = 1 + (host + 3 * guest) * own.gamma(2, stretched / 2 + 1e-9, jobs) if lent else np.ones(jobs)
        start = submit + wait * (factor if not lent else np.where(guest, 0.3, factor))
        end = start + run * stretch
        later = end - base_end
        late = later > np.maximum(60, 0.05 * (base_end - submit))
        loser = late & (host | guest)
        slowed = loser & ~(start + run - base_end > np.maximum(60, 0.05 * (base_end - submit)))
        chaos = jobs // 40 if lent else 0
        unshared = int((late & ~(host | guest)).sum()) + chaos
        displaced = int((late & ~slowed).sum()) + chaos
        saved = float(np.maximum(-later, 0).sum())
        edges = np.linspace(0, float(end.max(initial=1.0)), bins + 1)
        wave = 0.72 + 0.2 * np.sin(np.linspace(0, 60, bins)) + own.normal(0, 0.05, bins)
        allocated = np.clip(wave * np.linspace(1.02, 0.9, bins), 0, 1)
        used = np.clip(allocated * (0.58 + lent * 1.4), 0, allocated)
        slowdown = np.maximum((end - submit) / np.maximum(run, 10), 1)
        gains = (run * held)[host | guest].sum() * 0.3
        found[name] = PolicyResult(
            name=name,
            metrics={
                "jobs": jobs,
                "makespan_s": float(end.max(initial=0.0)),
                "response_mean_s": float((end - submit).mean()) if jobs else None,
                "wait_mean_s": float((start - submit).mean()) if jobs else None,
                "wait_p95_s": float(np.percentile(start - submit, 95)) if jobs else None,
                "bounded_slowdown_mean": float(slowdown.mean()) if jobs else None,
                "utilization": float(allocated.mean()),
                "cpu_utilization": float(used.mean()),
                "delivered_core_s": float((run * held).sum() + gains),
                "host_stretch_mean": float(stretch[host].mean()) if host.any() else None,
                "guest_stretch_mean": float(stretch[guest].mean()) if guest.any() else None,
                "runtime_stretch_mean": float(stretch.mean()) if jobs else None,
                "runtime_stretch_p95": float(np.percentile(stretch, 95)) if jobs else None,
                "lent_core_s": float(gains),
                "hosts": int(host.sum()),
                "guests": int(guest.sum()),
                "losers": int(loser.sum()),
                "loss_p95_s": float(np.percentile(later[loser], 95)) if loser.any() else None,
                "loss_max_s": float(later[loser].max()) if loser.any() else None,
                "late": int(late.sum()) + chaos if lent else 0,
                "late_guests": int((late & guest).sum()),
                "stretched_guests": int((slowed & guest).sum()),
                "stretched_hosts": int((slowed & host).sum()),
                "stretched_lateness_s": float(later[slowed].sum()),
                "displaced": displaced if lent else 0,
                "displaced_placebo": displaced - displaced // 30 if lent else 0,
                "displaced_unshared": unshared if lent else 0,
                "displaced_unshared_placebo": unshared - unshared // 30 if lent else 0,
                "lateness_over_saved": float(later[late].sum()) / saved if lent and saved else None,
                "killed": jobs // 50,
                "killed_by_lending": 0,
                "wall_s": 0.5 + number / 8,
            },
            start_s=start,
            end_s=end,
            host=host,
            guest=guest,
            loser=loser,
            series_time_s=edges,
            allocated_fraction=allocated,
            used_fraction=used,
            experts=history(240, seed + number) if name.startswith("asax") else None,
            stretched=slowed,
            funnel=idle(float((allocated - used).sum() + bins) * 3.7, lent) if lent and jobs else (),
        )
    return ReplayResult(
        log={
            "path": "logs/KTH-SP2-1996.swf.gz",
            "format": "swf",
            "jobs": jobs,
            "skipped": 3,
            "absent": ["cpu_time_s", "memory_bytes"],
            "notes": ["9 jobs ran past their time limit and are ended there, as Slurm does."],
        },
        machine={
            "nodes": cores // 32,
            "cores": cores,
            "memory_bytes": None,
            "origin": "inferred: most cores held at once",
        },
        settings={
            "seed": seed,
            "poll_s": 30.0,
            "scheduler": "easy",
            "overrun": "kill",
            "shares": [0, 0.1, 0.2, 0.5],
        },
        demand_sources={"measured": 0.31, "profiled": 0.04, "assumed": 0.65},
        job_id=np.arange(1, jobs + 1),
        submit_s=submit,
        run_s=run,
        cores=held,
        application=application,
        application_names=names,
        policies=found,
        verdicts=[
            Verdict(factor, "asax", change, losers, jobs // 7)
            for factor, change, losers in ((0.8, -0.17, 9), (1.0, -0.14, 14), (1.2, -0.08, 31))
        ]
        if "asax" in policies
        else [],
    )


def with_metrics(result: ReplayResult, policy: str, **metrics: float | int | None) -> ReplayResult:
    """The same result with some figures of one policy replaced."""
    changed = dataclasses.replace(
        result.policies[policy], metrics={**result.policies[policy].metrics, **metrics}
    )
    return dataclasses.replace(result, policies={**result.policies, policy: changed})


def hostile(jobs: int = 300) -> ReplayResult:
    """A result whose every name, label and note wants to break out."""
    plain = replay(jobs)
    history_of = plain.policies["asax"].experts
    assert history_of is not None
    policies = {
        **plain.policies,
        "asax": dataclasses.replace(
            plain.policies["asax"],
            experts=dataclasses.replace(history_of, names=(HOSTILE, *history_of.names[1:])),
        ),
        HOSTILE: dataclasses.replace(plain.policies["static"], name=HOSTILE),
    }
    return dataclasses.replace(
        plain,
        log={
            "path": f"logs/{HOSTILE.replace('/', '')}",
            "notes": [HOSTILE],
            "absent": [HOSTILE],
            "skipped": [HOSTILE, {HOSTILE: HOSTILE}],
            HOSTILE: HOSTILE,
        },
        machine={"origin": HOSTILE, "nodes": 1, "cores": 2},
        settings={
            HOSTILE: [HOSTILE],
            "nested": {HOSTILE: [1, {"a": HOSTILE}]},
            "command": ["asactl", "replay", HOSTILE],
        },
        job_id=np.array([HOSTILE] * jobs, dtype=object),
        application_names=tuple(HOSTILE + str(number) for number in range(len(plain.application_names))),
        policies=policies,
    )


def admitting() -> ReplayResult:
    """A replay in which oasis admitted half of the jobs, and one of them ends later."""
    result = replay(200, ("slurm", "oasis", "fcfs"))
    for name, utility in (("slurm", 400.0), ("oasis", 500.0), ("fcfs", 300.0)):
        metrics = result.policies[name].metrics
        metrics |= {"utility": utility, "valued": 120, "in_time": 60, "timeliness_mean_s": -90.0}
        metrics |= (
            {"admitted": 70, "declined": 50} if name == "oasis" else {"admitted": None, "declined": None}
        )
    nobody, managed, loser = np.zeros((3, 200), np.bool_)
    managed[:100], loser[3] = True, True
    result.policies["oasis"].metrics.update(
        {"losers": 1, "loss_max_s": 7200.0, "late": 1, "displaced": 1, "displaced_unshared": 0}
    )
    result.policies["oasis"] = dataclasses.replace(
        result.policies["oasis"], host=nobody, guest=nobody, managed=managed, loser=loser, stretched=nobody,
        funnel=(),
    )  # fmt: skip
    return result


def as_recorded(result: ReplayResult | None = None, **baseline: Any) -> ReplayResult:
    """A replay on recorded starts, with five seeds, time limits for all but 40 jobs, partitions and some GPUs."""
    result = result or replay(400)
    jobs = len(result.submit_s)
    number = np.arange(jobs)
    wait = result.policies["slurm"].start_s - result.submit_s
    policies = {}
    for name, policy in result.policies.items():
        figures = {"moved": 7 if name != "slurm" else 0, "displaced_placebo": 0.0}
        policies[name] = dataclasses.replace(policy, metrics={**policy.metrics, **figures})
    return dataclasses.replace(
        result,
        policies=policies,
        log={**result.log, "format": "sacct", "absent": []},
        demand_sources={"measured": 1.0, "profiled": 0.0, "assumed": 0.0},
        verdicts=[],
        limited=number >= 40,
        recorded_wait_s=wait,
        kinds={
            "partition": Kind((number % 3).astype(np.int32) - 1, ("short", "long")),
            "gres": Kind((number % 10 == 0).astype(np.int32), ("without gres", "with gres")),
        },
        repeats={
            "seeds": [0, 1, 2, 3, 4],
            "policies": {},
            "response_change": {
                name: [-0.10, -0.11, -0.12, -0.13, -0.14] if name != "slurm" else [0.0] * 5
                for name in result.policies
            },
        },
        baseline={
            "kind": "recorded",
            "why": "",
            "recorded": {"wait_mean_s": 6_060.0, "wait_median_s": 600.0, "response_mean_s": 20_000.0},
            "chosen": 0,
            "why_waited": {
                "reasons": [
                    {"reason": reason, "wait_h": share, "core_h": share, "share": share}
                    for reason, share in (("limit", 0.1), ("cores", 0.7), ("order", 0.2))
                ],
                "limits": [],
            },
            "policy": "asax",
            "held": {"response_change": -0.06, "guests": 30, "late": 4},
            "simulated": {"wait_mean_s": 2_010.0, "response_change": -0.22, "guests": 50, "late": 9},
            **baseline,
        },
    )
