"""The one harness of all evaluations: parts are run, and what they found becomes JSON, tables in a terminal, or a page.

A paper says what its parts are (name → what runs it and gives a piece of the document), and how a document reads: its
verdict in sentences, and sections of tables, notes and plots. Everything else is here.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from asad.cli.output import require_folder, schema_name
from asad.errors import UsageError
from asad.report.reading import Piece, Plot, Reading, Section, Table, print_pieces

__all__ = [
    "JSON",
    "PAGE",
    "Document",
    "Doing",
    "Parts",
    "Piece",
    "Plot",
    "Reading",
    "Section",
    "Step",
    "Table",
    "chosen",
    "evaluate",
    "print_pieces",
    "quiet",
    "typed",
]

JSON = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
PAGE = click.option(
    "--page", type=click.Path(path_type=Path), metavar="FILE", help="Write them with plots to FILE (HTML)."
)

Document = Mapping[str, Any]
"""What `asactl bench … --json` prints."""
Step = Callable[[str], None]
"""Called with what is done next."""
Parts = Mapping[str, Callable[[], Mapping[str, Any]]]
"""Name of a part → what runs it, and gives its piece of the document."""


def quiet(_: str) -> None:
    """The `Step` of who shows nothing."""


# --------------------------------------------------------------------------------------------------- commands


def chosen(text: str, option: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names in a list with commas, each once. Raises UsageError for one that is not `known`, and for none."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}: there are {', '.join(known)}")
    if not names:
        raise UsageError(f"{option}: name some of {', '.join(known)}")
    return names


class Doing:
    """What was done last, on standard error; nothing where nobody looks."""

    def __init__(self, show: bool) -> None:
        self.show = show

    def __enter__(self) -> Step:
        if not self.show:
            return quiet
        from asad.report.terminal import terminal_console

        self.status = terminal_console(stderr=True, highlight=True).status("…")
        self.status.start()
        return self._update

    def _update(self, text: str) -> None:
        from rich.markup import escape

        from asad.report.units import plain

        self.status.update(escape(plain(text)))

    def __exit__(self, *_: object) -> None:
        if self.show:
            self.status.stop()


def evaluate(
    parts: Callable[[Step], Parts],
    wanted: Sequence[str],
    warm_up: Callable[[], object],
    reading: Callable[[Document], Reading],
    as_json: bool,
    page: Path | None,
    always: Mapping[str, Any] | None = None,
) -> None:
    """Run the parts that are wanted, each in its turn, and give what they found as was asked for.

    `warm_up` compiles first, so that nothing is timed with it; `always` stands in the document whatever was wanted.
    Raises UsageError where the page cannot be written.
    """
    require_folder(page)
    document: dict[str, Any] = {}
    with Doing(sys.stderr.isatty()) as step:
        step("compiling")
        warm_up()
        for name, run in parts(step).items():
            if name in wanted:
                step(name)
                for key, value in run().items():
                    document[key] = document[key] + value if key in document else value
    document |= always or {}
    if page is not None:
        from asad.report.html import write_whole

        try:
            write_whole(reading(document).page(typed()), page)
        except OSError as error:
            raise UsageError(f"--page {page}: cannot be written ({error.strerror})") from error
    if as_json:
        click.echo(json.dumps({"schema": schema_name("bench"), **document}, indent=1, allow_nan=False))
        return
    reading(document).print()
    if page is not None:
        click.echo(f"The page: {page}", err=True)


def typed() -> str:
    """The command as it was typed, without what says where its answer goes."""
    context = click.get_current_context()
    return shlex.join((*context.command_path.split(), *_typed(context)))


def _typed(context: click.Context) -> Iterator[str]:
    for parameter in context.command.params:
        name = parameter.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and name not in ("as_json", "page"):
            value = context.params[name]
            yield parameter.opts[0]
            if not isinstance(value, bool):
                yield f"{value:g}" if isinstance(value, float) else str(value)
