"""The node actor: measures the jobs of one node, and holds guests as the daemon says, for as long as it says so.

A single loop with four duties: follow the jobs that come and go (each second), look at hosts for pressure (each half
second), let leases run out, and report (each few seconds). Messages of the daemon come in through a queue. Each duty
stands alone: a fault in one is logged, and does not keep the others from lifting a quota.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import os
import queue
import re
import socket
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
from asad.node.kernel_files import MOST_MEMORY, journal_of, write_durably
from asad.node.leases import Leases
from asad.node.pressure import LOOKS, Fractions, gives_way, hosts_beside, innocent
from asad.node.profile import Profile
from asad.node.progress import FOLDER
from asad.node.quotas import Quotas
from asad.node.registered import Registered
from asad.node.widen import Widening
from asad.port import JobSample, Lease

log = logging.getLogger(__name__)

JOB_ID = re.compile(r"[A-Za-z0-9_+.\-]{1,64}", re.ASCII)
SCAN_S = 1.0
PATIENCE_S = 60.0
"""So long an offer stays open where the daemon does not say for how long."""
UNCONFIRMED_S = 60.0
"""So much longer than an offer stays open its job counts as a guest although the daemon has not said so since."""
MOST_ANNOUNCED_S = 86_400.0 + UNCONFIRMED_S
ANNOUNCED_JOBS = 10_000
PARTITION_LOOKS = 10
"""A job is so often asked in which partition it was started, if nothing answers."""
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
        self.guests: set[str] = set()
        self.samples: dict[str, JobSample] = {}
        self.inbox: queue.SimpleQueue[dict[str, Json] | None] = queue.SimpleQueue()
        self.announced = self._load_announced()
        """Jobs that the daemon has offered a place here → until when that makes guests of them, by `clock`."""
        self._patience_s = PATIENCE_S
        self._roles: dict[tuple[str, int], bool] = {}
        """The daemon's last word on each job that was here then; it holds when its lease has run out."""
        self._partitions: dict[tuple[str, int], tuple[str, int]] = {}
        """What each job's environment says, and how often it was asked."""
        self._alone: dict[str, float] = {}
        """How much each job stalled while no guest was beside it."""
        self._beside: dict[str, set[str]] = {}
        """Host → guests beside it."""
        self._stalls: dict[str, Fractions] = {}
        self._used: dict[str, Fractions] = {}
        """Waiting of hosts that have guests, and CPU of those guests."""
        self._pressed: dict[str, float] = {}
        """Hosts under pressure and how much they stalled, for as long as guests are squeezed for them."""
        self._trials: dict[str, int] = {}
        """Looks since the guests of these hosts were squeezed; it is yet to be seen whether for good reason."""
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
                self._do(self._tell_audit, now)
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
        self._tell_audit(self.clock())
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
            self._alone.pop(job_id, None)
            self.samples.pop(job_id, None)
        if ended:
            here = {(group.job_id, group.inode) for group in self.jobs.values()}
            self._partitions = {key: told for key, told in self._partitions.items() if key in here}
        self._forget_announced(ended, now_s)
        self.classify()
        self.apply(now_s)

    def classify(self) -> None:
        """Who is a guest? What the daemon says of a job that is here counts first. Else its environment can make it
        one by the partition that it names, but never make it none: that is the user's to write. Then what the daemon
        said before it came, for a while (it may have started by itself since), and a predecessor's mark (the idle class
        itself)."""
        self.guests = set()
        for job_id, group in self.jobs.items():
            if self._is_guest(group):
                self.guests.add(job_id)
                if not self.quotas.holds_idle(job_id):
                    self.quotas.set_idle(group, True, "guests are in the idle class")
            elif self.quotas.holds_idle(job_id):
                self.quotas.set_idle(group, False, "it is no guest")
        self._find_hosts()

    def _find_hosts(self) -> None:
        """Who is beside whom: who shares a core, and a guest that runs wide shares all of them."""
        cores = self.profile.cores()
        wide = {job_id: frozenset(self.widening.cores(job_id)) for job_id in self.guests & cores.keys()}
        self._beside = hosts_beside(
            self.guests, cores | {job_id: wider for job_id, wider in wide.items() if wider}, self._named_host
        )

    def _is_guest(self, group: JobGroup) -> bool:
        key = (group.job_id, group.inode)
        if key in self._roles:
            return self._roles[key]
        if self._names_guest_partition(group):
            return True
        return group.job_id in self.announced or self.quotas.is_idle(group)

    def _names_guest_partition(self, group: JobGroup) -> bool:
        """Does the environment of its first process say so?"""
        key = (group.job_id, group.inode)
        partition, looks = self._partitions.get(key, ("", 0))
        if not partition and looks < PARTITION_LOOKS:
            partition = self.cgroups.partition(group)
            self._partitions[key] = (partition, looks + 1)
        return partition in self.settings.guest_partitions

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
            self._find_hosts()
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
        beside = self._beside
        self._stalls = {host: self._stalls.get(host) or Fractions() for host in beside}
        self._used = {
            guest: self._used.get(guest) or Fractions() for guests in beside.values() for guest in guests
        }
        squeezed = {squeeze.host_id for squeeze in self.leases.squeezes.values()}
        self._pressed = {host: found for host, found in self._pressed.items() if host in squeezed}
        self._trials = {host: looks + 1 for host, looks in self._trials.items() if host in squeezed}
        used: dict[str, float] = {}
        for guest, fractions in self._used.items():
            cpu_s = self.profile.cpu_s(guest)
            used[guest] = math.nan if math.isnan(cpu_s) else fractions.look({0: cpu_s}, now_s)
        acted = False
        for host, stalls in self._stalls.items():
            waits = self.profile.waits(host)
            lease = self.leases.jobs.get(host)
            if waits is None or (lease is not None and not math.isnan(lease.quota)):
                continue  # a host with a cap of its own waits because it was decided so
            stalled, alone = stalls.look(waits, now_s), self._alone.get(host, math.nan)
            if self._trials.get(host) == LOOKS + 1:  # every look of the mean was taken without the guests
                del self._trials[host]
                acted = True
                if innocent(self._pressed[host], stalled):
                    log.info("job %s waits for itself: its guests need not give way", host)
                    self._alone[host] = max(stalled, self._pressed.pop(host))
                    self.leases.acquit(host)
                    continue
            for guest in beside[host]:
                if gives_way(stalled, alone, used[guest]) and self.leases.squeeze(guest, host, now_s):
                    acted = True
                    self._pressed[host] = stalled
                    self._trials[host] = 0
                    log.info(
                        "job %s waits for CPU %.0f%% of the time: job %s gives way",
                        host,
                        100 * stalled,
                        guest,
                    )
        if acted:
            self.apply(now_s)
            self._report()

    def _named_host(self, guest: str) -> str:
        lease = self.leases.jobs.get(guest)
        return "" if lease is None else lease.host_id

    def sample(self, now_s: float) -> None:
        """Look at every job and report."""
        self.samples = self.profile.look(now_s, self.guests)
        for job_id, found in self.samples.items():
            if job_id not in self._beside:
                self._alone[job_id] = found.pressure
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
            said = {lease.job_id: lease.guest for lease in leases}
            here = [group for group in self.jobs.values() if group.job_id in said]
            self._roles = {(group.job_id, group.inode): said[group.job_id] for group in here}
            self._confirm({job_id for job_id, guest in said.items() if guest}, now_s)
            self.classify()
            self.apply(now_s)
        elif kind == "announce":
            self._note(message)
        elif kind == "registered":  # a guest must not run for a second as everybody does
            self.scan(now_s)

    def _note(self, message: dict[str, Json]) -> None:
        """Remember that a job will come as a guest; only then say so: the daemon offers nothing before."""
        number_, job_id = message.get("id"), message.get("job")
        if not isinstance(number_, int) or not isinstance(job_id, str) or not JOB_ID.fullmatch(job_id):
            log.warning("an announcement that makes no sense is let be")
            return
        if not self.cgroups.can_hold:
            log.warning("job %s cannot be held here: `cpu` is mounted together with `cpuacct`", job_id)
            return
        patience_s = message.get("patience_s")  # an older daemon does not say
        if isinstance(patience_s, int | float) and 0 <= patience_s <= MOST_ANNOUNCED_S - UNCONFIRMED_S:
            self._patience_s = float(patience_s)
        self.announced[job_id] = self.clock() + self._patience_s + UNCONFIRMED_S
        while len(self.announced) > ANNOUNCED_JOBS:
            del self.announced[next(iter(self.announced))]
        try:
            self._save_announced()
        except OSError as error:
            log.warning("%s: %s; job %s is not noted", self._announced_file, error.strerror, job_id)
            return
        self.classify()
        if self.link is not None:
            self.link.send({"kind": "noted", "id": number_})

    def _confirm(self, guests: set[str], now_s: float) -> None:
        """The daemon names all `guests` of this node, those that it has offered a place among them: an offer that it
        does not name any more is withdrawn."""
        for job_id in guests - self.jobs.keys():
            self.announced[job_id] = now_s + self._patience_s + UNCONFIRMED_S
        self._drop_announced(
            [job_id for job_id in self.announced if job_id not in guests or job_id in self.jobs]
        )

    def _drop_announced(self, gone: list[str]) -> None:
        """These are no guests any more by having been announced: if they are here, they have started by themselves."""
        if not gone:
            return
        for job_id in gone:
            del self.announced[job_id]
            group = self.jobs.get(job_id)
            if group is not None:
                self._roles.setdefault((job_id, group.inode), self._names_guest_partition(group))
        with contextlib.suppress(OSError):
            self._save_announced()

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
            found = replace(found, quota=min(quota, 1.0), pressure=self._pressure(job_id, found.pressure))
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

    def _pressure(self, job_id: str, measured: float) -> float:
        """What is reported: waiting that guests are found to cause, for as long as they are squeezed for it.

        What a job waits for itself harms nobody and is nobody's doing.
        """
        if job_id in self._pressed and job_id not in self._trials:
            return self._pressed[job_id]
        return math.nan if math.isnan(measured) else 0.0

    def _tell_audit(self, now_s: float) -> None:
        if self.link is not None and self.quotas.rows:
            rows: list[Json] = []
            while self.quotas.rows and len(rows) < 1000:
                rows.append(self.quotas.rows.popleft().to_json())
            self.link.send({"kind": "audit", "rows": rows})

    # ------------------------------------------------------------------------------------------------ guests.json

    @property
    def _announced_file(self) -> Path:
        return self.settings.state_dir / "guests.json"

    def _load_announced(self) -> dict[str, float]:
        now_s, default_s = self.clock(), PATIENCE_S + UNCONFIRMED_S
        # what was left then is left now: neither clock means anything across a restart
        left = journal_of(
            self._announced_file,
            lambda plain: {str(job_id): float(left_s) for job_id, left_s in plain["announced"].items()},
            dict[str, float](),
            "; guests are known by their partition",
        )
        return {
            job_id: now_s + (left_s if 0 <= left_s <= MOST_ANNOUNCED_S else default_s)
            for job_id, left_s in left.items()
        }

    def _save_announced(self) -> None:
        now_s = self.clock()
        left = {job_id: round(until_s - now_s, 3) for job_id, until_s in self.announced.items()}
        write_durably(self._announced_file, json.dumps({"announced": left}))

    def _forget_announced(self, ended: set[str], now_s: float) -> None:
        """A job that has ended here may run again, as an ordinary one, and no offer stays open for ever."""
        self._drop_announced(
            [job_id for job_id, until_s in self.announced.items() if job_id in ended or until_s < now_s]
        )


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


def notify(text: str) -> None:
    """Tell systemd, if it waits to be told (sd_notify)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)
