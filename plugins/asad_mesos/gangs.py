"""What the status of a gang tells whoever waits for it in another queue. Pure.

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
    exit_status = _exit_of(row)
    state, why = str(row["state"]), str(row.get("why") or "")
    status = 0 if state == "completed" else 1 << 8
    words = f"{state} on Mesos as {row['job']}"
    if exit_status is not None:
        status = exit_status << 8 if exit_status >= 0 else -exit_status
        words += f": exit status {exit_status}" if exit_status >= 0 else f": signal {-exit_status}"
    hosts = ",".join(dict.fromkeys(hosts_of(row)))
    if hosts:
        words += f", on {hosts}"
    start_s, end_s = row.get("start_s"), row.get("end_s")
    if isinstance(start_s, int | float) and isinstance(end_s, int | float):
        words += f", in {end_s - start_s:.0f} s"
    return status, f"{words} ({why})" if why and state != "completed" else words


def _tasks(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*row.get("tasks", ()), *row.get("endings", ())]


def _exit_of(row: Mapping[str, Any]) -> int | None:
    """Of the batch script, in the last attempt that told one."""
    found = None
    for task in _tasks(row):
        if task.get("group") == BATCH and task.get("exit") is not None:
            found = int(task["exit"])
    return found


def hosts_of(row: Mapping[str, Any]) -> list[str]:
    tasks = [task for task in _tasks(row) if task.get("host")]
    tasks.sort(key=lambda task: (task.get("group") != BATCH, task.get("index", 0)))
    return [str(task["host"]) for task in tasks]
