"""What is installed is what is here: a wheel, put into an environment of its own, works and lacks nothing."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import asad
import asad_papers

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
INSTALLED_AS = {
    "asad": "asad",
    "profiles": "asad_profiles",
    "sql": "asad_sql",
    "plugins/asad_mesos": "asad_mesos",
    "plugins/asad_slurm": "asad_slurm",
}
"""Folder here → package there."""
NOT_INSTALLED = {"py.typed"}
DISTRIBUTED = ("systemd", "debian", "docs")
"""Folders beside the packages that a source distribution has, for who installs or packs it."""
PAPERS = ROOT / "papers"
"""A distribution of its own."""
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]

USE_EVERYTHING = """
import importlib.resources as resources
import sys
import asad
from asad.experts import default_folder, load_expert, load_experts
from asad.contention import load_contention
from asad.replay.readers import read_log
from asad.store.store import Store

assert asad.__file__.startswith(sys.prefix), asad.__file__
assert len(load_experts()) >= 8
assert load_expert(default_folder() / "extra" / "never.toml")
assert 0 < load_contention().mu_host_cpu <= 1
sample = resources.files("asad_profiles.samples") / "generated-cluster.sacct.gz"
assert len(read_log(str(sample)).jobs) > 1000
with Store.open(sys.argv[1]):
    pass
assert (resources.files("asad.report") / "templates" / "page.css").is_file()
print("all there")
"""


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command without standard input, in an environment that does not lead back to this repository."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def build(source: Path, out: Path) -> Path:
    """The wheel of the distribution in `source`."""
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index")
    built = run(*pip, "--wheel-dir", str(out), str(source), cwd=out)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = out.glob("*.whl")
    return found


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def files(folder: Path, package: str) -> set[str]:
    """What a wheel should hold of the package in `folder`."""
    return {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name not in NOT_INSTALLED
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of a copy, so that nothing is left behind here, unpacked."""
    copy = tmp_path_factory.mktemp("source") / "asad"
    copy.mkdir()
    for folder in (*dict.fromkeys(name.split("/")[0] for name in INSTALLED_AS), *DISTRIBUTED):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    for name in (
        "setup.cfg",
        "pyproject.toml",
        "MANIFEST.in",
        "LICENSE",
        "Makefile",
        "mkdocs.yml",
        *DOCUMENTS,
    ):
        shutil.copy(ROOT / name, copy)
    out = tmp_path_factory.mktemp("unpacked")
    build_sdist = "import setuptools.build_meta as backend, sys; backend.build_sdist(sys.argv[1])"
    built = run(sys.executable, "-W", "ignore", "-c", build_sdist, str(out), cwd=copy)
    assert built.returncode == 0, built.stdout + built.stderr
    (archive,) = out.glob("asad_hpc-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(out, filter="data")
    return out / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the source distribution."""
    return build(source, tmp_path_factory.mktemp("wheel"))


def test_the_source_distribution_brings_units_pages_and_debians_files(source: Path) -> None:
    for folder in DISTRIBUTED:
        assert files(source / folder, folder) == files(ROOT / folder, folder)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bin/ of an environment with this wheel, and for the rest the packages of the one that runs the tests.

    Those come by a plain line of a .pth file, which does not carry over asad's own installation in place.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    binaries = folder / "bin"
    site = Path(
        run(
            str(binaries / "python"),
            "-c",
            "import sysconfig; print(sysconfig.get_path('purelib'))",
            cwd=folder,
        ).stdout.strip()
    )
    done = run(
        *(sys.executable, "-m", "pip", "--python", str(binaries / "python")),
        *("install", "--no-deps", "--no-index", str(wheel)),
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    paths = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    (site / "tests-own-packages.pth").write_text("\n".join(paths) + "\n")
    return binaries


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    wanted = set().union(*(files(ROOT / folder, package) for folder, package in INSTALLED_AS.items()))
    held = contents(wheel)
    assert wanted - held == set(), "not in the wheel; see packages and package_data in setup.cfg"
    assert held - wanted == set(), "in the wheel, but not here"


def test_the_papers_are_a_wheel_of_their_own(tmp_path: Path) -> None:
    source = tmp_path / "papers"
    shutil.copytree(PAPERS, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    (out := tmp_path / "wheel").mkdir()
    assert contents(build(source, out)) == files(PAPERS / "asad_papers", "asad_papers")


def test_the_wheel_carries_licence_and_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.namelist())
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    assert "Apache-2.0" in text
    assert "Requires-Python: >=3.11" in text
    assert (ROOT / "README.md").read_text(encoding="utf-8").strip() in text


def test_the_installed_package_finds_its_data(installed: Path, tmp_path: Path) -> None:
    done = run(str(installed / "python"), "-c", USE_EVERYTHING, str(tmp_path / "asad.db"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all there\n"


def test_the_installed_asactl_helps(installed: Path, tmp_path: Path) -> None:
    done = run(str(installed / "asactl"), "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "experts" in done.stdout
    shown = run(str(installed / "asactl"), "experts", "check", cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr


@pytest.mark.parametrize("command", ["asad", "asad-node"])
def test_commands_without_a_configuration_say_what_is_missing(
    installed: Path, command: str, tmp_path: Path
) -> None:
    done = run(str(installed / command), "--config", "nowhere.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"{command}: ")
    assert "nowhere.toml" in done.stderr


@pytest.mark.parametrize(
    ("root", "installed_as"), [(ROOT, INSTALLED_AS), (PAPERS, {"asad_papers": "asad_papers"})]
)
def test_every_package_of_the_tree_is_listed(root: Path, installed_as: dict[str, str]) -> None:
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    found = {
        ".".join((package, *path.parent.relative_to(root / folder).parts))
        for folder, package in installed_as.items()
        for path in (root / folder).rglob("__init__.py")
    }
    assert listed == found


def test_the_papers_carry_asads_version() -> None:
    assert asad_papers.__version__ == asad.__version__


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_of_the_front_page_lead_somewhere(name: str) -> None:
    """Pages under docs/ are checked by `make docs`."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("https://", "http://")):
            assert (ROOT / target).exists(), f"{name} links to {target}"


def test_readme_names_targets_that_make_knows() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        called = re.findall(r"(?:^\$ |`)make ([a-z -]+?)(?:`|$)", text, re.M)
        assert {target for group in called for target in group.split()} <= targets
