"""A real Slurm's own log with limits, priorities, GPUs and a reservation: is what replays say of it right?

`lab.queue` recorded it (profiles/samples/queue), and the same jobs at the same times without the limit of each user.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.model import Machine
from asad.replay.cpu_demand import assign
from asad.replay.fidelity import Fidelity, compared
from asad.replay.machine_files import read_machine
from asad.replay.readers import Recorded, read_log
from asad.replay.replay_settings import Settings
from asad.replay.waits.why_waited import WhyWaited, why_jobs_waited
from asad.replay.workbench import Bench, prepare

QUEUE = Path("profiles/samples/queue")
LIMITED, UNLIMITED = QUEUE / "limited", QUEUE / "unlimited"
LIMITS = (LIMITED / "associations.txt", LIMITED / "qos.txt")


def log_of(folder: Path) -> Recorded:
    return read_log(str(folder / "log.sacct.gz"))


def machine() -> Machine:
    return read_machine(LIMITED / "slurm.conf", LIMITED / "reservation.txt")


def bench_of(recorded: Recorded, **given: Any) -> Bench:
    settings = Settings(vary_demand=False, use_memory=True, **given)
    demand = assign(recorded.jobs, *recorded.jobs.fingerprints(), settings.demand, 0)
    return prepare(recorded, machine(), settings, demand, [])


def waited_s(recorded: Recorded) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.maximum(recorded.jobs.start_s - recorded.jobs.queued_s, 0.0)


def simulated(recorded: Recorded, **given: Any) -> Fidelity:
    bench = bench_of(recorded, baseline="simulated", **given)
    assert bench.scheduler == "slurm"
    cluster = bench.cluster("slurm", None)
    cluster.run()
    return compared("", waited_s(recorded), cluster.jobs["start"] - cluster.jobs["eligible"])


def why(recorded: Recorded) -> WhyWaited:
    return why_jobs_waited(recorded, machine(), True)


def test_it_is_what_is_asked_of_it() -> None:
    found = json.loads((LIMITED / "figures.json").read_text(encoding="utf-8"))
    assert found["jobs"] >= 300 and found["mean_wait_s"] >= 2 * found["mean_run_s"]


def test_the_simulated_slurm_is_that_cluster() -> None:
    found = simulated(log_of(LIMITED), limits=LIMITS)
    assert abs(found.simulated_mean_s / found.recorded_mean_s - 1) <= 0.1
    assert found.rank_correlation is not None and found.rank_correlation >= 0.9


def test_without_the_limits_given_it_is_much_like_it() -> None:
    found = simulated(log_of(LIMITED))
    assert abs(found.simulated_mean_s / found.recorded_mean_s - 1) <= 0.25 and found.alike


def test_recorded_starts_are_to_the_second() -> None:
    recorded = log_of(LIMITED)
    bench = bench_of(recorded, baseline="recorded", limits=LIMITS)
    cluster = bench.cluster("recorded", None)
    cluster.run()
    assert (cluster.jobs["start"] == recorded.jobs.start_s).all()


def test_the_wait_that_the_limit_cost_is_called_limit_without_being_given() -> None:
    limited, unlimited = log_of(LIMITED), log_of(UNLIMITED)
    vanished_s = waited_s(limited).sum() - waited_s(unlimited).sum()
    assert vanished_s > 0.3 * waited_s(limited).sum()
    found = why(limited)
    assert found.seconds()["limit"] >= 0.9 * vanished_s
    first, second, *_ = found.limits
    assert {first.text, second.text} == {
        f"user {name} of QOS normal: never more than 5 cores at one time" for name in ("nobody", "games")
    }
    # Slurm's own last reason of nearly all of them is that limit
    confirmed = [limit.confirmed or 0 for limit in found.limits]
    assert sum(confirmed) >= 0.95 * sum(limit.jobs for limit in found.limits)


def test_where_there_is_no_limit_none_is_found() -> None:
    found = why(log_of(UNLIMITED))
    assert found.seconds()["limit"] <= 0.01 * found.wait_s.sum()


def test_the_page_names_the_limit_and_what_the_simulated_slurm_goes_by() -> None:
    argv = ["replay", str(LIMITED / "log.sacct.gz"), "--machine", str(LIMITED / "slurm.conf")]
    argv += ["--machine", str(LIMITED / "reservation.txt"), "--repeat", "1", "--poll", "2s", "--json"]
    done = CliRunner().invoke(asactl, argv, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    baseline = json.loads(done.stdout)["baseline"]
    assert {"partitions", "gres", "constraints", "limits", "priorities", "reservations"} <= set(
        baseline["goes_by"]
    )
    assert baseline["why_waited"]["limits"][0]["limit"].endswith(
        "of QOS normal: never more than 5 cores at one time"
    )
    assert baseline["why_waited"]["reasons"][0]["reason"] == "limit"
    assert baseline["why_waited"]["reasons"][0]["share"] > 0.5
    assert baseline["fidelity"][0]["alike"]
