"""OgaSched: gradients, the regret bound (41), what modes promise, gangs, and the best fixed allocation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from port_samples import arrivals, many_ports, random_ports
from scipy.optimize import minimize

from asad.errors import UsageError
from asad.model import Floats
from asad.place.binpack import BinPack
from asad.place.drf import Drf
from asad.place.fairness import Fairness, fair
from asad.place.oga import MODES, Mode, Oga, Options, default_eta, gradient
from asad.place.ports import Copies, Ports
from asad.place.spread import Spread
from asad.place.utilities import FORMS, curvature, gain, slope, taken_at
from asad_papers.oga.best_fixed import best_fixed
from asad_papers.oga.port_gangs import GangOga, Gangs
from asad_papers.oga.regret import regret_bound, step_size

seeds = st.integers(0, 2**32)


# -------------------------------------------------------------------------------------------- utilities, gradient


@pytest.mark.parametrize("form", range(len(FORMS)), ids=FORMS)
@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.5])
@pytest.mark.parametrize("y", [0.0, 0.01, 1.0, 37.0])
def test_derivatives_are_those_of_the_utility(form: int, alpha: float, y: float) -> None:
    h = 1e-6 * (1 + y)
    assert gain(form, alpha, 0.0) == 0.0
    assert slope(form, alpha, y + h) == pytest.approx(
        (gain(form, alpha, y + 2 * h) - gain(form, alpha, y)) / (2 * h), rel=1e-4, abs=1e-9
    )
    assert curvature(form, alpha, y + h) == pytest.approx(
        (slope(form, alpha, y + 2 * h) - slope(form, alpha, y)) / (2 * h), rel=1e-4, abs=1e-9
    )


@pytest.mark.parametrize("form", range(len(FORMS)), ids=FORMS)
@pytest.mark.parametrize("price", [0.0, 0.05, 0.4, 3.0])
def test_what_is_taken_at_a_price_is_worth_most(form: int, price: float) -> None:
    best = taken_at(form, 1.3, price, 8.0)
    others = np.linspace(0, 8, 4001)
    worth = np.array([gain(form, 1.3, y) - price * y for y in others])
    assert gain(form, 1.3, best) - price * best >= worth.max() - 1e-9


def test_the_printed_reciprocal_is_the_scale_one() -> None:
    assert gain(FORMS.index("reciprocal"), 1.25, 2.0) == pytest.approx(1 / 1.25 - 1 / (2.0 + 1.25))


@settings(max_examples=100, deadline=None)
@given(many_ports, seeds)
def test_the_gradient_is_that_of_the_reward(ports: Ports, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = arrivals(seed, len(ports.requests), 1)[0]
    y = rng.uniform(0.05, 1.0, (ports.edges, ports.requests.shape[1]))
    totals = np.zeros_like(ports.requests)
    np.add.at(totals, ports.port, y)
    worst = np.sort(ports.beta * totals, axis=1)
    if worst.shape[1] > 1 and ((worst[:, -1] - worst[:, -2]) < 1e-3).any():
        return  # a kink: any of several subgradients is one
    found = gradient(ports, y, x)
    for _ in range(5):
        along = rng.normal(size=y.shape)
        h = 1e-6
        numeric = (ports.reward(y + h * along, x) - ports.reward(y - h * along, x)) / (2 * h)
        assert float((found * along).sum()) == pytest.approx(numeric, rel=1e-5, abs=1e-5)


@settings(max_examples=100, deadline=None)
@given(many_ports, seeds)
def test_a_step_is_the_projected_gradient(ports: Ports, seed: int) -> None:
    from asad.place.projection import project

    oga = Oga(ports, "strict", Options(eta=0.3, decay=0.9))
    y = oga.play()
    assert (y == fair(ports, np.ones(len(ports.requests)))).all()  # y(1) = Fairness
    for slot, x in enumerate(arrivals(seed, len(ports.requests), 6)):
        expected = project(ports, y + 0.3 * 0.9**slot * gradient(ports, y, x))
        oga.observe(x)
        assert oga.play() == pytest.approx(expected, abs=1e-9)
        y = oga.play()


# ----------------------------------------------------------------------------------------------------- promises


@settings(max_examples=80, deadline=None)
@given(many_ports, seeds, st.sampled_from(MODES), st.sampled_from([None, 0.01, 1.0, 50.0]))
def test_no_allocation_breaks_a_constraint(ports: Ports, seed: int, mode: Mode, eta: float | None) -> None:
    oga = Oga(ports, mode, Options(eta=eta))
    for x in arrivals(seed, len(ports.requests), 25):
        y = oga.allot(x)
        assert ports.violation(y) <= 1e-12
        if mode == "reclaim":
            assert not y[x[ports.port] == 0].any()


@settings(max_examples=60, deadline=None)
@given(many_ports, seeds)
def test_no_baseline_breaks_a_constraint_or_serves_the_absent(ports: Ports, seed: int) -> None:
    for policy in (Fairness(ports), Drf(ports), BinPack(ports), Spread(ports)):
        for x in arrivals(seed, len(ports.requests), 5):
            y = policy.allot(x)
            assert ports.violation(y) <= 1e-12, policy.name
            assert not y[x[ports.port] == 0].any(), policy.name


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 60), st.sampled_from([0.2, 0.7, 1.0]))
def test_regret_is_within_the_bound_of_theorem_1(seed: int, slots: int, probability: float) -> None:
    ports = random_ports(seed, ports=4, instances=4, resources=3)
    if not ports.edges:
        return
    x = arrivals(seed, 4, slots, probability)
    oga = Oga(ports, "strict", Options(eta=step_size(ports, slots), decay=1.0))
    reached = sum(ports.reward(oga.allot(row), row) for row in x)
    best = best_fixed(ports, x.mean(axis=0)).bound * slots
    assert best - reached <= regret_bound(ports, slots) + 1e-6


def test_regret_a_slot_falls_with_the_horizon() -> None:
    ports = random_ports(3, ports=6, instances=12, zeros=False)

    def regret(slots: int) -> float:
        x = arrivals(1, 6, slots)
        oga = Oga(ports, "strict", Options(eta=0.05 * step_size(ports, slots), decay=1.0))
        reached = sum(ports.reward(oga.allot(row), row) for row in x) / slots
        return best_fixed(ports, x.mean(axis=0)).reward - reached

    assert regret(4000) < 0.5 * regret(100)


def test_linear_utilities_leave_strict_nothing_to_gain_over_fairness() -> None:
    # what is kept for a port that does not come is lost, and fairness keeps nothing
    for seed in range(5):
        ports = random_ports(seed, ports=5, instances=10, tight=4.0, form="linear", zeros=False)
        ports = Ports.of(
            ports.requests, ports.capacities, ports.dense(np.ones((ports.edges, 3)))[..., 0] > 0, alpha=1.2
        )
        x = arrivals(seed, 5, 300)
        best = best_fixed(ports, x.mean(axis=0)).bound
        fairness = np.mean([ports.reward(Fairness(ports).allot(row), row) for row in x])
        assert best <= fairness + 1e-6


# ---------------------------------------------------------------------------------------- best fixed allocation


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(many_ports, seeds)
def test_the_best_fixed_allocation_is_feasible_proven_and_beaten_by_none(ports: Ports, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.random(len(ports.requests)) * (rng.random(len(ports.requests)) < 0.9)
    best = best_fixed(ports, weights)
    assert ports.violation(best.y) <= 1e-12
    assert best.reward == pytest.approx(ports.reward(best.y, weights))
    assert best.reward <= best.bound + 1e-9
    assert best.bound - best.reward <= 1e-4 * max(1.0, best.reward)
    oga = Oga(ports, "strict", Options(eta=0.5, decay=0.99))
    for _ in range(60):
        assert ports.reward(oga.play(), weights) <= best.bound + 1e-9
        oga.observe(weights)


@pytest.mark.parametrize("seed", range(6))
def test_a_solver_that_knows_nothing_of_ours_finds_no_better(seed: int) -> None:
    ports = random_ports(seed, ports=3, instances=3, resources=2)
    weights = np.array([0.9, 0.5, 0.2])
    size = ports.edges * 2
    caps = ports.caps.ravel()

    def worth(v: Floats) -> float:
        totals = np.zeros((3, 2))
        np.add.at(totals, ports.port, v[:size].reshape(-1, 2))
        x = np.ones(3)
        gains = 0.0
        for e in range(ports.edges):
            r = ports.instance[e]
            for k in range(2):
                gains += weights[ports.port[e]] * gain(ports.form[r, k], ports.alpha[r, k], v[2 * e + k])
        return -(gains - float(weights @ (x * v[size:])))

    def packages(v: Floats) -> Floats:
        y = v[:size].reshape(-1, 2)
        totals, held = np.zeros((3, 2)), np.zeros((3, 2))
        np.add.at(totals, ports.port, y)
        np.add.at(held, ports.instance, y)
        return np.concatenate(
            [(ports.capacities - held).ravel(), (v[size:, None] - ports.beta * totals).ravel()]
        )

    start = fair(ports, np.ones(3)).ravel() * 0.5
    found = minimize(
        worth, np.concatenate([start, np.full(3, 5.0)]), bounds=[(0, cap) for cap in caps] + [(0, None)] * 3,
        constraints={"type": "ineq", "fun": packages}, method="SLSQP", options={"maxiter": 500, "ftol": 1e-12},
    )  # fmt: skip
    best = best_fixed(ports, weights)
    assert best.bound >= -found.fun - 1e-6
    assert best.reward == pytest.approx(-found.fun, abs=1e-4)


# ------------------------------------------------------------------------------- several arrivals (3.4), gangs (3.5)


def test_several_arrivals_are_several_ports() -> None:
    ports = random_ports(1, ports=3, instances=4)
    copies = Copies.make(ports, np.array([1, 3, 2], np.int32))
    assert copies.of.tolist() == [0, 1, 1, 1, 2, 2]
    assert copies.arrivals(np.array([1.0, 2.0, 0.0])).tolist() == [1, 1, 1, 0, 0, 0]
    assert (copies.ports.requests == ports.requests[copies.of]).all()
    oga = Oga(copies.ports, "reclaim")
    for counts in np.random.default_rng(0).integers(0, 4, (20, 3)):
        assert copies.ports.violation(oga.allot(copies.arrivals(np.minimum(counts, [1, 3, 2])))) <= 1e-12
    with pytest.raises(UsageError, match="each 1 or more"):
        Copies.make(ports, np.array([1, 0, 2], np.int32))


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 3), st.sampled_from(MODES))
def test_gangs_run_with_their_least_number_or_not_at_all(
    seed: int, enough: float, least: int, mode: Mode
) -> None:
    rng = np.random.default_rng(seed)
    ports = random_ports(seed, ports=4, instances=5, resources=2)
    components = [rng.uniform(0.1, 1.5, (3, 2)) for _ in range(4)]
    gangs = Gangs.of(ports, components, np.full(4, least, np.int32), enough)
    policy = GangOga(gangs, mode)
    for x in arrivals(seed, 4, 12):
        y = policy.allot(x)
        assert gangs.ports.violation(y) <= 1e-12
        for port, edges in enumerate(gangs.own):
            dealt = gangs.deal(port, y[edges])
            running = dealt.sum(axis=(1, 2)) > 0
            assert not y[edges].any() or running.sum() >= least
            assert (dealt.sum(axis=0) <= y[edges] + 1e-9).all()
            assert (dealt <= components[port][:, None, :] + 1e-9).all()
            totals = dealt.sum(axis=1)
            assert (totals[running] >= gangs.needs[port][running] * (1 - 1e-9)).all()


def test_the_regret_of_gangs_is_measured_against_their_relaxation() -> None:
    ports = random_ports(5, ports=4, instances=8, zeros=False)
    parts = [np.repeat(row[None, :] / 4, 4, axis=0) for row in ports.requests]
    x = arrivals(2, 4, 400)
    regrets = []
    for least, enough in ((1, 0.0), (4, 1.0)):
        gangs = Gangs.of(ports, parts, np.full(4, least, np.int32), enough)
        policy = GangOga(gangs, "strict")
        reached = np.mean([gangs.ports.reward(policy.allot(row), row) for row in x])
        best = best_fixed(gangs.ports, x.mean(axis=0))
        regrets.append((best.reward - reached) / best.reward)
    assert 0 < regrets[0] < 0.1  # something of anything: as without gangs
    assert regrets[1] < 1.0
    assert regrets[1] >= regrets[0] - 1e-3  # all or nothing costs


def test_gangs_that_cannot_be_are_refused() -> None:
    ports = random_ports(0, ports=1, instances=2, resources=2)
    with pytest.raises(UsageError, match="port '0' needs 3 of 2 components; give 1 to all"):
        Gangs.of(ports, [np.ones((2, 2))], np.array([3], np.int32))


# ------------------------------------------------------------------------------------ coming and going, and state


def renamed(ports: Ports, keep: list[int], instances: list[int]) -> Ports:
    adjacent = np.zeros((len(ports.requests), len(ports.capacities)), np.bool_)
    adjacent[ports.port, ports.instance] = True
    return Ports.of(
        ports.requests[keep], ports.capacities[instances], adjacent[np.ix_(keep, instances)],
        alpha=ports.alpha[instances], form=ports.form[instances], beta=ports.beta,
        names=[ports.names[one] for one in keep], instances=[ports.instances[one] for one in instances],
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(seeds, st.sampled_from(MODES))
def test_what_was_learned_stays_with_those_that_stay(seed: int, mode: Mode) -> None:
    ports = random_ports(seed, ports=5, instances=6)
    oga = Oga(ports, mode)
    for x in arrivals(seed, 5, 10):
        oga.observe(x)
    before = ports.dense(np.array(oga._y))
    smaller = renamed(ports, [4, 0, 2], [5, 1, 3, 0])
    oga.resize(smaller)
    assert smaller.violation(oga.play()) <= 1e-12
    after = smaller.dense(np.array(oga._y))
    # whoever leaves makes room, so nobody who stays has to give any up
    assert after == pytest.approx(before[np.ix_([4, 0, 2], [5, 1, 3, 0])], abs=1e-12)
    oga.resize(ports)
    assert ports.violation(oga.play()) <= 1e-12


@settings(max_examples=40, deadline=None)
@given(seeds, st.sampled_from(MODES))
def test_a_restart_goes_on_where_it_was(seed: int, mode: Mode) -> None:
    import json

    ports = random_ports(seed, ports=4, instances=5)
    x = arrivals(seed, 4, 20)
    one, two = Oga(ports, mode), Oga(ports, mode)
    for row in x[:10]:
        one.observe(row)
    two.restore(json.loads(json.dumps(one.state())))
    for row in x[10:]:
        assert two.allot(row) == pytest.approx(one.allot(row), abs=1e-9)


@pytest.mark.parametrize(
    "kept",
    [None, 7, [], {"slot": -1, "y": 3}, {"slot": True, "y": {"0": 1}},
     {"y": {"0": {"0": ["a", 1]}, "1": {"0": [float("nan")] * 3}}}, {"slot": 2**80}],
)  # fmt: skip
def test_a_state_that_cannot_be_read_is_passed_over(kept: object) -> None:
    ports = random_ports(0)
    oga, fresh = Oga(ports, "reactive"), Oga(ports, "reactive")
    oga.restore(kept)  # type: ignore[arg-type]
    assert oga.slot == 0
    assert (oga.play() == fresh.play()).all()


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("greedy", None, "there are strict, reactive, reclaim"),
        ("strict", Options(eta=0.0), "eta = 0; give a number above 0"),
        ("strict", Options(decay=float("nan")), "decay = nan"),
        ("strict", Options(eta_least=2.0), "eta_least = 2"),
        ("reclaim", Options(reach=-1.0), "reach = -1"),
    ],
)
def test_options_that_cannot_be_are_refused(mode: Mode, options: Options | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Oga(random_ports(0), mode, options)


def test_the_first_step_scales_with_capacity() -> None:
    ports = random_ports(0)
    larger = Ports.of(
        64 * ports.requests,
        64 * ports.capacities,
        np.ones((len(ports.requests), len(ports.capacities)), bool),
    )
    for mode in MODES:
        assert default_eta(larger, mode) == pytest.approx(64 * default_eta(ports, mode))


def test_arrivals_of_other_ports_are_refused() -> None:
    with pytest.raises(UsageError, match="give one number for each of 5 ports"):
        Oga(random_ports(0)).observe(np.ones(4))
