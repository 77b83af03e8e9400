"""One boot of a Debian machine for all tests of one module; `make test-vm` and `make test-deb` alone run them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

from machine import Machine
from steps import Slurm, start_slurm

from debian import ROOT, build_wheel, make_disk, prepare

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "vm"

collect_ignore = ["test_vm.py", "test_packages.py", "test_enabling.py"]
"""They take minutes: only who names a file runs it."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vm: runs in the virtual machine, by `make test-vm`")


@pytest.fixture(scope="session")
def payload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk that brings this checkout into the machine: wheel, units, profiles, and the probe."""
    folder = tmp_path_factory.mktemp("payload")
    shutil.copy(HERE / "probe.py", folder)
    shutil.copytree(HERE / "etc", folder / "etc")
    for name in ("systemd", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    image = prepare(BUILD)
    shutil.copytree(image.wheels, folder / "wheels")
    (folder / "dist").mkdir()
    shutil.copy(build_wheel(folder / "wheels"), folder / "dist")  # where "Enable asad" builds it
    disk = folder.with_suffix(".ext4")
    make_disk(folder, disk, "1G")
    return disk


@pytest.fixture(scope="session")
def machine(payload: Path) -> Iterator[Machine]:
    """Debian 12, booted. Its console and every step run in it are kept in build/vm."""
    with Machine(prepare(BUILD), payload, BUILD) as booted:
        yield booted


@pytest.fixture(scope="session")
def slurm(machine: Machine) -> Slurm:
    """Slurm with the partitions of "Enable asad", set up before asad comes."""
    machine.do("install", "--mode=644", "/mnt/payload/profiles/slurm/job_submit.lua", "/etc/slurm/")
    return start_slurm(machine, (HERE / "etc" / "slurm.conf").read_text(encoding="utf-8"))
