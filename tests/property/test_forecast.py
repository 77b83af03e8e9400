"""Forecasts of `asax` go the course of the scheduler, and a search over them makes nothing worse."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_scheduler import Job, Simulation

from asad.share.asax.forecast import forecast
from asad.share.asax.options import Options
from asad.share.asax.outlook import Outlook
from asad.share.asax.search import best_pairs

NODE_CORES = 4
POLL_S = 30.0


@st.composite
def outlooks(draw: st.DrawFn, running: int = 3) -> Outlook:
    """Clusters of nodes of four cores: batch jobs hold whole nodes, others wait, nobody is a guest yet."""
    N = draw(st.integers(1, 6))
    free = N
    sizes = []
    for _ in range(running):
        if free > 0:
            sizes.append(draw(st.integers(1, free)))
            free -= sizes[-1]
    R, Q = len(sizes), draw(st.integers(1, 6))
    held = np.zeros((R + Q, N), np.int32)
    first = 0
    for k, nodes in enumerate(sizes):
        held[k, first : first + nodes] = NODE_CORES
        first += nodes
    runs = np.array(draw(st.lists(st.integers(2, 6), min_size=R + Q, max_size=R + Q))) * POLL_S
    over = np.array(draw(st.lists(st.integers(0, 2), min_size=R + Q, max_size=R + Q)))
    waiting = draw(st.lists(st.integers(1, N * NODE_CORES), min_size=Q, max_size=Q))
    cpu = np.array(draw(st.lists(st.sampled_from((0.1, 0.3, 0.5, 0.95)), min_size=R + Q, max_size=R + Q)))
    return Outlook(
        now=0.0,
        overhead=0.93,
        headroom=0.1,
        poll_s=POLL_S,
        rows=np.arange(R + Q, dtype=np.int32),
        run_end=runs[:R],
        run_limit=runs[:R] * (1 + over[:R]),
        wait_run=runs[R:],
        wait_limit=runs[R:] * (1 + over[R:]),
        cores=np.array([*(nodes * NODE_CORES for nodes in sizes), *waiting], np.int64),
        memory=np.zeros(R + Q),
        cpu=cpu,
        guest_left=np.zeros(0),
        guest_cpu=np.zeros(0),
        guest_memory=np.zeros(0),
        guest_share=np.zeros(0),
        held=held,
        taken=np.zeros((Q, N), np.int32),
        node_cores=np.full(N, NODE_CORES, np.int64),
        node_memory=np.full(N, np.nan),
        lends=np.ones(R + Q, np.bool_),
        joins=np.ones(Q, np.bool_),
        group=np.zeros(R + Q, np.int32),
        memory_bound=np.zeros(R + Q, np.bool_),
    )


def played(a: Outlook, beside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    end, slow = np.zeros(len(a.wait_run)), np.zeros(len(a.wait_run))
    forecast(a, beside.astype(np.int32), end, np.zeros(len(a.guest_left)), slow)
    return end, slow


@given(outlooks(running=0))
@settings(max_examples=400, deadline=None)
def test_with_nobody_lent_to_a_forecast_is_what_the_scheduler_does(a: Outlook) -> None:
    jobs = [
        Job(0.0, run, limit, int(cores))
        for run, limit, cores in zip(a.wait_run, a.wait_limit, a.cores, strict=True)
    ]
    reference = Simulation(jobs, int(a.node_cores.sum()), "easy").run()
    end, slow = played(a, np.full(len(jobs), -1))
    assert end.tolist() == [reference.start[row] + job.work for row, job in enumerate(jobs)]
    assert not slow.any()


@given(outlooks(), st.data())
@settings(max_examples=400, deadline=None)
def test_guests_end_and_none_is_faster_than_alone(a: Outlook, data: st.DataObject) -> None:
    R, Q = len(a.run_end), len(a.wait_run)
    beside = np.array([data.draw(st.integers(-1, R + Q - 1)) for _ in range(Q)])
    beside[beside == R + np.arange(Q)] = -1
    end, slow = played(a, beside)
    assert np.isfinite(end).all()
    assert (end >= a.wait_run - 1e-6).all()
    assert (slow >= -1e-6).all()
    assert not slow[beside < 0].any()


@given(outlooks(), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_a_longer_search_finds_nothing_worse_and_serves_every_guest(a: Outlook, seed: int) -> None:
    Q = len(a.wait_run)
    o = Options(scenarios=2)

    def search(restarts: int) -> tuple[float, np.ndarray]:
        beside, alone_end, end = np.zeros(Q, np.int32), np.zeros(Q), np.zeros(Q)
        rng = np.random.default_rng(seed)
        best_pairs(a, np.zeros(len(a.rows)), o._replace(restarts=restarts), rng, beside, alone_end, end)
        real_end, slow = played(a, beside)
        assert np.allclose(real_end, end)
        assert (end < alone_end + o.slack_s).all() or (beside < 0).all()
        assert (slow <= (o.most_stretch - 1) * a.wait_run + 1e-6).all()
        return end.sum() + o.stretch_weight * slow.sum() + o.makespan_weight * end.max(), beside

    short, _ = search(0)
    long, beside = search(20)
    assert long <= short + 1e-6
    hosts = {int(host) for host in beside if host >= 0}
    assert not hosts & {len(a.run_end) + i for i in range(Q) if beside[i] >= 0}, "a guest is nobody's host"
