"""The daemon's lifecycle: start, cycle after cycle, reload, stop. What a cycle does stands in `asad.cycle`.

One thread, the main one, owns cluster, policies and guard. The control socket's threads hand their requests over to it,
the metrics endpoint and `status` tell what the last cycle left, and the state store is written by a thread of its own;
so neither a slow store nor an operator holds up a cycle. Signals set a flag and wake the main thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import math
import os
import queue
import re
import select
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from asad import __version__
from asad.admit import AdmitPolicy
from asad.admit.live import Admission
from asad.admit.sow.announcements import MOST_STATEMENTS, Announcement, announcement_of
from asad.admit.sow.live import Statements
from asad.api.auth import open_authenticator
from asad.api.control import ControlServer, Peer, Request, may_change
from asad.api.nodes import NodeServer
from asad.config import MODES, Config, Mode
from asad.cycle import Cycle, is_renewal, vetoed_by
from asad.defer.live import Deferral
from asad.errors import AsadError, ConfigError, UsageError
from asad.guard import guard_for
from asad.metrics import Endpoint, Reading, Readings
from asad.model import (
    Cluster,
    CoAllocate,
    Finished,
    Json,
    Lease,
    NodeLink,
    NodeReport,
    Outcome,
    Snapshot,
)
from asad.place import PlacePolicy
from asad.policies import admit_policy, defer_policy, memory_loss, place_policy, rehearse, share_policy
from asad.replay.playback import Playback
from asad.share import SharePolicy
from asad.status import cluster_counts, job_rows, known, lending, node_rows
from asad.store import statements as stated
from asad.store.records import JobEnd, LedgerEntry, QuotaChange, Role
from asad.store.store import Store
from asad.store.writer import RunStart, Writer

log = logging.getLogger(__name__)

KEEP_S = 1.0
"""So long a cycle waits for the store to take what was promised, before it acts on it."""
SAVE_S = 60.0
"""What was learned is kept this often, and at the end."""
FORGET_S = 3600.0
"""What is older than the retention is removed this often."""
ANSWER_S = 25.0
"""So long a request waits for the main thread, which may be in the middle of a cycle."""
LOAD_S = 10.0
"""So long a store may take to tell what was learned before."""
SLACK_S, SLACK = 60.0, 0.05
"""A job that shared has lost if it ends later than by itself by more than this, and than this part of its response."""
REHEARSAL_S = 900.0
"""So long systemd is asked to wait while a policy is compiled; half a minute is usual, once."""
SENTENCE_S = 1.0
"""No more than one sentence goes into the log in this time: a log that is played has many cycles a second."""
NOTIFY_S = 1.0
"""systemd may be busy: nobody waits longer than this to be heard."""
T = TypeVar("T")
Memory = Mapping[str, Mapping[str, Json]]


class LiveCluster(Cluster, Protocol):
    """A cluster plugin's object: the port, and what a daemon needs beside it."""

    applications: list[str]
    """Names of the codes in `Jobs.application`; the list grows."""
    ledger: list[dict[str, Any]]
    """What lending gave to and took from jobs that ended; whoever reads it empties it."""
    said: list[str]
    """Sentences about what happened besides; whoever reads them empties the list."""

    def sentence(self) -> str:
        """The cluster and how it is reached, in one line."""
        ...

    def recover(self) -> list[str]:
        """Undo what an earlier daemon left; a sentence for each thing undone."""
        ...

    def release(self) -> list[str]:
        """Take back every offer that is not taken and every quota; a sentence for each."""
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...


@runtime_checkable
class Remembers(Protocol):
    """A policy whose knowledge outlives the process."""

    def state(self) -> Memory:
        """What it knows, by application, as plain data."""
        ...

    def restore(self, memory: Memory) -> None:
        """Know again what `state` told."""
        ...


@runtime_checkable
class KeepsPromises(Protocol):
    """A cluster on which what is changed of jobs that wait outlives the daemon that did it."""

    def give_back(self, *, begin: bool = True) -> list[str]:
        """Let every job that waits have its own again, with `begin` also its begin time; a sentence for each."""
        ...


