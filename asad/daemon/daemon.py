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
from collections.abc import Callable
from typing import cast

from asad import __version__
from asad.api.auth import open_authenticator
from asad.api.control import ControlServer, Peer
from asad.api.node_server import NodeServer
from asad.config import MODES, Config, Mode
from asad.cycle import Cycle
from asad.daemon.clusters import ActsByItself, LiveCluster, NoNodes, allow_changes, open_cluster, settings_of
from asad.daemon.cycle_records import CycleRecords
from asad.daemon.figures import Figures
from asad.daemon.identity import is_paused, keep_pause, only_one, take_identity
from asad.daemon.leases import FAILURES, Leases
from asad.daemon.main_thread import MainThread
from asad.daemon.pace import Pace, Steady, WallClock
from asad.daemon.policy_state import PolicyState
from asad.daemon.recovery import Recovery
from asad.daemon.reload import but_for_what_is_fixed, leaves_behind, prepare, seed_of
from asad.daemon.requests import Requests, plain_config
from asad.daemon.task_queue import TaskQueue
from asad.errors import AsadError, ExitStatus, UsageError
from asad.metrics import Endpoint
from asad.model import Json
from asad.port import NodeLink
from asad.replay.playback import Playback
from asad.stages import Stages, live_guard, stages_of, warm_up
from asad.store.retention import Keep
from asad.store.writer import RunStart, Writer
from asad.systemd import notify

log = logging.getLogger(__name__)

