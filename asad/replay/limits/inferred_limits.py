"""Limits that a log shows as it goes on: what replays of it keep to from the moment on at which they could be known.

A user, an account or a QOS has a ceiling in a partition where it never held more so far, although on `OCCASIONS`
separate occasions since it first held that much a job of it waited for more, had room, and nobody in its partition
waited for room; and where that has stood for a day: jobs of a user that start one by one have many ceilings on their
way, each for some hours, and none of them is a limit. Where the log has Slurm's reasons the day is not waited for once
five jobs of the group have started of which the last reason was a limit. It has none any more when it holds more, or
when a job of it is submitted that wants more by itself. So nothing is used of the log that comes later; the nodes of a
partition are part of the machine, which is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asad.model import Floats, JobLog
from asad.replay.limits.limit_table import HELD, Group, LimitTable
from asad.replay.limits.sacctmgr_output import JOBS
from asad.replay.recorded_starts import RecordedStarts
from asad.replay.waits.slurms_word import names_ceiling
from asad.replay.waits.wait_sweep import sweep
from asad.replay.waits.why_waited import OCCASIONS, RESOURCES, inferable, tables_of

LASTS_S = 86_400.0
"""A ceiling has stood for so long before anybody is kept to it."""
ORDER = [RESOURCES.index(JOBS), *(at for at, name in enumerate(RESOURCES) if name != JOBS)]
"""A table of limits has numbers of jobs first."""


@dataclass(frozen=True, slots=True)
class InferredLimits:
    """Ceilings that become known, and cease to hold, as a log goes on."""

    table: LimitTable
    """Groups of the jobs of the log, without a ceiling."""
    changes: Floats
    """(M, 4) in order of time: the moment, number of the group, number of the resource, and the ceiling that holds from
    then on (inf: none)."""

    def __len__(self) -> int:
        """How many ceilings become known."""
        return int(np.isfinite(self.changes[:, 3]).sum())


def inferred_limits(jobs: JobLog, starts: RecordedStarts, memory: Floats) -> InferredLimits:
    """The ceilings that the log shows; `memory` (J,) in bytes a core, 0 where it does not count."""
    nodes, rows = tables_of(jobs, memory, starts)
    ceilings, names = inferable(jobs, rows, starts.machine)
    changes = np.zeros((0, 4))
    if names and len(jobs):
        # what a node has of gres is not known before the log shows it
        nodes = nodes._replace(gres=np.zeros_like(nodes.gres))
        changes = sweep(nodes, rows, ceilings, names_ceiling(jobs), OCCASIONS, LASTS_S).changes
        changes[:, 2] = np.argsort(ORDER)[changes[:, 2].astype(np.intp)]
    groups = -np.sort(-ceilings.groups, axis=1)  # a class has its groups first, then -1
    return InferredLimits(
        LimitTable(
            resources=tuple(RESOURCES[at] for at in ORDER),
            need=np.ascontiguousarray(ceilings.need[:, ORDER]),
            class_of=ceilings.class_of,
            class_groups=groups,
            class_ceiling=np.full((*groups.shape, len(ORDER)), np.inf),
            groups=tuple(
                Group(f"{column} {name}" + ("" if where == "-" else f" in partition {where}"), HELD)
                for column, name, where in names
            ),
            alone=np.full(len(jobs), -1, np.int32),
            alone_texts=(),
            not_applied=(),
        ),
        changes,
    )
