"""What squeue and sinfo of one made-up cluster say in any version of Slurm: recorded in tests/golden/slurm, and live.

`tests/slurm/test_golden_on_slurm.py` makes that cluster and its jobs, and can record what a version writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from asad_mesos.slurm_jobs import read_jobs
from asad_slurm.records import MIB, RUNS, WAITS, JobRecord, NodeRecord

from asad.replay.readers import read_log


def check_jobs(records: Sequence[JobRecord]) -> None:
    """Twenty jobs of every kind: two hosts that run, and all sorts that wait."""
    jobs = {job.name: job for job in records}
    assert len(records) == 20 and len(jobs) == 19  # both parts of the heterogeneous job have one name
    host = jobs["host1"]
    assert (host.phase, host.cores, host.text, host.nodes_text) == (RUNS, 2, "1", "an1")
    assert host.places == (("an1", 2),)
    assert host.memory_bytes_per_core == 250 * MIB
    assert host.end_s - host.start_s == host.time_limit_s == 600
    assert jobs["wide"].places == (("an4", 2), ("an5", 2))
    assert math.isnan(jobs["host3"].start_s) and math.isnan(jobs["host3"].estimate_s)
    array = jobs["arr"]
    assert (array.text, array.raw, array.tasks, array.phase) == ("6_1", 6, 10, WAITS)
    assert (array.array, array.task, array.throttle) == (6, 1, 2) and host.array == 0
    assert math.isnan(host.begin_s) and math.isnan(array.deadline_s)
    assert math.isnan(array.begin_s) or array.begin_s <= array.submit_s + 5, "when Slurm looked at it first"
    later = jobs["later"]
    assert later.begin_s > later.submit_s + 3000 and later.reason == "BeginTime"
    assert {job.nice for job in records} == {0} and {job.admin_comment for job in records} == {""}
    assert jobs["gang"].nodes == 2 and jobs["gang"].memory_bytes_per_core == 500 * MIB
    assert jobs["gpu"].gres and not jobs["gang"].gres
    assert jobs["lic"].licences == "abaqus:2"
    assert jobs["dep"].dependency and not jobs["dep"].waits_turn
    assert not jobs["held"].waits_turn and not jobs["later"].waits_turn
    assert jobs["gang"].waits_turn and jobs["percpu"].waits_turn
    assert jobs["allmem"].whole_memory and not jobs["percpu"].whole_memory
    assert jobs["excl"].exclusive and jobs["excluser"].exclusive and not jobs["gang"].exclusive
    assert jobs["nolimit"].time_limit_s == math.inf
    hidden = jobs["hidden"]
    assert (hidden.partition, hidden.required_nodes, hidden.excluded_nodes) == ("secret", "an1", "an4")
    assert hidden.features == "fast"
    assert jobs["wrap"].het and jobs["wrap"].text == "19+1"
    (evil,) = (job for job in records if "evil" in job.name)
    assert evil.name == 'evil�name;rm -rf "$HOME"\\'
    assert evil.comment == "asad:no-host <script>"


def check_queued(answer: bytes) -> None:
    """The same jobs as the queue beside Mesos sees them: what speaks against each, and what it would be there."""
    jobs = {job.name: job for job in read_jobs(answer)}
    reasons = {
        "host1": "certain nodes",
        "lic": "licences",
        "allmem": "all memory",
        "excl": "whole nodes",
        "excluser": "whole nodes",
        "hidden": "features",
        "wrap": "heterogeneous",
    }
    assert {name: job.bar for name, job in jobs.items() if job.bar}.keys() >= reasons.keys()
    assert all(why in jobs[name].bar for name, why in reasons.items())
    free = ("arr", "gang", "gpu", "percpu", "held", "later")
    assert not [jobs[name].bar for name in free if jobs[name].bar]
    assert jobs["gpu"].gpus_per_node == 1
    array, gang, percpu = jobs["arr"], jobs["gang"], jobs["percpu"]
    assert (array.array, array.task, array.most_running) == (6, -1, 2) and array.tasks_left.startswith("1-10")
    assert (gang.nodes, gang.tasks, gang.cpus, gang.memory_per_node) == (2, 2, 2, 500)
    assert percpu.memory_per_cpu == 100 and math.isnan(percpu.memory_per_node) and percpu.time_limit_s == 600
    assert jobs["held"].priority == 0 and jobs["dep"].dependency and jobs["nolimit"].time_limit_s == math.inf
    assert {job.uid for job in jobs.values()} == {0} and not any(job.name_alone for job in jobs.values())


def check_nodes(records: Sequence[NodeRecord]) -> None:
    """Five nodes of two CPUs: the third is drained, the last is in no guest partition."""
    nodes = {node.name: node for node in records}
    assert list(nodes) == ["an1", "an2", "an3", "an4", "an5"]
    assert {(node.cpus, node.threads, node.memory_bytes) for node in records} == {(2, 1, 3000 * MIB)}
    assert [node.usable for node in records] == [True, True, False, True, True]
    assert sorted(nodes["an1"].partitions) == ["batch", "guest", "secret"]
    assert nodes["an5"].partitions == ("batch",)
    assert nodes["an1"].features == {"fast"} and not nodes["an5"].features


def check_logs(text: Path, plain: Path) -> None:
    """`sacct -P` and `sacct --json` of the same six jobs, of which one has failed and one was busy for a second."""
    seen = [read_log(path) for path in (text, plain)]
    assert [log.format for log in seen] == ["sacct", "sacct-json"]
    for log in seen:
        named = {log.jobs.applications[code]: at for at, code in enumerate(log.jobs.application.tolist())}
        assert named.keys() == {"plain", "busy", "failed", "tasks", "wide"} and len(log.jobs) == 6
        assert 0.5 < log.jobs.cpu_time_s[named["busy"]] < 2.0
        assert log.jobs.nodes[named["wide"]] == log.jobs.cores[named["wide"]] == 2
    columns = ("job_id", "submit_s", "start_s", "run_s", "cores", "nodes", "time_limit_s", "memory_bytes")
    for column in columns:
        first, second = (sorted(getattr(log.jobs, column).tolist()) for log in seen)
        assert first == second, column
    first, second = (sorted(log.jobs.cpu_time_s.tolist()) for log in seen)
    assert all(abs(one - other) < 0.002 for one, other in zip(first, second, strict=True)), (
        "text has milliseconds"
    )
