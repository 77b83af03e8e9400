"""The doctor on the units: daemon, `asad-undo` and their units agree on the state folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from asad.cli import doctor
from asad.cli.machine_checks import state_dir_findings

TOML = Path("/etc/asad/asad.toml")
DAEMON = """\
ExecStart={ path=/opt/asad/bin/asad ; argv[]=/opt/asad/bin/asad --config /etc/asad/asad.toml ; pid=0 }
ExecStopPost={ path=/opt/asad/bin/asad-undo ; argv[]=/opt/asad/bin/asad-undo --config /etc/asad/asad.toml ; pid=0 }
ReadWritePaths=
ProtectSystem=strict
StateDirectory=asad
Id=asad.service
LoadState=loaded
"""
UNDO = """\
ExecStart={ path=asad-undo ; argv[]=/opt/asad/bin/asad-undo --config /etc/asad/asad.toml --older-than 600 ;}
ReadWritePaths=
ProtectSystem=strict
StateDirectory=asad
Id=asad-undo.service
LoadState=loaded
"""
"""What systemctl 252 shows of the units of this version."""
BEFORE = "--config /etc/asad/asad.toml --older-than", "--state-dir /var/lib/asad --older-than"
"""In the unit that the version before this one had."""


def findings(shown: str, state_dir: str = "/var/lib/asad", config: Path = TOML) -> list[tuple[str, str, str]]:
    found = state_dir_findings(shown, Path(state_dir), config)
    return [(finding.state, finding.why, finding.remedy) for finding in found]


def test_units_as_they_are_shipped_agree() -> None:
    assert findings(f"{DAEMON}\n{UNDO}") == [("ok", "daemon and asad-undo both use /var/lib/asad", "")]


def test_without_units_there_is_nothing_to_say() -> None:
    gone = "Id=asad.service\nLoadState=not-found\n\nId=asad-undo.service\nLoadState=not-found\n"
    assert findings(gone) == findings("") == []


def test_a_unit_that_looks_elsewhere_is_named() -> None:
    shown = f"{DAEMON}ReadWritePaths=/srv\n\n{UNDO.replace(*BEFORE)}ReadWritePaths=/srv\n"
    ((state, why, remedy),) = findings(shown, "/srv/asad")
    assert state == "fail"
    assert why.startswith(
        "asad-undo.service has asad-undo look in /var/lib/asad, but the daemon's journal is in /srv/asad"
    )
    assert remedy.startswith(
        "in asad-undo.service: asad-undo --config /etc/asad/asad.toml, without --state-dir"
    )
    assert findings(f"{DAEMON}\n{UNDO.replace(*BEFORE)}")[0][0] == "ok", "it looks where the daemon writes"


def test_a_daemon_with_a_folder_on_its_command_line_counts() -> None:
    shown = DAEMON.replace("asad --config", "asad --state-dir=/srv/asad --config")
    found = findings(f"{shown}ReadWritePaths=/srv/asad\n\n{UNDO.replace(*BEFORE)}ReadWritePaths=/srv/asad\n")
    assert [(state, "look in /var/lib/asad" in why) for state, why, _ in found] == [("fail", True)]


def test_another_configuration_is_named() -> None:
    ((state, why, _), *_) = findings(f"{DAEMON}\n{UNDO}", config=Path("/etc/other.toml"))
    assert state == "fail" and "has asad-undo read /etc/asad/asad.toml, and not /etc/other.toml" in why


def test_a_folder_that_a_unit_may_not_write_is_named() -> None:
    found = findings(f"{DAEMON}ReadWritePaths=-/srv/asad\n\n{UNDO}", "/srv/asad")
    assert found == [
        (
            "fail",
            "asad-undo.service may not write to /srv/asad",
            "systemctl edit asad-undo.service: [Service] ReadWritePaths=/srv/asad",
        )
    ]
    open_ = UNDO.replace("strict", "full")
    assert findings(f"{DAEMON}ReadWritePaths=/srv/other /srv\n\n{open_}", "/srv/asad")[0][0] == "ok"


def test_the_doctor_asks_systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def run(*words: str) -> str:
        asked.append(words)
        return f"{DAEMON}\n{UNDO}"

    monkeypatch.setattr(doctor, "run", run)
    place = tmp_path / "asad.toml"
    place.write_text(f"[daemon]\nstate_dir = '{tmp_path}'\nsocket = '{tmp_path}/s'\n")
    seen = [
        finding
        for finding in doctor.examine(str(place), str(tmp_path / "none"))
        if finding.check == "state folder"
    ]
    assert [finding.state for finding in seen] == ["fail"] * 4, "nobody reads it, and nobody may write there"
    assert asked[0][:4] == ("systemctl", "show", "asad.service", "asad-undo.service")
