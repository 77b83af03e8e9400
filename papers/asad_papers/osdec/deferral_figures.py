"""The evaluation of the OSDEC paper (section 5), run anew: policies of deferral, both packings, Tables 1, 2 and 4.

Every part gives plain data for JSON. Speeds are of this machine; everything else is the same for the same instances.

- `compare`: all policies on the same trajectories, with either packing (Table 1).
- `offline`: the clairvoyant optimum of the first trajectories, and what policies reach of it.
- `real_time`: the same work without windows (Table 2).
- `settings`: other distributions of cores and durations (Table 4).
- `logs`: real accounting logs, policies fitted to the days before those that they are judged on.
- `trained`: networks of `asactl defer train` against the states that they began with.
- `speed`: steps of the environment a second, and the time of one decision with 200 jobs that wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from asad.defer.deferral_options import PACKINGS, Packing
from asad.defer.features import Weighted
from asad.defer.jobs import Past, Scorer, Trajectories, Waiting, Worth
from asad.defer.linear import Linear
from asad.defer.lookahead import Lookahead
from asad.defer.osdec import Osdec
from asad.defer.packing import starts
from asad.defer.scorers import make_scorer, scorer_names, scorer_options
from asad.errors import UsageError
from asad.model import Floats, Json
from asad_papers.harness import Step, quiet
from asad_papers.osdec.deferral_fitting import fit, learned_rollout
from asad_papers.osdec.deferral_instances import SETTINGS, draw_trajectories
from asad_papers.osdec.environment import Played, World, play
from asad_papers.osdec.offline_starts import optimum
from asad_papers.osdec.trajectories import split
from asad_papers.osdec.tuning import tune

BASELINES = ("fifo", "sjf", "tetris", "edf", "biggest", "linear")
MOST_OF_A_LOG = 16
"""Trajectories that are judged."""
OFFLINE = 6
"""Trajectories that are also solved offline."""
WAITING = 200

PAPER: Mapping[str, Mapping[str, float]] = {
    "fifo": {
        "utilization": 3602.45, "delay": 193.64, "total_mean": 3408.82, "deferrable": 3611.01, "real_time": 3449.22,
    },
    "sjf": {
        "utilization": 3386.66, "delay": 112.06, "total_mean": 3274.66, "deferrable": 3398.76, "real_time": 3298.38,
    },
    "tetris": {
        "utilization": 3689.65, "delay": 282.42, "total_mean": 3407.20, "deferrable": 3696.79, "real_time": 3503.01,
    },
    "osdec": {
        "utilization": 3761.24, "delay": 250.25, "total_mean": 3475.37, "total_std": 12.95, "deferrable": 3781.17,
        "real_time": 3521.23,
    },
}  # fmt: skip
"""Tables 1 and 2 as printed, on the paper's own trace and with its ω1 = 2 and ω2 = 10: not to be had here."""

Entrant = tuple[str, Callable[[Packing], Sequence[Scorer]]]
"""A row of a table: its name, and how to make its policies for a packing, one a seed."""


def entrants(names: Sequence[str] | None = None) -> list[Entrant]:
    """The policies to compare, by name; all that are there for None. Raises UsageError for one that is not."""
    shipped = trained()

    def maker(name: str) -> Callable[[Packing], Sequence[Scorer]]:
        def make(packing: Packing) -> Sequence[Scorer]:
            if name in shipped:
                return [make_scorer("osdec", one) for one in shipped[name]]
            takes = scorer_options(name)
            own: dict[str, Any] = {key: "recorded" for key in ("expected", "sample") if key in takes}
            if name == "linear":
                own["packing"] = packing
            return [make_scorer(name, own)]

        return make

    return [(name, maker(name)) for name in (names if names is not None else known())]


def known() -> tuple[str, ...]:
    """All rows that can be compared here."""
    return (*(name for name in scorer_names() if name != "osdec"), *trained())


