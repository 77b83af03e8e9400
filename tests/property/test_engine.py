"""The compiled scheduler against the plain one, on random small workloads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.replay import engine

from .reference_scheduler import Held, Job, Simulation, free_at, shadow

SCHEDULERS = {"easy": engine.EASY, "fcfs": engine.FCFS, "conservative": engine.CONSERVATIVE}


def workloads(
    most_jobs: int = 60, dependent: bool = False, unlimited: bool = False
) -> st.SearchStrategy[tuple[list[Job], int]]:
    """Jobs in order of submission and the cores of a machine that holds them; times are exact in binary."""

    @st.composite
    def draw_workload(draw: st.DrawFn) -> tuple[list[Job], int]:
        total = draw(st.integers(1, 40))
        count = draw(st.integers(5, most_jobs))
        second = draw(st.sampled_from([1.0, 0.125]))
        origin = draw(st.sampled_from([0.0, 1.6e9]))
        kill = draw(st.booleans())
        span = draw(st.sampled_from([10, 100, 1000]))
        few = st.integers(1, 20)  # ties are where schedulers differ
        times = st.lists(st.integers(0, span), min_size=count, max_size=count)
        jobs = []
        for row, submit in enumerate(sorted(draw(times))):
            run, limit = draw(few) * second, draw(few) * second
            if unlimited and draw(st.integers(0, 5)) == 0:
                limit = math.inf
            depends = draw(st.integers(-1, row - 1)) if dependent and draw(st.booleans()) else -1
            jobs.append(
                Job(
                    submit=origin + submit * second,
                    work=min(run, limit) if kill else run,
                    planned=limit if kill else max(run, limit),
                    cores=draw(st.integers(1, total) | st.integers(1, min(4, total))),
                    depends=depends,
                    think=draw(st.integers(0, 5)) * second if depends >= 0 else 0.0,
                )
            )
        return jobs, total

    return draw_workload()


def new_state(
    jobs: Sequence[Job],
    node_cores: Sequence[int],
    *,
    scheduler: str = "easy",
    per_event: bool = False,
    placed: bool = False,
    memory_per_core: Sequence[float] | None = None,
    node_memory: float = math.nan,
    array: Sequence[int] | None = None,
) -> engine.State:
    """The compiled scheduler before its first job; with `array` it obeys what admission decides."""
    count = len(jobs)
    columns: dict[str, Any] = {
        "submit": [job.submit for job in jobs],
        "work": [job.work for job in jobs],
        "planned": [job.planned for job in jobs],
        "limit": [job.planned for job in jobs],
        "memory": memory_per_core or [0.0] * count,
        "demand": [0.5] * count,
        "think": [job.think for job in jobs],
    }
    whole = {
        "cores": [job.cores for job in jobs],
        "wide": [0] * count,
        "depends": [job.depends for job in jobs],
    }
    return engine.new_state(
        {name: np.array(column, float) for name, column in columns.items()}
        | {name: np.array(column, np.int32) for name, column in whole.items()},
        np.array(node_cores, np.int32),
        np.full(len(node_cores), node_memory),
        scheduler=SCHEDULERS[scheduler],
        per_event=per_event,
        kill=True,
        placed=placed,
        use_memory=memory_per_core is not None,
        poll_s=30.0,
        window_s=60.0,
        mu=(1.0, 1.0, 1.0, 1.0),
        admission=array is not None,
        array=None if array is None else np.array(array, np.int32),
    )


def run(state: engine.State) -> engine.State:
    """Play to the end; every job must have run once."""
    engine.run_until(state, np.inf)
    count = len(state.job)
    assert state.c[engine.ENDED] == count
    assert sorted(state.job["ended"].tolist()) == list(range(count))
    np.testing.assert_array_equal(state.job["end"], state.job["start"] + state.job["work"])
    return state


def uneven(total: int) -> list[int]:
    """Nodes of 3, 1, 3, 1 … cores that make up `total`."""
    nodes: list[int] = []
    while sum(nodes) < total:
        nodes.append(min(3 if len(nodes) % 2 == 0 else 1, total - sum(nodes)))
    return nodes


def never_too_much(jobs: Sequence[Job], start: Sequence[float], end: Sequence[float], total: int) -> None:
    """At no moment do the running jobs hold more cores than there are."""
    for moment in start:
        held = sum(job.cores for job, a, b in zip(jobs, start, end, strict=True) if a <= moment < b)
        assert held <= total


@pytest.mark.slow
@pytest.mark.parametrize("per_event", [False, True], ids=["per-timestamp", "per-event"])
@pytest.mark.parametrize("scheduler", ["easy", "fcfs"])
@settings(deadline=None, max_examples=120)
@given(workload=workloads(dependent=True, unlimited=True))
def test_starts_are_those_of_the_definition(
    scheduler: str, per_event: bool, workload: tuple[list[Job], int]
) -> None:
    jobs, total = workload
    expected = Simulation(jobs, total, scheduler, per_event).run()
    state = run(new_state(jobs, [total], scheduler=scheduler, per_event=per_event))
    assert state.job["start"].tolist() == [expected.start[row] for row in range(len(jobs))]
    never_too_much(jobs, state.job["start"].tolist(), state.job["end"].tolist(), total)


@settings(deadline=None, max_examples=80)
@given(workload=workloads(most_jobs=25, dependent=True, unlimited=True), per_event=st.booleans())
def test_conservative_makes_the_promises_of_the_definition_and_keeps_them(
    workload: tuple[list[Job], int], per_event: bool
) -> None:
    jobs, total = workload
    expected = Simulation(jobs, total, "conservative", per_event).run()
    state = run(new_state(jobs, [total], scheduler="conservative", per_event=per_event))
    starts = state.job["start"].tolist()
    for row in range(len(jobs)):
        assert starts[row] <= expected.first_promise[row]
    assert starts == [expected.start[row] for row in range(len(jobs))]
    never_too_much(jobs, starts, state.job["end"].tolist(), total)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(deadline=None, max_examples=40)
@given(workload=workloads(dependent=True), per_event=st.booleans())
def test_placement_and_plentiful_memory_decide_nothing(
    scheduler: str, workload: tuple[list[Job], int], per_event: bool
) -> None:
    jobs, total = workload
    nodes = uneven(total)
    plain = run(new_state(jobs, nodes, scheduler=scheduler, per_event=per_event))
    placed = run(new_state(jobs, nodes, scheduler=scheduler, per_event=per_event, placed=True))
    roomy = run(
        new_state(
            jobs,
            nodes,
            scheduler=scheduler,
            per_event=per_event,
            memory_per_core=[float(job.cores) for job in jobs],
            node_memory=1e12,
        )
    )
    assert placed.job["start"].tolist() == plain.job["start"].tolist()
    assert roomy.job["start"].tolist() == plain.job["start"].tolist()
    assert not placed.job["killed"].any()
    for state in (placed, roomy):
        assert (state.core["owner"] == -1).all()
        assert state.node["free"].tolist() == nodes
    np.testing.assert_allclose(roomy.node["memory_free"], 1e12)


@settings(deadline=None, max_examples=60)
@given(
    workload=workloads(most_jobs=30),
    scheduler=st.sampled_from(list(SCHEDULERS)),
    scale=st.floats(0.01, 100.0),
)
def test_times_that_are_not_exact_in_binary_oversubscribe_nothing(
    workload: tuple[list[Job], int], scheduler: str, scale: float
) -> None:
    exact, total = workload
    jobs = [Job(job.submit * scale, job.work * scale, job.planned * scale, job.cores) for job in exact]
    state = new_state(jobs, uneven(total), scheduler=scheduler, placed=True)
    while (now := engine.next_event(state)) < math.inf:
        engine.run_until(state, now)
        held = np.bincount(state.core["owner"] + 1, minlength=len(jobs) + 1)[1:]
        running = (state.job["state"] == engine.RUNNING).nonzero()[0]
        assert held.sum() == sum(jobs[row].cores for row in running)
        assert all(held[row] == jobs[row].cores for row in running)
        assert state.c[engine.FREE] == total - held.sum()
        assert state.c[engine.EXTRA] >= 0
    assert state.c[engine.ENDED] == len(jobs)


@settings(deadline=None, max_examples=80)
@given(workload=workloads(most_jobs=40, dependent=True), scheduler=st.sampled_from(list(SCHEDULERS)))
def test_nobody_starts_before_what_it_waits_for(workload: tuple[list[Job], int], scheduler: str) -> None:
    jobs, total = workload
    state = run(new_state(jobs, [total], scheduler=scheduler))
    for row, job in enumerate(jobs):
        assert state.job["start"][row] >= job.submit
        if job.depends >= 0:
            ready = state.job["end"][job.depends] + job.think
            assert state.job["eligible"][row] == max(job.submit, ready)
            assert state.job["start"][row] >= ready


@settings(deadline=None, max_examples=60)
@given(workload=workloads(most_jobs=30))
def test_no_backfill_delays_the_head_of_the_queue(workload: tuple[list[Job], int]) -> None:
    """At every pass: the head's earliest start with the backfilled jobs is not after that without them."""
    jobs, total = workload
    state = new_state(jobs, [total])
    while (now := engine.next_event(state)) < math.inf:
        engine.run_until(state, now)
        table = state.job
        waiting = np.flatnonzero(table["state"] == engine.PENDING)
        if len(waiting) == 0:
            continue
        head = int(waiting[0])  # without dependencies rows are in order of arrival
        running = np.flatnonzero(table["state"] == engine.RUNNING)
        with_all = [Held(table["start"][row] + jobs[row].planned, jobs[row].cores) for row in running]
        without = [
            held
            for held, row in zip(with_all, running, strict=True)
            if table["start"][row] < now or row < head
        ]
        promised, _ = shadow(jobs[head].cores, now, free_at(-math.inf, without, total), without)
        assert free_at(promised, with_all, total) >= jobs[head].cores


