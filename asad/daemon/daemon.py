"""The daemon's lifecycle: start, cycle after cycle, reload, stop.

The main thread goes through this file from top to bottom. Signals only set a flag and wake it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

from asad import __version__
from asad.api.auth import open_authenticator
from asad.api.control import ControlServer, Peer
from asad.api.nodes import NodeServer
from asad.config import MODES, Config, Mode
from asad.cycle import Cycle
from asad.daemon.clusters import (
    ActsByItself,
    ActsSlowly,
    KeepsPromises,
    LiveCluster,
    NoNodes,
    open_cluster,
    settings_of,
)
from asad.daemon.figures import Figures
from asad.daemon.identity import only_one, take_identity
from asad.daemon.leases import FAILURES, Leases
from asad.daemon.pace import Pace, Steady, WallClock
from asad.daemon.policy_state import PolicyState
from asad.daemon.reload import but_for_what_is_fixed, leaves_behind
from asad.daemon.requests import Requests, plain_config
from asad.daemon.task_queue import TaskQueue
from asad.decisions import Outcome
from asad.errors import AsadError, UsageError
from asad.metrics import Endpoint
from asad.model import Json, Snapshot
from asad.port import NodeLink
from asad.replay.playback import Playback
from asad.stages import Stages, decided_by, live_guard, stages_of, warm_up
from asad.store.records import QuotaChange
from asad.store.writer import FORGET_S, RunStart, Writer
from asad.systemd import Heartbeat, notify

log = logging.getLogger(__name__)

SUPERSEDED = 7
"""Exit status of a daemon in whose place another one rules: nobody should start it again by himself."""
MOST_CASES = 10
"""So many cases of lending are kept of a cycle; a thousand hosts draw twenty times as many each minute."""
ACTING, LEAST_ACTING_S = 1 / 3, 1.0
"""Part of the time between two cycles that changes may take, and how long they may take however short that is (s)."""
WARM_UP_S = 900.0
"""So long systemd is asked to wait while a policy is compiled; half a minute is usual, once."""
SENTENCE_S = 1.0
"""No more than one sentence goes into the log in this time: a log that is played has many cycles a second."""
T = TypeVar("T")


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
        self.config, self.clock = config, WallClock(clock, monotonic)
        self._reread, self._given, self._monotonic = reread, cluster, monotonic
        self._stopping = self._reloading = False
        self.task_queue = TaskQueue(monotonic)
        self.requests = Requests(self)
        self.figures = Figures(clock())
        self.endpoint: Endpoint | None = None
        self._heart = Heartbeat(monotonic)
        self._recovered = False
        """What an earlier daemon left is undone."""
        self._superseded = False
        """Another daemon of this cluster was started later, and the nodes obey it."""
        self._pausing = threading.Lock()
        self._reported_at = -math.inf
        self._forgot_at = monotonic()

    def stop(self) -> None:
        """Stop after the cycle under way."""
        self._stopping = True
        self.task_queue.wake()

    def reload(self) -> None:
        """Read the configuration again."""
        self._reloading = True
        self.task_queue.wake()

    def handle_signals(self) -> None:
        """SIGTERM and SIGINT stop, SIGHUP reloads. Only in the main thread."""
        signal.set_wakeup_fd(self.task_queue.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: setattr(self, "_stopping", True))
        signal.signal(signal.SIGHUP, lambda *_: setattr(self, "_reloading", True))

    def run(self) -> int:
        """Start, cycle until stopped, superseded or the log has ended, stop; the exit status.

        Raises AsadError if it cannot start.
        """
        with contextlib.ExitStack() as opened:
            opened.callback(self.task_queue.close)
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
        return SUPERSEDED if self._superseded else 0

    # ------------------------------------------------------------------------------------------------------- start

    def _start(self, opened: contextlib.ExitStack) -> None:
        """Open everything; nobody is answered, and nothing lent, before what an earlier daemon left is seen to."""
        self._open_cluster(opened)
        stages = stages_of(self.config, self.cluster.applications, _seed(self.config))
        if self.nodes is not None:
            self.nodes.start()
            opened.callback(self.nodes.stop)
        self._open_store(stages, opened)
        self.cycle = Cycle(
            self.cluster,
            *stages,
            live_guard(self.config, stages),
            self._record,
            mode=self.config.daemon.mode,
            paused=self._pause_file.exists(),
            keep=self.policy_state.keep_promises,
        )
        self.pace: Pace
        if isinstance(self.cluster, Playback):
            self.pace = self.cluster
        else:
            self.pace = Steady(self.config.daemon.interval_s, self._monotonic)
        self.policy_state.load()
        self._recover()
        self.read()
        self._open_doors(opened)
        log.info(
            "asad %s: %s, policies %s%s; control socket %s; state store %s",
            __version__,
            self.cycle.mode,
            stages.sentence,
            ", paused" if self.cycle.paused else "",
            self.config.daemon.socket,
            plain_config(self.config)["daemon"]["store"],
        )
        if self._is_real:
            self._warm_up()

    @property
    def _is_real(self) -> bool:
        """Neither a log that is played, nor a stand-in."""
        return self._given is None and self.config.daemon.cluster != "recorded"

    def _open_cluster(self, opened: contextlib.ExitStack) -> None:
        """The cluster, and the link to its node actors."""
        config = self.config
        self.nodes: NodeServer | None = None
        self.link: NodeLink = NoNodes()
        if self._is_real:
            keys = open_authenticator(config.nodes, "daemon")
            self.link = self.nodes = NodeServer(
                config.nodes.listen,
                keys,
                config.lease_s,
                clock=self.clock,
                patience_s=float(settings_of(config).get("offer_patience_s", 60.0)),
                identity=take_identity(config.daemon.state_dir, self.clock()),
            )
        self.leases = Leases(self.link)
        self.cluster = self._given or self._open(config)
        opened.callback(lambda: self.cluster.close())

    def _open(self, config: Config) -> LiveCluster:
        """The cluster that is configured; a third of the time between two cycles may go into changes of it."""
        cluster = open_cluster(config, self.leases, config.daemon.state_dir, self.clock)
        self._pace(cluster, config)
        return cluster

    @staticmethod
    def _pace(cluster: LiveCluster, config: Config) -> None:
        if isinstance(cluster, ActsSlowly):
            cluster.acting_s = max(LEAST_ACTING_S, ACTING * config.daemon.interval_s)

    def _open_store(self, stages: Stages, opened: contextlib.ExitStack) -> None:
        """Who writes the store, and what is to be loaded from it."""
        config = self.config
        machine = {"cluster": config.daemon.cluster}
        self.writer = Writer(config.store_url, RunStart(stages.run, machine, plain_config(config)))
        opened.callback(self.writer.close, {})
        self.policy_state = PolicyState(config, self.writer, stages, self._monotonic)

    def _open_doors(self, opened: contextlib.ExitStack) -> None:
        """The control socket, and the metrics endpoint."""
        config = self.config
        self.control = ControlServer(config.daemon.socket, self.requests.handle, config.daemon.operators)
        self.control.start()
        opened.callback(self.control.stop)
        if config.metrics.listen:
            self.endpoint = Endpoint(config.metrics.listen, self.figures.readings)
            opened.callback(self.endpoint.close)

    def _recover(self, *, quietly: bool = True) -> None:
        """Undo what an earlier daemon left, before anything new is lent. `quietly`: the first cycle tries again."""
        try:
            done = self.cluster.recover()
            acts = self.cycle.mode == "enforce"
            stages = self.policy_state.stages
            if not (acts and stages.admit.promises) and isinstance(self.cluster, KeepsPromises):
                # an earlier daemon promised what this one does not keep; begin times the defer stage takes up
                done += self.cluster.give_back(begin=not (acts and stages.defer.holds))
            for sentence in done:
                log.info("recovered: %s", sentence)
            self._recovered = True
        except AsadError as error:
            if not quietly:
                raise
            log.warning("what an earlier daemon left could not be undone yet: %s", error)

    def _warm_up(self) -> None:
        """Have the policies compiled before quotas wait for their first cycle."""
        notify(f"EXTEND_TIMEOUT_USEC={int(1e6 * WARM_UP_S)}", "STATUS=compiling the policy")
        begin = self._monotonic()
        try:
            with self.task_queue.busy("compiling its policies, as it does after an installation or upgrade"):
                warm_up(self.config)
        except Exception:
            log.exception("the policy could not be compiled; its first cycle may take long")
        names = f"{self.cycle.admit.name}, {self.cycle.place.name} and {self.cycle.share.name}"
        log.info("compiled %s in %.1f s", names, self._monotonic() - begin)

    # ------------------------------------------------------------------------------------------------------ cycles

    def _cycles(self) -> None:
        wake_s = math.inf
        while not self._stopping:
            first = (
                ""
                if self.figures.cycles
                else " to its first cycle; what plays it is compiled at the first start"
            )
            with self.task_queue.busy(f"playing its log{first}"):  # one that is live does not have to
                due = self.pace.next_cycle(wake_s)
            if due is None:
                log.info("the log has ended: %s", self.cluster.sentence())
                if not self.config.recorded.stay:
                    return
                self._wait(math.inf)
                return
            self._wait(due)
            if not self._stopping:
                first = "" if self.figures.cycles else ", the first, which compiles what is not compiled yet"
                with self.task_queue.busy(f"in cycle {self.cycle.number + 1}{first}"):
                    wake_s = self._one_cycle()

    def _wait(self, until: float) -> None:
        """Until then, or until stopped: notify systemd that we live, do the tasks of the queue, reload."""
        while True:
            self._heart.beat()
            self.task_queue.do(until)
            if self._reloading:
                self._reloading = False
                with self.task_queue.busy("reading its configuration again"):
                    self._reload()
            left = until - self._monotonic()
            if self._stopping or left <= 0:
                return
            self.task_queue.wait(min(left, self._heart.every_s, 60.0))

    def _one_cycle(self) -> float:
        """A cycle and what follows from it. Whatever goes wrong in it, the next one comes."""
        begin, wake_s = self._monotonic(), math.inf
        try:
            self.clock.check()
            if not self._recovered:
                self._recover(quietly=False)
            if isinstance(self.cluster, ActsByItself):
                self.cluster.may_act(self.cycle.mode == "enforce" and not self.cycle.paused)
            wake_s = self.cycle.run_once()
            self.leases.renew()
            self.figures.count(completed=True)
            sentence = self.cycle.sentence()
        except AsadError as error:
            self.figures.count(completed=False)
            sentence = f"cycle {self.cycle.number} skipped: {error}"
        except Exception as error:
            self.figures.count(completed=False)
            log.exception("a fault of asad's in cycle %d", self.cycle.number)
            sentence = (
                f"cycle {self.cycle.number} broken off by a fault of asad's: {type(error).__name__}: {error}"
            )
        if self.figures.failing >= FAILURES:
            self.leases.renew_roles()
        wall_s = self._monotonic() - begin
        if isinstance(self.pace, Steady) and wall_s > self.pace.interval_s:
            missed = int(wall_s / self.pace.interval_s)
            sentence += (
                f"; it took {wall_s:.1f} s, so {missed} more {'was' if missed == 1 else 'were'} skipped"
            )
        try:
            self._after(wall_s, sentence)
        except Exception:
            log.exception("a fault of asad's after cycle %d", self.cycle.number)
        self._report(sentence)
        if self.nodes is not None and self.nodes.superseded:
            log.error(
                "another daemon of this cluster was started later, and the nodes obey it: this one stops"
            )
            self._superseded = self._stopping = True
        return wake_s

    def _record(self, number: int, snapshot: Snapshot, outcomes: Sequence[Outcome]) -> None:
        """What became of the decisions of a cycle: counted, and kept where it is news."""
        news = self.figures.tally.count(outcomes)
        if news:
            jobs, nodes = snapshot.jobs, snapshot.machine.node_names
            self.writer.record(number, snapshot.time_s, news, jobs.job_id, jobs.host, nodes)

    def _after(self, wall_s: float, sentence: str) -> None:
        """Keep and report what the cycle has left."""
        cycle, figures = self.cycle, self.figures
        snapshot, finished = cycle.snapshot, cycle.finished
        cycle.finished = None  # a cycle that fails early must not count the same ends twice
        if snapshot is not None and finished is not None:
            ends = figures.gains.take(snapshot, finished, cycle.outcomes)
            if ends:
                self.writer.record_ends(ends)
        if not cycle.outcomes:
            figures.tally.nothing_decided()
        self._drain()
        figures.end_cycle(cycle, wall_s, sentence)
        self.read()
        self.policy_state.save_in_time()
        if snapshot is not None and self._monotonic() - self._forgot_at >= FORGET_S:
            self._forgot_at = self._monotonic()
            passed_s = None if isinstance(self.cluster, Playback) else self._forgot_at
            self.writer.forget(snapshot.time_s, 86_400.0 * self.config.daemon.retention_days, passed_s)

    def _drain(self) -> None:
        """Cases, ledger and quota changes into the store, and what cluster and policies have to say into the log."""
        reported = _emptied(self.cluster.notices)
        reported += self.cycle.defer.reports()
        for sentence in reported:
            log.info("%s", sentence)
        if self.cycle.snapshot is not None:
            cases = self.cycle.share.take_cases(self.cycle.snapshot, MOST_CASES)
            # in other modes nothing is lent, which costs nothing
            if cases is not None and self.cycle.mode == "enforce" and not self.cycle.paused:
                self.writer.record_cases(cases)
        if isinstance(self.cluster, ActsByItself):
            for job, outcome in _emptied(self.cluster.acted):
                self.writer.record(self.cycle.number, self.now_s, [outcome], [job], [-1])
        rows = _emptied(self.cluster.ledger)
        if rows:
            self.writer.add_ledger(self.figures.gains.enter(rows))
        if self.nodes is not None and self.nodes.audit:
            self.writer.add_quota_changes(_quota_changes(self.nodes))

    def read(self) -> None:
        """What is reported until the next cycle."""
        if isinstance(self.pace, Steady):
            self.figures.skipped = self.pace.skipped
        self.figures.read(self.config, self.cycle, self.cluster, self.link, self.writer)

    def _report(self, sentence: str) -> None:
        now = self._monotonic()
        if now - self._reported_at >= SENTENCE_S:
            self._reported_at = now
            log.info("%s", sentence)
            notify(f"STATUS={sentence[:500]}")
        else:
            log.debug("%s", sentence)

    @property
    def now_s(self) -> float:
        """Now by the clock of the cluster: a log has a time of its own."""
        if isinstance(self.cluster, Playback) and self.cycle.snapshot is not None:
            return self.cycle.snapshot.time_s
        return self.clock()

    # --------------------------------------------------------------------------------------------------- by request

    @property
    def _pause_file(self) -> Path:
        return self.config.daemon.state_dir / "paused"

    def pause(self, paused: bool, peer: Peer) -> None:
        """Pause or resume, in any thread and in the middle of a cycle; a pause outlives a restart."""
        with self._pausing:
            self.cycle.paused = paused
            log.info("%s by %s", "paused" if paused else "resumed", peer.user)
            try:
                if paused:
                    self._pause_file.write_text(f"by {peer.user}\n", encoding="utf-8")
                else:
                    self._pause_file.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s: %s; a restart will not know of it", self._pause_file, error.strerror)

    def give_back(self) -> list[str]:
        """Take back every offer and quota now."""
        done = self._release()
        self.read()
        return done

    def change_mode(self, mode: str, peer: Peer) -> Json:
        """Another mode, until the next start. Raises UsageError for one that there is not."""
        if mode not in MODES:
            raise UsageError(f"there is no mode {mode!r:.40}; choose {', '.join(MODES)}")
        before = self.cycle.mode
        if mode != before:
            log.info("mode %s instead of %s by %s, until the next start", mode, before, peer.user)
            self._set_mode(cast(Mode, mode))
        return {"mode": mode, "before": before}

    def _set_mode(self, mode: Mode) -> None:
        """A daemon that acts no more releases what is out."""
        if self.cycle.mode == "enforce" and mode != "enforce":
            self._release()
        self.cycle.mode = mode
        self.read()

    def _release(self) -> list[str]:
        """Take back all offers and quotas; what could not be is left to asad-undo and to the leases' end."""
        # also if it fails half-way: a job that has its own again must not be taken for one let go by hand
        self.cycle.admit.on_withdrawn()
        self.cycle.defer.on_withdrawn()
        try:
            with self._heart.beating():  # a slow controller takes its time for every single one
                done = self.cluster.release()
        except Exception as error:
            log.error("not everything could be released: %s", error)
            return [f"not everything could be released: {error}"]
        for sentence in done:
            log.info("released: %s", sentence)
        return done

    # ------------------------------------------------------------------------------------------------------ reload

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
        new = but_for_what_is_fixed(old, new)
        cluster = self._cluster_of(new)
        stages = before = self.policy_state.stages
        with contextlib.ExitStack() as failed:
            if cluster is not self.cluster:
                failed.callback(cluster.close)
            if cluster is not self.cluster or decided_by(new) != decided_by(old):
                stages = stages_of(new, cluster.applications, _seed(new))
            guard = live_guard(new, stages)
            if stages is not before:
                self.policy_state.save()  # what is not kept yet is not handed over
                stages.take_over(before)
            failed.pop_all()
        # nothing of the new configuration can be wrong any more
        self.policy_state.switch(stages)
        if self.cycle.mode == "enforce" and leaves_behind(before, stages):
            self._release()
        self.config = new
        self.cycle.admit, self.cycle.defer, self.cycle.place, self.cycle.share = stages
        self.cycle.guard = guard
        if cluster is not self.cluster:
            self._move_to(cluster)
        self.policy_state.load()
        if isinstance(self.pace, Steady):
            self.pace.interval_s = new.daemon.interval_s
        self._pace(self.cluster, new)
        if self.nodes is not None:
            self.nodes.lease_s = new.lease_s
        self.control.operators = new.daemon.operators
        logging.getLogger().setLevel(new.daemon.log_level.upper())
        if new.daemon.mode != old.daemon.mode:
            self._set_mode(new.daemon.mode)

    def _cluster_of(self, new: Config) -> LiveCluster:
        """The cluster, opened anew if its own settings have changed."""
        if not self._is_real or settings_of(new) == settings_of(self.config):
            return self.cluster
        return self._open(new)

    def _move_to(self, cluster: LiveCluster) -> None:
        """Leave the old cluster object as it would be left by a stop, and begin with the new one."""
        self._release()
        old, self.cluster = self.cluster, cluster
        self.cycle.cluster = cluster
        self.figures.gains.forget_rows()
        self._recovered = False
        try:
            old.close()
        except Exception:
            log.exception("the cluster as it was configured before could not be closed")
        self._recover()

    # -------------------------------------------------------------------------------------------------------- stop

    def _stop(self) -> None:
        """Release what can be released, keep what was learned; nothing here may fail the rest."""
        self.task_queue.refuse()
        if self.cycle.mode == "enforce":
            self._release()
        self.policy_state.save()
        figures = self.figures
        metrics = figures.gains.to_json() | {
            "cycles": figures.completed,
            "cycles_failed": figures.failed,
        }
        if not self.writer.close(metrics):
            log.error(
                "the state store did not take the last decisions: %s", self.writer.trouble or "it is busy"
            )
        log.info("stopped after %d cycles", figures.completed)


def _seed(config: Config) -> int | None:
    """Of what policies draw: a recorded cluster is played the same again."""
    return config.recorded.seed if config.daemon.cluster == "recorded" else None


def _quota_changes(nodes: NodeServer) -> list[QuotaChange]:
    """What node actors have reported of the files they wrote, and nobody has asked for before."""
    changes = []
    while nodes.audit:
        row = nodes.audit.popleft()
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
    return changes


def _emptied(rows: list[T]) -> list[T]:
    """What is in the list, which is empty thereafter."""
    taken = rows[:]
    del rows[: len(taken)]
    return taken
