"""`asactl completion SHELL`: what a shell reads to complete commands, options and names; and those names, of the
catalogue, of the store and of a daemon that answers soon."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from asad.api.control import ask
from asad.errors import UsageError

if TYPE_CHECKING:
    from asad.store.store import Store

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ASACTL_COMPLETE"
"""By this variable of the environment the shell asks `asactl` what could stand next."""
PATIENCE_S = 1.5
"""Somebody waits with the finger on the key."""
MOST_RUNS = 50
"""So many of the newest runs are offered."""


@click.command(short_help="Completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what SHELL reads to complete commands, options, and names: policies, experts, runs, jobs, nodes, fields.

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


# ------------------------------------------------------------------------------------------------ what may stand next


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def offered(
    find: Callable[[click.Context], Iterable[str | tuple[str, str]]], *, many: bool = False
) -> Complete:
    """Completes names, or names with a word about each; `many`: several, with commas between them. Nothing where they
    cannot be found, or not soon."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begin = incomplete.rpartition(",") if many else ("", "", incomplete)
        there, found = set(before.split(",")), list[CompletionItem]()

        def look() -> None:
            with contextlib.suppress(Exception):  # a traceback would stand in the midst of what is typed
                for one in find(context):
                    name, about = one if isinstance(one, tuple) else (one, "")
                    if name.lower().startswith(begin.lower()) and name not in there and name.isprintable():
                        found.append(CompletionItem(f"{before}{comma}{name}", help=about or None))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        looking.join(PATIENCE_S)
        return list(found)

    return complete


def or_file(complete: Complete) -> Complete:
    """Completes names, and where none begins like that files."""
    return lambda context, parameter, incomplete: (
        complete(context, parameter, incomplete) or [CompletionItem(incomplete, type="file")]
    )


def constant(place: str) -> Complete:
    """Completes several of the names that `module:name` holds, or gives; the module is loaded when somebody asks."""
    module, _, name = place.partition(":")

    def find(context: click.Context) -> Iterable[str]:
        held: Any = getattr(importlib.import_module(module), name)
        return held() if callable(held) else held  # type: ignore[no-any-return]

    return offered(find, many=True)


def _policies(context: click.Context) -> Iterable[str]:
    from asad.replay.policies import all_policies

    return all_policies()


def _experts(context: click.Context) -> Iterator[tuple[str, str]]:
    from asad.experts import load_experts

    return ((expert.name, expert.about) for expert in load_experts(context.params.get("folder")))


def _networks(context: click.Context) -> Iterator[str]:
    from asad.defer.osdec import shipped

    return (one["model"] for seeds in shipped().values() for one in seeds)


def _store(context: click.Context) -> Store:
    """That is named on the line, else the one that the command looks at."""
    from asad.cli.live import daemon_store
    from asad.store.store import Store

    group = context.parent
    own = daemon_store() if group is not None and group.info_name == "store" else None
    given = context.params.get("store_url") or (group.params.get("store_url") if group is not None else None)
    return Store.open(given or own, create=False)


def _runs(context: click.Context) -> Iterator[tuple[str, str]]:
    with _store(context) as store:
        for run in store.runs(MOST_RUNS):
            yield str(run.id), f"{run.kind}, {run.policy}, {run.state}"


def _sweeps(context: click.Context) -> Iterable[str]:
    from asad.store import sweeps

    with _store(context) as store:
        return sweeps.names(store)


def _answered(verb: str, key: str, rows: str = "", about: str = "") -> Complete:
    """Completes what a daemon names, if one answers."""

    def find(context: click.Context) -> Iterator[tuple[str, str]]:
        from asad.cli.live import control_socket, rows_of

        place = control_socket(context.params.get("socket_path"))
        answer = ask(place, verb, timeout_s=PATIENCE_S)
        found = {str(row[key]): str(row.get(about) or "") for row in rows_of(answer, rows or verb)}
        yield from found.items()

    return offered(find)


jobs = _answered("jobs", "job", about="user")
nodes = _answered("nodes", "node")
users = _answered("jobs", "user")
mesos_jobs = _answered("tasks", "job", "jobs", "state")
statements = _answered("sow-status", "statement", "statements", "owner")
policies = offered(_policies, many=True)
experts = offered(_experts)
networks = offered(_networks)
runs = offered(_runs)
sweep_names = offered(_sweeps)
