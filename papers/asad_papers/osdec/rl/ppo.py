"""PPO over batches of trajectories: stable-baselines3's, with a policy, a world and learning rates of our own.

Source: section 4.3 of the OSDEC paper; Schulman et al., *Proximal Policy Optimization Algorithms* (2017), with
generalized advantage estimation (7). `Reinforce` is the variant of Table 1: Williams (1992), without a critic, the mean
return of a step over the trajectories for the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from asad.defer.jobs import Trajectories
from asad.defer.network import STEP_COLUMNS, Shape
from asad.defer.outlook import CLUSTER_WIDTH, JOB_WIDTH
from asad_papers.osdec.rl.batch import Batch
from asad_papers.osdec.rl.torch_network import Auxiliary, Scores

MOST_SCORE = 8.0
"""Far beyond what is drawn around means in (-1, 1); the library wants a bound."""


class Lockstep(VecEnv):
    """All trajectories of a batch at once, each an episode; at their end all begin anew with others."""

    def __init__(self, batch: Batch, size: int, draw: Callable[[], Trajectories]) -> None:
        """`draw` gives `size` trajectories for the next episodes."""
        rows = batch.sight.most_rows
        self.batch, self.draw = batch, draw
        boxes = gymnasium.spaces.Dict(
            {
                "jobs": gymnasium.spaces.Box(-np.inf, np.inf, (rows, JOB_WIDTH), np.float32),
                "count": gymnasium.spaces.Box(0, rows, (1,), np.float32),
                "startable": gymnasium.spaces.Box(0, 1, (rows,), np.float32),
                "cluster": gymnasium.spaces.Box(-np.inf, np.inf, (CLUSTER_WIDTH,), np.float32),
                "steps": gymnasium.spaces.Box(
                    -np.inf, np.inf, (batch.steps.shape[1], len(STEP_COLUMNS)), np.float32
                ),
                "known": gymnasium.spaces.Box(1, batch.steps.shape[1], (1,), np.float32),
            }
        )
        super().__init__(size, boxes, gymnasium.spaces.Box(-MOST_SCORE, MOST_SCORE, (rows,), np.float32))
        self.totals: list[float] = []
        """Means of the batches played so far."""
        self.seen: list[tuple[Any, Any]] = []
        """(history, targets) of the batches played since somebody took them away: the auxiliary tasks' data."""
        self._sum = np.zeros(size)
        self._actions = np.zeros((size, rows), np.float32)

    def reset(self) -> dict[str, Any]:
        self.batch.begin(self.draw())
        self._sum[:] = 0.0
        return self.batch.observation()

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[dict[str, Any], Any, Any, list[dict[str, Any]]]:
        gains = self.batch.step(self.batch.chosen(self._actions))
        self._sum += gains.total(self.batch.worth)
        ended = self.batch.done
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if ended:
            self.totals.append(float(self._sum.mean()))
            self.seen.append((self.batch.history.astype(np.float32), self.batch.targets().astype(np.float32)))
            for info, sum_ in zip(infos, self._sum, strict=True):
                info["episode"] = {"r": float(sum_), "l": self.batch.world.now, "t": 0.0}
            observation = self.reset()
        else:
            observation = self.batch.observation()
        rewards = self.batch.reward(gains).astype(np.float32)
        return observation, rewards, np.full(self.num_envs, ended), infos

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        return [seed] * self.num_envs


