"""Slurm as a cluster: the port over squeue, sinfo, scontrol and sacct, or over pyslurm in a child process.

Nothing is imported here before it is needed: `asad-undo` lives in this package and must work when the rest does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asad.port import NodeLink
    from asad_slurm.cluster import SlurmCluster


def open_cluster(
    settings: Mapping[str, Any], *, nodes: NodeLink, state_dir: Path, clock: Callable[[], float]
) -> SlurmCluster:
    """The cluster that the Slurm commands of this machine talk to.

    `settings` is the table `[slurm]` of asad.toml; `nodes` leads to the node actors; the journal of offers is kept in
    `state_dir`; `clock` gives UTC epoch seconds. Slurm is not asked before `recover` or `snapshot`.
    Raises ConfigError for a setting that is unknown or wrong.
    """
    from asad_slurm.cluster import SlurmCluster
    from asad_slurm.settings import read_settings

    return SlurmCluster(
        read_settings(settings), nodes=nodes, state_dir=state_dir, clock=clock, monotonic=time.monotonic
    )


__all__ = ["open_cluster"]
