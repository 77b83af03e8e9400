"""Expert trees: round trips, agreement of both evaluators and scikit-learn, readers that never crash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.tree import DecisionTreeClassifier

from asad.experts import ACTIONS, FEATURES, INDEX, Expert, Leaf, Node, load_experts, parse_expert
from asad.experts.compiled import compile_experts, evaluate_all, leaf_names
from asad.experts.files import bell
from asad.experts.fitting import fit, from_sklearn
from asad.experts.tree import faults

WIDTH = len(FEATURES)
ANY_FLOAT32 = st.floats(width=32, allow_nan=False)
VALUE = st.one_of(st.just(float("nan")), st.sampled_from([0.0, 0.1, 0.5, 0.75, 1.0, 1.1]), ANY_FLOAT32)
STATES = st.lists(VALUE, min_size=WIDTH, max_size=WIDTH).map(lambda row: np.array(row, dtype=np.float32))
NAMES = st.text("aB7é→漢 ?.\"'\\=#[]{}", min_size=1, max_size=12)


@st.composite
def experts(draw: st.DrawFn, actions: int = 3) -> Expert:
    """Any sound expert: nodes lead to later entries only, and every entry is led to from an earlier one."""
    inner = draw(st.integers(0, 8))
    names = draw(st.lists(NAMES, min_size=3 * inner + 1, max_size=3 * inner + 1, unique=True))
    shares = tuple(step / 10 for step in range(actions))
    waiting, nodes, leaves = [names.pop()], [], []
    root = waiting[0]
    while waiting:
        name = waiting.pop(0)
        if len(nodes) < inner:
            yes, no = names.pop(), names.pop()
            waiting += [yes, no]
            unknown = draw(st.sampled_from([yes, no, *waiting]))
            feature = draw(st.sampled_from(list(INDEX)))
            nodes.append(Node(name, feature, draw(st.floats(width=32, allow_nan=False)), yes, no, unknown))
        else:
            weights = draw(st.lists(st.integers(0, 1000), min_size=actions, max_size=actions).filter(any))
            leaves.append(Leaf(name, tuple(weight / sum(weights) for weight in weights)))
    about = draw(st.sampled_from(["", 'quotes " and \\ and\nlines', "→ µ"]))
    return Expert(
        draw(st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True)),
        about,
        shares,
        root,
        tuple(nodes),
        tuple(leaves),
    )


@given(experts())
def test_toml_round_trips(expert: Expert) -> None:
    assert faults(expert) == []
    again, problems = parse_expert(expert.to_toml(), "again.toml")
    assert problems == []
    assert again == expert
    assert again is not None
    assert again.to_toml() == expert.to_toml()


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(experts(), min_size=1, max_size=4), st.lists(STATES, min_size=1, max_size=5))
def test_both_evaluators_agree(some: list[Expert], states: list[np.ndarray]) -> None:
    compiled, names = compile_experts(some), leaf_names(some)
    p, leaf = np.full((len(some), 3), -1.0), np.full(len(some), -1, dtype=np.int32)
    for x in states:
        evaluate_all(compiled, x, p, leaf)
        for i, expert in enumerate(some):
            reached = expert.evaluate(x)
            assert names[leaf[i]] == reached.leaf.name
            assert tuple(p[i]) == reached.leaf.lend


@settings(deadline=None)
@given(STATES)
def test_shipped_experts_answer_every_state(x: np.ndarray) -> None:
    some = load_experts()
    compiled = compile_experts(some)
    p, leaf = np.full((len(some), 10), np.nan), np.full(len(some), -1, dtype=np.int32)
    evaluate_all(compiled, x, p, leaf)
    assert (p >= 0).all()
    assert np.allclose(p.sum(axis=1), 1)
    assert len(set(leaf.tolist())) == len(some)


@given(st.floats(0, 0.9), st.floats(0, 1))
def test_bell_is_a_distribution_around_its_middle(around: float, spread: float) -> None:
    p = bell(ACTIONS, around, spread)
    assert abs(sum(p) - 1) < 1e-9
    assert min(p) >= 0
    assert abs(ACTIONS[p.index(max(p))] - around) <= 0.05 + 1e-9


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(0, 2**32 - 1))
def test_fit_equals_scikit_learn_on_every_state(data: st.DataObject, seed: int) -> None:
    """Also of unknown values, in the training set or not, and on both sides of every threshold."""
    rng = np.random.default_rng(seed)
    rows = data.draw(st.integers(2, 80))
    X = rng.choice(rng.random(data.draw(st.integers(1, 40))).astype(np.float32), (rows, WIDTH))
    X[rng.random((rows, WIDTH)) < data.draw(st.sampled_from([0.0, 0.3, 0.9]))] = np.nan
    y = rng.integers(0, 10, rows)
    weight = rng.choice([0.25, 1.0], rows)
    depth, least = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))

    expert = fit(X, y, weight=weight, features=list(INDEX), max_depth=depth, min_samples_leaf=least, seed=3)
    peer = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=least, random_state=3)
    peer.fit(X, y, sample_weight=weight)

    probes = [X, np.full((1, WIDTH), np.nan, dtype=np.float32)]
    for node in expert.nodes:
        edge = np.float32(min(node.above, np.finfo(np.float32).max / 2))
        for value in (
            np.nextafter(edge, np.float32(-9)),
            edge,
            np.nextafter(edge, np.float32(9)),
            np.float32(np.nan),
        ):
            near = X.copy()
            near[:, INDEX[node.feature]] = value
            probes.append(near)
    probe = np.concatenate(probes)
    expected = np.zeros((len(probe), 10))
    expected[:, peer.classes_] = peer.predict_proba(probe)
    reread, problems = parse_expert(expert.to_toml(), "learned.toml")
    assert problems == []
    assert reread == expert
    compiled = compile_experts([expert])
    p, leaf = np.empty((1, 10)), np.empty(1, dtype=np.int32)
    for x, row in zip(probe, expected, strict=True):
        evaluate_all(compiled, x, p, leaf)
        assert np.array_equal(p[0], row), (x, p[0], row)
    assert np.array_equal([expert.evaluate(x).leaf.lend for x in X], expected[: len(X)])


@settings(deadline=None)
@given(
    npst.arrays(np.float32, (30, 2), elements=ANY_FLOAT32.filter(np.isfinite).filter(lambda v: abs(v) < 1e30))
)
def test_thresholds_part_float32_as_scikit_learn_does(X: np.ndarray) -> None:
    y = np.arange(len(X)) % 3
    peer = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    expert = from_sklearn(peer, features=["load", "happiness"])
    states = np.full((len(X), WIDTH), np.nan, dtype=np.float32)
    states[:, [INDEX["load"], INDEX["happiness"]]] = X
    lend = np.array([expert.evaluate(x).leaf.lend for x in states])
    assert np.array_equal(lend[:, :3], peer.predict_proba(X))


SHIPPED = load_experts()[0].to_toml()


@given(st.data())
def test_reader_never_crashes_on_a_mutated_file(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(SHIPPED)))
    end = data.draw(st.integers(start, min(len(SHIPPED), start + 40)))
    inserted = data.draw(
        st.one_of(
            st.text(max_size=20), st.sampled_from(["nan", "-1", "1e400", "{}", "[]", '""', "0x" + "f" * 5000])
        )
    )
    expert, problems = parse_expert(SHIPPED[:start] + inserted + SHIPPED[end:], "mutated.toml")
    assert (expert is None) == bool(problems)
    assert all(str(problem).isprintable() for problem in problems)


@given(st.text(max_size=200))
def test_reader_never_crashes_on_any_text(text: str) -> None:
    expert, problems = parse_expert(text, "any\x1b.toml")
    assert expert is None
    assert problems
    assert all(str(problem).isprintable() for problem in problems)
