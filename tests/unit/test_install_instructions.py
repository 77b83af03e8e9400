"""Nothing installs, requires or says to install, by name, what somebody else may have published under that name.

`asad` on Python's package index is a stranger's, and `asad-hpc` is not published yet: so asad is installed from a
checkout, a file or a Debian package, wherever pages, messages, build files and units speak of it.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {"setup.cfg": "asad-hpc", "papers/setup.cfg": "asad-hpc-papers"}
OURS = frozenset(
    {
        *DISTRIBUTIONS.values(),
        "asad",
        "asad-papers",
        *("asad-mesos", "asad-slurm", "asad-profiles", "asad-sql", "asad-node", "asad-web", "asactl"),
    }
)
"""Names by which somebody might ask an index for what is in this checkout."""
FOLDERS = (
    *("asad", "plugins", "papers", "profiles", "sql", "systemd", "debian", "docs", "lab", "tests"),
    *("benchmarks", ".ci"),
)
SUFFIXES = frozenset(
    {
        "",
        ".py",
        ".md",
        ".cfg",
        ".toml",
        ".txt",
        ".html",
        ".js",
        ".sh",
        ".lua",
        ".example",
        ".service",
        ".timer",
    }
    | {
        ".mount",
        ".conf",
        ".install",
        ".links",
        ".postinst",
        ".postrm",
        ".prerm",
        ".docs",
        ".examples",
        ".yml",
    }
)

PYTHONS = re.compile(
    r"\b(?:pip[\d.]*|pipx|uv(?: +pip| +tool)?|conda|mamba)[)}]?\s+(?:-\S+\s+)*(?:install|add|inject|download)\b(.*)"
)
DEBIANS = re.compile(r"\bapt(?:-get)?\s+(?:-\S+\s+)*install\b(.*)")
NAME = re.compile(r"[A-Za-z][\w.-]*(?:\[[^\]]*\])?(?:[=<>!~].*)?")
WITH_EXTRA = re.compile(r"(?<![\w/])asad(?:[-_]\w+)*\[[a-z{]")
ASKED = re.compile(
    r"\b(?:version|distribution|requires|metadata)\(\s*[\"'](asad[\w-]*)[\"']\s*\)|"
    r"\bdist\.name\b.{0,12}[\"'](asad[\w-]*)[\"']"
)
ENDS = re.compile(r"`|\"|&&|\||(?<=\S)[,;.:](?:\s|$)|\s[#(]")
"""Where a command ends within prose, markup, code or a shell."""


def texts() -> Iterator[tuple[str, str]]:
    """Every file of ours that a reader, a tool or Python takes words from: its path from the root, and its text."""
    alone = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in SUFFIXES]
    within = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    for path in (*alone, *within):
        seen = path.relative_to(ROOT)
        if (
            path == Path(__file__).resolve()
            or not path.is_file()
            or {"golden", "__pycache__"} & {*seen.parts}
        ):
            continue
        try:
            yield str(seen), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def strangers(text: str) -> Iterator[tuple[int, str]]:
    """Number of the line, and what it would have a stranger's package be: installed, required or asked for."""
    for number, line in enumerate(joined(text), 1):
        for found in (*PYTHONS.finditer(line), *DEBIANS.finditer(line)):
            if "--no-index" in found[1]:
                continue
            words = ENDS.split(found[1], maxsplit=1)[0].split()
            for word in (word.strip("'\"()<>") for word in words):
                if NAME.fullmatch(word) and canonicalize_name(re.split(r"[\[=<>!~]", word)[0]) in OURS:
                    yield number, word
        yield from ((number, found[0]) for found in WITH_EXTRA.finditer(line))
        for found in ASKED.finditer(line):
            if (found[1] or found[2]) not in DISTRIBUTIONS.values():
                yield number, found[0]


def joined(text: str) -> Iterator[str]:
    """The lines, with what follows a backslash, or goes on in the next string of a piece of Python, added to each."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        while number + 1 < len(lines) and (line.endswith("\\") or re.search(r"(?:pip|install) ?\"$", line)):
            number += 1
            line = (
                line.removesuffix("\\").removesuffix('"')
                + " "
                + lines[number].strip().removeprefix("f").lstrip('"')
            )
        yield line


def test_nothing_installs_requires_or_asks_for_a_strangers_package() -> None:
    found = [f"{path}:{line}: {what}" for path, text in texts() for line, what in strangers(text)]
    assert found == []


def test_the_files_that_speak_of_installing_are_read() -> None:
    read = {path for path, _ in texts()}
    assert {
        *(
            "README.md",
            "CHANGELOG.md",
            "Makefile",
            "setup.cfg",
            "papers/setup.cfg",
            "debian/rules",
            ".ci/run",
        ),
        *("docs/how-to/enable.md", "asad/errors.py", "plugins/asad_mesos/driver.py", "systemd/asad.service"),
        *(
            "systemd/run-asad\\x2dprogress.mount",
            "debian/control",
            "debian/asad.postinst",
            "profiles/asad.toml",
        ),
    } <= read


@pytest.mark.parametrize("path", DISTRIBUTIONS)
def test_a_distribution_has_a_name_of_its_own_and_requires_none_of_ours(path: str) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / path, encoding="utf-8")
    assert config["metadata"]["name"] == DISTRIBUTIONS[path]
    listed = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    wanted = [line for text in listed for line in text.splitlines() if line and not line.startswith("#")]
    assert not {canonicalize_name(Requirement(line).name) for line in wanted} & OURS


@pytest.mark.parametrize("path", ["debian/requirements.txt", "tests/constraints.txt"])
def test_pinned_requirements_are_none_of_ours(path: str) -> None:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    names = {
        canonicalize_name(re.split(r"[=<>@ ]", line)[0]) for line in lines if line and line[0] not in "#-"
    }
    assert names and not names & OURS


@pytest.mark.parametrize(
    "text",
    [
        "# /opt/asad/bin/pip install asad",
        "# /opt/asad/bin/pip install --upgrade asad",
        "$ pip install 'asad[web]'",
        "`pip install asad-hpc`",
        "pip install asad==0.1.0 numpy",
        "python3 -m pip install \\\n  --user asad_papers",
        "pipx install asad",
        "uv pip install asad",
        "uv tool install asad-hpc",
        "uv add asad-papers",
        "PostgreSQL, with the extra `asad[postgres]`",
        "parquet wants asad[parquet] [default: csv]",
        "f\"{shown(parsed)}: {error}; pip install 'asad[postgres]'\"",
        "INSTALL = \"pip install 'asad[mesos]' && pip install --no-deps pymesos==0.3.15\"",
        'f"{error.name} is missing; install: pip install "\n    "\'asad-papers[rl]\' (serving needs no more)"',
        '"install the package asad-papers: pip install asad-papers, or from a clone"',
        'version("asad")',
        'if point.dist and point.dist.name == "asad"',
        "# apt install asad",
    ],
)
def test_a_strangers_package_is_found(text: str) -> None:
    assert list(strangers(text))


@pytest.mark.parametrize(
    "text",
    [
        "# /opt/asad/bin/pip install dist/asad_hpc-*.whl",
        "$ pip install '/path/to/asad[web]'",
        "$ pip install . './papers[rl]'",
        "`pip install ./site-policies`, where asad is installed",
        "pip install --no-deps pymesos==0.3.15 && pip install '/path/to/asad[mesos]', from a checkout of asad",
        "$(PIP) install --no-deps --no-index --find-links $(WHEELS) asad-hpc",
        "# /opt/asad/bin/pip uninstall asad",
        "# apt install ./build/deb/asad_*.deb",
        "# apt remove asad",
        "pip installs asad from a checkout",
        'version("asad-hpc")',
    ],
)
def test_what_installs_from_a_checkout_or_a_file_is_no_stranger(text: str) -> None:
    assert list(strangers(text)) == []
