"""Instances of the OASiS simulation: read from files, or drawn."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.errors import ConfigError
from asad_papers.oasis.scheme_instances import draw_instance, kind_of, read_folder, read_instance

GOOD: dict[str, Any] = {
    "slots": 5,
    "resources": ["gpu", "cpu"],
    "worker_servers": [[1, 4], [2, 8]],
    "parameter_servers": [[0, 16]],
    "jobs": [
        {
            "arrival": 1,
            "worker": [1, 2],
            "ps": [0, 3],
            "worker_bandwidth": 2.5,
            "ps_bandwidth": 10,
            "max_workers": 4,
            "worker_slots": 9,
            "gamma": [50, 0.5, 3],
            "fixed_workers": 2,
        }
    ],
    "reference": {"drf": 12.5, "trial_admitted": 1},
}


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_good_file_is_read(tmp_path: Path) -> None:
    instance = read_instance(written(tmp_path, GOOD))
    assert instance.name == "case"
    assert instance.slots == 5
    assert instance.servers.workers.tolist() == [[1, 4], [2, 8]]
    job = instance.jobs[0]
    assert (job.arrival, job.most_workers, job.work, job.fixed_workers) == (1, 4, 9, 2)
    assert job.servers_for(4) == 1
    assert job.utility(3) == pytest.approx(25)
    assert kind_of(job) == "sensitive"
    assert dict(instance.reference) == {"drf": 12.5}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.pop("slots"), "slots is missing"),
        (lambda d: d.update(slots=0), "slots is 0; write a whole number, 1 or more"),
        (lambda d: d.update(slots=True), "slots is true"),
        (lambda d: d.update(resources="gpu"), "resources is not a list of names"),
        (lambda d: d["worker_servers"].append([1]), r"worker_servers\[2\] is \[1\]; write 2 numbers"),
        (lambda d: d["worker_servers"].append([1, -4]), r"worker_servers\[2\] is \[1, -4\]"),
        (lambda d: d["parameter_servers"].append("x"), r"parameter_servers\[1\] is \"x\""),
        (lambda d: d.update(jobs={}), "jobs is not a list"),
        (lambda d: d["jobs"].append(7), r"jobs\[1\] is not a table"),
        (lambda d: d["jobs"][0].pop("gamma"), r"jobs\[0\].gamma is missing; add it"),
        (lambda d: d["jobs"][0].update(gamma=[1, 2]), r"jobs\[0\].gamma is \[1, 2\]; write 3 numbers"),
        (lambda d: d["jobs"][0].update(max_workers="many"), r"jobs\[0\].max_workers is \"many\""),
        (lambda d: d["jobs"][0].update(worker_slots=1.5), r"jobs\[0\].worker_slots is 1.5"),
        (lambda d: d["jobs"][0].update(ps_bandwidth=float("nan")), r"jobs\[0\].ps_bandwidth is NaN"),
        (lambda d: d.update(reference=[]), "reference is not a table"),
    ],
)
def test_a_bad_file_says_where_and_what_the_remedy_is(tmp_path: Path, change: Any, text: str) -> None:
    document = copy.deepcopy(GOOD)
    change(document)
    path = written(tmp_path, document)
    with pytest.raises(ConfigError, match=text) as error:
        read_instance(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "; " in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "12", "[" * 100_000])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.json"):
        read_instance(path)


def test_a_folder_without_instances_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no instances"):
        read_folder(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        read_folder(tmp_path / "missing")


def test_a_folder_is_read_by_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps(GOOD), encoding="utf-8")
    assert [instance.name for instance in read_folder(tmp_path)] == ["a", "b"]


def test_drawn_instances_are_of_the_papers_ranges_and_repeat() -> None:
    one, again = draw_instance(400, 7), draw_instance(400, 7)
    assert [job.work for job in one.jobs] == [job.work for job in again.jobs]
    assert (one.servers.workers == again.servers.workers).all()
    assert draw_instance(400, 8).jobs[0].worker.tolist() != one.jobs[0].worker.tolist()
    assert one.servers.workers.shape == one.servers.parameter_servers.shape == (50, 5)
    assert (one.servers.workers[:, 0] > 0).all()
    assert (one.servers.parameter_servers[:, 0] == 0).all()
    arrivals = [job.arrival for job in one.jobs]
    assert arrivals == sorted(arrivals)
    assert 0 <= arrivals[0] <= arrivals[-1] < 90
    workers, servers = np.array([job.worker for job in one.jobs]), np.array([job.server for job in one.jobs])
    for column, low, high in ((0, 0, 4), (1, 1, 10), (2, 2, 32), (3, 5, 10), (4, 0.1, 5)):
        assert workers[:, column].min() >= low
        assert workers[:, column].max() <= high
    assert servers[:, 0].max() == 0
    assert servers[:, 4].min() >= 5
    assert servers[:, 4].max() <= 20
    kinds = [kind_of(job) for job in one.jobs]
    for kind, share in (("insensitive", 0.1), ("sensitive", 0.55), ("critical", 0.35)):
        assert kinds.count(kind) / len(kinds) == pytest.approx(share, abs=0.08)
    assert all(1 <= job.fixed_workers <= min(30, job.most_workers) for job in one.jobs)


def test_drawn_work_is_like_that_of_the_recorded_instances(data: Path) -> None:
    recorded = [job for instance in read_folder(data / "oasis") for job in instance.jobs]
    drawn = [job for seed in range(5) for job in draw_instance(350, seed).jobs]
    for quantile in (0.1, 0.25, 0.5, 0.75, 0.9):
        ours, theirs = (np.quantile([job.work for job in jobs], quantile) for jobs in (drawn, recorded))
        assert ours == pytest.approx(theirs, rel=0.25)
        ours, theirs = (
            np.quantile([job.target_slots for job in jobs], quantile) for jobs in (drawn, recorded)
        )
        assert ours == pytest.approx(theirs, rel=0.25)
