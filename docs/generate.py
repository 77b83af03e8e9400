"""Tables of the documentation that are written by the code: settings, metrics, commands, properties, policies.

A page holds a place for such a table between two comments:

    <!-- generated: settings asad.config:DaemonSettings -->
    <!-- end -->

and `python -m docs.generate` (a part of `make docs`) fills all of them. What a setting means is the docstring below its
field, what an option means is its help, so that nobody writes either twice. `--check` changes nothing, and ends with 1
if a page is not what the code would write.

The first word says what stands there, the others of what:

- `settings MODULE:CLASS [WITHOUT MODULE:CLASS]`: the fields of a class, with their defaults;
- `policies STAGE`: what there is to choose, and what can be set of each besides;
- `runs STAGE`: the same as replays call it;
- `properties`: what the guard holds everybody to;
- `metrics`: what Prometheus scrapes;
- `options PROGRAM [COMMAND …]`: the options of one command;
- `overview COMMAND, COMMAND, …`: some commands, with the first paragraph of their help;
- `schemas`: what `--json` prints;
- `listings`: what `--format` and `--Format` can show of rows, command by command;
- `statuses`: what programs end with;
- `commands PROGRAM`: all its commands, with the options of those that have no table elsewhere.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from asad import catalog, guard, metrics
from asad.cli.listings import LISTINGS
from asad.errors import ExitStatus
from asad.tables import columns_of

DOCS = Path(__file__).resolve().parent
BLOCK = re.compile(r"^<!-- generated: (.+?) -->\n(.*?)^<!-- end -->$", re.M | re.S)
FAILURE = "docs are not what the code says: run `make docs` (or `python -m docs.generate`), and commit what it wrote"
PROGRAMS = {
    "asactl": "asad.cli.asactl:asactl",
    "asad": "asad.cli.daemon:asad",
    "asad-node": "asad.cli.node:asad_node",
    "asad-undo": "asad_slurm.undo:arguments",
    "asad-web": "asad.web.asad_web:asad_web",
}
"""Command → the click command, or the function that makes its parser."""
ALL = (*PROGRAMS, "asad-mesos-executor")
USED_BY: Mapping[ExitStatus, tuple[str, ...]] = {
    ExitStatus.DONE: ALL,
    ExitStatus.FAILED: tuple(PROGRAMS),
    ExitStatus.USAGE: ALL,
    ExitStatus.NO_DAEMON: ("asactl",),
    ExitStatus.NOT_ALLOWED: ("asactl",),
    ExitStatus.SUPERSEDED: ("asad",),
    ExitStatus.INTERRUPTED: ("asactl", "asad", "asad-node", "asad-web"),
}
"""Exit status → programs that end with it."""
LINKS = {
    "state store": "store.md",
    "`asactl calibrate`": "../how-to/calibrate.md",
    "`asactl teardown`": "asactl-live.md",
    "expert trees": "experts.md",
    "line in the units": "../how-to/enable.md#another-state-folder",
    "removed from the store": "store.md#how-long-it-keeps",
    "head nodes": "../how-to/two-head-nodes.md",
    "on every core": "node-actor.md#running-wide",
    "claim together": "../how-to/admission.md#budgets",
}
"""Words of a meaning → where more stands about them, from docs/reference."""


def loaded(place: str) -> Any:
    """What `module:name` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def meanings(kind: type) -> dict[str, str]:
    """The docstrings that stand below the fields of a class, by name, inherited ones too."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__ in ("builtins", "typing"):
            continue
        body = ast.parse(inspect.cleandoc("\n" + inspect.getsource(base))).body[0]
        statements = list(getattr(body, "body", ()))
        for field, after in zip(statements, [*statements[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[field.target.id] = ""
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    found[field.target.id] = " ".join(str(after.value.value).split())
    return found


def defaults(kind: Any) -> dict[str, Any]:
    """The fields of a class of settings, a NamedTuple or a dataclass, with their defaults."""
    made = kind()
    if hasattr(made, "_asdict"):
        return dict(made._asdict())
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}


def shown(value: Any) -> str:
    """A default, as one writes it in asad.toml."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = dataclasses.asdict(value)
        return shown(given) if any(given.values()) else "none"
    if isinstance(value, Mapping):
        return f"`{{{', '.join(f'{key} = {json.dumps(item)}' for key, item in value.items())}}}`"
    if isinstance(value, tuple | list | frozenset):
        return f"`{json.dumps(sorted(value) if isinstance(value, frozenset) else list(value))}`"
    if isinstance(value, str | Path):
        return f"`{json.dumps(str(value))}`"
    if isinstance(value, bool):
        return f"`{json.dumps(value)}`"
    return f"`{value:.12g}`"


