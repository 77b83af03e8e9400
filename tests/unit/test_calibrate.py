"""`asactl calibrate`: the fit, the groups it makes and removes, the file it writes, and who reads it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import asad.cli.calibrate as command
from asad.calibrate.bench import bench_on, cores_for
from asad.calibrate.crowds import (
    Crowd,
    CrowdSample,
    crowd_figures,
    crowd_windows,
    crowds_of,
    measure_crowd,
    predicted_guests,
    water_fill,
)
from asad.calibrate.fitting import MU, Lending, Sample, fit, lendings, predicted_rates
from asad.calibrate.groups import CpuController, CpuGroup, candidate_parents, find_controller, start_ticks
from asad.calibrate.pairs import calibrate, window_count
from asad.calibrate.result import Calibration, Provenance
from asad.calibrate.workloads import PAIRS, Job, workload_kind
from asad.contention import Contention, load_contention
from asad.errors import ClusterError, ConfigError, UsageError

pytestmark = pytest.mark.usefixtures("published_schemas")

KNOWN = {
    ("idle", "host", "cpu"): 0.97,
    ("idle", "guest", "cpu"): 0.95,
    ("idle", "host", "memory"): 0.90,
    ("idle", "guest", "memory"): 0.85,
    ("static", "host", "cpu"): 0.80,
    ("static", "guest", "cpu"): 0.99,
    ("static", "host", "memory"): 0.75,
    ("static", "guest", "memory"): 1.10,
}
DEMAND = {"cpu": 1.0, "duty-60": 0.6, "duty-30": 0.3, "memory": 1.0, "memory-60": 0.6, "memory-30": 0.3}


def synthetic() -> tuple[Sample, ...]:
    """Three repeats of every pair, around rates that the model with the constants `KNOWN` gives."""
    samples = []
    for host, guest in PAIRS:
        for lending in lendings(real_quotas=True):
            bare = predicted_rates(lending, DEMAND[host], DEMAND[guest])
            mu = [
                KNOWN[lending.mode, role, workload_kind(name)]
                for role, name in (("host", host), ("guest", guest))
            ]
            for noise in (0.99, 1.0, 1.01):
                rates = [rate * factor * noise for rate, factor in zip(bare, mu, strict=True)]
                samples.append(Sample(host, guest, lending, DEMAND[host], DEMAND[guest], *rates, 0.0))
    return tuple(samples)


def calibration(cpu_model: str = "a processor") -> Calibration:
    provenance = Provenance("6.1", cpu_model, "v2", "real", "cpu.idle", 1, 1.0, 3, 1 << 27)
    return Calibration(synthetic(), provenance)


@pytest.fixture(scope="module")
def controller() -> CpuController:
    found = find_controller()
    if found is None:
        pytest.skip(
            "no cgroup with CPU quotas can be written here (run as root, or with cgroup v2 delegated)"
        )
    return found


@pytest.fixture
def groups(controller: CpuController) -> Iterator[CpuGroup]:
    group = controller.create()
    yield group
    group.remove()


# -------------------------------------------------------------------------------------------------------- fit


@pytest.mark.parametrize(
    ("lending", "host_demand", "guest_demand", "expected"),
    [
        (Lending("static", 0.5), 1.0, 1.0, (0.5, 0.5)),
        (Lending("static", 0.5), 0.4, 0.25, (1.0, 1.0)),
        (Lending("static", 0.2), 1.0, 0.5, (0.8, 0.4)),
        (Lending("idle", 0.5), 1.0, 1.0, (1.0, 0.0)),
        (Lending("idle", 0.5), 0.6, 1.0, (1.0, 0.4)),
        (Lending("idle", 0.5), 0.3, 1.0, (1.0, 0.5)),
        (Lending("idle", 1.0), 0.3, 0.5, (1.0, 1.0)),
    ],
)
def test_rates_of_the_model(
    lending: Lending, host_demand: float, guest_demand: float, expected: tuple[float, float]
) -> None:
    assert predicted_rates(lending, host_demand, guest_demand) == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["idle", "static"])
def test_fit_recovers_the_constants(mode: str) -> None:
    estimates = fit(synthetic(), mode)
    assert list(estimates) == list(MU)
    for role in ("host", "guest"):
        for kind in ("cpu", "memory"):
            estimate = estimates[f"mu_{role}_{kind}"]
            assert estimate.median == pytest.approx(KNOWN[mode, role, kind])
            assert 0 < estimate.iqr < 0.03


def test_a_starved_guest_does_not_count() -> None:
    """Beside a host that needs everything an idle-class guest is predicted nothing: 0/0 is no constant."""
    three_repeats = 3
    hosts_that_leave_something = sum(
        workload_kind(host) == workload_kind(guest) == "cpu" and DEMAND[host] < 1 for host, guest in PAIRS
    )
    assert fit(synthetic(), "idle")["mu_guest_cpu"].samples == three_repeats * hosts_that_leave_something


def test_fit_needs_every_constant() -> None:
    only_cpu = [sample for sample in synthetic() if workload_kind(sample.host) == "cpu"]
    with pytest.raises(ClusterError, match="mu_host_memory"):
        fit(only_cpu, "idle")


def test_written_file_is_what_the_replay_loads(tmp_path: Path) -> None:
    path = tmp_path / "contention.toml"
    path.write_text(calibration('hostile "\\\x1b[31m\nname = 1').to_toml(), encoding="utf-8")
    assert "\x1b" not in path.read_text()
    assert load_contention(path) == Contention(0.97, 0.95, 0.90, 0.85, str(path))
    static = load_contention(path, "static")
    assert static == Contention(0.80, 0.99, 0.75, 1.0, f"{path} [static]")  # 1.10 was clipped


def test_model_with_the_fitted_constants_predicts_the_pairs() -> None:
    document = calibration().to_json()
    assert document["static"]["unclipped"]["mu_guest_memory"] == 1.1  # type: ignore[index,call-overload]
    rows = document["measured"]["pair"]  # type: ignore[index,call-overload]
    assert len(rows) == 2 * len(PAIRS)
    for row in rows:
        if workload_kind(row["host"]) == workload_kind(row["guest"]):
            assert row["host_error"] == pytest.approx(0, abs=1e-3)
            clipped = row["mode"] == "static" and workload_kind(row["guest"]) == "memory"
            assert row["guest_error"] == pytest.approx(
                0.1 * row["predicted_guest"] if clipped else 0, abs=1e-3
            )


# ----------------------------------------------------------------------------------------------------- loader

GOOD = "mu_host_cpu = 0.9\nmu_guest_cpu = 0.8\nmu_host_memory = 0.7\nmu_guest_memory = 1\n"


def test_interpolation_over_memory(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(GOOD)
    constants = load_contention(path)
    assert constants.at(0.0) == pytest.approx((0.9, 0.8))
    assert constants.at(1.0) == pytest.approx((0.7, 1.0))
    assert constants.at(float("nan")) == constants.at(0.5) == pytest.approx((0.8, 0.9))
    assert constants.at(7.0) == constants.at(1.0)
    assert constants.at(-1.0) == constants.at(0.0)


def test_static_that_was_not_measured_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(GOOD)
    static = load_contention(path, "static")
    assert static.mu_host_cpu == 0.9
    assert "static not measured" in static.origin


def test_shipped_constants_are_valid() -> None:
    for lending in ("idle", "static"):
        constants = load_contention(lending=lending)
        assert all(0 < getattr(constants, key) <= 1 for key in MU)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("mu_host_cpu = 0.9\n", ""), "mu_host_cpu is missing"),
        (GOOD.replace("0.9", "0"), "mu_host_cpu = 0 "),
        (GOOD.replace("0.9", "1.01"), "mu_host_cpu = 1.01 "),
        (GOOD.replace("0.9", "nan"), "mu_host_cpu = nan "),
        (GOOD.replace("0.9", "true"), "mu_host_cpu = True "),
        (GOOD.replace("0.9", '"0.9"'), "mu_host_cpu = '0.9' "),
        (GOOD + "mu_hots_cpu = 0.9\n", "unknown key 'mu_hots_cpu'"),
        (GOOD + "static = 3\n", "static = 3 is not a table"),
        (GOOD + "[static]\n" + GOOD.replace("0.7", "7"), "static.mu_host_memory = 7 "),
        (GOOD + "]", "not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        load_contention(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_and_an_unknown_lending(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_contention(tmp_path / "absent.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not TOML"):
        load_contention(tmp_path / "binary")
    with pytest.raises(ConfigError, match="'both' is unknown"):
        load_contention(lending="both")


# ---------------------------------------------------------------------------------------------------- cgroups


def test_where_groups_can_be_made() -> None:
    v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/mem cgroup rw,memory 0 0"
    assert candidate_parents(v1, "3:cpu,cpuacct:/slurm/job_7\n2:memory:/other") == [
        CpuController(1, Path("/sys/fs/cgroup/cpu/slurm/job_7")),
        CpuController(1, Path("/sys/fs/cgroup/cpu")),
    ]
    v2 = "cgroup2 /sys/fs/odd\\040name cgroup2 rw,nosuid 0 0"
    assert candidate_parents(v2, "0::/") == [CpuController(2, Path("/sys/fs/odd name"))]
    assert candidate_parents("proc /proc proc rw 0 0", "0::/") == []


@pytest.mark.parametrize(
    ("version", "capped", "lifted"),
    [
        (1, {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"}, {"cpu.cfs_quota_us": "-1"}),
        (2, {"cpu.max": "50000 100000"}, {"cpu.max": "max 100000"}),
    ],
)
def test_files_of_both_versions(
    tmp_path: Path, version: int, capped: dict[str, str], lifted: dict[str, str]
) -> None:
    group = CpuGroup(tmp_path, version)
    group.cap(0.5)
    assert {name: (tmp_path / name).read_text() for name in capped} == capped
    group.cap(None)
    assert {name: (tmp_path / name).read_text() for name in lifted} == lifted
    weight = tmp_path / {1: "cpu.shares", 2: "cpu.weight"}[version]
    group.set_idle(True)
    assert weight.read_text() == {1: "2", 2: "1"}[version]  # a kernel without cpu.idle
    (tmp_path / "cpu.idle").write_text("0")
    group.set_idle(True)
    assert (tmp_path / "cpu.idle").read_text() == "1"


def test_the_controller_of_v2_is_left_as_it_was_found(tmp_path: Path) -> None:
    switch = tmp_path / "cgroup.subtree_control"
    switch.write_text("memory pids")
    undo = CpuController(2, tmp_path).enable()
    assert switch.read_text() == "+cpu"
    undo()
    assert switch.read_text() == "-cpu"
    switch.write_text("cpu memory")
    CpuController(2, tmp_path).enable()()
    assert switch.read_text() == "cpu memory"


def test_no_place_for_groups(tmp_path: Path) -> None:
    assert find_controller([CpuController(1, tmp_path / "absent"), CpuController(2, tmp_path)]) is None


def test_a_real_quota_holds(controller: CpuController, groups: CpuGroup) -> None:
    core = max(os.sched_getaffinity(0))
    inner = groups.child("guest")
    inner.cap(0.2)
    job = Job("cpu", [core], 1 << 20)
    try:
        job.wait(300)
        inner.add(job.processes[0].pid)
        job.go()
        time.sleep(0.2)
        before = job.progress()
        time.sleep(0.8)
        after = job.progress()
    finally:
        job.end()
    assert 0 < (after[2] - before[2]) / (after[0] - before[0]) < 0.3


def test_leftovers_of_a_dead_calibrator_are_removed_and_live_ones_kept(
    controller: CpuController, groups: CpuGroup
) -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    dead = controller.parent / f"asad-calibrate-{sleeper.pid}-1"  # a namesake that started right after boot
    foreign = controller.parent / f"asad-calibrate-of-somebody-else-{os.getpid()}"
    try:
        dead.mkdir()
        foreign.mkdir()
        CpuGroup(dead, controller.version).child("host").add(sleeper.pid)
        assert controller.remove_leftovers() == [dead.name]
        assert not dead.exists()
        assert sleeper.wait(300) == -signal.SIGKILL
        assert groups.path.exists()
        assert foreign.exists()
    finally:
        sleeper.kill()
        sleeper.wait()
        foreign.rmdir()
        CpuGroup(dead, controller.version).remove()


def test_start_of_a_process() -> None:
    assert start_ticks(os.getpid()) > 0
    assert start_ticks(2**22 + 1) == -1  # above the kernel's largest process id


# ------------------------------------------------------------------------------------------------ measurement


@pytest.mark.slow
def test_a_small_real_calibration(controller: CpuController) -> None:
    heard: list[str] = []
    pairs = (("duty-30", "cpu"), ("memory", "memory-60"))
    result = calibrate(0.2, 1, pairs=pairs, controller=controller, on_window=heard.append)
    assert len(heard) == window_count(len(pairs), 1, real_quotas=True)
    assert len(result.samples) == 4
    for sample in result.samples:
        assert 0 < sample.host_rate < 3
        assert 0 <= sample.guest_rate < 3
        assert 0 < sample.host_demand <= 1
    assert result.samples[0].host_demand < 0.9  # it sleeps
    assert result.provenance.quotas == "real"
    assert not list(controller.parent.glob(f"asad-calibrate-{os.getpid()}-*"))


@pytest.mark.slow
def test_without_cgroups_the_idle_class_is_used_and_reported() -> None:
    result = calibrate(
        1.0, 1, pairs=[("duty-30", "cpu")], controller=None
    )  # shorter, and a busy machine shows nothing
    assert result.provenance.quotas == "none"
    assert result.provenance.idle_class == "SCHED_IDLE"
    assert [sample.lending for sample in result.samples] == [Lending("idle", 1.0)]


def test_what_hosts_leave_is_divided_by_water_filling() -> None:
    assert water_fill(1.0, [0.2, 0.9, 0.9]) == pytest.approx([0.2, 0.4, 0.4])
    assert water_fill(9.0, [0.2, 0.9]) == pytest.approx([0.2, 0.9])
    assert water_fill(0.0, [0.5]) == [0.0] and water_fill(1.0, []) == []
    kept = Crowd(("cpu", "duty-30"), ("cpu", "duty-60", "duty-60"), wide=False)
    # the first and the third share core 0, of which nothing is left; the second has core 1
    assert predicted_guests(kept, [1.0, 0.3], [1.0, 0.6, 0.6]) == pytest.approx([0.0, 1.0, 0.0])
    wide = replace(kept, wide=True)
    assert predicted_guests(wide, [1.0, 0.3], [1.0, 0.6, 0.6]) == pytest.approx(
        [0.7 / 3, 0.7 / 1.8, 0.7 / 1.8]
    )


def test_crowds_are_of_all_cores() -> None:
    for cores in (1, 2, 5):
        crowds = crowds_of(cores)
        assert all(len(crowd.hosts) == cores for crowd in crowds)
        assert any(crowd.wide for crowd in crowds) == any(crowd.barrier for crowd in crowds) == (cores > 1)
        assert crowd_windows(cores, 3) == 3 * sum(3 + len(crowd.guests) for crowd in crowds)


@pytest.mark.slow
def test_a_small_real_crowd(controller: CpuController) -> None:
    cores = cores_for(min(2, len(os.sched_getaffinity(0))))
    heard: list[str] = []
    for crowd in (
        Crowd(("duty-30",) * len(cores), ("cpu",) * len(cores), wide=False),
        Crowd(("duty-60",) * len(cores), ("cpu",), wide=True, barrier=True),
    ):
        with bench_on(cores, 0.2, controller) as (bench, _):
            (sample,) = measure_crowd(bench, crowd, 1, 1 << 20, heard.append)
        assert 0 < sample.host_rate < 3 and 0 <= sample.guest_rate < 3
        assert 0 <= sample.predicted_guest <= 1
    assert (
        heard[0].endswith("cpu on their own cores (hosts alone)") and "that wait for each other" in heard[-1]
    )
    assert len(heard) == 3 + len(cores) + 3 + 1
    assert not list(controller.parent.glob(f"asad-calibrate-{os.getpid()}-*"))


def test_impossible_requests() -> None:
    with pytest.raises(ClusterError, match="cores asked for"):
        calibrate(cores=100_000)
    with pytest.raises(ClusterError, match="longer than 0 s"):
        calibrate(seconds=0.0)


def test_a_dead_worker_is_an_error_and_not_a_hang() -> None:
    job = Job("cpu", [max(os.sched_getaffinity(0))], 1 << 20)
    try:
        job.wait(300)
        job.processes[0].kill()
        with pytest.raises(ClusterError, match="worker died"):
            job.wait(300)
    finally:
        job.end()


def test_a_task_that_dies_while_others_wait_for_it_is_an_error_and_not_a_hang() -> None:
    core = max(os.sched_getaffinity(0))
    job = Job("cpu", [core, core], 1 << 20, barrier=True)
    try:
        job.wait(300)
        job.go()
        job.processes[0].kill()
        job.processes[0].join()
        job.pause()
        with pytest.raises(ClusterError, match="worker died"):
            job.wait(300)
    finally:
        job.end()
    assert not any(process.is_alive() for process in job.processes)


def processes_in(group: Path) -> list[int]:
    return [int(line) for line in (group / "cgroup.procs").read_text().split()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_killed_half_way(controller: CpuController, number: signal.Signals, status: int) -> None:
    """A signal that can be caught leaves no group, after SIGKILL the next run removes it; no worker lives."""
    calibrate = [sys.executable, "-c", "from asad.cli.asactl import main; main()", "calibrate"]
    process = subprocess.Popen(
        # a test that runs in the background of a shell hands down that SIGINT is ignored
        ["/usr/bin/env", "--default-signal=INT", *calibrate, "--seconds", "30"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    mine = f"asad-calibrate-{process.pid}-*"
    try:
        workers: list[int] = []
        deadline = time.monotonic() + 300
        while len(workers) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
            try:
                inside = [pid for path in controller.parent.glob(f"{mine}/*/") for pid in processes_in(path)]
            except FileNotFoundError:  # the probe came and went
                continue
            workers = inside
        assert len(workers) == 2
        started = {worker: start_ticks(worker) for worker in workers}
        process.send_signal(number)
        assert process.wait(300) == status
        if number == signal.SIGKILL:
            assert controller.remove_leftovers()
        assert not list(controller.parent.glob(mine))
        assert all(start_ticks(worker) != ticks for worker, ticks in started.items())
    finally:
        process.kill()
        process.wait()
        controller.remove_leftovers()


# ----------------------------------------------------------------------------------------------- command line


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_controller", lambda: None)
    monkeypatch.setattr(command, "measure", lambda *arguments: calibration())
    crowd = Crowd(("duty-30",) * 2, ("cpu",), wide=True, barrier=True)
    rows = crowd_figures(
        crowd, [CrowdSample(crowd, 1.0, 0.98, rate, 0.0) for rate in (0.7, 0.8, 0.9)], 0.97, 0.95
    )
    monkeypatch.setattr(command, "with_crowds", lambda found, *_: replace(found, crowds=(rows,)))


@pytest.mark.usefixtures("measured")
def test_json_and_file(tmp_path: Path) -> None:
    out = tmp_path / "c.toml"
    result = CliRunner().invoke(command.calibrate, ["--json", "--out", str(out)])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["mu_host_cpu"] == 0.97
    assert document["static"]["mu_guest_memory"] == 1.0
    assert "quotas are NOT real" in result.stderr
    assert load_contention(out).mu_guest_memory == 0.85
    assert document["measured"]["crowd"] == [
        {
            "hosts": "duty-30 duty-30", "guests": "cpu", "wide": True, "barrier": True,
            "predicted_host": 0.97, "measured_host": 0.98, "measured_host_iqr": 0.0,
            "predicted_guest": 0.95, "measured_guest": 0.8, "measured_guest_iqr": 0.1, "other_fraction": 0.0,
        }
    ]  # fmt: skip
    assert tomllib.loads(out.read_text())["measured"]["crowd"] == document["measured"]["crowd"]
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


@pytest.mark.usefixtures("measured")
def test_table() -> None:
    result = CliRunner().invoke(command.calibrate, [])
    assert result.exit_code == 0
    assert "mu_guest_memory" in result.stdout
    assert "memory-60" in result.stdout
    assert "wait for each other" in " ".join(result.stdout.split()) and "0.80 ±0.10" in result.stdout
    assert "--out FILE" in result.stderr


@pytest.mark.usefixtures("measured")
def test_wrong_usage_is_reported_before_minutes_are_spent(tmp_path: Path) -> None:
    runner = CliRunner()
    absent = runner.invoke(command.calibrate, ["--out", str(tmp_path / "absent" / "c.toml")])
    assert isinstance(absent.exception, UsageError)
    many = runner.invoke(command.calibrate, ["--cores", "100000"])
    assert isinstance(many.exception, UsageError)
    assert runner.invoke(command.calibrate, ["--seconds", "0"]).exit_code == 2
