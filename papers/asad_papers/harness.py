"""What the commands of `asactl bench` that have parts and a page share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asad.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

JSON = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
PAGE = click.option(
    "--page", type=click.Path(path_type=Path), metavar="FILE", help="Write them with plots to FILE (HTML)."
)


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

    def __enter__(self) -> Callable[[str], None]:
        if not self.show:
            return lambda _: None
        from rich.console import Console

        self.status = Console(stderr=True).status("…")
        self.status.start()
        return self._say

    def _say(self, text: str) -> None:
        from rich.markup import escape

        from asad.report.units import plain

        self.status.update(escape(plain(text)))

    def __exit__(self, *_: object) -> None:
        if self.show:
            self.status.stop()


def present(
    document: Mapping[str, Any],
    as_json: bool,
    page: Path | None,
    html: Callable[[], str],
    show: Callable[[Mapping[str, Any]], None],
) -> None:
    """Write the page if there is to be one, then the figures to standard output. Raises UsageError."""
    if page is not None:
        from asad.report.html import write_whole

        try:
            write_whole(html(), page)
        except OSError as error:
            raise UsageError(f"--page {page}: cannot be written ({error.strerror})") from error
    if as_json:
        click.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    show(document)
    if page is not None:
        click.echo(f"The page: {page}", err=True)


def titled(console: Console, title: str, *heads: str, words: int = 1) -> Table:
    """Print a title, and make the table below it; its first `words` columns are words, the others numbers."""
    from rich.table import Table

    # a title of its own would be as wide as the table
    console.print(f"\n[bold]{title}[/]", soft_wrap=True)
    made = Table(box=None, padding=(0, 1, 0, 0))
    for number, head in enumerate(heads):
        made.add_column(head, justify="left" if number < words else "right", no_wrap=True)
    return made