def bounds(kind: Any) -> dict[str, str]:
    """What the numbers of a table may be, where its fields say so."""
    found = {}
    for name, column in columns_of(kind).items():
        least, most, above, below = column.limits[:4]
        words = [f"from {least:g}"] if least and most is None else []
        words += [f"above {above:g}"] if above is not None else []
        words += [f"{least:.12g} to {most:.12g}"] if least is not None and most is not None else []
        words += [f"at most {most:.12g}"] if least is None and most is not None else []
        words += [f"below {below:g}"] if below is not None else []
        if words:
            found[name] = ", ".join(words) + (f" {column.limits.unit}" if column.limits.unit else "")
    return found


def linked(text: str) -> str:
    """A meaning with links where more stands about it."""
    for words, target in LINKS.items():
        text = re.sub(rf"(?<!\[){re.escape(words)}", f"[{words}]({target})", text, count=1)
    return text


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    heads = tuple(heads)
    lines = ["".join(f" {re.sub(UNESCAPED_BAR, BAR, cell)} |" for cell in line) for line in (heads, *rows)]
    lines.insert(1, "---|" * len(heads))
    return "\n".join(f"|{line}" for line in lines).replace("|  |", "| |").replace("|  |", "| |")


UNESCAPED_BAR, BAR = r"(?<!\\)\|", r"\\|"


# ------------------------------------------------------------------------------------------------------ settings


def settings(place: str, without: str = "", other: str = "") -> str:
    """The fields of a class but those of another, which has a table of its own."""
    kind = loaded(place)
    texts, limits = meanings(kind), bounds(kind)
    left_out = set(defaults(loaded(other))) if without else set()
    return table(
        ("key", "default", "meaning"),
        (
            (
                f"`{key}`",
                _default(kind, key, value),
                linked(meaning(kind, key, texts[key], limits.get(key, ""))),
            )
            for key, value in defaults(kind).items()
            if key not in left_out and key not in HIDDEN
        ),
    )


HIDDEN = {"poll_s"}
"""The interval of the cycle is `[daemon] interval_s`: nobody sets it of a policy."""


def _default(kind: Any, key: str, value: Any) -> str:
    """A policy's headroom is the guard's, unless it is given."""
    return "`[guard] host_floor`" if key == "headroom" else shown(value)


def meaning(kind: Any, key: str, text: str, limits: str) -> str:
    """What a setting means, with what it may be."""
    if not text:
        raise SystemExit(
            f"{kind.__module__}.{kind.__name__}: the field {key} has no docstring: say below it what it is"
        )
    text = f"{text.removesuffix('.')}; {limits}." if limits else text
    if kind.__name__ == "PolicySettings" and key in catalog.STAGES:
        text += f" One of {', '.join(f'`{name}`' for name in catalog.policy_names(key))}."
    return text


def policies(stage: str) -> str:
    """The policies of a stage, what each does, and what can be set of it besides what its whole family has."""
    return table(
        ("policy", "what it does", "options of its own"),
        (
            (f"`{name}`", catalog.help_of(kind), ", ".join(_own(stage, kind)))
            for name in catalog.policy_names(stage)
            for kind in [catalog.policy_class(stage, name)]
        ),
    )


FAMILIES = {
    "admit": ("asad.admit.admission_options:Options", "asad.admit.sow.statement_options:Options"),
    "defer": ("asad.defer.deferral_options:Options",),
    "place": ("asad.place.ports:Options", "asad.place.ports:OgaOptions", "asad.place.first_fit:Options"),
    "share": ("asad.share.pool:Options",),
}
"""Stage → options that have a table of their own."""


def _own(stage: str, kind: Any) -> Iterator[str]:
    there = set(kind.defaults())
    common = {
        key
        for place in FAMILIES[stage]
        for key in [*loaded(place)._fields]
        if set(loaded(place)._fields) <= there
    }
    for key, value in kind.defaults().items():
        if key not in common | HIDDEN:
            yield f"`{key}` {_default(kind, key, value)}"


