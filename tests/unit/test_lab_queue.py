"""What `lab.queue` draws, writes and computes, without a cluster."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # the lab is run from the checkout, never installed

from asad.replay.machine_files import read_machine  # noqa: E402
from lab import LabError  # noqa: E402
from lab.queue import (  # noqa: E402
    FIELDS,
    LIMIT,
    LOOK_S,
    Look,
    accounting,
    comma_separated,
    figures,
    gres_conf,
    job_row,
    last_ones,
    looks_of,
    node_words,
    partition_lines,
)
from lab.queue_jobs import (  # noqa: E402
    ACCOUNTS,
    CPUS,
    FEATURES,
    GPUS,
    LIMIT_CPUS,
    MEMORY_MB,
    PARTITIONS,
    USERS,
    QueuedJob,
    counts,
    draw,
)

NAMES = [f"n{number}" for number in range(1, 7)]


# ------------------------------------------------------------------------------------------------------------- drawing


def test_a_seed_gives_the_same_jobs_and_another_gives_others() -> None:
    assert draw(300, 3) == draw(300, 3)
    assert draw(300, 3) != draw(300, 4)


@pytest.mark.parametrize(("number", "seed"), [(300, 1), (300, 3), (10, 1), (10, 7), (50, 2)])
def test_every_job_can_start_and_every_sort_is_there(number: int, seed: int) -> None:
    jobs = draw(number, seed)
    assert len(jobs) == number
    times = [job.submit_s for job in jobs]
    assert times == sorted(times) and times[0] == 0.0
    for place, job in enumerate(jobs):
        application = job.application
        partition = PARTITIONS[application.partition]
        wanted = set(job.constraint.split("&")) - {""}
        fit = [
            node
            for node in partition.nodes
            if wanted <= set(FEATURES.get(node, "").split(",")) and application.gpus <= GPUS.get(node, 0)
        ]
        assert len(fit) >= job.nodes and job.cpus <= CPUS and job.memory_mb < MEMORY_MB
        # a job above the limit by itself would wait for ever
        assert job.urgent or job.held_cpus <= LIMIT_CPUS
        assert 1 <= job.limit_min <= partition.most_minutes
        assert job.run_s > 60 * job.limit_min or job.run_s * 1.2 <= 60 * job.limit_min
        assert job.after is None or 0 <= job.after < place
    asked = Counter(
        name
        for job in jobs
        for name, there in (
            ("exclusive", job.exclusive),
            ("two nodes", job.nodes == 2),
            ("constraint", job.constraint),
            ("much memory", job.memory_mb > 4000),
            ("after", job.after is not None),
            ("begin", job.begin_s),
            ("cancelled", job.cancel_s),
            ("urgent", job.urgent),
            (job.application.partition, True),
        )
        if there
    )
    assert len(asked) == 8 + len(PARTITIONS), asked
    assert {job.application.user.name for job in jobs} == {user.name for user in USERS}


def test_runs_and_limits_are_as_long_as_a_log_of_twenty_minutes_wants() -> None:
    jobs = draw(300, 3)
    assert 15 < statistics.fmean(job.run_s for job in jobs) < 35
    assert 600 < jobs[-1].submit_s < 1300
    assert sum(job.limit_min > 1 for job in jobs) > 60
    assert 1 <= sum(job.run_s > 60 * job.limit_min for job in jobs) <= 6


def test_scale_multiplies_times_and_nothing_else() -> None:
    whole, tenth = draw(300, 3), draw(300, 3, scale=0.1)
    for one, other in zip(whole, tenth, strict=True):
        assert other.submit_s == pytest.approx(one.submit_s / 10)
        assert other.begin_s == pytest.approx(one.begin_s / 10)
        if one.run_s < 60 * one.limit_min:
            assert other.run_s == pytest.approx(max(1.0, one.run_s / 10))
        assert (other.cpus, other.nodes, other.constraint) == (one.cpus, one.nodes, one.constraint)


def test_few_jobs_are_refused_in_words() -> None:
    with pytest.raises(LabError, match="ask for at least 10"):
        draw(9, 1)


@pytest.mark.parametrize("number", [3, 10, 100, 301])
def test_counts_divide_a_number(number: int) -> None:
    divided = counts([0.6, 0.3, 0.1], number)
    assert sum(divided) == number and min(divided) >= 1
    assert divided[0] == pytest.approx(0.6 * number, abs=1.5)


def test_options_of_sbatch_name_what_a_job_asks_for() -> None:
    def of(**changes: object) -> str:
        job = draw(10, 1)[0]
        plain = QueuedJob(job.application, submit_s=0.0, run_s=12.34, limit_min=2, cpus=3, memory_mb=900)
        for name, value in changes.items():
            setattr(plain, name, value)
        return " ".join(plain.options({4: "1234"}))

    plain = of()
    assert "--cpus-per-task=3" in plain and "--mem=900" in plain and "--time=2" in plain
    assert "--qos=normal" in plain
    for option in ("exclusive", "constraint", "dependency", "begin"):
        assert f"--{option}" not in plain
    assert "--exclusive" in of(exclusive=True)
    assert "--constraint=fast&ssd" in of(constraint="fast&ssd")
    assert "--dependency=afterany:1234" in of(after=4)
    assert "--dependency" not in of(after=5)  # that one was refused
    assert "--begin=now+31" in of(begin_s=30.2)
    assert "--qos=urgent" in of(urgent=True)
    gpu = next(job for job in draw(10, 1) if job.application.gpus)
    assert f"--gres=gpu:{gpu.application.gpus}" in gpu.options({})
    assert gpu.script == f"exec sleep {gpu.run_s:.1f}"


# ------------------------------------------------------------------------------------------------------------- cluster


def test_the_configuration_is_one_that_asad_reads(tmp_path: Path) -> None:
    words = node_words(NAMES)
    nodes = [f"NodeName={name} CPUs=4 RealMemory=8000 {words.get(name, '')}" for name in NAMES]
    conf = tmp_path / "slurm.conf"
    conf.write_text("\n".join(("GresTypes=gpu", *nodes, partition_lines(NAMES))) + "\n")
    machine = read_machine(conf)
    assert sorted(machine.node_names) == NAMES and machine.total_cores == 24
    assert machine.time_limits_s == {
        name: 60.0 * partition.most_minutes for name, partition in PARTITIONS.items()
    }
    assert "n4" not in words and words["n6"] == "Feature=fast,ssd Gres=gpu:2"
    text = gres_conf(NAMES, Path("/lab"))
    assert text.splitlines()[1:] == [f"NodeName={name} Name=gpu File=/lab/gpu[0-1]" for name in ("n5", "n6")]
    assert [line.split()[0] for line in partition_lines(NAMES).splitlines()] == [
        f"PartitionName={name}" for name in PARTITIONS
    ]
    assert partition_lines(NAMES).count("Default=YES") == 1


def test_the_limit_is_all_that_differs() -> None:
    assert accounting(limited=True) == [*accounting(limited=False), LIMIT]
    made = [line.split()[2] for line in accounting(limited=False) if line.startswith("add account")]
    for name, (parent, _) in ACCOUNTS.items():
        assert parent == "root" or made.index(parent) < made.index(name)
    assert {user.account for user in USERS} <= set(made)


def test_of_a_setting_that_stands_twice_the_last_line_is_kept() -> None:
    conf = "A=1\nNodeName=n1 CPUs=4\nNodeName=n2 CPUs=4\nAB=2\n\nA=3\nPartitionName=p Nodes=n1\nPartitionName=q\n"
    assert last_ones(conf) == (
        "NodeName=n1 CPUs=4\nNodeName=n2 CPUs=4\nAB=2\nA=3\nPartitionName=p Nodes=n1\nPartitionName=q\n"
    )


# ------------------------------------------------------------------------------------------------------------- figures


def row(eligible: int, start: str, end: int, cpus: int = 2, state: str = "COMPLETED") -> dict[str, str]:
    return {
        "JobIDRaw": "1",
        "State": state,
        "Eligible": str(eligible),
        "Start": start,
        "End": str(end),
        "AllocCPUS": str(cpus),
    }


def test_figures_count_waits_of_jobs_that_started() -> None:
    looks = list(
        looks_of(
            ["1|Priority|10|2026-01-01T00:00:09", "2|Dependency|0|N/A", "3|QOSMaxCpuPerUserLimit|9|N/A"], 5.0
        )
    )
    assert looks[0] == Look("1970-01-01T00:00:05", "1", "Priority", "10", "2026-01-01T00:00:09")
    rows = [row(0, "10", 30), row(0, "30", 100, cpus=1), row(5, "None", 9, 0, "CANCELLED by 0")]
    found = figures(rows, looks)
    assert found["jobs"] == 3 and found["states"] == {"CANCELLED": 1, "COMPLETED": 2}
    assert (found["mean_wait_s"], found["mean_run_s"], found["span_s"]) == (20.0, 45.0, 100.0)
    assert found["cpu_use"] == pytest.approx((2 * 20 + 70) / (24 * 100), abs=5e-4)
    assert found["waited_s_by_reason"] == {"Priority": LOOK_S, "QOSMaxCpuPerUserLimit": LOOK_S}
    with pytest.raises(LabError, match="no job has started"):
        figures(rows[2:], looks)


def test_jobs_are_written_with_the_ids_of_those_that_were_taken() -> None:
    jobs = draw(10, 1)
    child = next(place for place, job in enumerate(jobs) if job.after is not None)
    ids = {place: str(100 + place) for place in range(10) if place != jobs[child].after}
    lines = comma_separated([job_row(place, job, ids) for place, job in enumerate(jobs)]).splitlines()
    assert len(lines) == 11
    written = dict(zip(lines[0].split(","), lines[1 + child].split(","), strict=True))
    assert written["job_id"] == str(100 + child) and written["after"] == ""
    assert len(FIELDS.split(",")) == len(set(FIELDS.split(",")))
