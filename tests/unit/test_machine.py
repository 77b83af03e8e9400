"""Describing the machine: slurm.conf, sinfo's JSON, flags, and what a log shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from asad.errors import MachineError
from asad.replay import machine as machines
from asad.replay.inferred_machine import infer
from asad.replay.readers import read_log

LOGS = Path(__file__).resolve().parent.parent / "golden" / "logs"
GIB = 2.0**30


def written(folder: Path, text: str, name: str = "slurm.conf") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_slurm_conf_as_slurm_reads_it(tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text("nodename=gpu1 cpus=16 realmemory=2048 State=UNKNOWN\n")
    path = written(
        tmp_path,
        "# NodeName=no CPUs=1\n"
        "ClusterName=c\n"
        "NodeName=DEFAULT RealMemory=1024 ThreadsPerCore=2 # a comment\n"
        "NodeName=n[1-3,05] NodeAddr=x Sockets=2 \\\n"
        "    CoresPerSocket=8\n"
        'NodeName=one,two Boards=2 SocketsPerBoard=1 CoresPerSocket=4 RealMemory=4096 Reason="don\'t"\n'
        "NodeName=later[1-9] CPUs=4 State=FUTURE\n"
        "Include more.conf\n"
        "PartitionName=batch Nodes=n[1-3]\n",
    )
    machine = machines.from_slurm_conf(path)
    cores = dict(zip(machine.node_names, machine.cores.tolist(), strict=True))
    assert cores == {"n1": 32, "n2": 32, "n3": 32, "n05": 32, "one": 16, "two": 16, "gpu1": 16}
    memory = dict(zip(machine.node_names, machine.memory_bytes.tolist(), strict=True))
    assert (memory["n1"], memory["one"], memory["gpu1"]) == (GIB, 4 * GIB, 2 * GIB)
    assert machine.total_cores == 176
    assert "9 nodes with State=FUTURE left out" in machine.origin
    assert machines.read_machine(path).node_names == machine.node_names


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no NodeName"),
        ("NodeName=n[1- CPUs=2\n", "slurm.conf:1"),
        ("\nNodeName=n1 CPUs=two\n", "slurm.conf:2: cpus='two' is not a number"),
        ("NodeName=n1 CPUs = 2\n", "no Key=value"),
        ("NodeName=n1 CPUs=2\nNodeName=n[1-2] CPUs=2\n", "slurm.conf:2: node n1 is also described"),
        ("NodeName=n1 CPUs=0 Sockets=0 CoresPerSocket=0\n", "no CPUs"),
        ("NodeName=n[1-9] CPUs=999999999\n", "too many"),
        ("Include nowhere.conf\n", "slurm.conf:1: there is no file"),
        ("Include slurm.conf\n", "include itself"),
    ],
)
def test_slurm_conf_errors_name_the_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(MachineError) as caught:
        machines.from_slurm_conf(written(tmp_path, text))
    assert problem in str(caught.value)


def test_json_that_lists_nodes(tmp_path: Path) -> None:
    nodes = [
        {"name": "n2", "cpus": 4, "real_memory": 2048, "state": "idle"},
        {"name": "n1", "cpus": 2, "real_memory": 1024, "state": "mixed"},
    ]
    machine = machines.read_machine(written(tmp_path, json.dumps({"meta": {}, "nodes": nodes}), "sinfo.json"))
    assert machine.node_names == ("n1", "n2")
    assert machine.cores.tolist() == [2, 4]
    assert machine.memory_bytes.tolist() == [GIB, 2 * GIB]


def test_json_that_lists_groups_of_nodes(tmp_path: Path) -> None:
    def group(names: list[str], low: int, high: int) -> dict[str, object]:
        return {
            "nodes": {"total": len(names), "nodes": names},
            "cpus": {"minimum": low, "maximum": high},
            "memory": {"minimum": 1024, "maximum": 1024},
        }

    groups = [group(["n1", "n2"], 8, 8), group(["n1"], 8, 8), group(["m[1-2]"], 4, 16)]
    machine = machines.read_machine(written(tmp_path, json.dumps({"sinfo": groups}), "sinfo.json"))
    assert dict(zip(machine.node_names, machine.cores.tolist(), strict=True)) == {
        "m1": 4,
        "m2": 4,
        "n1": 8,
        "n2": 8,
    }
    assert "taken as their smallest" in machine.origin


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"nodes": [{}]}',
        '{"nodes": []}',
        '{"a": 1}',
        '{"sinfo": [3]}',
        '{"nodes": [{"name": 1, "cpus": "x"}]}',
    ],
)
def test_json_that_describes_no_machine(tmp_path: Path, text: str) -> None:
    with pytest.raises(MachineError, match=r"sinfo\.json"):
        machines.read_machine(written(tmp_path, text, "sinfo.json"))


def test_flags() -> None:
    machine = machines.from_flags(64, 32, "128G")
    assert (len(machine.node_names), machine.total_cores) == (64, 2048)
    assert machine.memory_bytes[0] == 128 * GIB
    assert np.isnan(machines.from_flags(1, 1).memory_bytes[0])
    for nodes, cores, memory in (
        (0, 1, None),
        (1, 0, None),
        (10**6, 10**6, None),
        (1, 1, "lots"),
        (1, 1, "0"),
    ):
        with pytest.raises(MachineError, match="--"):
            machines.from_flags(nodes, cores, memory)


@pytest.mark.parametrize(
    ("text", "size"),
    [("128G", 128 * GIB), ("64000", 64000 * 2.0**20), ("1.5T", 1536 * GIB), ("4GiB", 4 * GIB)],
)
def test_memory(text: str, size: float) -> None:
    assert machines.parse_memory(text) == size


def test_swf_header_and_its_spread(tmp_path: Path) -> None:
    assert infer(read_log(LOGS / "small.swf")).cores.tolist() == [4, 4, 4, 4]
    text = (LOGS / "small.swf").read_text()
    uneven = infer(read_log(written(tmp_path, text.replace("MaxNodes: 4", "MaxNodes: 3"))))
    assert uneven.cores.tolist() == [6, 5, 5]
    assert "evenly" in uneven.origin
    alone = infer(read_log(written(tmp_path, text.replace("MaxNodes: 4", "MaxNodes: -1"))))
    assert alone.cores.tolist() == [1] * 16
    no_header = infer(read_log(written(tmp_path, text.replace("MaxProcs", "Other"))))
    assert no_header.total_cores == 8  # 4 + 2 + 1 + 1 ran at one time
    assert "inferred" in no_header.origin


def test_node_lists_and_node_counts(tmp_path: Path) -> None:
    machine = infer(read_log(LOGS / "oddities.sacct"))
    assert machine.node_names == ("n1", "n2", "n3", "n4")
    assert machine.origin.startswith("inferred: 4 nodes of the log's node lists")
    assert "lower bound" not in machine.origin
    counted = (
        "JobID|Submit|Start|ElapsedRaw|NCPUS|NNodes\n1|10|10|100|8|2\n2|10|50|100|6|1\n3|10|110|10|2|1\n"
    )
    machine = infer(read_log(written(tmp_path, counted)))
    assert machine.cores.tolist() == [6, 6, 6]  # 14 cores at one time, 6 of one node
    assert "14 cores" in machine.origin


@pytest.mark.traces
@pytest.mark.parametrize(
    ("name", "nodes", "cores"),
    [
        ("KTH-SP2-1996-2.1-cln-filtered.swf.gz", 100, 100),
        ("RICC-2010-2.swf.gz", 1024, 8192),
        ("COARE-Saliksik-2020-cln.swf.gz", 24, 1728),
        ("cirrus-2024Q1-sacct-subset.csv", 349, 349 * 36),
    ],
)
def test_real_logs(traces: Path, name: str, nodes: int, cores: int) -> None:
    recorded = read_log(traces / name)
    machine = infer(recorded)
    assert (len(machine.node_names), machine.total_cores) == (nodes, cores)
