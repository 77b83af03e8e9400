"""`asactl`: what an operator types. Commands live in their own files and are loaded when called."""

from __future__ import annotations

import importlib
import sys

import click

from asad import __version__
from asad.errors import AsadError

COMMANDS = {
    "bench": ("asad.cli.bench", "bench"),
    "calibrate": ("asad.cli.calibrate", "calibrate"),
    "experts": ("asad.cli.experts", "experts"),
    "explain": ("asad.cli.runs", "explain"),
    "replay": ("asad.cli.replay", "replay"),
    "runs": ("asad.cli.runs", "runs"),
}
"""Name of a command → module and object."""


class LazyGroup(click.Group):
    """Imports a command when it is asked for, so that `asactl --help` does not load compilers and plot libraries."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="asactl")
def asactl() -> None:
    """Lend idle shares of running allocations to waiting jobs: replay, explain, tune."""


def main() -> None:
    """Entry point. Exit status: 0 done, 2 wrong usage or input, 1 anything else."""
    try:
        asactl(standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except AsadError as error:
        click.echo(f"asactl: {error}", err=True)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
