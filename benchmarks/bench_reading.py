"""Whole commands on large logs: what `asactl replay LOG --policy slurm --store none --json` takes of time and memory.

Each log is written by a fixed seed, and read, simulated and summed up by a process of its own, whose elapsed time and
peak memory are printed beside those asked for. The machine is inferred from the log, except for the wide jobs, which
have a slurm.conf. The smallest form takes some of the jobs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from stated import beside

GIB = 1024.0**3
SOME = 300
"""Jobs of each log in the smallest form."""
EPOCH_S = 1704067200
README = (
    "JobID|JobName|User|Partition|State|Submit|Start|End|Elapsed|TimelimitRaw|NNodes|AllocCPUS|ReqMem|AllocTRES|TotalCPU|"
    "NodeList"
)
"""The columns that the README asks for."""
NODES, CORES, MEMORY_M = 1000, 64, 256000


def when(moment_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment_s))


def clock(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def wide_jobs(jobs: int) -> Iterator[str]:
    """`sacct -P` of jobs of 2 000 nodes each, of 9 408 that are a slurm.conf's."""
    draw = Random(1)
    yield "JobID|User|Partition|State|Submit|Start|End|Elapsed|TimelimitRaw|NNodes|AllocCPUS|NodeList\n"
    for number in range(1, jobs + 1):
        submit, first = EPOCH_S + 300 * number, draw.randrange(1, 7400)
        times = f"{when(submit)}|{when(submit + 5)}|{when(submit + 605)}|00:10:00"
        nodes = f"nid[{first:05d}-{first + 1999:05d}]"
        yield f"{number}|u{number % 50}|b|COMPLETED|{times}|30|2000|128000|{nodes}\n"


def whole_nodes(jobs: int) -> Iterator[dict[str, Any]]:
    """Jobs that hold one to four nodes of a thousand, one after the other: some half of the machine is in use."""
    draw = Random(2)
    submit, node = EPOCH_S, 0
    for number in range(1, jobs + 1):
        submit += draw.randrange(60)
        wide, run = draw.choice((1, 1, 2, 4)), draw.randrange(600, 12000)
        node = node + wide if node + 2 * wide <= NODES else 0
        yield {
            "number": number,
            "submit": submit,
            "start": submit + draw.randrange(30),
            "run": run,
            "nodes": wide,
            "first": node + 1,
            "cpu": int(run * wide * CORES * draw.uniform(0.2, 1.0)),
            "user": f"user{number % 300}",
            "name": f"app{number % 70}",
            "limit": run // 60 + draw.choice((5, 60, 600)),
        }


def node_list(job: dict[str, Any]) -> str:
    first, last = job["first"], job["first"] + job["nodes"] - 1
    return f"c{first:04d}" if first == last else f"c[{first:04d}-{last:04d}]"


def as_text(jobs: int) -> Iterator[str]:
    """`sacct -P` with the columns of the README."""
    yield README + "\n"
    for job in whole_nodes(jobs):
        start, run, nodes = job["start"], job["run"], job["nodes"]
        cores, memory = nodes * CORES, nodes * MEMORY_M
        yield (
            f"{job['number']}|{job['name']}|{job['user']}|batch|COMPLETED|{when(job['submit'])}|{when(start)}|"
            f"{when(start + run)}|{clock(run)}|{job['limit']}|{nodes}|{cores}|{memory}M|"
            f"billing={cores},cpu={cores},mem={memory}M,node={nodes}|{clock(job['cpu'])}|{node_list(job)}\n"
        )


def as_json(jobs: int) -> Iterator[str]:
    """`sacct --json` as data_parser/v0.0.41 shapes it, with a batch step for each job and no blanks: 2.3 kB a job."""
    yield '{"jobs": [\n'
    for job in whole_nodes(jobs):
        yield (",\n" if job["number"] > 1 else "") + json.dumps(record(job), separators=(",", ":"))
    plugin = {
        "type": "openapi/slurmdbd",
        "name": "Slurm OpenAPI slurmdbd",
        "data_parser": "data_parser/v0.0.41",
    }
    yield "\n], " + json.dumps({"meta": {"plugin": plugin}, "errors": [], "warnings": []})[1:] + "\n"


def set_to(number: int | None) -> dict[str, Any]:
    return {"set": number is not None, "infinite": False, "number": number or 0}


