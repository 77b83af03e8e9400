"""`asactl doctor`: is everything as lending needs it? It asks and reads; what it makes of that is in `checks`."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.metadata import entry_points
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from asad.api.control import ask
from asad.api.munge import Munge
from asad.api.tls import Tls
from asad.cli import checks
from asad.cli.checks import Finding, Slurm
from asad.cli.config import faults_of
from asad.cli.live import JSON, SOCKET, funnel_of, print_screen
from asad.cli.runs import printable
from asad.cli.unit_checks import PROPERTIES, UNITS, state_dir_findings
from asad.config import DEFAULT_PATH, Config, load
from asad.errors import AsadError, ConfigError
from asad.report import funnel, units
from asad.store.store import Store
from asad.store.urls import shown_text

COMMAND_S = 10.0
SCRIPT_BYTES = 256 * 1024
SCRIPTS = ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld")
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
    """Check Slurm or Mesos, munge, clocks, rights, cgroups and the store, and print the lines to add.

    Changes nothing. Run it on the head node, as root or as the daemon's user. Leaves with 1 if anything fails.
    """
    findings = list(examine(config_path, slurm_conf, socket_path))
    lines = [line for finding in findings for line in finding.lines]
    if as_json:
        plain = {"findings": [finding.to_json() for finding in findings], "slurm_conf": lines}
        click.echo(json.dumps(plain, indent=2))
    else:
        _print(findings, lines)
    context.exit(1 if any(finding.state == "fail" for finding in findings) else 0)


def _print(findings: list[Finding], lines: list[str]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        said = Text("\n".join(printable(line) for line in finding.why.splitlines()))
        if finding.mend and finding.state != "ok":
            said.append(f"\n→ {printable(finding.mend)}", "dim")
        table.add_row(Text(finding.state, STYLES[finding.state]), Text(printable(finding.check)), said)
    print_screen(table)
    if lines:
        click.echo(
            "\nTo slurm.conf, then `scontrol reconfigure` (select, memory and plugins want a restart):\n"
        )
        for line in lines:
            click.echo(printable(line))
    bad = sum(finding.state == "fail" for finding in findings)
    doubtful = sum(finding.state == "warn" for finding in findings)
    click.echo(f"\n{len(findings)} checked, {bad} failed, {doubtful} to look at")


def examine(
    config_path: str | None, slurm_conf: str | None, socket_path: str | None = None
) -> Iterator[Finding]:
    """All findings, in the order in which they should be mended. The daemon is asked at `socket_path`, if given."""
    config, finding = _configuration(config_path)
    socket = Path(socket_path) if socket_path else config.daemon.socket
    yield finding
    yield from _of_plugin(config)
    if config.daemon.cluster == "recorded" and slurm_conf is None:
        yield _store(config)
        yield _daemon(socket)
        return
    if config.daemon.cluster == "mesos" and slurm_conf is None:
        yield from _of_machine(config, socket)
        return
    asked_at = datetime.now()  # scontrol prints local time
    text, partitions, found = _slurm_texts(slurm_conf)
    yield found
    if slurm_conf is not None and found.state != "fail":
        slurm = checks.read_slurm_conf(text)
    else:
        slurm = Slurm(checks.read_config(text), checks.read_partitions(partitions))
    if found.state != "fail":
        table = config.slurm.get("guest_partitions", {"batch": "guest"})
        pairs = table.items() if isinstance(table, Mapping) else ()
        guest_of = {str(source): str(guest) for source, guest in pairs}
        yield from checks.cluster_findings(slurm)
        yield checks.threads_finding(slurm, checks.read_threads(_threads() if slurm_conf is None else text))
        yield from checks.partition_findings(slurm, guest_of)
        yield checks.actor_finding(guest_of, config.node.guest_partitions)
        folder = Path(slurm_conf or slurm.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
        lua = _read(folder / "job_submit.lua")
        yield checks.job_submit_finding(slurm, lua, config.nodes.user, guest_of.values())
        yield from checks.script_findings(slurm, {key: _scripts(slurm.get(key)) for key in SCRIPTS})
        if slurm_conf is None:
            yield checks.clock_finding(text, asked_at)
            yield checks.rights_finding(slurm, _users(config.nodes.user), config.nodes.user)
        lend, share_users = config.slurm.get("lend", ()), config.slurm.get("share_users", "as-slurm")
        kinds = lend if isinstance(lend, list | tuple) else ()
        yield from checks.lending_findings(slurm, guest_of, [str(kind) for kind in kinds], str(share_users))
        yield checks.calibration_finding(config.guard.calibration)
        journal = Path(str(config.slurm.get("journal_dir") or config.daemon.state_dir))
        controllers = len(re.findall(r"(?mi)^[ \t]*SlurmctldHost(?:\[\d+\])?[ \t]*=", text))
        head = checks.head_finding(slurm, controllers, journal, _read(Path("/proc/mounts")) or "")
        if head is not None:
            yield head
    yield from _of_machine(config, socket)


def _of_plugin(config: Config) -> Iterator[Finding]:
    """What the cluster plugin itself has to say (entry points `asad.doctors`)."""
    name = config.daemon.cluster
    for point in entry_points(group="asad.doctors", name=name):
        table = config.clusters.get(name.rpartition("+")[2], {})
        for found in point.load()(table):
            yield Finding(found.check, found.state, found.why, found.mend)


def _of_machine(config: Config, socket: Path) -> Iterator[Finding]:
    """Keys, cgroups, store and daemon, whatever the cluster."""
    yield _keys(config)
    yield checks.cgroup_finding(
        _read(Path("/proc/mounts")) or "",
        _read(Path("/sys/fs/cgroup/cgroup.controllers")) or "",
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
        mend = f"copy profiles/asad.toml to {place} and change what differs on your cluster"
        return Config(), Finding("configuration", "warn", why, mend)
    try:
        config = load(place)
    except ConfigError as error:
        return Config(), Finding("configuration", "fail", str(error), f"asactl config check {place}")
    if faults := faults_of(config):
        return config, Finding("configuration", "fail", "\n".join(faults), f"asactl config check {place}")
    return config, Finding("configuration", "ok", f"{place} is right, mode {config.daemon.mode}")


def _slurm_texts(slurm_conf: str | None) -> tuple[str, str, Finding]:
    """The configuration, the partitions (both as text), and whether they could be had."""
    if slurm_conf is not None:
        try:
            text = slurm_conf_text(Path(slurm_conf)) + (_read(Path(slurm_conf).parent / "cgroup.conf") or "")
        except OSError as error:
            why = f"{slurm_conf}: {error.strerror}"
            return "", "", Finding("slurm", "fail", why, "name a slurm.conf that you may read")
        return text, "", Finding("slurm", "ok", f"{slurm_conf} is read; the controller is not asked")
    try:
        config = run("scontrol", "show", "config")
        partitions = run("scontrol", "show", "partition", "--all", "--oneliner")
    except OSError as error:
        mend = "install slurm-client, or see `scontrol ping`; --slurm-conf FILE looks at a file instead"
        return "", "", Finding("slurm", "fail", f"the controller cannot be asked: {error}", mend)
    version = checks.read_config(config).get("slurm_version", "unknown")
    return config, partitions, Finding("slurm", "ok", f"the controller answers, Slurm {version}")


def slurm_conf_text(path: Path, depth: int = 0) -> str:
    """slurm.conf with its included files in place. Raises OSError."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match = re.match(r"\s*include\s+(\S+)", line, re.IGNORECASE)
        if match and depth < 8:
            lines.append(slurm_conf_text(path.parent / match[1], depth + 1))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def run(*words: str) -> str:
    """What a command prints. Raises OSError if it is not there, fails or hangs."""
    program = shutil.which(words[0])
    if program is None:
        raise OSError(f"there is no {words[0]}")
    try:
        done = subprocess.run(  # noqa: S603 - an argv list of our own words
            [program, *words[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{words[0]} gave no answer within {COMMAND_S:.0f} s") from None
    if done.returncode != 0:
        raise OSError(f"{words[0]}: {done.stderr.strip()[:500] or done.returncode}")
    return done.stdout


def _threads() -> str:
    try:
        return run("sinfo", "--all", "--noheader", "--format=%Z")
    except OSError:
        return ""


def _users(user: str) -> str:
    try:
        return run(
            *("sacctmgr", "--immediate", "--parsable2", "--noheader"),
            *("show", "user", f"name={user}", "format=User,AdminLevel"),
        )
    except OSError:
        return ""


def _scripts(setting: str) -> list[tuple[str, str | None]]:
    """Path and text of the scripts that a setting names, which may be patterns and several."""
    patterns = [Path(word.strip()) for word in setting.split(",") if word.strip()]
    paths = [path for pattern in patterns for path in sorted(pattern.parent.glob(pattern.name)) or [pattern]]
    return [(str(path), _read(path)) for path in paths]


def _read(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(SCRIPT_BYTES)
    except OSError:
        return None


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
    mend = f"install -d -o {user} -g {user} -m 0750 {folder}"
    try:
        found, owner = folder.stat(), pwd.getpwnam(user)
    except FileNotFoundError:
        why = f"there is no folder {folder} for state and store yet; asad.service makes its own at its first start"
        return Finding("store", "warn", why, mend)
    except PermissionError:
        return Finding("store", "warn", f"{folder} is closed to you", "run the doctor as root")
    except KeyError:
        return Finding(
            "store", "fail", f"this machine has no user {user}", "systemd-sysusers, with asad's sysusers.d"
        )
    mine = owner.pw_uid == 0 or (found.st_uid == owner.pw_uid and found.st_mode & 0o200)
    if mine or (found.st_gid == owner.pw_gid and found.st_mode & 0o020):
        return Finding("store", "ok", f"{user} can write to {folder}")
    return Finding("store", "fail", f"{user} cannot write to {folder}", mend)


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
        return Finding("daemon", "fail", why, "mend what it says; journalctl -u asad tells more")
    silent = (status.get("actors") or {}).get("silent") or []
    if silent:
        names = ", ".join(str(node) for node in silent[:8])
        mend = "systemctl status asad-node on those nodes"
        return Finding("daemon", "warn", f"it runs, but actors are silent: {names}", mend)
    return Finding("daemon", "ok", f"it runs, mode {status.get('mode')}")
