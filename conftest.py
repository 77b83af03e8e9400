"""Fixtures of tests and benchmarks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent

# no example fails because it took long: what that measures is the machine and who else uses it
settings.register_profile(
    "asad", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("asad")


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real logs, which the project never needs but tests use when it is there."""
    folder = Path(os.environ.get("ASAD_TRACES", REPOSITORY.parent / "shared" / "traces"))
    if not folder.is_dir():
        pytest.skip(f"no real logs at {folder} (set ASAD_TRACES)")
    return folder


@pytest.fixture(scope="session")
def data(traces: Path) -> Path:
    """The folder of other recorded inputs, beside that of the logs."""
    folder = Path(os.environ.get("ASAD_DATA", traces.parent / "data"))
    if not folder.is_dir():
        pytest.skip(f"no recorded inputs at {folder} (set ASAD_DATA)")
    return folder
