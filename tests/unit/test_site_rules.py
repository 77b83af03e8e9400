"""What a simulated Slurm goes by, as logs, machines and limits say it; and nodes that were gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_logs import BEGIN_S, log_of

from asad.model import Machine
from asad.replay.cpu_demand import assign
from asad.replay.machine import uniform
from asad.replay.machine_files import read_machine
from asad.replay.readers import Recorded, read_log
from asad.replay.replay_settings import Settings
from asad.replay.run import replay
from asad.replay.workbench import Bench, prepare

HOUR = 3600
CONF = """\
NodeName=n[1-2] CPUs=4 Feature=old Weight=10
NodeName=n3 CPUs=4 Feature=new,fast Weight=1 Gres=gpu:2
PartitionName=batch Nodes=n[1-2] MaxTime=INFINITE
PartitionName=all Nodes=ALL MaxTime=INFINITE
PartitionName=gpu Nodes=n3 MaxTime=INFINITE
"""


def nodes(count: int, cores: int) -> Machine:
    machine = uniform(count, cores, np.nan, "given")
    return replace(machine, node_names=tuple(f"n{k}" for k in range(1, count + 1)))


def described(tmp_path: Path, text: str) -> Machine:
    path = tmp_path / "slurm.conf"
    path.write_text(text, encoding="utf-8")
    return read_machine(path)


def bench_of(recorded: Recorded, machine: Machine, **given: Any) -> tuple[Bench, list[str]]:
    settings, notes = Settings(baseline="simulated", vary_demand=False, **given), list[str]()
    demand = assign(recorded.jobs, *recorded.jobs.fingerprints(), settings.demand, 0)
    return prepare(recorded, machine, settings, demand, notes), notes


def waits(bench: Bench) -> list[float]:
    cluster = bench.cluster(bench.scheduler, None)
    cluster.run()
    found: list[float] = (cluster.jobs["start"] - cluster.jobs["eligible"]).tolist()
    return found


def job(number: int, submit: int, start: int, run: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "submit": submit, "start": start, "run": run, "nodes": "n1", **more}


def test_three_jobs_on_the_gpus_of_one_node_run_one_after_the_other(tmp_path: Path) -> None:
    gpus = {"tres": ",gres/gpu=4", "cores": 8}
    run = 9 * HOUR + 50 * 60
    recorded = log_of(tmp_path / "log", [job(k + 1, 0, k * run, run, **gpus) for k in range(3)])
    bench, notes = bench_of(recorded, nodes(1, 32))
    assert bench.scheduler == "slurm" and any("gres" in note for note in notes)
    assert waits(bench) == [0, run, 2 * run]


def test_without_anything_to_go_by_it_is_easy(tmp_path: Path) -> None:
    recorded = log_of(tmp_path / "log", [job(1, 0, 0, HOUR), job(2, 10, 10, HOUR, nodes="n2", user="bob")])
    bench, notes = bench_of(recorded, nodes(2, 1))
    assert bench.site is None and bench.scheduler == "easy"
    assert not any("the simulated Slurm goes by" in note for note in notes)


def test_jobs_run_on_the_nodes_of_their_partition(tmp_path: Path) -> None:
    jobs = [
        job(1, 0, 0, HOUR, cores=4, partition="batch"),
        job(2, 1, 1, HOUR, cores=4, nodes="n2", partition="batch"),
        job(3, 2, HOUR, 60, cores=4, partition="batch"),
        job(4, 3, 3, 60, cores=4, nodes="n3", partition="all"),
    ]
    recorded = log_of(tmp_path / "log", jobs)
    assert waits(bench_of(recorded, described(tmp_path, CONF))[0]) == [0, 0, HOUR - 2, 0]
    # where nobody describes partitions, the nodes that the log used for each count
    assert waits(bench_of(recorded, nodes(3, 4))[0]) == [0, 0, HOUR - 2, 0]


def test_nodes_of_less_weight_are_taken_first(tmp_path: Path) -> None:
    jobs = [job(1, 0, 0, HOUR, cores=4, partition="all"), job(2, 1, 1, 60, nodes="n3", partition="gpu")]
    recorded = log_of(tmp_path / "log", jobs)
    assert waits(bench_of(recorded, described(tmp_path, CONF))[0]) == [0, HOUR - 1]
    heavy = CONF.replace("Weight=1 ", "Weight=20 ")
    assert waits(bench_of(recorded, described(tmp_path, heavy))[0]) == [0, 0]


def constrained(tmp_path: Path, text: str) -> Recorded:
    """Two jobs of the partition `all` that fill a node each; the second asks for features."""
    recorded = log_of(
        tmp_path / "log",
        [
            job(1, 0, 0, HOUR, cores=4, nodes="n3", partition="all"),
            job(2, 1, HOUR, 60, cores=4, nodes="n3", partition="all"),
        ],
    )
    jobs = replace(recorded.jobs, constraint=np.array([-1, 0], np.int32), constraints=(text,))
    return replace(recorded, jobs=jobs)


@pytest.mark.parametrize(
    ("text", "waits_s"), [("fast", HOUR - 1), ("new&fast", HOUR - 1), ("old", 0), ("old|fast", 0)]
)
def test_features_are_asked_for(tmp_path: Path, text: str, waits_s: float) -> None:
    bench, notes = bench_of(constrained(tmp_path, text), described(tmp_path, CONF))
    assert waits(bench) == [0, waits_s]
    assert not any("constraint" in note for note in notes if "not simulated" in note)


def test_a_constraint_that_is_no_list_has_the_nodes_that_such_jobs_used(tmp_path: Path) -> None:
    bench, notes = bench_of(constrained(tmp_path, "[old*2&fast*1]"), described(tmp_path, CONF))
    assert waits(bench) == [0, HOUR - 1]
    assert "not simulated: the constraint [old*2&fast*1] (1 jobs)" in notes


def test_given_limits_hold_jobs(tmp_path: Path) -> None:
    jobs = [job(1, 0, 0, HOUR, cores=2), job(2, 1, HOUR, 60, cores=2), job(3, 2, 2, 60, cores=2, user="bob")]
    recorded = log_of(tmp_path / "log", jobs)
    assert waits(bench_of(recorded, nodes(1, 8))[0]) == [0, 0, 0]
    limits = tmp_path / "limits"
    limits.write_text("Name|Priority|MaxTRESPU\nnormal|0|cpu=2\n", encoding="utf-8")
    assert waits(bench_of(recorded, nodes(1, 8), limits=(limits,))[0]) == [0, HOUR - 1, 0]


def test_priorities_of_the_log_order_jobs(tmp_path: Path) -> None:
    jobs = [job(k, k, k if k == 1 else (k - 1) * HOUR + 1, HOUR) for k in range(1, 4)]
    recorded = log_of(tmp_path / "log", jobs)
    recorded = replace(recorded, jobs=replace(recorded.jobs, priority=np.array([1.0, 1.0, 9.0])))
    bench, _ = bench_of(recorded, nodes(1, 1))
    assert bench.site is not None and bench.site.ordered
    assert waits(bench) == [0, 2 * HOUR - 1, HOUR - 2]


@pytest.mark.parametrize("fair", [True, False])
def test_where_nobody_says_who_comes_first_the_log_decides(tmp_path: Path, fair: bool) -> None:
    """Ann has a long queue on one node, and Bob comes late: does he go first?"""
    run, start, jobs = 600, 0, []
    order = [0, 6, 1, 7, 2, 3, 4, 5] if fair else range(8)
    starts = {}
    for row in order:
        starts[row] = start
        start += run
    for row in range(8):
        user = "bob" if row > 5 else "ann"
        jobs.append(job(row + 1, row, starts[row], run, user=user, account=user, partition="p"))
    # another partition, so that there is anything to go by
    jobs.append(job(20, 30, 30, 60, nodes="n2", partition="q", user="cat", account="cat"))
    bench, notes = bench_of(log_of(tmp_path / "log", jobs), nodes(2, 1))
    assert any("fair share" in note for note in notes) == fair
    assert bench.site is not None and ("fair share" in bench.site.simulated) == fair


def test_a_node_that_stands_empty_beside_who_would_fit_is_gone(tmp_path: Path) -> None:
    jobs = [
        job(1, 0, 0, 4 * HOUR, nodes="n1"),
        # it was there before and comes back later
        job(2, 0, 0, HOUR, nodes="n2"),
        job(3, 10, 4 * HOUR, HOUR, nodes="n1"),
        job(4, 2 * HOUR, 5 * HOUR, HOUR, nodes="n2"),
    ]
    bench, notes = bench_of(log_of(tmp_path / "log", jobs), nodes(2, 1))
    assert bench.shown.waits is not None and bench.shown.gone is not None
    gone = bench.shown.waits.gone
    assert gone is not None
    # it is known a quarter of an hour later
    assert (bench.shown.gone.begin_s - gone.begin_s).tolist() == [
        900
    ] and bench.shown.gone.end_s == gone.end_s
    assert gone.node.tolist() == [1]
    assert (gone.begin_s - BEGIN_S).tolist() == [HOUR] and (gone.end_s - BEGIN_S).tolist() == [5 * HOUR]
    assert any(note.startswith("1 nodes stood empty for 4 hours") for note in notes)
    assert waits(bench) == [0, 0, 4 * HOUR - 10, 3 * HOUR]


@pytest.mark.parametrize(
    "waiting",
    [
        {"cores": 2, "nodes": "n3"},  # no room on a node of one core
        {"wide": 2, "cores": 2, "nodes": "n[1-2]"},  # nodes may be kept for it
        {"tres": ",gres/gpu=1"},
        {"partition": "other", "nodes": "n3"},
    ],
)
def test_nodes_are_not_gone_that_nobody_is_shown_to_want(tmp_path: Path, waiting: dict[str, Any]) -> None:
    jobs = [
        job(1, 0, 0, 4 * HOUR, nodes="n1"),
        job(2, 10, 4 * HOUR, HOUR, **waiting),
        job(3, 0, 0, HOUR, nodes="n2"),
        job(4, 5 * HOUR, 5 * HOUR, HOUR, nodes="n2"),
    ]
    machine = nodes(3, 1)
    machine.cores[2] = 2
    bench, _ = bench_of(log_of(tmp_path / "log", jobs), machine)
    assert bench.shown.gone is not None and 1 not in bench.shown.gone.node


def test_reservations_close_their_nodes(tmp_path: Path) -> None:
    machine = described(tmp_path, CONF)
    from asad.replay.site import Reservation, Site

    assert isinstance(machine.site, Site)
    begin, end = float(BEGIN_S + HOUR), float(BEGIN_S + 3 * HOUR)
    kept = Reservation("upgrade", begin, end, np.array([2], np.int32), flags=("MAINT",))
    machine = replace(machine, site=replace(machine.site, reservations=(kept,)))
    jobs = [
        job(1, 0, 0, HOUR // 2, nodes="n3", partition="gpu"),
        job(2, 10, 3 * HOUR, HOUR // 2, nodes="n3", partition="gpu", limit=2 * HOUR, cores=4),
    ]
    bench, notes = bench_of(log_of(tmp_path / "log", jobs), machine)
    assert waits(bench) == [0, 3 * HOUR - 10]
    assert any("reservations" in note for note in notes)


def test_a_log_without_node_lists_is_simulated_on_any_nodes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    head = "JobID|User|Submit|Start|End|NCPUS|NNodes|Partition|TimelimitRaw|State|Priority"
    lines = [
        f"{k}|ann|2026-01-01T00:00:0{k}|2026-01-01T0{k}:00:00|2026-01-01T0{k + 1}:00:00|1|1|p|120|COMPLETED|{k}"
        for k in range(1, 4)
    ]
    path.write_text("\n".join((head, *lines)) + "\n", encoding="utf-8")
    bench, _ = bench_of(read_log(str(path)), nodes(1, 1))
    assert bench.shown.gone is None and bench.scheduler == "slurm"
    assert waits(bench) == [0, 2 * HOUR - 1, HOUR - 2]


def test_too_many_jobs_and_nodes_are_simulated_on_one_pool_and_recorded_starts_say_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asad.replay.looking_back.MOST", 3)
    jobs = [job(k, 0, 0, HOUR, nodes=f"n{k}", partition=f"p{k}") for k in (1, 2)]
    recorded = log_of(tmp_path / "log", jobs)
    bench, notes = bench_of(recorded, nodes(2, 1))
    assert bench.scheduler == "easy" and any("2 jobs on 2 nodes are too many" in note for note in notes)
    settings = Settings(("slurm", "measured"), baseline="recorded", compare=True, vary_demand=False)
    left_out = str(replay(recorded, nodes(2, 1), settings).baseline["not_simulated"])
    assert "'jobs': 2" in left_out and "are too many" in left_out
