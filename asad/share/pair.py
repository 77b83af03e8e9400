"""A host and a job that might join it: their state as the experts see it, and the draw of a share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.compiling import borrowing
from asad.experts.state import INDEX
from asad.share.history import History, expected_cpu
from asad.share.openings import View

F_CPU, F_CPU_P95, F_MEMORY, F_PAIR = INDEX["cpu"], INDEX["cpu_p95"], INDEX["memory"], INDEX["memory_pair"]
F_STAGE, F_INTERVAL, F_HAPPINESS = INDEX["stage"], INDEX["interval"], INDEX["happiness"]
F_PRESSURE, F_GUEST_CPU, F_GUEST_MEMORY = INDEX["pressure"], INDEX["guest_cpu"], INDEX["guest_memory"]
F_LOAD, F_SIZE = INDEX["load"], INDEX["size_ratio"]


@borrowing
def may_share(view: View, host: int, guest: int) -> bool:
    """Are the two of one group, and not both bound by the memory bus?"""
    if view.share_group[host] != view.share_group[guest]:
        return False
    return not (view.memory_bound[host] and view.memory_bound[guest])


@borrowing
def happiness(view: View, history: History, host: int) -> float:
    """Hp = time to the limit · pace / work left; NaN if its run time cannot be told from history or limit."""
    application = view.application[host]
    if history.runs[application] == 0 or np.isinf(view.limit_end[host]) or np.isnan(view.limit_end[host]):
        return np.nan
    done = view.now - view.start[host] - view.lost[host]
    left = history.run[application] / history.runs[application] - done
    if left <= 0:
        return np.nan  # it runs longer than its application did before
    return max(0.0, view.limit_end[host] - view.now) * view.pace[host] / left


@borrowing
def describe(
    view: View, history: History, host: int, guest: int, load: float, node: int, x: NDArray[np.float32]
) -> None:
    """The state of the pair into `x`; fair share is left as it is (no log and no snapshot has it)."""
    cpu = view.cpu[host]
    if np.isnan(cpu):
        cpu = expected_cpu(history, view.application[host])
    x[F_CPU] = cpu
    x[F_CPU_P95] = cpu
    x[F_STAGE] = 0.0 if cpu * view.cores[host] <= 1.5 and view.cores[host] > 1 else 1.0
    limit = view.limit_end[host] - view.start[host]
    x[F_INTERVAL] = (view.now - view.start[host]) / limit if limit > 0 and not np.isinf(limit) else np.nan
    x[F_HAPPINESS] = happiness(view, history, host)
    x[F_PRESSURE] = max(0.0, 1.0 - view.pace[host])
    x[F_GUEST_CPU] = expected_cpu(history, view.application[guest])
    x[F_LOAD] = load
    x[F_SIZE] = min(1.0, view.cores[guest] / view.cores[host])
    x[F_MEMORY] = np.nan
    x[F_PAIR] = np.nan
    x[F_GUEST_MEMORY] = np.nan
    memory = view.node_memory[node]
    if not np.isnan(memory) and memory > 0:
        cores = view.node_first[node + 1] - view.node_first[node]
        x[F_MEMORY] = min(1.0, view.memory[host] * cores / memory)
        x[F_GUEST_MEMORY] = view.memory[guest] * min(cores, view.cores[guest]) / memory
        x[F_PAIR] = x[F_MEMORY] + x[F_GUEST_MEMORY]


@borrowing
def draw(
    p: NDArray[np.float64],
    alpha: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    exploration: float,
    mixture: NDArray[np.float64],
    u: float,
) -> int:
    """Mix the experts, keep the allowed actions, add the exploration floor, draw one; its index."""
    count = 0
    total = 0.0
    for j in range(len(mixture)):
        mixture[j] = 0.0
        if allowed[j]:
            count += 1
            for i in range(len(alpha)):
                mixture[j] += alpha[i] * p[i, j]
            total += mixture[j]
    drawn = -1
    for j in range(len(mixture)):
        if allowed[j]:
            mixture[j] = exploration / count + (1 - exploration) * (
                mixture[j] / total if total > 0 else 1 / count
            )
            if u >= 0:
                drawn = j
            u -= mixture[j]
    return drawn
