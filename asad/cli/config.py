"""`asactl config check` and `asactl config show`: the configuration, before and after the daemon has read it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from asad.api.control import ask
from asad.bounded import printable
from asad.catalog import STAGES
from asad.cli.live import SOCKET, control_socket
from asad.cli.screen import JSON, Copied, respond
from asad.config import DEFAULT_PATH, Config, load
from asad.errors import ConfigError, UsageError
from asad.stages import Circumstances, memory_loss, policy_of, stages_of
from asad.store.urls import parse, shown_text
from asad.tables import key_lines

FILE = click.argument("file", envvar="ASAD_CONFIG", default=str(DEFAULT_PATH), metavar="[FILE]")
OWNERS_PLACE = re.compile(r"\[([\w.+-]+)\]:? ([\w-]+)?")
"""How the owner of a table begins to say what is wrong in it: `[defer.rollout] reserve …`."""


@click.group()
def config() -> None:
    """Check or show asad.toml."""


@config.command(short_help="Is the configuration right?")
@FILE
@JSON
def check(file: str, as_json: bool) -> None:
    """Check FILE [default: /etc/asad/asad.toml] and what it names; every fault is shown with its line and a hint.

    The cluster is not asked (`asactl doctor` does that), and what only the daemon's user may read is not opened
    (`asad --check` does that).
    """
    try:
        settings = load(file)
        faults = faults_of(settings)
        if faults:
            lines = key_lines(Path(file).read_text(encoding="utf-8"))
            raise ConfigError("\n".join(located(file, lines, fault) for fault in faults))
    except ConfigError as error:
        respond(as_json, {"file": file, "ok": False, "faults": str(error).splitlines()}, tuple, indent=None)
        raise
    policies = settings.policies
    right = (
        f"{printable(file)} is right: mode {settings.daemon.mode}, cluster {printable(settings.daemon.cluster)}, "
        f"policies {policies.admit}, {policies.defer}, {policies.place} and {policies.share} "
        f"(admit, defer, place, share), a cycle each {settings.daemon.interval_s:g} s"
    )
    respond(as_json, {"file": file, "ok": True, "faults": []}, lambda: [right], indent=None)


@config.command(short_help="Which settings hold?")
@FILE
@click.option("--live", is_flag=True, help="Those of the running daemon instead of FILE's.")
@SOCKET
@JSON
def show(file: str, live: bool, socket_path: str | None, as_json: bool) -> None:
    """Print all settings that FILE and the defaults give, as TOML or JSON."""
    if live:
        settings = ask(control_socket(socket_path), "config")
    else:
        found = load(file)
        settings = found.to_json()
        settings["daemon"]["store"] = shown_text(found.daemon.store)
    respond(as_json, settings, lambda: (Copied(printable(line)) for line in toml_lines(settings)))


def faults_of(settings: Config) -> list[str]:
    """What the owners of policies, trees, calibration and the cluster's table find wrong with them, one text each."""
    looks = (
        *(partial(policy_of, settings, stage, Circumstances(seed=0)) for stage in STAGES),
        partial(stages_of, settings, [], 0),
        partial(memory_loss, settings),
        partial(check_store, settings),
        partial(check_cluster, settings),
    )
    faults = []
    for look in looks:
        try:
            look()
        except UsageError as error:
            faults.append(str(error))
    return list(dict.fromkeys(faults))  # all stages together find again what is wrong with one


def located(path: str, lines: Mapping[tuple[str, ...], int], fault: str) -> str:
    """`fault` after the file and, where its table or key is written there, the line."""
    found = OWNERS_PLACE.match(fault)
    table = tuple(found[1].split(".")) if found else ()
    line = lines.get((*table, found[2] or "")) or lines.get(table) if found else None
    return printable(f"{path}:{line}: {fault}" if line else f"{path}: {fault}")


def check_store(settings: Config) -> None:
    """Can the store's URL be read? Raises ConfigError."""
    try:
        parse(settings.store_url)
    except UsageError as error:
        raise ConfigError(f"[daemon] store: {error}") from None


def check_cluster(settings: Config) -> None:
    """Is there such a cluster, and is its table right? Its plugin checks that by a function `read_settings` in the
    module of its entry point or in a module `settings` below it. Raises ConfigError.
    """
    name, known = settings.daemon.cluster, metadata.entry_points(group="asad.clusters")
    if name == "recorded":
        log = settings.recorded.log
        if not log:
            raise ConfigError("[recorded] log: a recorded cluster needs a log; name one")
        if not Path(log).is_file():
            raise ConfigError(f"[recorded] log: there is no file {log}; name a log that can be read")
        return
    if name not in known.names:
        there = ", ".join(sorted({*known.names, "recorded"}))
        raise ConfigError(f"[daemon] cluster: there is no cluster plugin {name!r:.80}; there are {there}")
    module = import_module(known[name].module)
    if hasattr(module, "__path__") and find_spec(f"{module.__name__}.settings") is not None:
        module = import_module(f"{module.__name__}.settings")
    if hasattr(module, "read_settings"):
        module.read_settings(settings.clusters.get(name.rpartition("+")[2], {}))


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
