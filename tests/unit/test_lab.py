"""The lab's mixes, figures and small programs, without a cluster."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # the lab is run from the checkout, never installed

from lab import LabError, release, workloads  # noqa: E402
from lab.debian import requirements  # noqa: E402
from lab.measure import (  # noqa: E402
    ArrayLook,
    Figures,
    JobRun,
    alone_s,
    by_slot,
    compare,
    ends_s,
    hosts_of,
    measure,
    throttle_changes,
    worths,
)
from lab.mix import MIXES, Mix, MixJob, Shape, read_mix  # noqa: E402
from lab.run import look_at_arrays, own_elapsed_s  # noqa: E402
from lab.slurm import duration_s, first_job_id, free_ports, owner_is_gone, plain  # noqa: E402
from lab.testbed import figures  # noqa: E402


def job_run(number: int, start_s: float, end_s: float, **changes: object) -> JobRun:
    run = JobRun(
        number=number,
        job_id=str(100 + number),
        name="lu",
        state="COMPLETED",
        partition="batch",
        submit_s=0.0,
        start_s=start_s,
        end_s=end_s,
        cores=1,
        cpu_s=end_s - start_s,
        nodes=("n1",),
        own_elapsed_s=end_s - start_s,
    )
    return replace(run, **changes)


# --------------------------------------------------------------------------------------------------------------- mixes


@pytest.mark.parametrize("path", sorted(MIXES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_mixes_hold_jobs_of_twenty_to_forty_seconds(path: Path) -> None:
    mix = read_mix(path)
    if not mix.has_worth:
        assert all(20 <= job.alone_s <= 40 for job in mix.jobs)
    assert all(job.time_limit_s > 1.5 * job.alone_s for job in mix.jobs)


def test_the_mix_for_admission_has_two_arrays_and_rigid_jobs_of_different_targets() -> None:
    mix = read_mix(Path("arrays"))
    arrays = [job for job in mix.jobs if job.tasks > 1]
    assert len(arrays) == 2 and len(mix.jobs) > 4
    assert len({job.utility for job in mix.jobs}) >= 4 and all(job.utility for job in mix.jobs)
    assert max(job.busy for job in mix.jobs) < 0.1, "its nodes have no cores of their own"
    assert arrays[0].comment == "asad:utility=sigmoid(20, 0.05/s, 150s);workers=3"
    assert mix.shape == Shape(nodes=4, cpus=2, pin=False, slot_s=10.0)
    assert not read_mix(Path("half-light")).has_worth and read_mix(Path("half-light")).shape == Shape()


def test_half_of_half_light_is_light_and_all_four_kinds_are_in_it() -> None:
    mix = read_mix(Path("half-light"))
    assert mix.light_part == pytest.approx(0.5, abs=0.02)
    assert {job.kind for job in mix.jobs} == set(workloads.KINDS)
    assert read_mix(Path("all-compute")).light_part == 0


def test_gangs_are_light_and_heavy_among_jobs_of_one_node() -> None:
    mix = read_mix(Path("gangs"))
    gangs = [job for job in mix.jobs if job.nodes == mix.shape.nodes == 2]
    assert (
        {job.busy < 0.5 for job in gangs}
        == {job.busy < 0.5 for job in mix.jobs if job.nodes == 1}
        == {True, False}
    )
    assert 0.4 < sum(job.alone_s * job.nodes for job in gangs) / mix.core_s < 0.6
    assert 0.4 < mix.light_part < 0.6
    assert 120 < mix.core_s / 2 < 300, "some minutes on two cores"


def test_a_scaled_mix_keeps_what_it_is_made_of() -> None:
    mix = read_mix(Path("half-light"))
    half = mix.scaled(0.5)
    assert half.core_s == pytest.approx(mix.core_s / 2)
    assert half.light_part == pytest.approx(mix.light_part)


GOOD = 'name = "a", user = "nobody", cpu_s = 10, busy = 0.5'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("jobs = [", "not TOML"),
        ("jobs = []", "one list `jobs`"),
        ("jobs = [1]", "job 1: not a table"),
        (f"jobs = [{{ {GOOD} }}, {{ {GOOD}, bussy = 1 }}]", "job 2: unknown key 'bussy'"),
        ('jobs = [{ name = "a", user = "nobody", cpu_s = 10 }]', "job 1: busy is missing"),
        (f"jobs = [{{ {GOOD.replace('0.5', '1.5')} }}]", "busy is 1.5"),
        (f"jobs = [{{ {GOOD.replace('0.5', 'true')} }}]", "busy is True; give a number"),
        (f"jobs = [{{ {GOOD.replace('nobody', 'stranger')} }}]", "user is 'stranger'"),
        (f"jobs = [{{ {GOOD}, kind = 'sleep' }}]", "kind is 'sleep'"),
        (f"jobs = [{{ {GOOD}, kind = 'message', stages = 3 }}]", "even number of stages"),
        (f"jobs = [{{ {GOOD}, cores = 1.5 }}]", "cores is 1.5; give a number"),
        (f"jobs = [{{ {GOOD}, time_limit_s = inf }}]", "time_limit_s must be above 0"),
        (f"jobs = [{{ {GOOD}, tasks = 0 }}]", "tasks must be 1 to 1000"),
        (f"jobs = [{{ {GOOD}, utility = 'sigmoid(1)' }}]", "sigmoid takes 3 arguments"),
        (
            f"jobs = [{{ {GOOD} }}]\n[cluster]\nnodes = 0",
            "cluster: nodes, cpus and slot_s must be at least 1",
        ),
        (f"jobs = [{{ {GOOD} }}]\n[cluster]\npin = 1", "cluster: pin is 1; give true or false"),
        (f"jobs = [{{ {GOOD} }}]\n[clusters]\nnodes = 2", "a table `cluster`"),
    ],
)
def test_a_mix_that_is_wrong_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mix.toml"
    path.write_text(text)
    with pytest.raises(LabError) as error:
        read_mix(path)
    assert complaint in str(error.value)
    assert str(path) in str(error.value)


def test_a_mix_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(LabError, match="all-compute, arrays, gangs, half-light"):
        read_mix(Path("nothing-like-it"))


def test_jobs_come_in_order_of_submission(tmp_path: Path) -> None:
    path = tmp_path / "mix.toml"
    path.write_text(f"jobs = [{{ {GOOD}, submit_s = 5 }}, {{ {GOOD} }}]")
    assert [job.submit_s for job in read_mix(path).jobs] == [0, 5]


# ------------------------------------------------------------------------------------------------------------- figures


def test_figures_of_a_queue_on_one_core() -> None:
    jobs = [job_run(0, 0, 10), job_run(1, 10, 30, cpu_s=5.0)]
    figures = measure(jobs, 1, {0: 10.0, 1: 16.0}, {})
    assert figures.makespan_s == 30
    assert figures.response_mean_s == 20
    assert figures.wait_mean_s == 5
    assert figures.runtime_stretch_mean == pytest.approx((1 + 20 / 16) / 2)
    assert figures.cpu_utilization == pytest.approx(15 / 30)
    assert (figures.guests, figures.killed, figures.later) == (0, 0, 0)
    assert figures.host_stretch_mean == figures.guest_stretch_mean == 1


def test_hosts_are_the_batch_jobs_that_a_guest_ran_beside() -> None:
    jobs = [
        job_run(0, 0, 10),
        job_run(1, 0, 10, nodes=("n2",)),
        job_run(2, 5, 15, partition="guest"),
        job_run(3, 10, 20),
        job_run(4, 15.5, 20, nodes=("n1", "n2")),
    ]
    assert hosts_of(jobs) == {0, 3}
    figures = measure(jobs, 2, dict.fromkeys(range(5), 5.0), {2: 13.0})
    assert figures.guests == 1
    assert figures.later == 1, "under Slurm alone it would have ended two seconds earlier"
    assert figures.host_stretch_mean == pytest.approx(2.0)
    assert figures.guest_stretch_mean == pytest.approx(2.0)


def test_a_job_that_met_a_guest_for_a_moment_was_no_host() -> None:
    assert hosts_of([job_run(0, 0, 10), job_run(1, 9, 20, partition="guest")]) == set()


def test_a_killed_job_counts_in_no_mean_of_run_times() -> None:
    jobs = [job_run(0, 0, 10), job_run(1, 10, 130, state="TIMEOUT", own_elapsed_s=math.nan)]
    figures = measure(jobs, 1, {0: 10.0, 1: 10.0}, {})
    assert figures.killed == 1
    assert figures.runtime_stretch_mean == 1
    assert figures.makespan_s == 130


def test_a_job_that_never_started_has_no_wait() -> None:
    jobs = [job_run(0, 0, 10), job_run(1, math.nan, 12, state="CANCELLED", cpu_s=0.0)]
    assert measure(jobs, 1, {0: 10.0, 1: 10.0}, {}).wait_mean_s == 0


def test_alone_is_the_median_under_slurm_alone_and_nominal_without_it() -> None:
    runs = [[job_run(0, 0, 10)], [job_run(0, 0, 12)], [job_run(0, 0, 30)]]
    assert alone_s(runs, {0: 9.0, 1: 7.0}) == {0: 12.0, 1: 7.0}
    assert ends_s(runs) == {0: 12.0}


def test_a_comparison_holds_medians_and_ratios() -> None:
    runs = {
        "slurm": [[job_run(0, 0, 20)], [job_run(0, 0, 20)], [job_run(0, 0, 50)]],
        "asad": [[job_run(0, 0, 10, submit_s=0)]],
        "static": [],
    }
    comparison = compare(runs, 1, {0: 20.0})
    assert comparison.figures["slurm"].makespan_s == 20
    assert comparison.ratio("asad", "makespan_s") == 0.5
    assert math.isnan(comparison.ratio("asad", "wait_mean_s")), "nobody waited under Slurm alone"
    plain = comparison.to_json()
    assert plain.keys() == {"slurm", "asad"}
    assert plain["asad"].keys() == set(Figures.__dataclass_fields__) - {"utility", "throttle_changes"}
    assert plain == json.loads(json.dumps(plain))


def test_worth_counts_from_submission_to_the_end_of_the_last_task() -> None:
    jobs = [
        job_run(0, 0, 10, submit_s=0.0),
        job_run(0, 5, 40, submit_s=0.0),
        job_run(1, 0, 20, submit_s=5.0),
        job_run(2, 0, 20, state="FAILED"),
        job_run(3, 0, 20),
    ]
    worth = {number: (lambda took_s: 100.0 - took_s) for number in (0, 1, 2)}
    assert worths(jobs, worth) == {0: 60.0, 1: 85.0, 2: 0.0}
    figures = measure(jobs, 2, dict.fromkeys(range(4), 10.0), {}, worth)
    assert figures.utility == 145.0 and math.isnan(figures.throttle_changes)
    assert worths([], worth) == {0: 0.0, 1: 0.0, 2: 0.0}
    runs = {"fifo": [jobs], "oasis": [[*jobs[:1], *jobs[2:]]]}
    comparison = compare(runs, 2, dict.fromkeys(range(4), 10.0), worth, {"oasis": [[look(0, 0.0, 3)]]})
    assert comparison.ratio("oasis", "utility") == pytest.approx((90 + 85) / 145)
    assert comparison.to_json()["oasis"]["throttle_changes"] == 1


def look(number: int, time_s: float, throttle: int, waits: bool = True) -> ArrayLook:
    return ArrayLook(number, time_s, throttle, running=1, waits=waits, deferred=False)


def test_changes_of_throttles_are_counted_while_tasks_wait() -> None:
    looks = [look(0, 0, 3), look(1, 0, 0), look(0, 1, 3), look(0, 2, 2), look(1, 2, 4), look(0, 3, 0, False)]
    assert throttle_changes(looks) == 3
    slots = by_slot(looks, 2.0)
    assert {slot: {number: one.throttle for number, one in seen.items()} for slot, seen in slots.items()} == {
        0: {0: 3, 1: 0},
        1: {0: 0, 1: 4},
    }


def test_arrays_are_read_from_squeue() -> None:
    lines = [
        "7|4-9%2|PENDING|BeginTime",
        "7|1|RUNNING|None",
        "7|3|RUNNING|None",
        "8|0|RUNNING|None",
        "9|N/A|PENDING|",
    ]
    first, second = look_at_arrays(lines, {"7": 0, "8": 3, "10": 4}, 5.0)
    assert first == ArrayLook(0, 5.0, throttle=2, running=2, waits=True, deferred=True)
    assert second == ArrayLook(3, 5.0, throttle=0, running=1, waits=False, deferred=False)


def test_a_job_shows_its_own_run_time_among_other_lines() -> None:
    text = 'srun: hello\n{"elapsed_s": 2.5}\n{"elapsed_s": 3.5, "kind": "io"}\n{"x": 1}\n[1]\n"text"\n'
    assert own_elapsed_s(text) == 3.5
    assert math.isnan(own_elapsed_s("slurmstepd: error: *** CANCELLED\n"))


# ------------------------------------------------------------------------------------------------------------ programs


@pytest.fixture(scope="module")
def units_per_s() -> dict[str, float]:
    return workloads.calibrate(memory_mb=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "busy", "cores"),
    [
        ("compute", 1.0, 1),
        ("compute", 0.5, 2),
        ("memory", 1.0, 1),
        ("io", 0.5, 1),
        ("message", 0.5, 1),
        ("message", 0.3, 2),
    ],
)
def test_a_program_does_the_work_that_it_is_given(
    tmp_path: Path, units_per_s: dict[str, float], kind: str, busy: float, cores: int
) -> None:
    cpu_s = 0.6
    rate = units_per_s["memory" if kind == "memory" else "plain"]
    argv = [sys.executable, "-I", workloads.__file__, kind, f"--cpu-s={cpu_s}", f"--busy={busy}"]
    argv += [f"--cores={cores}", f"--units-per-s={rate}", "--memory-mb=4", "--stages=2"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    document = json.loads(done.stdout)
    # as much as that is by far: units cost what the machine makes them cost, and others use it too
    assert document["kind"] == kind and document["cpu_s"] > 0.2 * cpu_s
    assert document["elapsed_s"] > 0.2 * cpu_s / (busy * cores)
    assert not list(tmp_path.iterdir()), "nothing is left on disk"


def test_stages_use_as_much_as_was_asked_for() -> None:
    for busy, cores in [(0.2, 1), (0.75, 1), (0.3, 8)]:
        sequential, parallel = workloads.stage_rates(busy, cores)
        assert (sequential + parallel) / 2 == pytest.approx(busy * cores)
        assert 0 < sequential < 1
        assert parallel <= cores


@pytest.mark.parametrize(
    "options",
    [
        ["compute", "--cpu-s=1", "--units-per-s=1", "--busy=0"],
        ["compute", "--cpu-s=1", "--busy=0.5"],
        ["message", "--cpu-s=1", "--units-per-s=1", "--busy=0.9"],
        ["message", "--cpu-s=1", "--units-per-s=1", "--busy=0.5", "--stages=3"],
        ["sleep"],
    ],
)
def test_a_program_refuses_what_it_cannot_do(options: list[str]) -> None:
    done = subprocess.run([sys.executable, workloads.__file__, *options], capture_output=True, timeout=300)
    assert done.returncode == 2


# --------------------------------------------------------------------------------------------------------------- slurm


@pytest.mark.parametrize(
    ("text", "seconds"), [("00:07.991", 7.991), ("01:02:03", 3723), ("2-01:00:00", 176_400), ("", 0)]
)
def test_durations_of_accounting_are_read(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


def test_only_what_a_dead_owner_left_is_swept() -> None:
    assert not owner_is_gone(f"lab{os.getpid()}an1")
    assert owner_is_gone("lab4194305an1"), "above the largest process id"
    assert not owner_is_gone("laboratory-1")
    assert not owner_is_gone("lab-1")


def test_clusters_on_one_machine_use_job_ids_of_their_own() -> None:
    ranges = {first_job_id(f"lab{number}a") for number in range(50)}
    assert len(ranges) > 45
    assert all(0 < number < 0x03FF_0000 and number % 1000 == 1 for number in ranges)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"set": True, "infinite": False, "number": 3}, 3),
        ({"set": False, "infinite": True, "number": 0}, None),
        ({"status": ["SUCCESS"], "return_code": {"set": True, "infinite": False, "number": 0}}, 0),
        (["PENDING"], "PENDING"),
        ([], []),
        ("batch", "batch"),
        (7, 7),
    ],
)
def test_values_of_newer_slurms_are_read_as_those_of_22_05(written: object, meant: object) -> None:
    assert plain(written) == meant


def test_another_release_needs_what_setup_cfg_says() -> None:
    wanted = requirements(*release.EXTRAS)
    assert {"numpy>=1.26", "pytest>=8", "addict>=2.4"} <= set(wanted)
    assert not [word for word in wanted if word != word.strip() or word.startswith("#")]


@pytest.mark.parametrize("argv", [[], ["../trixie"], ["--help"]])
def test_another_release_has_a_name(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(argv) == 2
    assert "python -m lab.release RELEASE PYTEST-ARGUMENTS" in capsys.readouterr().err


def test_free_ports_are_different() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5


def test_a_mix_knows_its_core_seconds() -> None:
    wide = MixJob(name="a", user="nobody", cpu_s=40, busy=0.5, cores=2, nodes=2)
    assert wide.alone_s == 20
    assert Mix("m", (wide,)).core_s == 80


def test_the_testbed_counts_completion_less_target_in_slots_and_who_failed_as_not_done() -> None:
    def job(name: str, utility: str) -> MixJob:
        return MixJob(name, "nobody", 1.0, 1.0, tasks=2, utility=utility)

    jobs = (job("sensitive", "sigmoid(40, 0.1/s, 20s)"), job("critical", "sigmoid(80, 1/s, 20s)"))
    mix = Mix("testbed", (*jobs, job("insensitive", "constant(10)")), Shape(slot_s=5.0))
    run = [job_run(0, 0.0, 10.0), job_run(0, 10.0, 30.0), job_run(1, 0.0, 20.0)]
    run += [job_run(1, 0.0, 9.0, state="FAILED"), job_run(2, 0.0, 30.0), job_run(2, 0.0, 40.0)]
    found = figures(mix, {"oasis": [run], "drf": []})
    # 30 s is ten seconds, two slots, after the target; who failed is worth nothing
    shown = {
        kind: [row[key] for key in ("jobs", "done", "median", "sd")]
        for kind, row in found["timeliness"].pop("oasis").items()
    }
    assert shown == {"sensitive": [1, 1, 2.0, 0.0], "critical": [1, 0, None, None]}
    worth = pytest.approx(40 / (1 + math.e) + 10)
    assert found == {"utility": {"oasis": worth}, "runs": {"oasis": [worth]}, "timeliness": {}}
    assert mix.worth[0](30.0) == pytest.approx(40 / (1 + math.e))
