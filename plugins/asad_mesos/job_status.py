"""How a job stands, for people."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from asad_mesos.framework import Framework
from asad_mesos.framework_state import QUEUED, Job
from asad_mesos.offer_replies import named


def status_of(job: Job, framework: Framework) -> dict[str, Any]:
    """As plain data, for `asactl tasks` and for who took the job out of another queue. By `node` agents of one
    `host` differ."""
    names, rows = framework.agents.names(), framework.agents.number

    def node(agent: str, host: str) -> str:
        return names[rows[agent]] if agent in rows else host

    return {
        "job": job.job_id,
        "state": job.state,
        "why": job.why
        or (
            "it needs more than all agents that were seen have"
            if job.state == QUEUED and framework.pool.placing.hopeless(job)
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
                "node": node(task.agent, task.host),
                "exit": None,
            }
            for task in job.tasks.values()
        ],
        "endings": [{**one, "node": node(one.get("agent", ""), one["host"])} for one in job.endings],
    }


def story_of(job: Job, framework: Framework, now_s: float) -> dict[str, Any]:
    """What became of a job and what it waits for, for `asactl explain`: nothing that its owner alone may see."""
    waiting = sum(len(progress.todo) for progress in job.groups)
    why = framework.pool.why_not(job, now_s) if job.job_id in framework.jobs and waiting else ""
    on = Counter(framework.agents.number[task.agent] for task in job.tasks.values())
    return {
        "job": job.job_id,
        "state": job.state,
        "user": job.spec.user,
        "origin": job.spec.origin or None,
        "attempt": job.attempt,
        "retries": job.retries,
        "tasks": {"waiting": waiting, "running": len(job.tasks)},
        "nodes": named(framework.agents, on),
        "waits": why or None,
        "offers": len(framework.agents.offers),
        "story": [[job.submit_s, "it was submitted"], *job.story],
    }
