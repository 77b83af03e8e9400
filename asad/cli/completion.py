"""`asactl completion SHELL`: what a shell reads to complete commands, options, names of policies, jobs and nodes."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

from asad.api.control import ask
from asad.errors import AsadError, UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ASACTL_COMPLETE"
"""By this variable of the environment the shell asks `asactl` what could stand next."""
PATIENCE_S = 1.0
"""Somebody waits with the finger on the key."""


@click.command(short_help="Completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what SHELL reads to complete commands, options, and names of policies, jobs and nodes.

    \b
    Examples:
      asactl completion bash > /etc/bash_completion.d/asactl
      asactl completion zsh > /usr/share/zsh/vendor-completions/_asactl
      asactl completion fish > ~/.config/fish/completions/asactl.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"there is no completion for {shell}; there is for {', '.join(SHELLS)}")
    root = context.find_root()
    made = kind(root.command, {}, "asactl", VARIABLE)
    click.echo(
        made.source_template % made.source_vars()
    )  # source() would run the shell to ask for its version


def jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that the daemon knows and whose number begins like that; none where nobody answers."""
    return _names("jobs", "job", "user", context, incomplete)


def nodes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nodes that the daemon knows."""
    return _names("nodes", "node", "", context, incomplete)


def _names(verb: str, key: str, help_key: str, context: click.Context, begin: str) -> list[CompletionItem]:
    from asad.cli.live import control_socket, rows_of

    try:
        rows = rows_of(
            ask(control_socket(context.params.get("socket_path")), verb, timeout_s=PATIENCE_S), verb
        )
    except AsadError:
        return []
    return [
        CompletionItem(str(row[key]), help=str(row.get(help_key) or "") or None)
        for row in rows
        if str(row.get(key)).startswith(begin) and str(row[key]).isprintable()
    ]
