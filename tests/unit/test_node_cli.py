"""`asad-node`: what it refuses, and what `--once` prints."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from node_tree import Tree

from asad.cli.node import asad_node, look
from asad.node.actor import take_lock
from asad.node.cgroups import Cgroups
from asad.node.quotas import Quotas

ASAD_NODE = str(Path(sys.executable).with_name("asad-node"))
PAGE = Path(__file__).resolve().parents[2] / "docs/reference/node-actor.md"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ASAD_NODE, *words], capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "asad.toml"
    path.write_text(
        f'[nodes]\nuser = "root"\nmunge_socket = "{tmp_path}/none"\n'
        f'[node]\nnode = "n1"\nstate_dir = "{tmp_path}/state"\n'
    )
    return path


def test_it_refuses_to_start_without_keys_and_touches_nothing(tmp_path: Path, config: Path) -> None:
    tree = Tree(tmp_path / "tree", 2)
    done = run("--config", str(config), "--cgroup-root", str(tree.root))
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("asad-node: ")
    assert "munge" in done.stderr
    assert not (tmp_path / "state").exists()


def test_without_keys_it_lifts_what_a_killed_one_has_left(tmp_path: Path, config: Path) -> None:
    tree = Tree(tmp_path / "tree", 2)
    base = tree.job("7", (100, 101))
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    (tmp_path / "state/n1").mkdir(parents=True, mode=0o700)
    quotas = Quotas(cgroups, tmp_path / "state/n1", time.time)
    assert quotas.set_quota(cgroups.jobs(0.0)["7"], 0.5, "leased")  # and no more of that one
    assert (base / "cpu.max").read_text().startswith("50000")
    done = run("--config", str(config), "--cgroup-root", str(tree.root))
    assert done.returncode == 2 and "munge" in done.stderr
    assert (base / "cpu.max").read_text().startswith("max")


def test_undo_lifts_what_a_killed_one_has_left_and_ends(tmp_path: Path, config: Path) -> None:
    tree = Tree(tmp_path / "tree", 2)
    base = tree.job("7", (100, 101))
    cgroups = Cgroups(tree.root, "n1", tree.proc)
    command = ("--config", str(config), "--cgroup-root", str(tree.root), "--undo")
    without_cgroups = (*command[:2], "--cgroup-root", str(tmp_path), "--undo")
    for nothing in (run(*command), run(*without_cgroups)):
        assert (nothing.returncode, nothing.stdout) == (0, "") and not (tmp_path / "state").exists()
    (tmp_path / "state/n1").mkdir(parents=True, mode=0o700)
    quotas = Quotas(cgroups, tmp_path / "state/n1", time.time)
    assert quotas.set_quota(cgroups.jobs(0.0)["7"], 0.5, "leased")
    done = run(*command)
    assert (done.returncode, done.stdout) == (0, f"{base / 'cpu.max'}: max 100000\n"), done.stderr
    assert (base / "cpu.max").read_text().startswith("max")
    assert (run(*command).returncode, run(*command).stdout) == (0, "")


def test_undo_is_not_for_a_node_whose_actor_runs(tmp_path: Path, config: Path) -> None:
    tree = Tree(tmp_path / "tree", 2)
    (tmp_path / "state").mkdir(mode=0o700)
    with take_lock(tmp_path / "state/n1", "n1"):
        done = run("--config", str(config), "--cgroup-root", str(tree.root), "--undo")
    assert done.returncode == 1 and "stop it first" in done.stderr
    assert run("--config", str(config), "--once", "--undo").returncode == 2


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    done = run("--config", str(tmp_path / "none.toml"))
    assert done.returncode == 2
    assert "none.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_cgroups_is_named(tmp_path: Path, config: Path) -> None:
    done = run("--config", str(config), "--cgroup-root", str(tmp_path))
    assert done.returncode == 1
    assert "no cgroups are mounted there" in done.stderr


@pytest.mark.parametrize("name", ["../n1", "n1\n", "-n"])
def test_a_name_that_is_none_is_refused(config: Path, name: str) -> None:
    done = run("--config", str(config), f"--node={name}")
    assert done.returncode == 2
    assert "no name of a node" in done.stderr


def test_once_prints_the_jobs_and_changes_nothing(tmp_path: Path, config: Path) -> None:
    tree = Tree(tmp_path / "tree", 2)
    tree.job("7", (100, 101))
    (tree.root / tree.home / "job_7/cpu.idle").write_text("1\n")
    plain = json.loads(look(Cgroups(tree.root, "n1", tree.proc)))
    assert (plain["node"], plain["cgroup"]) == ("n1", 2)
    assert plain["jobs"]["7"]["guest"] is True
    assert plain["jobs"]["7"]["idle_class"] is True
    assert plain["jobs"]["7"]["cpu_fraction"] is None
    done = run("--config", str(config), "--cgroup-root", str(tree.root), "--once")
    assert (done.returncode, json.loads(done.stdout)["jobs"]) == (0, {})
    assert not (tmp_path / "state").exists()


def test_every_option_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for parameter in asad_node.params:
        for word in parameter.opts:
            assert word.startswith("-") and (f"`{word}" in page or len(word) == 2), word
    assert CliRunner().invoke(asad_node, ["--help"]).exit_code == 0