# ------------------------------------------------------------------------------------------------- memory


@st.composite
def memory_workloads(draw: st.DrawFn) -> tuple[list[Job], list[int], list[float], float]:
    """Jobs, cores of each node, memory a core of each job, memory of a node; all fit the empty machine."""
    nodes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    node_memory = draw(st.integers(4, 24))
    jobs, memory = [], []
    for submit in sorted(draw(st.lists(st.integers(0, 60), min_size=5, max_size=30))):
        each = draw(st.integers(0, min(8, node_memory)))
        room = sum(min(cores, node_memory // each if each else cores) for cores in nodes)
        planned = draw(st.integers(1, 20))
        jobs.append(
            Job(
                submit=float(submit),
                work=float(draw(st.integers(1, planned))),
                planned=float(planned),
                cores=draw(st.integers(1, room)),
            )
        )
        memory.append(float(each))
    return jobs, nodes, memory, float(node_memory)


def earliest_fit(
    job: Job,
    each: float,
    now: float,
    owner: np.ndarray[Any, Any],
    state: engine.State,
    memory: Sequence[float],
    node_memory: float,
) -> float:
    """When cores and memory for `job` will be there if those of `owner` end as planned."""
    node_of = state.core["node"]
    rows = np.unique(owner[owner >= 0])
    ends = {int(row): float(state.job["start"][row] + state.job["planned"][row]) for row in rows}
    for when in sorted({now, *ends.values()}):
        room = 0
        for node in range(len(state.node)):
            on = owner[node_of == node]
            left = [int(row) for row in on if row >= 0 and ends[int(row)] > when]
            cores = len(on) - len(left)
            if each > 0:
                cores = min(cores, int((node_memory - sum(memory[row] for row in left)) // each))
            room += cores
        if room >= job.cores:
            return when
    return math.inf


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(deadline=None, max_examples=60)
@given(workload=memory_workloads())
def test_memory_and_cores_are_never_oversubscribed_and_the_head_is_never_delayed(
    scheduler: str, workload: tuple[list[Job], list[int], list[float], float]
) -> None:
    jobs, nodes, memory, node_memory = workload
    state = new_state(jobs, nodes, scheduler=scheduler, memory_per_core=memory, node_memory=node_memory)
    each = np.array([*memory, 0.0])  # the last answers for idle cores
    reserved: dict[int, float] = {}
    while (now := engine.next_event(state)) < math.inf:
        engine.run_until(state, now)
        table, owner = state.job, state.core["owner"].copy()
        for row in np.flatnonzero(table["state"] == engine.RUNNING):
            assert (owner == row).sum() == jobs[row].cores
        assert state.c[engine.FREE] == (owner < 0).sum()
        for node in range(len(nodes)):
            on = owner[state.core["node"] == node]
            assert each[on].sum() <= node_memory
            assert state.node["free"][node] == (on < 0).sum()
            assert state.node["memory_free"][node] == node_memory - each[on].sum()
        waiting = np.flatnonzero(table["state"] == engine.PENDING)
        if scheduler == "easy" and len(waiting):
            head = int(waiting[0])
            backfilled = np.flatnonzero((table["start"] == now) & (np.arange(len(jobs)) > head))
            before = np.where(np.isin(owner, backfilled), -1, owner)
            without = earliest_fit(jobs[head], memory[head], now, before, state, memory, node_memory)
            actual = earliest_fit(jobs[head], memory[head], now, owner, state, memory, node_memory)
            assert without > now  # else it would have started
            assert actual <= without
            assert actual <= reserved.get(head, math.inf)  # nor by any later pass
            reserved[head] = actual
    assert state.c[engine.ENDED] == len(jobs)
    np.testing.assert_array_equal(state.job["end"], state.job["start"] + state.job["work"])
