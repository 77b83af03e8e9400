"""Learning an expert from history: targets, weights, refusals, and the files that history comes in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asad.errors import ConfigError, LogError, UsageError
from asad.experts import FEATURES, INDEX, load_expert, state
from asad.experts.fitting import fit, read_history, write_expert

ROWS = 400


def states(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((ROWS, len(FEATURES))).astype(np.float32)


def test_learns_what_is_idle() -> None:
    X = states()
    y = np.floor(9.999 * (1 - X[:, INDEX["cpu"]])).astype(int)
    expert = fit(X, y, features=["cpu"], max_depth=12, min_samples_leaf=5, name="idle")
    assert expert.name == "idle"
    assert {node.feature for node in expert.nodes} == {"cpu"}
    for cpu in (0.05, 0.35, 0.65, 0.95):
        lend = expert.evaluate(state(cpu=cpu)).leaf.lend
        assert max(lend) == lend[int(9.999 * (1 - cpu))]


def test_losses_teach_the_action_that_lost_least() -> None:
    X = states()
    losses = np.abs(X[:, [INDEX["cpu"]]] - np.linspace(0, 0.9, 10)[None, :])
    losses[:, 9] = np.nan  # never tried
    expert = fit(X, losses, features=["cpu"], max_depth=6, min_samples_leaf=5)
    lend = expert.evaluate(state(cpu=0.31)).leaf.lend
    assert lend[3] == max(lend)
    assert expert.evaluate(state(cpu=0.99)).leaf.lend[9] == 0


def test_equal_losses_say_nothing_and_ties_go_to_the_smaller_share() -> None:
    X = states()
    losses = np.full((ROWS, 3), 0.5)
    with pytest.raises(UsageError, match="no row says anything"):
        fit(X, losses, actions=(0.0, 0.1, 0.2))
    losses[:10, 0] = 1.0
    expert = fit(X, losses, actions=(0.0, 0.1, 0.2), min_samples_leaf=1)
    assert expert.root == "mostly 10 %"
    assert expert.leaves[0].lend == (0.0, 1.0, 0.0)


def test_rows_without_weight_are_left_out() -> None:
    X, y = states(), np.zeros(ROWS, dtype=int)
    y[:50] = 4
    weight = np.ones(ROWS)
    weight[50:] = 0
    assert fit(X, y, weight=weight).leaves[0].lend[4] == 1.0


def test_unknown_is_reported_from_known() -> None:
    X, y = states(), np.zeros(ROWS, dtype=int)
    X[::2, INDEX["happiness"]] = np.nan
    y[1::2] = 5
    expert = fit(X, y)
    assert expert.root == "happiness not known?"
    assert expert.evaluate(state()).leaf.lend[0] == 1.0
    assert expert.evaluate(state(happiness=3.0e38)).leaf.lend[5] == 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"X": np.zeros((ROWS, 2), dtype=np.float32)}, r"states must be \(rows, 13\)"),
        ({"X": np.full((ROWS, len(FEATURES)), np.inf, dtype=np.float32)}, "a state is infinite"),
        ({"y": np.full(ROWS, 10)}, "numbered from 0 to 9"),
        ({"y": np.zeros(ROWS)}, "numbers of actions"),
        ({"y": np.full((ROWS, 10), 1.5)}, "a loss is not in"),
        ({"weight": np.full(ROWS, -1.0)}, "weights must be"),
        ({"weight": np.zeros(ROWS)}, "no row says anything"),
        ({"features": ["cpus"]}, "did you mean 'cpu'"),
        ({"features": ["cpu", "cpu"]}, "none of them twice"),
        ({"name": "no/path"}, "cannot name an expert"),
        ({"actions": (0.1, 0.2)}, "lending nothing is missing"),
        ({"max_depth": 0}, "at least 1"),
    ],
)
def test_refuses_what_does_not_fit_together(change: dict[str, object], says: str) -> None:
    given = {"X": states(), "y": np.random.default_rng(1).integers(0, 10, ROWS), **change}
    with pytest.raises(UsageError, match=says):
        fit(given.pop("X"), given.pop("y"), **given)  # type: ignore[arg-type]


def test_refuses_to_write_a_tree_that_nobody_can_edit() -> None:
    rng = np.random.default_rng(1)
    X, y = (
        rng.random((2000, len(FEATURES))).astype(np.float32),
        rng.integers(0, 10, 2000),
    )  # nothing but noise
    with pytest.raises(UsageError, match="too large to edit; lower --max-depth or raise --min-samples-leaf"):
        fit(X, y, max_depth=40, min_samples_leaf=1)


# ------------------------------------------------------------------------------------------------- history


def test_history_reads_csv(tmp_path: Path) -> None:
    path = tmp_path / "lent.csv"
    path.write_text("job, action ,loss,cpu,happiness,probability\n7,0.3,0.25,0.5,,0.5\nx,0,1,0.1,1.5,0.001\n")
    history = read_history(path)
    assert history.features == ("cpu", "happiness")
    assert history.ignored == ("job",)
    assert history.action.tolist() == [3, 0]
    assert history.weight.tolist() == [1.5, 0.0]
    assert history.X[0, INDEX["cpu"]] == 0.5
    assert np.isnan(history.X[0, INDEX["happiness"]])
    assert np.isnan(history.X[:, INDEX["fair_share"]]).all()


def test_rare_actions_weigh_at_most_a_hundredfold(tmp_path: Path) -> None:
    path = tmp_path / "lent.csv"
    path.write_text("action,loss,cpu,probability\n0.1,0,0.5,0.000001\n")
    assert read_history(path).weight.tolist() == [100.0]


def test_history_reads_npz(tmp_path: Path) -> None:
    path = tmp_path / "lent.npz"
    np.savez(path, action=np.array([0.0, 0.5]), loss=np.array([0, 1]), cpu=np.array([0.1, np.nan]))
    history = read_history(path, (0.0, 0.5))
    assert history.action.tolist() == [0, 1]
    assert np.isnan(history.X[1, INDEX["cpu"]])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "column action: the column is missing"),
        ("loss,cpu\n0,1\n", "column action: the column is missing"),
        ("action,loss\n0,1\n", "no column is a feature"),
        ("action,loss,cpu\n", "no rows"),
        ("action,loss,cpu\n0,0,0.5\n0.1,0,1.5\n", "lent.csv:3: column cpu: 1.5 is out of range; give"),
        ("action,loss,cpu\n0,2,0.5\n", "lent.csv:2: column loss: 2 is out of range"),
        ("action,loss,cpu\n0,,0.5\n", "lent.csv:2: column loss: nan is out of range"),
        ("action,loss,load\n0,0,inf\n", "lent.csv:2: column load: inf is out of range"),
        ("action,loss,cpu\n0.15,0,0.5\n", "lent.csv:2: column action: 0.15 is not among the actions"),
        ("action,loss,cpu,probability\n0.1,0,0.5,0\n", "lent.csv:2: column probability: 0 is out of range"),
        ("action,loss,cpu\n0,0,x\x1b[2J\n", r"lent.csv:2: column cpu: 'x\x1b[2J' is not a number"),
        ("action,loss,cpu\n0,0\n", "lent.csv:2: 2 cells under 3 columns"),
        ("action,loss,cpu\n\n0,0,1\n", "lent.csv:2: an empty line"),
        ("action,loss,cpu,cpu\n", "lent.csv:1: column cpu: there are two"),
        ('action,loss,cpu\n0,0,"1\n', "not CSV"),
    ],
)  # fmt: skip
def test_history_names_line_and_column(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "lent.csv"
    path.write_text(text)
    with pytest.raises(LogError) as caught:
        read_history(path)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()


def test_history_that_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "lent.npz"
    path.write_bytes(b"\x80\x04K\x01.")  # a pickle
    with pytest.raises(LogError, match="not an archive of arrays"):
        read_history(path)
    np.savez(path, action=np.zeros(2), loss=np.zeros(3))
    with pytest.raises(LogError, match="equal length"):
        read_history(path)
    np.savez(path, action=np.array([object()]), allow_pickle=True)
    with pytest.raises(LogError, match="not an archive of arrays"):
        read_history(path)
    with pytest.raises(LogError, match="No such file"):
        read_history(tmp_path / "absent.csv")


def test_a_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    expert = fit(states(), np.arange(ROWS) % 3)
    path = tmp_path / "learned.toml"
    write_expert(expert, path)
    assert load_expert(path) == expert
    with pytest.raises(ConfigError, match="there already"):
        write_expert(expert, path)
    write_expert(expert, path, overwrite=True)
    with pytest.raises(ConfigError, match="No such file"):
        write_expert(expert, tmp_path / "absent" / "x.toml")
