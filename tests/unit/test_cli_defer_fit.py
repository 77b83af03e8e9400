"""`asactl defer fit`: what it writes is read by the policies, and what cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.defer.scorers import make_scorer
from asad.errors import UsageError


def run(*words: str) -> str:
    result = CliRunner().invoke(asactl, ["defer", "fit", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.slow
def test_what_is_tuned_is_read_by_the_policies(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    document = json.loads(run("--generate", "6", "--out", str(out), "--json"))
    assert document["kept"] == 1
    for row in document["total_mean"].values():
        assert set(row) == {"fifo", "edf", "linear", "lookahead", "rollout"}
        assert min(row.values()) > 0
    mine = make_scorer("linear", {"weights": str(out / "linear.toml")})
    assert not np.array_equal(mine.weights, make_scorer("linear").weights)  # type: ignore[attr-defined]
    assert make_scorer("lookahead", {"expected": str(out / "expected.toml")}).name == "lookahead"
    files = {"expected": str(out / "expected.toml"), "sample": str(out / "sample.toml")}
    assert make_scorer("rollout", files).name == "rollout"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "learn from --log FILE or from --generate N; give one of them"),
        (["--generate", "5", "--setting", "best"], "--setting best: there are recorded"),
        (["--log", "none.npz"], "none.npz: cannot be read"),
        (["--generate", "5", "--out", "file/below"], "--out file/below: cannot be written"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(asactl, ["defer", "fit", *words], catch_exceptions=False)


def test_too_few_trajectories_are_refused(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "few.npz",
        jobs=np.array([[1, 1, 0, 0, 0]]),
        offsets=np.array([0, 1]),
        capacity=np.ones((1, 4)),
    )
    with pytest.raises(UsageError, match="1 trajectories are too few to learn from; give at least 5"):
        CliRunner().invoke(
            asactl, ["defer", "fit", "--log", str(tmp_path / "few.npz")], catch_exceptions=False
        )
