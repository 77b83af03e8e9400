"""Deferral: packing, and the compiled world against plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from deferral_reference import Job, jobs_of, made_up, reference
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.defer.deferral_options import PACKINGS, Packing
from asad.defer.features import Weighted
from asad.defer.jobs import Scorer, Waiting, Worth
from asad.defer.packing import pack, starts
from asad.defer.scorers import make_scorer
from asad.model import Floats, Ints
from asad_papers.osdec.environment import World, play

scores = st.lists(
    st.one_of(st.floats(-10, 10), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0])), max_size=30
)


def wide(many: int, seed: int) -> Ints:
    return np.random.default_rng(seed).integers(1, 9, many).astype(np.int32)


@settings(max_examples=300, deadline=None)
@given(scores, st.integers(0, 2**32), st.floats(-5, 60))
def test_packing_never_exceeds_what_is_free(text: list[float], seed: int, free: float) -> None:
    cores = wide(len(text), seed)
    given_scores = np.array(text, np.float64)
    prefix = pack(given_scores, cores, free, False)
    skip_fit = pack(given_scores, cores, free, True)
    held = ~(given_scores > -np.inf)
    for found in (prefix, skip_fit):
        assert cores[found].sum() <= max(0.0, free)
        assert not (found & held).any()
    # a prefix: nobody starts behind one of higher score who does not
    order = [i for i in range(len(text)) if not held[i]]  # NaN has no place in an order
    order.sort(key=lambda i: -text[i])
    assert [bool(prefix[i]) for i in order] == sorted((bool(prefix[i]) for i in order), reverse=True)
    # skip-fit goes on where a prefix ends, and whoever it leaves would not have fitted
    assert (skip_fit >= prefix).all()
    assert cores[skip_fit].sum() >= cores[prefix].sum()
    left = free
    for i in order:
        assert bool(skip_fit[i]) == (cores[i] <= left)
        left -= cores[i] * skip_fit[i]


def test_of_equal_scores_the_earlier_row_starts() -> None:
    cores = np.full(4, 2, np.int32)
    assert pack(np.zeros(4), cores, 5.0, True).tolist() == [True, True, False, False]
    assert pack(np.array([0.0, 1.0, 1.0, 0.0]), cores, 5.0, False).tolist() == [False, True, True, False]


class Plain:
    """As a policy by hand, but not known as a weighted sum: it is asked view by view."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.name = scorer, scorer.name

    def score(self, waiting: Waiting) -> Floats:
        return self.scorer.score(waiting)


BY_HAND = {
    "fifo": lambda job, t, free: t - job[4],
    "sjf": lambda job, t, free: -job[1],
    "edf": lambda job, t, free: t - job[3],
    "biggest": lambda job, t, free: job[0] * job[1],
    "tetris": lambda job, t, free: job[0] - job[1] / 4,
}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(BY_HAND)),
    st.sampled_from(PACKINGS),
    st.sampled_from([0, 1]),
    st.floats(0, 3),
    st.floats(0, 12),
)
def test_the_compiled_world_is_the_plain_one_job_for_job(
    seed: int, name: str, packing: Packing, span: int, delay: float, violation: float
) -> None:
    trajectories, worth = made_up(seed), Worth(delay, violation)
    compiled = play(trajectories, make_scorer(name), packing, span)
    asked = play(trajectories, Plain(make_scorer(name)), packing, span)
    totals = compiled.gains.total(worth)
    for number in range(len(trajectories)):
        total, begun = reference(
            jobs_of(trajectories, number),
            trajectories.capacity[number].tolist(),
            BY_HAND[name],
            packing == "skip-fit",
            worth,
            span,
        )
        mine = slice(trajectories.first[number], trajectories.first[number + 1])
        for run in (compiled, asked):
            assert [s if s >= 0 else None for s in run.started[mine].tolist()] == begun
        assert totals[number] == pytest.approx(total, abs=1e-9)
    assert np.array_equal(compiled.held, asked.held)


def anything(seed: int) -> Scorer:
    """Scores of no sense, with what is no number among them."""
    rng = np.random.default_rng(seed)

    class Anything:
        name = "anything"

        def score(self, waiting: Waiting) -> Floats:
            return rng.choice([np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300], len(waiting))

    return Anything()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(PACKINGS))
def test_whatever_the_scores_no_decision_exceeds_the_capacity(seed: int, packing: Packing) -> None:
    trajectories = made_up(seed)
    found = play(trajectories, anything(seed), packing)
    held, capacity, started = found.held, trajectories.capacity, found.started
    for number in range(len(trajectories)):
        mine = slice(trajectories.first[number], trajectories.first[number + 1])
        for t in set(started[mine][started[mine] >= 0].tolist()):
            assert held[number, t] <= capacity[number, t]
        begun = started[mine] >= 0
        assert (started[mine][begun] >= trajectories.earliest[mine][begun]).all()
        assert (started[mine][begun] <= trajectories.latest[mine][begun]).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_a_view_shows_what_the_world_holds_and_nothing_later(seed: int) -> None:
    trajectories, other = made_up(seed), made_up(seed)
    world, blind = World(trajectories), World(other)
    policy = Weighted()
    policy.weights = np.array([0.3, -0.1, 0.01, -1.0, 0.2, 0.05, 0.4, 0.02])
    while not world.done:
        scores = world.weighted(policy.weights)
        # capacity that is still to come may be anything
        other.capacity[:, world.now + 1 :] = 1e3
        for b in range(len(trajectories)):
            seen, also = world.view(b), blind.view(b)
            assert seen.free == world.free[b]
            assert seen.capacity == trajectories.capacity[b, world.now]
            rest = trajectories.steps - world.now
            assert seen.held(30)[:rest] == pytest.approx(world.held[b, world.now : world.now + 30][:rest])
            assert (seen.submitted <= seen.now).all()
            assert (seen.latest >= seen.now).all()
            assert len(seen.history) == world.now + 1
            assert policy.score(seen) == pytest.approx(scores[b, : len(seen)])
            assert np.array_equal(starts(policy, seen), starts(policy, also))
        gains = world.step(scores)
        blind.step(scores)
        other.capacity[:] = trajectories.capacity
        for b in range(len(trajectories)):
            past = world.past(b)
            assert len(past.capacity) == world.now
            assert gains.violation[b] == pytest.approx(max(0.0, past.held[-1] - past.capacity[-1]))


def test_the_reference_itself() -> None:
    # C = 4, 4, 1: a of 3 cores runs two steps, b of 2 never fits beside it
    jobs: list[Job] = [(3, 2, 0, 2, 0), (2, 2, 0, 2, 0)]
    total, begun = reference(jobs, [4, 4, 1], lambda job, t, free: job[0], True, Worth(0.5, 1.0))
    assert begun == [0, None]
    assert total == 6.0
    total, begun = reference(jobs, [4, 4, 1], lambda job, t, free: -job[0], True, Worth(0.5, 1.0))
    assert begun == [None, 0]
    assert total == 4.0
    # as printed both hold a third step, and violate by 4
    total, begun = reference(jobs, [5, 5, 1], lambda job, t, free: job[0], True, Worth(0.5, 1.0), span=1)
    assert begun == [0, 0]
    assert total == 6.0 + 4.0 - 4.0
    # c of 1 waits a step for a, at a cost
    total, begun = reference(
        [(3, 1, 0, 0, 0), (1, 1, 0, 1, 0)], [3, 3], lambda job, t, free: job[0], True, Worth()
    )
    assert begun == [0, 1]
    assert total == pytest.approx(3.0 + 1.0 - 0.3)
