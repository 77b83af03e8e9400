"""Admission on the compiled scheduler: against the plain one, and what must hold whatever is decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.replay import engine

from .reference_scheduler import Act, Job, Simulation
from .test_engine import SCHEDULERS, never_too_much, new_state, run, uneven, workloads

KINDS = ("admit", "defer", "start", "throttle")


@st.composite
def decided(
    draw: st.DrawFn, most_jobs: int = 40, dependent: bool = True
) -> tuple[list[Job], int, list[int], list[Act]]:
    """Jobs, the cores of the machine, the array of each job, and decisions in order of time."""
    jobs, total = draw(workloads(most_jobs=most_jobs, dependent=dependent))
    # tasks of an array arrive in the order of their rows: none waits for another job
    array = [draw(st.integers(-1, 1)) if job.depends < 0 else -1 for job in jobs]
    step = draw(st.sampled_from([0.125, 1.0, 3.0]))
    acts = []
    for _ in range(draw(st.integers(1, 20))):
        row = draw(st.integers(0, len(jobs) - 1))
        # soon after somebody has come: most of them still wait then
        time = jobs[row].submit + draw(st.integers(0, 8)) * step
        kind, value = draw(st.sampled_from(KINDS)), float(draw(st.sampled_from([0, 1, 1, 2, 2, 3])))
        if kind == "defer":
            value = time + draw(st.integers(1, 20)) * step
        acts.append(Act(time, kind, row, value))
    return jobs, total, array, sorted(acts, key=lambda act: act.time)


def obey(state: engine.State, act: Act) -> int:
    """Inform the compiled scheduler."""
    unused = np.zeros(len(state.job))
    if act.kind == "admit":
        return int(engine.admit(state, act.row))
    if act.kind == "defer":
        return int(engine.defer(state, act.row, act.value, unused))
    if act.kind == "start":
        return int(engine.undefer(state, act.row))
    return int(engine.throttle(state, act.row, int(act.value), unused))


def play(state: engine.State, acts: Sequence[Act]) -> engine.State:
    """Run to the end, with decisions at their moments."""
    for time, together in groupby(acts, key=lambda act: act.time):
        engine.run_until(state, time)
        for act in together:
            obey(state, act)
            consistent(state)
    return run(state)


def consistent(state: engine.State) -> None:
    """Counters and lists show what the states of the jobs show."""
    seen, task = state.job["state"], state.task
    queued = [int(row) for row in state.queue["job"][state.queue["cores"] < engine.NOBODY]]
    assert sorted(queued) == np.flatnonzero(seen == engine.PENDING).tolist()
    assert state.c[engine.WAITING] == len(queued)
    assert state.c[engine.ASIDE] == (seen == engine.WITHHELD).sum()
    if queued:
        assert state.queue["job"][state.c[engine.HEAD]] == queued[0]
    admitted = task["admitted"][task["lead"][queued]].tolist()
    assert admitted == sorted(admitted, reverse=True)
    for number in range(task["array"].max(initial=-1) + 1):
        row = task[number]
        mine = np.flatnonzero(task["array"] == number)
        waiting = mine[(seen[mine] == engine.PENDING) | (seen[mine] == engine.WITHHELD)]
        assert row["waiting_row"] == (waiting[0] if len(waiting) else -1)
        assert row["waiting"] == len(waiting)
        assert row["running"] == (seen[mine] == engine.RUNNING).sum()
        assert row["ended"] == (seen[mine] == engine.DONE).sum()
        assert row["shown"] == (seen[mine] == engine.PENDING).sum()


@pytest.mark.slow
@pytest.mark.parametrize("per_event", [False, True], ids=["per-timestamp", "per-event"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(deadline=None, max_examples=120)
@given(case=decided())
def test_starts_are_those_of_the_definition(
    scheduler: str, per_event: bool, case: tuple[list[Job], int, list[int], list[Act]]
) -> None:
    jobs, total, array, acts = case
    expected = Simulation(jobs, total, scheduler, per_event, array=array, acts=acts).run()
    state = play(new_state(jobs, [total], scheduler=scheduler, per_event=per_event, array=array), acts)
    assert state.job["start"].tolist() == [expected.start[row] for row in range(len(jobs))]
    never_too_much(jobs, state.job["start"].tolist(), state.job["end"].tolist(), total)
    assert state.c[engine.ASIDE] == 0
    ended = state.task["ended"][: max(array) + 1]
    assert ended.sum() == sum(number >= 0 for number in array)


@settings(deadline=None, max_examples=60)
@given(case=decided(), scheduler=st.sampled_from(list(SCHEDULERS)))
def test_placement_decides_nothing_and_every_core_is_returned(
    case: tuple[list[Job], int, list[int], list[Act]], scheduler: str
) -> None:
    jobs, total, array, acts = case
    plain = play(new_state(jobs, [total], scheduler=scheduler, array=array), acts)
    placed = play(new_state(jobs, uneven(total), scheduler=scheduler, array=array, placed=True), acts)
    assert placed.job["start"].tolist() == plain.job["start"].tolist()
    assert (placed.core["owner"] == -1).all()


@settings(deadline=None, max_examples=60)
@given(case=decided(), scheduler=st.sampled_from(list(SCHEDULERS)), per_event=st.booleans())
def test_what_may_be_decided_costs_nothing_where_nothing_is(
    case: tuple[list[Job], int, list[int], list[Act]], scheduler: str, per_event: bool
) -> None:
    jobs, total, array, _ = case
    without = run(new_state(jobs, [total], scheduler=scheduler, per_event=per_event))
    free = run(new_state(jobs, [total], scheduler=scheduler, per_event=per_event, array=array))
    assert free.job["start"].tolist() == without.job["start"].tolist()
    assert len(without.task) == 0


@settings(deadline=None, max_examples=80)
@given(case=decided(), scheduler=st.sampled_from(list(SCHEDULERS)))
def test_deferrals_and_throttles_bind_from_the_moment_they_are_decided(
    case: tuple[list[Job], int, list[int], list[Act]], scheduler: str
) -> None:
    jobs, total, array, acts = case
    state = new_state(jobs, [total], scheduler=scheduler, array=array)
    lead, seen = state.task["lead"], state.job["state"]
    until: dict[int, float] = {}
    throttle: dict[int, float] = {}
    for at, act in enumerate(acts):
        engine.run_until(state, act.time)
        before = seen.copy()
        refused = obey(state, act)
        if not refused and act.kind == "defer":
            until[lead[act.row]] = act.value
        elif not refused and act.kind == "start":
            until.pop(lead[act.row], None)
        elif not refused and act.kind == "throttle":
            throttle[lead[act.row]] = act.value
        following = acts[at + 1].time if at + 1 < len(acts) else math.inf
        while (now := engine.next_event(state)) <= following and now < math.inf:
            engine.run_until(state, now)
            started = np.flatnonzero((seen == engine.RUNNING) & (before != engine.RUNNING))
            for row in started[state.job["start"][started] >= act.time].tolist():
                assert not state.job["start"][row] < until.get(lead[row], -math.inf)
                most = throttle.get(lead[row], 0)
                if most:
                    assert ((seen == engine.RUNNING) & (lead == lead[row])).sum() <= most
            before = seen.copy()
            consistent(state)
    run(state)
