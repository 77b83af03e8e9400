"""Agents as the nodes of a snapshot: those that are there, or have tasks of ours."""

from __future__ import annotations

from collections.abc import Mapping, Set

import numpy as np
from numpy.typing import NDArray

from asad.ineligible import NodeIneligible
from asad.model import Machine
from asad.port import NodeReport
from asad_mesos.agent_offers import CPUS, GPUS, MEM, Agents
from asad_mesos.job_spec import MEBIBYTE


class Nodes:
    """A node's number is its place in `agents`, and in every array over nodes."""

    def __init__(self) -> None:
        self.agents: list[str] = []
        """Ids of agents."""
        self.number: dict[str, int] = {}
        """By agent."""
        self.machine = Machine((), np.zeros(0, np.int32), np.zeros(0), "offers of Mesos")
        self._at: list[int] = []
        """Rows in `Agents`."""

    def see(self, agents: Agents, used: Set[str]) -> None:
        """What is known of agents now; on those in `used` tasks of ours run. Nodes bear the names of their hosts, and
        where several agents are on one host names by which they differ."""
        self.agents = [
            agent for row, agent in enumerate(agents.ids) if agents.total[CPUS, row] > 0 or agent in used
        ]
        self.number = {agent: node for node, agent in enumerate(self.agents)}
        self._at = at = [agents.number[agent] for agent in self.agents]
        all_names = agents.names()
        names = tuple(all_names[row] for row in at)
        cores = np.maximum(agents.total[CPUS, at] // 1000, 0).astype(np.int32)
        memory = agents.total[MEM, at] / 1000 * MEBIBYTE
        self.machine = Machine(names, cores, memory.astype(np.float64), "offers of Mesos")

    def cores(self) -> dict[str, int]:
        """By agent."""
        return dict(zip(self.agents, self.machine.cores.tolist(), strict=True))

    def gpus(self, agents: Agents) -> dict[int, float]:
        """GPUs of the nodes that have some; none where they are not asked for (`[mesos] gpus`)."""
        counts = agents.total[GPUS, self._at].tolist()
        return {node: float(count) / 1000 for node, count in enumerate(counts) if count > 0}

    def ineligible(self, agents: Agents, reports: Mapping[str, NodeReport]) -> NDArray[np.int8]:
        """Why nothing is lent on a node: numbers of `NodeIneligible`."""
        why = np.zeros(len(self.agents), np.int8)
        for node, row in enumerate(self._at):
            if report_of(agents, row, reports) is None:
                why[node] = NodeIneligible.NO_ACTOR
        why[agents.total[CPUS, self._at] == 0] = NodeIneligible.DOWN
        return why


def report_of(agents: Agents, row: int, reports: Mapping[str, NodeReport]) -> NodeReport | None:
    """What the actor of an agent's node says: it may name itself by address, by host or by its short name."""
    for name in (agents.addresses[row], agents.hosts[row], agents.hosts[row].partition(".")[0]):
        if name in reports:
            return reports[name]
    return None
