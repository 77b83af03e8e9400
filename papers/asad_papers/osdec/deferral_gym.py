"""The world of `environment.py` for gymnasium, one trajectory (`DeferEnv`) or many side by side (`DeferVectorEnv`).

Observations are a dictionary of float32:

- `jobs` (M, 8): one row a job that waits, in order of submission, as in `JOB_COLUMNS`; zeros beyond the last.
- `mask` (M,): 1 where there is a job, 2 where it may start now; 0 beyond the last (int8).
- `cluster` (2 + 2·`LOOK`,): the capacity now and what is free, then the cores that running jobs hold in this step and
  the next ones, then the capacity of this step and those before; in parts of `scale`.

An action is a score for each of the M rows, in [−1, 1]; with `hold`, those below it are held back. Rewards are (6),
divided by `scale`. Where more than M jobs wait, those with the latest starts furthest off are not shown and wait.

Needs gymnasium: the extra `rl` of asad-hpc-papers, `pip install './papers[rl]'` in a checkout of asad.
"""

from __future__ import annotations

from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.defer.deferral_options import Packing
from asad.defer.jobs import Trajectories, Worth
from asad.errors import UsageError
from asad.model import Floats, Ints
from asad_papers.osdec.environment import World

LOOK = 24
JOB_COLUMNS = ("cores", "duration", "area", "until_earliest", "until_latest", "delay", "startable", "fits")
"""Of a job: c and c·d in parts of the scale, the rest in steps of 24; `startable` and `fits` (now) are 0 or 1."""
CLUSTER_WIDTH = 2 + 2 * LOOK

Observation = dict[str, NDArray[Any]]


def spaces(most_jobs: int) -> tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box]:
    """Of one trajectory: what is observed, and the scores."""
    wide = np.float32(np.inf)
    seen = gymnasium.spaces.Dict(
        {
            "jobs": gymnasium.spaces.Box(-wide, wide, (most_jobs, len(JOB_COLUMNS)), np.float32),
            "mask": gymnasium.spaces.Box(0, 2, (most_jobs,), np.int8),
            "cluster": gymnasium.spaces.Box(-wide, wide, (CLUSTER_WIDTH,), np.float32),
        }
    )
    return seen, gymnasium.spaces.Box(-1.0, 1.0, (most_jobs,), np.float32)


class _Table:
    """Trajectories, drawn and played so many at a time."""

    def __init__(
        self,
        trajectories: Trajectories,
        together: int,
        worth: Worth | None,
        packing: Packing,
        most_jobs: int,
        hold: float | None,
        span: int,
    ) -> None:
        if most_jobs < 1 or together < 1:
            raise UsageError(
                f"most_jobs {most_jobs}, {together} trajectories at a time; give at least 1 of each"
            )
        self.trajectories, self.together = trajectories, together
        self.worth, self.packing, self.span = worth or Worth(), packing, span
        self.most_jobs, self.hold = most_jobs, hold
        self.scale = max(1.0, float(trajectories.capacity.mean()))
        self.chosen: NDArray[np.intp] = np.zeros(together, np.intp)

    def reset(self, chosen: NDArray[np.intp]) -> Observation:
        self.chosen = chosen
        self.world = World(self.trajectories.take(chosen), self.worth, self.packing, self.span)
        self.shown = np.full((self.together, self.most_jobs), -1, np.int32)
        return self.observe()

    def observe(self) -> Observation:
        world = self.world
        t = world.trajectories
        jobs = np.zeros((self.together, self.most_jobs, len(JOB_COLUMNS)), np.float32)
        mask = np.zeros((self.together, self.most_jobs), np.int8)
        cluster = np.zeros((self.together, CLUSTER_WIDTH), np.float32)
        if not world.done:
            _show(
                world.now, self.scale, t.cores, t.duration, t.earliest, t.latest, t.capacity, world.rows, world.count,
                world.held, self.shown, jobs, mask, cluster,
            )  # fmt: skip
        return {"jobs": jobs, "mask": mask, "cluster": cluster}

    def step(self, action: NDArray[Any]) -> tuple[Observation, Floats, dict[str, Floats]]:
        given = np.asarray(action, np.float64)
        if given.shape != self.shown.shape:
            raise UsageError(f"action: {given.shape}; give scores {self.shown.shape}")
        if self.hold is not None:
            given = np.where(given < self.hold, -np.inf, given)
        scores = np.full(self.world.rows.shape, -np.inf)
        b, place = np.nonzero(self.shown >= 0)
        scores[b, self.shown[b, place]] = given[b, place]
        gains = self.world.step(scores)
        return self.observe(), gains.total(self.worth) / self.scale, gains._asdict()


