"""`lab.queue` in its shortest form: a log of ten jobs, and what describes the cluster, read back by asad."""

from __future__ import annotations

import gzip
import socket
from pathlib import Path

import pytest

from asad.replay.limits.sacctmgr_output import limits_of
from asad.replay.machine_files import read_machine
from asad.replay.readers import read_log
from lab.queue import QUICK_JOBS, QUICK_SCALE, record
from lab.queue_jobs import LIMIT_CPUS, draw
from lab.slurm import why_not


@pytest.mark.parametrize("limited", [True, False])
def test_a_short_log_has_all_that_was_asked_for(tmp_path: Path, limited: bool) -> None:
    if obstacle := why_not():
        pytest.skip(obstacle)
    jobs = draw(QUICK_JOBS, 1, QUICK_SCALE)
    found = record(tmp_path, jobs, limited, print)
    assert found["refused"] == 0 and found["jobs"] == QUICK_JOBS
    assert found["states"].get("COMPLETED", 0) >= QUICK_JOBS - 1, found  # one may have been cancelled

    text = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    plain = {
        name: (gzip.decompress(raw) if name.endswith(".gz") else raw).decode() for name, raw in text.items()
    }
    for name, written in plain.items():
        assert "/tmp/" not in written and f"={socket.gethostname()}" not in written, name
    recorded = read_log(str(tmp_path / "log.sacct.gz"))
    asked = {job.application.user.name for job in jobs}
    assert {"partition", "qos", "account"} <= set(plain["log.sacct.gz"].splitlines()[0].lower().split("|"))
    assert all(f"|{user}|" in plain["log.sacct.gz"] for user in asked)
    assert "gres/gpu=" in plain["log.sacct.gz"]
    assert len(recorded.jobs) >= QUICK_JOBS - 1

    machine = read_machine(tmp_path / "slurm.conf")
    assert machine.node_names == ("n1", "n2", "n3", "n4", "n5", "n6") and machine.total_cores == 24
    assert "NodeName=n5 Name=gpu File=/lab/gpu[0-1]" in plain["gres.conf"]
    assert (
        "ReservationName=maintenance" in plain["reservation.txt"] and "Nodes=n3" in plain["reservation.txt"]
    )
    assert "PartitionName=short" in plain["partitions.txt"]
    assert "priority/multifactor" in plain["config.txt"]
    assert (f"cpu={LIMIT_CPUS}" in plain["qos.txt"]) == limited
    assert limits_of("sacctmgr", plain["qos.txt"] + plain["associations.txt"])
