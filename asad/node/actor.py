"""The node actor: measures the jobs of one node, and holds guests as the daemon says, for as long as it says so.

A single loop with four duties: follow the jobs that come and go (each second), look at hosts for pressure (each half
second), let leases run out, and report (each few seconds). Messages of the daemon come in through a queue. Each duty
stands alone: a fault in one is logged, and does not keep the others from lifting a quota.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import queue
import re
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from asad.errors import ClusterError
from asad.model import Json
from asad.node.cgroups import Cgroups, JobGroup
from asad.node.cores import hyperthreaded_cores
from asad.node.guest_roles import GuestRoles
from asad.node.kernel_files import MOST_MEMORY
from asad.node.pressure_watch import PressureWatch
from asad.node.profile import Profile
from asad.node.progress_files import FOLDER
from asad.node.quota_leases import Leases
from asad.node.quotas import Quotas
from asad.node.registered import Registered
from asad.node.widen import Widening
from asad.port import JobSample, Lease
from asad.systemd import notify

log = logging.getLogger(__name__)

JOB_ID = re.compile(r"[A-Za-z0-9_+.\-]{1,64}", re.ASCII)
SCAN_S = 1.0
SAMPLE_FIELDS = tuple(column.name for column in fields(JobSample))


class Link(Protocol):
    """The connection to the daemon."""

    @property
    def connected(self) -> bool: ...

    def send(self, message: dict[str, Json]) -> bool:
        """Hand over a message; never waits. False if it is dropped."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator can choose."""

    node: str
    state_dir: Path
    """This node's own; made if it is not there."""
    sample_s: float = 5.0
    pressure_s: float = 0.5
    guest_partitions: frozenset[str] = frozenset({"guest"})
    widen: bool = True
    """Let guests run on every core of the node, where their leases say so."""
    register: str = ""
    """Socket at which executors of Mesos register; empty: none."""


