"""The auxiliary tasks: what will capacity, jobs and violation be at the next step? Trained by their mean square error.

Source: section 4.2.2 of the OSDEC paper. The steps that the GRU is shown are not printed; here it is the last `window`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from asad.model import Floats
from asad_papers.osdec.rl.torch_network import Auxiliary


def windows(history: Floats, window: int) -> tuple[Floats, Floats]:
    """(B·(T−1), window, columns) the steps up to each, as `Batch.steps` has them, and how many each has.

    `history` (B, T, columns). The last step is left out: what comes after it is not known.
    """
    rows, steps, columns = history.shape
    found = np.zeros((rows, steps - 1, window, columns), np.float32)
    known = np.minimum(np.arange(1, steps), window)
    for now in range(steps - 1):
        found[:, now, : known[now]] = history[:, now + 1 - known[now] : now + 1]
    return found.reshape(-1, window, columns), np.tile(known, rows)


def learn(
    network: Auxiliary,
    optimizer: torch.optim.Optimizer,
    history: Floats,
    targets: Floats,
    rate: float,
    passes: int,
    batch: int = 256,
) -> float:
    """So many passes over what was seen, (B, T, columns) and (B, T − 1, 4). Returns the error of the last pass."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    shown, known = windows(history, network.shape.window)
    steps, count = torch.from_numpy(shown), torch.from_numpy(known)
    wanted = torch.from_numpy(np.ascontiguousarray(targets.reshape(-1, targets.shape[2]), np.float32))
    error = 0.0
    for _ in range(passes):
        order = torch.randperm(len(steps))
        error = 0.0
        for part in order.split(batch):
            _, foreseen = network(steps[part], count[part])
            loss = functional.mse_loss(foreseen, wanted[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            error += float(loss.detach()) * len(part) / len(steps)
    return error
