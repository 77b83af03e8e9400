"""What is undone: what an earlier daemon left, before anything is lent; and what this one has lent, at its end."""

from __future__ import annotations

import logging

from asad.cycle import Cycle
from asad.daemon.clusters import KeepsPromises, LiveCluster
from asad.errors import AsadError
from asad.systemd import Heartbeat

log = logging.getLogger(__name__)


class Recovery:
    """Of the cluster that a cycle acts on."""

    def __init__(self, heart: Heartbeat) -> None:
        self._heart = heart
        self.done = False
        """What an earlier daemon left is undone."""

    def recover(self, cycle: Cycle, cluster: LiveCluster, *, quietly: bool = True) -> None:
        """Undo what an earlier daemon left, before anything new is lent. `quietly`: the first cycle tries again."""
        try:
            undone = cluster.recover()
            acts = cycle.mode == "enforce"
            if not (acts and cycle.admit.promises) and isinstance(cluster, KeepsPromises):
                # an earlier daemon promised what this one does not keep; begin times the defer stage takes up
                undone += cluster.give_back(begin=not (acts and cycle.defer.holds))
            for sentence in undone:
                log.info("recovered: %s", sentence)
            self.done = True
        except AsadError as error:
            if not quietly:
                raise
            log.warning("what an earlier daemon left could not be undone yet: %s", error)

    def leave(self, cycle: Cycle, cluster: LiveCluster) -> None:
        """Leave a cluster as a stop would; the next one is recovered anew."""
        self.release(cycle, cluster)
        self.done = False
        try:
            cluster.close()
        except Exception:
            log.exception("the cluster as it was configured before could not be closed")

    def release(self, cycle: Cycle, cluster: LiveCluster) -> list[str]:
        """Take back all offers and quotas; what could not be is left to asad-undo and to the leases' end."""
        # also if it fails half-way: a job that has its own again must not be taken for one let go by hand
        cycle.admit.on_withdrawn()
        cycle.defer.on_withdrawn()
        try:
            with self._heart.beating():  # a slow controller takes its time for every single one
                done = cluster.release()
        except Exception as error:
            log.error("not everything could be released: %s", error)
            return [f"not everything could be released: {error}"]
        for sentence in done:
            log.info("released: %s", sentence)
        return done
