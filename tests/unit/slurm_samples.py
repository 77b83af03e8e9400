"""What the tests of the Slurm plugin share: a Slurm in memory that writes the JSON of 22.05, and node actors."""

from __future__ import annotations

import calendar
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.cluster import SlurmCluster
from asad_slurm.command import Answer, Ended, Look, Partition, Reservation
from asad_slurm.nodesets import expand
from asad_slurm.settings import read_settings

from asad.decisions import Cause, CoAllocate
from asad.model import Snapshot
from asad.port import JobSample, Lease, NodeReport

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"
BECAUSE = Cause("test", "because the test says so")
NAN = math.nan
START_S = 1_800_000_000.0


def a_job(number: int, **facts: Any) -> dict[str, Any]:
    """A waiting job of 22.05's JSON, with what squeue writes for it."""
    job: dict[str, Any] = {
        "account": "physics",
        "array_job_id": 0,
        "array_task_id": None,
        "array_task_string": "",
        "comment": "",
        "cpus": 2,
        "dependency": "",
        "end_time": 0,
        "excluded_nodes": "",
        "features": "",
        "gres_detail": [],
        "het_job_id": 0,
        "het_job_offset": 0,
        "job_id": number,
        "job_resources": {},
        "job_state": "PENDING",
        "licenses": "",
        "memory_per_cpu": None,
        "memory_per_node": 500,
        "name": f"app{number}",
        "node_count": 1,
        "nodes": "",
        "partition": "batch",
        "priority": 1_000_000 - number,
        "qos": "normal",
        "required_nodes": "",
        "restart_cnt": 0,
        "resv_name": "",
        "shared": None,
        "start_time": int(START_S) + 3600,
        "state_reason": "Priority",
        "submit_time": int(START_S) - 100,
        "time_limit": 10,
        "tres_alloc_str": "",
        "tres_per_node": "",
        "tres_req_str": "",
        "user_name": "ann",
    }
    return job | facts


def running(number: int, nodes: Mapping[str, int], **facts: Any) -> dict[str, Any]:
    """A job that runs on these cores since `START_S - 60`."""
    names = ",".join(nodes)
    start = int(START_S) - 60
    return a_job(
        number,
        **(
            {
                "job_state": "RUNNING",
                "state_reason": "None",
                "nodes": names,
                "node_count": len(nodes),
                "cpus": sum(nodes.values()),
                "start_time": start,
                "end_time": start + 3600,
                "time_limit": 60,
                "job_resources": {
                    "nodes": names,
                    "allocated_nodes": [
                        {
                            "nodename": name,
                            "sockets": {"0": {"cores": {str(i): "allocated" for i in range(cores)}}},
                        }
                        for name, cores in nodes.items()
                    ],
                },
            }
            | facts
        ),
    )


