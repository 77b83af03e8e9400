"""The projection of OgaSched: what a quadratic program says, whatever binds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from port_samples import many_ports, random_ports
from scipy.optimize import minimize

from asad.model import Floats
from asad.place.ports import Ports
from asad.place.projection import project, project_all


def by_breakpoints(z: Floats, most: Floats, capacity: float) -> Floats:
    """The projection of one (r, k) by another way: all breakpoints sorted, the piece found, the line solved."""
    kept = np.clip(z, 0.0, most)
    if kept.sum() <= capacity:
        return kept
    marks = np.unique(np.concatenate([z, z - most, [0.0]]))
    sums = np.array([np.clip(z - mark, 0.0, most).sum() for mark in marks])
    right = int(np.flatnonzero(sums <= capacity)[0])
    left = right - 1
    part = (sums[left] - capacity) / (sums[left] - sums[right])
    return np.clip(z - (marks[left] + part * (marks[right] - marks[left])), 0.0, most)


def reference(ports: Ports, z: Floats) -> Floats:
    y = np.zeros_like(z)
    for r in range(len(ports.capacities)):
        rows = slice(ports.first[r], ports.first[r + 1])
        for k in range(z.shape[1]):
            if rows.stop > rows.start:
                y[rows, k] = by_breakpoints(z[rows, k], ports.caps[rows, k], ports.capacities[r, k])
    return y


def points(ports: Ports, seed: int, spread: float) -> Floats:
    return np.random.default_rng(seed).normal(0.5, spread, (ports.edges, ports.requests.shape[1]))


@settings(max_examples=300, deadline=None)
@given(many_ports, st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 10.0, 1e4]))
def test_it_is_what_the_sorted_breakpoints_say(ports: Ports, seed: int, spread: float) -> None:
    z = points(ports, seed, spread)
    assert project(ports, z) == pytest.approx(reference(ports, z), abs=1e-9)


@pytest.mark.parametrize("tight", [0.05, 0.5, 4.0], ids=["caps bind", "both bind", "capacities bind"])
@pytest.mark.parametrize("seed", range(15))
def test_it_is_what_a_quadratic_program_says(seed: int, tight: float) -> None:
    ports = random_ports(seed, ports=4, instances=1, resources=1, tight=tight, zeros=False)
    z = points(ports, seed, 2.0)[:, 0]
    most, capacity = ports.caps[:, 0], float(ports.capacities[0, 0])
    if not len(z):
        return
    found = minimize(
        lambda y: ((y - z) ** 2).sum(),
        np.clip(z, 0, most) * min(1.0, capacity / max(1e-9, np.clip(z, 0, most).sum())),
        jac=lambda y: 2 * (y - z),
        bounds=list(zip(np.zeros_like(most), most, strict=True)),
        constraints={"type": "ineq", "fun": lambda y: capacity - y.sum(), "jac": lambda y: -np.ones_like(y)},
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 500},
    )
    ours = project(ports, z[:, None])[:, 0]
    assert ((ours - z) ** 2).sum() <= found.fun + 1e-9
    assert ours == pytest.approx(found.x, abs=1e-6)  # as near as SLSQP comes
    # and by the conditions of Karush, Kuhn and Tucker, which leave no doubt: one τ for all that are between
    moved = z - ours
    between = (ours > 1e-12) & (ours < most - 1e-12)
    tau = moved[between].mean() if between.any() else max(0.0, moved[ours <= 1e-12].min(initial=np.inf))
    if between.any():
        assert moved[between] == pytest.approx(np.full(between.sum(), tau), abs=1e-9)
        assert tau >= -1e-9
        assert (moved[ours >= most - 1e-12] >= tau - 1e-9).all()
        assert (moved[ours <= 1e-12] <= tau + 1e-9).all()
        assert tau * (capacity - ours.sum()) == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(many_ports, st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 100.0]))
def test_it_is_feasible_idempotent_and_no_expansion(ports: Ports, seed: int, spread: float) -> None:
    z, other = points(ports, seed, spread), points(ports, seed + 1, spread)
    y, beside = project(ports, z), project(ports, other)
    assert ports.violation(y) <= 1e-12
    assert (project(ports, y) == y).all()
    assert np.linalg.norm(y - beside) <= np.linalg.norm(z - other) * (1 + 1e-12) + 1e-12


@settings(max_examples=200, deadline=None)
@given(many_ports, st.integers(0, 2**32), st.floats(0.0, 1e6))
def test_where_it_looks_first_does_not_matter(ports: Ports, seed: int, guess: float) -> None:
    z = points(ports, seed, 3.0)
    warm = np.array(z)
    tau = np.full_like(ports.capacities, guess)
    project_all(ports.first, ports.port, ports.requests, ports.capacities, warm, tau)
    assert warm == pytest.approx(project(ports, z), abs=1e-9)


def test_all_ports_alike_share_evenly() -> None:
    ports = Ports.of(np.full((4, 1), 9.0), np.array([[2.0]]), np.ones((4, 1), np.bool_))
    assert project(ports, np.full((4, 1), 5.0)) == pytest.approx(np.full((4, 1), 0.5))


def test_another_cap_than_the_first_may_bind() -> None:
    # Algorithm 1 as printed tests only its first port: the second is the one that is capped here
    ports = Ports.of(np.array([[4.0], [1.0]]), np.array([[3.0]]), np.ones((2, 1), np.bool_))
    assert project(ports, np.array([[2.9], [2.8]])) == pytest.approx(np.array([[2.0], [1.0]]))


def test_slack_is_left() -> None:
    ports = Ports.of(np.array([[1.0], [1.0]]), np.array([[9.0]]), np.ones((2, 1), np.bool_))
    assert project(ports, np.array([[0.5], [7.0]])).tolist() == [[0.5], [1.0]]
