"""What the tests of this folder share: a session against the master double."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from asad_mesos.job_spec import Group, Spec
from asad_mesos.session import Session
from asad_mesos.settings import read_settings
from master import Master

MIB = 2**20


def gang(tasks: int = 2, cpus: float = 1.0, least: int = 0, mem: float = 64.0, **more: Any) -> Spec:
    """A job of one group."""
    group = Group(tasks=tasks, cpus=cpus, least=least, memory_bytes=mem * MIB)
    return Spec(user="root", uid=0, command="sleep 60", groups=(group,), **more)


@contextlib.contextmanager
def session(master: Master | str | list[str], folder: Path, **settings: Any) -> Iterator[Session]:
    """A session that subscribes with the master."""
    where = master.address if isinstance(master, Master) else master
    given = {"master": where, "executor_memory_mb": 1.0, "refuse_s": 0.2, "kill_grace_s": 0.0} | settings
    opened = Session(read_settings(given), folder, time.time)
    try:
        opened.start()
        yield opened
    finally:
        opened.close()
    assert not isinstance(master, Master) or not master.refused


def wait(true: Callable[[], Any], timeout_s: float = 300.0) -> bool:
    """Until something is so."""
    end = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def state(opened: Session, job: str) -> str:
    """How a job stands."""
    return opened.job(job).state
