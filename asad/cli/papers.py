"""Commands that another package brings: the evaluations of the papers, and the training of what learns from them.

They reproduce what papers report, and nobody who runs a cluster needs them, so that they are a distribution of their
own, `asad-hpc-papers`. It offers each command by an entry point of the group `asad.commands`, called `group.name` as
`bench.oga` is `asactl bench oga`; a site's own package may offer more.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from asad.errors import AsadError, UsageError

COMMANDS = "asad.commands"
INSTALL = (
    "it comes with the package asad-hpc-papers: pip install /path/to/asad/papers, with the path of a checkout of asad "
    "(training also wants its extra: '/path/to/asad/papers[rl]')"
)


class WithPapers(click.Group):
    """A group of commands that are here, and of those that installed packages offer under its name."""

    def __init__(self, *given: Any, papers: dict[str, str] | None = None, **others: Any) -> None:
        """`papers`: the commands of asad-hpc-papers and their lines of help, listed where it is missing too."""
        super().__init__(*given, **others)
        self.papers = papers or {}

    def offered(self) -> dict[str, EntryPoint]:
        """By name. Raises UsageError where two packages offer different commands by one name."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=COMMANDS):
            group, _, name = point.name.partition(".")
            if group == self.name and found.setdefault(name, point).value != point.value:
                raise UsageError(
                    f"two packages offer asactl {group} {name}: {found[name].value} and {point.value}; "
                    "remove one of them"
                )
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.papers, *self.offered()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        point = self.offered().get(cmd_name)
        if point is None:
            return super().get_command(ctx, cmd_name) or self._missing(cmd_name)
        try:
            command: click.Command = point.load()
        except ImportError as error:
            raise AsadError(f"asactl {self.name} {cmd_name}: cannot be loaded ({error})") from error
        return command

    def _missing(self, name: str) -> click.Command | None:
        """What stands in for a command of asad-hpc-papers: it says how to install it, whatever its arguments."""
        if name not in self.papers:
            return None

        def refuse(**_: Any) -> None:
            raise AsadError(f"asactl {self.name} {name} is not installed here; {INSTALL}")

        return click.Command(
            name,
            callback=refuse,
            params=[click.Argument(["anything"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "help_option_names": []},
            short_help=f"{self.papers[name]} (needs asad-hpc-papers)",
        )
