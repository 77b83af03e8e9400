"""What the master has of a task: TaskInfo and ExecutorInfo; and the calls to it. Pure."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from asad_mesos.agent_offers import CPUS, MEM, Amounts, Piece, draw, thousandths
from asad_mesos.framework_state import Executor, Job, Task, unit_of
from asad_mesos.job_spec import MEBIBYTE, Spec
from asad_mesos.settings import Settings

Call = dict[str, Any]


def encoded(plain: Mapping[str, Any]) -> str:
    """As Mesos carries bytes in JSON."""
    return base64.b64encode(orjson.dumps(plain)).decode("ascii")


def key(unit: str, uid: int) -> str:
    """The name by which node actors know a job: its owner's number is a part, so that nobody can take another's."""
    return f"{unit}.{uid}"


def job_data(spec: Spec, unit: str, guest: bool, tasks: int) -> dict[str, Any]:
    """What our executor is to know of a job of which `tasks` run on one agent."""
    return {
        "job": unit,
        "key": key(unit, spec.uid),
        "user": spec.user,
        "uid": spec.uid,
        "guest": guest,
        "tasks": tasks,
        "name": spec.name,
        "script": spec.script,
        "environment": dict(spec.environment),
        "directory": spec.directory,
        "output": spec.output,
        "origin": spec.origin,
        "time_limit_s": None if spec.time_limit_s == float("inf") else spec.time_limit_s,
    }


def executor_info(
    spec: Spec,
    unit: str,
    executor_id: str,
    framework_id: str,
    executor: Executor,
) -> dict[str, Any]:
    """The executor of one unit's tasks on one agent. Equal for all of them, as the master wants it."""
    return {
        "type": "CUSTOM",
        "executor_id": {"value": executor_id},
        "framework_id": {"value": framework_id},
        "name": "asad",
        "source": unit,
        "command": {"value": executor.command, "shell": True, "user": executor.user},
        "resources": list(executor.resources),
        "data": encoded(job_data(spec, unit, executor.guest, executor.tasks)),
    }


def where(job: Job) -> str:
    """Nodes and tasks on each, in order of rank: `n1*4,n2*2`."""
    runs = itertools.groupby(task.host for task in job.tasks.values())
    return ",".join(f"{host}*{sum(1 for _ in tasks)}" for host, tasks in runs)


SLIVER = 10
"""Of the CPUs of its first task an executor has so many thousandths: a container without any cannot be, and that of a
host stays when its own tasks have ended before a guest's."""


def described(
    job: Job,
    tasks: Sequence[Task],
    pieces: list[Piece],
    nodes: str,
    needs: Sequence[Amounts],
    framework_id: str,
    options: Settings,
    hosts: Mapping[str, dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, Executor]]:
    """TaskInfos of tasks of one job on one agent, whose offers' `pieces` become less; and what their executors are.

    `nodes` is as of `where`, `needs` are amounts by group, `hosts` the executors of other jobs that tasks
    join, by their ids.
    """
    infos = []
    made: dict[str, Executor] = {}
    executor: dict[str, Any] = {}
    total = sum(progress.alive for progress in job.groups)
    guest = bool(job.beside) or any(task.revocable for task in tasks)
    plain = [need.tolist() for need in needs]
    for task in tasks:
        group = job.spec.groups[task.group]
        amounts = plain[task.group]
        more: dict[str, Any] = {}
        if task.inside:
            amounts = [0, *amounts[MEM:]]  # the CPUs are those of its host
            memory = sum(plain[other.group][MEM] for other in tasks)
            executor = hosts[task.executor]
            more = {
                "job": job_data(job.spec, unit_of(job, task), True, len(tasks)),
                "inside": key_of(executor),
                "memory_bytes": memory * MEBIBYTE // 1000,
            }
        elif task.executor not in made:
            sliver = min(SLIVER, amounts[CPUS] // 2)
            amounts = [amounts[CPUS] - sliver, *amounts[MEM:]]
            memory = thousandths(options.executor_memory_mb)
            resources = _draw(pieces, [sliver, memory], task.revocable)
            user = job.spec.user if options.executor_user == "job" else "root"
            count = 1 if job.spec.elastic else len(tasks)
            made[task.executor] = Executor(options.executor, user, resources, count, guest)
            executor = executor_info(
                job.spec, unit_of(job, task), task.executor, framework_id, made[task.executor]
            )
        place = {
            "rank": int(task.task_id.rpartition(".")[2]),
            "tasks": total,
            "index": task.index,
            "of": group.tasks if job.spec.elastic else job.groups[task.group].alive,
            "nodes": nodes,
            "attempt": job.attempt,
            **more,
        }
        resources = _draw(pieces, amounts, task.revocable)
        infos.append(
            {
                "name": job.spec.name or job.spec.origin or task.task_id,
                "task_id": {"value": task.task_id},
                "agent_id": {"value": task.agent},
                "executor": executor,
                "resources": resources,
                "kill_policy": grace(options.kill_grace_s),
                "data": encoded({**place, "group": group.name, "command": group.command or job.spec.command}),
            }
        )
    return infos, made


def _draw(pieces: list[Piece], amounts: Sequence[int], revocable: bool) -> list[dict[str, Any]]:
    """The CPUs of these amounts out of revocable ones, or all out of others."""
    if not revocable:
        return draw(pieces, amounts, False)
    return draw(pieces, amounts[:MEM], True) + draw(pieces, [0, *amounts[MEM:]], False)


def key_of(executor: Mapping[str, Any]) -> str:
    """By which name node actors know the job of an executor."""
    return str(orjson.loads(base64.b64decode(executor["data"]))["key"])


def accept(offer_ids: Sequence[str], tasks: Sequence[Mapping[str, Any]], refuse_s: float) -> Call:
    """Launch tasks on one agent's offers; what is left of them is not offered again within `refuse_s`."""
    return {
        "type": "ACCEPT",
        "accept": {
            "offer_ids": [{"value": offer_id} for offer_id in offer_ids],
            "operations": [{"type": "LAUNCH", "launch": {"task_infos": list(tasks)}}],
            "filters": {"refuse_seconds": refuse_s},
        },
    }


def decline(offer_ids: Sequence[str], refuse_s: float) -> Call:
    """Return offers."""
    return {
        "type": "DECLINE",
        "decline": {
            "offer_ids": [{"value": offer_id} for offer_id in offer_ids],
            "filters": {"refuse_seconds": refuse_s},
        },
    }


def grace(seconds: float) -> dict[str, Any]:
    """KillPolicy: between SIGTERM and SIGKILL."""
    return {"grace_period": {"nanoseconds": round(seconds * 1e9)}}


def kill(task_id: str, agent_id: str, grace_s: float) -> Call:
    """End a task: SIGTERM, and SIGKILL after `grace_s`."""
    return {
        "type": "KILL",
        "kill": {
            "task_id": {"value": task_id},
            "agent_id": {"value": agent_id},
            "kill_policy": grace(grace_s),
        },
    }


def acknowledge(status: Mapping[str, Any]) -> Call:
    """This update need not be sent again."""
    return {
        "type": "ACKNOWLEDGE",
        "acknowledge": {
            "agent_id": status["agent_id"],
            "task_id": status["task_id"],
            "uuid": status["uuid"],
        },
    }


def reconcile(tasks: Sequence[Task]) -> Call:
    """Ask for the state of these tasks; of all that the master knows if there are none."""
    return {
        "type": "RECONCILE",
        "reconcile": {
            "tasks": [
                {"task_id": {"value": task.task_id}, "agent_id": {"value": task.agent}} for task in tasks
            ]
        },
    }
