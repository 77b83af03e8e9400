"""`asactl bench all`: the evaluations of all papers, one after another, each with all of its parts."""

from __future__ import annotations

import contextlib
import io
import json
import time
from pathlib import Path
from typing import Any

import click

from asad.cli.output import schema_name
from asad.cli.screen import duration
from asad.errors import UsageError
from asad_papers.asax.asax_command import asax_paper
from asad_papers.harness import JSON
from asad_papers.oasis.oasis_command import oasis
from asad_papers.oga.oga_command import oga
from asad_papers.osdec.osdec_command import osdec
from asad_papers.sow.sow_command import sow
from asad_papers.together.together_command import together

EVALUATIONS: tuple[tuple[click.Command, tuple[str, ...]], ...] = (
    (asax_paper, ("--chained", "--static-fit")),
    (oasis, ()),
    (oga, ("--part", "all")),
    (osdec, ()),
    (sow, ("--part", "all")),
    (together, ()),
)
"""The commands, with what each needs to run all of its parts."""


@click.command("all", short_help="All papers' evaluations, one after another.")
@click.option(
    "--page", "folder", type=click.Path(path_type=Path), metavar="DIR",
    help="Write a page of each into DIR (asax-paper.html, oasis.html, …).",
)  # fmt: skip
@JSON
def all_papers(folder: Path | None, as_json: bool) -> None:
    """Run the evaluations of all five papers with all of their parts, each by its own command; nothing is trained.

    What is done, and how long it took, is shown on standard error. JSON is one object with a document for each.
    """
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--page {folder}: there is no such folder; make it first")
    found: dict[str, Any] = {}
    for number, (command, words) in enumerate(EVALUATIONS, 1):
        name = str(command.name)
        click.echo(f"{number} of {len(EVALUATIONS)}: asactl bench {' '.join((name, *words))}", err=True)
        pages = () if folder is None else ("--page", str(folder / f"{name}.html"))
        began = time.monotonic()
        if as_json:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                _run(command, [*words, *pages, "--json"])
            found[name] = json.loads(printed.getvalue())
        else:
            _run(command, [*words, *pages])
        click.echo(f"{name} took {duration(time.monotonic() - began)}", err=True)
    if as_json:
        click.echo(json.dumps({"schema": schema_name("bench"), **found}, indent=1, allow_nan=False))


def _run(command: click.Command, words: list[str]) -> None:
    with command.make_context(f"asactl bench {command.name}", words) as context:
        command.invoke(context)
