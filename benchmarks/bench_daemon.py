"""A cycle of the daemon on large clusters: from Slurm's answers in hand to decisions out, JSON parsing included.

squeue's and sinfo's answers of a real Slurm 22.05 (tests/golden) are multiplied: a job of 16 cores on every node, the
rest waiting, 3 kB each. The answers lie in files; a process of its own reads one after the other and runs the cycle
that the daemon runs, `asax` and the guard in it, in mode `advise` (what is sent to Slurm costs Slurm's time). Printed
are CPU seconds of that process, and its memory (interpreter, policy compiled before, the answer and all tables), beside
what docs/reference/slurm-plugin.md states, and over the CPU that orjson alone takes to parse squeue's answer.

- first: nothing is known yet;
- steady: since the last cycle one node of a hundred has another job, as many jobs were submitted, and backfill has
  estimated anew when 500 jobs will start;
- worst: priorities were computed anew and every running job's limit moved: the text of every job differs.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.cluster import SlurmCluster
from asad_slurm.command import Answer, Ended, Look, Partition, Reservation
from asad_slurm.settings import read_settings
from stated import beside

from asad.admit.everyone import Everyone
from asad.config import Config
from asad.cycle import Cycle
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.place.native import Native
from asad.port import JobSample, Lease, NodeReport
from asad.stages import Circumstances, policy_of, warm_up

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "slurm" / "22.05"
START_S, CYCLE_S, CORES = 1_800_000_000, 30, 16
WARM, STEADY, WORST = 5, 4, 3
MIB = 2.0**20


# ------------------------------------------------------------------------------------------------------------- answers


def text_of(job: Mapping[str, Any]) -> str:
    """A job as squeue writes it into its list."""
    return "\n".join("    " + line for line in json.dumps(job, indent=2).replace("/", "\\/").splitlines())


class Answers:
    """squeue's answers of one cluster, cycle after cycle. Numbers that differ are put into a text made once."""

    def __init__(self, nodes: int, jobs: int) -> None:
        document = json.loads((GOLDEN / "squeue.json").read_text())
        golden = {job["job_id"]: job for job in document["jobs"]}
        self.head, self.tail = json.dumps(document | {"jobs": ["@"]}, indent=2).split('"@"')
        self.nodes, self.rng = nodes, np.random.default_rng(7)
        self.estimated = min(500, jobs // 20)  # backfill looks at so many in a pass
        self.next_id = 1
        self.waits = text_of(
            golden[7]
            | {
                "job_id": "@id",
                "name": "@name",
                "user_name": "@user",
                "priority": "@priority",
                "cpus": CORES,
            }
            | {
                "start_time": "@start",
                "time_limit": 60,
                "node_count": 1,
                "tres_req_str": f"cpu={CORES},mem=500M,node=1",
            }
            | {"submit_time": START_S - 9000, "state_reason": "Priority"}
        )
        cores = {str(core): "allocated" for core in range(CORES)}
        place = golden[1]["job_resources"] | {"nodes": "@node"}
        place["allocated_nodes"] = [
            place["allocated_nodes"][0] | {"nodename": "@node", "sockets": {"0": {"cores": cores}}}
        ]
        self.runs = text_of(
            golden[1]
            | {"job_id": "@id", "name": "@name", "user_name": "@user", "nodes": "@node", "cpus": CORES}
            | {"job_resources": place, "time_limit": "@limit", "start_time": "@start", "end_time": "@end"}
            | {"tres_alloc_str": f"cpu={CORES},mem=500M,node=1", "required_nodes": "", "qos": "normal"}
        )
        # on every other node an application whose runs take a day, so that there is somebody to lend
        self.running = [self.new() | ({"kind": 100 + i % 50} if i % 2 else {}) for i in range(nodes)]
        self.waiting = [self.new() for _ in range(jobs - nodes)]
        self.priority_add = self.limit = 0
        self.estimate = {job["@id"]: START_S + 20_000 + 20 * i for i, job in enumerate(self.waiting)}

    def new(self) -> dict[str, int]:
        """A job that was just submitted."""
        self.next_id += 1
        one = {"@id": self.next_id, "kind": self.next_id % 97}
        return one | {"start": START_S - int(self.rng.integers(100, 3000))}

    def turn(self, now_s: int, ended: float) -> None:
        """This part of the running jobs ends, the next ones run in their place, and as many are submitted."""
        count = round(ended * len(self.running))
        for at in (2 * self.rng.choice(len(self.running) // 2, count, replace=False)).tolist():
            started = self.waiting.pop(0)
            self.running[at] = started | {"start": now_s - 5}
            self.waiting.append(self.new())
        for i, job in enumerate(self.waiting):
            if i < self.estimated or job["@id"] not in self.estimate:
                self.estimate[job["@id"]] = now_s + 20_000 + 20 * i

    def change_all(self) -> None:
        """Every record differs."""
        self.priority_add += 1
        self.limit += 1

    def write(self, path: Path) -> int:
        """One answer; its bytes."""
        texts = []
        for node, job in enumerate(self.running, 1):
            limit = 1440 + self.limit
            end = job["start"] + 60 * limit
            texts.append(
                fill(
                    self.runs, job, {"@node": f"cn{node}", '"@limit"': limit, '"@start"': job["start"]}
                ).replace('"@end"', str(end))
            )
        for job in self.waiting:
            found = {
                '"@priority"': 4_000_000_000 - job["@id"] + self.priority_add,
                '"@start"': self.estimate[job["@id"]],
            }
            texts.append(fill(self.waits, job, found))
        text = self.head + ",\n".join(texts).lstrip() + self.tail
        path.write_text(text)
        return len(text)

    def write_nodes(self, path: Path) -> None:
        """sinfo's answer, which does not change."""
        document = json.loads((GOLDEN / "sinfo.json").read_text())
        one = document["nodes"][0]
        mine = {"cpus": CORES, "cores": CORES, "sockets": 1, "real_memory": 64_000}
        names = [f"cn{number}" for number in range(1, self.nodes + 1)]
        document["nodes"] = [one | mine | {"name": name, "hostname": name} for name in names]
        path.write_text(json.dumps(document, indent=2))


def fill(text: str, job: Mapping[str, int], found: Mapping[str, object]) -> str:
    """A job's text with its own numbers."""
    for key, value in {
        '"@id"': job["@id"],
        "@name": f"app{job['kind']}",
        "@user": f"user{job['kind'] % 23}",
        **found,
    }.items():
        text = text.replace(key, str(value))
    return text


# ------------------------------------------------------------------------------------------------------ the process


class Reported:
    """A `Transport` that has one answer of each kind in hand, and counts how often it was asked."""

    answers = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.squeue, self.sinfo = folder, b"", (folder / "sinfo.json").read_bytes()
        self.looks = 0
        self.jobs, self.nodes = JobReader(), NodeReader()

    def look(self) -> Look:
        self.looks += 1
        return Look(self.jobs.read(self.squeue), self.nodes.read(self.sinfo))

    def update(self, raw: int | str, changes: Mapping[str, str]) -> Answer:
        raise AssertionError("nothing is changed in advise mode")

    def split_task(self, text: str, excluded_nodes: str) -> int:
        return 0

    def partitions(self) -> list[Partition]:
        return [Partition("batch", "", 86_400.0, 1.0, ""), Partition("guest", "", 86_400.0, 2.0, "")]

    def reservations(self) -> list[Reservation]:
        return []

    def licences(self) -> dict[str, float]:
        return {}

    def wall_limits(self) -> tuple[dict[tuple[str, str, str], float], dict[str, float]]:
        return {}, {}

    def ended(self, raws: Sequence[int]) -> dict[int, Ended]:
        return {}

    def sentence(self) -> str:
        return "answers in files"

    def close(self) -> None:
        """Nothing is held."""


class Actors:
    """A `NodeLink`: every node's actor has watched its job for long."""

    def __init__(self) -> None:
        self.latest: dict[str, NodeReport] = {}

    def look(self, cluster: SlurmCluster, running: Mapping[str, str], now_s: float) -> None:
        """Report each node's job; a third of them leave most of their CPU idle."""
        self.latest = {
            node: NodeReport(node, now_s, 2, {job: sample(job, 0.3 if int(job) % 3 == 0 else 0.9, now_s)})
            for node, job in running.items()
        }

    def reports(self) -> Mapping[str, NodeReport]:
        return self.latest

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        return True

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """Nothing is granted while nothing is lent."""


def sample(job: str, busy: float, now_s: float) -> JobSample:
    """What an actor says."""
    nan = math.nan
    return JobSample(
        job, False, CORES, tuple(range(CORES)), busy, busy, 900.0 * busy * CORES, 4e8, nan, 0.0, 0.0, 0.0,
        CORES, True, nan, now_s - 3600.0, nan, False,
    )  # fmt: skip


def memory_mib(key: str) -> float:
    """`VmRSS` or `VmHWM` of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024.0


def measure(folder: Path) -> dict[str, Any]:
    """In the process that is measured: one cycle for every answer in `folder`."""
    link, seen = Actors(), Reported(folder)
    clock = [float(START_S)]
    cluster = SlurmCluster(
        read_settings({"share_users": "any", "transport": "command"}),
        nodes=link,
        state_dir=folder,
        clock=lambda: clock[0],
        transport=seen,
    )
    warm_up(Config())  # as `asad --warm-up` does: compiled code is loaded before the first cycle
    policy = policy_of(Config(), "share", Circumstances(cluster.applications, 1))
    guard = guard_for(policy.properties, Config().guard, 0.05)
    cycle = Cycle(cluster, Everyone(), AtOnce(), Native(), policy, guard, mode="advise")
    found: dict[str, Any] = {"rss_before_mib": memory_mib("VmRSS"), "decisions": 0}
    for path in sorted(folder.glob("squeue-*.json")):
        kind = path.stem.split("-")[2]
        seen.squeue = b""  # as in the daemon, the last one is gone
        seen.squeue = path.read_bytes()
        running = json.loads((folder / f"{path.stem}.running").read_text())
        link.look(cluster, running, clock[0])
        before, wall = time.process_time(), time.perf_counter()
        cycle.run_once()
        spent_s, wall_s = time.process_time() - before, time.perf_counter() - wall
        found.setdefault(kind, []).append(
            {"cpu_s": spent_s, "wall_s": wall_s, "parsed": seen.jobs.parsed, "rss_mib": memory_mib("VmRSS")}
        )
        found["decisions"] += len(cycle.outcomes)
        clock[0] += CYCLE_S
    found |= {"rss_mib": memory_mib("VmRSS"), "peak_mib": memory_mib("VmHWM"), "looks": seen.looks}
    seen.squeue = b""
    answer = max(folder.glob("squeue-*.json")).read_bytes()  # all are of one size
    found["orjson_s"] = []
    for _ in range(3):
        before = time.process_time()
        orjson.loads(answer)
        found["orjson_s"].append(time.process_time() - before)
    return found


# --------------------------------------------------------------------------------------------------------- benchmarks


def answers(folder: Path, nodes: int, jobs: int) -> Iterator[int]:
    """Write the answers of every cycle in order: the first, steady ones, the worst; bytes of each."""
    cluster, now_s = Answers(nodes, jobs), START_S
    cluster.write_nodes(folder / "sinfo.json")
    for number, kind in enumerate(["first", *["warm"] * WARM, *["steady"] * STEADY, *["worst"] * WORST]):
        if kind == "worst":
            cluster.change_all()
        elif kind != "first":
            cluster.turn(now_s, 0.01 if kind == "steady" else 0.4)
        running = {f"cn{node}": str(job["@id"]) for node, job in enumerate(cluster.running, 1)}
        (folder / f"squeue-{number:02}-{kind}.running").write_text(json.dumps(running))
        yield cluster.write(folder / f"squeue-{number:02}-{kind}.json")
        now_s += CYCLE_S


def run(folder: str, what: str) -> subprocess.CompletedProcess[str]:
    """This file as a process of its own."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    # the threshold is what asad.service sets
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1048576", "PYTHONPATH": path}
    words = [sys.executable, __file__, folder, what]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


STATED: dict[tuple[int, int], dict[str, float]] = {
    (1_000, 10_000): {"first": 0.22, "steady": 0.05, "worst": 0.19, "peak": 290.0},
    (10_000, 100_000): {"first": 2.3, "steady": 0.44, "worst": 2.1, "peak": 820.0},
}
"""Nodes and jobs → CPU seconds by kind of cycle, and MiB: what docs/reference/slurm-plugin.md states."""
SMALLEST = (50, 500)


def test_a_cycle_of_the_daemon(smallest: bool) -> None:
    for nodes, jobs in [SMALLEST] if smallest else STATED:
        a_cycle(nodes, jobs)


def a_cycle(nodes: int, jobs: int) -> None:
    """Print what its cycles cost, and see that they had something to do."""
    with tempfile.TemporaryDirectory(prefix="asad-bench-") as name:
        sizes = list(answers(Path(name), nodes, jobs))
        run(name, "warm-up")  # into numba's cache: the process that compiles keeps some 200 MiB for it
        done = run(name, "measure")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    spent = {kind: median(one["cpu_s"] for one in found[kind]) for kind in ("first", "steady", "worst")}
    parsed = {kind: found[kind][-1]["parsed"] for kind in spent}
    print(f"\n{nodes} nodes, {jobs} jobs, {sizes[0] / jobs:.0f} bytes a job, {found['decisions']} decisions")
    stated = STATED.get((nodes, jobs))
    for kind, spent_s in spent.items():
        ratio = spent_s / median(found["orjson_s"])
        print(
            f"  {kind:7} {1000 * spent_s:7.0f} ms of CPU, {parsed[kind]} jobs parsed; {ratio:.2f} of what orjson "
            "alone takes for squeue's answer"
        )
        if stated:
            print("          " + beside("CPU", spent_s, stated[kind], "s"))
    print(f"  steady over first: {spent['steady'] / spent['first']:.2f} of its CPU")
    print(f"  memory  {found['rss_mib']:.0f} MiB, at most {found['peak_mib']:.0f} MiB")
    if stated:
        print("          " + beside("at most", found["peak_mib"], stated["peak"], "MiB"))
    assert found["looks"] == 1 + WARM + STEADY + WORST  # one squeue and one sinfo a cycle
    assert found["decisions"] > 0, "the policy found nothing to lend: that is no load"
    assert parsed["steady"] < jobs / 5 < parsed["worst"] == jobs


if __name__ == "__main__":
    if sys.argv[2] == "warm-up":
        warm_up(Config())
    else:
        print(json.dumps(measure(Path(sys.argv[1]))))
