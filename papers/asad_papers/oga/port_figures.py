"""The evaluation of the OgaSched paper (section 4), run anew: its baselines and three modes, Table III, Figures 3 to 7.

Every part gives plain data for JSON. Speeds are of this machine; everything else is the same for the same instance.
All policies see the arrivals of the slot before they divide it, except `oga-strict`, which sees them afterwards.

- `compare`: one instance. Mean reward, slots a second, violations; the best fixed allocation; regret.
- `seeds`: the same on fresh instances: with α, β and utilities of the recorded one, and with all drawn anew.
- `sweep`: one setting of Table II varied: horizon, arrivals, density, nodes, ports, contention, utilities (Table III,
  Figures 3, 6 and 7), η_0 and decay (Figure 4).
- `several`: several arrivals a port (section 3.4). `gangs`: all or nothing (section 3.5), with its regret.
- `large`: 100 ports on 1024 instances (Figure 5). `growth`: time of a slot against the number of edges.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asad.model import Floats, Json
from asad.place.binpack import BinPack
from asad.place.drf import Drf
from asad.place.fairness import Fairness
from asad.place.oga import Mode, Oga, Options
from asad.place.ports import Copies, PortPolicy, Ports
from asad.place.spread import Spread
from asad_papers.harness import Step, quiet
from asad_papers.oga.best_fixed import best_fixed
from asad_papers.oga.port_gangs import GangOga, Gangs
from asad_papers.oga.port_instances import PortInstance, draw_port_instance
from asad_papers.oga.regret import regret_bound

POLICIES = ("fairness", "drf", "binpack", "spread", "oga-strict", "oga-reactive", "oga-reclaim")
BASELINES = POLICIES[:4]
TOLERANCE = 1e-12
"""By how much an allocation may break a constraint before it is counted: of what is broken, or absolute below 1."""

REACTIVE_FACTOR = 2.56
"""η_0 of the modes that see arrivals over that of the strict one: 1 where that is 25/64."""

OTHERS_SLOTS_PER_S: Mapping[str, Mapping[str, float]] = {
    "10 ports, 128 instances": {"paper": 2.2, "public re-implementation": 17.45},
    "100 ports, 1024 instances": {"paper": 0.19, "public re-implementation": 0.41},
}
"""Measured by others: the paper on its 48 cores, a public re-implementation on one core."""

SWEEPS: Mapping[str, Sequence[Any]] = {
    "horizon": (1000, 2000, 5000, 10000),
    "arrivals": (0.3, 0.5, 0.7, 0.9),
    "density": (2.0, 2.5, 3.0),
    "nodes": (32, 64, 128, 256, 512),
    "ports": (5, 10, 20, 40),
    "contention": (0.1, 0.5, 1.0, 5.0, 10.0, 20.0),
    "utilities": ("mixed", "linear", "log", "reciprocal", "poly"),
    "eta": (0.04, 0.2, 0.4, 0.8, 2.0, 8.0),
    "decay": (0.99, 0.995, 0.999, 0.9999, 1.0, 1.0001),
}
"""What is varied; the rest is as in Table II."""
GIVEN = {
    "horizon": "slots",
    "arrivals": "probability",
    "density": "density",
    "nodes": "instances",
    "ports": "ports",
    "contention": "contention",
    "utilities": "utility",
}
GROWTH = (32, 128, 512, 2048, 8192)
"""Numbers of instances, whose edges `growth` has slots divided over."""
LARGE = {"ports": 100, "instances": 1024, "contention": 5.0, "beta": (0.01, 0.015), "slots": 1000}


def etas(instance: PortInstance) -> dict[str, float | None]:
    """η_0 by mode; None is the policy's own."""
    strict = instance.eta
    other = None if strict is None else REACTIVE_FACTOR * strict
    return {"oga-strict": strict, "oga-reactive": other, "oga-reclaim": other}