class SlurmInMemory:
    """A `Transport`: jobs by number as squeue writes them, changed by `update` as scontrol does."""

    def __init__(self, nodes: int = 4, cores: int = 2, memory_mib: int = 4000) -> None:
        self.jobs: dict[int, dict[str, Any]] = {}
        self.nodes: list[dict[str, Any]] = [
            {
                "name": f"n{i}",
                "cpus": cores,
                "threads": 1,
                "real_memory": memory_mib,
                "state": "idle",
                "state_flags": [],
                "partitions": ["batch", "guest"],
                "active_features": "fast",
            }
            for i in range(1, nodes + 1)
        ]
        self.updates: list[tuple[str, dict[str, str]]] = []
        self.now_s = START_S
        self.refuses = ""
        """What scontrol says instead of doing it."""
        self.denies = ""
        """What only administrators may change."""
        self.hangs = False
        self.answers = True
        self.in_accounting: dict[int, Ended] = {}
        self.promised: list[Reservation] = []
        self.licensed: dict[str, float] = {}
        self.exclusive_user = False
        """A node of the partition `urgent` is one user's at a time."""
        self.walls: tuple[dict[tuple[str, str, str], float], dict[str, float]] = ({}, {})
        self._read, self._read_nodes = JobReader(), NodeReader()

    def add(self, *jobs: dict[str, Any]) -> None:
        self.jobs |= {job["job_id"]: job for job in jobs}

    def look(self) -> Look:
        meta = {"plugin": {"type": "openapi/v0.0.38"}, "Slurm": {"release": "22.05.8"}}
        jobs = json.dumps({"meta": meta, "errors": [], "jobs": list(self.jobs.values())}, indent=2)
        nodes = json.dumps({"meta": meta, "nodes": self.nodes})
        return Look(self._read.read(jobs.encode()), self._read_nodes.read(nodes.encode()))

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        self.updates.append((str(raw), dict(changes)))
        if self.hangs:
            self.answers = False
            return Answer(False, "scontrol: no answer within 1 s", certain=False)
        if self.refuses:
            return Answer(False, self.refuses)
        if self.denies in changes:
            return Answer(False, f"scontrol: Access/permission denied for job {raw}")
        meant = self._meant(str(raw))
        if len(meant) > 1 and ("ReqNodeList" in changes or changes.get("TimeLimit", "").startswith("+")):
            return Answer(False, "scontrol: error: Job resizing not supported for job arrays")
        if meant and "ReqNodeList" in changes and "Partition" not in changes:
            changes = {"Partition": meant[0]["partition"], **changes}
        if not meant:
            return Answer(False, "Invalid job id specified")
        job = meant[0]
        if "Partition" in changes and not self._move(job, changes):
            return Answer(False, "Job is no longer pending execution")
        if "NumNodes" in changes:
            least, _, most = changes["NumNodes"].partition("-")
            job["node_count"], job["max_nodes"] = int(least), int(most or least)
        if "StartTime" in changes:
            words = changes["StartTime"]
            wanted = calendar.timegm(time.strptime(words, "%Y-%m-%dT%H:%M:%S")) if words != "now" else 0
            job["eligible_time"] = max(wanted, int(self.now_s))
            job["state_reason"] = "BeginTime" if wanted else "None"
        if "ArrayTaskThrottle" in changes:
            job["array_max_tasks"] = int(changes["ArrayTaskThrottle"])
        if "Nice" in changes:
            nice = int(changes["Nice"])
            job["priority"] += (int(job.get("nice") or 0) + 2**31) % 2**32 - 2**31 - nice
            job["nice"] = nice % 2**32 or None  # so 22.05 writes a negative one, and none
        if "AdminComment" in changes:
            job["admin_comment"] = changes["AdminComment"]
        if "TimeLimit" in changes:
            job["time_limit"] += int(changes["TimeLimit"])
            job["end_time"] += 60 * int(changes["TimeLimit"])
        return Answer(True, "")

    def _meant(self, name: str) -> list[dict[str, Any]]:
        """The jobs that Slurm's commands take a name for, the one with that number first: an array's is all tasks."""
        array, is_task, task = name.partition("_")
        if is_task:
            of_array = [job for job in self.jobs.values() if job["array_job_id"] == int(array)]
            return [job for job in of_array if task in (str(job["array_task_id"]), job["array_task_string"])]
        found = [job for job in self.jobs.values() if int(name) in (job["job_id"], job["array_job_id"])]
        return sorted(found, key=lambda job: job["job_id"] != int(name))

    @staticmethod
    def _move(job: dict[str, Any], changes: Mapping[str, str]) -> bool:
        """Other partition and node list; a job that runs is shrunk to the list if its partition is that already."""
        nodes = changes["ReqNodeList"]
        if job["job_state"] == "PENDING":
            job["partition"], job["required_nodes"] = changes["Partition"], nodes
            return True
        if (
            job["partition"] == changes["Partition"]
            and nodes
            and set(expand(nodes)) < set(expand(job["nodes"]))
        ):
            job["nodes"] = nodes
            return True
        return False

    def evict(self, job: str, how: str) -> Answer:
        """As scancel and scontrol requeuehold do."""
        self.updates.append((job, {"evict": how}))
        if self.hangs:
            self.answers = False
            return Answer(False, "scontrol: no answer within 1 s", certain=False)
        if self.refuses:
            return Answer(False, self.refuses)
        for one in self._meant(job):
            if how == "cancel":
                one |= {"job_state": "CANCELLED", "end_time": int(self.now_s)}
                continue
            waits = a_job(one["job_id"])
            one |= {key: waits[key] for key in ("job_state", "nodes", "job_resources", "node_count")}
            one |= {"state_reason": "JobHeldUser", "priority": 0, "start_time": 0, "end_time": 0}
            one["restart_cnt"] = one.get("restart_cnt", 0) + 1
        return Answer(True, "")

    def split_task(self, text: str, excluded_nodes: str) -> int:
        array, _, task = text.partition("_")
        meta = self.jobs[int(array)]
        number = max(self.jobs) + 1
        self.add(meta | {"job_id": number, "array_task_id": int(task), "array_task_string": ""})
        first, last = meta["array_task_string"].split("-")
        meta["array_task_string"] = f"{int(first) + 1}-{last}"
        return number

    def partitions(self) -> list[Partition]:
        names = ",".join(node["name"] for node in self.nodes)
        return [
            Partition("batch", names, 7200.0, 1.0, ""),
            Partition("guest", names, math.inf, 2.0, ""),
            Partition("urgent", names, math.inf, 3.0, "", self.exclusive_user),
        ]

    def reservations(self) -> list[Reservation]:
        return self.promised

    def licences(self) -> dict[str, float]:
        return self.licensed

    def wall_limits(self) -> tuple[dict[tuple[str, str, str], float], dict[str, float]]:
        return self.walls

    def ended(self, raws: Sequence[int]) -> dict[int, Ended]:
        return {raw: self.in_accounting[raw] for raw in raws if raw in self.in_accounting}

    def sentence(self) -> str:
        return "Slurm in memory"

    def close(self) -> None:
        """Nothing is held."""

    def start(self, number: int, node: str, now_s: float) -> None:
        """Slurm starts a job there."""
        job = self.jobs[number]
        limit_s = 60 * job["time_limit"]
        seen = running(number, {node: job["cpus"]})
        self.jobs[number] = job | {
            key: seen[key] for key in ("job_state", "state_reason", "nodes", "job_resources", "node_count")
        }
        self.jobs[number] |= {"start_time": int(now_s), "end_time": int(now_s) + limit_s}

    def end(self, number: int, now_s: float) -> None:
        """A job ends, and squeue still shows it."""
        self.jobs[number] |= {"job_state": "COMPLETED", "end_time": int(now_s)}