@runtime_checkable
class TakesJobs(Protocol):
    """A cluster to which jobs are submitted through the daemon (Mesos has no queue of its own)."""

    def request(self, verb: str, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
        """The answer to `submit`, `cancel`, `tasks` or `teardown`, asked by that user. Raises AsadError."""
        ...


@runtime_checkable
class ActsByItself(Protocol):
    """A cluster that acts not only on decisions (it takes jobs out of another's queue)."""

    acted: list[tuple[str, Outcome]]
    """What it did: the job's name, and the outcome of a decision about row 0. Whoever reads it empties it."""

    def may_act(self, may: bool) -> None:
        """May it, until told otherwise? Not before the first time."""
        ...


class Pace(Protocol):
    """When cycles are due."""

    def next_cycle(self, wake_s: float) -> float | None:
        """When the next one is due by the monotonic clock; None if there is none."""
        ...


class Steady:
    """A cycle every `interval_s` by the monotonic clock, whatever the wall clock does."""

    def __init__(self, interval_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.interval_s, self._monotonic = interval_s, monotonic
        self.skipped = 0
        """Cycles that were due while an earlier one still ran."""
        self._due: float | None = None

    def next_cycle(self, wake_s: float) -> float | None:
        """An interval after the last; those that have been missed are counted and left out."""
        now = self._monotonic()
        if self._due is None:
            self._due = now
            return now
        self._due += self.interval_s
        if self._due < now:
            missed = math.ceil((now - self._due) / self.interval_s)
            self.skipped += missed
            self._due += missed * self.interval_s
        return self._due


class NoNodes:
    """The node actors of a cluster that has none."""

    def reports(self) -> Mapping[str, NodeReport]:
        """None."""
        return {}

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        """Nobody takes note."""
        return False

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """Nobody is granted anything."""


# ---------------------------------------------------------------------------------------------------------- building


def open_cluster(
    config: Config, nodes: NodeLink, state_dir: Path, clock: Callable[[], float] = time.time
) -> LiveCluster:
    """The cluster that the configuration names. Raises ConfigError and what the plugin raises."""
    name = config.daemon.cluster
    if name == "recorded":
        played = config.recorded
        if not played.log:
            raise ConfigError("[recorded] log: a recorded cluster needs a log; name one with --log FILE")
        return Playback(
            played.log,
            policy=_held_as(config),
            admit=config.policies.admit,
            defer=config.policies.defer,
            nodes=played.nodes,
            cores=played.cores,
            memory=played.memory,
            demand=played.demand,
            speed=played.speed,
            seed=played.seed,
            poll_s=config.daemon.interval_s,
            monotonic=time.monotonic,
        )
    found = {point.name: point for point in entry_points(group="asad.clusters")}
    if name not in found:
        there = ", ".join(sorted({*found, "recorded"}))
        raise ConfigError(f"[daemon] cluster: there is no cluster plugin {name!r}; there are {there}")
    table = name.rpartition("+")[2]  # slurm+mesos: the queue of one, the nodes of the other, and its table
    opened: LiveCluster = found[name].load()(
        config.clusters.get(table, {}), nodes=nodes, state_dir=state_dir, clock=clock
    )
    return opened


def _names(place: PlacePolicy, share: SharePolicy) -> str:
    """Under which a run of both stages is kept: that of the share policy alone where the cluster places."""
    return share.name if place.name == "native" else f"{place.name}+{share.name}"


def _held_as(config: Config) -> str:
    """The policy that decides how a recorded cluster holds guests."""
    lends = config.policies.share != "exclusive" or config.policies.place == "native"
    return config.policies.share if lends else config.policies.place


def check(config: Config) -> None:
    """Everything that can be told without running: options, experts, and the cluster plugin's own table.

    Raises ConfigError, or another UsageError for a log that cannot be read.
    """
    share_policy(config, [], 0)
    admit_policy(config, [])
    defer_policy(config, [])
    place_policy(config, [])
    memory_loss(config)
    with tempfile.TemporaryDirectory(prefix="asad-check-") as folder:
        open_cluster(config, NoNodes(), Path(folder)).close()


# ---------------------------------------------------------------------------------------------------------- lifecycle


def notify(*words: str) -> None:
    """Tell systemd (`READY=1`, `STATUS=…`); nothing without it, and no error ever."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.settimeout(NOTIFY_S)
        connection.connect("\0" + address[1:] if address[0] == "@" else address)
        connection.send("\n".join(words).encode())


def watchdog_s() -> float:
    """How often systemd wants to hear of us; infinite if it does not."""
    try:
        if int(os.environ.get("WATCHDOG_PID", os.getpid())) != os.getpid():
            return math.inf
        return int(os.environ["WATCHDOG_USEC"]) / 1e6
    except (KeyError, ValueError):
        return math.inf


@contextlib.contextmanager
def only_one(state_dir: Path) -> Iterator[None]:
    """Hold the lock of `state_dir`. Raises AsadError that says who does, if another daemon runs."""
    path = state_dir / "asad.lock"
    try:
        state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise AsadError(
            f"{path}: {error.strerror}; [daemon] state_dir must be a folder that this user can write"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read(100).strip()
            raise AsadError(
                f"{path}: another daemon runs here ({holder if holder.isprintable() else '?'}); "
                "stop it, or give this one a state_dir of its own"
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        yield


def within(seconds: float, function: Callable[[], T]) -> T:
    """What `function` gives, or its error; TimeoutError if it takes too long, and then it is left to itself."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer.result(seconds)


class Gains:
    """What lending has brought since the daemon started, and how the jobs that shared end."""

    def __init__(self) -> None:
        self.guests = 0
        self.lent_core_s = self.extended_s = self.saved_wait_s = 0.0
        self._roles: dict[int, tuple[str, Role]] = {}
        self._promised: dict[int, tuple[str, float]] = {}

    def take(self, snapshot: Snapshot, finished: Finished, outcomes: Sequence[Outcome]) -> list[JobEnd]:
        """Count one cycle; the jobs that shared and have ended since the last."""
        jobs = snapshot.jobs
        ends = []
        for k, row in enumerate(finished.row.tolist()):
            self._promised.pop(row, None)
            job, role = self._roles.pop(row, ("", "host"))
            if job == str(jobs.job_id[row]):
                ends.append(self._end(snapshot, finished, k, row, role))
        for guest in snapshot.guests.tolist():
            job = str(jobs.job_id[guest])
            if self._roles.get(guest) != (job, "guest"):
                self._roles[guest] = (job, "guest")
                self.guests += 1
                promised, start_s = self._promised.pop(guest, ("", math.nan))
                if promised == job and start_s > jobs.start_s[guest]:
                    self.saved_wait_s += start_s - float(jobs.start_s[guest])
            host = int(jobs.host[guest])
            if host >= 0:
                self._roles[host] = (str(jobs.job_id[host]), "host")
        for outcome in outcomes:
            decision = outcome.decision
            if outcome.done and isinstance(decision, CoAllocate):
                row = decision.guest
                self._promised[row] = (str(jobs.job_id[row]), float(jobs.estimated_start_s[row]))
        return ends

    def forget_rows(self) -> None:
        """Another cluster object numbers jobs anew."""
        self._roles.clear()
        self._promised.clear()

    @staticmethod
    def _end(snapshot: Snapshot, finished: Finished, k: int, row: int, role: Role) -> JobEnd:
        jobs = snapshot.jobs
        submit_s, end_s, run_s = float(jobs.submit_s[row]), float(finished.end_s[k]), float(finished.run_s[k])
        own_end_s = float(jobs.own_start_s[row]) + run_s - float(finished.lost_s[k])
        late = end_s - own_end_s > max(SLACK_S, SLACK * (own_end_s - submit_s))  # never of NaN
        baseline_end_s = None if math.isnan(own_end_s) else own_end_s
        return JobEnd(str(jobs.job_id[row]), role, submit_s, end_s - run_s, end_s, baseline_end_s, late)

    def to_json(self) -> dict[str, Json]:
        """The figures."""
        return {
            "guests": self.guests,
            "lent_core_s": self.lent_core_s,
            "extended_s": self.extended_s,
            "saved_wait_s": self.saved_wait_s,
        }


class Daemon:
    """One daemon. `run` starts it and returns when it has stopped; `stop` and `reload` may be called from anywhere."""

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[], Config] | None = None,
        cluster: LiveCluster | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`reread` gives the configuration as it is now, for a reload; `cluster` stands in for the configured one."""
        self.config = config
        self._reread, self._given = reread, cluster
        self._monotonic, self._clock = monotonic, clock
        self._stopping = self._reloading = False
        self._asks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._beat_s, self._beat_at = watchdog_s() / 4, -math.inf
        self.readings = Readings()
        self.endpoint: Endpoint | None = None
        self.gains = Gains()
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._vetoes: Counter[str] = Counter()
        self._held_back: set[tuple[Any, ...]] = set()
        """Wishes of the last cycle that were not done, and why."""
        self._told_vetoes: dict[str, Json] = {}
        self._completed = self._failed = 0
        self._since_s = clock()
        self._told_at = -math.inf
        self._saved_at = self._forgot_at = monotonic()
        self._recovered = False
        self._remembered: set[str] = set()
        """Stages that know what they had learned before this start."""
        self._saved: dict[str, Memory] = {}
        """By stage: what is kept."""
        self._last_cycle: dict[str, Json] = {
            "number": 0,
            "time_s": None,
            "wall_ms": None,
            "sentence": "no cycle yet",
        }
        self._cluster_counts: dict[str, Json] = {"sentence": "", "nodes": 0, "cores": 0}
        self._lending: list[Json] = []
        self._actors: dict[str, Json] = {"connected": 0, "silent": []}

    # ------------------------------------------------------------------------------------------------------- life

    def run(self) -> int:
        """Start, cycle until stopped or the log has ended, stop; the exit status.

        Raises AsadError if it cannot start.
        """
        with contextlib.ExitStack() as opened:
            opened.callback(self._wake_in.close)
            opened.callback(self._wake_out.close)
            if threading.current_thread() is threading.main_thread():
                opened.callback(signal.set_wakeup_fd, -1)
            opened.enter_context(only_one(self.config.daemon.state_dir))
            self._start(opened)
            notify("READY=1", f"STATUS={self.cluster.sentence()}")
            try:
                self._cycles()
            finally:
                notify("STOPPING=1")
                self._stop()
        return 0

    def stop(self) -> None:
        """Stop after the cycle under way."""
        self._stopping = True
        self._wake()

    def reload(self) -> None:
        """Read the configuration again."""
        self._reloading = True
        self._wake()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop, SIGHUP reloads. Only in the main thread."""
        signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "_stopping", True))
        signal.signal(signal.SIGHUP, lambda *_: setattr(self, "_reloading", True))

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: it is gone
            self._wake_out.send(b".")

    def _start(self, opened: contextlib.ExitStack) -> None:
        config = self.config
        self.nodes: NodeServer | None = None
        link: NodeLink = NoNodes()
        if self._given is None and config.daemon.cluster != "recorded":
            keys = open_authenticator(config.nodes, "daemon")
            self.nodes = link = NodeServer(config.nodes.listen, keys, config.lease_s, clock=self._clock)
        self.link = link
        self.cluster = self._given or open_cluster(config, link, config.daemon.state_dir, self._clock)
        opened.callback(lambda: self.cluster.close())
        share = share_policy(config, self.cluster.applications, self._seed(config))
        admit = admit_policy(config, self.cluster.applications)
        defer = defer_policy(config, self.cluster.applications)
        place = place_policy(config, self.cluster.applications)
        if self.nodes is not None:
            self.nodes.start()
            opened.callback(self.nodes.stop)
        self.writer = Writer(
            config.store_url,
            RunStart(
                _names(place, share),
                {"cluster": config.daemon.cluster},
                self.plain_config(),
            ),
        )
        opened.callback(self.writer.close, {})
        bound = share.properties | place.properties
        guard = guard_for(bound, config.guard, memory_loss(config), _consents(admit))
        self.cycle = Cycle(
            self.cluster,
            admit,
            defer,
            place,
            share,
            guard,
            self._record,
            mode=config.daemon.mode,
            paused=self._pause_file.exists(),
            keep=self._keep_promises,
        )
        self.pace: Pace
        if isinstance(self.cluster, Playback):
            self.pace = self.cluster
        else:
            self.pace = Steady(config.daemon.interval_s, self._monotonic)
        self._remember()
        self._recover()
        self._read()
        control = ControlServer(config.daemon.socket, self.handle, config.daemon.operators)
        control.start()
        opened.callback(control.stop)
        self.control = control
        if config.metrics.listen:
            self.endpoint = Endpoint(config.metrics.listen, self.readings)
            opened.callback(self.endpoint.close)
        log.info(
            "asad %s: %s, policies %s, %s, %s and %s%s; control socket %s; state store %s",
            __version__,
            self.cycle.mode,
            admit.name,
            defer.name,
            place.name,
            share.name,
            ", paused" if self.cycle.paused else "",
            config.daemon.socket,
            _without_password(config.store_url),
        )
        if self._given is None and config.daemon.cluster != "recorded":
            self._rehearse()

    def _rehearse(self) -> None:
        """Have the policies compiled before quotas wait for their first cycle."""
        notify(f"EXTEND_TIMEOUT_USEC={int(1e6 * REHEARSAL_S)}", "STATUS=compiling the policy")
        begin = self._monotonic()
        try:
            rehearse(self.config)
        except Exception:
            log.exception("the policy could not be rehearsed; its first cycle may take long")
        names = f"{self.cycle.admit.name}, {self.cycle.place.name} and {self.cycle.share.name}"
        log.info("rehearsed %s in %.1f s", names, self._monotonic() - begin)

    def _stop(self) -> None:
        """Give back what can be given back, keep what was learned; nothing here may fail the rest."""
        self._fail_asks()
        if self.cycle.mode == "enforce":
            self._release()
        self._save()
        metrics = self.gains.to_json() | {"cycles": self._completed, "cycles_failed": self._failed}
        if not self.writer.close(metrics):
            log.error(
                "the state store did not take the last decisions: %s", self.writer.trouble or "it is busy"
            )
        log.info("stopped after %d cycles", self._completed)

    # ------------------------------------------------------------------------------------------------------ cycles

    def _cycles(self) -> None:
        wake_s = math.inf
        while not self._stopping:
            due = self.pace.next_cycle(wake_s)
            if due is None:
                log.info("the log has ended: %s", self.cluster.sentence())
                if not self.config.recorded.stay:
                    return
                self._wait(math.inf)
                return
            self._wait(due)
            if not self._stopping:
                wake_s = self._one_cycle()

    def _wait(self, until: float) -> None:
        """Until then, or until stopped: answer, reload, and tell systemd that we live."""
        while True:
            self._beat()
            self._answer_asks()
            if self._reloading:
                self._reloading = False
                self._reload()
            left = until - self._monotonic()
            if self._stopping or left <= 0:
                return
            select.select([self._wake_in], [], [], min(left, self._beat_s, 60.0))
            with contextlib.suppress(BlockingIOError):
                while self._wake_in.recv(4096):
                    pass

    def _beat(self) -> None:
        """Tell systemd that we live, as often as it wants to hear."""
        now = self._monotonic()
        if now - self._beat_at >= self._beat_s:
            self._beat_at = now
            notify("WATCHDOG=1")

    def _one_cycle(self) -> float:
        """A cycle and what follows from it. Whatever goes wrong in it, the next one comes."""
        begin, wake_s = self._monotonic(), math.inf
        try:
            if not self._recovered:
                self._recover(quietly=False)
            if isinstance(self.cluster, ActsByItself):
                self.cluster.may_act(self.cycle.mode == "enforce" and not self.cycle.paused)
            wake_s = self.cycle.run_once()
            self._completed += 1
            sentence = self.cycle.sentence()
        except AsadError as error:
            self._failed += 1
            sentence = f"cycle {self.cycle.number} skipped: {error}"
        except Exception as error:
            self._failed += 1
            log.exception("a fault of asad's in cycle %d", self.cycle.number)
            sentence = (
                f"cycle {self.cycle.number} broken off by a fault of asad's: {type(error).__name__}: {error}"
            )
        wall_s = self._monotonic() - begin
        if isinstance(self.pace, Steady) and wall_s > self.pace.interval_s:
            missed = int(wall_s / self.pace.interval_s)
            sentence += (
                f"; it took {wall_s:.1f} s, so {missed} more {'was' if missed == 1 else 'were'} skipped"
            )
        try:
            self._after(begin, wall_s, sentence)
        except Exception:
            log.exception("a fault of asad's after cycle %d", self.cycle.number)
        self._tell(sentence)
        return wake_s

    def _after(self, begin: float, wall_s: float, sentence: str) -> None:
        """Keep and tell what the cycle has left."""
        cycle = self.cycle
        snapshot, finished = cycle.snapshot, cycle.finished
        cycle.finished = None  # a cycle that fails early must not count the same ends twice
        if snapshot is not None and finished is not None:
            ends = self.gains.take(snapshot, finished, cycle.outcomes)
            if ends:
                self.writer.record_ends(ends)
        if not cycle.outcomes:
            self._held_back = set()
        self._drain()
        self._last_cycle = {
            "number": cycle.number,
            "time_s": None if snapshot is None else snapshot.time_s,
            "wall_ms": round(1000 * wall_s, 1),
            "sentence": sentence,
        }
        self._read()
        if isinstance(cycle.admit, Admission | Statements) and cycle.admit.changed:
            self._save_stage("admit")
        if isinstance(cycle.defer, Deferral) and cycle.defer.changed:
            self._save_stage("defer")
        if self._monotonic() - self._saved_at >= SAVE_S:
            self._save()
        if snapshot is not None and self._monotonic() - self._forgot_at >= FORGET_S:
            self._forgot_at = self._monotonic()
            self.writer.forget_before(snapshot.time_s - 86_400.0 * self.config.daemon.retention_days)

    def _drain(self) -> None:
        """Ledger and quota changes into the store, and what the cluster has to say into the log."""
        said = _emptied(self.cluster.said)
        if isinstance(self.cycle.defer, Deferral):
            said += _emptied(self.cycle.defer.said)
        for sentence in said:
            log.info("%s", sentence)
        if isinstance(self.cluster, ActsByItself):
            acted = _emptied(self.cluster.acted)
            for job, outcome in acted:
                self.writer.record(self.cycle.number, self._now_s, [outcome], [job], [-1])
        rows = _emptied(self.cluster.ledger)
        if rows:
            entries = [
                LedgerEntry(
                    str(row["job_id"]),
                    cast(Role, row["role"]),
                    float(row["time_s"]),
                    str(row["account"]),
                    float(row["lent_core_s"]),
                    float(row["extended_s"]),
                )
                for row in rows
            ]
            self.writer.add_ledger(entries)
            # what a host gave is what its guests got: counted once
            self.gains.lent_core_s += sum(entry.lent_core_s for entry in entries if entry.role == "guest")
            self.gains.extended_s += sum(entry.extended_s for entry in entries)
        if self.nodes is not None and self.nodes.audit:
            changes = []
            while self.nodes.audit:
                row = self.nodes.audit.popleft()
                old, new = row.get("old"), row.get("new")
                changes.append(
                    QuotaChange(
                        str(row.get("node")),
                        float(cast(float, row.get("time_s"))),
                        str(row.get("job_id")),
                        str(row.get("file")),
                        None if old is None else str(old),
                        None if new is None else str(new),
                        str(row.get("why")),
                    )
                )
            self.writer.add_quota_changes(changes)

    def _record(self, number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        """What became of the decisions of a cycle: to be counted, and kept.

        A policy that wishes the same in every cycle in vain is kept once, and again when the answer changes.
        """
        held_back: set[tuple[Any, ...]] = set()
        news = []
        for outcome in outcomes:
            decision, veto = outcome.decision, vetoed_by(outcome)
            if veto:
                self._vetoes[veto] += 1
            advised = outcome.reason == "advise"
            verdict = "done" if outcome.done else "vetoed" if veto else "advised" if advised else "refused"
            self._counts[decision.kind, verdict] += 1
            if is_renewal(outcome) and (outcome.done or advised):
                continue
            if not outcome.done:
                wish = [getattr(decision, column.name) for column in dataclasses.fields(decision)[1:]]
                same = (decision.kind, *wish, veto or outcome.reason)  # the first field is the cause
                held_back.add(same)
                if same in self._held_back:
                    continue
            news.append(outcome)
        self._held_back = held_back
        if news:
            self.writer.record(number, snapshot.time_s, news, snapshot.jobs.job_id, snapshot.jobs.host)

    def _tell(self, sentence: str) -> None:
        now = self._monotonic()
        if now - self._told_at >= SENTENCE_S:
            self._told_at = now
            log.info("%s", sentence)
            notify(f"STATUS={sentence[:500]}")
        else:
            log.debug("%s", sentence)

    # --------------------------------------------------------------------------------------------------- knowledge

    @property
    def _learners(self) -> dict[str, Remembers]:
        """By stage, the policies whose knowledge outlives the process."""
        stages: dict[str, object] = {
            "admit": self.cycle.admit,
            "defer": self.cycle.defer,
            "share": self.cycle.share,
            "place": self.cycle.place,
        }
        return {stage: policy for stage, policy in stages.items() if isinstance(policy, Remembers)}

    def _scope(self, stage: str) -> str:
        """Under which the store keeps what a stage's policy knows."""
        if stage == "admit":
            return f"{self.config.daemon.cluster}/admit/{self.cycle.admit.name}"
        if stage == "defer":  # what it knows of the cluster is the same for every policy
            return f"{self.config.daemon.cluster}/defer"
        if stage == "place":
            return f"{self.config.daemon.cluster}/place/{self.cycle.place.name}"
        return f"{self.config.daemon.cluster}/{self.cycle.share.name}"

    def _remember(self) -> None:
        """What was learned before this start. A store that does not tell is asked again when it is time to save."""
        for stage, policy in self._learners.items():
            if stage not in self._remembered and not self._remember_stage(stage, policy):
                return

    def _remember_stage(self, stage: str, policy: Remembers) -> bool:
        url, scope = self.config.store_url, self._scope(stage)

        def read() -> dict[str, dict[str, Json]]:
            with Store.open(url) as store:
                if isinstance(policy, Statements):
                    return stated.memory(store, scope)
                return store.load_learned(scope)

        try:
            memory = within(LOAD_S, read)
        except (AsadError, TimeoutError) as error:
            why = str(error) or f"it did not answer within {LOAD_S:.0f} s"
            log.warning("what was learned before is not known, until the store tells: %s", why)
            return False
        policy.restore(memory)
        self._remembered.add(stage)
        self._saved[stage] = dict(memory)
        if memory and stage == "defer":
            log.info("remembers %d days of what on-demand jobs left", len(memory) - ("*" in memory))
        elif memory and stage != "admit":
            log.info("remembers %d applications", len(memory) - ("*" in memory))
        elif memory:
            promised = sum(
                name.startswith(("seat ", "statement ")) and bool(known) for name, known in memory.items()
            )
            log.info("remembers what admission said of %d jobs", promised)
        return True

    def _save(self) -> None:
        """Keep what has been learned since the last time."""
        self._saved_at = self._monotonic()
        for stage in self._learners:
            self._save_stage(stage)

    def _save_stage(self, stage: str) -> None:
        if stage not in self._remembered:
            if not self.writer.trouble:
                self._remember()
            return  # what is kept is more than what a few minutes have taught
        policy = self._learners[stage]
        if isinstance(policy, Statements):
            self.writer.save_statements(self._scope(stage), stated.changes_of(policy.unkept()))
            return
        try:
            state = policy.state()
        except Exception:
            log.exception("what was learned could not be told")
            return
        saved = self._saved.get(stage, {})
        changed = {name: entry for name, entry in state.items() if saved.get(name) != entry}
        self._saved[stage] = dict(state)
        self.writer.save_learned(self._scope(stage), changed)

    def _keep_promises(self) -> None:
        """What admission has promised is in the store before the cluster is told of it, unless the store is away."""
        admit = self.cycle.admit
        if not isinstance(admit, Admission | Statements) or not admit.changed:
            return
        self._save_stage("admit")
        if not self.writer.trouble and not self.writer.wait_until_written(KEEP_S):
            log.warning("the state store did not take within %g s what admission has promised", KEEP_S)

    def _recover(self, *, quietly: bool = True) -> None:
        """Undo what an earlier daemon left, before anything new is lent. `quietly`: the first cycle tries again."""
        try:
            done = self.cluster.recover()
            acts = self.cycle.mode == "enforce"
            stands = acts and isinstance(self.cycle.admit, Admission | Statements)
            if not stands and isinstance(self.cluster, KeepsPromises):
                # an earlier daemon promised what this one does not keep; begin times the defer stage takes up
                done += self.cluster.give_back(begin=not (acts and isinstance(self.cycle.defer, Deferral)))
            for sentence in done:
                log.info("recovered: %s", sentence)
            self._recovered = True
        except AsadError as error:
            if not quietly:
                raise
            log.warning("what an earlier daemon left could not be undone yet: %s", error)

    def _release(self) -> list[str]:
        """Take back all offers and quotas; what could not be is left to asad-undo and to the leases' end."""
        try:
            done = self.cluster.release()
        except Exception as error:
            log.error("not everything could be given back: %s", error)
            return [f"not everything could be given back: {error}"]
        self.cycle.admit.given_back()
        self.cycle.defer.given_back()
        for sentence in done:
            log.info("released: %s", sentence)
        return done

    # ------------------------------------------------------------------------------------------------------ reload

    def _seed(self, config: Config) -> int | None:
        return config.recorded.seed if config.daemon.cluster == "recorded" else None

    def _reload(self) -> None:
        notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            if self._reread is None:
                raise UsageError("there is no configuration file; start with --config FILE")
            self._take_over(self._reread())
            log.info("reloaded %s", self.config.path)
        except Exception as error:
            log.error("reload: the old configuration stays: %s", error)
            if not isinstance(error, AsadError):
                log.exception("a fault of asad's")
        finally:
            notify("READY=1")

    def _take_over(self, new: Config) -> None:
        """Go on with a new configuration; whatever it raises, the old one holds."""
        old = self.config
        fixed = {
            "[daemon] " + name: getattr(old.daemon, name)
            for name in ("cluster", "state_dir", "store", "socket")
        }
        later = [key for key, value in fixed.items() if getattr(new.daemon, key.split()[1]) != value]
        later += [
            f"[{name}]"
            for name in ("nodes", "metrics", "recorded")
            if getattr(new, name) != getattr(old, name)
        ]
        if later:
            log.warning("%s changed, which takes effect at the next start", ", ".join(later))
        new = dataclasses.replace(
            new,
            daemon=dataclasses.replace(new.daemon, **{key.split()[1]: value for key, value in fixed.items()}),
            nodes=old.nodes,
            metrics=old.metrics,
            recorded=old.recorded,
        )
        cluster, name = self.cluster, new.daemon.cluster
        anew = self._given is None and new.clusters.get(name, {}) != old.clusters.get(name, {})
        if anew and name != "recorded":
            cluster = open_cluster(new, self.link, new.daemon.state_dir, self._clock)
        share, admit, place = self.cycle.share, self.cycle.admit, self.cycle.place
        defer = self.cycle.defer
        if cluster is not self.cluster or _decides(new) != _decides(old):
            share = share_policy(new, cluster.applications, self._seed(new))
            admit = admit_policy(new, cluster.applications)
            defer = defer_policy(new, cluster.applications)
            place = place_policy(new, cluster.applications)
            if isinstance(self.cycle.admit, Statements):
                self._save_stage("admit")  # what is not kept yet is not handed over
            _hand_over(self.cycle.defer, defer)
            if place.name == self.cycle.place.name:
                _hand_over(self.cycle.place, place)
            if share.name == self.cycle.share.name:
                _hand_over(self.cycle.share, share)
            if admit.name == self.cycle.admit.name:
                _hand_over(self.cycle.admit, admit)
        loss = memory_loss(new)
        # nothing of the new configuration can be wrong any more
        for stage, name_before, name_now in (
            ("share", self.cycle.share.name, share.name),
            ("admit", self.cycle.admit.name, admit.name),
            ("place", self.cycle.place.name, place.name),
            ("defer", isinstance(self.cycle.defer, Deferral), isinstance(defer, Deferral)),
        ):
            if name_before != name_now:
                self._save()
                self._remembered.discard(stage)
                self._saved.pop(stage, None)
        if self.cycle.mode == "enforce" and _slots(admit) != _slots(self.cycle.admit):
            self._release()  # what was promised by other slots is no promise any more
        elif self.cycle.mode == "enforce" and isinstance(self.cycle.defer, Deferral) > isinstance(
            defer, Deferral
        ):
            self._release()  # nobody renews or ends what it holds back
        elif self.cycle.mode == "enforce" and place.name != self.cycle.place.name:
            self._release()  # nobody looks after the shares and memory limits that another policy has set
        self.config = new
        bound = share.properties | place.properties
        self.cycle.share, self.cycle.guard = share, guard_for(bound, new.guard, loss, _consents(admit))
        self.cycle.admit, self.cycle.defer, self.cycle.place = admit, defer, place
        if cluster is not self.cluster:
            self._release()
            self.cluster.close()
            self.cluster = self.cycle.cluster = cluster
            self.gains.forget_rows()
            self._recovered = False
            self._recover()
        self._remember()
        if isinstance(self.pace, Steady):
            self.pace.interval_s = new.daemon.interval_s
        if self.nodes is not None:
            self.nodes.lease_s = new.lease_s
        self.control.operators = new.daemon.operators
        logging.getLogger().setLevel(new.daemon.log_level.upper())
        if new.daemon.mode != old.daemon.mode:
            self._set_mode(new.daemon.mode)

    # ----------------------------------------------------------------------------------------------------- control

    def handle(self, request: Request, peer: Peer) -> Json:
        """The answer to one request; called in threads of the control socket. Raises AsadError."""
        match request.verb:
            case "status":
                return self.status()
            case "metrics":
                return self.readings.text()
            case "config":
                return cast(Json, self.plain_config())
            case "explain":
                return self._explain(request.text("job"))
            case "jobs":
                return self._ask(lambda: self._jobs(request))
            case "nodes":
                return self._ask(self._nodes)
            case "admission":
                return self._ask(lambda: self._admission(request.text("job", "")))
            case "deferral":
                return self._ask(lambda: self._deferral(request.text("job", "")))
            case "progress":
                return self._ask(lambda: self._progress(request.text("job")))
            case "sow-submit" | "sow-cancel" | "sow-quote" | "sow-status":
                return self._ask(lambda: self._statements(request, peer))
            case "sow-ledger":
                return self._statement_ledger(peer)
            case "submit" | "cancel" | "tasks" | "teardown":
                return self._ask(lambda: self._request(request, peer))
            case "pause" | "resume":
                return self._ask(lambda: self._pause(request.verb == "pause", peer))
            case "release":
                return self._ask(lambda: self._give_back(peer))
            case "mode":
                return self._ask(lambda: self._change_mode(request.text("mode", self.cycle.mode), peer))
        raise UsageError(f"the daemon does not know how to {request.verb}")

    def _ask(self, function: Callable[[], Json]) -> Json:
        """Have the main thread do something between two cycles. Raises AsadError if it does not come to that."""
        answer: Future[Json] = Future()
        self._asks.put((function, answer))
        self._wake()
        try:
            return answer.result(ANSWER_S)
        except TimeoutError:
            answer.cancel()
            raise AsadError(
                f"the daemon is in the middle of a cycle and did not come to it within {ANSWER_S:.0f} s; try again"
            ) from None
        except CancelledError:
            raise AsadError("the daemon stops; ask again when it runs") from None

    def _answer_asks(self) -> None:
        while True:
            try:
                function, answer = self._asks.get_nowait()
            except queue.Empty:
                return
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(function())
                except Exception as error:
                    answer.set_exception(error)

    def _fail_asks(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._asks.get_nowait()[1].cancel()

    def status(self) -> dict[str, Json]:
        """The state of the daemon as of the last cycle."""
        return {
            "version": __version__,
            "mode": self.cycle.mode,
            "paused": self.cycle.paused,
            "policy": self.cycle.share.name,
            "admit": self.cycle.admit.name,
            "defer": self.cycle.defer.name,
            "place": self.cycle.place.name,
            "since_s": self._since_s,
            "now_s": self._now_s,
            "cycle": self._last_cycle,
            "cycles": {"completed": self._completed, "failed": self._failed, "skipped": self._skipped},
            "cluster": self._cluster_counts,
            "lending": self._lending,
            "gains": self.gains.to_json(),
            "vetoes": self._told_vetoes,
            "actors": self._actors,
            "store": {
                "url": _without_password(self.config.store_url),
                "run": self.writer.run_id,
                "trouble": self.writer.trouble,
                "dropped": self.writer.dropped,
            },
        }

    def plain_config(self) -> dict[str, Any]:
        """The settings in force, without a password."""
        plain = self.config.to_json()
        plain["daemon"]["store"] = _without_password(self.config.store_url)
        return plain

    def _jobs(self, request: Request) -> Json:
        """Jobs by `job`, `state` (`running`: guests too, for they run) and `user`, at most `limit` of them."""
        wanted = {key: request.arguments.get(key) for key in ("job", "state", "user")}
        states = {"running": ("running", "guest")}.get(str(wanted["state"]), (wanted["state"],))
        rows = [
            row
            for row in job_rows(self._snapshot(), self.cluster.applications)
            if (wanted["job"] in (None, row["job"]))
            and (wanted["state"] is None or row["state"] in states)
            and (wanted["user"] in (None, row["user"]))
        ]
        limit = request.arguments.get("limit")
        shown = rows[:limit] if isinstance(limit, int) and limit >= 0 else rows
        return {"now_s": self._now_s, "total": len(rows), "jobs": cast(Json, shown)}

    def _nodes(self) -> Json:
        rows = node_rows(self._snapshot(), self.link.reports(), self._clock())
        return {"now_s": self._now_s, "nodes": cast(Json, rows)}

    @property
    def _now_s(self) -> float:
        """Now by the clock of the cluster: a log has a time of its own."""
        if isinstance(self.cluster, Playback) and self.cycle.snapshot is not None:
            return self.cycle.snapshot.time_s
        return self._clock()

    def _request(self, request: Request, peer: Peer) -> Json:
        """What the cluster answers; jobs run as whom the kernel says that asks."""
        if not isinstance(self.cluster, TakesJobs):
            name = self.config.daemon.cluster
            raise UsageError(
                f"jobs of this cluster ({name}) are submitted to it itself, not through asad; use its own commands "
                "(sbatch, scancel), or set [daemon] cluster to mesos"
            )
        return self.cluster.request(request.verb, request.arguments, peer.user, peer.uid)

    def _admission(self, job: str) -> Json:
        """What admission says of a job and has planned for it; without a job, of all."""
        admit = self.cycle.admit
        if isinstance(admit, Statements):
            raise UsageError(f"[policies] admit is {admit.name}: asactl sow status tells of statements")
        if not isinstance(admit, Admission):
            raise UsageError("every job is admitted here: [policies] admit is everyone")
        if not job:
            return cast(Json, admit.overview())
        told = admit.explain(job)
        if told is None:
            raise UsageError(
                f"job {job!r:.40}: admission does not know it: it is gone, or tells no utility and no rule has one; "
                "asactl admit status lists those that it knows"
            )
        return cast(Json, told)

    def _deferral(self, job: str) -> Json:
        """What the defer stage says of a job; without a job, of all."""
        defer = self.cycle.defer
        if not isinstance(defer, Deferral):
            raise UsageError("nothing is put off here: [policies] defer is at-once")
        if not job:
            return cast(Json, defer.overview())
        told = defer.explain(job)
        if told is None:
            raise UsageError(
                f"job {job!r:.40}: the defer stage does not know it: it is gone, not deferrable, or steered by "
                "admission; asactl defer status lists those that it knows"
            )
        return cast(Json, told)

    def _statements(self, request: Request, peer: Peer) -> Json:
        """Statements of work: taken, taken back, quoted and told of; his who asks, as the kernel says."""
        admit, now_s = self.cycle.admit, self._now_s
        if not isinstance(admit, Statements):
            raise UsageError(
                f"no statements of work are taken here: [policies] admit is {admit.name}; sow and sow-paper take them"
            )
        may = may_change(peer, self.control.operators)
        if request.verb == "sow-status":
            return cast(Json, admit.status(None if may else peer.user))
        if request.verb == "sow-quote":
            cores = request.arguments.get("cores")
            if not isinstance(cores, int) or isinstance(cores, bool):
                raise UsageError("cores is missing or no whole number; write --cores 8")
            return cast(Json, admit.quote(cores, now_s))
        if request.verb == "sow-cancel":
            number = request.arguments.get("statement")
            if not isinstance(number, int) or isinstance(number, bool):
                raise UsageError("the number of the statement is missing; asactl sow status lists them")
            told = admit.withdraw(number, None if may else peer.user, now_s)
            return {"statement": cast(Json, told), "kept": self._kept_now()}
        if self.cycle.mode == "observe" or self.cycle.paused:
            why = "it is paused (asactl resume)" if self.cycle.paused else "its mode is observe"
            raise UsageError(f"nothing new is promised while the daemon only looks on: {why}")
        owner = peer.user
        if peer.uid == 0 and "user" in request.arguments:
            owner = request.text("user")
        answers = admit.submit(_announced(request, now_s), owner, now_s)
        told = {"statements": cast(Json, answers), "acts": self.cycle.mode == "enforce"}
        return told | {"kept": self._kept_now(), "now_s": now_s, "round_s": admit.options.round_s}

    def _kept_now(self) -> bool:
        """What was promised is in the store before it is told of; False if the store is away."""
        self._save_stage("admit")
        return not self.writer.trouble and self.writer.wait_until_written(KEEP_S)

    def _statement_ledger(self, peer: Peer) -> Json:
        """The asker's own lines and balance; of an operator all. Read from the store."""
        with contextlib.suppress(AsadError):
            self.writer.wait_until_written(2.0)
        account = None if may_change(peer, self.control.operators) else peer.user
        with Store.open(self.config.store_url, create=False) as store:
            return cast(Json, stated.ledger(store, self._scope("admit"), account))

    def _progress(self, job: str) -> Json:
        """What a job tells of itself, by node, and its happiness."""
        rows = job_rows(self._snapshot(), self.cluster.applications, job)
        if not rows:
            raise UsageError(f"job {job!r:.40} neither runs nor waits; asactl jobs lists those that do")
        told: dict[str, Json] = {
            name: known(report.jobs[job].progress)
            for name, report in self.link.reports().items()
            if job in report.jobs
        }
        return {"job": job, "state": rows[0]["state"], "happiness": rows[0]["happiness"], "progress": told}

    def _snapshot(self) -> Snapshot:
        if self.cycle.snapshot is None:
            raise AsadError(
                f"nothing has been seen yet: {self._last_cycle['sentence']}; try again after a cycle"
            )
        return self.cycle.snapshot

    def _explain(self, job: str) -> Json:
        """The story of a job: what the store has of it in the newest run that touched it, and how it is now."""
        with contextlib.suppress(AsadError):
            self.writer.wait_until_written(2.0)
        live = None
        defer = self.cycle.defer
        deferral = None
        if isinstance(defer, Deferral):
            deferral = self._ask(lambda: cast(Json, defer.explain(job)))
        if self.cycle.snapshot is not None:
            rows = cast(
                "list[Json]",
                self._ask(lambda: cast(Json, job_rows(self._snapshot(), self.cluster.applications, job))),
            )
            live = rows[0] if rows else None
        with Store.open(self.config.store_url, create=False) as store:
            runs = store.runs_of(job)
            if not runs and live is None and deferral is None:
                raise UsageError(
                    f"job {job!r:.40}: it neither runs nor waits, and lending did not touch it in any run; "
                    "asactl jobs lists those that run and wait"
                )
            run = next((run for run in runs if run.id == self.writer.run_id), runs[0] if runs else None)
            story = [] if run is None else [decision.to_json() for decision in store.decisions(run.id, job)]
            ends = [] if run is None else [end.to_json() for end in store.job_ends(run.id, job)]
            quotas = [dataclasses.asdict(change) for change in store.quota_changes(job, limit=100)]
        others = [
            {"id": other.id, "policy": other.policy, "state": other.state}
            for other in runs
            if other is not run
        ]
        return {
            "job": job,
            "live": live,
            "deferral": deferral,
            "run": None if run is None else run.to_json(),
            "others": cast(Json, others),
            "decisions": cast(Json, story),
            "ends": cast(Json, ends),
            "quotas": cast(Json, quotas),
        }

    @property
    def _pause_file(self) -> Path:
        return self.config.daemon.state_dir / "paused"

    def _pause(self, paused: bool, peer: Peer | None) -> Json:
        """Pause or resume; a pause outlives a restart."""
        self.cycle.paused = paused
        if peer is not None:
            log.info("%s by %s", "paused" if paused else "resumed", peer.user)
        try:
            if paused:
                self._pause_file.write_text(f"by {peer.user if peer else 'asad'}\n", encoding="utf-8")
            else:
                self._pause_file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: %s; a restart will not know of it", self._pause_file, error.strerror)
        self._read()
        return {"paused": paused}

    def _give_back(self, peer: Peer) -> Json:
        """Pause, and take back every offer and quota now."""
        self._pause(True, peer)
        return {"paused": True, "done": cast(Json, self._release())}

    def _change_mode(self, mode: str, peer: Peer) -> Json:
        if mode not in MODES:
            raise UsageError(f"there is no mode {mode!r:.40}; choose {', '.join(MODES)}")
        before = self.cycle.mode
        if mode != before:
            log.info("mode %s instead of %s by %s, until the next start", mode, before, peer.user)
            self._set_mode(cast(Mode, mode))
        return {"mode": mode, "before": before}

    def _set_mode(self, mode: Mode) -> None:
        """A daemon that acts no more gives back what is out."""
        if self.cycle.mode == "enforce" and mode != "enforce":
            self._release()
        self.cycle.mode = mode
        self._read()

    # ------------------------------------------------------------------------------------------------------ figures

    @property
    def _skipped(self) -> int:
        return self.pace.skipped if isinstance(self.pace, Steady) else 0

    def _read(self) -> None:
        """What `status` and the metrics tell until the next cycle."""
        snapshot, cycle, config = self.cycle.snapshot, self.cycle, self.config
        reports = self.link.reports()
        silent: list[str] = []
        reading: dict[str, float | Mapping[tuple[str, ...], float]] = {
            "asad_info": {(__version__, cycle.mode, cycle.share.name, config.daemon.cluster): 1.0},
            "asad_paused": float(cycle.paused),
            "asad_cycles_total": float(self._completed),
            "asad_cycles_failed_total": float(self._failed),
            "asad_cycles_skipped_total": float(self._skipped),
            "asad_decisions_total": {key: float(count) for key, count in self._counts.items()},
            "asad_vetoes_total": {(name,): float(count) for name, count in self._vetoes.items()},
            "asad_guests_total": float(self.gains.guests),
            "asad_lent_core_seconds_total": self.gains.lent_core_s,
            "asad_extended_seconds_total": self.gains.extended_s,
            "asad_saved_wait_seconds_total": self.gains.saved_wait_s,
            "asad_store_away": float(bool(self.writer.trouble)),
            "asad_store_rows_dropped_total": float(self.writer.dropped),
            "asad_actors_refused_total": 0.0 if self.nodes is None else float(self.nodes.refused),
        }
        if snapshot is not None:
            counts = cluster_counts(snapshot)
            if self.nodes is not None:
                silent = [name for name in snapshot.machine.node_names if name not in reports]
            hosts = np.unique(snapshot.jobs.host[snapshot.guests])
            pressed = snapshot.jobs.pressure[hosts[hosts >= 0]] > config.guard.pressure
            figures = {name: float(cast(int, value)) for name, value in counts.items()}
            reading |= {
                "asad_nodes": figures["nodes"],
                "asad_cores": figures["cores"],
                "asad_cores_allocated": figures["allocated_cores"],
                "asad_cores_shared": figures["shared_cores"],
                "asad_jobs": {
                    (state,): figures[name]
                    for state, name in (
                        ("waiting", "waiting"),
                        ("running", "running"),
                        ("guest", "guests"),
                        ("offered", "offered"),
                    )
                },
                "asad_hosts_under_pressure": float(np.count_nonzero(pressed)),
                "asad_last_cycle_timestamp_seconds": snapshot.time_s,
                "asad_cycle_duration_seconds": cast(float, self._last_cycle["wall_ms"] or 0.0) / 1000,
            }
            self._cluster_counts = {"sentence": self.cluster.sentence(), **counts}
            self._lending = lending(snapshot, self.cluster.applications)
        reading["asad_actors_connected"] = float(len(reports))
        reading["asad_actors_silent"] = float(len(silent))
        self._actors = {"connected": len(reports), "silent": list(silent)}
        self._told_vetoes = dict(sorted(self._vetoes.items()))
        self.readings.set(cast(Reading, reading))


def _decides(config: Config) -> tuple[Any, ...]:
    """The settings from which policies and guard are made."""
    options = config.share, config.admit, config.defer, config.place
    return config.policies, *options, config.guard, config.daemon.interval_s


def _hand_over(before: object, after: object) -> None:
    """What a policy knows to the one that takes its place."""
    if isinstance(before, Remembers) and isinstance(after, Remembers):
        after.restore(before.state())


def _slots(policy: AdmitPolicy) -> tuple[str, float]:
    """By which policy and in which slots jobs are promised something."""
    if isinstance(policy, Statements):
        return policy.name, policy.options.round_s
    return policy.name, policy.options.slot_s if isinstance(policy, Admission) else 0.0


def _consents(policy: AdmitPolicy) -> Mapping[str, str]:
    """Who agreed to be evicted: nobody but owners of statements."""
    return policy.consents if isinstance(policy, Statements) else {}


def _announced(request: Request, now_s: float) -> list[Announcement]:
    """The statements of a request, those that come again as often as it says. Raises UsageError."""
    given, times = request.arguments.get("statements"), request.arguments.get("times", 1)
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise UsageError("there is no statement; asactl sow submit FILE sends those of a file")
    if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MOST_STATEMENTS:
        raise UsageError(f"times: write a whole number from 1 to {MOST_STATEMENTS}")
    found: list[Announcement] = []
    for number, plain in enumerate(given, 1):
        try:
            one = announcement_of(cast("Mapping[str, Any]", plain), now_s)
        except UsageError as error:
            raise UsageError(f"statement {number}: {error}") from None
        if times > 1 and not one.every_s:
            raise UsageError(
                f"statement {number}: every: it comes once, and {times} are asked for; write every"
            )
        found += [one.later(again) for again in range(times)]
    if len(found) > MOST_STATEMENTS:
        raise UsageError(f"{len(found)} statements; send at most {MOST_STATEMENTS} at one time")
    return found


def _emptied(rows: list[T]) -> list[T]:
    """What is in the list, which is empty thereafter."""
    taken = rows[:]
    del rows[: len(taken)]
    return taken


def _without_password(url: str) -> str:
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)
