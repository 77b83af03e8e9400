"""Commands that asad-hpc-papers brings: found where it is installed; where it is not, asactl says how to install it."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from asad.cli import papers
from asad.cli.asactl import asactl
from asad.cli.bench import PAPERS as BENCHES
from asad.cli.bench import bench
from asad.cli.defer import PAPERS as TRAININGS
from asad.cli.defer import defer
from asad.errors import AsadError, UsageError

NAMES = [("bench", name) for name in BENCHES] + [("defer", name) for name in TRAININGS]
PER_GROUP = {"bench": (bench, BENCHES), "defer": (defer, TRAININGS)}


def asked(*words: str) -> Result:
    return CliRunner().invoke(asactl, words)


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As where asad alone is installed."""
    monkeypatch.setattr(papers, "entry_points", lambda **_: importlib.metadata.EntryPoints())
    yield


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_a_command_of_the_papers_is_found_with_its_line_of_help(group: str, name: str) -> None:
    command, listed = PER_GROUP[group]
    found = command.get_command(click.Context(command), name)
    assert found is not None and found.name == name
    assert found.get_short_help_str(200) == listed[name]


def test_asad_papers_offers_no_other_commands() -> None:
    offered = {point.name for point in importlib.metadata.entry_points(group=papers.COMMANDS)}
    assert offered == {f"{group}.{name}" for group, name in NAMES}


@pytest.mark.usefixtures("missing")
@pytest.mark.parametrize(("group", "name"), NAMES)
@pytest.mark.parametrize("words", [(), ("--help",), ("--json", "--part", "all"), ("-h", "x")])
def test_without_the_papers_a_command_says_how_to_install_them(
    group: str, name: str, words: tuple[str, ...]
) -> None:
    done = asked(group, name, *words)
    assert isinstance(done.exception, AsadError) and done.exception.exit_status == 1
    assert f"asactl {group} {name} is not installed here" in str(done.exception)
    assert "pip install /path/to/asad/papers" in str(done.exception)


@pytest.mark.usefixtures("missing")
def test_without_the_papers_the_help_lists_them_and_what_they_need() -> None:
    for group, names in (("bench", BENCHES), ("defer", TRAININGS)):
        shown = asked(group, "--help")
        assert shown.exit_code == 0
        assert all(name in shown.output for name in names) and "asad-hpc-papers" in shown.output
    assert "status" in asked("defer", "--help").output
    assert asked("defer", "show").exit_code == 0
    assert asked("bench", "nothing").exit_code == 2


def test_two_packages_with_one_command_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint
    both = [point("bench.oga", value, papers.COMMANDS) for value in ("one:command", "other:command")]
    monkeypatch.setattr(papers, "entry_points", lambda **_: both)
    done = asked("bench", "oga")
    assert isinstance(done.exception, UsageError) and "remove one of them" in str(done.exception)


def test_a_command_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = importlib.metadata.EntryPoint("bench.mine", "nowhere_at_all:command", papers.COMMANDS)
    monkeypatch.setattr(papers, "entry_points", lambda **_: [broken])
    done = asked("bench", "mine")
    assert isinstance(done.exception, AsadError) and "nowhere_at_all" in str(done.exception)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("asad.defer.gym", "asad_papers.osdec.deferral_gym", "DeferVectorEnv"),
        ("asad.replay.defer_instances", "asad_papers.osdec.deferral_instances", "draw_trajectories"),
    ],
)
def test_what_the_documents_named_answers_to_its_old_name(old: str, new: str, name: str) -> None:
    if new.endswith("gym"):
        pytest.importorskip("gymnasium", reason="gymnasium is not installed (pip install './papers[rl]')")
    module = importlib.import_module(old)
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now"):
        found = getattr(module, name)
    assert found is getattr(importlib.import_module(new), name)
    with pytest.raises(AttributeError), pytest.warns(DeprecationWarning):
        _ = module.no_such_name
