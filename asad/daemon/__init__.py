"""The daemon: a live cluster, cycle after cycle. What a cycle does stands in `asad.cycle`.

One thread, the main one, owns cluster, policies and guard (`daemon`). The control socket's threads hand their requests
(`requests`) over to it (`task_queue`), but for jobs that a cluster queues itself. The metrics endpoint and `status`
report what the last cycle left (`figures`), and the state store is written by a thread of its own; so neither a slow
store nor an operator holds up a cycle.
"""

from asad.daemon.clusters import (
    ActsByItself,
    HasStories,
    KeepsPromises,
    LiveCluster,
    NoNodes,
    TakesJobs,
    check,
    open_cluster,
)
from asad.daemon.daemon import Daemon
from asad.daemon.identity import only_one

__all__ = [
    "ActsByItself",
    "Daemon",
    "HasStories",
    "KeepsPromises",
    "LiveCluster",
    "NoNodes",
    "TakesJobs",
    "check",
    "only_one",
    "open_cluster",
]
