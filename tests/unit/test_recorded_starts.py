"""Recorded starts: every job where and when the log has it, lending beside them, and harm counted one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_logs import log_of

from asad.decisions import Cause, CoAllocate
from asad.errors import UsageError
from asad.ineligible import NodeIneligible
from asad.model import Machine
from asad.replay import engine
from asad.replay.baseline import resolved
from asad.replay.cpu_demand import assign
from asad.replay.inferred_machine import infer
from asad.replay.machine import uniform
from asad.replay.playing import beside, leave_alone
from asad.replay.readers import Recorded, read_log
from asad.replay.replay_settings import Settings
from asad.replay.run import replay
from asad.replay.workbench import Bench, prepare

SAMPLES = Path("profiles/samples")
TRACES = Path("../shared/traces")
_POZIDRIV = """
jobid jobidraw cluster partition qos account group gid user uid submit eligible start end elapsed exitcode state nnodes
ncpus reqcpus reqmem reqtres alloctres timelimit nodelist jobname
"""
POZIDRIV = _POZIDRIV.split()


def settings(**given: Any) -> Settings:
    return Settings(("slurm", "measured"), baseline="recorded", vary_demand=False, **given)


def bench_of(recorded: Recorded, machine: Machine, **given: Any) -> Bench:
    chosen = settings(**given)
    code, names = recorded.jobs.fingerprints()
    return prepare(recorded, machine, chosen, assign(recorded.jobs, code, names, chosen.demand, 0), [])


def nodes(names: int, cores: int) -> Machine:
    machine = uniform(names, cores, np.nan, "given")
    return replace(machine, node_names=tuple(f"n{k}" for k in range(1, names + 1)))


def guest(row: int, *where: int) -> CoAllocate:
    return CoAllocate(Cause("test", "because"), row, where, tuple(0.5 for _ in where))


def logs() -> list[str]:
    found = [str(path) for path in sorted(SAMPLES.glob("*.sacct*"))]
    return found + ([str(TRACES / "pozidriv.sacct.gz")] if TRACES.exists() else [])


@pytest.mark.parametrize("path", logs())
def test_every_wait_and_end_is_the_log_s(path: str) -> None:
    recorded = read_log(path, columns=POZIDRIV if "pozidriv" in path else None)
    bench = bench_of(recorded, infer(recorded))
    job, jobs = leave_alone(bench, "slurm").cluster.jobs, recorded.jobs
    assert (job["start"] == jobs.start_s).all()
    assert (job["end"] == jobs.start_s + jobs.run_s).all()
    wait_s = job["start"] - bench.workload.submit_s
    assert (wait_s == np.maximum(jobs.start_s - jobs.queued_s, 0.0)).all()
    if "pozidriv" in path:
        assert float(wait_s.mean()) / 60.0 == pytest.approx(101.117, abs=5e-4)


@pytest.mark.parametrize("path", logs()[:2])
def test_displaced_jobs_are_those_whose_nodes_were_late(path: str) -> None:
    recorded = read_log(path)
    bench = bench_of(recorded, infer(recorded), use_memory=True)
    job = beside(bench, "measured").cluster.jobs
    own = ~job["was_guest"]
    assert (job["start"][own] >= recorded.jobs.start_s[own]).all()
    result = replay(recorded, bench.machine, bench.settings)
    figures = result.policies["measured"].metrics
    tolerance = np.maximum(
        60.0, 0.05 * (recorded.jobs.start_s + recorded.jobs.run_s - bench.workload.submit_s)
    )
    late_start = job["start"] - recorded.jobs.start_s > tolerance
    assert figures["displaced"] == int((late_start & own).sum())
    assert figures["displaced_placebo"] == 0


def test_three_jobs_of_four_gpus_run_one_after_the_other(tmp_path: Path) -> None:
    gpus = {"nodes": "n1", "cores": 8, "run": 35_400, "submit": 0, "tres": ",gres/gpu=4"}
    recorded = log_of(
        tmp_path / "log", [{"id": k + 1, "start": k * 35_400, "name": f"train{k}", **gpus} for k in range(3)]
    )
    result = replay(recorded, nodes(1, 64), settings())
    for policy in result.policies.values():
        assert ((policy.start_s - result.submit_s) / 3600).tolist() == pytest.approx(
            [0.0, 9.8333, 19.6667], abs=1e-4
        )


@pytest.fixture
def one_waits(tmp_path: Path) -> Recorded:
    """Job 1 holds half of n1; job 2 waits for 1 000 s although there is room, and runs for 1 000 s after that."""
    return log_of(
        tmp_path / "log",
        [
            {"id": 1, "start": 0, "run": 4000, "cores": 2, "nodes": "n1"},
            {"id": 2, "submit": 10, "start": 1010, "run": 1000, "cores": 2, "nodes": "n1"},
            {"id": 3, "submit": 20, "start": 3020, "run": 500, "cores": 2, "nodes": "n1"},
        ],
    )


@pytest.mark.parametrize("hold", [False, True])
def test_a_slot_that_a_guest_has_left_is_free_or_held(one_waits: Recorded, hold: bool) -> None:
    bench = bench_of(one_waits, nodes(1, 4), hold_vacated=hold)
    cluster = bench.cluster("recorded", "idle", pooled=True)
    start = cluster.now_s
    cluster.run(start + 60)
    assert all(outcome.done for outcome in cluster.apply([guest(1, 0)]))
    cluster.run(start + 1500)
    assert cluster.jobs["state"][1] == engine.DONE
    held = int((cluster.state.core["owner"] >= 0).sum())
    assert held == (4 if hold else 2)
    snapshot = cluster.snapshot()
    assert snapshot.running.tolist() == [0]
    cluster.run(start + 2500)  # it would have ended by itself
    assert int((cluster.state.core["owner"] >= 0).sum()) == 2
    cluster.run()
    assert (cluster.jobs["start"][[0, 2]] == one_waits.jobs.start_s[[0, 2]]).all()
    assert cluster.finished().row.tolist() in ([1, 2, 0], [1, 0, 2])


def test_earlier_runs_of_requeued_jobs_hold_their_nodes(tmp_path: Path) -> None:
    recorded = log_of(
        tmp_path / "log",
        [
            {"id": 1, "start": 0, "run": 1000, "cores": 3, "nodes": "n1", "state": "NODE_FAIL"},
            {"id": 1, "submit": 1000, "start": 1100, "run": 500, "cores": 3, "nodes": "n1"},
            {"id": 2, "start": 5, "run": 2000, "cores": 1, "nodes": "n1"},
        ],
    )
    assert recorded.held is not None and recorded.held.earlier.sum() == 1
    cluster = bench_of(recorded, nodes(1, 4)).cluster("recorded", "idle", pooled=True)
    cluster.run(cluster.now_s + 100)
    assert (cluster.state.core["owner"] >= 0).sum() == 4
    assert [str(cluster.workload.job_id[row]) for row in cluster.snapshot().running] == ["2"]
    cluster.run()
    assert cluster.ended == 2 == cluster.logged


def test_a_node_of_which_the_log_held_more_than_it_has_lends_nothing(tmp_path: Path) -> None:
    recorded = log_of(
        tmp_path / "log",
        [
            {"id": k, "start": 10 * k, "run": 1000, "cores": 3, "nodes": "n1" if k < 3 else "n2"}
            for k in (1, 2, 3)
        ],
    )
    bench = bench_of(recorded, nodes(2, 4))
    cluster = bench.cluster("recorded", "idle", pooled=True)
    assert cluster.snapshot().node_bar.tolist() == [NodeIneligible.OVERFULL, NodeIneligible.NO]
    assert cluster.machine.cores.tolist() == [6, 4] and bench.machine.cores.tolist() == [4, 4]
    cluster.run()
    assert (cluster.jobs["start"] == recorded.jobs.start_s).all()


@pytest.mark.parametrize("second_node", [True, False])
def test_a_job_whose_nodes_are_taken_moves_or_is_late(tmp_path: Path, second_node: bool) -> None:
    jobs = [
        {"id": 1, "start": 0, "run": 9000, "cores": 1, "nodes": "n1", "memory": "1Gn"},
        {"id": 2, "submit": 10, "start": 8010, "run": 2000, "cores": 1, "nodes": "n1", "memory": "6Gn"},
        {"id": 3, "start": 1000, "run": 500, "cores": 1, "nodes": "n1", "memory": "4Gn"},
        {
            "id": 4,
            "start": 5,
            "run": 100,
            "cores": 1,
            "nodes": "n2" if second_node else "n1",
            "memory": "1Gn",
        },
    ]
    recorded = log_of(tmp_path / "log", jobs)
    machine = replace(nodes(2, 4), memory_bytes=np.full(2, 8.0 * 2**30))
    bench = bench_of(recorded, machine, use_memory=True)
    cluster = bench.cluster("recorded", "idle", pooled=True)
    row = {str(name): at for at, name in enumerate(recorded.jobs.job_id)}
    begin = cluster.now_s
    cluster.run(begin + 60)
    assert all(outcome.done for outcome in cluster.apply([guest(row["2"], 0)]))
    cluster.run()
    start = {name: float(cluster.jobs["start"][at]) - begin for name, at in row.items()}
    assert start["3"] == (1000 if second_node else float(cluster.jobs["end"][row["2"]]) - begin)
    assert cluster.state.slot["moved"][row["3"]] == second_node


def test_jobs_without_nodes_get_some_and_it_is_noted(tmp_path: Path) -> None:
    recorded = log_of(
        tmp_path / "log",
        [
            {"id": 1, "start": 0, "run": 100, "cores": 2, "nodes": "n1"},
            {"id": 2, "start": 0, "run": 100, "cores": 4, "nodes": "None assigned"},
        ],
    )
    notes: list[str] = []
    code, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, code, names, settings().demand, 0)
    bench = prepare(recorded, nodes(2, 4), settings(), demand, notes)
    assert any("1 jobs name no nodes" in note for note in notes)
    cluster = bench.cluster("recorded", "idle", pooled=True)
    cluster.run(cluster.now_s + 1)
    first = cluster.machine.first_core
    assert set(cluster.state.core["owner"][first[1] : first[2]].tolist()) == {1}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"policies": ("slurm", "fcfs")}, "fcfs schedules every job itself"),
        ({"policies": ("slurm", "fluid")}, "fluid schedules"),
        ({"policies": ("oasis",)}, "oasis admits"),
        ({"policies": ("sow",)}, "sow"),
        ({"policies": ("rollout-defer",)}, "rollout-defer defers"),
        ({"policies": ("asax",), "deferrable": ("share=0.2,window=4h",)}, "--deferrable"),
        ({"policies": ("asax",), "per_event": True}, "--pass"),
    ],
)
def test_what_reschedules_needs_the_simulated_slurm(
    one_waits: Recorded, given: dict[str, Any], why: str
) -> None:
    chosen, reason = resolved(Settings(**given, baseline="auto"), one_waits)
    assert chosen.baseline == "simulated" and why in reason
    with pytest.raises(UsageError, match="--baseline recorded"):
        resolved(Settings(**given, baseline="recorded"), one_waits)


def test_auto_is_recorded_where_the_log_can_carry_it(one_waits: Recorded, tmp_path: Path) -> None:
    assert resolved(Settings(("asax",), baseline="auto"), one_waits)[0].baseline == "recorded"
    swf = tmp_path / "log.swf"
    swf.write_text("; MaxProcs: 4\n1 0 10 100 1 -1 -1 1 200 -1 1 1 1 1 1 1 -1 -1\n")
    chosen, why = resolved(Settings(("asax",), baseline="auto"), read_log(swf))
    assert chosen.baseline == "simulated" and "SWF" in why


@pytest.mark.parametrize("known", [True, False])
def test_jobs_without_a_limit_have_their_partition_s(tmp_path: Path, known: bool) -> None:
    recorded = log_of(tmp_path / "log", [{"id": 1, "start": 0, "run": 100, "nodes": "n1", "limit": 0}])
    machine = replace(nodes(1, 4), time_limits_s={"batch": 7200.0} if known else {})
    notes: list[str] = []
    code, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, code, names, settings().demand, 0)
    workload = prepare(recorded, machine, settings(), demand, notes).workload
    assert workload.limit_s.tolist() == pytest.approx([7200.0 if known else np.nan], nan_ok=True)
    assert any(note.startswith("1 jobs have no time limit") for note in notes)
