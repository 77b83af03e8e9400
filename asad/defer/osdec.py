"""`osdec`: a trained network scores the jobs, from what waits, what is known to come and how the capacity moves.

Source: Dong et al., *An Advanced Reinforcement Learning Framework for Online Scheduling of Deferrable Workloads in
Cloud Computing* (OSDEC), section 4. The score is the mean of the network's Gaussian; its chance is for training alone.
A model that was trained to `hold` starts only jobs of a score above 0, unlike the paper, which starts whatever fits.

Options: `model`, the name of one that ships with asad or the path of one's own (`asactl defer train`); `scale_cores`,
the cores that deferrable jobs have in the mean, 0 for those of the model's training. Cost: 1 to 2 ms with 200 jobs.
Needs no torch.
"""

from __future__ import annotations

import re
from importlib import resources

import numpy as np

from asad.defer.jobs import Scorer, Waiting
from asad.defer.network import Model, forward, inform, read
from asad.defer.outlook import CLUSTER_WIDTH, FUTURE, JOB_WIDTH, LOOK, RUNNING, WAITING, describe
from asad.defer.packing import pack, worth_most
from asad.errors import ConfigError
from asad.model import Floats, Ints

SHIPPED = "asad_profiles.osdec"
DEFAULT = "osdec-s1"
SCALES = np.array([0.0, 0.0, 0.0, 32.0, 16.0, 24.0, 0.0])
"""Of `STEP_COLUMNS`; 0 stands for the cores' scale."""


class Osdec(Scorer):
    """A network that serves."""

    name = "osdec"

    def __init__(self, model: str = DEFAULT, scale_cores: float = 0.0) -> None:
        """`scale_cores`: 0 takes the model's own. Raises ConfigError for a model that is not there or not right."""
        if not 0.0 <= scale_cores < 1e9:
            raise ConfigError(
                f"defer.osdec: scale_cores {scale_cores:g} cannot be; give cores, or 0 for the model's"
            )
        self.model = load(model)
        self.scale = scale_cores or self.model.scale_cores

    def score(self, waiting: Waiting) -> Floats:
        """(n,) Means of the network, in (-1, 1); minus infinity for whom it holds back.

        A model that holds back also holds what would not fit beside those it likes better, so that a prefix ends only
        where nothing more fits.
        """
        mean, _, _ = self.think(waiting)
        scores = np.where(waiting.startable & np.isfinite(mean), mean, -np.inf)
        if self.model.spread:
            scores[~worth_most(scores, waiting.cores, waiting.free, self.model.spread)] = -np.inf
        elif self.model.hold:
            scores[scores <= 0.0] = -np.inf
            scores[~pack(scores, waiting.cores, waiting.free, True)] = -np.inf
        return scores

    def think(self, waiting: Waiting) -> tuple[Floats, Floats, float]:
        """(n,) means and (n,) deviations of the scores, NaN where it says nothing, and the value of the state."""
        jobs, cluster = look(self.model, waiting, self.scale)
        information = (
            inform(self.model, recent(waiting, self.scale)) if self.model.shape.informed else np.zeros(0)
        )
        mean, deviation, value = forward(self.model, jobs, cluster, information)
        # one number for each job: of those that are no rows, there is no score
        shown = np.flatnonzero(waiting.startable) if not self.model.shape.future else np.arange(len(waiting))
        found = np.full((2, len(waiting)), np.nan)
        found[:, shown] = mean[: len(shown)], deviation[: len(shown)]
        return found[0], found[1], value


