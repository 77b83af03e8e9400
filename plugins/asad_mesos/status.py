"""How a job stands, for people."""

from __future__ import annotations

import math
from typing import Any

from asad_mesos.framework import Framework
from asad_mesos.state import QUEUED, Job


def status_of(job: Job, framework: Framework) -> dict[str, Any]:
    """As plain data, for `asactl tasks` and for who took the job out of another queue."""
    return {
        "job": job.job_id,
        "state": job.state,
        "why": job.why
        or (
            "it needs more than all agents that were seen have"
            if job.state == QUEUED and framework.pool.hopeless(job)
            else ""
        ),
        "attempt": job.attempt,
        "retries": job.retries,
        "spec": job.spec.to_json(),
        "submit_s": job.submit_s,
        "start_s": None if math.isnan(job.start_s) else job.start_s,
        "end_s": None if math.isnan(job.end_s) else job.end_s,
        "hold_until_s": None if math.isinf(job.hold_until_s) else job.hold_until_s,
        "groups": {
            group.name: {
                "waiting": len(progress.todo),
                "running": progress.alive,
                "done": progress.done,
                "failed": progress.failed,
                "target": progress.target,
            }
            for group, progress in zip(job.spec.groups, job.groups, strict=True)
        },
        "tasks": [
            {
                "task": task.task_id,
                "group": job.spec.groups[task.group].name,
                "index": task.index,
                "state": task.state,
                "host": task.host,
                "agent": task.agent,
                "exit": None,
            }
            for task in job.tasks.values()
        ],
        "endings": list(job.endings),
    }
