"""Counterfactual starts: the twin's forecast is EASY itself where run times are known, and never looks ahead."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.replay import engine
from asad.replay.engine.simulation_state import NEXT, NOW, WAITING
from asad.replay.engine.twin import forecast_starts, no_experience

from .test_lending import Case, cases


def state_of(case: Case) -> engine.State:
    """The jobs of a case on its cores, with nobody who lends."""
    jobs = case.workload
    return engine.new_state(
        {
            "submit": jobs.submit_s,
            "work": jobs.work_s,
            "planned": np.maximum(jobs.planned_s, jobs.work_s),
            "limit": np.full(len(jobs), math.inf),
            "cores": jobs.cores,
            "wide": jobs.nodes,
            "memory": np.zeros(len(jobs)),
            "demand": jobs.demand,
            "depends": jobs.depends_on,
            "think": jobs.think_s,
        },
        case.machine.cores,
        np.full(len(case.machine.cores), math.nan),
        scheduler=engine.EASY,
        per_event=False,
        kill=False,
        placed=False,
        use_memory=False,
        poll_s=5.0,
        window_s=5.0,
        mu=(1.0, 1.0, 1.0, 1.0),
    )


@settings(max_examples=150)
@given(case=cases(), part=st.floats(0.0, 1.0))
def test_with_run_times_known_a_forecast_is_what_the_scheduler_does(case: Case, part: float) -> None:
    """All that has come by then counts, and nothing that comes later does: so the log ends there."""
    whole = state_of(case)
    engine.run_until(whole, math.inf)
    span = whole.job["end"].max() - case.workload.submit_s[0]
    when = float(case.workload.submit_s[0] + math.floor(part * span))  # all times are whole seconds
    known = int((case.workload.submit_s <= when).sum())
    log = Case(case.workload.take(np.arange(known)), case.machine, case.use_memory, case.kill, case.seed)
    now, later = state_of(log), state_of(log)
    engine.run_until(now, when)
    engine.run_until(later, math.inf)
    # each job is an application of its own, of which one run of the same length has been seen
    seen = no_experience(np.arange(known, dtype=np.int32))
    seen.runs[:] = 1.0
    seen.run[:] = log.workload.work_s
    starts = np.full(known, np.nan)
    forecast_starts(now, now, seen, known, starts)
    waiting = now.job["state"] == engine.PENDING
    assert waiting.sum() == now.c[WAITING]
    # a job that has run for as long as is expected ends at any moment: nobody can know more
    overdue = (now.job["state"] == engine.RUNNING) & (now.job["start"] + log.workload.work_s <= when)
    if not overdue.any():
        np.testing.assert_array_equal(starts[waiting], later.job["start"][waiting])
    assert (starts[waiting] >= when).all()
    assert np.isnan(starts[~waiting]).all()


@settings(max_examples=50)
@given(case=cases())
def test_who_has_come_since_the_twins_time_waits_in_its_forecast_too(case: Case) -> None:
    behind, ahead = state_of(case), state_of(case)
    engine.run_until(behind, float(case.workload.submit_s[0]))
    engine.run_until(ahead, float(case.workload.submit_s[-1]))
    count = len(case.workload)
    starts = np.full(count, np.nan)
    forecast_starts(behind, ahead, no_experience(np.zeros(count, np.int32)), count, starts)
    come = np.arange(behind.c[NEXT], ahead.c[NEXT])
    assert (starts[come] >= case.workload.submit_s[come]).all()
    waited = starts[~np.isnan(starts)]
    assert (waited >= behind.f[NOW]).all()