class Actor:
    """The actor of one node. `clock` never goes back (s), `wall` is UTC epoch (s).

    Raises ClusterError when the state folder cannot be used, or another actor holds this node.
    """

    def __init__(
        self,
        settings: Settings,
        cgroups: Cgroups,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        progress: Path = FOLDER,
    ) -> None:
        self.settings, self.cgroups, self.clock, self.wall = settings, cgroups, clock, wall
        self.link: Link | None = None
        self.lock = take_lock(settings.state_dir, settings.node)
        self.registered: Registered | None = None
        if settings.register:
            self.registered = Registered(
                cgroups.root, cgroups.version, settings.node, settings.state_dir, cgroups.proc
            )
            cgroups.registered = self.registered.jobs
            self.registered.heard = lambda: self.inbox.put({"kind": "registered"})
        self.quotas = Quotas(cgroups, settings.state_dir, wall)
        self.widening = Widening(cgroups, settings.state_dir, wall, self.quotas.rows.append)
        self.profile = Profile(cgroups, self.quotas, wall, progress)
        self.profile.own_cores = self.widening.own
        self.leases = Leases()
        self.jobs: Mapping[str, JobGroup] = {}
        self.watch = PressureWatch(self.profile, self.leases)
        self.roles = GuestRoles(
            cgroups, settings.state_dir, clock, settings.guest_partitions, self.quotas.is_idle
        )
        self.guests: set[str] = set()
        self.samples: dict[str, JobSample] = {}
        self.inbox: queue.SimpleQueue[dict[str, Json] | None] = queue.SimpleQueue()
        self._hyperthreaded_cores = hyperthreaded_cores()
        self._stopping = False

    # ------------------------------------------------------------------------------------------------------- life

    def hear(self, message: dict[str, Json]) -> None:
        """A message of the daemon; may be called in any thread."""
        self.inbox.put(message)

    def stop(self) -> None:
        """End `run`; may be called in a signal handler."""
        self._stopping = True
        self.inbox.put(None)

    def run(self) -> None:
        """Until `stop`. Quotas are lifted before the first duty and after the last."""
        self.start()
        notify("READY=1")
        settings, now = self.settings, self.clock()
        duties: list[tuple[Callable[[float], None], float]] = [
            (self.scan, SCAN_S),
            (self.watch_pressure, settings.pressure_s),
            (self.sample, settings.sample_s),
        ]
        due = [now, now, now]
        try:
            while not self._stopping:
                now = self.clock()
                for index, (duty, every_s) in enumerate(duties):
                    if due[index] <= now:
                        due[index] = now + every_s
                        self._do(duty, now)
                if self.leases.next_s() <= now:
                    self._do(self.expire, now)
                self._do(self._report_audit, now)
                notify("WATCHDOG=1")
                wait_s = min(*due, self.leases.next_s()) - self.clock()
                with contextlib.suppress(queue.Empty):
                    message = self.inbox.get(timeout=max(0.0, wait_s))
                    if message is not None:
                        self._do(partial(self.follow, message), self.clock())
        finally:
            notify("STOPPING=1")
            self.close()

    def _do(self, duty: Callable[[float], None], now_s: float) -> None:
        try:
            duty(now_s)
        except Exception:
            log.exception("%s failed; the actor goes on", getattr(duty, "__name__", "a message"))

    def start(self) -> None:
        """Undo what a killed predecessor has left, and find guests that are here already."""
        if self.registered is not None:
            self.registered.listen(Path(self.settings.register))
        self.recover()
        self.scan(self.clock())

    def recover(self) -> None:
        """Lift what a killed predecessor has left."""
        self.jobs = self.cgroups.jobs(self.clock())
        self.widening.recover(self.jobs, "the actor starts: no lease is known")
        self.quotas.recover(self.jobs, "the actor starts: no lease is known")

    def close(self) -> None:
        """Narrow every guest, lift every quota and let go of everything. Guests stay in the idle class."""
        self.widening.narrow_all("the actor stops")
        self.quotas.lift_all("the actor stops")
        self._report_audit(self.clock())
        if self.registered is not None:
            self.registered.close()
        self.profile.close()
        self.lock.close()

    # ----------------------------------------------------------------------------------------------------- duties

    def scan(self, now_s: float) -> None:
        """Follow the jobs of this node; put guests into the idle class from first sight."""
        before, self.jobs = self.jobs, self.cgroups.jobs(now_s)
        self.profile.follow(self.jobs)
        self.quotas.follow(self.jobs)
        self.widening.follow(self.jobs)
        ended = before.keys() - self.jobs.keys()
        for job_id in ended:
            self.leases.forget(job_id)
            self.watch.alone.pop(job_id, None)
            self.samples.pop(job_id, None)
        self.roles.follow(ended, self.jobs, now_s)
        self.classify()
        self.apply(now_s)

    def classify(self) -> None:
        """Find out who is a guest, and hold in the idle class who is."""
        self.guests = set()
        for job_id, group in self.jobs.items():
            if self.roles.is_guest(group):
                self.guests.add(job_id)
                if not self.quotas.holds_idle(job_id):
                    self.quotas.set_idle(group, True, "guests are in the idle class")
            elif self.quotas.holds_idle(job_id):
                self.quotas.set_idle(group, False, "it is no guest")
        self.watch.find_hosts(self.guests, self.widening.cores)

    def apply(self, now_s: float) -> None:
        """Bring quotas, cores and memory limits to what leases and squeezes say now.

        Nobody runs wide without a quota: a guest is narrowed before that is lifted, and widened after it is set.
        """
        caps = self.leases.caps(now_s)
        over = "its lease ran out" if now_s >= self.leases.end_s else "the daemon lifted it"
        wide = self.leases.wide(now_s) & self.guests if self.widens else frozenset[str]()
        changed = False
        for job_id, group in self.jobs.items():
            cores, why = caps.get(job_id, (math.nan, over))
            was_wide = bool(self.widening.cores(job_id))
            narrow = job_id in wide or not was_wide or self.widening.narrow(job_id, over)
            if not narrow and now_s < self.leases.end_s:
                continue  # tried again in a second, its quota kept; without a daemon that is lifted all the same
            if self.quotas.set_quota(group, cores, why) and job_id in wide:
                self.widening.widen(group, "leased: every core of the node")
            changed |= bool(self.widening.cores(job_id)) != was_wide
        if changed:
            self.watch.find_hosts(self.guests, self.widening.cores)
        limits = self.leases.memory(now_s)
        for job_id, group in self.jobs.items():
            high_bytes, why = limits.get(job_id, (math.nan, over))
            self.quotas.set_memory(group, high_bytes, why)

    def expire(self, now_s: float) -> None:
        """Lift what has run out."""
        if self.leases.expire(now_s):
            self.apply(now_s)

    def watch_pressure(self, now_s: float) -> None:
        """Look at the hosts that have guests beside them; squeeze the guests of one that stalls."""
        if self.watch.look(now_s):
            self.apply(now_s)
            self._report()

    def sample(self, now_s: float) -> None:
        """Look at every job and report."""
        self.samples = self.profile.look(now_s, self.guests)
        self.watch.sampled(self.samples)
        self._report()

    # ---------------------------------------------------------------------------------------------------- messages

    def follow(self, message: dict[str, Json], now_s: float) -> None:
        """Do what the daemon says. What makes no sense is logged and let be; unknown kinds are for later versions."""
        kind = message.get("kind")
        if kind == "lease":
            try:
                jobs = message["jobs"]
                if not isinstance(jobs, list):
                    raise ValueError("its jobs are no list")
                leases = [lease_from_json(plain) for plain in jobs]
                length_s = number(message.get("lease_s"))
            except (KeyError, ValueError) as error:
                log.warning("a lease that makes no sense is let be: %s", error)
                return
            self.leases.renew(leases, length_s, now_s)
            self.roles.follow_leases(leases, self.jobs, now_s)
            self.classify()
            self.apply(now_s)
        elif kind == "announce":
            self._note(message)
        elif kind == "registered":  # a guest must not run for a second as everybody does
            self.scan(now_s)

    def _note(self, message: dict[str, Json]) -> None:
        """Note that a job will come as a guest; only then say so: the daemon offers nothing before."""
        number_, job_id = message.get("id"), message.get("job")
        if not isinstance(number_, int) or not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id):
            log.warning("an announcement that makes no sense is let be")
            return
        if not self.cgroups.can_hold:
            log.warning("job %s cannot be held here: `cpu` is mounted together with `cpuacct`", job_id)
            return
        try:
            self.roles.announce(job_id, message.get("patience_s"))
        except OSError as error:
            log.warning("%s: %s; job %s is not noted", self.roles.file, error.strerror, job_id)
            return
        self.classify()
        if self.link is not None:
            self.link.send({"kind": "noted", "id": number_})

    @property
    def widens(self) -> bool:
        """Can guests run wide here? Not where a core is several hyper-threads: what is idle of one is not known."""
        there = self.cgroups.version == 2 or (self.cgroups.root / "cpuset").is_dir()
        return self.settings.widen and there and not self._hyperthreaded_cores

    def _report(self) -> None:
        if self.link is None or not self.link.connected:
            return
        jobs: dict[str, Json] = {}
        for job_id, found in self.samples.items():
            quota = self.quotas.quota_cores(job_id) / max(1, found.cores)
            found = replace(
                found, quota=min(quota, 1.0), pressure=self.watch.reported(job_id, found.pressure)
            )
            jobs[job_id] = sample_to_json(found)
        self.link.send(
            {
                "kind": "report",
                "node": self.settings.node,
                "jobs": jobs,
                "hyperthreaded_cores": self._hyperthreaded_cores,
                "widens": self.widens,
            }
        )

    def _report_audit(self, now_s: float) -> None:
        if self.link is not None and self.quotas.rows:
            rows: list[Json] = []
            while self.quotas.rows and len(rows) < 1000:
                rows.append(self.quotas.rows.popleft().to_json())
            self.link.send({"kind": "audit", "rows": rows})