def trained() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Rows of learned policies whose weights are there, with the options of each seed."""
    from asad.defer.osdec import shipped

    return cast(Mapping[str, Sequence[Mapping[str, Any]]], shipped())


def warm_up(rows: Sequence[Entrant] | None = None) -> None:
    """Compile what the policies need, of all for None, so that nothing is timed with it."""
    tiny = draw_trajectories(range(2))
    for _, make in rows if rows is not None else entrants():
        for scorer in make("skip-fit")[:1]:
            play(tiny.take([0]), scorer)


def compare(
    trajectories: Trajectories,
    rows: Sequence[Entrant],
    worth: Worth,
    span: int = 0,
    step: Step = quiet,
    packings: Sequence[Packing] = PACKINGS,
    ends: bool = True,
    both_ends: bool = False,
) -> dict[str, dict[str, Any]]:
    """{"prefix", "skip_fit": {policy: the means over trajectories and seeds}}.

    `ends`: do policies know when trajectories end? With `both_ends` the total of who does not is there too, as
    `endless_mean`.
    """
    found: dict[str, dict[str, Any]] = {}
    for packing in packings:
        table: dict[str, Any] = {}
        earned: dict[str, Floats] = {}
        for name, make in rows:
            step(f"{name}, {packing}")
            scorers = make(packing)
            runs = [play(trajectories, one, packing, span, ends) for one in scorers]
            earned[name] = _totals(runs, worth)
            row = table[name] = _row(trajectories, runs, worth)
            if both_ends:
                blind = runs
                if ends and not isinstance(scorers[0], Weighted):  # whose scores do not ask when the end is
                    blind = [play(trajectories, one, packing, span, False) for one in scorers]
                row["endless_mean"] = float(_totals(blind, worth).mean())
        for name, row in table.items():
            paired = "fifo" in earned
            row["over_fifo_error"] = standard_error(earned[name] - earned["fifo"]) if paired else None
        found[packing.replace("-", "_")] = table
    return found


def _totals(runs: Sequence[Played], worth: Worth) -> Floats:
    """(B,) Of each trajectory, the mean over seeds."""
    found: Floats = np.mean([run.gains.total(worth) for run in runs], axis=0)
    return found


def standard_error(values: Floats) -> float:
    """Of the mean of `values` (n,); 0 for one."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def _row(trajectories: Trajectories, runs: Sequence[Played], worth: Worth) -> dict[str, Json]:
    totals = np.array([run.gains.total(worth) for run in runs])
    means = totals.mean(axis=1)
    capacity = trajectories.capacity

    def mean(values: Sequence[Any]) -> float:
        return float(np.mean([np.mean(one) for one in values]))

    return {
        "total_mean": float(means.mean()),
        "total_std": float(totals.mean(axis=0).std()),
        "total_error": standard_error(totals.mean(axis=0)),
        "utilization": mean([run.gains.value for run in runs]),
        "delay": worth.delay * mean([run.gains.delay for run in runs]),
        "violation": worth.violation * mean([run.gains.violation for run in runs]),
        "seeds": len(runs),
        "seeds_std": float(means.std(ddof=1)) if len(runs) > 1 else None,
        "started": mean([run.started >= 0 for run in runs]) if len(trajectories.cores) else 0.0,
        "capacity_used": mean(
            [np.minimum(run.held, capacity).sum() / max(1.0, capacity.sum()) for run in runs]
        ),
    }


def offline(
    trajectories: Trajectories,
    rows: Sequence[Entrant],
    worth: Worth,
    span: int = 0,
    many: int = OFFLINE,
    time_limit_s: float = 60.0,
    step: Step = quiet,
    ends: bool = True,
) -> dict[str, Json]:
    """The optimum of the first `many` trajectories, of (1) as printed and where no decision exceeds C_t (`packed`).

    `policies`: the mean total of each on the same ones, by packing; `reached`: the best of both as a share of `bound`.
    """
    some = trajectories.take(range(min(many, len(trajectories))))
    found: dict[str, Json] = {"trajectories": len(some), "time_limit_s": time_limit_s}
    for key, packed in (("", False), ("packed_", True)):
        plans = []
        for number in range(len(some)):
            step(f"offline optimum {number + 1} of {len(some)}{', packed' if packed else ''}")
            plans.append(optimum(some, number, worth, packed=packed, span=span, time_limit_s=time_limit_s))
        found[f"{key}total_mean"] = float(np.mean([plan.total for plan in plans]))
        found[f"{key}bound_mean"] = float(np.mean([plan.bound for plan in plans]))
        found[f"{key}gap_max"] = max(plan.gap for plan in plans)
    table = compare(some, rows, worth, span, step, ends=ends)
    found["policies"] = {
        packing: {name: row["total_mean"] for name, row in each.items()} for packing, each in table.items()
    }
    bound = cast(float, found["bound_mean"])
    found["reached"] = {
        name: max(each[name]["total_mean"] for each in table.values()) / bound if bound > 0 else None
        for name, _ in rows
    }
    return found