class DeferEnv(gymnasium.Env[Observation, NDArray[np.float32]]):
    """One trajectory an episode, drawn evenly by the seed; `reset(options={"trajectory": 3})` names one."""

    metadata = {"render_modes": []}  # noqa: RUF012 - as gymnasium has it

    def __init__(
        self,
        trajectories: Trajectories,
        worth: Worth | None = None,
        packing: Packing = "skip-fit",
        most_jobs: int = 128,
        hold: float | None = None,
        span: int = 0,
    ) -> None:
        self._table = _Table(trajectories, 1, worth, packing, most_jobs, hold, span)
        self.observation_space, self.action_space = cast(Any, spaces(most_jobs))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """The first step of a trajectory."""
        super().reset(seed=seed)
        many = len(self._table.trajectories)
        number = int((options or {}).get("trajectory", self.np_random.integers(many)))
        if not 0 <= number < many:
            raise UsageError(f"trajectory {number}: there are {many}, from 0 on")
        seen = self._table.reset(np.array([number], np.intp))
        return {key: value[0] for key, value in seen.items()}, {"trajectory": number}

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Start jobs by these scores. The information holds value, delay and violation of the step, not scaled."""
        seen, reward, parts = self._table.step(np.asarray(action)[None])
        info = {key: float(value[0]) for key, value in parts.items()}
        return (
            {key: value[0] for key, value in seen.items()},
            float(reward[0]),
            self._table.world.done,
            False,
            info,
        )


class DeferVectorEnv(VectorEnv[Observation, NDArray[np.float32], NDArray[Any]]):
    """`num_envs` trajectories in lockstep; all end at once, and begin anew, drawn again, with the next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as gymnasium has it

    def __init__(
        self,
        trajectories: Trajectories,
        num_envs: int,
        worth: Worth | None = None,
        packing: Packing = "skip-fit",
        most_jobs: int = 128,
        hold: float | None = None,
        span: int = 0,
    ) -> None:
        self._table = _Table(trajectories, num_envs, worth, packing, most_jobs, hold, span)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces(most_jobs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ended = False

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """The first steps of trajectories drawn evenly; of a list of seeds, the first is taken for all."""
        super().reset(seed=seed[0] if isinstance(seed, list) else seed, options=options)
        chosen = self.np_random.integers(len(self._table.trajectories), size=self.num_envs)
        self._ended = False
        return self._table.reset(chosen), {"trajectory": chosen}

    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[Observation, Floats, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Start jobs by these scores (num_envs, M); after the last step, begin anew, without a reward."""
        nowhere = np.zeros(self.num_envs, np.bool_)
        if self._ended:
            seen, info = self.reset()
            return seen, np.zeros(self.num_envs), nowhere, nowhere.copy(), info
        seen, reward, parts = self._table.step(np.asarray(actions))
        self._ended = self._table.world.done
        return seen, reward, np.full(self.num_envs, self._ended), nowhere, dict(parts)


@compiled(nogil=True)
def _show(
    now: int,
    scale: float,
    cores: Ints,
    duration: Ints,
    earliest: Ints,
    latest: Ints,
    capacity: Floats,
    rows: Ints,
    count: Ints,
    held: Floats,
    shown: Ints,
    jobs: NDArray[np.float32],
    mask: NDArray[np.int8],
    cluster: NDArray[np.float32],
) -> None:
    """`shown` (B, M) becomes the place in `rows` of each row shown, −1 beyond the last."""
    most = shown.shape[1]
    for b in range(len(count)):
        many = count[b]
        free = capacity[b, now] - held[b, now]
        cluster[b, 0] = capacity[b, now] / scale
        cluster[b, 1] = free / scale
        for h in range(LOOK):
            if now + h < held.shape[1]:
                cluster[b, 2 + h] = held[b, now + h] / scale
            cluster[b, 2 + LOOK + h] = capacity[b, max(0, now - h)] / scale
        shown[b] = -1
        kept = np.ones(many, np.bool_)
        if many > most:
            urgent = np.argsort(latest[rows[b, :many]], kind="mergesort")
            kept[urgent[most:]] = False
        k = 0
        for place in range(many):
            if not kept[place]:
                continue
            i = rows[b, place]
            shown[b, k] = place
            startable = earliest[i] <= now
            mask[b, k] = 2 if startable else 1
            jobs[b, k, 0] = cores[i] / scale
            jobs[b, k, 1] = duration[i] / LOOK
            jobs[b, k, 2] = cores[i] * duration[i] / scale
            jobs[b, k, 3] = max(0, earliest[i] - now) / LOOK
            jobs[b, k, 4] = (latest[i] - now) / LOOK
            jobs[b, k, 5] = max(0, now - earliest[i]) / LOOK
            jobs[b, k, 6] = 1.0 if startable else 0.0
            jobs[b, k, 7] = 1.0 if cores[i] <= free else 0.0
            k += 1
