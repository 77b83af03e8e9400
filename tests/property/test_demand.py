"""What asad believes of jobs' demand, when it is off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from asad.model import Floats
from asad.replay.cpu_demand import LEAST, believed


@dataclass(frozen=True)
class Jobs:
    """Some jobs' true demand, and their applications."""

    fraction: Floats
    fingerprint: NDArray[np.int32]


@st.composite
def jobs(draw: st.DrawFn, least: float = LEAST, most: float = 1.0) -> Jobs:
    applications = draw(st.lists(st.integers(-1, 12), max_size=40))
    size = len(applications)
    fraction = draw(st.lists(st.floats(least, most), min_size=size, max_size=size))
    return Jobs(np.array(fraction, float), np.array(applications, np.int32))


ERROR = st.floats(0.0, 1.5)
SEED = st.integers(0, 2**32)


@given(jobs(), ERROR, SEED)
def test_belief_is_a_demand_and_off_by_no_more_than_the_error(some: Jobs, error: float, seed: int) -> None:
    before = some.fraction.copy()
    found = believed(some.fraction, some.fingerprint, error, seed)
    assert found.shape == some.fraction.shape
    assert (some.fraction == before).all()
    assert ((found >= LEAST) & (found <= 1.0)).all()
    assert (np.abs(found - some.fraction) <= error * some.fraction + 1e-12).all()


@given(jobs(), SEED)
def test_without_error_belief_is_the_truth(some: Jobs, seed: int) -> None:
    assert (believed(some.fraction, some.fingerprint, 0.0, seed) == some.fraction).all()


@given(jobs(), ERROR, SEED)
def test_the_same_seed_gives_the_same_belief(some: Jobs, error: float, seed: int) -> None:
    first, again = (believed(some.fraction, some.fingerprint, error, seed) for _ in range(2))
    assert (first == again).all()


@given(jobs(0.1, 0.4), st.floats(0.0, 0.5), SEED)
def test_jobs_of_an_application_are_misjudged_alike(some: Jobs, error: float, seed: int) -> None:
    factor = believed(some.fraction, some.fingerprint, error, seed) / some.fraction
    for application in np.unique(some.fingerprint):
        own = factor[some.fingerprint == application]
        assert own == pytest.approx(own[0])
    twice = believed(some.fraction, some.fingerprint, 2 * error, seed) / some.fraction
    inside = (twice * some.fraction > LEAST) & (twice * some.fraction < 1.0)
    assert (twice - 1)[inside] == pytest.approx(2 * (factor - 1)[inside], abs=1e-9)


@given(jobs(), ERROR, SEED, st.data())
def test_what_else_is_in_the_log_changes_nothing(
    some: Jobs, error: float, seed: int, data: st.DataObject
) -> None:
    whole = believed(some.fraction, some.fingerprint, error, seed)
    rows = data.draw(st.permutations(range(len(whole))))[: data.draw(st.integers(0, len(whole)))]
    part = believed(some.fraction[rows], some.fingerprint[rows], error, seed)
    assert (part == whole[rows]).all()


def test_applications_are_misjudged_by_chance_in_both_directions() -> None:
    codes = np.arange(4000, dtype=np.int32)
    off = believed(np.full(4000, 0.5), codes, 0.2, 1) / 0.5 - 1
    assert abs(off.mean()) < 0.01
    assert off.std() == pytest.approx(0.2 / np.sqrt(3), rel=0.05)
    assert (off.min(), off.max()) == (pytest.approx(-0.2, abs=0.001), pytest.approx(0.2, abs=0.001))
    other = believed(np.full(4000, 0.5), codes, 0.2, 2) / 0.5 - 1
    assert abs(np.corrcoef(off, other)[0, 1]) < 0.1