WARM_UP_S = 900.0
"""So long systemd is asked to wait while a policy is compiled; half a minute is usual, once."""


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
        self.task_queue = TaskQueue(monotonic)
        self.main_thread = MainThread(self.task_queue, monotonic)
        self.stop, self.reload = self.main_thread.stop, self.main_thread.reload
        self.requests = Requests(self)
        self.figures = Figures(clock())
        self.endpoint: Endpoint | None = None
        self.recovery = Recovery(self.main_thread.heart)
        self._superseded = False
        """Another daemon of this cluster was started later, and the nodes obey it."""
        self._pausing = threading.Lock()

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
        return ExitStatus.SUPERSEDED if self._superseded else ExitStatus.DONE

    # ------------------------------------------------------------------------------------------------------- start

    def _start(self, opened: contextlib.ExitStack) -> None:
        """Open everything; nobody is answered, and nothing lent, before what an earlier daemon left is seen to."""
        self._open_cluster(opened)
        stages = stages_of(self.config, self.cluster.applications, seed_of(self.config))
        if self.nodes is not None:
            self.nodes.start()
            opened.callback(self.nodes.stop)
        self._open_store(stages, opened)
        self.cycle = Cycle(
            self.cluster,
            *stages,
            live_guard(self.config, stages),
            self.records.record,
            mode=self.config.daemon.mode,
            paused=is_paused(self.config.daemon.state_dir),
            keep=self.policy_state.keep_promises,
        )
        self.pace: Pace
        if isinstance(self.cluster, Playback):
            self.pace = self.cluster
        else:
            self.pace = Steady(self.config.daemon.interval_s, self._monotonic)
        self.policy_state.load()
        self.recovery.recover(self.cycle, self.cluster)
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
            _compile(self.config, self.cycle, self.task_queue)

    @property
    def _is_real(self) -> bool:
        """Neither a log that is played, nor a stand-in."""
        return self._given is None and self.config.daemon.cluster != "recorded"

    def _open_cluster(self, opened: contextlib.ExitStack) -> None:
        """The cluster, and the link to its node actors."""
        config = self.config
        self.nodes = _node_server(config, self.clock) if self._is_real else None
        self.link: NodeLink = self.nodes or NoNodes()
        self.leases = Leases(self.link)
        self.cluster = self._given or self._open(config)
        opened.callback(lambda: self.cluster.close())

    def _open(self, config: Config) -> LiveCluster:
        return open_cluster(config, self.leases, config.daemon.state_dir, self.clock)

    def _open_store(self, stages: Stages, opened: contextlib.ExitStack) -> None:
        """Who writes the store, and what is to be loaded from it."""
        config = self.config
        run = RunStart(stages.run, {"cluster": config.daemon.cluster}, plain_config(config))
        self.writer = Writer(config.store_url, run)
        opened.callback(self.writer.close, {})
        self.records = CycleRecords(
            self.figures, self.writer, self._monotonic, lambda: self.cluster.applications
        )
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

    # ------------------------------------------------------------------------------------------------------ cycles

    def _cycles(self) -> None:
        wake_s = math.inf
        while not self.main_thread.stopping:
            begun = bool(self.figures.cycles)
            first = "" if begun else " to its first cycle; what plays it is compiled at the first start"
            with self.task_queue.busy(f"playing its log{first}"):  # one that is live does not have to
                due = self.pace.next_cycle(wake_s)
            if due is None:
                log.info("the log has ended: %s", self.cluster.sentence())
                if self.config.recorded.stay:
                    self.main_thread.wait(math.inf, self._reload)
                return
            self.main_thread.wait(due, self._reload)
            if not self.main_thread.stopping:
                first = "" if begun else ", the first, which compiles what is not compiled yet"
                with self.task_queue.busy(f"in cycle {self.cycle.number + 1}{first}"):
                    wake_s = self._one_cycle()

    def _one_cycle(self) -> float:
        """A cycle and what follows from it. Whatever goes wrong in it, the next one comes."""
        begin, wake_s = self._monotonic(), math.inf
        try:
            self.clock.check()
            if not self.recovery.done:
                self.recovery.recover(self.cycle, self.cluster, quietly=False)
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
        if isinstance(self.pace, Steady):
            sentence += self.pace.missed(wall_s)
        try:
            self._end_cycle(wall_s, sentence)
        except Exception:
            log.exception("a fault of asad's after cycle %d", self.cycle.number)
        self.records.report(sentence)
        if self.nodes is not None and self.nodes.superseded:
            log.error(
                "another daemon of this cluster was started later, and the nodes obey it: this one stops"
            )
            self._superseded = self.main_thread.stopping = True
        return wake_s

    def _end_cycle(self, wall_s: float, sentence: str) -> None:
        """Keep and report what the cycle has left."""
        self.records.keep(self.cycle, self.cluster, self.nodes, self.now_s)
        self.figures.end_cycle(self.cycle, wall_s, sentence)
        self.read()
        self.policy_state.save_in_time()
        if self.cycle.snapshot is not None:
            played = isinstance(self.cluster, Playback)
            self.records.forget(self.cycle.snapshot.time_s, Keep.of(self.config), not played)

    def read(self) -> None:
        """What is reported until the next cycle."""
        if isinstance(self.pace, Steady):
            self.figures.skipped = self.pace.skipped
        self.figures.read(self.config, self.cycle, self.cluster, self.link, self.writer)

    @property
    def now_s(self) -> float:
        """Now by the clock of the cluster: a log has a time of its own."""
        if isinstance(self.cluster, Playback) and self.cycle.snapshot is not None:
            return self.cycle.snapshot.time_s
        return self.clock()

    # --------------------------------------------------------------------------------------------------- by request

    def pause(self, paused: bool, peer: Peer) -> None:
        """Pause or resume, in any thread and in the middle of a cycle; a pause outlives a restart."""
        with self._pausing:
            self.cycle.paused = paused
            log.info("%s by %s", "paused" if paused else "resumed", peer.user)
            keep_pause(self.config.daemon.state_dir, peer.user if paused else "")

    def release(self) -> list[str]:
        """Take back every offer and quota now."""
        done = self.recovery.release(self.cycle, self.cluster)
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
            self.recovery.release(self.cycle, self.cluster)
        self.cycle.mode = mode
        self.read()

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
        old, before = self.config, self.policy_state.stages
        new = but_for_what_is_fixed(old, new)
        reopen = self._open if self._is_real else None
        # what is not kept yet is not handed over
        cluster, stages, guard = prepare(old, new, self.cluster, before, reopen, self.policy_state.save)
        # nothing of the new configuration can be wrong any more
        self.policy_state.switch(stages)
        if self.cycle.mode == "enforce" and leaves_behind(before, stages):
            self.recovery.release(self.cycle, self.cluster)
        self.config = new
        self.cycle.admit, self.cycle.defer, self.cycle.place, self.cycle.share = stages
        self.cycle.guard = guard
        if cluster is not self.cluster:
            self._move_to(cluster)
        self.policy_state.load()
        if isinstance(self.pace, Steady):
            self.pace.interval_s = new.daemon.interval_s
        allow_changes(self.cluster, new)
        if self.nodes is not None:
            self.nodes.lease_s = new.lease_s
        self.control.operators = new.daemon.operators
        logging.getLogger().setLevel(new.daemon.log_level.upper())
        if new.daemon.mode != old.daemon.mode:
            self._set_mode(new.daemon.mode)

    def _move_to(self, cluster: LiveCluster) -> None:
        """Leave the old cluster object as it would be left by a stop, and begin with the new one."""
        self.recovery.leave(self.cycle, self.cluster)
        self.cluster = self.cycle.cluster = cluster
        self.figures.forget_rows()
        self.recovery.recover(self.cycle, self.cluster)

    # -------------------------------------------------------------------------------------------------------- stop

    def _stop(self) -> None:
        """Release what can be released, keep what was learned; nothing here may fail the rest."""
        self.task_queue.refuse()
        if self.cycle.mode == "enforce":
            self.recovery.release(self.cycle, self.cluster)
        self.policy_state.save()
        if not self.records.close():
            log.error(
                "the state store did not take the last decisions: %s", self.writer.trouble or "it is busy"
            )
        log.info("stopped after %d cycles", self.figures.completed)


def _node_server(config: Config, clock: WallClock) -> NodeServer:
    return NodeServer(
        config.nodes.listen,
        open_authenticator(config.nodes, "daemon"),
        config.lease_s,
        clock=clock,
        patience_s=float(settings_of(config).get("offer_patience_s", 60.0)),
        identity=take_identity(config.daemon.state_dir, clock()),
    )


def _compile(config: Config, cycle: Cycle, task_queue: TaskQueue) -> None:
    """Have the policies compiled before quotas wait for their first cycle."""
    notify(f"EXTEND_TIMEOUT_USEC={int(1e6 * WARM_UP_S)}", "STATUS=compiling the policy")
    begin = time.monotonic()
    try:
        with task_queue.busy("compiling its policies, as it does after an installation or upgrade"):
            warm_up(config)
    except Exception:
        log.exception("the policy could not be compiled; its first cycle may take long")
    names = f"{cycle.admit.name}, {cycle.place.name} and {cycle.share.name}"
    log.info("compiled %s in %.1f s", names, time.monotonic() - begin)
