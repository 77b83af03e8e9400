"""`cluster = "slurm+mesos"`: the queue of a Slurm partition, the nodes of Mesos offers.

The partition is one whose jobs Slurm itself does not start (`State=DOWN`); `scontrol update PartitionName=… State=UP`
gives everything to Slurm at any time, asad or no asad. A head job of it is held (by an operator, so that its user
cannot release it meanwhile), becomes a gang of ours, and its own batch script runs under its user. What becomes of it
is written into its comment, and at the end into accounting. A job that Mesos does not start within `patience_s` is
released again, as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asad.decisions import Decision, Outcome
from asad.model import Finished, Json, Snapshot
from asad.port import NodeLink
from asad_mesos.handover import SlurmQueue
from asad_mesos.in_hand import Stage
from asad_mesos.job_requests import answer
from asad_mesos.mesos_cluster import MesosCluster
from asad_mesos.queue_settings import read_queue
from asad_mesos.slurm_side import Commands


def read_settings(table: Mapping[str, Any]) -> None:
    """Check `[mesos]` with `[mesos.queue]` in it. Raises ConfigError that names the key and the remedy."""
    from asad_mesos import settings

    read_queue(table.get("queue", {}))
    settings.read_settings({key: value for key, value in table.items() if key != "queue"})


class SlurmMesosCluster:
    """The port over both: jobs that are taken out of Slurm's queue are jobs of the Mesos beneath."""

    def __init__(self, mesos: MesosCluster, queue: SlurmQueue) -> None:
        self.mesos, self.queue = mesos, queue
        self.applications, self.ledger, self.notices = mesos.applications, mesos.ledger, mesos.notices

    @property
    def acted(self) -> list[tuple[str, Outcome]]:
        """What was done without a decision of a policy; whoever reads it empties it."""
        return self.queue.acts

    def may_act(self, may: bool) -> None:
        """May jobs be taken out of Slurm's queue?"""
        self.queue.may = may

    def snapshot(self) -> Snapshot:
        """The cluster as Mesos shows it, after Slurm's queue was looked at. Raises ClusterError."""
        self.queue.step()
        self.notices.extend(self.queue.messages)
        self.queue.messages.clear()
        return self.mesos.snapshot()

    def apply(self, decisions: Sequence[Decision]) -> Iterable[Outcome]:
        """As Mesos does."""
        return self.mesos.apply(decisions)

    def finished(self, since_s: float) -> Finished:
        """As Mesos does."""
        return self.mesos.finished(since_s)

    def request(self, verb: str, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
        """Jobs may be submitted beside Slurm's. Before a teardown Slurm has back what has not started."""
        if verb == "teardown":
            self.queue.return_waiting()
        return answer(self.mesos, verb, arguments, user, uid)

    def story(self, job: str) -> Json:
        """As Mesos has it; of a job of Slurm's that of its gang."""
        number = int(job) if job.isdecimal() and len(job) < 12 else 0
        known = self.queue.in_hand
        entry = known.now.get(number) or known.over.get(number)
        return self.mesos.story(entry.mesos if entry is not None else job)

    def sentence(self) -> str:
        """One line about both."""
        served = sum(entry.state == Stage.SERVED for entry in self.queue.in_hand.now.values())
        return f"{self.mesos.sentence()}; {served} jobs of Slurm's are in hand"

    def recover(self) -> list[str]:
        """What is in hand is found by its origin, in the first step. What `asad-undo` has returned must not be
        launched before that: it is cancelled before Mesos hears of us."""
        sentences = self.queue.recover()
        return sentences + self.mesos.recover()

    def release(self) -> list[str]:
        """Return to Slurm what has not started; as Mesos does for the rest."""
        sentences = self.queue.return_waiting()
        return sentences + self.mesos.release()

    def give_back(self, *, begin: bool = True) -> list[str]:
        """As Mesos does: what has been changed of jobs that wait."""
        return self.mesos.give_back(begin=begin)

    def close(self) -> None:
        """Let go of both. What is held stays held, and what runs goes on, for the next daemon."""
        self.mesos.close()


def open_cluster(
    settings: Mapping[str, Any], *, nodes: NodeLink, state_dir: Path, clock: Callable[[], float]
) -> SlurmMesosCluster:
    """The cluster of `cluster = "slurm+mesos"`: `settings` is the table `[mesos]`, with `[mesos.queue]` in it.

    Raises ConfigError for a setting that is unknown or wrong, ClusterError for a journal that cannot be read.
    """
    from asad_mesos import open_cluster as open_mesos

    queue = read_queue(settings.get("queue", {}))
    mesos = open_mesos(
        {key: value for key, value in settings.items() if key != "queue"},
        nodes=nodes,
        state_dir=state_dir,
        clock=clock,
    )
    commands = Commands(queue.timeout_s)
    try:
        return SlurmMesosCluster(mesos, SlurmQueue(queue, commands, mesos, state_dir, clock))
    except BaseException:
        mesos.close()
        raise
