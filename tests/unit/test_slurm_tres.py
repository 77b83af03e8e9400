"""Gres and licences as Slurm writes them, and as a snapshot has them: nothing that is wanted is lost without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.command import CommandTransport
from asad_slurm.gres import asked, node_gres
from hypothesis import given
from hypothesis import strategies as st
from slurm_samples import GOLDEN, Lab, SlurmInMemory, a_job, row, running


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("", {}),
        ("gpu:4", {"gres/gpu": 4}),
        ("gpu:a100:4(S:0-1)", {"gres/gpu": 4, "gres/gpu:a100": 4}),
        ("gpu:a100:2(S:0),gpu:v100:1(S:1)", {"gres/gpu": 3, "gres/gpu:a100": 2, "gres/gpu:v100": 1}),
        ("gpu:1g.5gb:7,nic:1", {"gres/gpu": 7, "gres/gpu:1g.5gb": 7, "gres/nic": 1}),
        ("scratch:2K,net:no_consume:4", {"gres/scratch": 2048}),
        ("gpu:a100:2,shard:a100:8,mps:200", {"gres/gpu": 2, "gres/gpu:a100": 2}),
    ],
)
def test_gres_of_a_node(text: str, has: dict[str, float]) -> None:
    assert dict(node_gres(text)) == has


@pytest.mark.parametrize(
    ("facts", "wants"),
    [
        ({"tres_per_node": "gres:gpu:2"}, {"gres/gpu": 4}),
        ({"tres_per_node": "gres/gpu:2,gres/nic"}, {"gres/gpu": 4, "gres/nic": 2}),
        ({"tres_per_node": "gres/gpu:a100:1"}, {"gres/gpu": 2, "gres/gpu:a100": 2}),
        ({"tres_per_node": "gres/gpu:a100"}, {"gres/gpu": 2, "gres/gpu:a100": 2}),
        ({"tres_per_job": "gres/gpu:3"}, {"gres/gpu": 3}),
        ({"tres_per_job": "gres/gpu=3", "tres_per_node": "gres/gpu=1"}, {"gres/gpu": 3}),
        ({"tres_per_task": "cpu=2,gres/gpu:1", "tasks": {"set": True, "infinite": 0, "number": 6}}, {"gres/gpu": 6}),
        ({"tres_per_task": "cpu=2"}, {}),
        ({"licenses": "abaqus:2,matlab@db"}, {"license/abaqus": 2, "license/matlab@db": 1}),
        ({"tres_per_socket": "gres/gpu:1", "tres": "cpu=1,gres/gpu=2,gres/gpu:a=2"}, {"gres/gpu": 2, "gres/gpu:a": 2}),
        ({"tres_per_socket": "gres/gpu:1", "tres": "cpu=1,gres/gpu:a100=2"}, {"gres/gpu": 2, "gres/gpu:a100": 2}),
    ],
)  # fmt: skip
def test_what_a_waiting_job_of_two_nodes_wants(facts: dict[str, Any], wants: dict[str, float]) -> None:
    found, why = asked(facts, False, 2.0, facts.get("tres", "cpu=1"))
    assert (dict(found), why) == (wants, "")


def test_a_running_job_holds_what_slurm_gave_it() -> None:
    facts = {"gres_detail": ["gpu:a100:2(IDX:0,3)", "gpu:v100:1(IDX:1)"], "tres_per_job": "gres/gpu:3"}
    assert dict(asked(facts, True, 2.0, "")[0]) == {"gres/gpu": 3, "gres/gpu:a100": 2, "gres/gpu:v100": 1}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"tres_per_socket": "gres/gpu:1"}, "gres/gpu by socket"),
        ({"tres_per_task": "gres/gpu:1"}, "how many tasks"),
        ({"tres_per_node": "gres/shard:2"}, "parts of GPUs"),
        ({"tres_per_node": "gres/gpu:a:b:1"}, "cannot count"),
        ({"tres_per_job": "bb/cray:1"}, "cannot count"),
        ({"licenses": "abaqus:2|nastran:1"}, "cannot count"),
        ({"licenses": "abaqus:many"}, "cannot count"),
    ],
)
def test_what_cannot_be_counted_is_a_sentence(facts: dict[str, Any], why: str) -> None:
    assert why in asked(facts, False, 1.0, "cpu=1")[1]


@given(st.text(alphabet="gresgpu:/=,()|*;1K a\x1b", max_size=60))
def test_any_text_is_counted_or_refused(text: str) -> None:
    for key in ("tres_per_node", "tres_per_socket", "licenses"):
        found, why = asked({key: text}, False, 1.0, text)
        assert all(amount > 0 for _, amount in found) and isinstance(why, str)


@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_all_versions_show_gpus_and_licences(version: str) -> None:
    jobs = {job.name: job for job in JobReader().read((GOLDEN / version / "squeue.json").read_bytes())}
    assert jobs["gpu"].tres == (("gres/gpu", 1.0),) and jobs["lic"].tres == (("license/abaqus", 2.0),)
    assert jobs["gang"].tres == () and not any(job.uncounted for job in jobs.values())
    nodes = {node.name: node for node in NodeReader().read((GOLDEN / version / "sinfo.json").read_bytes())}
    assert nodes["an5"].gres == (("gres/gpu", 1.0),) and nodes["an1"].gres == ()


def test_a_snapshot_counts_gres_of_nodes_and_licences_of_the_cluster(tmp_path: Path) -> None:
    lab = Lab(tmp_path, SlurmInMemory())
    lab.slurm.nodes[1]["gres"], lab.slurm.nodes[2]["gres"] = "gpu:a100:4", "gpu:a100:1,gpu:v100:2"
    lab.slurm.licensed = {"abaqus": 3.0}
    lab.slurm.add(running(1, {"n2": 2}, tres_per_node="gres:gpu:2", gres_detail=["gpu:a100:2(IDX:0-1)"]))
    lab.slurm.add(a_job(2, tres_per_node="gres:gpu:v100:1", licenses="abaqus:2"))
    lab.slurm.add(a_job(3, tres_per_node="gres:fpga:1"))
    lab.slurm.add(a_job(4, licenses="nastran:1"))
    lab.slurm.add(a_job(5))
    snapshot = lab.snapshot()
    tres, rows = snapshot.tres, {name: row(snapshot, name) for name in "12345"}
    assert tres.names == ("gres/gpu", "gres/gpu:a100", "gres/gpu:v100", "license/abaqus")
    assert tres.nodes.tolist() == [[0, 0, 0, 0], [4, 4, 0, 0], [3, 1, 2, 0], [0, 0, 0, 0]]
    assert tres.cluster.tolist() == [0, 0, 0, 3]
    assert tres.jobs[rows["1"]].tolist() == [2, 2, 0, 0] and tres.jobs[rows["2"]].tolist() == [1, 0, 1, 2]
    assert rows["5"] not in tres.jobs and set(tres.jobs) == {rows[name] for name in "1234"}
    assert {row: why.split(",")[0] for row, why in tres.unknown.items()} == {
        rows["3"]: "it wants gres/fpga",
        rows["4"]: "it wants license/nastran",
    }


def test_licences_are_read_from_scontrol(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "LicenseName=abaqus Total=4 Used=1 Free=3 Reserved=0 Remote=no\n"
        "LicenseName=matlab@db Total=7 Used=0 Free=7 Reserved=0 Remote=yes\n"
    )
    transport = CommandTransport(1.0)
    asked_for: list[list[str]] = []

    def answered(argv: list[str]) -> bytes:
        asked_for.append(argv)
        return lines.encode()

    monkeypatch.setattr(transport, "_run", answered)
    assert transport.licences() == {"abaqus": 4.0, "matlab@db": 7.0}
    assert asked_for == [["scontrol", "show", "licenses", "--oneliner"]]
    lines = f"LicenseName=a Total={'9' * 400}\nLicenseName=b Total=many\nLicenseName=c\n"
    assert transport.licences() == {}
    lines = "No licenses configured in Slurm.\n"
    assert transport.licences() == {}