def runs(stage: str) -> str:
    """What `asactl replay` can run of a stage, yardsticks too, as replays call it."""
    return table(
        ("`--policy`", "what it is"),
        (
            (f"`{run}`", catalog.help_of(catalog.policy_class(stage, name, yardsticks=True)))
            for run, (of, name) in catalog.run_names().items()
            if of == stage
        ),
    )


# ---------------------------------------------------------------------------------------------- guard and metrics


def properties() -> str:
    """Properties of the guard: whom they bind, what holds, and which settings they read."""
    return table(
        ("property", "binds", "what holds", "setting"),
        (
            (
                name,
                "all" if name in guard.ALWAYS else "who names it",
                " ".join((inspect.getdoc(function.why_not) or "").split()),
                ", ".join(f"`{key}`" for key in _read(function.why_not)),
            )
            for name, function in guard.PROPERTIES.items()
        ),
    )


def _read(function: Any, depth: int = 2) -> list[str]:
    """The settings of the guard that a property reads, by itself or through what it asks of its look."""
    source = inspect.getsource(function)
    found = re.findall(r"\bsettings\.(\w+)", source)
    if "memory_loss" in source:
        found.append("calibration")
    if depth:
        for name in re.findall(r"\blook\.(\w+)\(", source):
            found += _read(getattr(guard.Look, name), depth - 1)
    return list(dict.fromkeys(found))


def metric_table() -> str:
    """What Prometheus scrapes."""
    return table(
        ("metric", "kind", "labels", "meaning"),
        (
            (f"`{name}`", item.kind, ", ".join(f"`{label}`" for label in item.labels), item.about)
            for name, item in metrics.METRICS.items()
        ),
    )


# ------------------------------------------------------------------------------------------------------ commands


def command(words: tuple[str, ...]) -> tuple[click.Context, click.Command]:
    """A command of click by its full name."""
    found = loaded(PROGRAMS[words[0]])
    context = click.Context(found, info_name=words[0], **found.context_settings)
    for name in words[1:]:
        found = found.get_command(context, name)
        context = click.Context(found, info_name=name, parent=context)
    return context, found