def look(model: Model, waiting: Waiting, scale: float) -> tuple[Floats, Floats]:
    """Rows of the jobs (those of `waiting` that it sees, then running ones if it does), and the cluster's."""
    many = len(waiting)
    running = len(waiting.running_cores) if model.shape.running else 0
    kind = np.full(many + running, RUNNING, np.int32)
    kind[:many] = np.where(waiting.earliest <= waiting.now, WAITING, FUTURE)
    none = np.zeros(running, np.int32)

    def column(mine: Ints, theirs: Ints) -> Ints:
        return np.concatenate([mine, theirs[:running]]).astype(np.int32)

    jobs, cluster = np.zeros((many + running, JOB_WIDTH)), np.zeros(CLUSTER_WIDTH)
    describe(
        waiting.now,
        waiting.end - waiting.now if model.knows_end and waiting.end is not None else 0,
        model.period_steps,
        scale,
        model.arrays["forecast"],
        model.arrays["coming"] * np.array([scale / model.scale_cores, 1.0, 1.0]),
        model.arrays["unknown"],
        float(model.arrays["worth"][0]),
        waiting.history,
        waiting.held(LOOK),
        kind,
        column(waiting.cores, waiting.running_cores),
        column(waiting.duration, waiting.running_left),
        column(waiting.earliest, none),
        column(waiting.latest, none),
        jobs,
        cluster,
        not model.shape.future,
    )
    return (jobs if model.shape.future else jobs[kind != FUTURE]), cluster


def recent(waiting: Waiting, scale: float) -> Floats:
    """(steps, STEP_COLUMNS) of the past, and last the present one."""
    past, many = waiting.past, len(waiting.past.capacity) + 1
    table = np.zeros((many, len(SCALES)))
    table[:, 0] = waiting.history
    table[:-1, 1] = past.held - past.started
    table[-1, 1] = waiting.running_cores.sum()
    table[1:, 2] = past.started
    for column, before, now in (
        (3, past.waiting, len(waiting)),
        (4, past.mean_cores, waiting.cores.mean() if len(waiting) else 0.0),
        (5, past.mean_duration, waiting.duration.mean() if len(waiting) else 0.0),
    ):
        table[:-1, column] = before
        table[-1, column] = now
    table[1:, 6] = np.maximum(past.held - past.capacity, 0.0)
    found: Floats = table / np.where(SCALES > 0.0, SCALES, scale)
    return found


def shipped() -> dict[str, list[dict[str, str]]]:
    """Variants that ship with asad → the options of this policy for each seed that was trained."""
    found: dict[str, list[dict[str, str]]] = {}
    for name in _names():
        found.setdefault(re.sub(r"-s[0-9]+$", "", name), []).append({"model": name})
    return found


def _names() -> list[str]:
    entries = (entry.name for entry in resources.files(SHIPPED).iterdir())
    return sorted(name.removesuffix(".json") for name in entries if name.endswith(".json"))


def load(model: str) -> Model:
    """By the name of one that ships, or the path of a description (`….json`, the weights beside it as `….npz`).

    Raises ConfigError that names the place and the remedy.
    """
    if re.fullmatch(r"[a-z0-9-]{1,60}", model):
        folder = resources.files(SHIPPED)
        described, weights = folder / f"{model}.json", folder / f"{model}.npz"
        if not described.is_file() or not weights.is_file():
            raise ConfigError(
                f"defer.osdec: no model {model} ships with asad; there are {', '.join(_names()) or 'none'}; "
                "or give the path of a .json"
            )
        return read(f"{model}.json", described.read_text(encoding="utf-8"), weights.read_bytes())
    if not model.endswith(".json"):
        raise ConfigError(
            f"defer.osdec: model {model[:200]!r} is neither a name nor the path of a .json; name one"
        )
    try:
        # what decides knows no paths: a name from the configuration, read once
        with open(model, encoding="utf-8") as file:  # noqa: PTH123
            description = file.read(1_000_000)
        with open(model.removesuffix(".json") + ".npz", "rb") as file:  # noqa: PTH123
            content = file.read()
    except (OSError, ValueError) as error:
        raise ConfigError(f"defer.osdec: model {model[:200]}: cannot be read ({str(error)[:120]})") from None
    return read(model, description, content)
