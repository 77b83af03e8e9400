"""The systemd units: hardened as promised, and true to the programs that they start."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "systemd"
SERVICES = {"asad.service": 2.0, "asad-node.service": 3.5, "asad-undo.service": 2.0, "asad-web.service": 1.5}
"""Unit → the exposure that it must not exceed."""
MOUNT = "run-asad\\x2dprogress.mount"


def analyzer() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze (apt-get install systemd)")
    return found


def unit(name: str) -> dict[str, list[str]]:
    """Key → its values, in the order of the file; keys of all sections together."""
    values: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.startswith("#"):
            values.setdefault(key, []).append(value)
    return values


def security_of(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [analyzer(), "security", "--offline=yes", "--no-pager", str(FOLDER / name)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_leaves_open_is_explained_in_its_unit(name: str) -> None:
    comments = [
        line for line in (FOLDER / name).read_text(encoding="utf-8").splitlines() if line.startswith("# - ")
    ]
    explained = {word.strip() for line in comments for word in line[4:].partition(":")[0].split(",")}
    open_ = set(re.findall(r"^✗ (\w+)=", security_of(name).stdout, re.M))
    assert open_, "there is always the root directory"
    assert open_ - explained == set()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_exposed_no_more_than_promised(name: str) -> None:
    done = security_of(name)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= SERVICES[name], done.stdout
    assert "Unknown" not in done.stderr, done.stderr


def test_units_hold_nothing_that_systemd_does_not_know(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    names = [*SERVICES, "asad-undo.timer", MOUNT]
    for name in names:  # the programs need not be installed where the units expect them
        text = (FOLDER / name).read_text(encoding="utf-8").replace("/opt/asad/bin", str(binaries))
        (tmp_path / name).write_text(text, encoding="utf-8")
    for program in ("asad", "asad-node", "asad-undo", "asad-web"):
        (binaries / program).write_text("#!/bin/sh\n")
        (binaries / program).chmod(0o755)
    done = subprocess.run(
        [
            analyzer(),
            "verify",
            "--man=no",
            "--recursive-errors=no",
            *(str(tmp_path / name) for name in names),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "asad" in line]
    assert ours == []


def test_the_daemon_is_watched_restarted_reloaded_and_undone() -> None:
    daemon = unit("asad.service")
    assert daemon["Type"] == ["notify"]
    assert daemon["Restart"] == ["always"]
    assert float(daemon["WatchdogSec"][0]) >= 60
    assert daemon["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert daemon["ExecStopPost"] == ["/opt/asad/bin/asad-undo --config /etc/asad/asad.toml"]
    assert daemon["User"] == ["asad"]
    assert daemon["CapabilityBoundingSet"] == [""]


def test_the_node_actor_is_watched_and_restarted_soon() -> None:
    node = unit("asad-node.service")
    assert (node["Type"], node["Restart"]) == (["notify"], ["always"])
    assert float(node["RestartSec"][0]) <= 5
    assert "User" not in node
    assert set(node["CapabilityBoundingSet"][0].split()) == {
        "CAP_SYS_PTRACE",
        "CAP_DAC_READ_SEARCH",
        "CAP_DAC_OVERRIDE",
        "CAP_SYS_NICE",
        "CAP_CHOWN",
    }


def test_folders_are_those_of_the_configuration() -> None:
    from asad.config import DEFAULT_PATH, DaemonSettings, NodeSettings

    daemon, node = unit("asad.service"), unit("asad-node.service")
    assert f"/var/lib/{daemon['StateDirectory'][0]}" == str(DaemonSettings().state_dir)
    assert f"/run/{daemon['RuntimeDirectory'][0]}" == str(DaemonSettings().socket.parent)
    assert f"/var/lib/{node['StateDirectory'][0]}" == str(NodeSettings().state_dir)
    for service in (daemon, node):
        assert service["ExecStart"][0].split()[1:] == ["--config", str(DEFAULT_PATH)]
    (warm_up,) = daemon["ExecStartPre"]
    assert warm_up.startswith("-"), "a policy that cannot be compiled beforehand is no reason not to start"
    assert warm_up.split()[1:] == ["--config", str(DEFAULT_PATH), "--warm-up"]


def test_what_is_undone_is_in_the_folder_of_the_configuration() -> None:
    from asad_slurm import undo

    from asad.config import DEFAULT_PATH, DaemonSettings

    assert undo.CONFIG == DEFAULT_PATH and DaemonSettings().state_dir == undo.STATE_DIR
    service = unit("asad-undo.service")
    assert service["ExecStart"] == [f"/opt/asad/bin/asad-undo --config {DEFAULT_PATH} --older-than 600"]
    assert "ConditionPathExists" not in service, "the folder may be another one"


def test_the_actor_pulls_in_the_file_system_of_progress_files() -> None:
    from asad.node.progress_files import FOLDER as PROGRESS

    node, mount = unit("asad-node.service"), unit(MOUNT)
    assert mount["Where"] == [str(PROGRESS)] and f"/run/{node['RuntimeDirectory'][0]}" == str(PROGRESS)
    assert MOUNT in node["Wants"] and MOUNT in node["After"]
    assert not any(MOUNT in words for words in node.get("Requires", [])), "it goes on without"


def test_the_programs_are_those_that_are_installed() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    installed = {
        line.split("=")[0].strip() for line in setup["options.entry_points"]["console_scripts"].split("\n")
    }
    for name in SERVICES:
        for key in ("ExecStartPre", "ExecStart", "ExecStopPost"):
            for command in unit(name).get(key, []):
                assert Path(command.split()[0].removeprefix("-")).name in installed


def test_the_live_page_is_a_process_of_its_own_without_a_right() -> None:
    from asad.config import WebSettings
    from asad.web.asad_web import DEFAULT

    web = unit("asad-web.service")
    assert web["User"] == [WebSettings().user] and web["CapabilityBoundingSet"] == [""]
    assert str(Path(DEFAULT).parent) == f"/run/{web['RuntimeDirectory'][0]}"
    assert web["ExecStart"] == ["/opt/asad/bin/asad-web $ASAD_WEB_OPTIONS"]
    users = (FOLDER / "sysusers.d/asad.conf").read_text(encoding="utf-8")
    assert re.search(rf"^u {web['User'][0]} - ", users, re.M)


def test_the_user_of_the_daemon_is_made() -> None:
    users = (FOLDER / "sysusers.d/asad.conf").read_text(encoding="utf-8")
    assert re.search(rf"^u {unit('asad.service')['User'][0]} 641 ", users, re.M)
    folders = (FOLDER / "tmpfiles.d/asad.conf").read_text(encoding="utf-8")
    assert "/etc/asad" in folders