class Actors:
    """A `NodeLink` whose reports are set by the test."""

    def __init__(self, *names: str) -> None:
        self.latest: dict[str, NodeReport] = {}
        self.announced: list[tuple[tuple[str, ...], str]] = []
        self.granted: list[dict[str, list[Lease]]] = []
        self.deaf = False
        for name in names:
            self.report(name)

    def report(self, node: str, *samples: JobSample, time_s: float = START_S) -> None:
        self.latest[node] = NodeReport(node, time_s, 1, {sample.job_id: sample for sample in samples})

    def reports(self) -> Mapping[str, NodeReport]:
        return self.latest

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        self.announced.append((tuple(node_names), job_id))
        return not self.deaf

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        self.granted.append({node: list(some) for node, some in leases.items()})


def sample(number: int, **facts: Any) -> JobSample:
    """What a node actor says of a job that it has watched long enough."""
    known: dict[str, Any] = {
        "job_id": str(number),
        "guest": False,
        "cores": 2,
        "core_ids": (0, 1),
        "cpu_fraction": 0.25,
        "cpu_peak": 0.3,
        "cpu_time_s": 30.0,
        "memory_bytes": 1e8,
        "throttled": NAN,
        "pressure": NAN,
        "read_bytes": 0.0,
        "written_bytes": 0.0,
        "threads": 1,
        "parallel": False,
        "progress": NAN,
        "since_s": START_S - 3600.0,
        "quota": NAN,
        "idle_class": False,
    }
    return JobSample(**(known | facts))


class Lab:
    """A cluster over `SlurmInMemory`, with its clock."""

    def __init__(self, state_dir: Path, slurm: SlurmInMemory, **settings: Any) -> None:
        self.state_dir, self.slurm = state_dir, slurm
        self.actors = Actors(*(node["name"] for node in slurm.nodes))
        self.now_s = START_S
        self.settings = {"share_users": "any"} | settings
        self.cluster = self.open()

    def open(self) -> SlurmCluster:
        """A daemon's cluster: the second one is the next daemon's."""
        return SlurmCluster(
            read_settings(self.settings),
            nodes=self.actors,
            state_dir=self.state_dir,
            clock=lambda: self.now_s,
            transport=self.slurm,
        )

    def snapshot(self, after_s: float = 0.0) -> Snapshot:
        self.now_s += after_s
        self.slurm.now_s = self.now_s
        return self.cluster.snapshot()

    def offer(self, snapshot: Snapshot, guest: str, host: str, *nodes: str, share: float = 0.5) -> str:
        """Offer, and say why not."""
        names = snapshot.machine.node_names
        decision = CoAllocate(
            BECAUSE,
            row(snapshot, guest),
            tuple(names.index(node) for node in nodes),
            host=row(snapshot, host),
            share=share,
        )
        (outcome,) = self.cluster.apply([decision])
        assert outcome.done == (outcome.reason == "")
        return outcome.reason


def row(snapshot: Snapshot, job: str) -> int:
    """The row of a job."""
    (found,) = np.flatnonzero(snapshot.jobs.job_id == job)
    return int(found)


def names(snapshot: Snapshot, rows: Any) -> list[str]:
    """The jobs in these rows."""
    return [str(snapshot.jobs.job_id[one]) for one in rows]
