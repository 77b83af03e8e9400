"""`asactl config check` and `asactl config show`: the configuration, before and after the daemon has read it."""

from __future__ import annotations

import json
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import click

from asad.api.control import ask
from asad.cli.live import JSON, SOCKET, control_socket
from asad.cli.runs import printable
from asad.config import DEFAULT_PATH, Config, load
from asad.policies import admit_policy, share_policy

FILE = click.argument("file", envvar="ASAD_CONFIG", default=str(DEFAULT_PATH), metavar="[FILE]")


@click.group()
def config() -> None:
    """Check or show asad.toml."""


@config.command(short_help="Is the configuration right?")
@FILE
@JSON
def check(file: str, as_json: bool) -> None:
    """Check FILE [default: /etc/asad/asad.toml]; every fault is told with its line and its mend."""
    settings = load(file)
    share_policy(settings, [], 0)
    admit_policy(settings, [])
    check_plugins(settings)
    if as_json:
        click.echo(json.dumps({"file": file, "ok": True}))
    else:
        click.echo(
            f"{printable(file)} is right: mode {settings.daemon.mode}, cluster {printable(settings.daemon.cluster)}, "
            f"admit policy {settings.policies.admit}, share policy {settings.policies.share}, "
            f"a cycle each {settings.daemon.interval_s:g} s"
        )


@config.command(short_help="Which settings hold?")
@FILE
@click.option("--live", is_flag=True, help="Those of the running daemon instead of FILE's.")
@SOCKET
@JSON
def show(file: str, live: bool, socket_path: str | None, as_json: bool) -> None:
    """Print all settings that FILE and the defaults give, as TOML or JSON."""
    settings = ask(control_socket(socket_path), "config") if live else load(file).to_json()
    if as_json:
        click.echo(json.dumps(settings, indent=2))
        return
    for line in toml_lines(settings):
        click.echo(printable(line))


def check_plugins(settings: Config) -> None:
    """Let the cluster's plugin check its own table, by `read_settings` of its module `settings`. Raises ConfigError."""
    for point in metadata.entry_points(group="asad.clusters", name=settings.daemon.cluster):
        place = f"{point.module}.settings"
        if find_spec(place) is not None:
            import_module(place).read_settings(settings.clusters.get(point.name, {}))


def toml_lines(table: dict[str, Any], name: str = "") -> list[str]:
    """A table of plain data as lines of TOML, tables after keys."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    if name and (lines or not table):
        lines = [f"[{name}]", *lines, ""]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += toml_lines(value, f"{name}.{_key(key)}" if name else _key(key))
    return lines


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):  # within a list
        return f"{{{', '.join(f'{_key(key)} = {_value(item)}' for key, item in value.items())}}}"
    return json.dumps(value)