def make(name: str, instance: PortInstance, eta: float | None = None) -> PortPolicy:
    """A policy by name, for an instance; `eta` in place of the instance's. Raises KeyError."""
    ports = instance.ports
    simple: Mapping[str, type[Fairness | Drf | BinPack]] = {
        "fairness": Fairness, "drf": Drf, "binpack": BinPack, "spread": Spread,
    }  # fmt: skip
    if name in simple:
        return simple[name](ports)
    modes: Mapping[str, Mode] = {"oga-strict": "strict", "oga-reactive": "reactive", "oga-reclaim": "reclaim"}
    options = Options(eta=etas(instance)[name] if eta is None else eta, decay=instance.decay)
    return Oga(ports, modes[name], options)


def warm_up() -> None:
    """Compile everything, so that nothing is timed with it."""
    tiny = draw_port_instance(0, instances=4, slots=3)
    for name in POLICIES:
        play(tiny, name)
    best_fixed(tiny.ports, tiny.arrivals.mean(axis=0), 1e-3)


def play(instance: PortInstance, name: str, eta: float | None = None, repeat: int = 1) -> dict[str, Any]:
    """One policy over all slots. `slots_per_s` times dividing and learning, `slots_per_s_with_reward` also the reward.

    Of several runs, which do the same, the fastest counts: others share the machine.
    """
    ports, arrivals = instance.ports, instance.arrivals
    slots, seconds, with_reward = len(arrivals), [], []
    for _ in range(repeat):
        policy, begun = make(name, instance, eta), time.perf_counter()
        for x in arrivals:
            policy.allot(x)
        seconds.append(time.perf_counter() - begun)
        policy, begun = make(name, instance, eta), time.perf_counter()
        gains = overheads = 0.0
        for x in arrivals:
            gained, overhead = ports.gain_and_overhead(policy.allot(x), x)
            gains += gained
            overheads += overhead
        with_reward.append(time.perf_counter() - begun)
    policy = make(name, instance, eta)
    broken = [ports.violation(policy.allot(x)) for x in arrivals]
    return {
        "reward_mean": (gains - overheads) / slots,
        "slots_per_s": slots / min(seconds),
        "violations": sum(by > TOLERANCE for by in broken),
        "violation_max": max(broken, default=0.0),
        "slots_per_s_with_reward": slots / min(with_reward),
        "gain_mean": gains / slots,
        "overhead_mean": overheads / slots,
    }


def compare(
    instance: PortInstance, eta: float | None = None, step: Step = quiet, repeat: int = 1
) -> dict[str, Any]:
    """All policies on one instance, and the best fixed allocation. `eta` is that of the strict mode."""
    table: dict[str, Any] = {}
    for name in POLICIES:
        step(f"{instance.name}, {name}")
        table[name] = play(instance, name, eta if name == "oga-strict" else None, repeat)
    step(f"{instance.name}, best fixed allocation")
    best = best_fixed(instance.ports, instance.arrivals.mean(axis=0))
    slots = len(instance.arrivals)
    return {
        "policies": table,
        "best_fixed": best.reward,
        "regret_per_slot": best.reward - table["oga-strict"]["reward_mean"],
        "best_fixed_bound": best.bound,
        "regret_bound_per_slot": regret_bound(instance.ports, slots) / slots,
        "strict_of_best_fixed": table["oga-strict"]["reward_mean"] / best.reward if best.reward > 0 else None,
        "instance": {
            "name": instance.name,
            "ports": len(instance.ports.requests),
            "instances": len(instance.ports.capacities),
            "resources": len(instance.ports.beta),
            "edges": instance.ports.edges,
            "slots": slots,
            "decay": instance.decay,
            "eta": {
                name: getattr(make(name, instance, eta if name == "oga-strict" else None), "eta_0", None)
                for name in POLICIES[4:]
            },
        },
        "others_slots_per_s": {size: dict(row) for size, row in OTHERS_SLOTS_PER_S.items()},
    }


def rewards(instance: PortInstance, names: Sequence[str] = POLICIES, eta: float | None = None) -> Any:
    """{policy: mean reward}."""
    return {
        name: play(instance, name, eta if name.startswith("oga") else None)["reward_mean"] for name in names
    }


