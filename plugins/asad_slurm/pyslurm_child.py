"""The child process that imports pyslurm, so that the daemon need not.

pyslurm holds the interpreter's lock while it waits for the controller, leaks, and ends its process when there is no
configuration. Here it may do all that: the parent (`asad_slurm.pyslurm_transport`) kills this process and starts
another.

One JSON line a request on stdin (`{"op": "look"}`), one JSON line an answer on the descriptor that was stdout; whatever
else is printed goes to stderr. Answers use the names of squeue's and sinfo's JSON, so that one reader reads all. Runs
as a script, with the standard library and pyslurm alone.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> int:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints must not speak between our lines

    def answer(body: dict[str, Any]) -> None:
        answers.write(json.dumps(body) + "\n")
        answers.flush()

    try:
        import pyslurm  # type: ignore[import-not-found, unused-ignore]
    except Exception as error:
        answer({"ok": False, "error": f"pyslurm cannot be imported: {error}"})
        return 1
    answer({"ok": True, "version": str(getattr(pyslurm, "__version__", ""))})
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if request["op"] != "look":
                raise ValueError(f"there is no operation {request['op']!r}")
            answer({"ok": True, **_look(pyslurm)})
        except Exception as error:  # whatever pyslurm raises, the parent hears of it
            answer({"ok": False, "error": f"{type(error).__name__}: {error}"[:500]})
    return 0


def _look(pyslurm: Any) -> dict[str, Any]:
    return {
        "jobs": [_job(job) for job in pyslurm.Jobs.load().values()],
        "nodes": [_node(node) for node in pyslurm.Nodes.load().values()],
    }


def _job(job: Any) -> dict[str, Any]:
    def get(name: str, default: Any = None) -> Any:
        value = getattr(job, name, default)
        return default if value is None else value

    gres = get("gres_per_node")
    limit = getattr(job, "time_limit", None)
    task = getattr(job, "array_task_id", None)
    waiting = get("array_tasks_waiting", "")
    return {
        "job_id": job.id,
        "array_job_id": get("array_id", 0),
        "array_task_id": task,
        "array_task_string": waiting if task is None else "",
        "array_max_tasks": get("array_tasks_parallel", 0),
        "het_job_id": get("heterogeneous_id", 0),
        "het_job_offset": get("heterogeneous_offset", 0),
        "name": get("name", ""),
        "user_name": get("user_name", ""),
        "user_id": get("user_id", 0),
        "account": get("account", ""),
        "partition": get("partition", ""),
        "qos": get("qos", ""),
        "job_state": str(job.state).split(),
        "state_reason": get("state_reason", "None"),
        "nodes": get("allocated_nodes", ""),
        "required_nodes": get("required_nodes", ""),
        "excluded_nodes": get("excluded_nodes", ""),
        "node_count": get("num_nodes", 0),
        "max_nodes": get("max_nodes", 0),
        "mcs_label": get("mcs_label", ""),
        "cpus": get("cpus", 1),
        "time_limit": limit if isinstance(limit, int) else None,
        "submit_time": get("submit_time", 0),
        "eligible_time": get("eligible_time", 0),
        "deadline": get("deadline", 0),
        "start_time": get("start_time", 0),
        "end_time": get("end_time", 0),
        "priority": get("priority", 0),
        "nice": get("nice", 0),
        "memory_per_node": getattr(job, "memory_per_node", None),
        "memory_per_cpu": getattr(job, "memory_per_cpu", None),
        "tres_per_node": " ".join(f"gres:{name}:{count}" for name, count in gres.items()) if gres else "",
        "licenses": ",".join(str(name) for name in get("licenses", [])),
        "features": "&".join(str(name) for name in get("constraints", [])),
        "resv_name": get("reservation", ""),
        "dependency": json.dumps(job.dependencies) if get("dependencies") else "",
        "comment": get("comment", ""),
        "admin_comment": get("admin_comment", ""),
        "shared": {"NO": "none", "USER": "user", "MCS": "mcs"}.get(get("resource_sharing", "")),
        "restart_cnt": get("requeue_count", 0),
    }


def _node(node: Any) -> dict[str, Any]:
    return {
        "name": node.name,
        "cpus": getattr(node, "effective_cpus", None) or node.total_cpus,
        "threads": getattr(node, "threads_per_core", None) or 1,
        "real_memory": node.real_memory,
        "state": str(node.state).replace("+", " ").split(),
        "partitions": list(getattr(node, "partitions", None) or []),
        "active_features": list(getattr(node, "active_features", None) or []),
        "has_gres": bool(getattr(node, "configured_gres", None)),
    }


if __name__ == "__main__":
    sys.exit(main())
