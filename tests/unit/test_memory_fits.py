"""Memory in a replay: what fits on a node, what is not known, and what does not count, through the scheduler itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.cli.sweep_tasks import read_sweep, replay_task
from asad.errors import MachineError, UsageError
from asad.model import Floats, Machine
from asad.replay.cpu_demand import DemandProfile, assign
from asad.replay.machine import from_flags
from asad.replay.machine_files import read_machine
from asad.replay.playing import leave_alone
from asad.replay.readers import read_log
from asad.replay.readers.accounting_log import Recorded
from asad.replay.replay_settings import Settings
from asad.replay.workbench import prepare
from asad.replay.workload import fitting_rows

MIB = 2.0**20
NODE_MIB = (
    *(4000, 7800, 16000, 31900, 32000, 61440, 64000, 92000, 96000, 120000, 128000, 187000, 191000, 192000),
    *(256000, 257000, 384000, 515317, 1031000),
)
"""RealMemory of usual nodes."""


def log_of(folder: Path, jobs: list[tuple[int, float | None]], run_s: int = 600) -> Recorded:
    """Jobs of so many cores and MiB (None: not recorded), all submitted at once and run at once."""
    lines = ["JobID|Submit|Start|ElapsedRaw|TimelimitRaw|NNodes|AllocCPUS|AllocTRES"]
    for number, (cores, mib) in enumerate(jobs, 1):
        tres = f"cpu={cores},node=1" + ("" if mib is None else f",mem={mib:.0f}M")
        lines.append(f"{number}|1000|1000|{run_s}|60|1|{cores}|{tres}")
    path = folder / "log.sacct"
    path.write_text("\n".join(lines) + "\n")
    return read_log(path)


def waits(recorded: Recorded, machine: Machine, notes: list[str] | None = None) -> Floats:
    """(jobs,) how long each waits on the cluster left alone."""
    settings = Settings(policies=("slurm",), use_memory=machine.memory_counts)
    fingerprint, names = recorded.jobs.fingerprints()
    demand = assign(recorded.jobs, fingerprint, names, DemandProfile(), 0)
    bench = prepare(recorded, machine, settings, demand, notes if notes is not None else [])
    start: Floats = leave_alone(bench, "slurm").cluster.state.job["start"]
    return start - recorded.jobs.submit_s


def with_memory(recorded: Recorded, memory_bytes: list[float]) -> Recorded:
    recorded.jobs.memory_bytes[:] = memory_bytes
    return recorded


# ------------------------------------------------------------------------------------------------------ what fits


@pytest.mark.parametrize(
    ("nodes", "wide", "cores", "mib"),
    [
        ([(16, 64000)] * 3, 3, 5, 180000),
        ([(16, 64000)] * 2, 2, 17, 128000),
        ([(32, 128000), (32, 128000), (32, 512000)], 3, 96, 768000),
        ([(64, 128000), (16, 256000)], 2, 80, 384000),
    ],
    ids=["few cores", "uneven cores", "a fat node", "unequal nodes"],
)
def test_memory_by_node_does_not_keep_a_wide_job_from_its_nodes(
    tmp_path: Path, nodes: list[tuple[int, int]], wide: int, cores: int, mib: int
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "SelectTypeParameters=CR_Core_Memory\n"
        + "".join(f"NodeName=n{at} CPUs={c} RealMemory={m}\n" for at, (c, m) in enumerate(nodes))
    )
    path = tmp_path / "log.sacct"
    header = "JobID|Submit|Start|ElapsedRaw|TimelimitRaw|NNodes|AllocCPUS|AllocTRES\n"
    path.write_text(f"{header}1|1000|1000|600|60|{wide}|{cores}|cpu={cores},mem={mib}M\n")
    notes: list[str] = []
    assert waits(read_log(path), read_machine(conf), notes).tolist() == [0]
    assert sum("hold more of their memory" in note for note in notes) == 1
    path.write_text(
        f"{header}1|1000|1000|600|60|{wide}|{cores}|cpu={cores},mem={mib + sum(m for _, m in nodes)}M\n"
    )
    assert len(fitting_rows(read_log(path), read_machine(conf), True)) == 0


def test_a_job_with_all_memory_of_a_node_fits_whatever_its_cores(tmp_path: Path) -> None:
    recorded = log_of(tmp_path, [(1, mib) for mib in NODE_MIB])
    for cores in range(1, 257):
        recorded.jobs.cores[:] = cores
        for row, mib in enumerate(NODE_MIB):
            machine = from_flags(1, cores, mib * MIB)
            assert row in fitting_rows(recorded, machine, True), (cores, mib)


@pytest.mark.parametrize("cores", [1, 3, 7, 28, 36, 48, 49, 96, 127, 254])
@pytest.mark.parametrize("mib", [7800, 64000, 187000, 515317])
def test_whole_and_half_nodes_run_at_once(tmp_path: Path, cores: int, mib: int) -> None:
    jobs: list[tuple[int, float | None]] = [(cores, mib), (cores, mib)]
    if cores > 1:
        jobs += [(cores // 2, mib // 2), (cores - cores // 2, mib - mib // 2)]
        jobs += [(1, mib - 1), (cores - 1, 1)]
    machine = from_flags(4 if cores > 1 else 2, cores, mib * MIB)
    assert waits(log_of(tmp_path, jobs), machine).tolist() == [0.0] * len(jobs)


@pytest.mark.parametrize("parts", [3, 5, 6, 7, 11])
def test_parts_of_a_node_fill_it(tmp_path: Path, parts: int) -> None:
    machine = from_flags(1, parts * 5, 64000 * MIB)
    full = log_of(tmp_path, [(5, 64000 // parts)] * (parts + 1))
    assert waits(full, machine).tolist() == [0.0] * parts + [600.0]


def test_memory_that_is_no_whole_number_of_bytes_is_rounded_down(tmp_path: Path) -> None:
    recorded = log_of(tmp_path, [(64, 1), (64, 1)])
    printed = 503.235 * 2**30  # the least that sacct --units=G prints as 503.24G
    recorded = with_memory(recorded, [printed, printed])
    assert waits(recorded, from_flags(2, 64, 515317 * MIB)).tolist() == [0.0, 0.0]


def test_what_does_not_fit_waits(tmp_path: Path) -> None:
    recorded = log_of(tmp_path, [(4, 600), (4, 600), (4, 300)])
    assert waits(recorded, from_flags(1, 16, 1000 * MIB)).tolist() == [0.0, 600.0, 0.0]


# -------------------------------------------------------------------------------------------------- what is unknown


def test_memory_of_no_node_is_known(tmp_path: Path) -> None:
    notes: list[str] = []
    machine = from_flags(1, 8, None)
    recorded = log_of(tmp_path, [(4, 10**6), (4, 10**6)])
    assert waits(recorded, machine, notes).tolist() == [0.0, 0.0]
    assert len(fitting_rows(recorded, machine, True)) == 2
    assert "the memory of the nodes is not known: no job waits for it" in notes


def test_memory_of_some_nodes_is_known(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "SelectTypeParameters=CR_Core_Memory\nNodeName=a CPUs=4 RealMemory=1000\nNodeName=b[1-2] CPUs=4\n"
    )
    machine, notes = read_machine(conf), list[str]()
    # the first takes a core of node a; what has more memory than that goes to the others
    recorded = log_of(tmp_path, [(1, 900), (4, 10**5), (4, 10**5), (3, 10**5), (3, 90), (1, 5)])
    assert waits(recorded, machine, notes).tolist() == [0.0, 0.0, 0.0, 600.0, 0.0, 600.0]
    assert "the memory of 2 of 3 nodes is not known: any job fits there by its memory" in notes


def test_backfill_beside_a_reservation_on_nodes_of_unknown_memory(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("SelectType=select/cons_tres\nNodeName=a CPUs=4 RealMemory=1000\nNodeName=b CPUs=4\n")
    jobs: list[tuple[int, float | None]] = [(4, 1000), (2, 50), (6, 6), (1, 10**5), (1, None), (1, 1)]
    recorded = log_of(tmp_path, jobs)
    recorded.jobs.time_limit_s[3:] = 7200.0  # past the head's start: they stay clear of what it needs
    found = waits(recorded, read_machine(conf))
    assert found.tolist() == [0.0, 0.0, 600.0, 0.0, 0.0, 600.0]


def test_memory_of_jobs_that_is_not_recorded(tmp_path: Path) -> None:
    notes: list[str] = []
    assert waits(log_of(tmp_path, [(1, 1000), (1, None)]), from_flags(1, 2, 1000 * MIB), notes).tolist() == [
        0,
        0,
    ]
    assert "1 jobs have no memory recorded: they are taken to need none" in notes
    notes = []
    waits(log_of(tmp_path, [(1, None), (1, None)]), from_flags(1, 2, 1000 * MIB), notes)
    assert "the log does not record what memory jobs reserved: none waits for memory" in notes


@pytest.mark.slow
@pytest.mark.parametrize(
    "nodes", ["a[1-4] RealMemory=60000", "a[1-2] RealMemory=60000\nNodeName=b[1-2] CPUs=8", "a[1-4]"]
)
def test_every_policy_runs_where_memory_is_not_known(tmp_path: Path, nodes: str) -> None:
    conf, log = tmp_path / "slurm.conf", tmp_path / "log.sacct"
    conf.write_text(f"SelectType=select/cons_tres\nNodeName=DEFAULT CPUs=8\nNodeName={nodes}\n")
    lines = ["JobID|JobName|User|Submit|Start|ElapsedRaw|TimelimitRaw|NNodes|AllocCPUS|TotalCPU|AllocTRES"]
    for k in range(40):
        cores, run_s = (8, 4, 2, 12)[k % 4], 3000 + 37 * (k % 7)
        memory = "" if k % 5 == 4 else f",mem={(60000, 20000, 100)[k % 3]}M"
        used = f"{cores * run_s // 3600:02d}:{cores * run_s // 60 % 60:02d}:00"
        lines.append(
            f"{k + 1}|app{k % 3}|u{k % 4}|{1000 + 300 * k}|{1000 + 300 * k}|{run_s}|120|1|{cores}|{used}|"
            f"cpu={cores}{memory}"
        )
    log.write_text("\n".join(lines) + "\n")
    lending = "static,measured,asax,asax-paper,greedy-oracle,pool-oracle"
    placing = "first-fit,fairness,drf,binpack,spread,oga"
    names = f"slurm,fcfs,conservative,fluid,{lending},{placing}"
    document = json.loads(run("replay", log, "--machine", conf, policies=names))
    for name, figures in document["policies"].items():
        assert figures["jobs"] == 40, name
        numbers = [value for value in figures.values() if isinstance(value, int | float)]
        assert np.isfinite(numbers).all(), name


# ------------------------------------------------------------------------------------------------ as operators see it


def run(*words: object, policies: str = "slurm") -> str:
    """What `asactl replay … --json` prints. Raises what it says."""
    result = CliRunner().invoke(asactl, [*map(str, words), "--store", "none", "--policy", policies, "--json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_memory_that_is_not_scheduled_is_waited_for_by_no_job(tmp_path: Path) -> None:
    conf, log = tmp_path / "slurm.conf", tmp_path / "log.sacct"
    log_of(tmp_path, [(4, 40000)] * 3)
    conf.write_text("SelectTypeParameters=CR_Core\nNodeName=n1 CPUs=16 RealMemory=58000\n")
    output = run("replay", log, "--machine", conf)
    assert '"wait_mean_s": 0.0' in output
    assert "memory is not scheduled there (SelectTypeParameters=CR_Core): no job waits for it" in output
    conf.write_text("SelectTypeParameters=CR_Core_Memory\nNodeName=n1 CPUs=16 RealMemory=58000\n")
    output = run("replay", log, "--machine", conf)
    assert '"wait_mean_s": 600.0' in output
    assert "not scheduled" not in output


def test_what_scontrol_prints_may_stand_beside_the_machine(tmp_path: Path) -> None:
    """`--machine` several times: memory counts as the configuration says, and what is passed over is noted."""
    conf, log = tmp_path / "nodes", tmp_path / "log.sacct"
    log_of(tmp_path, [(4, 40000)] * 3)
    conf.write_text("NodeName=n1 CPUs=16 RealMemory=58000\n")
    (tmp_path / "config").write_text(
        "Configuration data as of 2024-01-01T00:00:00\nSelectTypeParameters = CR_CORE\n"
        "SchedulerParameters = bf_window=x\n"
    )
    (tmp_path / "resv").write_text(
        "ReservationName=r StartTime=2024-01-01T00:00:00 EndTime=2024-01-02T00:00:00\n   Nodes=n[1-2]\n"
    )
    beside = ("--machine", tmp_path / "config", "--machine", tmp_path / "resv")
    output = run("replay", log, "--machine", conf, *beside)
    assert '"wait_mean_s": 0.0' in output
    assert "memory is not scheduled there (SelectTypeParameters=CR_CORE)" in output
    assert "bf_window='x' of SchedulerParameters is not from 1 to 43200" in output
    assert "1 of its nodes are not on the machine, and are left out (n2)" in output
    assert "off by the zone" in output, "the log has epoch seconds"
    waits = CliRunner().invoke(
        asactl, ["waits", str(log), "--machine", str(conf), *map(str, beside), "--json"]
    )
    assert waits.exit_code == 0, waits.output
    with pytest.raises(MachineError, match="names no nodes"):
        run("replay", log, *beside)


def test_a_replay_of_no_job_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log.sacct"
    log_of(tmp_path, [(4, 4000), (4, 4000)])
    run("replay", log, "--nodes", 2, "--cores", 2, "--skip-bad")  # together they have four cores
    for words in (("--nodes", 1, "--cores", 2), ("--nodes", 2, "--cores", 4, "--memory", "1G")):
        with pytest.raises(UsageError) as caught:
            run("replay", log, *words, "--skip-bad")
        message = str(caught.value)
        assert "no job is left to replay (lines: 3, header: 1, does not fit on the machine: 2)" in message
        assert "--machine FILE" in message
        assert caught.value.exit_status == 2


def test_a_task_of_a_sweep_that_leaves_no_job_has_failed(tmp_path: Path) -> None:
    log_of(tmp_path, [(4, 4000), (4, 4000)])
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(
        'seeds = 1\npolicies = ["slurm"]\n[replay]\nnodes = 1\ncores = 2\nskip-bad = true\n'
        '[[logs]]\nlog = "log.sacct"\n'
    )
    (task,) = read_sweep(sweep, {}).tasks
    assert "no job is left to replay" in replay_task(task).failure
