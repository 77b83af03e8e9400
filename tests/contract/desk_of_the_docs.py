"""The resource manager and its plugin that docs/how-to/write-a-cluster.md shows, as they stand there."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from mesos_on_paper import WillingNodes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-cluster.md"


def desk_module() -> Any:
    """The code of the page as one module."""
    module = ModuleType("desk_of_the_page")
    sys.modules[module.__name__] = module
    code = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    exec(compile("\n\n".join(code), str(PAGE), "exec"), module.__dict__)
    return module


def desk_cluster(nodes: int, cores: int, count: int, seed: int = 1) -> tuple[Any, Any]:
    """The cluster, and its resource manager with so many jobs; every third is a task of one of two arrays."""
    shown, rng = desk_module(), np.random.default_rng(seed)
    jobs = []
    for number in range(count):
        run_s = round(float(rng.uniform(60.0, 3600.0)))
        jobs.append(
            shown.Job(
                name=f"job{number}",
                user=f"user{number % 3}",
                cores=int(rng.choice([1, 2, 4, 8, 8, 16, 24])),
                submit_s=round(float(rng.uniform(0.0, 14_400.0))),
                run_s=run_s,
                limit_s=run_s * float(rng.uniform(1.1, 4.0)),
                array=f"array{number % 2}" if number % 3 == 0 else "",
                note=f"utility=constant({number})" if number % 5 == 0 else "",
            )
        )
    desk = shown.Desk(nodes, cores, jobs)
    return shown.DeskCluster(desk, WillingNodes()), desk
