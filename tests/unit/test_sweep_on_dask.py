"""`asactl sweep` on a Dask cluster: processes of this machine behind a scheduler that is found by its address."""

from __future__ import annotations

import builtins
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_sweep import SWEEP, asked, kept, swf

from asad.errors import AsadError
from asad.sweep.coordinator import carry_out
from asad.sweep.dask_workers import by_address

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # Dask warns of others' versions and of busy ports


EXTRA = "no Dask: pip install '.[cluster]'"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    dask, distributed = (pytest.importorskip(name, reason=EXTRA) for name in ("dask", "distributed"))
    # a worker takes two seconds to come back; a task is usually given up after the fourth
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
    ):
        yield cluster


def test_a_sweep_on_a_cluster_by_its_address(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "one.swf").write_text(swf(12))
    (tmp_path / "other.swf").write_text(swf(9))
    (tmp_path / "sweep.toml").write_text(SWEEP)
    done = asked(tmp_path, str(tmp_path / "sweep.toml"), "--dask", cluster.scheduler_address)
    assert done.exit_code == 0, done.output
    results = kept(tmp_path)
    assert len(results) == 12 and {one.state for one in results} == {"done"}
    again = asked(tmp_path, str(tmp_path / "sweep.toml"), "--workers", "1")
    assert "12 done; nothing to do" in again.stderr, "who ran a task is no part of it"


def _die_or_double(task: int) -> int:
    if task == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * task


def test_a_task_that_kills_its_workers_is_given_up_and_the_rest_goes_on(cluster: Any) -> None:
    ended: dict[int, Any] = {}
    with by_address(cluster.scheduler_address) as workers:
        carry_out(range(4), workers, _die_or_double, ended.__setitem__)
    assert type(ended.pop(1)).__name__ == "KilledWorker"
    assert ended == {0: 0, 2: 4, 3: 6}


def test_where_nobody_answers_or_the_extra_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asad.sweep.dask_workers.CONNECT_S", 1)
    with (
        pytest.raises(AsadError, match=r"--dask tcp://127\.0\.0\.1:1: no scheduler answers"),
        by_address("tcp://127.0.0.1:1"),
    ):
        pass
    with pytest.raises(AsadError, match="--dask nonsense"), by_address("nonsense://1"):
        pass
    real = builtins.__import__

    def without(name: str, *words: Any, **more: Any) -> Any:
        if name == "dask_jobqueue":
            raise ModuleNotFoundError(name, name=name)
        return real(name, *words, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with (
        pytest.raises(AsadError, match=r"needs dask_jobqueue; pip install '/path/to/asad\[cluster\]'"),
        by_address("tcp://x:1"),
    ):
        pass
