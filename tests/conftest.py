"""What tests of several folders share, and where they write: into memory, where it has room.

They write some ten thousand small files, and wait for the disk after every line of a journal and every transaction,
to throw it all away: on a slow or busy disk that is a third of the time that they take. Benchmarks write to the disk.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lab.postgres_server import NoServer, postgres_server

MEMORY = Path("/dev/shm")
ROOM_BYTES = 2**30
"""What all tests write by far does not come to this."""

TOGETHER = (
    "tests/slurm/",
    "tests/unit/test_bench_oasis.py",
    "tests/unit/test_bench_sow.py",
    "tests/unit/test_cli_replay.py",
    "tests/unit/test_docs.py",
)
"""What one worker runs from its first test to its last under `--dist loadgroup`.

Of those on a real Slurm only one runs at a time: another worker that had some of them would wait for the first instead
of running what needs no cluster. The others share a replay or a benchmark that takes a quarter of a minute.
"""


def has_room(folder: Path) -> bool:
    """Whether tests can write there and run what they write: containers may have little there, or forbid it."""
    if not os.access(folder, os.W_OK | os.X_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= ROOM_BYTES


# what commands print depends on these; workers of a run are given COLUMNS
for name in (
    "COLUMNS",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "ASACTL_JOBS_FORMAT",
    "ASACTL_NODES_FORMAT",
):
    os.environ.pop(name, None)

# the variable by which pytest can be given the folder of its runs
if "PYTEST_DEBUG_TEMPROOT" not in os.environ and has_room(MEMORY):
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests one by one to the worker that is free, the longest of `TOGETHER` first.

    Done here and not by the mark `xdist_group`, which says nothing to xdist 3.8 under pytest 9.2.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((part for part in TOGETHER if nodeid.startswith(part)), nodeid)

    return Together(config, log)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """1 100 descriptors are open, as of a daemon with so many actors: what is opened now has a larger number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 4096 else max(soft, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert max(held) > 1024
        yield
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Folder of the socket of a PostgreSQL server of our own: one for all tests (of each worker)."""
    if find_spec("psycopg") is None:
        pytest.skip("no psycopg (pip install '.[postgres]')")
    try:
        with postgres_server(str(MEMORY) if has_room(MEMORY) else "/tmp") as folder:
            yield folder
    except NoServer as missing:
        pytest.skip(str(missing))


@pytest.fixture
def published_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """What commands print as JSON in this test is held to its published schema: for tests whose answers are real."""
    from plain_answers import validate

    from asad.cli import screen

    def checked(plain: Any, *, indent: int | None = 2) -> None:
        screen.click.echo(text := printed(plain, indent=indent))
        validate(json.loads(text))

    printed = screen.json_text
    monkeypatch.setattr(screen, "print_json", checked)