def take_lock(folder: Path, node: str) -> IO[str]:
    """The lock of this node's state, held while the file is open.

    Raises ClusterError when another actor holds it, or the folder cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # whoever writes there has root write wherever a link of his leads
        for place in (folder, folder.parent):
            found = place.stat()
            open_ = found.st_mode & stat.S_IWOTH and not (place != folder and found.st_mode & stat.S_ISVTX)
            if open_ or found.st_uid not in (0, os.geteuid()):
                raise ClusterError(
                    f"{place}: others may write there; give it to root alone (chown root, chmod 0700), "
                    "or choose another [node] state_dir"
                )
        lock = (folder / "lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise ClusterError(
            f"{folder}: {error.strerror}; give asad-node a folder that it may write ([node] state_dir)"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ClusterError(f"{folder}/lock: another asad-node runs for node {node}; stop it first") from None
    return lock


def lease_from_json(plain: Json) -> Lease:
    """A lease of a message. Raises ValueError when it makes no sense."""
    if not isinstance(plain, dict):
        raise ValueError("a lease is no object")
    job_id, host_id, guest = plain.get("job_id"), plain.get("host_id", ""), plain.get("guest")
    if not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id) or not isinstance(guest, bool):
        raise ValueError("a lease has no job, or does not say whether it is a guest")
    if not isinstance(host_id, str) or not (host_id == "" or JOB_ID.fullmatch(host_id)):
        raise ValueError(f"the host of job {job_id} is no job")
    quota = math.nan if plain.get("quota") is None else number(plain["quota"])
    cores = number(plain.get("cores"))
    if quota < 0 or quota > 1 or cores < 1 or cores > 1 << 16:
        raise ValueError(f"the quota of job {job_id} is out of range")
    high_bytes = math.nan
    if plain.get("memory_high_bytes") is not None:  # an older daemon does not say
        high_bytes = number(plain["memory_high_bytes"])
        if not 0 < high_bytes <= MOST_MEMORY:
            raise ValueError(f"the memory limit of job {job_id} is out of range")
    widen = plain.get("widen") is True and guest and not math.isnan(quota)
    return Lease(job_id, guest, host_id, quota, int(cores), high_bytes, widen)


def number(plain: Json) -> float:
    """A finite number. Raises ValueError for anything else."""
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not abs(plain) <= 1e300:
        raise ValueError(f"{str(plain)[:40]!r} is no number")
    return float(plain)


def sample_to_json(sample: JobSample) -> dict[str, Json]:
    """Every field by its name, NaN as null."""
    plain: dict[str, Json] = {}
    for name in SAMPLE_FIELDS:
        value = getattr(sample, name)
        if isinstance(value, tuple):
            value = list(value)
        plain[name] = None if isinstance(value, float) and not math.isfinite(value) else value
    return plain
