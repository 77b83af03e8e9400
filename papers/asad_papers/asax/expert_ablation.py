"""What the experts of `asax` add: the same replay with other trees, and without any, under three kinds of jobs.

On the generated sample: as it was made up; with CPU use that varies (`USE_SD`); and with a fifth of the applications
bound by memory bandwidth, which nobody knows but who measures what sharing costs. `measured` asks no expert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import as_file, files

import numpy as np

from asad.experts import Expert, load_experts
from asad.experts.tree import Leaf
from asad.model import Json
from asad.replay.cpu_demand import assign
from asad.replay.machine import from_flags
from asad.replay.playing import Played, beside, leave_alone, pour
from asad.replay.readers import read_log
from asad.replay.replay_settings import Settings
from asad.replay.summary import summarise
from asad.replay.workbench import Bench, prepare

USE_SD = 0.2
BOUND = 0.2
"""Part of the applications that is bound by memory bandwidth."""
SETTINGS = ("as it is", "use varies", "memory-bound")
"""The last: a fifth of the applications."""
VARIANTS = (
    "slurm",
    "fluid",
    "measured",
    "asax",
    "asax, one uniform tree",
    "asax, one tree never lends",
    "pool-oracle",
)
FIGURES = (
    "response_mean_s",
    "wait_mean_s",
    "guests",
    "hosts",
    "late",
    "stretched_guests",
    "stretched_hosts",
    "stretched_lateness_s",
    "lateness_over_saved",
    "killed_by_lending",
    "wall_s",
)


def one_leaf(name: str, lend: Mapping[float, float], actions: Sequence[float]) -> Expert:
    """A tree that says the same of every host: the chances of `lend` by share."""
    leaf = Leaf("always", tuple(lend.get(action, 0.0) for action in actions))
    return Expert(
        name=name, about="always the same", actions=tuple(actions), root="always", nodes=(), leaves=(leaf,)
    )


def sample(setting: str, seed: int = 0) -> Bench:
    """The generated sample on its machine, under one of `SETTINGS`."""
    with as_file(files("asad_profiles") / "samples" / "generated-cluster.sacct.gz") as path:
        recorded = read_log(path)
    settings = Settings(
        policies=("slurm",), seed=seed, use_memory=True, use_sd=USE_SD if setting == SETTINGS[1] else 0.0
    )
    codes, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, codes, names, settings.demand, seed)
    bench = prepare(recorded, from_flags(16, 32, "128G"), settings, demand, [])
    if setting == SETTINGS[2]:
        rng = np.random.default_rng(np.random.SeedSequence((seed, 0xB0)))
        bound = rng.random(len(names)) < BOUND
        bench.workload = replace(bench.workload, memory_bound=bound[bench.workload.application])
    return bench


def play(bench: Bench, variant: str, seed: int) -> Played:
    """One variant over the sample."""
    actions = load_experts(None)[0].actions
    even = one_leaf("uniform", dict.fromkeys(actions, 1.0 / len(actions)), actions)
    never = one_leaf("never", {actions[0]: 1.0}, actions)
    experts = {VARIANTS[4]: (even,), VARIANTS[5]: (never,)}.get(variant, bench.experts)
    return beside(replace(bench, experts=experts), variant.partition(",")[0], seed=seed, what=variant)


def evaluate(
    *,
    seed: int = 0,
    settings: Sequence[str] = SETTINGS,
    variants: Sequence[str] = VARIANTS,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Json]:
    """{setting: {variant: figures}}, with ratios of response and wait against Slurm."""
    table: dict[str, Json] = {}
    done = 0
    for setting in settings:
        bench = sample(setting, seed)
        alone = leave_alone(bench, "slurm")
        found: dict[str, Json] = {}
        for variant in variants:
            if variant == "slurm":
                played, baseline = alone, None
            elif variant == "fluid":
                played, baseline = pour(bench), alone
            else:
                played, baseline = play(bench, variant, seed), alone
            policy = variant.partition(",")[0]
            metrics = summarise(bench, policy, played, baseline).metrics
            figures: dict[str, Json] = {name: metrics.get(name) for name in FIGURES}
            own = {name: float(column.mean()) for name, column in _means(bench, alone).items()}
            figures["response_ratio"] = float(metrics["response_mean_s"] or 0.0) / own["response"]
            figures["wait_ratio"] = float(metrics["wait_mean_s"] or 0.0) / own["wait"]
            found[variant] = figures
            done += 1
            if progress is not None:
                progress(done, len(settings) * len(variants))
        table[setting] = found
    return table


def _means(bench: Bench, alone: Played) -> dict[str, np.ndarray]:
    job, submit_s = alone.cluster.state.job, bench.workload.submit_s
    return {"response": job["end"] - submit_s, "wait": job["start"] - submit_s}
