"""Recorded against simulated waits: means, ranks, and who is close."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_logs import log_of

from asad.model import JobLog
from asad.replay.fidelity import fidelity


def jobs(tmp_path: Path, waits_s: list[int], partitions: str) -> JobLog:
    return log_of(
        tmp_path / "log",
        [
            {
                "id": k + 1,
                "submit": 10 * k,
                "start": 10 * k + wait,
                "run": 60,
                "nodes": "n1",
                "partition": one,
            }
            for k, (wait, one) in enumerate(zip(waits_s, partitions, strict=True))
        ],
    ).jobs


def of(found: list[Any], partition: str) -> dict[str, Any]:
    (one,) = [row for row in found if row["partition"] == partition]
    return dict(one)


def test_waits_as_recorded_are_alike(tmp_path: Path) -> None:
    log = jobs(tmp_path, [0, 1000, 2000, 4000], "aabb")
    found = fidelity(log, np.array([0.0, 1000.0, 2000.0, 4000.0]))
    assert [row["partition"] for row in found if isinstance(row, dict)] == ["", "a", "b"]
    every = of(found, "")
    assert every["recorded_mean_s"] == every["simulated_mean_s"] == 1750
    assert every["rank_correlation"] == pytest.approx(1.0)
    assert every["close"] == 1.0 and every["alike"]


def test_the_same_mean_of_other_jobs_is_not_alike(tmp_path: Path) -> None:
    log = jobs(tmp_path, [0, 1000, 2000, 4000], "aaaa")
    every = of(fidelity(log, np.array([4000.0, 2000.0, 1000.0, 0.0])), "")
    assert every["simulated_mean_s"] == every["recorded_mean_s"]
    assert every["rank_correlation"] == pytest.approx(-1.0) and not every["alike"]
    assert every["close"] == 0.0


def test_a_mean_off_by_more_than_a_quarter_is_not_alike(tmp_path: Path) -> None:
    log = jobs(tmp_path, [1000, 2000, 3000], "aab")
    found = fidelity(log, np.array([1000.0, 2000.0, 7000.0]))
    assert not of(found, "")["alike"]
    assert of(found, "a")["alike"] and of(found, "b")["rank_correlation"] is None


def test_a_wait_is_close_within_five_minutes_or_a_quarter(tmp_path: Path) -> None:
    log = jobs(tmp_path, [0, 10_000, 10_000, 0], "aaaa")
    assert of(fidelity(log, np.array([300.0, 12_500.0, 12_501.0, 301.0])), "")["close"] == 0.5
