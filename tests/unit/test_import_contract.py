"""Who may import whom. import-linter holds asad's rooms, plugins and papers to it; plugins are read here once more."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
    "contracts"
]
(PLUGINS,) = (contract for contract in CONTRACTS if contract["id"] == "plugins")
OPEN_TO_PLUGINS = {line.partition(" -> ")[2].removesuffix(".**") for line in PLUGINS["ignore_imports"]}
"""What the contract leaves open to them."""


PACKAGES = {
    "asad": "asad",
    "asad_slurm": "plugins/asad_slurm",
    "asad_mesos": "plugins/asad_mesos",
    "asad_papers": "papers/asad_papers",
}
"""Package → its folder here."""


def copied(folder: Path) -> None:
    """All packages, beside each other in `folder`."""
    for name, where in PACKAGES.items():
        shutil.copytree(ROOT / where, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over the packages in `folder`, with this project's contracts."""
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("lint-imports")),
            "--config",
            str(ROOT / "pyproject.toml"),
            "--no-cache",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_contracts_are_kept() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("asad/share/exclusive.py", "asad.replay.engine"),  # a stage looks at the simulation
        ("asad/share/exclusive.py", "asad.place.native"),  # a stage knows another
        ("asad/admit/everyone.py", "asad.store.store"),
        ("asad/place/native.py", "asad.calibrate.pairs"),
        ("asad/defer/at_once.py", "asad.api"),
        ("asad/model.py", "asad.experts.tree"),
        ("asad/experts/tree.py", "asad.share.learner"),
        ("asad/cycle.py", "asad.replay.recorded_cluster"),  # the cycle sees the port alone
        ("asad/share/exclusive.py", "time"),  # what decides has no clock
        ("asad/guard/guard.py", "random"),
        ("asad/cli/bench.py", "asad_papers.oga.oga_command"),  # what runs needs no evaluations
        ("asad_slurm/cluster.py", "asad_papers"),
        ("asad_slurm/cluster.py", "asad.capacity"),  # a plugin knows the nouns alone
        ("asad_slurm/cluster.py", "asad_mesos"),
        ("asad/daemon/clusters.py", "asad_slurm"),
        ("asad_mesos/mesos_cluster.py", "torch"),
    ],
)
def test_a_forbidden_import_is_found(module: str, imported: str, tmp_path: Path) -> None:
    copied(tmp_path)
    with (tmp_path / module).open("a") as file:
        file.write(f"\nimport {imported}\n")
    done = lint(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout


def test_a_room_without_a_place_is_found(tmp_path: Path) -> None:
    copied(tmp_path)
    (tmp_path / "asad" / "attic.py").touch()
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "attic" in done.stdout


def imported_of_asad(source: str) -> set[str]:
    """The modules of asad that a plugin's source imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module == "asad" else {node.module}
    return {name for name in found if name == "asad" or name.startswith("asad.")}


def test_plugins_import_the_nouns_the_errors_and_their_support_alone() -> None:
    for path in (ROOT / "plugins").rglob("*.py"):
        for name in imported_of_asad(path.read_text(encoding="utf-8")):
            assert any(name == room or name.startswith(f"{room}.") for room in OPEN_TO_PLUGINS), (path, name)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from asad.model import Cluster\nimport asad.errors", {"asad.model", "asad.errors"}),
        ("from asad import model, cycle", {"asad.model", "asad.cycle"}),
        ("def late():\n    from asad.store.store import Store", {"asad.store.store"}),
        ("import asad", {"asad"}),
        ("import asad_slurm.jobs\nfrom . import jobs", set()),
    ],
)
def test_what_counts_as_an_import_of_asad(source: str, found: set[str]) -> None:
    assert imported_of_asad(source) == found
