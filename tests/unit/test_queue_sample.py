"""The recorded logs of `lab.queue` in profiles/samples/queue: what they are there to show is in them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # the lab is run from the checkout, never installed

from asad.replay.limits.sacctmgr_output import read_limits  # noqa: E402
from asad.replay.machine_files import read_machine  # noqa: E402
from asad.replay.readers import read_log  # noqa: E402
from lab.queue import job_row  # noqa: E402
from lab.queue_jobs import LIMIT_CPUS, draw  # noqa: E402

SAMPLES = REPOSITORY / "profiles" / "samples" / "queue"
SEED = 11
BOTH = pytest.mark.parametrize("name", ["limited", "unlimited"])


def asked(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((SAMPLES / name / "jobs.csv").read_text())))


@BOTH
def test_the_jobs_are_those_of_their_seed(name: str) -> None:
    rows = asked(name)
    jobs = draw(len(rows), SEED)
    ids = {place: row["job_id"] for place, row in enumerate(rows) if row["job_id"]}
    assert len(ids) == len(rows)  # nobody was refused
    drawn = [
        {key: str(value) for key, value in job_row(place, job, ids).items()} for place, job in enumerate(jobs)
    ]
    assert drawn == rows


def test_both_clusters_were_given_the_same_jobs_at_the_same_times() -> None:
    submitted = []
    for name in ("limited", "unlimited"):
        log = read_log(str(SAMPLES / name / "log.sacct.gz"))
        at_s = dict(zip(log.jobs.job_id.tolist(), log.jobs.submit_s.tolist(), strict=True))
        times = {int(row["place"]): at_s.get(int(row["job_id"])) for row in asked(name)}
        submitted.append({place: at - times[0] for place, at in times.items() if at is not None})
    one, other = submitted
    both = one.keys() & other.keys()
    assert len(both) > 280
    assert np.abs([one[place] - other[place] for place in both]).max() <= 5


@BOTH
def test_waits_are_long_and_nothing_of_the_machine_is_in_it(name: str) -> None:
    found = json.loads((SAMPLES / name / "figures.json").read_text())
    assert found["jobs"] >= 300 and found["refused"] == 0
    if name == "limited":
        assert found["mean_wait_s"] >= 2 * found["mean_run_s"]
        by_reason = found["waited_s_by_reason"]
        assert by_reason["QOSMaxCpuPerUserLimit"] > 0.3 * sum(by_reason.values())
    for path in (SAMPLES / name).iterdir():
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        assert not re.search(r"/(?:tmp|work|home|root)/", text), path


def test_a_good_part_of_the_waits_is_the_limit() -> None:
    limited, unlimited = (
        json.loads((SAMPLES / name / "figures.json").read_text()) for name in ("limited", "unlimited")
    )
    assert (limited["limit_cpus"], unlimited["limit_cpus"]) == (LIMIT_CPUS, None)
    assert unlimited["mean_wait_s"] < 0.75 * limited["mean_wait_s"]
    assert "QOSMaxCpuPerUserLimit" not in unlimited["waited_s_by_reason"]


@BOTH
def test_what_describes_the_cluster_is_read(name: str) -> None:
    folder = SAMPLES / name
    machine = read_machine(folder / "slurm.conf")
    assert machine.node_names == ("n1", "n2", "n3", "n4", "n5", "n6") and machine.total_cores == 24
    assert read_limits([folder / "associations.txt", folder / "qos.txt"])
    assert (f"cpu={LIMIT_CPUS}" in (folder / "qos.txt").read_text()) == (name == "limited")
