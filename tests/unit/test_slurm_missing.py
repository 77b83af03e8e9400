"""Jobs that squeue has forgotten: accounting is asked in parts, and an end that nobody knows is reported as unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from asad_slurm import missing
from asad_slurm.command import MOST_IDS, Ended
from slurm_samples import START_S, Lab, SlurmInMemory, a_job, names, row, running

from asad.daemon.gains import Gains
from asad.decisions import Cause, ExtendLimit
from asad.errors import ClusterError
from asad.model import Finished
from asad.share.measured import Measured

AWAY_S = 7200.0


class Accounting(SlurmInMemory):
    """One that notes of how many jobs accounting is asked, and may not answer."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes=nodes)
        self.asked: list[int] = []
        self.silent = False

    def ended(self, raws: Sequence[int]) -> dict[int, Ended]:
        self.asked.append(len(raws))
        if self.silent:
            raise ClusterError("sacct: Connection refused")
        return super().ended(raws)


Make = Callable[[int], Lab]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def lab_of(jobs: int) -> Lab:
        slurm = Accounting(nodes=jobs)
        slurm.add(*(running(number, {f"n{number}": 2}, name="sim") for number in range(1, jobs + 1)))
        return Lab(tmp_path, slurm)

    return lab_of


def finished_after(lab: Lab, after_s: float = 30.0) -> dict[str, tuple[float, float]]:
    """One more look: by job that is reported as ended, when and how long it had run."""
    snapshot = lab.snapshot(after_s)
    ended = lab.cluster.finished(0.0)
    times = zip(ended.end_s.tolist(), ended.run_s.tolist(), strict=True)
    return dict(zip(names(snapshot, ended.row), times, strict=True))


def test_after_an_outage_accounting_is_asked_in_parts_and_no_end_is_made_up(make: Make) -> None:
    jobs = 2 * MOST_IDS + 200
    lab = make(jobs)
    slurm = lab.slurm
    assert isinstance(slurm, Accounting)
    snapshot = lab.snapshot()
    assert len(snapshot.running) == jobs
    slurm.jobs.clear()
    slurm.in_accounting = {
        number: Ended(number, START_S - 60, START_S + number, 10.0, True) for number in range(1, jobs + 1)
    }
    found = finished_after(lab, AWAY_S)
    assert len(found) == MOST_IDS and not len(lab.cluster._snapshot.running)  # type: ignore[union-attr]
    for _ in range(4):
        found |= finished_after(lab)
    assert slurm.asked == [MOST_IDS, MOST_IDS, 200]
    assert found == {str(number): (START_S + number, number + 60.0) for number in range(1, jobs + 1)}


def test_a_job_that_is_shown_twice_ends_once(make: Make) -> None:
    lab = make(3)
    lab.snapshot()
    jobs = lab.slurm.jobs
    ended = jobs[1] | {"job_state": "COMPLETED", "end_time": int(START_S) + 10}
    jobs |= {1: ended, -1: ended | {"comment": "again"}, -2: dict(ended), -3: jobs[2]}
    snapshot = lab.snapshot(30.0)
    assert names(snapshot, lab.cluster.finished(0.0).row) == ["1"]
    for number in (-1, -2, -3, 1):
        del jobs[number]
    lab.snapshot(30.0)
    lab.slurm.add(*(a_job(number) for number in range(4, 9)))
    for _ in range(3):  # by then the row of the job that has ended is another's
        lab.snapshot(30.0)
    rows = lab.cluster._jobs.rows.of
    assert sorted(rows) == [str(number) for number in range(2, 9)]
    assert len(set(rows.values())) == len(rows)


def test_an_end_that_accounting_never_shows_is_unknown(make: Make) -> None:
    lab = make(3)
    slurm = lab.slurm
    assert isinstance(slurm, Accounting)
    policy = Measured(lab.cluster.applications)
    policy.learn(lab.snapshot(), lab.cluster.finished(0.0))
    slurm.jobs.clear()
    slurm.in_accounting[2] = Ended(2, START_S - 60, START_S + 40, 10.0, True)
    ends: dict[str, float] = {}
    for look in range(missing.ASKS * missing.AGAIN):
        snapshot = lab.snapshot(AWAY_S if look == 0 else 30.0)
        finished = lab.cluster.finished(0.0)
        policy.learn(snapshot, finished)
        ends |= dict(zip(names(snapshot, finished.row), finished.end_s.tolist(), strict=True))
    assert slurm.asked[0] == 3 and set(slurm.asked[1:]) == {2} and len(slurm.asked) == missing.ASKS
    assert ends.pop("2") == START_S + 40
    assert set(ends) == {"1", "3"} and all(map(math.isnan, ends.values()))
    assert policy.history.runs[-1] == 1 and policy.history.run[-1] == 100.0
    for _ in range(3):
        assert finished_after(lab) == {}
    assert lab.cluster._jobs.rows.of == {}


