"""What the recorded cluster shows of arrays and hints, and how it obeys the admit stage, computed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from asad.contention import Contention
from asad.decisions import Admit, Cause, CoAllocate, Decision, Decline, Defer, SetThrottle, Start
from asad.model import Machine
from asad.replay import engine
from asad.replay.playback import Playback
from asad.replay.recorded_cluster import REFUSALS, RecordedCluster
from asad.replay.workload_columns import Workload

CAUSE = Cause("test", "because")
POLL_S = 10.0


def cluster(
    jobs: Sequence[tuple[float, float, int, int]],
    cores: int,
    *,
    hints: Mapping[int, str] | None = None,
    admission: bool = True,
    gather_arrays: bool = False,
    nodes: int = 1,
    scheduler: str = "easy",
) -> RecordedCluster:
    """Jobs of (submit, run time and limit, cores, array) on nodes of `cores` cores, polled every 10 s."""
    submit, run, wide, array = (np.array(column) for column in zip(*jobs, strict=True))
    count = len(jobs)
    workload = Workload(
        job_id=np.arange(count),
        submit_s=submit.astype(float),
        work_s=run.astype(float),
        planned_s=run.astype(float),
        limit_s=run.astype(float),
        cores=wide.astype(np.int32),
        nodes=np.zeros(count, np.int32),
        memory_bytes_per_core=np.zeros(count),
        demand=np.full(count, 0.5),
        depends_on=np.full(count, -1, np.int32),
        think_s=np.zeros(count),
        application=np.zeros(count, np.int32),
        user=np.zeros(count, np.int32),
        array=array.astype(np.int32),
        hints=hints or {},
        partition=np.arange(count, dtype=np.int32) % 2,
        partitions=("short", "long"),
    )
    names = tuple(f"n{k}" for k in range(nodes))
    machine = Machine(names, np.full(nodes, cores, np.int32), np.full(nodes, math.nan), "made up")
    return RecordedCluster(
        workload,
        machine,
        Contention(1.0, 1.0, 1.0, 1.0, "made up"),
        scheduler=scheduler,
        poll_s=POLL_S,
        admission=admission,
        gather_arrays=gather_arrays,
    )


def do(there: RecordedCluster, decision: Decision) -> str:
    """Apply it; why it was refused, or the empty string."""
    (outcome,) = there.apply([decision])
    assert outcome.decision is decision
    assert outcome.done == (not outcome.reason)
    return outcome.reason


def starts(there: RecordedCluster) -> list[float]:
    there.run()
    assert there.ended == len(there.workload)
    return [float(start) for start in there.state.job["start"]]


ARRAY = [(0.0, 100.0, 1, 0)] * 6
"""Six tasks of one core, 100 s each."""


def test_a_throttle_lets_the_next_task_start_in_the_pass_after_an_end() -> None:
    there = cluster([(0.0, 50.0, 4, -1), *ARRAY], 4)
    there.advance()
    assert do(there, SetThrottle(CAUSE, 3, 2)) == ""
    seen = there.snapshot()
    assert (seen.arrays.waiting.tolist(), seen.arrays.throttle.tolist()) == ([6], [2])
    assert seen.queue.tolist() == [1, 2]
    assert seen.waiting == 6
    assert starts(there) == [0.0, 50.0, 50.0, 150.0, 150.0, 250.0, 250.0]


def test_tasks_that_run_go_on_when_the_throttle_falls_below_them() -> None:
    there = cluster(ARRAY, 4)
    there.advance(10.0)
    assert there.snapshot().arrays.running.tolist() == [4]
    assert do(there, SetThrottle(CAUSE, 0, 1)) == ""
    assert there.snapshot().queue.tolist() == []
    assert there.snapshot().arrays.waiting_row.tolist() == [4]
    assert starts(there) == [0.0] * 4 + [100.0, 200.0]


def test_a_throttle_of_none_lets_all_start() -> None:
    there = cluster(ARRAY, 2)
    there.advance()
    do(there, SetThrottle(CAUSE, 0, 1))
    there.advance(30.0)
    do(there, SetThrottle(CAUSE, 5, 0))
    assert there.snapshot().queue.tolist() == [2, 3, 4, 5]
    assert starts(there) == [0.0, 0.0, 100.0, 100.0, 200.0, 200.0]


def test_who_is_deferred_leaves_the_queue_and_comes_back_to_his_place() -> None:
    """The first of the queue is deferred to 95; the job behind it, that had to wait for it, starts at once."""
    there = cluster([(0.0, 80.0, 3, -1), (1.0, 40.0, 3, -1), (2.0, 100.0, 2, -1), (3.0, 40.0, 1, -1)], 4)
    there.advance()
    assert do(there, Defer(CAUSE, 1, 95.0)) == ""
    seen = there.snapshot()
    assert seen.queue.tolist() == [2]
    assert seen.jobs.begin_s[1] == 95.0
    assert math.isnan(seen.jobs.begin_s[2])
    assert math.isnan(seen.jobs.estimated_start_s[1])
    assert seen.waiting == 2
    assert starts(there) == [0.0, 180.0, 80.0, 3.0]  # at 95 two cores are free, and it takes three


def test_a_deferral_ends_by_itself_and_sooner_by_start() -> None:
    left_alone, called = (cluster([(0.0, 20.0, 1, -1), (0.0, 20.0, 4, -1)], 4) for _ in range(2))
    for there in (left_alone, called):
        there.advance()
        do(there, Defer(CAUSE, 1, 55.0))
        there.run(30.0)
    assert do(called, Start(CAUSE, 1)) == ""
    assert math.isnan(called.snapshot().jobs.begin_s[1])
    assert starts(left_alone) == [0.0, 55.0]
    assert starts(called) == [0.0, 30.0]


def test_a_later_deferral_takes_the_place_of_an_earlier_one() -> None:
    for first, second in ((40.0, 200.0), (200.0, 40.0)):
        there = cluster([(0.0, 20.0, 4, -1), (0.0, 20.0, 4, -1)], 4)
        there.advance()
        do(there, Defer(CAUSE, 1, first))
        do(there, Defer(CAUSE, 1, second))
        assert starts(there)[1] == second


def test_an_array_is_deferred_as_one_and_its_running_tasks_go_on() -> None:
    there = cluster(ARRAY, 2)
    there.advance()
    assert do(there, Defer(CAUSE, 0, 150.0)) == ""
    seen = there.snapshot()
    assert seen.queue.tolist() == []
    assert seen.arrays.waiting_row.tolist() == [2]
    assert seen.jobs.begin_s[2:].tolist() == [150.0] * 4
    assert starts(there) == [0.0, 0.0, 150.0, 150.0, 250.0, 250.0]


def test_the_admitted_are_tried_before_all_others_in_order_of_arrival() -> None:
    there = cluster([(0.0, 100.0, 4, -1)] * 5, 4)
    there.advance()
    for job in (4, 2):
        assert do(there, Admit(CAUSE, job)) == ""
    assert do(there, Decline(CAUSE, 3)) == ""
    assert there.snapshot().queue.tolist() == [2, 4, 1, 3]
    assert starts(there) == [0.0, 300.0, 100.0, 400.0, 200.0]


def test_who_is_admitted_keeps_the_start_that_conservative_backfill_promised() -> None:
    """Job 1 has lost its promise by a deferral; back in the queue it stands before job 2, who was promised 10."""
    there = cluster([(0.0, 10.0, 1, -1)] * 3, 1, scheduler="conservative")
    there.run(0.0)
    do(there, Admit(CAUSE, 1))
    do(there, Defer(CAUSE, 1, 5.0))
    there.run(5.0)
    assert do(there, Admit(CAUSE, 2)) == ""
    assert there.snapshot().queue.tolist() == [1, 2]
    assert starts(there) == [0.0, 20.0, 10.0]


def test_what_is_as_decided_is_done_and_what_came_too_late_is_refused() -> None:
    there = cluster([(0.0, 30.0, 4, -1), (0.0, 30.0, 4, 0), (0.0, 30.0, 4, 0), (0.0, 30.0, 4, -1)], 4)
    there.advance()
    for decision in (
        Admit(CAUSE, 3),
        Admit(CAUSE, 3),
        Start(CAUSE, 3),
        SetThrottle(CAUSE, 1, 0),
        Defer(CAUSE, 3, 60.0),
        Defer(CAUSE, 3, 60.0),
    ):
        assert do(there, decision) == ""
    late = "it does not wait, nor does any task of its array"
    for kind in (Admit, Decline, Start):
        assert do(there, kind(CAUSE, 0)) == late
        assert do(there, kind(CAUSE, 99)) == late
        assert do(there, kind(CAUSE, -1)) == late
    assert do(there, Defer(CAUSE, 0, 60.0)) == late
    assert do(there, SetThrottle(CAUSE, 99, 1)) == late
    assert do(there, SetThrottle(CAUSE, 3, 1)) == "it is no task of an array"
    assert do(there, SetThrottle(CAUSE, 1, -1)) == "a throttle of -1 tasks is none"
    for until in (there.now_s, -1.0, math.inf, math.nan):
        assert do(there, Defer(CAUSE, 3, until)).startswith("it cannot be deferred until")
    assert starts(there) == [0.0, 30.0, 90.0, 60.0]
    assert do(there, SetThrottle(CAUSE, 1, 1)) == late


def test_a_cluster_that_was_not_asked_for_admission_refuses_it_and_shows_no_array() -> None:
    there = cluster([(0.0, 100.0, 2, 0)] * 3, 2, hints={0: "utility=constant(1)"}, admission=False)
    there.advance()
    seen = there.snapshot()
    assert len(seen.arrays) == 0
    assert seen.hints == {}
    assert (seen.jobs.array == -1).all()
    for decision in (Admit(CAUSE, 1), Decline(CAUSE, 1), Start(CAUSE, 1), SetThrottle(CAUSE, 1, 1)):
        assert do(there, decision) == "this cluster does not keep track of arrays and of who is admitted"


def test_hints_and_partitions_are_reported_of_who_is_there() -> None:
    there = cluster(
        [(0.0, 30.0, 4, -1), (0.0, 30.0, 4, -1), (100.0, 30.0, 4, -1)], 4, hints={2: "no", 1: "utility=x"}
    )
    there.advance()
    seen = there.snapshot()
    assert dict(seen.hints) == {1: "utility=x"}
    assert dict(seen.classes) == {1: ("long", "")}
    assert len(seen.classes) == 1
    assert 0 not in seen.classes
    assert 99 not in seen.classes
    there.run(100.0)
    assert dict(there.snapshot().hints) == {1: "utility=x", 2: "no"}


def test_gathered_arrays_have_one_row_in_the_queue() -> None:
    jobs = [(0.0, 100.0, 4, -1), (0.0, 10.0, 1, 1), (0.0, 10.0, 1, 0), (0.0, 10.0, 1, 1), (0.0, 10.0, 1, -1)]
    there = cluster(jobs, 4, gather_arrays=True)
    there.advance()
    seen = there.snapshot()
    assert seen.queue.tolist() == [1, 2, 4]
    assert seen.waiting == 4
    assert seen.arrays.waiting_row.tolist() == [2, 1]
    assert seen.arrays.waiting.tolist() == [1, 2]
    assert seen.jobs.array.tolist() == [-1, 1, 0, 1, -1]
    assert seen.jobs.estimated_start_s[[1, 2, 4]].tolist() == [100.0] * 3


def test_who_is_withheld_becomes_no_guest_and_a_guest_counts_for_the_throttle() -> None:
    there = cluster([(0.0, 400.0, 4, -1), *[(0.0, 50.0, 1, 0)] * 3], 4)
    there.advance(60.0)
    there.snapshot()
    assert do(there, SetThrottle(CAUSE, 1, 1)) == ""
    assert do(there, CoAllocate(CAUSE, 2, (0,), host=0, share=0.5)) == REFUSALS[7]
    assert do(there, CoAllocate(CAUSE, 1, (0,), host=0, share=0.5)) == ""
    seen = there.snapshot()
    assert (seen.arrays.running.tolist(), seen.arrays.waiting.tolist()) == ([1], [2])
    assert seen.queue.tolist() == []
    there.run(200.0)
    assert there.snapshot().queue.tolist() == [2]
    assert there.snapshot().arrays.ended.tolist() == [1]


def test_polls_go_on_while_only_deferred_jobs_wait() -> None:
    there = cluster([(0.0, 5.0, 4, -1), (0.0, 5.0, 4, -1)], 4)
    engine.run_until(there.state, 0.0)
    do(there, Defer(CAUSE, 1, 500.0))
    seen = []
    while there.advance(there.now_s + 100.0):
        seen.append((there.now_s, there.snapshot().waiting))
    assert [when for when, waiting in seen if waiting] == [10.0, 110.0, 210.0, 310.0, 410.0]
    assert there.ended == 2
    assert there.state.job["start"][1] == 500.0


def test_the_daemons_recorded_cluster_shows_them_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = ["JobID|Submit|Start|ElapsedRaw|NCPUS|Partition|Comment"]
    lines += [
        f"7_{task}|2024-01-01T00:00:00|2024-01-01T00:00:10|600|4|long|asad:utility=constant(2)"
        for task in range(3)
    ]
    log.write_text("\n".join(lines) + "\n")
    clock = iter(range(1000))
    played = Playback(log, gather_arrays=True, nodes=1, cores=4, monotonic=lambda: float(next(clock)))
    played.next_cycle(math.inf)
    seen = played.snapshot()
    assert seen.arrays.waiting.tolist() == [2]
    assert seen.queue.tolist() == [1]
    assert seen.hints[1] == "utility=constant(2)"
    assert seen.classes[1] == ("long", "")
    assert [seen.partitions[row] for row in (0, 1)] == ["long", "long"], "of one that runs, too"
    (outcome,) = played.apply([SetThrottle(CAUSE, 1, 1)])
    assert outcome.done
