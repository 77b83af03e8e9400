"""What an operator can type, or read in the JSON, is documented; and what is documented is there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from asad.api.control import VERBS
from asad.catalog import STAGES
from asad.cli.asactl import asactl
from asad.config import TABLES
from asad.errors import AsadError
from asad.replay.policies import BEST, DEFAULT_POLICIES
from asad.share.asax import Options
from docs import generate

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
REPLAY, FIGURES = PAGES["docs/reference/replay.md"], PAGES["docs/reference/figures.md"]
OPERATOR_PAGES = {**PAGES, "README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
CHOSEN_BY_USERS = {"counts", "options"}
"""Tables in the JSON whose keys are reasons of the readers and options of a policy."""


def commands(
    group: click.Group = asactl, words: tuple[str, ...] = ("asactl",)
) -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand with its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*words, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


COMMANDS = dict(commands())


def options(command: click.Command) -> set[str]:
    return {
        word
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for word in (*parameter.opts, *parameter.secondary_opts)
        if word.startswith("--")
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert any(name in text for text in PAGES.values()), f"no page under docs/ says `{name}`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_on_a_page_about_its_command(name: str) -> None:
    about = " ".join(name.split()[:2])
    text = "\n".join(text for text in PAGES.values() if about in text)
    missing = {word for word in options(COMMANDS[name]) if not re.search(rf"{word}(?![\w-])", text)}
    assert not missing, f"{name}: no page says {sorted(missing)}"


@pytest.mark.parametrize("page", [path.relative_to(DOCS) for path in generate.pages()], ids=str)
def test_tables_of_what_the_code_says_are_generated(page: Path) -> None:
    there, wanted = generate.pages()[DOCS / page]
    assert there == wanted, generate.FAILURE


def test_every_setting_metric_property_and_policy_has_a_generated_table() -> None:
    blocks = " ".join(re.findall(r"^<!-- generated: (.+?) -->$", "\n".join(PAGES.values()), re.M)).split()
    for table in TABLES.values():
        assert f"{table.__module__}:{table.__name__}" in blocks, table
    assert {"properties", "metrics", *STAGES} <= {*blocks}


def test_every_option_of_replay_stands_in_its_table_and_no_other() -> None:
    rows = [
        line.split("|")[1]
        for line in REPLAY.split("## Exit status")[0].splitlines()
        if line.startswith("| `-")
    ]
    assert {word for row in rows for word in re.findall(r"--[a-z-]+", row)} == options(
        COMMANDS["asactl replay"]
    )


def test_defaults_of_replay_are_those_in_its_table() -> None:
    rows: dict[str, str] = {}
    for line in REPLAY.splitlines():
        if line.startswith("| `-"):
            cells = line.split("|")
            rows |= dict.fromkeys(re.findall(r"--[a-z-]+", cells[1]), cells[-2].strip())
    for parameter in COMMANDS["asactl replay"].params:
        if isinstance(parameter, click.Option) and parameter.show_default:
            assert rows[parameter.opts[0]] == str(parameter.default)
    usual = f"The default is `{','.join(DEFAULT_POLICIES)}`"
    policy = next(p for p in COMMANDS["asactl replay"].params if p.name == "policy")
    assert usual in REPLAY
    assert isinstance(policy, click.Option) and f"[default: {','.join(DEFAULT_POLICIES)};" in str(policy.help)
    for kind, best in BEST.items():
        text = " ".join(REPLAY[REPLAY.index(usual) :].split("\n\n")[0].split())
        option = {"utilities": "--utility"}.get(kind, f"--{kind}")
        assert (
            f"`{option}` `slurm,{best}`" in text and option in str(policy.help) and best in str(policy.help)
        )


def test_every_policy_is_documented() -> None:
    from asad.replay.policies import all_policies

    table = REPLAY.split("## Policies")[1].split("## Options")[0]
    assert set(re.findall(r"^\| `([a-z][a-z-]*)` \|", table, re.M)) == set(all_policies())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small log without CPU times, so that demand is assumed and varied."""
    lines = ["; MaxNodes: 4", "; MaxProcs: 8"]
    for k in range(14):
        lines.append(
            f"{k + 1} {k * 600} -1 3000 {(8, 4, 2)[k % 3]} -1 -1 -1 7200 -1 1 {k % 4} 1 {k % 3} -1 -1 -1 -1"
        )
    path = tmp_path_factory.mktemp("docs") / "small.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def document(log: Path) -> dict[str, Any]:
    words = ["replay", str(log), "--json", "--store", "none", "--policy", "slurm,asax", "--repeat", "2"]
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def keys(table: dict[str, Any]) -> set[str]:
    found = set(table)
    for key, value in table.items():
        if isinstance(value, dict) and key not in CHOSEN_BY_USERS:
            found |= keys(value)
        elif isinstance(value, list):
            found |= {key for item in value if isinstance(item, dict) for key in keys(item)}
    return found


@pytest.mark.slow
def test_every_key_of_the_json_is_documented(document: dict[str, Any]) -> None:
    assert document["demand_verdicts"] and document["repeats"]["policies"]["asax"]
    missing = {key for key in keys(document) if f"`{key}`" not in FIGURES} - {"slurm", "asax"}
    assert not missing, f"docs/reference/figures.md does not say {sorted(missing)}"


