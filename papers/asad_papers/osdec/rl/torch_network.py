"""The networks of OSDEC in torch, as they learn; `asad.defer.network` is the same in numpy, as they serve.

Source: section 4.2 of the OSDEC paper and its Figures 2 and 3. The pointer network is that of Vinyals, Fortunato and
Jaitly (2015), with one step of pointing: a recurrent encoder reads the rows in their order, its last state asks, and
every row answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from asad.defer.network import LEAST_DEVIATION, STEP_COLUMNS, TASKS, Shape
from asad.defer.outlook import CLUSTER_COLUMNS, JOB_COLUMNS
from asad.model import Floats

FIRST_DEVIATION = 0.08
"""Of the scores before anything was learned."""


class Encoder(nn.Module):
    """One Transformer layer: attention and feed-forward, each with a residual connection and then a norm."""

    def __init__(self, width: int, heads: int, feed: int) -> None:
        super().__init__()
        self.heads = heads
        self.attend = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, feed)
        self.down = nn.Linear(feed, width)
        self.norm_1 = nn.LayerNorm(width)
        self.norm_2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """`x` (B, n, width); `hidden` (B, n) are rows that nobody may look at."""
        batch, many, width = x.shape
        parts = self.attend(x).view(batch, many, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weight = query @ key.transpose(2, 3) / math.sqrt(width // self.heads)
        weight = weight.masked_fill(hidden[:, None, None, :], -torch.inf).softmax(3)
        seen = (weight @ value).transpose(1, 2).reshape(batch, many, width)
        x = self.norm_1(x + self.out(seen))
        more: Tensor = self.norm_2(x + self.down(functional.relu(self.up(x))))
        return more


class Scores(nn.Module):
    """Means and deviations of the scores, and the value of the state."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width = shape.width
        # not among the weights: they follow from the shape
        self.job_at = _places(shape.job_columns, JOB_COLUMNS)
        self.cluster_at = _places(shape.cluster_columns, CLUSTER_COLUMNS)
        if shape.network == "mlp":
            inputs = shape.most_jobs * len(shape.job_columns) + len(shape.cluster_columns) + shape.informed
            self.encode = nn.Linear(inputs, width)
            self.between = nn.Linear(width, width)
            self.mean = nn.Linear(width, shape.most_jobs)
            self.deviation = nn.Linear(width, shape.most_jobs)
            self.value = nn.Linear(width, 1)
        else:
            self.encode = nn.Linear(shape.inputs, width)
            if shape.network == "pointer":
                self.encoder = nn.GRU(width, width, batch_first=True)
                self.key = nn.Linear(width, width)
                self.query = nn.Linear(width, width)
            else:
                self.layers = nn.ModuleList(
                    Encoder(width, shape.heads, shape.feed) for _ in range(shape.layers)
                )
            self.mean_1 = nn.Linear(width, width)
            self.deviation_1 = nn.Linear(width, width)
            self.value_1 = nn.Linear(width, width)
            self.mean = nn.Linear(width, 1)
            self.deviation = nn.Linear(width, 1)
            self.value = nn.Linear(width, 1)
        with torch.no_grad():
            self.mean.weight.mul_(0.1)
            self.value.weight.mul_(0.1)
            self.deviation.weight.mul_(0.1)
            self.deviation.bias.fill_(math.log(math.expm1(FIRST_DEVIATION)))

    def forward(
        self, jobs: Tensor, count: Tensor, cluster: Tensor, information: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, n) means, (B, n) deviations and (B,) values.

        `jobs` (B, n, JOB_WIDTH), of which the first `count` (B,) rows are jobs; `cluster` (B, CLUSTER_WIDTH);
        `information` (B, informed). The scores of rows that are no jobs mean nothing.
        """
        rows = jobs[:, :, self.job_at]
        beside = torch.cat([cluster[:, self.cluster_at], information], 1)
        if self.shape.network == "mlp":
            return self._mlp(rows, count, beside)
        batch, many, _ = rows.shape
        # one row more, that stands for the cluster and follows the last job
        place = torch.arange(many + 1, device=rows.device)
        is_job = place[None, :] < count[:, None]
        padded = functional.pad(rows, (0, 0, 0, 1)) * is_job[:, :, None]
        x = self.encode(torch.cat([padded, beside[:, None, :].expand(batch, many + 1, -1)], 2))
        is_row = place[None, :] <= count[:, None]
        if self.shape.network == "pointer":
            encoded, _ = self.encoder(x)
            last = encoded[torch.arange(batch), count]
            x = torch.tanh(self.key(encoded) + self.query(last)[:, None, :])
        else:
            for layer in self.layers:
                x = layer(x, ~is_row)
        jobs_only = x[:, :many]
        mean = torch.tanh(self.mean(functional.relu(self.mean_1(jobs_only)))[:, :, 0])
        raw = self.deviation(functional.relu(self.deviation_1(jobs_only)))[:, :, 0]
        values = self.value(functional.relu(self.value_1(x)))[:, :, 0] * is_row
        return mean, functional.softplus(raw) + LEAST_DEVIATION, values.sum(1) / (count + 1)

    def _mlp(self, rows: Tensor, count: Tensor, beside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        most, many = self.shape.most_jobs, rows.shape[1]
        is_job = torch.arange(many, device=rows.device)[None, :] < count[:, None]
        flat = functional.pad((rows * is_job[:, :, None])[:, :most], (0, 0, 0, max(most - many, 0)))
        x = functional.relu(self.encode(torch.cat([flat.flatten(1), beside], 1)))
        x = functional.relu(self.between(x))
        mean, raw = torch.tanh(self.mean(x)), self.deviation(x)
        deviation = functional.softplus(raw) + LEAST_DEVIATION
        more = max(many - most, 0)
        return (
            functional.pad(mean[:, :many], (0, more), value=-1.0),
            functional.pad(deviation[:, :many], (0, more), value=LEAST_DEVIATION),
            self.value(x)[:, 0],
        )


class Auxiliary(nn.Module):
    """Figure 3: a GRU over the last steps, a layer that all tasks share, a layer and a head of each task's own."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.gru = nn.GRU(len(STEP_COLUMNS), shape.hidden, batch_first=True)
        self.shared = nn.Linear(shape.hidden, shape.low)
        self.own = nn.ModuleDict({task: nn.Linear(shape.low, shape.high) for task in TASKS})
        self.head = nn.ModuleDict({task: nn.Linear(shape.high, 1) for task in TASKS})

    def forward(self, steps: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Information (B, informed), and (B, 4) what is foreseen of the next step.

        `steps` (B, window, STEP_COLUMNS): the first `count` (B,) rows are steps, oldest first.
        """
        states, _ = self.gru(steps)
        shared = functional.relu(self.shared(states[torch.arange(len(steps)), count - 1]))
        own = [functional.relu(self.own[task](shared)) for task in TASKS]
        foreseen = torch.cat([self.head[task](one) for task, one in zip(TASKS, own, strict=True)], 1)
        parts = []
        if self.shape.information in ("low", "both"):
            parts.append(shared)
        if self.shape.information in ("high", "both"):
            parts += own
        information = torch.cat(parts, 1) if parts else shared[:, :0]
        return self.shape.factor * information, foreseen


def arrays_of(scores: Scores, auxiliary: Auxiliary | None) -> dict[str, Floats]:
    """Weights by the names of `asad.defer.network.wanted`."""
    found = {name: _plain(tensor) for name, tensor in scores.state_dict().items()}
    if auxiliary is not None:
        found |= {f"auxiliary.{name}": _plain(tensor) for name, tensor in auxiliary.state_dict().items()}
    return found


def set_arrays(scores: Scores, auxiliary: Auxiliary | None, arrays: Mapping[str, Floats]) -> None:
    """The reverse. Raises KeyError or RuntimeError where they do not fit."""
    for module, before in ((scores, ""), (auxiliary, "auxiliary.")):
        if module is not None:
            state = {
                name: torch.as_tensor(np.asarray(arrays[before + name]), dtype=torch.float32)
                for name in module.state_dict()
            }
            module.load_state_dict(state)


def _plain(tensor: Tensor) -> Floats:
    found: Floats = tensor.detach().cpu().numpy().copy()
    return found


def _places(names: tuple[str, ...], known: tuple[str, ...]) -> Tensor:
    return torch.tensor([known.index(name) for name in names], dtype=torch.long)
