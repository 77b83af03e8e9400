"""What the state machine is told of `[mesos]`."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """Out of `[mesos]`; the same names."""

    hold_s: float = 30.0
    refuse_s: float = 5.0
    unreachable_s: float = 300.0
    kill_grace_s: float = 30.0
    retries: int = 3
    executor: str = "asad-mesos-executor"
    executor_memory_mb: float = 32.0
    depth: int = 100
    revocable: bool = True
    inside: bool = True
    executor_user: str = "job"