def record(job: dict[str, Any]) -> dict[str, Any]:
    nodes, start, run, text = job["nodes"], job["start"], job["run"], node_list(job)
    cores, memory = nodes * CORES, nodes * MEMORY_M
    held = [
        {"type": kind, "name": "", "id": at, "count": count}
        for at, (kind, count) in enumerate((("cpu", cores), ("mem", memory), ("node", nodes)), 1)
    ]
    done = {"status": ["SUCCESS"], "return_code": set_to(0)}
    used = {"seconds": job["cpu"], "microseconds": 250000}
    times = {"suspended": 0, "system": {"seconds": 1, "microseconds": 0}, "total": used, "user": used}
    step = {
        "time": {"elapsed": run, "end": set_to(start + run), "start": set_to(start), **times},
        "exit_code": done,
        "nodes": {"count": 1, "range": text, "list": [f"c{job['first']:04d}"]},
        "tasks": {"count": 1},
        "state": ["COMPLETED"],
        "step": {"id": f"{job['number']}.batch", "name": "batch"},
        "tres": {"consumed": {}, "requested": {}, "allocated": held},
    }
    return {
        "account": "physics",
        "allocation_nodes": nodes,
        "array": {
            "job_id": 0,
            "limits": {"max": {"running": {"tasks": 0}}},
            "task_id": set_to(None),
            "task": "",
        },
        "association": {"account": "physics", "cluster": "c", "partition": "", "user": job["user"], "id": 7},
        "cluster": "c",
        "time": {
            "elapsed": run,
            "eligible": job["submit"],
            "end": start + run,
            "planned": set_to(start - job["submit"]),
            "start": start,
            "submission": job["submit"],
            "limit": set_to(job["limit"]),
            **times,
        },
        "exit_code": done,
        "flags": ["STARTED_ON_BACKFILL", "START_RECEIVED"],
        "group": "users",
        "het": {"job_id": 0, "job_offset": set_to(None)},
        "job_id": job["number"],
        "name": job["name"],
        "nodes": text,
        "partition": "batch",
        "priority": set_to(4294901759),
        "qos": "normal",
        "required": {"CPUs": cores, "memory_per_cpu": set_to(None), "memory_per_node": set_to(MEMORY_M)},
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "steps": [step],
        "tres": {"allocated": held, "requested": held},
        "user": job["user"],
    }


def replay(log: Path, *machine: str) -> tuple[dict[str, Any], float, float, float]:
    """Its answer, elapsed seconds, CPU seconds and peak memory in bytes."""
    asactl = Path(sys.executable).with_name("asactl")
    command = [str(asactl), "replay", str(log), *machine, "--policy", "slurm", "--store", "none", "--json"]
    answer = log.with_suffix(".answer")
    begin = time.perf_counter()
    with answer.open("wb") as out:
        child = subprocess.Popen(command, stdout=out)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s = time.perf_counter() - begin
    assert child.returncode == 0, f"{' '.join(command)}: exit status {child.returncode}"
    cpu_s = used.ru_utime + used.ru_stime
    return json.loads(answer.read_bytes()), elapsed_s, cpu_s, used.ru_maxrss * 1024.0


def measure(
    folder: Path,
    what: str,
    write: Callable[[int], Iterator[str]],
    jobs: int,
    asked: tuple[float, float],
    *machine: str,
) -> None:
    """Print elapsed time and peak memory of a replay beside those asked for, in seconds and GiB."""
    for some in (min(SOME, jobs), jobs):  # the first compiles, or loads what is compiled
        log = folder / f"{some}.log"
        with log.open("w") as out:
            out.writelines(write(some))
        answer, elapsed_s, cpu_s, peak_bytes = replay(log, *machine)
        assert answer["log"]["jobs"] == some
    print(f"\n{what}: {jobs:,} jobs, {log.stat().st_size / 1e6:,.1f} MB, {cpu_s:.1f} s of CPU")
    print(beside("elapsed", elapsed_s, asked[0], "s"))
    print(beside("memory at most", peak_bytes / GIB, asked[1], "GiB"))


def test_wide_jobs(tmp_path: Path, smallest: bool) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("NodeName=nid[00001-09408] CPUs=64 RealMemory=256000\nPartitionName=b Nodes=ALL\n")
    jobs = SOME if smallest else 20_000
    measure(tmp_path, "jobs of 2,000 nodes", wide_jobs, jobs, (30.0, 1.2), "--machine", str(conf))


def test_a_million_jobs_of_text(tmp_path: Path, smallest: bool) -> None:
    measure(tmp_path, "sacct -P", as_text, SOME if smallest else 1_000_000, (40.0, 1.5))


def test_json(tmp_path: Path, smallest: bool) -> None:
    measure(tmp_path, "sacct --json", as_json, SOME if smallest else 100_000, (12.0, 0.8))


def test_records_of_json_are_as_long_as_those_of_sacct() -> None:
    """What is measured is 230 MB for 100 000 jobs."""
    length = sum(map(len, as_json(SOME))) / SOME
    assert length == pytest.approx(2300, rel=0.05)
