"""What benchmarks share: the option `--smallest`, and how a figure is printed beside the one that is stated."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--smallest",
        action="store_true",
        help="Run every benchmark once in its smallest form, without real logs: does it still run?",
    )
    parser.addoption(
        "--of-year",
        type=float,
        default=0.05,
        metavar="PART",
        help="Part of a year's jobs and nodes that fill the state store (1: all of them, for many minutes).",
    )
    parser.addoption(
        "--first",
        type=int,
        metavar="JOBS",
        help="So many jobs of the made-up log of a large machine (default: all).",
    )
    parser.addoption(
        "--against",
        metavar="COMMIT",
        help="Replay large machines by that commit too, in turns with this code.",
    )
    parser.addoption(
        "--turns", type=int, default=1, help="How often each of the two replays a large machine."
    )


@pytest.fixture(scope="session")
def smallest(request: pytest.FixtureRequest) -> bool:
    """Is each benchmark to take the smallest size that still runs all of its code?"""
    return bool(request.config.getoption("--smallest"))
