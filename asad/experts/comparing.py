"""What experts would have lost on recorded cases, though other shares were drawn than they would have drawn.

A case counts for an expert as much more as he lends its share more often than it was drawn: self-normalised importance
weighting. It is fair to a share that was tried at all, and noisy where an expert wants what was seldom tried; errors
are over jobs, since the cases of one job are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from asad.experts.compiled import compile_experts, evaluate_all
from asad.experts.tree import Expert
from asad.model import Floats, Json, ShareCases

SURE = 2.0
"""A difference of so many standard errors is one."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Mean loss of a case, with its standard error; `effective` cases drawn by himself would be worth as much."""

    mean: float
    error: float
    effective: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Losses of experts on the same cases."""

    cases: int
    jobs: int
    in_force: Loss
    """As the shares were drawn."""
    experts: tuple[tuple[str, Loss], ...]
    learned: Loss
    difference: float
    """Of the learned one and those in force; below 0 it loses less."""
    error: float
    """Standard error of that."""

    def to_json(self) -> dict[str, Json]:
        """As `asactl experts fit --json` gives it."""
        losses = [("in force", self.in_force), *self.experts, ("learned", self.learned)]
        return {
            "cases": self.cases,
            "jobs": self.jobs,
            "losses": [{"experts": name, **asdict(loss)} for name, loss in losses],
            "difference": self.difference,
            "error": self.error,
            "verdict": self.verdict,
        }

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `cannot tell`: the learned one against those in force."""
        if not abs(self.difference) > SURE * self.error:
            return "cannot tell"
        return "better" if self.difference < 0 else "worse"


def compare(
    learned: Expert, in_force: Sequence[Expert], cases: ShareCases, action: NDArray[np.intp]
) -> Comparison:
    """On cases that the learned one has not seen; (n,) `action` is the number of the share that was drawn.

    All experts lend the same shares. At least one case.
    """
    chances = chances_of([learned, *in_force], cases.state, action)
    _, job = np.unique(np.array(cases.job), return_inverse=True)
    drawn = np.ones(len(job))
    weights = chances / np.maximum(cases.probability, 1e-12)[:, None]
    base, base_part = _loss(drawn, cases.loss, job)
    losses = [_loss(weights[:, k], cases.loss, job) for k in range(weights.shape[1])]
    new, new_part = losses[0]
    return Comparison(
        cases=len(job),
        jobs=int(job.max()) + 1,
        in_force=base,
        experts=tuple((one.name, loss) for one, (loss, _) in zip(in_force, losses[1:], strict=True)),
        learned=new,
        difference=new.mean - base.mean,
        error=_error(new_part - base_part, job),
    )


def chances_of(experts: Sequence[Expert], states: NDArray[np.float32], action: NDArray[np.intp]) -> Floats:
    """(n, experts) with which chance each would have drawn the share of that number in that state."""
    compiled = compile_experts(tuple(experts))
    p = np.zeros((len(experts), len(experts[0].actions)))
    leaf = np.zeros(len(experts), np.int32)
    chances = np.zeros((len(states), len(experts)))
    for k, x in enumerate(states):
        evaluate_all(compiled, x, p, leaf)
        chances[k] = p[:, action[k]]
    return chances


def _loss(weight: Floats, loss: Floats, job: NDArray[np.intp]) -> tuple[Loss, Floats]:
    """With what each case adds to the error of the mean (n,)."""
    total = weight.sum()
    if not total > 0:
        return Loss(float("nan"), float("inf"), 0.0), np.full(len(loss), np.nan)
    mean = float((weight * loss).sum() / total)
    part = weight * (loss - mean) / total
    return Loss(mean, _error(part, job), float(total**2 / (weight**2).sum())), part


def _error(part: Floats, job: NDArray[np.intp]) -> float:
    """Standard error of a sum of parts, of which those of one job go together."""
    return float(np.sqrt((np.bincount(job, part) ** 2).sum()))