@pytest.mark.slow
def test_every_documented_figure_is_in_the_json(document: dict[str, Any]) -> None:
    table = FIGURES.split("## `policies`")[1].split("### What jobs are worth")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == [
        key for key in document["policies"]["asax"] if key != "funnel"
    ]


def test_every_documented_figure_of_worth_is_in_the_json(log: Path) -> None:
    words = ["replay", str(log), "--json", "--store", "none", "--policy", "slurm", "--utility", "constant(1)"]
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    figures = list(json.loads(result.output)["policies"]["slurm"])
    table = FIGURES.split("### What jobs are worth")[1].split("\n##")[0]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert documented == figures[figures.index("utility") : figures.index("wall_s")]


def test_every_documented_figure_of_deferral_is_in_the_json(log: Path) -> None:
    words = [
        "replay",
        str(log),
        "--json",
        "--store",
        "none",
        "--policy",
        "slurm",
        "--deferrable",
        "window=1h",
    ]
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    figures = list(json.loads(result.output)["policies"]["slurm"])
    table = FIGURES.split("### Deferrable jobs")[1].split("\n##")[0]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert documented == figures[figures.index("deferrable") : figures.index("wall_s")]


def test_every_documented_figure_of_statements_is_in_the_json(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    file.write_text(
        'version = 1\n[[statement]]\nname = "1"\ncores = 4\ndue = 600\nruns = [[0, 3000, 1.0]]\nvalue = 1\n'
        'deadline = "1d"\n'
    )
    words = ["replay", str(log), "--json", "--store", "none", "--policy", "slurm", "--statements", str(file)]
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    figures = list(json.loads(result.output)["policies"]["slurm"])
    table = FIGURES.split("### Statements of work")[1].split("\n##")[0]
    documented = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert documented == figures[figures.index("stated") : figures.index("wall_s")]


def test_every_key_of_the_bench_is_documented() -> None:
    words = [
        "bench",
        "asax-paper",
        "--json",
        "--seeds",
        "1",
        "--sizes",
        "64",
        "--policy",
        "slurm,greedy-oracle",
    ]
    result = CliRunner().invoke(asactl, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    pages = FIGURES + PAGES["docs/reference/bench-asax.md"]
    missing = {key for key in json.loads(result.output)["64"]["slurm"] if f"`{key}`" not in pages}
    assert not missing, f"neither reference/figures.md nor reference/bench-asax.md says {sorted(missing)}"


@pytest.mark.parametrize("name", Options._fields)
def test_every_option_of_asax_is_documented(name: str) -> None:
    pages = {page: text for page, text in PAGES.items() if "asax.md" in page or "/reference/" in page}
    assert any(f"`{name}`" in text for text in pages.values()), (
        f"neither explanation/asax.md nor reference says `{name}`"
    )


@pytest.mark.parametrize("page", OPERATOR_PAGES)
def test_commands_that_pages_show_can_be_typed(page: str) -> None:
    blocks = re.findall(r"^```console\n(.*?)^```", OPERATOR_PAGES[page], re.M | re.S)
    lines = re.sub(r"\\\n", "", "\n".join(blocks)).splitlines()
    for line in lines:
        words = shlex.split(re.sub(r"^[$#] ", "", line)) if line.startswith(("$ ", "# ")) else []
        if not words or not words[0].endswith("asactl"):
            continue
        name, command = " ".join(("asactl", words[1])), COMMANDS[" ".join(("asactl", words[1]))]
        rest = words[2:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            name, rest = f"{name} {rest[0]}", rest[1:]
            command = COMMANDS[name]
        if "--" in rest:  # what follows is another's
            rest = rest[: rest.index("--")]
        given = {word.split("=")[0] for word in rest if word.startswith("--")}
        assert given <= options(command) | {"--help"}, line


@pytest.mark.parametrize(
    "line", [line for line in REPLAY.splitlines() if line.startswith("asactl: ")], ids=lambda line: line[8:40]
)
def test_messages_that_the_reference_shows_are_what_is_reported(
    line: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tried = {
        "unknown policy": ["--policy", "easy"],
        "--nodes and": ["--nodes", "4"],
        "--report": ["--report", "missing/january.html"],
    }
    words = next(words for start, words in tried.items() if line.startswith(f"asactl: {start}"))
    with pytest.raises(AsadError) as error:
        CliRunner().invoke(asactl, ["replay", str(log), "--store", "none", *words], catch_exceptions=False)
    assert f"asactl: {error.value}" == line
    assert error.value.exit_status == 2


def test_every_page_is_in_the_navigation_and_on_the_front() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    front = PAGES["docs/index.md"]
    for page in PAGES:
        name = page.removeprefix("docs/")
        assert f"- {name}" in navigation
        assert name == "index.md" or f"]({name})" in front


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *PAGES])
def test_links_lead_somewhere(page: str) -> None:
    here = ROOT / page
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", here.read_text(encoding="utf-8")):
        assert (here.parent / target).exists(), f"{page} links to {target}"


def test_every_verb_of_the_socket_is_documented() -> None:
    seen = PAGES["docs/reference/asactl-live.md"].split("## The socket")[1]
    assert {verb for verb in VERBS if f"`{verb}`" not in seen} == set()
