"""A browser for the tests of this folder, and the made-up results that the unit tests use as well."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "unit"))

from chromium import PROGRAMS, Chromium, program


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """A headless Chromium with an empty profile."""
    path = program()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)} exists (Debian: apt-get install chromium)")
    with Chromium(path) as running:
        yield running


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: a folder of the test run, or the one named by ASAD_SCREENSHOTS to keep them."""
    kept = os.environ.get("ASAD_SCREENSHOTS")
    if kept is None:
        return tmp_path_factory.mktemp("pictures")
    Path(kept).mkdir(parents=True, exist_ok=True)
    return Path(kept)