def test_accounting_that_comes_back_late_is_heard(make: Make) -> None:
    lab = make(1)
    slurm = lab.slurm
    assert isinstance(slurm, Accounting)
    lab.snapshot()
    slurm.jobs.clear()
    slurm.silent = True
    assert finished_after(lab, AWAY_S) == {}
    for _ in range(5 * missing.ASKS):
        assert finished_after(lab) == {}
    assert len(slurm.asked) <= 1 + 5 * missing.ASKS / missing.AGAIN, "who does not answer is asked seldom"
    slurm.silent = False
    slurm.in_accounting[1] = Ended(1, START_S - 60, START_S + 40, 10.0, True)
    assert finished_after(lab) | finished_after(lab) == {"1": (START_S + 40, 100.0)}


def test_a_job_that_was_seen_shortly_before_ended_then(make: Make) -> None:
    lab = make(MOST_IDS + 1)
    lab.snapshot()
    lab.slurm.jobs.clear()
    found = finished_after(lab)
    assert len(found) == MOST_IDS
    assert finished_after(lab, AWAY_S) == {str(MOST_IDS + 1): (START_S + 30, 90.0)}, (
        "not when it was asked for"
    )
    assert set(found.values()) == {(START_S + 30, 90.0)}


def test_a_job_that_is_shown_again_goes_on_in_its_row(make: Make) -> None:
    lab = make(2)
    at = row(lab.snapshot(), "1")
    shown = lab.slurm.jobs.pop(1)
    assert finished_after(lab, AWAY_S) == {}
    snapshot = lab.snapshot()
    assert names(snapshot, snapshot.running) == ["2"] and not (snapshot.core_owner == at).any()
    lab.slurm.jobs[1] = shown
    snapshot = lab.snapshot(30)
    assert at in snapshot.running and (snapshot.core_owner == at).sum() == 2
    lab.slurm.end(1, lab.now_s)
    assert finished_after(lab) == {"1": (START_S + AWAY_S + 30, AWAY_S + 90)}


def test_jobs_that_waited_are_dropped_when_nothing_is_known_of_them(make: Make) -> None:
    lab = make(1)
    lab.slurm.add(a_job(7), a_job(8))
    lab.snapshot()
    del lab.slurm.jobs[7], lab.slurm.jobs[8]
    lab.slurm.in_accounting[8] = Ended(8, START_S + 50, START_S + 80, 10.0, True)
    found = finished_after(lab, AWAY_S)
    for _ in range(missing.ASKS * missing.AGAIN):
        found |= finished_after(lab)
    assert found == {"8": (START_S + 80, 30.0)}
    assert len(lab.cluster._jobs._missing) == 0 and set(lab.cluster._jobs.rows.of) == {"1"}


def test_an_unknown_end_is_no_line_of_the_store(make: Make) -> None:
    lab = make(2)
    snapshot = lab.snapshot()
    gains, at = Gains(), row(snapshot, "1")
    gains._roles[at] = ("1", "host")
    one, nan = np.ones(1), np.full(1, np.nan)
    ended = Finished(np.array([at], np.int32), nan, nan, 0 * one, nan)
    assert gains.take(snapshot, ended, []) == [] and gains._roles == {}
    assert gains.ended["host", "unknown"] == 1
    jobs = lab.cluster._jobs
    jobs.rows.extra.was_host[at] = True
    lab.slurm.jobs.clear()
    finished_after(lab, AWAY_S)
    for _ in range(missing.ASKS * missing.AGAIN):
        finished_after(lab)
    (entry,) = lab.cluster.ledger
    assert entry["job_id"] == "1" and entry["time_s"] <= lab.now_s


@pytest.mark.parametrize(
    ("state", "minutes", "lost_s", "extended", "how"),
    [
        ("COMPLETED", 5, 200.0, 0, "in_time"),  # long before its own turn
        ("COMPLETED", 90, 60.0, 0, "in_time"),
        ("COMPLETED", 90, 2400.0, 0, "in_time"),  # slow, and an hour sooner
        ("COMPLETED", 90, 5400.0, 0, "late"),
        ("TIMEOUT", 120, 60.0, 0, "killed"),
        ("TIMEOUT", 121, 60.0, 1, "in_time"),  # its limit was moved by what was taken: it overran by itself
        ("FAILED", 90, 60.0, 0, "in_time"),
    ],
)
def test_how_a_guest_of_slurm_ended_is_counted(
    make: Make, state: str, minutes: int, lost_s: float, extended: int, how: str
) -> None:
    lab, gains = make(1), Gains()
    lab.slurm.add(a_job(10, time_limit=120))
    assert lab.offer(lab.snapshot(), "10", "1", "n1") == ""
    lab.slurm.start(10, "n1", START_S + 2)
    lab.snapshot(10)
    snapshot = lab.snapshot(4000)  # its own turn has come, if it runs for as long
    gains.take(snapshot, lab.cluster.finished(0.0), [])
    at = row(snapshot, "10")
    snapshot.jobs.lost_s[at] = lost_s
    if extended:
        lab.cluster.apply([ExtendLimit(Cause("test", "it lost"), at, 60.0 * extended)])
    lab.slurm.jobs[10] |= {"job_state": state, "end_time": int(START_S) + 2 + 60 * minutes}
    last = lab.snapshot(4000)
    gains.take(last, lab.cluster.finished(0.0), [])
    assert [ended for ended, count in gains.ended.items() if count] == [("guest", how)]
