"""A warm start: the network learns the scores of a teacher in the states that it comes to itself.

Source: Ross, Gordon and Bagnell, *A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
Learning* (DAgger, 2011). The OSDEC paper starts from nothing; our way saves most of the training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from asad.defer.jobs import Trajectories
from asad.model import Floats
from asad_papers.osdec.rl.batch import Batch, Singles
from asad_papers.osdec.rl.ppo import Gaussian, returns

Teacher = Callable[[Batch, Floats], Floats]
"""(B, n) scores of all rows of a batch, in (-1, 1), of which those above 0 start; NaN for rows of which it says
nothing. It sees the network's own scores."""


class Lesson(NamedTuple):
    """States, and what the teacher says of them."""

    observation: dict[str, torch.Tensor]
    taught: torch.Tensor
    returns: torch.Tensor


def gather(
    policy: Gaussian,
    teacher: Teacher,
    batch: Batch,
    trajectories: Trajectories,
    gamma: float,
    own: bool,
) -> tuple[Lesson, float]:
    """All states of the trajectories, played by the network itself (`own`) or by the teacher; and the mean total."""
    batch.begin(trajectories)
    states: dict[str, list[Singles]] = {}
    taught: list[Singles] = []
    rewards, total = list[Floats](), np.zeros(len(trajectories))
    while not batch.done:
        seen = batch.observation()
        for name, array in seen.items():
            states.setdefault(name, []).append(array)
        mine = greedy(policy, seen, batch)
        wanted = teacher(batch, mine)
        taught.append(wanted.astype(np.float32))
        gains = batch.step(batch.chosen(mine if own else wanted))
        rewards.append(batch.reward(gains))
        total += gains.total(batch.worth)
    lesson = Lesson(
        {name: torch.from_numpy(np.concatenate(arrays)) for name, arrays in states.items()},
        torch.from_numpy(np.concatenate(taught)),
        torch.from_numpy(returns(np.array(rewards), gamma).astype(np.float32).reshape(-1)),
    )
    return lesson, float(total.mean())


def learn(
    policy: Gaussian,
    optimizer: torch.optim.Optimizer,
    lessons: list[Lesson],
    rate: float,
    passes: int,
    batch: int,
) -> float:
    """So many passes over the lessons: mean square error of scores and values. Returns the scores' in the last pass.

    Of rows that the lessons say nothing of, nothing is learned.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    error, rows = 0.0, 0
    for _ in range(passes):
        error, rows = 0.0, 0
        parts = [
            (lesson, part) for lesson in lessons for part in torch.randperm(len(lesson.taught)).split(batch)
        ]
        for number in torch.randperm(len(parts)):
            lesson, part = parts[int(number)]
            seen = {name: tensor[part] for name, tensor in lesson.observation.items()}
            mean, _, value, startable = policy.think(seen)
            off = (mean - lesson.taught[part][:, : mean.shape[1]])[startable]
            off = off[~off.isnan()]
            loss = (off * off).sum() / max(len(off), 1)
            whole = loss + 0.02 * functional.mse_loss(value, lesson.returns[part])
            optimizer.zero_grad()
            whole.backward()
            torch.nn.utils.clip_grad_norm_(policy.scores.parameters(), 1.0)
            optimizer.step()
            error += float((off * off).sum().detach())
            rows += len(off)
    return error / max(rows, 1)


def greedy(policy: Gaussian, seen: dict[str, Singles], batch: Batch) -> Floats:
    """(B, n) means of the network's scores."""
    with torch.no_grad():
        mean, _, _, _ = policy.think({name: torch.from_numpy(array) for name, array in seen.items()})
    scores = np.full(batch.jobs.shape[:2], -1.0)
    scores[:, : mean.shape[1]] = mean.numpy()
    return scores


def played(policy: Gaussian, batch: Batch, trajectories: Trajectories) -> Floats:
    """(B,) Totals of the network without its chance."""
    return batch.play(trajectories, lambda: batch.chosen(greedy(policy, batch.observation(), batch)))
