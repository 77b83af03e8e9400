"""`asactl doctor`: is everything as lending needs it? Plugins look at their clusters, this at the machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from asad.api.control import ask
from asad.api.munge import Munge
from asad.api.tls import Tls
from asad.bounded import printable
from asad.cli.config import faults_of
from asad.cli.forecast_check import forecast_figures, forecast_finding
from asad.cli.live import SOCKET, funnel_of
from asad.cli.machine_checks import PROPERTIES, UNITS, cgroup_finding, state_dir_findings
from asad.cli.screen import JSON, Copied, nodes_text, respond
from asad.cluster.findings import COMMAND_S, Finding, Site, read, run
from asad.config import DEFAULT_PATH, Config, load
from asad.errors import AsadError, ConfigError, ExitStatus
from asad.report import funnel, units
from asad.store.store import Store
from asad.store.urls import shown_text

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command(short_help="Is this cluster ready for asad?")
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    envvar="ASAD_CONFIG",
    help="[default: /etc/asad/asad.toml, else asad's defaults]",
)
@click.option(
    "--slurm-conf",
    metavar="FILE",
    help="Look at this slurm.conf instead of asking the controller.",
)
@SOCKET
@JSON
@click.pass_context
def doctor(
    context: click.Context,
    config_path: str | None,
    slurm_conf: str | None,
    socket_path: str | None,
    as_json: bool,
) -> None:
    """Check Slurm or Mesos, munge, clocks, rights, cgroups, the store and forecasts, and print the lines to add.

    Changes nothing. Run it on the head node, as root or as the daemon's user. Leaves with 1 if anything fails.
    """
    findings = list(examine(config_path, slurm_conf, socket_path))
    lines = [line for finding in findings for line in finding.lines]
    cluster, figures = _forecasts(config_path, slurm_conf)
    if figures is not None:
        findings.append(forecast_finding(figures, "slurm" in cluster))
    plain = {
        "findings": [finding.to_json() for finding in findings],
        "slurm_conf": lines,
        "forecasts": figures,
    }
    respond(as_json, plain, lambda: _screen(findings, lines))
    bad = any(finding.state == "fail" for finding in findings)
    context.exit(ExitStatus.FAILED if bad else ExitStatus.DONE)


def _screen(findings: list[Finding], lines: list[str]) -> Iterator[str | Table]:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        why = Text("\n".join(printable(line) for line in finding.why.splitlines()))
        if finding.remedy and finding.state != "ok":
            why.append(f"\n→ {printable(finding.remedy)}", "dim")
        table.add_row(Text(finding.state, STYLES[finding.state]), Text(printable(finding.check)), why)
    yield table
    if lines:
        yield "\nTo slurm.conf, then `scontrol reconfigure` (select, memory and plugins want a restart):\n"
        yield from (Copied(printable(line)) for line in lines)
    bad = sum(finding.state == "fail" for finding in findings)
    doubtful = sum(finding.state == "warn" for finding in findings)
    yield (f"\n{len(findings)} checked, {bad} failed, {doubtful} to look at")


def examine(
    config_path: str | None, slurm_conf: str | None, socket_path: str | None = None
) -> Iterator[Finding]:
    """All findings, in the order in which they should be corrected. The daemon is asked at `socket_path`, if given."""
    config, finding = _configuration(config_path)
    socket = Path(socket_path) if socket_path else config.daemon.socket
    yield finding
    yield from _of_plugins(config, slurm_conf)
    if config.daemon.cluster == "recorded" and slurm_conf is None:
        yield _store(config)
        yield _daemon(socket)
    else:
        yield from _of_machine(config, socket)


def _forecasts(config_path: str | None, slurm_conf: str | None) -> tuple[str, dict[str, Any] | None]:
    """The cluster, and what its daemon has kept of forecasts; None where it keeps none."""
    config, _ = _configuration(config_path)
    cluster = config.daemon.cluster
    kept = cluster != "recorded" and slurm_conf is None
    return cluster, forecast_figures(config.store_url) if kept else None


def _of_plugins(config: Config, slurm_conf: str | None) -> Iterator[Finding]:
    """What the plugins themselves find (entry points `asad.doctors`): that of the cluster, of `slurm+mesos` that of
    Slurm too, and that of Slurm wherever a slurm.conf is given."""
    cluster = config.daemon.cluster
    names = [cluster, cluster.partition("+")[0], *(["slurm"] if slurm_conf is not None else [])]
    for name in dict.fromkeys(names):
        site = Site(
            config.clusters.get(name.rpartition("+")[2], {}),
            config.nodes.user,
            config.daemon.state_dir,
            config.node.guest_partitions,
            config.guard.calibration,
            slurm_conf,
        )
        for point in entry_points(group="asad.doctors", name=name):
            yield from point.load()(site)


def _of_machine(config: Config, socket: Path) -> Iterator[Finding]:
    """Keys, cgroups, store and daemon, whatever the cluster."""
    yield _keys(config)
    yield cgroup_finding(
        read(Path("/proc/mounts")) or "",
        read(Path("/sys/fs/cgroup/cgroup.controllers")) or "",
        any(any(Path("/sys/fs/cgroup").glob(pattern)) for pattern in ("*/cpu.idle", "cpu/*/cpu.idle")),
    )
    yield _store(config)
    with contextlib.suppress(OSError):  # no systemd here
        shown = run("systemctl", "show", *UNITS, f"--property={','.join(PROPERTIES)}")
        place = (config.path or DEFAULT_PATH).absolute()
        yield from state_dir_findings(shown, config.daemon.state_dir, place)
    yield _daemon(socket)
    yield from _idle(socket)


def _configuration(path: str | None) -> tuple[Config, Finding]:
    place = path or str(DEFAULT_PATH)
    if path is None and not DEFAULT_PATH.exists():
        why = f"there is no {place}; asad's defaults are looked at"
        hint = f"copy profiles/asad.toml to {place} and change what differs on your cluster"
        return Config(), Finding("configuration", "warn", why, hint)
    try:
        config = load(place)
    except ConfigError as error:
        return Config(), Finding("configuration", "fail", str(error), f"asactl config check {place}")
    if faults := faults_of(config):
        return config, Finding("configuration", "fail", "\n".join(faults), f"asactl config check {place}")
    return config, Finding("configuration", "ok", f"{place} is right, mode {config.daemon.mode}")


def _keys(config: Config) -> Finding:
    nodes = config.nodes
    try:
        if nodes.auth == "munge":
            own = frozenset({os.geteuid()})
            Munge(own, os.geteuid(), nodes.munge_socket).check()
            return Finding("munge", "ok", "munged seals and opens our credentials")
        Tls(nodes.cert, nodes.key, nodes.ca)
    except AsadError as error:
        return Finding(nodes.auth, "fail", str(error), "nobody starts without keys: docs, how-to/enable")
    return Finding("tls", "ok", "certificate, key and authority belong together")


def _store(config: Config) -> Finding:
    url, user, state = config.store_url, config.nodes.user, config.daemon.state_dir
    with contextlib.suppress(OSError):
        if state.stat().st_mode & stat.S_IWOTH:
            why = f"others may write to {state}, and so the daemon does not start"
            return Finding("store", "fail", why, f"chmod o-w {state}, and look what is in it")
    path = url.removeprefix("sqlite:///")
    if "://" not in path and shown_text(path) == path and not Path(path).exists():
        return _folder(Path(path).parent, user)
    try:
        with Store.open(url, create=False) as store:
            return Finding("store", "ok", f"{store} can be opened")
    except AsadError as error:
        return Finding("store", "fail", str(error), "the daemon lends on without it, but forgets at its end")


def _folder(folder: Path, user: str) -> Finding:
    hint = f"install -d -o {user} -g {user} -m 0750 {folder}"
    try:
        found, owner = folder.stat(), pwd.getpwnam(user)
    except FileNotFoundError:
        why = f"there is no folder {folder} for state and store yet; asad.service makes its own at its first start"
        return Finding("store", "warn", why, hint)
    except PermissionError:
        return Finding("store", "warn", f"{folder} is closed to you", "run the doctor as root")
    except KeyError:
        return Finding(
            "store", "fail", f"this machine has no user {user}", "systemd-sysusers, with asad's sysusers.d"
        )
    mine = owner.pw_uid == 0 or (found.st_uid == owner.pw_uid and found.st_mode & 0o200)
    if mine or (found.st_gid == owner.pw_gid and found.st_mode & 0o020):
        return Finding("store", "ok", f"{user} can write to {folder}")
    return Finding("store", "fail", f"{user} cannot write to {folder}", hint)


def _idle(socket: Path) -> Iterator[Finding]:
    """Where the CPU goes that batch leaves idle, and what would free it; nothing while nobody counts."""
    try:
        counted = funnel_of(ask(socket, "status", timeout_s=COMMAND_S))
    except AsadError:
        return
    if advice := funnel.advice(counted, live=True):
        parts = sorted((row for row in funnel.rows(counted) if row.core_h), key=lambda row: -row.core_h)
        listed = "\n".join(f"{units.percent(row.share)} {row.reason}" for row in parts)
        yield Finding("idle CPU", "ok", f"{advice}\n{listed}".replace(units.THIN, " "))


def _daemon(socket: Path) -> Finding:
    try:
        status = ask(socket, "status", timeout_s=COMMAND_S)
    except AsadError as error:
        return Finding("daemon", "warn", str(error), "systemctl enable --now asad, when nothing above fails")
    failing = (status.get("cycles") or {}).get("failing") or 0
    if failing:
        last = "cycle" if failing == 1 else f"{failing} cycles"
        why = f"it runs, but its last {last} failed: {(status.get('cycle') or {}).get('sentence')}"
        return Finding("daemon", "fail", why, "correct what it says; journalctl -u asad reports more")
    silent = (status.get("actors") or {}).get("silent") or []
    if silent:
        names = nodes_text(silent)
        hint = "systemctl status asad-node on those nodes"
        return Finding("daemon", "warn", f"it runs, but actors are silent: {names}", hint)
    return Finding("daemon", "ok", f"it runs, mode {status.get('mode')}")
