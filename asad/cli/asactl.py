"""`asactl`: what an operator types. Commands live in their own files and are loaded when called."""

from __future__ import annotations

import importlib
import os
import sys

import click
from click.shell_completion import CompletionItem

from asad import __version__
from asad.cli.output import keep_stdout
from asad.errors import AsadError, ExitStatus

COMMANDS = {
    "admit": ("asad.cli.admit", "admit", "What admission says of jobs, and has planned for them."),
    "bench": ("asad.cli.bench", "bench", "Run the papers' evaluations anew."),
    "calibrate": ("asad.cli.calibrate", "calibrate", "Measure what sharing cores costs on this machine."),
    "cancel": ("asad.cli.submit", "cancel", "Cancel a job that was submitted to Mesos."),
    "completion": ("asad.cli.completion", "completion", "Completion for bash, zsh or fish."),
    "config": ("asad.cli.config", "config", "Check or show asad.toml."),
    "defer": ("asad.cli.defer", "defer", "Deferrable jobs, and the policies that decide when they start."),
    "doctor": ("asad.cli.doctor", "doctor", "Is this cluster ready for asad?"),
    "experts": ("asad.cli.experts", "experts", "Check, draw, evaluate and fit expert trees."),
    "explain": ("asad.cli.explain", "explain", "Describe the story of a job."),
    "jobs": ("asad.cli.live", "jobs", "Jobs as the live daemon sees them."),
    "ledger": ("asad.cli.ledger", "ledger", "What lending gave to and took from each account."),
    "mode": ("asad.cli.live", "mode", "Show or change what the daemon may do."),
    "nodes": ("asad.cli.live", "nodes", "Nodes as the live daemon sees them."),
    "pause": ("asad.cli.live", "pause", "Lend nothing new until `resume`."),
    "progress": ("asad.cli.progress", "progress", "Say, inside a job, how far it is."),
    "release": ("asad.cli.live", "release", "Release everything now."),
    "replay": ("asad.cli.replay", "replay", "Replay an accounting log under several policies."),
    "waits": ("asad.cli.waits", "waits", "Why jobs wait, and why those of an accounting log waited."),
    "whatif": (
        "asad.cli.whatif",
        "whatif",
        "Hold two configurations against each other on an accounting log.",
    ),
    "resume": ("asad.cli.live", "resume", "Lend again after `pause` or `release`."),
    "runs": ("asad.cli.runs", "runs", "List what is stored."),
    "sow": (
        "asad.cli.sow",
        "sow",
        "Statements of work: announce jobs to come, see prices and what was charged.",
    ),
    "status": ("asad.cli.live", "status", "One screen: what the live daemon sees, lends and gained."),
    "store": ("asad.cli.state_store", "store", "Size, export, backup and upkeep of the state store."),
    "submit": ("asad.cli.submit", "submit", "Submit a job to Mesos."),
    "sweep": (
        "asad.cli.sweep",
        "sweep",
        "Replay logs under configurations with seeds, on many cores or nodes.",
    ),
    "tasks": ("asad.cli.submit", "tasks", "Jobs submitted to Mesos, and their tasks."),
    "teardown": ("asad.cli.submit", "teardown", "End the Mesos framework with all its tasks."),
    "top": ("asad.cli.live", "top", "The same, live; q quits."),
}
"""Name of a command → module, object, and the line in `asactl --help`."""


class LazyGroup(click.Group):
    """Imports a command when it is called, so that `asactl --help` loads no compilers and plot libraries."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names without the commands, which take seconds to import."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name][2]) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="asactl")
def asactl() -> None:
    """Lend idle shares of running allocations to waiting jobs: replay, explain, tune."""


def main() -> None:
    """Entry point. Its exit statuses are those of `ExitStatus`."""
    keep_stdout()
    try:
        status = asactl(standalone_mode=False)  # what a command gave to ctx.exit
        sys.stdout.flush()  # while it can still be determined that nobody takes it
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(ExitStatus.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except AsadError as error:
        from asad.cli.screen import print_line

        for line in f"asactl: {error}".splitlines():
            print_line(line, err=True)
        sys.exit(error.exit_status)
    except BrokenPipeError:  # who read has gone, as `head` does
        _drop_stdout()
        sys.exit(ExitStatus.FAILED)
    except OSError as error:  # a disk that is full
        _drop_stdout()
        click.echo(f"asactl: {error}", err=True)
        sys.exit(ExitStatus.FAILED)


def _drop_stdout() -> None:
    """What is left of the answer goes nowhere, so that the interpreter does not stumble over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
