"""A training as one file, from which it goes on to the same bytes: numbers, weights, optimizers and what draws."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from asad.bounded import BROKEN_ARCHIVE
from asad.errors import UsageError
from asad.model import Floats
from asad_papers.osdec.deferral_figures import standard_error


@dataclass(slots=True)
class Progress:
    """How far a training has come."""

    stage: str = "teacher"
    iteration: int = 0
    """Of PPO."""
    draws: int = 0
    """Batches of trajectories drawn so far."""
    best: float = float("-inf")
    best_at: int = 0
    """The iteration of the best."""
    steps: int = 0
    """Of trajectories that were played to learn from, in all stages; those played ahead are not among them."""
    totals: dict[str, list[float]] = field(default_factory=dict)
    """What was reached on each trajectory that is kept aside, by state."""
    figures: dict[str, float] = field(default_factory=dict)
    """The means of these, and what the stages added."""

    def added(self) -> dict[str, float]:
        """What the states reached on what is kept aside, and what was added: means, and paired standard errors.

        `best` was chosen there, so that it is hardly ever below what it began with; `last` was not.
        """
        found = {state: float(np.mean(each)) for state, each in self.totals.items()}
        found["best_iteration"] = self.best_at
        began = "improved" if "improved" in self.totals else "start"
        for name, after, before in (
            ("gain", "best", "start"),
            ("ppo_gain", "best", began),
            ("ppo_last_gain", "last", began),
        ):
            difference = np.subtract(self.totals[after], self.totals[before])
            found[name] = float(difference.mean())
            found[f"{name}_error"] = standard_error(difference)
        return found


def joined(states: Mapping[str, Mapping[str, Floats]]) -> dict[str, Floats]:
    """Weights of several states in one file, by `state.name`."""
    return {f"{state}.{name}": array for state, arrays in states.items() for name, array in arrays.items()}


def parted(arrays: Mapping[str, Floats], state: str) -> dict[str, Floats]:
    """Those of one of them."""
    before = f"{state}."
    return {name.removeprefix(before): array for name, array in arrays.items() if name.startswith(before)}


def save(
    path: Path,
    plain: Mapping[str, Any],
    weights: Mapping[str, Any],
    policy: nn.Module,
    optimizers: Mapping[str, Optimizer],
) -> None:
    """All that goes on, in one file that is there whole or not at all."""
    kind, keys, position, _, _ = np.random.get_state(legacy=True)  # noqa: NPY002  # what stable-baselines3 draws from
    text = json.dumps({**plain, "generator": [str(kind), int(position)]})
    arrays = {
        "told": np.frombuffer(text.encode(), np.uint8),
        "generator": keys,
        "torch": torch.get_rng_state().numpy(),
        **weights,
        **{f"policy.{name}": tensor.numpy() for name, tensor in policy.state_dict().items()},
    }
    for name, optimizer in optimizers.items():
        for number, state in optimizer.state_dict()["state"].items():
            arrays |= {f"{name}.{number}.{key}": np.asarray(value) for key, value in state.items()}
    partly = path.with_name(f"{path.name}.part")
    with partly.open("wb") as file:
        np.savez(file, **arrays)
    partly.replace(path)


def load(
    path: Path, identity: Mapping[str, Any], policy: nn.Module, optimizers: Mapping[str, Optimizer]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plain data and the weights that were saved; the policy, the optimizers and what draws go on from there.

    Raises UsageError for a file that is broken, or whose `identity` is another.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        plain = json.loads(arrays["told"].tobytes())
    except BROKEN_ARCHIVE as error:
        raise UsageError(f"{path}: cannot be resumed ({error}); train without --resume") from error
    if any(plain.get(key) != value for key, value in json.loads(json.dumps(identity)).items()):
        raise UsageError(
            f"{path}: is of another recipe or seed; train without --resume, or into another folder"
        )
    policy.load_state_dict({name: torch.from_numpy(arrays[f"policy.{name}"]) for name in policy.state_dict()})
    for name, optimizer in optimizers.items():
        whole = optimizer.state_dict()
        whole["state"] = {}
        for key, array in arrays.items():
            if key.startswith(f"{name}."):
                _, number, what = key.split(".")
                whole["state"].setdefault(int(number), {})[what] = torch.from_numpy(np.array(array))
        optimizer.load_state_dict(whole)
    kind, position = plain["generator"]
    np.random.set_state((kind, arrays["generator"], position, 0, 0.0))  # noqa: NPY002
    torch.set_rng_state(torch.from_numpy(arrays["torch"]))
    return plain, arrays
