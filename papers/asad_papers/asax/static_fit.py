"""Which constants of contention come nearest to the paper's Static, and what the other policies do under them.

The paper's Static lengthens the queue (×1.09, ×1.17 and ×1.43 of Slurm's makespan), ours under measured constants
shortens it. The machine of the paper is not to be had, so this asks what sharing a core would have had to cost there:
one factor for pairs that compute and one for pairs that live on memory, the same for host and guest, are searched on a
grid for the least root mean square of the differences in log makespan ratio. The constants are fitted on the very
figures that they are compared with: they explain, and claim nothing.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from asad.contention import CONSTANTS
from asad.model import Json
from asad.replay.replay_settings import Settings
from asad_papers.asax.paper_workload import PAPER, SETTINGS, SIZES, evaluate

GRID = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
FIT_SEEDS = 5
"""Seeds of each point of the grid; what is reported of the best is over all seeds."""


def fit_static(
    *,
    seeds: Sequence[int],
    sizes: Sequence[int] = SIZES,
    policies: Sequence[str],
    chained: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Json]:
    """`mu_cpu`, `mu_memory`, `residual` (of the log ratio, root mean square over the sizes), `grid` (all points), and
    under `sizes` the figures of all policies with them (as `asad_papers.asax.paper_workload.evaluate` gives them)."""
    points = [(cpu, memory) for cpu in GRID for memory in GRID if memory <= cpu]
    grid: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (cpu, memory) in enumerate(points):
            settings = _settings(Path(folder), cpu, memory)
            found = evaluate(
                seeds=seeds[:FIT_SEEDS],
                sizes=sizes,
                policies=("slurm", "static"),
                chained=chained,
                settings=settings,
            )
            grid.append({"mu_cpu": cpu, "mu_memory": memory, "residual": residual(found)})
            if progress is not None:
                progress(number + 1, len(points))
        best = min(grid, key=lambda point: point["residual"])
        settings = _settings(Path(folder), best["mu_cpu"], best["mu_memory"])
        table = evaluate(seeds=seeds, sizes=sizes, policies=policies, chained=chained, settings=settings)
    return {**best, "residual": residual(table), "grid": list(grid), "sizes": table}


def residual(table: Any) -> float:
    """Root mean square over the sizes of log(ratio here / ratio in the paper) of Static's makespan to Slurm's."""
    logs = [
        math.log(
            figures["static"]["makespan_ratio"] * _printed(int(size), "slurm") / _printed(int(size), "static")
        )
        for size, figures in table.items()
    ]
    return math.sqrt(sum(one * one for one in logs) / len(logs))


def _printed(size: int, name: str) -> float:
    return PAPER[size][name].response_h


def _settings(folder: Path, cpu: float, memory: float) -> Settings:
    """The evaluation's settings with these constants, of guests in the idle class and of quotas alike."""
    lines = [f"{name} = {memory if name.endswith('memory') else cpu}" for name in CONSTANTS]
    path = folder / "contention.toml"
    path.write_text("\n".join([*lines, "", "[static]", *lines, ""]), encoding="utf-8")
    return replace(SETTINGS, contention=path)
