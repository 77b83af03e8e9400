"""A recorded cluster in accelerated time, as a live daemon wants it: without Slurm, without root, and with a clock.

Virtual time moves when the daemon asks for its next cycle, by a poll in which there is something new, and the daemon
then sleeps until that moment has come in accelerated time. So a slow machine falls behind and misses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asad.config import Config
from asad.decisions import Decision, Outcome
from asad.errors import UsageError
from asad.experts import load_experts
from asad.model import Finished, Snapshot
from asad.replay.cpu_demand import DemandProfile, assign, read_demand
from asad.replay.inferred_machine import infer
from asad.replay.machine import from_flags
from asad.replay.policies import PLAIN
from asad.replay.readers import read_log
from asad.replay.replay_settings import Settings
from asad.replay.workbench import Bench
from asad.replay.workload import build_workload
from asad.replay.worth import arrays_of, hints_of

LONGEST_S = 1.0
"""Even where nothing happens in the log, there is a cycle after so many seconds of real time."""


class Playback:
    """A cluster plugin's object around a `RecordedCluster`; see `NodeLink` for what it does without."""

    def __init__(
        self,
        log: str | Path,
        *,
        held: str = "idle",
        pooled: bool = False,
        gather_arrays: bool = False,
        nodes: int = 0,
        cores: int = 0,
        memory: str = "",
        demand: str = "",
        speed: float = 1000.0,
        seed: int = 0,
        poll_s: float = 30.0,
        config: Config = PLAIN,
        monotonic: Callable[[], float],
    ) -> None:
        """`held` and `pooled` are the lending policy's (`asad.policy.Policy`). With `gather_arrays` the queue shows one
        task an array, as Slurm's does, and all of its jobs with an estimated start.

        `nodes` and `cores` are of the machine (0: inferred from the log). `config` says which jobs lend.

        Raises UsageError, LogError, MachineError and ConfigError as a replay does.
        """
        recorded = read_log(log)
        if len(recorded.jobs) == 0:
            raise UsageError(f"{log}: no job in it ever ran, so there is nothing to play")
        machine = from_flags(nodes, cores, memory or None) if nodes else infer(recorded)
        settings = Settings(
            seed=seed,
            poll_s=poll_s,
            use_memory=bool(memory),
            demand=read_demand(demand) if demand else DemandProfile(),
            config=config,
        )
        codes, names = recorded.jobs.fingerprints()
        wanted = assign(recorded.jobs, codes, names, settings.demand, seed)
        workload = build_workload(recorded, machine, settings, wanted, [])
        overran = np.zeros(len(workload), np.bool_)
        jobs = recorded.jobs
        workload = replace(
            workload,
            array=arrays_of(jobs.job_id, jobs.user),
            hints=hints_of(jobs, ()),
            partition=jobs.partition,
            partitions=jobs.partitions,
        )
        bench = Bench(recorded, machine, settings, workload, names, load_experts(), overran)
        self.recorded = bench.cluster(
            "easy",
            held,
            admission=True,
            gather_arrays=gather_arrays,
            pooled=pooled,
        )
        self.applications = list(names)
        self.users = recorded.jobs.users
        self.ledger: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.speed, self.poll_s, self._monotonic = speed, poll_s, monotonic
        self._path, self._total = str(log), len(workload)
        self._begin: tuple[float, float] | None = None
        self._over = False

    # --------------------------------------------------------------------------------------------------- pace

    def next_cycle(self, wake_s: float) -> float | None:
        """Move on to the next moment worth a cycle; when that is by the monotonic clock, None if the log has ended.

        `wake_s` is the latest virtual time that the policies want to be asked at.
        """
        if self._over:
            return None
        cluster = self.recorded
        latest_s = (
            math.inf if self._begin is None else cluster.now_s + max(self.poll_s, self.speed * LONGEST_S)
        )
        self._over = not cluster.advance(
            min(wake_s, latest_s)
        )  # one more cycle then, to see the last jobs end
        now = self._monotonic()
        if self._begin is None:
            self._begin = (now, cluster.now_s)
        due = self._begin[0] + (cluster.now_s - self._begin[1]) / self.speed
        if now - due > LONGEST_S:  # this machine is too slow for the speed: do not try to catch up
            self._begin = (now, cluster.now_s)
        return due

    # --------------------------------------------------------------------------------------------------- port

    def snapshot(self) -> Snapshot:
        """The cluster as it is now, in virtual time."""
        return self.recorded.snapshot()

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        """Do what was decided."""
        return self.recorded.apply(decisions)

    def finished(self, since_s: float) -> Finished:
        """The jobs that ended; those that shared are added to the ledger."""
        ended = self.recorded.finished(since_s)
        job, workload = self.recorded.state.job, self.recorded.workload
        for row, end_s in zip(ended.row.tolist(), ended.end_s.tolist(), strict=True):
            user = int(workload.user[row])
            extended_s = float(job["extended"][row])
            for role, core_s in (("host", "given"), ("guest", "lent")):
                if not job[f"was_{role}"][row]:
                    continue
                self.ledger.append(
                    {
                        "time_s": end_s,
                        "account": self.users[user] if 0 <= user < len(self.users) else "-",
                        "job_id": str(workload.job_id[row]),
                        "role": role,
                        "lent_core_s": float(job[core_s][row]),
                        "extended_s": extended_s,
                    }
                )
                extended_s = 0.0  # of one that was both, counted once
        return ended

    def sentence(self) -> str:
        """How far the log has been played."""
        return f"{self._path} at {self.speed:g} times its speed; {self.recorded.ended} of {self._total} jobs have ended"

    def recover(self) -> list[str]:
        """There is nothing to recover in a log."""
        return []

    def release(self) -> list[str]:
        """A log has no offers that are not taken, and no quotas that outlive the daemon."""
        return []

    def close(self) -> None:
        """Nothing is open."""
