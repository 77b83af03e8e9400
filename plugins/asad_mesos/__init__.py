"""Mesos as a cluster: a framework that withholds offers until a gang fits, behind the port.

Nothing is imported here before it is needed: `asad-mesos-executor` lives in this package and runs on agents with the
standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asad.port import NodeLink
    from asad_mesos.mesos_cluster import MesosCluster


def open_cluster(
    settings: Mapping[str, Any], *, nodes: NodeLink, state_dir: Path, clock: Callable[[], float]
) -> MesosCluster:
    """The cluster whose master the settings name.

    `settings` is the table `[mesos]` of asad.toml; `nodes` leads to the node actors; framework id, jobs and tasks are
    kept in `state_dir`; `clock` gives UTC epoch seconds. Mesos is not asked before `recover` or `snapshot`.
    Raises ConfigError for a setting that is unknown or wrong, or pymesos that is not installed.
    """
    from asad_mesos.mesos_cluster import MesosCluster
    from asad_mesos.settings import read_settings

    return MesosCluster(read_settings(settings), nodes=nodes, state_dir=state_dir, clock=clock)


__all__ = ["open_cluster"]
