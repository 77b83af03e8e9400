"""How many real cores a machine has."""

from __future__ import annotations

from pathlib import Path

import pytest
from node_tree import write

from asad.node.cores import hyperthreaded_cores


@pytest.mark.parametrize(
    ("siblings", "cores"),
    [
        (["0,2", "1,3", "0,2", "1,3"], 2),
        (["0-1", "0-1", "2-3", "2-3"], 2),
        (["0", "1"], 0),
        (["0,2", "1", "0,2"], 2),  # some cores only
        ([], 0),
    ],
)
def test_cores_are_counted_by_their_siblings(tmp_path: Path, siblings: list[str], cores: int) -> None:
    for number, text in enumerate(siblings):
        write(tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list", text + "\n")
    write(tmp_path / "cpufreq" / "boost", "1")
    (tmp_path / "cpu99").mkdir()  # offline
    assert hyperthreaded_cores(tmp_path) == cores
