"""The daemon's parts, and its life in a thread over a small cluster that the test holds in its hand."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configured_policies import put_policy
from small_cluster import GUEST, HOST, NOW, OFFERED, OTHER_HOST, WAITING, cluster

from asad import systemd
from asad.api.control import NotAllowed, Peer, Refused, Request, ask
from asad.config import Config, parse
from asad.daemon import Daemon, NoNodes, check, cycle_records, only_one, policy_state, requests, task_queue
from asad.daemon import daemon as daemon_file
from asad.daemon.gains import Gains
from asad.daemon.pace import DOUBT_S, Steady, WallClock
from asad.daemon.policy_state import within
from asad.decisions import Cause, CoAllocate, Decision, ExtendLimit, Outcome, SetShare
from asad.errors import AsadError, ClusterError, ConfigError, UsageError
from asad.model import Finished, Json, Snapshot
from asad.share import SharePolicy
from asad.share.asax import Asax
from asad.share.exclusive import Exclusive
from asad.share.measured import Measured
from asad.share.static import Static
from asad.stages import Circumstances, policy_of
from asad.status import hosts_of, sources
from asad.store import learned, lending_ledger
from asad.store.retention import Keep
from asad.store.store import Store
from asad.systemd import notify, watchdog_s

HERE = Path("asad.toml")
CAUSE = Cause("test", "because", {"guest_end_s": 100.0, "wait_end_s": 200.0})
NOBODY = Peer(os.getuid(), os.getgid(), os.getpid())


def nobody_ended() -> Finished:
    nothing = np.zeros(0)
    return Finished(np.zeros(0, np.int32), nothing, nothing, nothing, nothing)


def wait_for(condition: Callable[[], object], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} s"
        threading.Event().wait(0.005)


class Held:
    """A cluster that shows what the test puts there, and keeps what it was asked to do."""

    def __init__(self) -> None:
        self.applications = ["ann/sim/4"]
        self.ledger: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.shown = cluster()
        self.ended = nobody_ended()
        self.trouble: Exception | None = None
        self.looks = 0
        self.done: list[Decision] = []
        self.calls: list[str] = []

    def snapshot(self) -> Snapshot:
        self.looks += 1
        if self.trouble is not None:
            raise self.trouble
        return self.shown

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        self.done += decisions
        return [Outcome(decision, True, "") for decision in decisions]

    def finished(self, since_s: float) -> Finished:
        ended, self.ended = self.ended, nobody_ended()
        return ended

    def sentence(self) -> str:
        return "a cluster in the hand of a test"

    def recover(self) -> list[str]:
        self.calls.append("recover")
        return ["an offer to job 7 taken back"]

    def release(self) -> list[str]:
        self.calls.append("release")
        return ["an offer to job 14 taken back"]

    def close(self) -> None:
        self.calls.append("close")


class Wishes(SharePolicy):
    """A share policy that wants what the test wants, and knows what it was reported."""

    name = "asax"
    properties: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.wishes: list[Decision] = []
        self.memory: dict[str, Mapping[str, Json]] = {}
        self.fault: Exception | None = None
        self.learned = 0

    def learn(self, snapshot: Snapshot, finished: Finished) -> None:
        if self.fault is not None:
            raise self.fault
        self.learned += 1
        self.memory["*"] = {"cycles": self.learned}

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        return self.wishes

    def wake_s(self) -> float:
        return math.inf

    def state(self) -> Mapping[str, Mapping[str, Json]]:
        return dict(self.memory)

    def restore(self, memory: Mapping[str, Mapping[str, Json]]) -> None:
        self.memory.update(memory)
        known = memory.get("*", {}).get("cycles", 0)
        assert isinstance(known, int)
        self.learned = max(self.learned, known)


@dataclasses.dataclass
class Life:
    """A daemon that lives in a thread."""

    daemon: Daemon
    cluster: Held
    wishes: Wishes
    status: list[int]
    thread: threading.Thread

    @property
    def socket(self) -> Path:
        return self.daemon.config.daemon.socket

    def ask(self, verb: str, **arguments: Any) -> Any:
        return ask(self.socket, verb, **arguments)

    def cycles(self, more: int) -> None:
        """Wait for so many cycles that begin from now on."""
        until = self.cluster.looks + more
        wait_for(lambda: self.cluster.looks > until)


def configuration(folder: Path, mode: str = "enforce", more: str = "") -> Config:
    text = f"""
        [daemon]
        mode = "{mode}"
        interval_s = 0.02
        state_dir = "{folder}"
        socket = "{folder}/s"
        {more}
        [metrics]
        listen = "127.0.0.1:0"
        """
    return parse(text, folder / "asad.toml")


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Life]]:
    """Start daemons; all are stopped at the end."""
    lives: list[Life] = []

    def begin(
        mode: str = "enforce",
        held: Held | None = None,
        first_cycle: bool = True,
        more: str = "",
        **options: Any,
    ) -> Life:
        held, wishes = held or Held(), Wishes()
        put_policy(monkeypatch, "share", lambda _: wishes)
        config = configuration(tmp_path, mode, more)
        daemon = Daemon(config, cluster=held, **options)
        status: list[int] = []
        thread = threading.Thread(target=lambda: status.append(daemon.run()))
        life = Life(daemon, held, wishes, status, thread)
        lives.append(life)
        thread.start()
        wait_for(lambda: not thread.is_alive() or daemon.endpoint is not None)
        if first_cycle:
            life.cycles(1)
        return life

    yield begin
    for life in lives:
        life.daemon.stop()
        life.thread.join(300)
        assert not life.thread.is_alive()


def stop(life: Life) -> None:
    life.daemon.stop()
    life.thread.join(300)
    assert life.status == [0]


# ------------------------------------------------------------------------------------------------------- pacing


def test_cycles_come_at_even_intervals_of_the_monotonic_clock() -> None:
    now = 100.0
    steady = Steady(30.0, lambda: now)
    assert steady.next_cycle(math.inf) == 100.0
    now = 107.0
    assert steady.next_cycle(math.inf) == 130.0
    now = 130.5
    assert steady.next_cycle(math.inf) == 160.0
    assert steady.skipped == 0


def test_cycles_missed_by_a_long_one_are_counted_and_not_made_up_for() -> None:
    now = 0.0
    steady = Steady(30.0, lambda: now)
    steady.next_cycle(math.inf)
    now = 75.0
    assert steady.next_cycle(math.inf) == 90.0
    assert steady.skipped == 2


# ------------------------------------------------------------------------------------------------------ options


def built(text: str) -> Any:
    return policy_of(parse(text, HERE), "share", Circumstances([], 0))


def test_policies_are_built_by_name_with_their_options() -> None:
    asax = built(
        "[daemon]\ninterval_s = 7\n[guard]\nhost_floor = 0.2\n[share.asax]\nagain_s = 45\nimportance = false"
    )
    assert isinstance(asax, Asax)
    assert (asax.options.poll_s, asax.options.headroom) == (7.0, 0.2)
    assert (asax.options.again_s, asax.options.importance) == (45.0, False)
    assert isinstance(asax.options.again_s, float)
    measured = built("[policies]\nshare = 'measured'\n[share.measured]\nmargin = 0.5")
    assert isinstance(measured, Measured)
    assert (measured.options.margin, measured.options.poll_s) == (0.5, 30.0)
    static = built("[policies]\nshare = 'static'\n[share.static]\nshare = 0.3")
    assert isinstance(static, Static)
    assert static.share == 0.3
    assert isinstance(built("[policies]\nshare = 'exclusive'"), Exclusive)
    assert built("[policies]\nshare = 'asax-paper'").name == "asax-paper"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[share.asax]\nmargn = 3", r"\[share.asax\] margn: unknown option; did you mean 'margin'\?"),
        ("[share.asax]\nmargin = 'x'", r"\[share.asax\] margin = 'x'; give a number from 0"),
        ("[share.asax]\nmost_cases = 1.5", "give a whole number from 0"),
        ("[share.asax]\nimportance = 1", "give true or false"),
        ("[share.asax]\nmargin = -1", "give a number from 0"),
        ("[share.asax]\nmargin = inf", "give a number from 0"),
        (
            "[share.asax]\nlook_ahead = 8",
            r"\[share.asax\] look_ahead: it went with the search for pairs: .* remove the line",
        ),
        ("[share.asax]\nbold_slack = 1", "bold_slack: it went with the search for pairs"),
        ("[policies]\nshare = 'measured'\n[share.measured]\nslacks = 1", "slacks: unknown option; "),
        ("[policies]\nshare = 'static'\n[share.static]\nshare = 1.5", "give a number above 0 and at most 1"),
        ("[policies]\nshare = 'exclusive'\n[share.exclusive]\nx = 1", "exclusive has no options"),
        ("[policies]\nexperts = '/none'", "/none"),
    ],
)
def test_wrong_options_are_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        built(text)


def test_check_reads_all_that_the_configuration_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no cluster plugin 'nobody'; there are .*recorded"):
        check(parse("[daemon]\ncluster = 'nobody'", HERE))
    with pytest.raises(ConfigError, match="a recorded cluster needs a log"):
        check(parse("[daemon]\ncluster = 'recorded'", HERE))
    with pytest.raises(UsageError, match="No such file"):
        check(parse(f"[daemon]\ncluster = 'recorded'\n[recorded]\nlog = '{tmp_path}/none'", HERE))


# ------------------------------------------------------------------------------------------------ small services


def test_a_second_daemon_is_refused_and_learns_who_runs(tmp_path: Path) -> None:
    with (
        only_one(tmp_path / "state"),
        pytest.raises(AsadError, match=rf"another daemon runs here \(process {os.getpid()}\)") as error,
        only_one(tmp_path / "state"),
    ):
        pass
    assert error.value.exit_status == 1
    with only_one(tmp_path / "state"):
        pass


def test_a_state_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AsadError, match="state_dir must be a folder"), only_one(tmp_path / "file"):
        pass


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_state_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    with pytest.raises(AsadError, match=r"state: others may write there.*state_dir"), only_one(state):
        pass
    assert not list(state.iterdir())
    state.chmod(0o770)
    with only_one(state):
        pass


def test_systemd_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(300)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1", "STATUS=well")
        assert listener.recv(100) == b"READY=1\nSTATUS=well"
        monkeypatch.setattr(systemd, "NOTIFY_S", 0.001)
        for _ in range(600):  # more than it takes while it is busy
            notify("WATCHDOG=1")
        listener.close()
    notify("READY=1")  # nobody there: no error
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


def test_the_watchdog_is_only_ours_if_systemd_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert watchdog_s() == math.inf
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    assert watchdog_s() == 60.0
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_s() == math.inf


def test_waiting_for_an_answer_ends() -> None:
    assert within(300.0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(300.0, lambda: 1 // 0)
    forever = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.05, forever.wait)
    forever.set()


def test_a_cluster_without_nodes_has_no_actors() -> None:
    assert NoNodes().reports() == {}
    assert not NoNodes().announce(["n1"], "1")


def test_gains_count_guests_once_and_show_how_they_ended() -> None:
    gains = Gains()
    offer = Outcome(CoAllocate(CAUSE, WAITING, (1,), host=OTHER_HOST, share=0.3), True, "")
    assert gains.take(cluster(), nobody_ended(), [offer]) == []
    assert gains.guests == 1
    started = cluster(start_s={WAITING: 1030.0}, host={WAITING: OTHER_HOST})
    started = dataclasses.replace(started, guests=np.array([GUEST, WAITING], np.int32))
    gains.take(started, nobody_ended(), [])
    gains.take(started, nobody_ended(), [])
    assert gains.guests == 2
    assert gains.saved_wait_s == 3600.0 - 1030.0
    ended = Finished(
        np.array([GUEST, HOST, WAITING], np.int32),
        np.array([2000.0, 2000.0, 3000.0]),
        np.array([1500.0, 2000.0, 1970.0]),
        np.array([100.0, 0.0, 0.0]),
        np.full(3, 0.5),
    )
    own = cluster(counterfactual_start_s={GUEST: 400.0, HOST: 0.0}, start_s={WAITING: 1030.0})
    own = dataclasses.replace(own, guests=own.guests[:0])
    guest, host, other = gains.take(own, ended, [])
    assert (guest.job, guest.role, guest.start_s, guest.baseline_end_s, guest.loser) == (
        "12",
        "guest",
        500.0,
        1800.0,
        True,
    )
    assert (host.job, host.role, host.baseline_end_s, host.loser) == ("10", "host", 2000.0, False)
    assert (other.job, other.baseline_end_s, other.loser) == ("13", None, False)
    assert gains.take(own, ended, []) == [], "nobody ends twice"
    assert {ended: count for ended, count in gains.ended.items() if count} == {
        ("guest", "late"): 1,
        ("host", "in_time"): 1,
        ("guest", "unknown"): 1,
    }


@pytest.mark.parametrize(
    ("completed", "limit_s", "extended_s", "foreseen_s", "how"),
    [
        (False, 1500.0, 0.0, 400.0, "killed"),
        (False, 1500.0, 120.0, 400.0, "late"),  # its limit was moved by what lending took
        (False, 7200.0, 0.0, 400.0, "late"),  # it failed by itself
        (True, 1500.0, 0.0, 400.0, "late"),
        (None, 1500.0, 0.0, 400.0, "late"),
        (True, 1500.0, 0.0, 600.0, "in_time"),
        (True, 1500.0, 0.0, 9000.0, "in_time"),  # its turn had not come when it was done
        (True, 1500.0, 0.0, math.nan, "unknown"),
    ],
)
def test_how_a_guest_ended(
    completed: bool | None, limit_s: float, extended_s: float, foreseen_s: float, how: str
) -> None:
    gains, shown = Gains(), cluster()
    gains.take(shown, nobody_ended(), [])
    last = cluster(
        counterfactual_start_s={GUEST: foreseen_s if foreseen_s <= 2000.0 else math.nan},
        own_estimate_s={GUEST: foreseen_s},
        time_limit_s={GUEST: limit_s},
        extended_s={GUEST: extended_s},
    )
    one = (np.array([value]) for value in (2000.0, 1500.0, 100.0, 0.5))
    gains.take(
        last, Finished(np.array([GUEST]), *one, None if completed is None else np.array([completed])), []
    )
    assert [ended for ended, count in gains.ended.items() if count] == [("guest", how)]


# --------------------------------------------------------------------------------------------------------- cycles


def test_enforce_acts_advise_records_and_observe_watches(live: Callable[..., Life], tmp_path: Path) -> None:
    life = live("observe")
    life.wishes.wishes = [SetShare(CAUSE, GUEST, 0.1)]
    life.cycles(3)
    assert life.cluster.done == []
    assert life.ask("mode", mode="advise") == {"mode": "advise", "before": "observe"}
    life.cycles(3)
    assert life.cluster.done == []
    assert "advised only: 1 share changes" in life.ask("status")["cycle"]["sentence"]
    life.ask("mode", mode="enforce")
    life.cycles(3)
    assert SetShare(CAUSE, GUEST, 0.1) in life.cluster.done
    stop(life)
    with Store.open(str(tmp_path / "asad.db")) as store:
        (run,) = store.runs()
        reasons = {(d.outcome, d.outcome_reason) for d in store.decisions(run.id)}
        assert reasons == {("refused", "advise"), ("done", "")}
        assert (run.state, run.kind, run.metrics["cycles_failed"]) == ("done", "live", 0)


def test_a_mode_that_does_not_act_gives_back_what_is_out(live: Callable[..., Life]) -> None:
    life = live()
    life.ask("mode", mode="advise")
    assert life.cluster.calls == ["recover", "release"]
    with pytest.raises(Refused, match="there is no mode 'off'; choose observe, advise, enforce"):
        life.ask("mode", mode="off")


def test_a_paused_daemon_lends_nothing_new_and_still_relieves_and_extends(live: Callable[..., Life]) -> None:
    life = live()
    assert life.ask("pause") == {"paused": True, "meanwhile": None}
    offer, share = CoAllocate(CAUSE, WAITING, (0,), host=HOST, share=0.3), SetShare(CAUSE, GUEST, 0.1)
    extend = ExtendLimit(CAUSE, HOST, 60.0)
    life.cycles(1)
    life.cluster.done.clear()
    life.wishes.wishes = [offer, share, extend]
    life.cluster.shown = cluster(pressure={HOST: 0.9})
    life.cycles(3)
    kinds = {decision.kind for decision in life.cluster.done}
    assert kinds == {"set-share", "extend-limit"}
    assert all(decision.share == 0 for decision in life.cluster.done if isinstance(decision, SetShare))
    life.ask("resume")
    life.cluster.shown = cluster()
    life.cluster.done.clear()
    life.cycles(3)
    assert offer in life.cluster.done


def test_a_pause_outlives_a_restart(live: Callable[..., Life]) -> None:
    life = live()
    life.ask("pause")
    stop(life)
    again = live()
    assert again.ask("status")["paused"] is True
    again.ask("resume")
    stop(again)
    assert live().ask("status")["paused"] is False


def test_release_gives_everything_back_now_and_pauses(live: Callable[..., Life]) -> None:
    life = live()
    assert life.ask("release") == {"paused": True, "done": ["an offer to job 14 taken back"]}
    assert "release" in life.cluster.calls
    assert life.ask("status")["paused"] is True


def test_vetoes_are_counted_recorded_and_reported(live: Callable[..., Life]) -> None:
    life = live()
    life.cluster.shown = cluster(host_bar={HOST: 2})
    life.cycles(1)
    life.wishes.wishes = [CoAllocate(CAUSE, WAITING, (0,), host=HOST, share=0.3)]
    life.cycles(3)
    status = life.ask("status")
    assert status["vetoes"]["opted out"] >= 1
    assert "1 vetoed (opted out 1)" in status["cycle"]["sentence"]
    assert life.cluster.done == []
    story = life.ask("explain", job="13")
    assert story["decisions"][0]["outcome_reason"] == (
        "vetoed (opted out): the host cannot lend: its user opted out"
    )
    assert story["live"]["state"] == "waiting"


def test_a_wish_that_is_vetoed_in_every_cycle_is_kept_once(live: Callable[..., Life], tmp_path: Path) -> None:
    life = live()
    life.cluster.shown = cluster(host_bar={HOST: 2})
    life.cycles(1)
    life.wishes.wishes = [CoAllocate(CAUSE, WAITING, (0,), host=HOST, share=0.3)]
    life.cycles(4)
    life.cluster.shown = cluster(host_bar={HOST: 2}, happiness={HOST: 0.1})
    life.cycles(2)
    life.wishes.wishes = [CoAllocate(CAUSE, WAITING, (0,), host=HOST, share=0.2)]
    life.cycles(2)
    life.wishes.wishes = []
    life.cycles(2)
    life.wishes.wishes = [CoAllocate(CAUSE, WAITING, (0,), host=HOST, share=0.2)]
    life.cycles(2)
    counted = life.ask("status")["vetoes"]["opted out"]
    stop(life)
    with Store.open(str(tmp_path / "asad.db")) as store:
        assert [decision.share for decision in store.decisions(1)] == [0.3, 0.2, 0.2]
    assert counted >= 8


def test_a_cluster_that_does_not_answer_is_asked_again(
    live: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    life = live()
    life.cluster.trouble = ClusterError("squeue did not answer within 10 s; see slurmctld")
    life.cycles(3)
    status = life.ask("status")
    assert status["cycle"]["sentence"].endswith("skipped: squeue did not answer within 10 s; see slurmctld")
    assert status["cycles"]["failed"] == status["cycles"]["failing"] >= 2
    life.cluster.trouble = None
    life.cycles(3)
    assert "1 guest" in life.ask("status")["cycle"]["sentence"]
    assert life.ask("status")["cycles"]["failing"] == 0


def test_a_fault_in_a_policy_does_not_end_the_daemon(
    live: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    life = live()
    life.wishes.fault = ZeroDivisionError("division by zero")
    life.cycles(3)
    assert "broken off by a fault of asad's: ZeroDivisionError" in life.ask("status")["cycle"]["sentence"]
    life.wishes.fault = None
    life.cycles(3)
    assert "1 guest" in life.ask("status")["cycle"]["sentence"]
    assert any(record.exc_info for record in caplog.records)


def test_a_long_cycle_is_reported_and_those_it_covers_are_skipped(live: Callable[..., Life]) -> None:
    life = live()

    class Slow(Held):
        def snapshot(self) -> Snapshot:
            threading.Event().wait(0.1)
            return super().snapshot()

    life.daemon.cluster = life.daemon.cycle.cluster = slow = Slow()
    wait_for(lambda: slow.looks > 2)
    status = life.ask("status")
    assert re.search(r"it took \d+\.\d s, so", status["cycle"]["sentence"])
    assert status["cycles"]["skipped"] >= 4


@pytest.mark.parametrize("jump_s", [86_400.0, 365 * 86_400.0, -86_400.0])
def test_a_clock_that_leaps_is_not_believed_at_once(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    jumped = [0.0]
    life = live(clock=lambda: time.time() + jumped[0])
    for _ in range(2):
        jumped[0] = jump_s
        wait_for(lambda: "the clock was set" in life.ask("status")["cycle"]["sentence"])
        looks, answer = life.cluster.looks, life.ask("status")["cycle"]["sentence"]
        assert (
            f"set {'ahead' if jump_s > 0 else 'back'} by {abs(jump_s):.0f} s at once; nothing is decided"
            in answer
        )
        assert abs(life.daemon.now_s - time.time()) < 60.0
        assert life.cluster.looks == looks, "it is not even looked"
        jumped[0] = 0.0
        life.cycles(2)  # it is right again
    jumped[0] = jump_s
    wait_for(lambda: "the clock was set" in life.ask("status")["cycle"]["sentence"])
    monkeypatch.setattr("asad.daemon.pace.DOUBT_S", 0.0)
    life.cycles(2)  # it stays so
    assert abs(life.daemon.now_s - time.time() - jump_s) < 60.0


def test_a_clock_is_believed_when_it_goes_on_evenly_or_is_right_again() -> None:
    wall, passed = 1_000_000.0, 50.0

    def go_on(seconds: float) -> None:
        nonlocal wall, passed
        wall, passed = wall + seconds, passed + seconds

    clock = WallClock(lambda: wall, lambda: passed)
    go_on(7.0)
    assert clock() == wall
    wall += 40.0  # as NTP may set it
    assert clock() == wall
    clock.check()
    before = wall
    wall += 86_400.0
    go_on(10.0)
    assert clock() == before + 10.0
    with pytest.raises(AsadError, match="set ahead by 86400 s at once"):
        clock.check()
    go_on(DOUBT_S - 1.0)
    assert clock() == before + DOUBT_S + 9.0
    wall -= 3 * 86_400.0  # another leap is doubted anew
    go_on(2.0)
    with pytest.raises(AsadError, match="set back by 172800 s at once"):
        clock.check()
    wall += 2 * 86_400.0
    clock.check()
    assert clock() == wall == before + DOUBT_S + 11.0
    wall += 365 * 86_400.0
    assert clock() < wall
    go_on(DOUBT_S)
    assert clock() == wall
    clock.check()


def test_what_is_old_is_removed_by_the_clock_of_the_cluster(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, Keep, float | None]] = []
    monkeypatch.setattr(cycle_records, "FORGET_S", 0.0)
    monkeypatch.setattr(daemon_file.Writer, "forget", lambda self, *given: asked.append(given))
    before_s = time.monotonic()
    stop(live())
    time_s, keep, passed_s = asked[0]
    assert (time_s, keep.rows_s) == (NOW, 90 * 86_400.0)
    assert passed_s is not None and before_s <= passed_s <= time.monotonic()


def test_what_could_not_be_recovered_is_tried_again_before_anything_is_lent(
    live: Callable[..., Life],
) -> None:
    class Down(Held):
        down = True

        def recover(self) -> list[str]:
            super().recover()
            if self.down:
                raise ClusterError("slurmctld does not answer")
            return []

    held = Down()
    life = live(held=held, first_cycle=False)
    life.wishes.wishes = [SetShare(CAUSE, GUEST, 0.1)]
    wait_for(lambda: held.calls.count("recover") > 3)
    assert held.done == []
    held.down = False
    wait_for(lambda: held.done)


# ------------------------------------------------------------------------------------------------------ knowledge


def test_what_was_learned_outlives_the_process(live: Callable[..., Life], tmp_path: Path) -> None:
    life = live()
    life.cycles(3)
    stop(life)
    before = life.wishes.learned
    again = live()
    again.cycles(1)
    assert again.wishes.learned > before
    stop(again)
    with Store.open(str(tmp_path / "asad.db")) as store:
        assert learned.load(store, "slurm/asax") == again.wishes.memory
        assert [run.state for run in store.runs()] == ["done", "done"]


def test_what_oga_has_learned_outlives_the_process_and_another_policy_gives_back(
    live: Callable[..., Life], tmp_path: Path
) -> None:
    oga = "[policies]\nplace = 'oga'\nshare = 'exclusive'"

    def slot() -> int:
        with Store.open(str(tmp_path / "asad.db")) as store:
            return int(learned.load(store, "slurm/place/oga")["*"]["slot"])  # type: ignore[call-overload]

    life = live(more=oga)
    life.cycles(3)
    assert life.ask("status")["place"] == "oga"
    stop(life)
    before = slot()
    assert before >= 3
    again = live(more=oga, reread=lambda: configuration(tmp_path))
    again.cycles(2)
    again.cluster.calls.clear()
    again.daemon.reload()
    wait_for(lambda: again.ask("status")["place"] == "native")
    assert "release" in again.cluster.calls
    again.cycles(1)
    stop(again)
    assert slot() > before


@pytest.mark.slow
def test_a_store_that_is_broken_at_the_start_costs_no_cycle_and_no_state(
    live: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_state, "SAVE_S", 0.05)
    monkeypatch.setattr("asad.store.writer.AGAIN_S", 0.02)
    life = live()
    life.cycles(2)
    stop(life)
    known = life.wishes.learned
    database = tmp_path / "asad.db"
    database.rename(tmp_path / "kept.db")
    for left in tmp_path.glob("asad.db-*"):
        left.unlink()
    database.write_bytes(b"this is no database" * 1000)
    again = live()
    again.wishes.wishes = [SetShare(CAUSE, GUEST, 0.1)]
    again.cycles(3)
    assert again.cluster.done
    wait_for(lambda: "not a database" in again.ask("status")["store"]["trouble"])
    (tmp_path / "kept.db").rename(database)
    wait_for(lambda: again.daemon.policy_state.loaded)
    again.cycles(2)
    wait_for(lambda: again.ask("status")["store"]["trouble"] == "")
    stop(again)
    with Store.open(str(database)) as store:
        assert learned.load(store, "slurm/asax")["*"]["cycles"] > known  # type: ignore[operator]
        assert any(d.kind == "set-share" for d in store.decisions(store.runs()[0].id))


def test_the_ledger_goes_to_the_store_and_into_the_gains(
    live: Callable[..., Life], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    life = live()
    entry = {"time_s": 9.0, "account": "physics", "job_id": "10", "lent_core_s": 50.0, "extended_s": 60.0}
    life.cluster.ledger += [
        {**entry, "role": "host"},
        {**entry, "job_id": "12", "role": "guest", "extended_s": 0.0},
    ]
    life.cluster.notices.append("job 15 was requeued: its partition is back")
    wait_for(lambda: life.ask("status")["gains"]["lent_core_s"] == 50.0)
    wait_for(lambda: "job 15 was requeued" in caplog.text)
    assert life.cluster.notices == []
    assert life.ask("status")["gains"]["extended_s"] == 60.0
    assert life.cluster.ledger == []
    stop(life)
    with Store.open(str(tmp_path / "asad.db")) as store:
        assert [(total.role, total.lent_core_s) for total in lending_ledger.totals(store)] == [
            ("guest", 50.0),
            ("host", 50.0),
        ]


# -------------------------------------------------------------------------------------------------------- control


def test_the_status_is_what_asactl_is_promised(live: Callable[..., Life]) -> None:
    life = live()
    life.cycles(2)
    status = life.ask("status")
    assert {
        "version",
        "mode",
        "paused",
        "since_s",
        "cycle",
        "cluster",
        "lending",
        "gains",
        "vetoes",
        "funnel",
        "actors",
    } <= set(status)
    assert set(status["cycle"]) == {"number", "time_s", "wall_ms", "sentence"}
    assert {"sentence", "nodes", "cores", "waiting", "running", "guests"} <= set(status["cluster"])
    (lent,) = status["lending"]
    assert (lent["guest"], lent["host"], lent["nodes"], lent["share"]) == ("12", "10", ["n0"], 0.3)
    assert (lent["guest_user"], lent["host_user"], lent["since_s"], lent["happiness"]) == (
        "ann",
        "ann",
        500.0,
        None,
    )
    assert set(status["gains"]) == {"guests", "lent_core_s", "extended_s", "saved_wait_s"}
    assert status["actors"] == {"connected": 0, "silent": []}


def test_jobs_and_nodes_are_listed_with_their_reasons_in_words(live: Callable[..., Life]) -> None:
    life = live()
    life.cluster.shown = cluster(host_bar={OTHER_HOST: 6}, guest_bar={WAITING: 14}, node_bar={1: 1})
    life.cycles(2)
    jobs = {row["job"]: row for row in life.ask("jobs")["jobs"]}
    assert [jobs[job]["state"] for job in ("10", "12", "13", "14")] == [
        "running",
        "guest",
        "waiting",
        "offered",
    ]
    assert jobs["11"]["host_bar"] == "it runs on several nodes, and a host slowed on one is slowed on all"
    assert jobs["13"]["guest_bar"] == "it has no time limit"
    assert (jobs["12"]["host"], jobs["12"]["user"], jobs["12"]["name"]) == ("10", "ann", "sim")

    def listed(**arguments: Any) -> list[str]:
        return [row["job"] for row in life.ask("jobs", **arguments)["jobs"]]

    assert listed(job="13") == ["13"]
    assert listed(state="waiting") == ["13"]
    assert listed(state="running") == ["12", "10", "11"]
    assert listed(user="bob") == []
    assert (listed(limit=2), life.ask("jobs", limit=2)["total"]) == (["12", "10"], 5)
    nodes = life.ask("nodes")["nodes"]
    assert [node["bar"] for node in nodes] == ["", "it is drained, down or not answering"]
    assert (nodes[0]["jobs"], nodes[0]["guests"], nodes[0]["lent"], nodes[0]["actor"]) == (
        ["10"],
        ["12"],
        0.3,
        False,
    )
    assert life.ask("progress", job="12")["state"] == "guest"
    with pytest.raises(Refused, match="job '99' neither runs nor waits"):
        life.ask("progress", job="99")
    with pytest.raises(Refused, match="job '99': it neither runs nor waits, and lending did not touch it"):
        life.ask("explain", job="99")


def test_guests_without_a_host_are_reported_with_what_they_need(live: Callable[..., Life]) -> None:
    life = live()
    life.cluster.shown = cluster(
        host={GUEST: -1, OFFERED: -1},
        share={GUEST: math.nan, OFFERED: math.nan, HOST: 0.3},
        demand={GUEST: 0.6, OFFERED: 0.5},
    )
    life.cycles(2)
    jobs = {row["job"]: row for row in life.ask("jobs")["jobs"]}
    assert (jobs["12"]["host"], jobs["12"]["share"]) == (None, None)
    assert jobs["12"]["needs"] == {"n0": pytest.approx(1.2)}
    assert (jobs["10"]["share"], jobs["10"]["needs"]) == (0.3, {})
    assert jobs["12"]["from"] == {"n0": {"10": pytest.approx(1.2)}} and jobs["12"]["gives"] == {}
    assert jobs["10"]["gives"] == {"12": pytest.approx(1.2)}
    assert life.ask("nodes")["nodes"][0]["from"] == {"12": {"10": pytest.approx(1.2)}}
    (lent,) = life.ask("status")["lending"]
    assert (lent["host"], lent["host_user"], lent["needs"]) == (None, None, {"n0": pytest.approx(1.2)})
    assert life.ask("nodes")["nodes"][0]["lent"] == pytest.approx(0.3)  # 1.2 of 4 cores
    shown = life.cluster.shown
    assert hosts_of(shown) == {GUEST: [HOST]}
    shown.core_owner[0] = -1  # of its four cores one is free, and of three a quarter is idle
    shown.jobs.cpu_fraction[HOST] = 0.75
    assert sources(shown)[GUEST] == {"n0": {"free": pytest.approx(4.8 / 7), "10": pytest.approx(3.6 / 7)}}
    shown.jobs.pressure[HOST] = 0.9
    life.cycles(1)
    assert "asad_hosts_under_pressure 1" in life.ask("metrics")


def test_gains_know_all_who_lend_to_a_pool() -> None:
    gains = Gains()
    shown = cluster(host={GUEST: -1}, share={GUEST: math.nan}, demand={GUEST: 0.6})
    gains.take(shown, nobody_ended(), [])
    assert gains.guests == 1
    ended = Finished(
        np.array([HOST, OTHER_HOST, GUEST]), np.full(3, 2000.0), np.full(3, 100.0), np.zeros(3), np.zeros(3)
    )
    assert [(end.job, end.role) for end in gains.take(shown, ended, [])] == [("10", "host"), ("12", "guest")]


def test_metrics_are_scraped_and_reported_by_the_socket(live: Callable[..., Life]) -> None:
    life = live()
    life.wishes.wishes = [SetShare(CAUSE, GUEST, 0.1)]
    life.cycles(3)
    assert life.daemon.endpoint is not None
    with urllib.request.urlopen(
        f"http://127.0.0.1:{life.daemon.endpoint.port}/metrics", timeout=300
    ) as answer:
        text = answer.read().decode()
    assert 'asad_jobs{state="offered"} 1.0' in text
    assert 'asad_decisions_total{kind="set-share",outcome="done"}' in text
    assert 'cluster="slurm",mode="enforce",policy="asax"' in text
    assert "asad_hosts_under_pressure 0.0" in text
    assert "asad_info" in life.ask("metrics")


def test_the_configuration_in_force_is_reported_without_a_password(live: Callable[..., Life]) -> None:
    life = live()
    life.daemon.config = dataclasses.replace(
        life.daemon.config,
        daemon=dataclasses.replace(life.daemon.config.daemon, store="postgresql://asad:secret@db/asad"),
    )
    answer = life.ask("config")
    assert answer["daemon"]["store"] == "postgresql://asad:***@db/asad"
    assert "secret" not in str(life.ask("status"))
    life.daemon.config = configuration(life.socket.parent)


def test_only_operators_may_change_anything(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live()
    monkeypatch.setattr("asad.api.control.may_change", lambda peer, operators: False)
    for verb in ("pause", "resume", "release", "mode"):
        with pytest.raises(NotAllowed):
            life.ask(verb)
    assert life.ask("status")["paused"] is False


def test_who_asks_without_a_pause_does_not_keep_cycles_from_coming(live: Callable[..., Life]) -> None:
    life = live()
    stopped = threading.Event()
    answered: list[int] = []

    def ask_on() -> None:
        while not stopped.is_set():
            life.daemon.task_queue.ask(lambda: time.sleep(0.005))
            answered.append(1)

    threads = [threading.Thread(target=ask_on) for _ in range(16)]
    for thread in threads:
        thread.start()
    try:
        life.cycles(20)
        wait_for(lambda: len(answered) > 16)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def test_a_fault_after_the_look_renews_no_lease(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live()
    done: list[str] = []
    for name in ("renew", "renew_roles"):
        monkeypatch.setattr(life.daemon.leases, name, lambda name=name: done.append(name))
    life.cycles(2)
    assert "renew" in done and "renew_roles" not in done
    life.wishes.fault = RuntimeError("a fault of asad's own")
    life.cycles(1)
    done.clear()
    life.cycles(6)
    assert done and set(done) == {"renew_roles"}
    life.wishes.fault = None
    wait_for(lambda: "renew" in done)


def test_tables_are_made_once_a_cycle_whoever_asks(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    rows, nodes = requests.job_rows, requests.node_rows
    monkeypatch.setattr(requests, "job_rows", lambda *some: made.append("jobs") or rows(*some))
    monkeypatch.setattr(requests, "node_rows", lambda *some: made.append("nodes") or nodes(*some))

    class Rare(Steady):
        def __init__(self, interval_s: float, monotonic: Callable[[], float]) -> None:
            super().__init__(1e6, monotonic)

    monkeypatch.setattr(daemon_file, "Steady", Rare)
    life = live(first_cycle=False)
    wait_for(lambda: life.daemon.figures.cycles and not life.daemon.task_queue.doing())
    before = life.daemon.figures.number
    for _ in range(3):
        assert life.ask("jobs")["total"] == len(life.ask("jobs", limit=1)["jobs"]) + 4
        assert len(life.ask("nodes")["nodes"]) == 2
        assert life.ask("progress", job="10")["progress"] == {}
    assert life.daemon.figures.number == before and made == ["jobs", "nodes"]
    life.ask("pause")
    life.ask("jobs")
    assert made == ["jobs", "nodes", "jobs"], "what was changed by request is seen"


def test_only_what_was_asked_before_is_done_and_no_longer_than_until_the_next_cycle() -> None:
    now = 0.0
    asked, done = task_queue.TaskQueue(lambda: now), list[str]()

    def asking(name: str, *, takes_s: float = 0.0) -> Callable[[], None]:
        def function() -> None:
            nonlocal now
            now += takes_s
            done.append(name)
            asked._asked.put((asking(f"{name} again"), Future()))

        return function

    for name in ("a", "b", "c"):
        asked._asked.put((asking(name, takes_s=1.0), Future()))
    asked.do(until=2.0)
    assert done == ["a", "b"]
    asked.do(until=2.0)
    assert done == ["a", "b", "c"], "one is done however late it is"
    asked.do()
    assert done[3:] == ["a again", "b again", "c again"]
    asked.close()


def test_a_request_that_comes_in_a_long_cycle_is_answered(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live()
    monkeypatch.setattr(task_queue, "ANSWER_S", 0.1)
    gate = threading.Event()

    class Hung(Held):
        def snapshot(self) -> Snapshot:
            self.looks += 1
            gate.wait(300)
            return super().snapshot()

    life.daemon.cluster = life.daemon.cycle.cluster = hung = Hung()
    wait_for(lambda: hung.looks)
    long = r"the daemon is in cycle \d+, for \d+ s now, and did not come to it within 0 s; try again"
    with pytest.raises(AsadError, match=long):
        life.daemon.requests.handle(Request("mode", {"mode": "observe"}), NOBODY)
    with pytest.raises(
        AsadError, match=f"^it is paused, so nothing new is lent, but not all is released: {long}"
    ):
        life.daemon.requests.handle(Request("release"), NOBODY)
    assert life.ask("status")["mode"] == "enforce", "what needs no cycle is answered all the same"
    assert life.ask("status")["doing"].startswith("in cycle ")
    gate.set()
    wait_for(lambda: hung.looks > 2)
    assert life.ask("status")["mode"] == "enforce" and "release" not in hung.calls, (
        "what was given up is not done later"
    )


def test_a_pause_in_the_middle_of_a_cycle_holds_at_once(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SOON_S", 0.05)
    life = live()
    decided, gate = threading.Event(), threading.Event()

    def decide(snapshot: Snapshot) -> Sequence[Decision]:
        decided.set()
        gate.wait(300)
        share, extend = SetShare(CAUSE, GUEST, 0.4), ExtendLimit(CAUSE, HOST, 60.0)
        return [CoAllocate(CAUSE, WAITING, (0,), host=HOST, share=0.3), share, extend]

    life.wishes.decide = decide  # type: ignore[method-assign]
    assert decided.wait(300)
    answer = life.ask("pause")
    assert answer["paused"] and answer["meanwhile"].startswith("in cycle ")
    assert (life.daemon.config.daemon.state_dir / "paused").exists()
    assert life.ask("status")["paused"] is True
    gate.set()
    life.cycles(1)
    kinds = {decision.kind for decision in life.cluster.done}
    assert kinds == {"extend-limit"}, "what it had decided is not begun any more, and limits move"
    assert life.ask("status")["vetoes"] == {"paused": 2}
    del life.wishes.decide
    assert life.ask("resume") == {"paused": False, "meanwhile": None}


def test_before_the_first_cycle_is_over_the_daemon_shows_what_it_is_at(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SOON_S", 0.05)
    gate = threading.Event()

    class Slow(Held):
        def snapshot(self) -> Snapshot:
            self.looks += 1
            gate.wait(300)
            return super().snapshot()

    life = live(held=Slow(), first_cycle=False)
    wait_for(lambda: life.cluster.looks)
    doing = "in cycle 1, the first, which compiles what is not compiled yet, for 0 s now"
    for verb in ("jobs", "nodes"):
        with pytest.raises(AsadError, match=f"^nothing has been seen yet: the daemon is {doing}"):
            life.ask(verb)
    with pytest.raises(AsadError, match="nothing has been seen yet"):
        life.ask("explain", job="10")
    assert life.ask("status")["doing"] == doing
    assert life.ask("pause")["meanwhile"] == doing
    gate.set()
    wait_for(lambda: life.ask("status")["cycle"]["number"])
    assert life.ask("nodes")["nodes"]
    assert life.ask("status")["paused"] is True


def test_whoever_asks_for_what_takes_long_learns_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_queue, "ANSWER_S", 0.1)
    asked, begun, gate = task_queue.TaskQueue(), threading.Event(), threading.Event()
    done: list[str] = []

    def release() -> None:
        begun.set()
        gate.wait(300)
        done.append("released")

    def main() -> None:
        while not begun.is_set():
            asked.wait(0.01)
            asked.do()

    thread = threading.Thread(target=main)
    thread.start()
    with pytest.raises(AsadError, match="has begun it and was not done within 0 s; it goes on"):
        asked.ask(release)
    gate.set()
    thread.join(300)
    assert done == ["released"]
    asked.close()


@pytest.mark.usefixtures("many_descriptors")
def test_the_main_thread_is_woken_beside_more_than_a_thousand_connections() -> None:
    asked = task_queue.TaskQueue()
    asked.wake()
    begin = time.monotonic()
    asked.wait(300.0)
    assert time.monotonic() - begin < 300.0
    asked.close()


def test_whoever_asks_a_daemon_that_stops_is_answered_at_once() -> None:
    asked = task_queue.TaskQueue()
    asked.refuse()
    with pytest.raises(AsadError, match="the daemon stops"):
        asked.ask(lambda: None)
    asked.do()
    asked.close()


# --------------------------------------------------------------------------------------------------------- reload


def test_a_reload_takes_over_what_is_right_and_keeps_the_old_where_it_is_wrong(
    live: Callable[..., Life], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = ["[daemon]\nmode = 'nonsense'"]

    def reread() -> Config:
        return parse(texts[0], HERE) if texts else configuration(tmp_path, "advise", "retention_days = 1")

    caplog.set_level(logging.INFO)
    life = live(reread=reread)
    life.daemon.reload()
    wait_for(lambda: "the old configuration stays" in caplog.text)
    assert life.ask("status")["mode"] == "enforce"
    life.cycles(2)
    texts.clear()
    life.daemon.reload()
    wait_for(lambda: life.daemon.config.daemon.retention_days == 1.0)
    wait_for(lambda: life.ask("status")["mode"] == "advise")
    assert "release" in life.cluster.calls
    life.cycles(2)


def test_what_needs_a_restart_is_reported_and_left(
    live: Callable[..., Life], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def reread() -> Config:
        return parse(
            f"[daemon]\nstate_dir = '{tmp_path}/other'\nmode = 'enforce'\ninterval_s = 0.03\n[guard]\nguests_cap = 1",
            HERE,
        )

    life = live(reread=reread)
    life.daemon.reload()
    wait_for(lambda: life.daemon.cycle.guard.settings.guests_cap == 1)
    assert life.daemon.config.daemon.state_dir == tmp_path
    assert (
        "[daemon] state_dir, [daemon] socket, [metrics] changed, which takes effect at the next start"
        in caplog.text
    )
    assert isinstance(life.daemon.pace, Steady)
    wait_for(lambda: isinstance(life.daemon.pace, Steady) and life.daemon.pace.interval_s == 0.03)
    assert life.ask("status")["mode"] == "enforce"


@pytest.mark.parametrize(("name", "table"), [("slurm", "slurm"), ("slurm+mesos", "mesos")])
def test_a_cluster_whose_own_settings_have_changed_is_opened_anew(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, table: str
) -> None:
    news: list[Config] = []
    life = live(reread=news.pop, more=f"cluster = '{name}'\n[{table}]\ndepth = 1")
    old, fresh, unused = life.cluster, Held(), Held()

    def fail() -> None:
        old.calls.append("close")
        raise ClusterError("its socket is gone")

    old.close = fail  # type: ignore[method-assign]
    opened = [fresh, unused]
    monkeypatch.setattr(daemon_file, "open_cluster", lambda *_: opened.pop(0))
    monkeypatch.setattr(Daemon, "_is_real", True)
    news.append(configuration(tmp_path, more=f"cluster = '{name}'\n[{table}]\ndepth = 2"))
    life.daemon.reload()
    wait_for(lambda: fresh.looks)
    assert old.calls == ["recover", "release", "close"] and fresh.calls == ["recover"]
    # the next one is wrong elsewhere: what was opened for it is closed again
    wrong = "[guard]\ncalibration = '/nowhere'"
    news.append(configuration(tmp_path, more=f"cluster = '{name}'\n[{table}]\ndepth = 3\n{wrong}"))
    life.daemon.reload()
    wait_for(lambda: unused.calls)
    assert unused.calls == ["close"] and life.daemon.cluster is fresh
    life.cluster = fresh
    life.cycles(1)


def test_without_a_file_there_is_nothing_to_reload(
    live: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    life = live()
    life.daemon.reload()
    wait_for(lambda: "there is no configuration file" in caplog.text)
    life.cycles(1)


# ----------------------------------------------------------------------------------------------------------- stop


def test_the_stop_gives_everything_back(live: Callable[..., Life]) -> None:
    life = live()
    stop(life)
    assert life.cluster.calls == ["recover", "release", "close"]
    assert not life.socket.exists()


def test_a_stop_goes_on_when_nothing_can_be_returned(
    live: Callable[..., Life], caplog: pytest.LogCaptureFixture
) -> None:
    life = live()

    def fail() -> list[str]:
        raise ClusterError("slurmctld does not answer")

    life.cluster.release = fail  # type: ignore[method-assign]
    stop(life)
    assert "not everything could be released: slurmctld does not answer" in caplog.text


def test_a_daemon_that_cannot_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_policy(monkeypatch, "share", lambda _: Wishes())
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = configuration(tmp_path)
        port = taken.getsockname()[1]
        config = dataclasses.replace(
            config, metrics=dataclasses.replace(config.metrics, listen=f"127.0.0.1:{port}")
        )
        held = Held()
        with pytest.raises(AsadError, match=r"\[metrics\] listen"):
            Daemon(config, cluster=held).run()
    assert held.calls == ["recover", "close"]
    assert not (tmp_path / "s").exists()
    with only_one(tmp_path):
        pass
