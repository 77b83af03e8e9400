"""Every command that prints JSON says which schema it follows; the schemas are published, and hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, ValidationError
from plain_answers import validate
from slurm_samples import START_S, Lab, SlurmInMemory, a_job, running
from test_daemon import Life, live, wait_for
from test_docs import COMMANDS

from asad.cli.asactl import asactl
from asad.cli.json_answers import ANSWERS
from asad.cli.output import schema_name
from docs import schemas

__all__ = ["live"]

LIVE = (
    ("status",),
    ("top",),
    ("jobs",),
    ("nodes",),
    ("waits", "--by", "user,partition"),
    ("config", "show", "--live"),
    ("mode",),
    ("mode", "advise"),
    ("pause",),
    ("resume",),
    ("release",),
    ("doctor",),
)
ALONE = (
    ("config", "check"),
    ("config", "show"),
    ("defer", "show"),
    ("defer", "show", "osdec-s1"),
    ("experts", "check"),
    ("experts", "show", "cpu"),
    ("experts", "eval", "cpu", "--state", "cpu=0.3"),
)


def has_json(command: click.Command) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


def test_every_command_with_json_has_a_schema_and_every_schema_a_command() -> None:
    named = {name.removeprefix("asactl ") for name, command in COMMANDS.items() if has_json(command)}
    covered = {"bench" if name.startswith("bench ") else name for name in named}
    assert covered - {"store export"} | {"asad-node"} == set(ANSWERS), "an export has a line for each row"


@pytest.mark.parametrize("command", ANSWERS)
def test_schemas_are_schemas(command: str) -> None:
    schema = schemas.schema_of(command)
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": schema_name(command)}


def test_published_files_are_what_the_code_says() -> None:
    wanted = dict(schemas.files())
    assert {path: path.read_text(encoding="utf-8") for path in schemas.FOLDER.iterdir()} == wanted


def answer(*words: str) -> Any:
    done = CliRunner().invoke(asactl, [*words, "--json"])
    assert done.stdout, (words, done.exception, done.stderr)
    found = json.loads(done.stdout)
    command = next(name for name in (" ".join(words[:2]), words[0]) if name in ANSWERS)
    assert found["schema"] == schema_name(command)
    validate(found)
    return found


def test_answers_of_a_daemon_hold_to_their_schemas(
    live: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, SlurmInMemory(nodes=3))
    lab.slurm.add(running(1, {"n1": 2, "n2": 2}), a_job(2))
    lab.now_s = START_S
    life = live(mode="advise", held=lab.cluster, first_cycle=False)
    wait_for(lambda: life.daemon.figures.cycles)
    monkeypatch.setenv("ASAD_SOCKET", str(life.socket))
    found = {words: answer(*words) for words in LIVE}
    (job,) = [one for one in found["jobs",]["jobs"] if one["job"] == "1"]
    assert job["nodes"] == ["n1", "n2"] and job["node_count"] == 2
    assert job["submit_iso"].endswith(("Z", "+00:00")) or "T" in job["submit_iso"]
    listed = CliRunner().invoke(asactl, ["jobs", "-o", "%i %T %P %N", "--noheader", "-w", "n[2-3]"])
    assert listed.output == "1 RUNNING batch n[1-2]\n"
    listed = CliRunner().invoke(asactl, ["nodes", "-o", "%N %P %T", "--noheader"])
    assert listed.output == "n[1-3] batch,guest IDLE\n"


def test_answers_without_a_daemon_hold_to_their_schemas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "asad.toml"
    config.write_text('[daemon]\nmode = "observe"\n')
    monkeypatch.setenv("ASAD_CONFIG", str(config))
    for words in ALONE:
        answer(*words)


def test_an_answer_that_lacks_a_key_is_found() -> None:
    with pytest.raises(ValidationError, match="'nodes' is a required property"):
        validate({"schema": "nodes/1"})