def over_best_baseline(row: Mapping[str, float]) -> dict[str, float | None]:
    """What strict and reclaim gain over the best baseline, as a share of it; None where that is worth nothing."""
    best = max(row[name] for name in BASELINES)
    return {name: row[name] / best - 1 if best > 0 else None for name in ("oga-strict", "oga-reclaim")}


def seeds(numbers: Sequence[int], slots: int = 2000, step: Step = quiet) -> dict[str, Json]:
    """Fresh instances: {"same_parameters", "all_drawn"}: {"rows", "gain_mean", "gain_min"}.

    In the first, α, β and the utilities are those of the recorded instance; in the second they are drawn anew too.
    """
    found: dict[str, Json] = {}
    for key, parameters in (("same_parameters", 0), ("all_drawn", None)):
        rows: list[Json] = []
        gains: dict[str, list[float]] = {"oga-strict": [], "oga-reclaim": []}
        for seed in numbers:
            step(f"seed {seed}, {key}")
            instance = draw_port_instance(seed, parameters=parameters, slots=slots)
            row = rewards(instance)
            best = best_fixed(instance.ports, instance.arrivals.mean(axis=0))
            over = over_best_baseline(row)
            for name, list_of in gains.items():
                share = over[name]
                if share is not None:
                    list_of.append(share)
            rows.append({"seed": seed, "reward_mean": row, "best_fixed": best.reward, "gain": {**over}})
        found[key] = {
            "rows": rows,
            "gain_mean": {n: float(np.mean(list_of)) if list_of else None for n, list_of in gains.items()},
            "gain_min": {n: min(list_of, default=None) for n, list_of in gains.items()},
        }
    return found


def sweep(by: str, step: Step = quiet) -> list[Json]:
    """One row {"by", "value", "reward_mean", "gain_mean", "overhead_mean"} a value."""
    rows: list[Json] = []
    for value in SWEEPS[by]:
        step(f"{by} {value}")
        settings = {GIVEN[by]: value} if by in GIVEN else {}
        instance = draw_port_instance(0, **settings)
        names: Sequence[str] = POLICIES
        eta = None
        if by == "eta":
            eta, names = value, POLICIES[4:]
        elif by == "decay":
            instance = PortInstance(instance.name, instance.ports, instance.arrivals, instance.eta, value)
            names = POLICIES[4:]
        table = {name: play(instance, name, eta) for name in names}
        rows.append(
            {
                "by": by,
                "value": value,
                **{
                    key: {name: row[key] for name, row in table.items()}
                    for key in ("reward_mean", "gain_mean", "overhead_mean")
                },
            }
        )
    return rows


def several(most: Sequence[int] = (1, 2, 4), step: Step = quiet) -> list[Json]:
    """Binomial arrivals of up to J jobs a port (section 3.4): {"most", "reward_mean", "best_fixed"}."""
    rows: list[Json] = []
    for many in most:
        step(f"up to {many} arrivals a port")
        one = draw_port_instance(0)
        counts = np.random.default_rng(many).binomial(many, 0.7, one.arrivals.shape)
        copies = Copies.make(one.ports, np.full(len(one.ports.requests), many, np.int32))
        x = np.array([copies.arrivals(row) for row in counts])
        instance = PortInstance(f"up to {many}", copies.ports, x, one.eta, one.decay)
        best = best_fixed(instance.ports, x.mean(axis=0))
        rows.append({"most": many, "reward_mean": rewards(instance), "best_fixed": best.reward})
    return rows


class _Dealt(PortPolicy):
    """A baseline whose gangs run all or nothing."""

    def __init__(self, policy: PortPolicy, gangs: Gangs) -> None:
        self.policy, self.gangs, self.name = policy, gangs, policy.name

    def allot(self, x: Floats) -> Floats:
        return self.gangs.all_or_nothing(self.policy.allot(x), x)[0]


def gangs_of(ports: Ports, components: int, least: int, enough: float) -> Gangs:
    """Each port as `components` equal parts of its request, of which `least` must have `enough`."""
    parts = [np.repeat(row[None, :] / components, components, axis=0) for row in ports.requests]
    return Gangs.of(ports, parts, np.full(len(parts), least, np.int32), enough)