def settings(
    rows: Sequence[Entrant],
    worth: Worth,
    seeds: Sequence[int],
    span: int = 0,
    step: Step = quiet,
    ends: bool = True,
) -> dict[str, Json]:
    """Table 4: {setting: {policy: total_mean}}, skip-fit, of trajectories drawn with these seeds."""
    found: dict[str, Json] = {}
    for name, setting in SETTINGS.items():
        if name == "recorded":
            continue
        drawn = draw_trajectories(seeds, setting)
        step(name)
        table = compare(drawn, rows, worth, span, quiet, ("skip-fit",), ends)
        found[name] = {policy: row["total_mean"] for policy, row in table["skip_fit"].items()}
    return found


def logs(
    read: Sequence[tuple[str, Trajectories, float]],
    names: Sequence[str],
    worth: Worth,
    span: int = 0,
    step: Step = quiet,
) -> dict[str, Json]:
    """{log: {"trajectories", "learned_from", "jobs", "policies"}}, skip-fit. `read`: name, trajectories, steps a day.

    Nobody knows where the trajectories end. Of each log the last fifth is judged, at most `MOST_OF_A_LOG` trajectories
    evenly spread over it; what policies expect is fitted to what was before.
    """
    found: dict[str, Json] = {}
    for log, trajectories, period in read:
        learned, kept = split(trajectories, f"the log {log}", 5)
        some = kept.take(np.unique(np.linspace(0, len(kept) - 1, MOST_OF_A_LOG).round().astype(int)))
        rows = fitted_entrants(names, learned, int(period))
        step(f"the log {log}")
        table = compare(some, rows, worth, span, quiet, ("skip-fit",), False)
        found[log] = {
            "trajectories": len(some), "learned_from": len(learned), "jobs": len(some.cores),
            "mean_capacity": float(some.capacity.mean()), "policies": table["skip_fit"],
        }  # fmt: skip
    return found


def fitted_entrants(names: Sequence[str], learned: Trajectories, period: int) -> list[Entrant]:
    """As `entrants`, with what they expect, and the weights of `linear`, fitted to `learned`.

    Networks stay as they were trained, and take the mean capacity for their scale.
    """
    usual, shipped = fit(learned, period), trained()
    scale = max(1.0, float(learned.capacity.mean()))

    def maker(name: str) -> Callable[[Packing], Sequence[Scorer]]:
        def make(packing: Packing) -> Sequence[Scorer]:
            if name in shipped:
                return [make_scorer("osdec", {**one, "scale_cores": scale}) for one in shipped[name]]
            if name == "rollout":
                return [learned_rollout(learned, period)]
            made = make_scorer(name)
            if isinstance(made, Lookahead):
                made.expected = usual
            if isinstance(made, Linear):
                made.weights = tune(learned, np.random.default_rng(0), packing)
            return [made]

        return make

    return [(name, maker(name)) for name in names]


