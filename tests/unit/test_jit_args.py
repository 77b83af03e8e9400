"""Tables that compiled code holds: a policy never decides on those of an earlier snapshot."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from asad.contention import load_contention
from asad.decisions import Decision
from asad.errors import UsageError
from asad.experts import load_experts
from asad.model import Finished, Machine, Snapshot, blank_jobs
from asad.replay.recorded_cluster import RecordedCluster
from asad.replay.workload_columns import Workload
from asad.share.asax import Asax
from asad.share.asax_paper import AsaxPaper
from asad.share.jit_args import bind

JOBS = 400


def crowd() -> RecordedCluster:
    """Four nodes with more jobs than they can run, most of which leave half of their CPU idle."""
    rng = np.random.default_rng(7)
    run_s = rng.uniform(300, 5000, JOBS)
    nothing = np.full(JOBS, -1, np.int32)
    workload = Workload(
        job_id=np.arange(JOBS),
        submit_s=np.sort(rng.uniform(0, 200_000, JOBS)),
        work_s=run_s,
        planned_s=2 * run_s,
        limit_s=2 * run_s,
        cores=rng.choice(np.array([1, 4, 8], np.int32), JOBS),
        nodes=np.zeros(JOBS, np.int32),
        memory_bytes_per_core=np.zeros(JOBS),
        demand=rng.uniform(0.1, 0.7, JOBS),
        depends_on=nothing,
        think_s=np.zeros(JOBS),
        application=rng.integers(0, 5, JOBS).astype(np.int32),
        user=np.zeros(JOBS, np.int32),
    )
    names = tuple(f"n{k}" for k in range(4))
    machine = Machine(names, np.full(4, 4, np.int32), np.full(4, np.nan), "made up")
    return RecordedCluster(workload, machine, load_contention(None, lending="idle"))


def moved(column: np.ndarray, free: int = 0) -> np.ndarray:
    """A copy of the same layout, so that nothing is compiled anew; with so many more rows."""
    width = 1 if column.flags.c_contiguous else column.strides[0] // column.itemsize
    copy = np.zeros((len(column) + free, width), column.dtype)[:, 0]
    copy[: len(column)] = column
    return copy.ravel() if width == 1 else copy


def anew(snapshot: Snapshot) -> Snapshot:
    """The same snapshot in new arrays, as a live cluster shows it."""

    def copied(table: Any) -> dict[str, Any]:
        columns = {column.name: getattr(table, column.name) for column in fields(table)}
        return {name: moved(value) for name, value in columns.items() if isinstance(value, np.ndarray)}

    return replace(snapshot, **copied(snapshot), jobs=replace(snapshot.jobs, **copied(snapshot.jobs)))


def decided(fresh: bool) -> list[tuple[float, Decision]]:
    cluster = crowd()
    policy = Asax(load_experts(None), tuple("abcde"), np.random.default_rng(1))
    story: list[tuple[float, Decision]] = []
    wake_s = np.inf
    while cluster.advance(wake_s):
        snapshot = cluster.snapshot()
        finished: Finished = cluster.finished()
        shown = anew(snapshot) if fresh else snapshot
        policy.learn(shown, finished)
        decisions = policy.decide(shown)
        story += [(shown.time_s, decision) for decision in decisions]
        cluster.apply(decisions)
        wake_s = policy.wake_s()
    return story


@pytest.mark.slow
def test_new_tables_at_every_snapshot_are_decided_on_like_lasting_ones() -> None:
    lasting = decided(fresh=False)
    assert len(lasting) > 20
    assert decided(fresh=True) == lasting


def test_what_is_learned_elsewhere_counts_from_the_next_cycle_on() -> None:
    cluster = crowd()
    policy = Asax(load_experts(None), tuple("abcde"), np.random.default_rng(1))
    assert cluster.advance()
    policy.learn(cluster.snapshot(), cluster.finished())
    policy._learned.history = type(policy.history)(*(column.copy() for column in policy.history))
    while not policy.history.runs.any():
        assert cluster.advance()
        policy.learn(cluster.snapshot(), cluster.finished())


def test_kept_arrays_live_as_long_as_what_keeps_them() -> None:
    from numba import njit

    @njit
    def first(args: Any) -> float:
        (column,) = args.all
        return float(column[0])

    kept = [bind(np.full(1000, float(k))) for k in range(100)]
    assert [first(one) for one in kept] == list(range(100))


@pytest.mark.parametrize("make", [Asax, AsaxPaper])
def test_applications_that_come_later_are_decided_on_like_known_ones(
    make: type[Asax] | type[AsaxPaper],
) -> None:
    def story(names: list[str], more: list[str]) -> list[Decision]:
        cluster = crowd()
        policy = make(load_experts(None), names, np.random.default_rng(1))
        names.extend(more)  # as the list of a live cluster grows
        decisions: list[Decision] = []
        while cluster.advance(policy.wake_s()):
            snapshot = cluster.snapshot()
            policy.learn(snapshot, cluster.finished())
            decided = list(policy.decide(snapshot))
            cluster.apply(decided)
            decisions += decided
        return decisions

    known = story(list("abcde"), [])
    assert len(known) > 20
    assert story([], list("abcde")) == known


@pytest.mark.parametrize("make", [Asax, AsaxPaper])
def test_rows_that_hold_no_job_change_nothing(make: type[Asax] | type[AsaxPaper]) -> None:
    """A live cluster keeps some free."""

    def story(free: int) -> list[Decision]:
        cluster = crowd()
        policy = make(load_experts(None), list("abcde"), np.random.default_rng(1))
        decisions: list[Decision] = []
        while len(decisions) < 20 and cluster.advance(policy.wake_s()):
            snapshot, ended = cluster.snapshot(), cluster.finished()
            columns = {}
            for column in fields(snapshot.jobs):
                columns[column.name] = moved(getattr(snapshot.jobs, column.name), free)
                if column.name != "job_id":  # which are numbers here
                    columns[column.name][JOBS:] = getattr(blank_jobs(free), column.name)
            shown = replace(snapshot, jobs=replace(snapshot.jobs, **columns))
            policy.learn(shown, ended)
            decided = list(policy.decide(shown))
            cluster.apply(decided)
            decisions += decided
        return decisions

    assert len(story(0)) >= 20
    assert story(3) == story(0)


@pytest.mark.parametrize("make", [Asax, AsaxPaper])
def test_an_application_without_a_name_is_refused(make: type[Asax] | type[AsaxPaper]) -> None:
    cluster = crowd()
    policy = make(load_experts(None), list("abcd"), np.random.default_rng(1))
    assert cluster.advance()
    with pytest.raises(UsageError, match=r"column application, row .*: 4, and 4 applications have a name"):
        policy.learn(cluster.snapshot(), cluster.finished())