def walk(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """A command and all below it, by full name."""
    yield words
    context, found = command(words)
    if isinstance(found, click.Group):
        for name in found.list_commands(context):
            yield from walk((*words, name))


def options(*words: str) -> str:
    """The options of one command, with their help and defaults."""
    heads = ("option", "meaning", "default")
    if words[0] == "asad-undo":
        return table(heads, options_of_parser(loaded(PROGRAMS[words[0]])()))
    context, found = command(words)
    rows = []
    for parameter in found.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record:
            rows.append((_option(parameter, record[0]), *_help(record[1])))
    return table(heads, rows) if rows else "It has no options."


def _option(parameter: click.Option, record: str) -> str:
    """`--name METAVAR`; of a choice the names."""
    metavar = re.sub(r"^(-\S+, )*-\S+ ?", "", record) if not parameter.is_flag else ""
    metavar = {"INTEGER": "N", "INTEGER RANGE": "N", "FLOAT RANGE": "X", "DIRECTORY": "DIR"}.get(
        metavar, metavar
    )
    first, *others = (*parameter.opts, *parameter.secondary_opts)
    return ", ".join([f"`{first} {metavar}`" if metavar else f"`{first}`", *(f"`{name}`" for name in others)])


def _help(text: str) -> tuple[str, str]:
    """Meaning with what it may be, and default: click writes both in brackets at the end."""
    defaults: list[str] = []

    def taken(match: re.Match[str]) -> str:
        parts = [part.strip() for part in match[1].split("; ")]
        defaults.extend(part.removeprefix("default: ") for part in parts if part.startswith("default: "))
        rest = [part for part in parts if not part.startswith("default: ")]
        if defaults and rest and not re.search(r"[<>]|required", rest[0]):
            defaults[-1] += "; " + "; ".join(rest)
            rest = []
        return f" ({'; '.join(rest)})" if rest else ""

    meaning = re.sub(r"\s*\[((?:default: |required|[^\[\]]*[<>]=?)[^\]]*)\]", taken, text)
    return _escaped(meaning.strip()), _escaped(defaults[0]) if defaults else ""


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*.", "\\*.")


def options_of_parser(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    """Options of argparse with meaning and default."""
    for action in parser._actions:
        if action.option_strings[0] != "-h":
            metavar = action.metavar or action.dest.upper()
            text = re.sub(r" \(default (?:%\(default\)s|.*?)\)", "", str(action.help))
            default = "" if action.default is None else f"{action.default}"
            yield f"`{action.option_strings[0]} {metavar}`", text[0].upper() + text[1:] + ".", default


def schema_table() -> str:
    """The schemas of what commands print as JSON."""
    from docs import schemas  # which reads docstrings as this module does

    return schemas.table()


def listings() -> str:
    """The fields of every listing."""
    parts = []
    for name, fields in LISTINGS.items():
        rows = ((f"`%{one.letter}`" if one.letter else "", f"`{one.name}`", one.about) for one in fields)
        parts += [f"## `asactl {name}`", table(("`-o`", "`-O`", "what it shows"), rows)]
    return "\n\n".join(parts)


def statuses() -> str:
    """Exit statuses."""
    rows = (
        (str(int(status)), status.about, "all" if users == ALL else ", ".join(f"`{name}`" for name in users))
        for status, users in USED_BY.items()
    )
    return table(("status", "meaning", "programs"), rows)


def overview(*words: str) -> str:
    """Some commands, with the first paragraph of their help; commas stand between them."""
    rows = []
    for name in " ".join(words).split(", "):
        context, found = command(tuple(name.split()))
        given = " ".join(found.collect_usage_pieces(context)[1:])
        rows.append((f"`{name}{' ' + given if given else ''}`", linked(about(found)[0])))
    return table(("command", "what it does"), rows)


def about(found: click.Command) -> list[str]:
    """The paragraphs of a command's help, without its examples."""
    text = inspect.cleandoc(found.help or "").partition("\b")[0]
    return [_escaped(" ".join(part.split())) for part in text.split("\n\n") if part.strip()]


def commands(program: str) -> str:
    """All commands of a program; those whose options stand on no other page have them here."""
    elsewhere = {
        words: path.relative_to(DOCS).as_posix()
        for path in sorted(DOCS.rglob("*.md"))
        for words in re.findall(
            r"^<!-- generated: options (.+?) -->$", path.read_text(encoding="utf-8"), re.M
        )
    }
    rows, sections = [], []
    for words in walk((program,)):
        name, (context, found) = " ".join(words), command(words)
        place = elsewhere.get(name)
        if words == (program,):
            continue
        here = not place and not isinstance(found, click.Group)
        # a group has no section of its own to go to: its commands have
        at = (
            f"[{name}](#{name.replace(' ', '-')})"
            if here
            else f"[{name}](../{place})"
            if place
            else f"`{name}`"
        )
        rows.append((at, found.get_short_help_str(200)))
        if here:
            usage = " ".join(found.get_usage(context).removeprefix("Usage: ").split())
            parts = f"### `{name}`", f"    {usage}", *about(found), options(*words)
            sections.append("\n\n".join(parts))
    return table(("command", "what it does"), rows) + "\n\n" + "\n\n".join(sections)


# --------------------------------------------------------------------------------------------------------- pages

MAKERS: dict[str, Callable[..., str]] = {
    "settings": settings,
    "policies": policies,
    "runs": runs,
    "properties": properties,
    "metrics": metric_table,
    "options": options,
    "overview": overview,
    "commands": commands,
    "statuses": statuses,
    "schemas": schema_table,
    "listings": listings,
}


def filled(text: str) -> str:
    """A page with all its tables as the code has them."""

    def made(match: re.Match[str]) -> str:
        kind, *words = match[1].split()
        return f"<!-- generated: {match[1]} -->\n\n{MAKERS[kind](*words)}\n\n<!-- end -->"

    return BLOCK.sub(made, text)


def pages() -> dict[Path, tuple[str, str]]:
    """Pages with such tables → what they hold, and what they should."""
    found = {}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if BLOCK.search(text):
            found[path] = text, filled(text)
    return found


def main(words: list[str]) -> int:
    """Fill the tables, or with `--check` name the pages that differ."""
    from docs import schemas

    stale = {path: wanted for path, (there, wanted) in pages().items() if there != wanted}
    stale |= {path: text for path, text in schemas.files() if not path.exists() or path.read_text() != text}
    for path, wanted in stale.items():
        print(path.relative_to(DOCS.parent))
        if "--check" not in words:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
    if stale and "--check" in words:
        print(FAILURE, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