def trimmed(observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Jobs, count, startable, cluster as the network takes them: no more rows than the fullest state has."""
    count = observation["count"][:, 0].long()
    rows = max(int(count.max()), 1)
    return (
        observation["jobs"][:, :rows],
        count,
        observation["startable"][:, :rows] > 0.5,
        observation["cluster"],
        observation["steps"],
    )


class Gaussian(ActorCriticPolicy):
    """(5): a score of each job that may start, drawn around the network's mean; of the others none."""

    def __init__(self, *args: Any, shape: Shape, value_rate: float = 1.0, **kwargs: Any) -> None:
        """`value_rate`: by how much faster the value's head learns than the rest."""
        self.shape, self.value_rate = shape, value_rate
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        self.scores = Scores(self.shape)
        self.auxiliary = Auxiliary(self.shape) if self.shape.informed else None
        value = [p for name, p in self.scores.named_parameters() if name.startswith("value")]
        rest = [p for name, p in self.scores.named_parameters() if not name.startswith("value")]
        # the auxiliary tasks learn by themselves (`asad_papers.osdec.rl.auxiliary`)
        self.optimizer = torch.optim.Adam(
            [{"params": rest, "factor": 1.0}, {"params": value, "factor": self.value_rate}],
            lr=lr_schedule(1),
            eps=1e-5,
        )

    def think(self, observation: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means, deviations, values, and which scores count."""
        jobs, count, startable, cluster, steps = trimmed(observation)
        if self.auxiliary is None:
            information = cluster[:, :0]
        else:
            with torch.no_grad():
                information, _ = self.auxiliary(steps, observation["known"][:, 0].long())
        mean, deviation, value = self.scores(jobs, count, cluster, information)
        return mean, deviation, value, startable

    def forward(self, obs: dict[str, Tensor], deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        mean, deviation, value, startable = self.think(obs)
        drawn = mean if deterministic else mean + deviation * torch.randn_like(mean)
        chance, _ = _chances(drawn, mean, deviation, startable)
        rows = obs["jobs"].shape[1]
        return nn.functional.pad(drawn, (0, rows - drawn.shape[1])), value, chance

    def evaluate_actions(self, obs: dict[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        mean, deviation, value, startable = self.think(obs)
        chance, entropy = _chances(actions[:, : mean.shape[1]], mean, deviation, startable)
        return value, chance, entropy

    def predict_values(self, obs: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        return self.think(obs)[2]

    def _predict(self, observation: dict[str, Tensor], deterministic: bool = False) -> Tensor:  # type: ignore[override]
        return self.forward(observation, deterministic)[0]


def returns(rewards: NDArray[Any], gamma: float) -> NDArray[Any]:
    """(steps, trajectories) What is still earned from each step on."""
    found = rewards.copy()
    for step in reversed(range(len(found) - 1)):
        found[step] += gamma * found[step + 1]
    return found


def _chances(drawn: Tensor, mean: Tensor, deviation: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Log of the density of scores, and entropy, summed over those that count; (B,) each."""
    off = (drawn - mean) / deviation
    log = -0.5 * off * off - deviation.log() - 0.5 * math.log(2 * math.pi)
    entropy = deviation.log() + 0.5 + 0.5 * math.log(2 * math.pi)
    nothing = torch.zeros_like(log)
    return torch.where(counts, log, nothing).sum(1), torch.where(counts, entropy, nothing).sum(1)


class Ppo(PPO):
    """stable-baselines3's, with a learning rate of its own for each group of weights, and advantages within groups."""

    group = 1
    """So many neighbours in a batch play the same trajectory."""

    def train(self) -> None:
        """The library's, with advantages less the mean of their group at the same step."""
        if self.group > 1:
            buffer = self.rollout_buffer
            found = buffer.advantages.reshape(len(buffer.advantages), -1, self.group)
            buffer.advantages = (found - found.mean(axis=2, keepdims=True)).reshape(buffer.advantages.shape)
        super().train()

    def _update_learning_rate(self, optimizers: Any) -> None:
        rate = self.lr_schedule(self._current_progress_remaining)
        self.logger.record("train/learning_rate", rate)
        for group in optimizers.param_groups:
            group["lr"] = rate * group["factor"]


class Reinforce(Ppo):
    """The policy's gradient by whole returns, one pass over each batch."""

    def train(self) -> None:
        """One step of the gradient of E[log π · (return − mean return of that step)]."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        buffer = self.rollout_buffer
        earned = returns(buffer.rewards, self.gamma)
        found = earned.reshape(len(earned), -1, max(self.group, 1))
        width = 2 if self.group > 1 else (1, 2)
        gain = (found - found.mean(axis=width, keepdims=True)).reshape(earned.shape)
        gain /= gain.std() + 1e-8
        buffer.advantages[:] = gain
        self.policy.optimizer.zero_grad()
        rows = buffer.buffer_size * buffer.n_envs
        for part in buffer.get(self.batch_size):
            _, chance, entropy = self.policy.evaluate_actions(part.observations, part.actions)
            assert entropy is not None
            loss = -(part.advantages * chance).sum() / rows - self.ent_coef * entropy.sum() / rows
            loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        self._n_updates += 1
        self.logger.record("train/loss", float(loss.detach()))
