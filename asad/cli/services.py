"""How the programs that run as services end: with the exit statuses that their units know."""

from __future__ import annotations

import sys

import click

from asad.errors import AsadError, ExitStatus


def run_service(command: click.Command, name: str) -> None:
    """Run the command of a service, and exit as its error says: 130 interrupted, 2 wrong usage, else the error's own.

    Returns when it has stopped as instructed.
    """
    try:
        command(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(ExitStatus.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except AsadError as error:
        click.echo(f"{name}: {error}", err=True)
        sys.exit(error.exit_status)
