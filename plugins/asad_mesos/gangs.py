"""What the status of a gang means to whoever waits for it in another queue. Pure.

A row is what `status_of` makes of a job: plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asad_mesos.slurm_jobs import BATCH

NEVER_RAN = ("TASK_STAGING", "TASK_DROPPED", "TASK_ERROR")
"""States in which nothing of a task has run (a task that is staged may be about to; then it does not wait)."""


def began(row: Mapping[str, Any]) -> bool:
    """May its script have run, in this attempt or in an earlier one?"""
    if row.get("start_s") is not None or int(row.get("retries") or 0) > 0:
        return True
    return any(task.get("state") not in NEVER_RAN or task.get("exit") is not None for task in _tasks(row))


def outcome(row: Mapping[str, Any]) -> tuple[int, str]:
    """How a job ended: status as of wait(2), and a sentence."""
    state, why, hosts = str(row["state"]), str(row.get("why") or ""), hosts_of(row)
    status, sentence = 0 if state == "completed" else 1 << 8, f"{state} on Mesos as {row['job']}"
    exits = [
        int(task["exit"])
        for task in _tasks(row)
        if task.get("group") == BATCH and task.get("exit") is not None
    ]
    if exits:  # of the batch script, in the last attempt that has one
        status = exits[-1] << 8 if exits[-1] >= 0 else -exits[-1]
        sentence += f": exit status {exits[-1]}" if exits[-1] >= 0 else f": signal {-exits[-1]}"
    if hosts:
        sentence += f", on {hosts}"
    start_s, end_s = row.get("start_s"), row.get("end_s")
    if isinstance(start_s, int | float) and isinstance(end_s, int | float):
        sentence += f", in {end_s - start_s:.0f} s"
    return status, f"{sentence} ({why})" if why and state != "completed" else sentence


def hosts_of(row: Mapping[str, Any]) -> str:
    """Where its tasks are or were, each host once, that of the batch script first."""
    tasks = sorted(
        (task for task in _tasks(row) if task.get("host")),
        key=lambda task: (task.get("group") != BATCH, task.get("index", 0)),
    )
    return ",".join(dict.fromkeys(str(task["host"]) for task in tasks))


def _tasks(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*row.get("tasks", ()), *row.get("endings", ())]
