"""A replay lets those lend and be guests whom a live cluster with the same settings would let."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asad.config import Config, load
from asad.decisions import CoAllocate
from asad.ineligible import Ineligible, NodeIneligible
from asad.replay.cpu_demand import assign
from asad.replay.machine import from_flags
from asad.replay.playing import Played, beside
from asad.replay.policies import PLAIN
from asad.replay.readers import read_log
from asad.replay.recorded_cluster import RecordedCluster, close_nodes
from asad.replay.replay_settings import Settings
from asad.replay.workbench import Bench, prepare

HEAD = "JobID|User|JobName|Submit|Start|End|Timelimit|NCPUS|NNodes|State|AllocTRES|TotalCPU"
KINDS = ("one", "wide", "gres", "endless")
LENDERS = ("measured", "asax", "pool-oracle", "static", "asax-paper", "greedy-oracle", "first-fit")
POOLED = LENDERS[:3]


def a_job(number: int, kind: str, name: str, hours: int, cores: int, nodes: int) -> str:
    begin = f"2026-03-02T00:{number // 60:02}:{number % 60:02}"
    gres = ",gres/gpu=1" if kind == "gres" else ""
    limit = "UNLIMITED" if kind == "endless" else f"{hours * 2:02}:00:00"
    return (
        f"{number}|u|{name}-{kind}|{begin}|{begin}|2026-03-02T{hours:02}:{number // 60:02}:{number % 60:02}|"
        f"{limit}|{cores}|{nodes}|COMPLETED|cpu={cores},node={nodes}{gres}|{hours * cores // 5:02}:00:00"
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs that hold all of the machine's five nodes and use a fifth, and smaller ones of every kind behind them."""
    lines = [HEAD]
    lines += [a_job(1 + k, kind, "host", 10, 8 * (1 + (kind == "wide")), 1 + (kind == "wide")) for k, kind in
              enumerate(KINDS)]  # fmt: skip
    lines += [
        a_job(10 + k, KINDS[k % 4], "late", 2, 8 if KINDS[k % 4] == "wide" else 4, 1 + (k % 4 == 1))
        for k in range(40)
    ]
    path = tmp_path_factory.mktemp("log") / "log.sacct"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def bench_of(log: Path, config: Config = PLAIN) -> tuple[Bench, list[str]]:
    recorded, settings, notes = read_log(str(log)), Settings(config=config), list[str]()
    codes, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, codes, names, settings.demand, 0)
    return prepare(recorded, from_flags(5, 8, None), settings, demand, notes), notes


def kinds_of(bench: Bench, rows: np.ndarray | set[int]) -> set[str]:
    workload = bench.workload
    return {workload.names[int(workload.name[row])].partition("-")[2] for row in rows}  # type: ignore[index]


def hosts_and_guests(
    bench: Bench, policy: str, patch: pytest.MonkeyPatch
) -> tuple[set[str], set[str], Played]:
    """Kinds of jobs on whose nodes guests were offered cores, and of those guests."""
    hosts, guests = set[int](), set[int]()
    apply = RecordedCluster._co_allocate

    def watched(cluster: RecordedCluster, decision: CoAllocate) -> str:
        snapshot, first = cluster.snapshot(), cluster.machine.first_core
        for node in decision.nodes:
            hosts.update(set(snapshot.core_owner[first[node] : first[node + 1]].tolist()) - {-1})
        guests.add(decision.guest)
        return apply(cluster, decision)

    with patch.context() as here:
        here.setattr(RecordedCluster, "_co_allocate", watched)
        played = beside(bench, policy)
    return kinds_of(bench, hosts), kinds_of(bench, guests), played


def configured(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "asad.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)


@pytest.mark.parametrize("policy", LENDERS)
def test_who_is_ineligible_live_is_so_in_a_replay(
    log: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = bench_of(log)
    hosts, guests, played = hosts_and_guests(bench, policy, monkeypatch)
    assert "gres" not in hosts and not guests & {"gres", "endless"}
    assert {"one", "wide"} <= hosts and "one" in guests, "several nodes are no reason"
    if policy in POOLED:
        assert dict(played.funnel)[f"opted out or ineligible: {Ineligible.GRES.text}"] > 0


@pytest.mark.parametrize("policy", LENDERS)
def test_the_table_lend_of_a_configuration_holds_in_a_replay(
    log: Path, tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path, "[slurm.lend]\nmulti_node = false\ngres = true\n")
    bench, _ = bench_of(log, config)
    hosts, guests, played = hosts_and_guests(bench, policy, monkeypatch)
    assert "wide" not in hosts and "gres" in hosts and not guests & {"gres", "endless"}
    if policy in POOLED:
        funnel = dict(played.funnel)
        assert funnel[f"opted out or ineligible: {Ineligible.SEVERAL_NODES.text}"] > 0
        assert f"opted out or ineligible: {Ineligible.GRES.text}" not in funnel


def test_how_many_jobs_take_no_part_is_noted(log: Path, tmp_path: Path) -> None:
    _, notes = bench_of(log)
    assert (
        "11 jobs have gres: asad offers them nothing; they lend nothing, and nor do the nodes where they run "
        "([slurm.lend] gres)" in notes
    )
    assert "11 jobs have an unlimited time: asad offers them nothing" in notes
    _, notes = bench_of(log, configured(tmp_path, "[slurm.lend]\nmulti_node = false\ngres = true\n"))
    assert "11 jobs have gres: asad offers them nothing ([slurm.lend] gres)" in notes
    assert any(note.startswith("11 jobs on several nodes lend nothing") for note in notes)


def test_a_log_without_nodes_knows_who_fits_on_none(log: Path, tmp_path: Path) -> None:
    config = configured(tmp_path, "[slurm.lend]\nmulti_node = false\n")
    without = tmp_path / "log.sacct"
    lines = [line.split("|") for line in log.read_text(encoding="utf-8").splitlines()]
    text = "\n".join("|".join((*line[:8], *line[9:10], line[11])) for line in lines)
    without.write_text(text + "\n", encoding="utf-8")
    bench, _ = bench_of(without, config)
    assert bench.workload.host_bar is not None
    assert kinds_of(bench, np.flatnonzero(bench.workload.host_bar)) == {"wide"}


def test_nodes_of_jobs_that_may_not_lend_are_closed() -> None:
    first = np.array([0, 2, 4, 6], np.int32)
    node_bar, host_bar = np.full(3, 9, np.int8), np.array([0, Ineligible.GRES], np.int8)
    always = np.zeros(3, np.int8)
    close_nodes(node_bar, always, host_bar, np.array([0, 0, 0, 1, -1, -1], np.int32), first)
    assert node_bar.tolist() == [0, NodeIneligible.JOB_MAY_NOT_LEND, 0]
    close_nodes(node_bar, always, host_bar, np.array([0, 0, 0, -1, -1, -1], np.int32), first)
    assert node_bar.tolist() == [0, 0, 0]
    always[2] = NodeIneligible.OVERFULL
    host_bar[1] = Ineligible.NOT_A_JOB  # a vacated slot lends nothing, and what is beside it may
    close_nodes(node_bar, always, host_bar, np.array([0, 0, 0, 1, -1, -1], np.int32), first)
    assert node_bar.tolist() == [0, 0, NodeIneligible.OVERFULL]
