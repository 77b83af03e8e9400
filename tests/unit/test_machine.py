"""Describing the machine by flags, and by what a log shows."""

from __future__ import annotations

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