def trained_against(
    folder: Path, trajectories: Trajectories, span: int = 0, step: Step = quiet, ends: bool = True
) -> list[dict[str, Json]]:
    """What training added: each network of `asactl defer train --out FOLDER` against the states that it went through.

    On these trajectories, by its own ω1, ω2 and packing: the total of `start` (the warm start), of `improved` (what
    PPO or REINFORCE began with), of `last` (what they ended with) and of `best`, the model; differences with their
    paired standard errors. `information`: the best less that of `ppo-att` of the same seed. Raises UsageError where
    there are no networks.
    """
    rows: list[dict[str, Json]] = []
    plain: dict[str, Floats] = {}
    totals: dict[str, Floats] = {}
    for path in sorted(folder.glob("*-s*.json")):
        name = path.stem
        step(name)
        states = {"best": path} | {
            state: path.with_suffix("") / f"{state}.json" for state in ("start", "improved", "last")
        }
        played: dict[str, Floats] = {}
        for state, file in states.items():
            if file.is_file():
                scorer = Osdec(str(file))
                worth = Worth(*scorer.model.arrays["worth"].tolist())
                packing = cast(Packing, scorer.model.packing)
                played[state] = _totals([play(trajectories, scorer, packing, span, ends)], worth)
        row: dict[str, Json] = {
            "name": name, "steps": scorer.model.recipe.get("steps"), "algorithm": scorer.model.recipe.get("algorithm"),
        }  # fmt: skip
        row |= {state: float(each.mean()) for state, each in played.items()}
        began = "improved" if "improved" in played else "start"
        for key, after, before in (("gain", "best", "start"), ("learner_gain", "last", began)):
            if after in played and before in played:
                row |= _difference(key, played[after] - played[before])
        rows.append(row)
        totals[name] = played["best"]
        if name.startswith("ppo-att-s"):
            plain[name.removeprefix("ppo-att")] = played["best"]
    for row in rows:
        name, seed = cast(str, row["name"]), f"-s{cast(str, row['name']).rpartition('-s')[2]}"
        if name.startswith(("osdec-s", "ppo-att-aux")) and seed in plain:
            row |= _difference("information", totals[name] - plain[seed])
    if not rows:
        raise UsageError(f"--models {folder}: holds no networks; asactl defer train --out makes them")
    return rows


def _difference(key: str, values: Floats) -> dict[str, Json]:
    return {key: float(values.mean()), f"{key}_error": standard_error(values)}


def speed(rows: Sequence[Entrant], repeat: int = 5) -> dict[str, Json]:
    """`steps_per_s` of the environment, by EDF and as a learner steps it; `decide_ms`: the best of several runs."""
    drawn = draw_trajectories(range(64))
    edf = make_scorer("edf")
    play(drawn, edf)
    steps = len(drawn) * drawn.steps
    played = min(_timed(lambda: play(drawn, edf)) for _ in range(repeat))

    def by_step() -> None:
        world = World(drawn)
        while not world.done:
            world.step(world.weighted(edf.weights))  # type: ignore[attr-defined]

    by_step()
    stepped = min(_timed(by_step) for _ in range(repeat))
    waiting = crowd(WAITING)
    each: dict[str, Json] = {}
    for name, make in rows:
        scorer = make("skip-fit")[0]
        starts(scorer, waiting)
        each[name] = 1e3 * min(_timed(partial(starts, scorer, waiting)) for _ in range(10 * repeat))
    return {
        "steps_per_s": steps / played,
        "steps_per_s_stepped": steps / stepped,
        "decide_ms": max(cast(list[float], list(each.values())), default=0.0),
        "decide_ms_each": each,
    }


def crowd(many: int, seed: int = 0) -> Waiting:
    """One decision with so many jobs that wait, half of which may start, in a recorded setting four times as wide."""
    rng = np.random.default_rng(seed)
    now, past = 60, 60
    cores = rng.choice([1, 2, 4, 8, 16], many).astype(np.int32)
    duration = rng.integers(1, 24, many).astype(np.int32)
    earliest = (now + rng.integers(-8, 9, many)).astype(np.int32)
    latest = np.maximum(now, earliest + rng.integers(0, 9, many)).astype(np.int32)
    submitted = np.minimum(now, earliest - rng.integers(0, 12, many)).astype(np.int32)
    order = np.argsort(submitted, kind="stable")
    running = 40
    capacity = 180.0 + 80.0 * np.sin(np.arange(past + 1) / 48 * 2 * np.pi)
    return Waiting(
        now,
        cores[order],
        duration[order],
        earliest[order],
        latest[order],
        submitted[order],
        float(capacity[-1]),
        rng.choice([1, 2, 4], running).astype(np.int32),
        rng.integers(1, 20, running).astype(np.int32),
        Past(
            capacity[:-1],
            *(
                np.asarray(rng.uniform(low, high, past))
                for low, high in ((80, 160), (0, 30), (100, 220), (3, 5), (3, 6))
            ),
        ),
    )


def _timed(what: Callable[[], object]) -> float:
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun
