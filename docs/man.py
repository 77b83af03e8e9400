"""Man pages, written by the code: `python -m docs.man DIR` makes `DIR/asactl.1`, `DIR/asad.toml.5` and the others.

One page for each command of `asactl` (with what stands below it), for every other program, and for the
configuration. What they say is the help of the commands and the docstrings of the settings, as on the pages of the
documentation. The date is SOURCE_DATE_EPOCH's, so that two builds of one version are the same bytes.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from asad_mesos import executor

from asad import __version__, catalog
from asad.config import DEFAULT_PATH, TABLES
from asad.errors import ExitStatus
from docs import generate

DAEMONS = tuple(name for name in generate.PROGRAMS if name != "asactl")
"""Programs of section 8, which root or the daemon's user starts."""
OPTIONS_OF = {
    "share.POLICY": ("asad.share.pool:Options",),
    "admit.POLICY": ("asad.admit.admission_options:Options", "asad.admit.sow.statement_options:Options"),
    "defer.POLICY": ("asad.defer.deferral_options:Options",),
    "place.POLICY": ("asad.place.ports:Options", "asad.place.ports:OgaOptions"),
    "slurm": ("asad_slurm.settings:Settings",),
    "mesos": ("asad_mesos.settings:Settings",),
    "mesos.queue": ("asad_mesos.queue_settings:QueueSettings",),
}
"""Tables that stages and cluster plugins read → classes of their settings."""
FILES = {
    str(DEFAULT_PATH): "Configuration, asad.toml(5).",
    "/run/asad/asad.sock": "Control socket of the daemon.",
    "/var/lib/asad": "State: journal, lock and store.",
}
ENVIRONMENT = {
    "ASAD_CONFIG": f"The configuration, instead of {DEFAULT_PATH}.",
    "ASAD_SOCKET": "The control socket, instead of the one that the configuration names.",
}
EXECUTOR = "asad-mesos-executor"
ENVIRONMENT_OF_EXECUTOR = {
    "ASAD_NODE_SOCKET": f"The socket at which the node actor registers tasks, instead of {executor.REGISTER}.",
    "MESOS_AGENT_ENDPOINT, MESOS_FRAMEWORK_ID, MESOS_EXECUTOR_ID": "Set by the agent, as the rest of the executor "
    "API's variables are; without them nothing is run.",
}
ROFF = {
    "\\": "\\e",
    "…": "...",
    "→": "->",
    "–": "-",
    "×": "x",
    "\N{NARROW NO-BREAK SPACE}": " ",
    "\u2009": " ",
}
WIDTH = 76
"""Columns of a line of text in the source: mandoc finds longer ones bad style."""


# ----------------------------------------------------------------------------------------------------------- roff


def escaped(text: str) -> str:
    """Text as roff has it, ASCII alone; what stands between backquotes stands out, and hyphens can be copied."""
    text = "".join(ROFF.get(char, char) for char in text)
    text = re.sub(r"\[([^\[\]]+)\]\([^()\s]+\)", r"\1", text)  # of a link its words
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text)
    text = text.replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    return "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in text)


def filled(text: str) -> str:
    """A paragraph in lines of the source that no macro is taken for."""
    lines = textwrap.wrap(
        escaped(text), WIDTH, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(f"\\&{line}" if line[0] in ".'" else line for line in lines)


def literal(text: str) -> str:
    """Lines as they are: of an example."""
    lines = [escaped(line) for line in text.splitlines()]
    return "\n".join([".nf", *(f"\\&{line}" if line[:1] in (".", "'") else line for line in lines), ".fi"])


def tagged(tag: str, text: str) -> str:
    """An entry of a list."""
    return f".TP\n\\fB{escaped(tag)}\\fR\n{filled(text) or 'See the documentation.'}"


def heading(level: str, words: str) -> str:
    return f".{level} {escaped(words)}" if " " not in words else f'.{level} "{escaped(words)}"'


def titled(name: str, section: int) -> str:
    """The head of a page."""
    stamp = os.environ.get("SOURCE_DATE_EPOCH")
    date = f"{datetime.fromtimestamp(int(stamp), UTC):%Y-%m-%d}" if stamp else ""
    return f'.TH {escaped(name.upper())} {section} "{date}" "asad {__version__}" "asad"'


def page(name: str, section: int, line: str, parts: Iterable[str]) -> str:
    """A whole page; `line` says what the thing is."""
    what = escaped(line[:1].lower() + line[1:].rstrip("."))
    return "\n".join(
        [titled(name, section), heading("SH", "NAME"), f"{escaped(name)} \\- {what}", *parts, ""]
    )


# ------------------------------------------------------------------------------------------------------- commands


def of_command(words: tuple[str, ...]) -> Iterator[str]:
    """Synopsis, description, options and examples of a command of click."""
    context, found = generate.command(words)
    yield heading("SH", "SYNOPSIS")
    yield f".B {escaped(' '.join(words))}"
    yield filled(" ".join(found.collect_usage_pieces(context)))
    yield heading("SH", "DESCRIPTION")
    yield from described(found)
    rows = list(options_of(context, found))
    if rows:
        yield heading("SH", "OPTIONS")
        yield from (tagged(*row) for row in rows)


def described(found: click.Command) -> Iterator[str]:
    """The paragraphs of a command's help; those after a line with \\b keep their lines."""
    text = (
        f"{inspect.cleandoc(found.help or found.short_help or '')}\n\n{inspect.cleandoc(found.epilog or '')}"
    )
    for number, part in enumerate(part for part in text.split("\n\n") if part.strip()):
        if number:
            yield ".PP"
        as_it_is = part.lstrip().startswith("\b")
        yield literal(part.replace("\b", "").strip("\n")) if as_it_is else filled(" ".join(part.split()))


def options_of(context: click.Context, found: click.Command) -> Iterator[tuple[str, str]]:
    """Options with their help, defaults and ranges; hidden ones are not there."""
    for parameter in found.get_params(context):
        record = parameter.get_help_record(context)
        if record and isinstance(parameter, click.Option):
            yield record


def below(words: tuple[str, ...]) -> Iterator[str]:
    """What stands below a command, each with its usage, help and options."""
    for name in generate.walk(words):
        if name == words:
            continue
        context, found = generate.command(name)
        if isinstance(found, click.Group):
            continue
        yield heading("SH", " ".join(name))
        yield f".B {escaped(' '.join(name))}"
        yield filled(" ".join(found.collect_usage_pieces(context)))
        yield ".PP"
        yield from described(found)
        yield from (tagged(*row) for row in options_of(context, found))


def ends(
    program: str,
    also: Iterable[str],
    environment: Mapping[str, str] = ENVIRONMENT,
    files: Mapping[str, str] = FILES,
) -> Iterator[str]:
    """What closes the page of every program."""
    statuses = [status for status in ExitStatus if program in generate.USED_BY[status]]
    yield heading("SH", "EXIT STATUS")
    yield from (tagged(str(int(status)), status.about.replace("`asad` alone: ", "")) for status in statuses)
    yield heading("SH", "ENVIRONMENT")
    yield from (tagged(name, text) for name, text in environment.items())
    yield heading("SH", "FILES")
    yield from (tagged(name, text) for name, text in files.items())
    yield from see_also(also)


def see_also(names: Iterable[str]) -> Iterator[str]:
    yield heading("SH", "SEE ALSO")
    listed = [re.sub(r"^(.+)(\(\d\))$", r".BR \1 \2", name).replace("-", "\\-") for name in names]
    yield " ,\n".join(listed)


def programs() -> Iterator[tuple[str, str]]:
    """File name and text of the page of each program, and of each command of asactl."""
    context, group = generate.command(("asactl",))
    assert isinstance(group, click.Group)
    names = group.list_commands(context)
    commands = {name: generate.command(("asactl", name))[1].get_short_help_str(200) for name in names}
    parts = [*of_command(("asactl",)), heading("SH", "COMMANDS")]
    parts += [tagged(f"asactl {name}", f"{line} See asactl-{name}(1).") for name, line in commands.items()]
    also = [f"asactl-{name}(1)" for name in names]
    yield (
        "asactl.1",
        page("asactl", 1, str(group.help), [*parts, *ends("asactl", [*also, "asad.toml(5)", "asad(8)"])]),
    )
    for name, line in commands.items():
        parts = [
            *of_command(("asactl", name)),
            *below(("asactl", name)),
            *ends("asactl", ["asactl(1)", "asad.toml(5)"]),
        ]
        yield f"asactl-{name}.1", page(f"asactl-{name}", 1, line, parts)
    for name in DAEMONS:
        others = [f"{other}(8)" for other in DAEMONS if other != name]
        line, parts = of_undo() if name == "asad-undo" else of_daemon(name)
        yield f"{name}.8", page(name, 8, line, [*parts, *ends(name, [*others, "asactl(1)", "asad.toml(5)"])])

    also = ["asad(8)", "asad-node(8)", "asactl-tasks(1)"]
    files = {executor.REGISTER: "Socket at which the node actor registers tasks."}
    line, parts = of_executor()
    yield (
        f"{EXECUTOR}.8",
        page(EXECUTOR, 8, line, [*parts, *ends(EXECUTOR, also, ENVIRONMENT_OF_EXECUTOR, files)]),
    )


def of_executor() -> tuple[str, list[str]]:
    """What the executor is in a line, and the parts of its page; Mesos starts it, so it has no options."""
    about = inspect.getdoc(executor) or ""
    parts = [heading("SH", "SYNOPSIS"), f".B {escaped(EXECUTOR)}", heading("SH", "DESCRIPTION")]
    parts += "\n.PP\n".join(filled(" ".join(part.split())) for part in about.split("\n\n")).split("\n")
    return about.partition(",")[0], parts


def of_daemon(name: str) -> tuple[str, list[str]]:
    """What a daemon is in a line, and the parts of its page."""
    _, found = generate.command((name,))
    return inspect.cleandoc(found.help or "").partition("\n\n")[0], list(of_command((name,)))


def of_undo() -> tuple[str, list[str]]:
    """The same of asad-undo, whose options are argparse's."""
    parser: argparse.ArgumentParser = generate.loaded(generate.PROGRAMS["asad-undo"])()
    about = " ".join((parser.description or "").split())
    parts = [heading("SH", "SYNOPSIS"), ".B asad\\-undo", "[OPTIONS]", heading("SH", "DESCRIPTION")]
    parts += [filled(about), heading("SH", "OPTIONS")]
    for option, meaning, default in generate.options_of_parser(parser):
        parts.append(tagged(option.strip("`"), f"{meaning} [default: {default}]" if default else meaning))
    return about.partition(", ")[0], parts


# -------------------------------------------------------------------------------------------------- configuration


def configuration() -> str:
    """asad.toml(5)."""
    parts = [heading("SH", "DESCRIPTION")]
    parts.append(
        filled(
            f"One file for the daemon and the node actor, {DEFAULT_PATH} unless --config names another, in TOML. "
            "All keys have defaults, so an empty file is a valid one. An unknown table or key and a value that is out "
            "of range are errors: `asactl config check` looks for them. Seconds are _s."
        )
    )
    tables = {name: (kind,) for name, kind in TABLES.items()}
    tables |= {name: tuple(map(generate.loaded, places)) for name, places in OPTIONS_OF.items()}
    for name, kinds in tables.items():
        parts.append(heading("SH", f"[{name}]"))
        stage = name.partition(".")[0]
        if name.endswith(".POLICY"):
            names = ", ".join(f"`{policy}`" for policy in catalog.policy_names(stage))
            parts.append(filled(f"Options of one policy of the {stage} stage: {names}."))
        parts += settings_of(kinds)
    parts += see_also(["asactl-config(1)", "asad(8)", "asad-node(8)"])
    return page("asad.toml", 5, "configuration of asad and of its node actors", parts)


def settings_of(kinds: Iterable[Any]) -> Iterator[str]:
    """The settings of classes with defaults and meanings; what several of them have, once."""
    seen = set(generate.HIDDEN)
    for kind in kinds:
        texts, limits = generate.meanings(kind), generate.bounds(kind)
        for key, value in generate.defaults(kind).items():
            if key not in seen:
                seen.add(key)
                meaning = generate.meaning(kind, key, texts[key], limits.get(key, ""))
                yield tagged(f"{key} = {generate.shown(value).strip('`')}", meaning)


# ----------------------------------------------------------------------------------------------------------- main


def written(folder: Path) -> list[Path]:
    """Write all pages into `folder`, which is made where it is missing; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, text in [*programs(), ("asad.toml.5", configuration())]:
        made.append(folder / name)
        made[-1].write_text(text, encoding="ascii")
    return made


def main(words: list[str]) -> int:
    if len(words) != 1 or words[0].startswith("-"):
        print("usage: python -m docs.man DIR", file=sys.stderr)
        return 2
    for path in written(Path(words[0])):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
