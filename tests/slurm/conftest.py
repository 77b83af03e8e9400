"""A real Slurm for the tests of this folder: started once, two nodes of one core each, left idle by every test."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.slurm import RealSlurm, why_not


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "slurm: needs a real Slurm, started by the test (root, Slurm's packages)"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.slurm)


@pytest.fixture(autouse=True)
def cores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One test of this folder at a time, over all workers of a run: they time jobs on the same few cores."""
    # the folder above a worker's own is that of the run
    with (tmp_path_factory.getbasetemp().parent / "slurm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[RealSlurm]:
    """The cluster of all tests (of each worker). A test that breaks its daemons starts a cluster of its own."""
    obstacle = why_not()
    if obstacle:
        pytest.skip(obstacle)
    with RealSlurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(slurm_session: RealSlurm) -> Iterator[RealSlurm]:
    """The same, idle: jobs that a test leaves behind are cancelled and gone before the next one begins."""
    yield slurm_session
    slurm_session.clear()