def gangs(slots: int = 500, step: Step = quiet) -> list[Json]:
    """Four equal components a port, at least m of which run with a share of their request, or none.

    {"least", "enough", "reward_mean", "started", "relaxed_best_fixed", "regret_per_slot"}: the regret of each OGA
    against the best fixed allocation of the relaxation, worth at least any fixed gang schedule; `started` is the
    share of arrived gangs that run.
    """
    rows: list[Json] = []
    instance = draw_port_instance(0, slots=slots)
    for least, enough in ((1, 0.0), (1, 0.5), (2, 0.5), (4, 0.5), (2, 1.0), (4, 1.0)):
        step(f"gangs, at least {least} of 4 with {enough:.0%}")
        group = gangs_of(instance.ports, 4, least, enough)
        eta = etas(instance)
        policies: dict[str, PortPolicy] = {
            "fairness": _Dealt(Fairness(group.ports), group),
            "drf": _Dealt(Drf(group.ports), group),
            "oga-strict": GangOga(group, "strict", Options(eta=eta["oga-strict"])),
            "oga-reactive": GangOga(group, "reactive", Options(eta=eta["oga-reactive"])),
            "oga-reclaim": GangOga(group, "reclaim", Options(eta=eta["oga-reclaim"])),
        }
        best = best_fixed(group.ports, instance.arrivals.mean(axis=0)).reward
        means: dict[str, Json] = {}
        started: dict[str, Json] = {}
        regret: dict[str, Json] = {}
        for name, policy in policies.items():
            total = runs = 0.0
            for x in instance.arrivals:
                y = policy.allot(x)
                total += group.ports.reward(y, x)
                held = np.bincount(group.ports.port, y.sum(axis=1), len(x)) > 0
                runs += float((held & (x > 0)).sum())
            means[name] = total / slots
            started[name] = runs / float(instance.arrivals.sum())
            if name.startswith("oga"):
                regret[name] = best - total / slots
        rows.append(
            {
                "least": least,
                "enough": enough,
                "reward_mean": means,
                "started": started,
                "relaxed_best_fixed": best,
                "regret_per_slot": regret,
            }
        )
    return rows


def large(step: Step = quiet, repeat: int = 1) -> dict[str, Json]:
    """Figure 5's size: the requests, capacities and edges of the recorded large instance, arrivals by seed 1."""
    drawn = draw_port_instance(0, utility="linear", **(LARGE | {"slots": 1}))  # type: ignore[arg-type]
    x = large_arrivals(len(drawn.ports.requests))
    instance = PortInstance("L100 R1024", drawn.ports, x, drawn.eta, drawn.decay)
    table: dict[str, Json] = {}
    for name in POLICIES:
        step(f"large, {name}")
        table[name] = play(instance, name, repeat=repeat)
    return {"edges": instance.ports.edges, "slots": len(x), "policies": table}


def large_arrivals(ports: int, slots: int = 1000) -> Floats:
    """(slots, ports) Bernoulli(0.7), seed 1."""
    return (np.random.default_rng(1).random((slots, ports)) < 0.7).astype(np.float64)


def growth(step: Step = quiet, sizes: Sequence[int] = GROWTH) -> list[Json]:
    """{"edges", "slot_us": {mode: µs}} against the number of instances at ten ports: the best of three runs."""
    rows: list[Json] = []
    for instances in sizes:
        step(f"growth, {instances} instances")
        slots = max(40, 40_000 // instances)
        instance = draw_port_instance(0, instances=instances, slots=slots)
        rows.append(
            {
                "edges": instance.ports.edges,
                "slot_us": {name: _slot_us(instance, name) for name in POLICIES[4:]},
            }
        )
    return rows


def _slot_us(instance: PortInstance, name: str) -> float:
    """Of dividing and learning alone."""
    best = np.inf
    for _ in range(3):
        policy = make(name, instance)
        begun = time.perf_counter()
        for x in instance.arrivals:
            policy.allot(x)
        best = min(best, time.perf_counter() - begun)
    return 1e6 * best / len(instance.arrivals)
