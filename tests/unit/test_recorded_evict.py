"""Eviction on the recorded cluster, computed by hand: who is cancelled is gone, who is requeued begins anew."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_recorded_admission import CAUSE, cluster, do, starts

from asad.decisions import Admit, Evict, SetShare
from asad.replay import engine
from asad.replay.recorded_cluster import RELEASED_S

TWO = [(0.0, 1000.0, 2, -1), (0.0, 1000.0, 2, -1), (50.0, 300.0, 2, -1)]


def test_who_is_cancelled_ends_at_once_and_his_cores_are_taken() -> None:
    there = cluster(TWO, 4)
    there.run(100.0)
    assert do(there, Evict(CAUSE, 1, "cancel")) == ""
    seen = there.snapshot()
    assert seen.running.tolist() == [0]
    ended = there.finished()
    assert ended.row.tolist() == [1] and ended.end_s.tolist() == [100.0]
    assert ended.completed is not None and ended.completed.tolist() == [False]
    assert starts(there) == [0.0, 0.0, 100.0]
    job = there.state.job
    assert job["end"].tolist() == [1000.0, 100.0, 400.0] and job["killed"].tolist() == [False, True, False]
    assert there.state.c[engine.FREE] == 4
    last = there.finished()
    assert last.completed is not None and last.completed.all()


def test_who_is_requeued_begins_anew_when_his_owner_lets_him() -> None:
    there = cluster(TWO, 4)
    there.run(100.0)
    assert do(there, Evict(CAUSE, 1, "requeue-hold")) == ""
    seen = there.snapshot()
    assert math.isnan(seen.jobs.start_s[1]) and seen.jobs.begin_s[1] == 100.0 + RELEASED_S
    assert seen.running.tolist() == [0] and 1 not in seen.queue and len(there.finished().row) == 0
    assert (seen.core_owner == 1).sum() == 0
    # what it had done is lost: it runs for its whole time
    assert starts(there) == [0.0, 100.0 + RELEASED_S, 100.0]
    assert there.state.job["end"].tolist() == [1000.0, 1100.0 + RELEASED_S, 400.0]
    assert (
        there.state.c[engine.FREE] == 4 and there.state.c[engine.WAITING] == there.state.c[engine.ASIDE] == 0
    )
    assert not there.state.job["killed"].any()


def test_who_was_admitted_stays_so_and_comes_first_again() -> None:
    there = cluster([*TWO, (60.0, 10.0, 4, -1)], 4)
    there.run(100.0)
    assert do(there, Admit(CAUSE, 2)) == do(there, Evict(CAUSE, 0, "requeue-hold")) == ""
    there.run(120.0)
    assert do(there, Evict(CAUSE, 2, "requeue-hold")) == ""
    assert do(there, Evict(CAUSE, 2, "requeue-hold")) == "it does not run any more"
    begun = starts(there)
    assert begun[2] == 120.0 + RELEASED_S and begun[3] == 1000.0


def test_what_cannot_be_evicted() -> None:
    there = cluster([(0.0, 100.0, 1, 0), (0.0, 100.0, 1, 0), (50.0, 10.0, 2, -1)], 2)
    there.run(60.0)
    late = "it does not run any more"
    assert do(there, Evict(CAUSE, 2, "cancel")) == late == do(there, Evict(CAUSE, 2, "requeue-hold"))
    assert do(there, Evict(CAUSE, 99, "cancel")) == late == do(there, Evict(CAUSE, -1, "cancel"))
    assert do(there, Evict(CAUSE, 0, "requeue-hold")) == "it is a task of an array"
    assert do(there, Evict(CAUSE, 0, "kill")) == "there is no way 'kill' to evict it"
    alone = cluster(TWO, 4, admission=False)
    alone.run(10.0)
    assert do(alone, Evict(CAUSE, 0, "requeue-hold")) == "this cluster holds nobody back"
    assert do(there, SetShare(CAUSE, 0, 0.5)) != ""


@pytest.mark.parametrize("seed", range(15))
def test_after_any_evictions_all_jobs_end_and_all_cores_are_free(seed: int) -> None:
    chance = np.random.default_rng(seed)
    jobs = [
        (float(at), float(run), int(cores), -1)
        for at, run, cores in zip(
            np.sort(chance.integers(0, 500, 30)),
            chance.integers(10, 400, 30),
            chance.integers(1, 5, 30),
            strict=True,
        )
    ]
    there = cluster(jobs, 4, nodes=2, scheduler=("easy", "fcfs", "conservative")[seed % 3])
    for time_s in range(20, 900, 20):
        there.run(float(time_s))
        seen = there.snapshot()
        for row in seen.running.tolist():
            if chance.random() < 0.2:
                how = str(chance.choice(["cancel", "requeue-hold"]))
                assert do(there, Evict(CAUSE, row, how)) == ""
        held = int(seen.jobs.cores[there.snapshot().running].sum())
        assert int(there.state.c[engine.FREE]) == 8 - held
    there.run()
    job, c = there.state.job, there.state.c
    assert there.ended == len(jobs) and c[engine.FREE] == 8 and c[engine.WAITING] == c[engine.ASIDE] == 0
    whole = ~job["killed"]
    assert np.allclose((job["end"] - job["start"])[whole], job["work"][whole])
