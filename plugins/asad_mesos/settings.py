"""The table `[mesos]` of asad.toml, checked."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asad.errors import ConfigError

SHARE_USERS = ("same", "any")
EXECUTOR_USERS = ("job", "root")
ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-_]+)(?::(\d{1,5}))?", re.ASCII)
QUOTAS = ("user_jobs", "user_tasks", "user_mb", "most_jobs", "most_tasks", "most_mb")
ROLE = re.compile(r"(?!-|\.{1,2}$)[^\s/\\\x00-\x1f\x7f]+")
"""A component of a role's path (Mesos: roles.md)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How the framework presents itself, and how long it waits for what."""

    master: tuple[str, ...] = ("127.0.0.1:5050",)
    """`"host:5050"`, a list of masters of which any leads, or one `"zk://host:2181,host:2181/mesos"`."""
    user: str = "root"
    """The framework's user, as Mesos wants one; each job runs under its own."""
    role: str = "*"
    """Role whose resources are asked for."""
    principal: str = ""
    """Who we are for the master (Basic authentication). A framework stays with its principal: to change it, end the
    framework first (`asactl teardown`)."""
    secret_file: str = ""
    """File with the secret of `principal`, readable by the daemon alone."""
    framework: str = "asad"
    """The framework's name, for people."""
    hostname: str = ""
    """Shown beside it; empty: this host's own."""
    failover_timeout_s: float = 604_800.0
    """So long Mesos keeps our tasks when the daemon is gone (60 to a year)."""
    hold_s: float = 30.0
    """No offer is withheld for longer (1 to 3600)."""
    refuse_s: float = 5.0
    """What is declined is not offered again within this; within a minute while nobody waits."""
    heartbeats: float = 3.0
    """So many heartbeats missing, and the connection is given up and made anew."""
    unreachable_s: float = 300.0
    """A task whose agent cannot be reached for so long is taken for lost."""
    kill_grace_s: float = 30.0
    """Between SIGTERM and SIGKILL."""
    retries: int = 3
    """So often a gang that lost tasks which ran is queued again."""
    gpus: bool = False
    """Take agents with GPUs (capability `GPU_RESOURCES`), which are offered to nobody else that asks for none."""
    revocable: bool = True
    """Run guests on revocable resources where an agent offers them."""
    inside: bool = True
    """Run guests within the executors of their hosts."""
    executor: str = "asad-mesos-executor"
    """Command that starts the executor on an agent."""
    executor_memory_mb: float = 32.0
    """Memory that it takes on each agent, once a gang and once a task of an elastic job."""
    executor_user: str = "job"
    """Executors run as the `job`'s user, or as `root`, who can run guests of other users too (`share_users = "any"`;
    agents with `--switch_user`)."""
    depth: int = 100
    """Waiting jobs that are looked at."""
    share_users: str = "same"
    """Host and guest belong to the `same` user, or to `any`."""
    lend_multi_node: bool = False
    """Jobs on several nodes lend too."""
    window_s: float = 60.0
    """A job counts as measured when the actors of all its nodes have watched it for this long."""
    timeout_s: float = 10.0
    """A call that the master has not answered by then has failed."""
    user_jobs: int = 1000
    """Jobs of one user that have not ended; who submits more is refused, as with the next five."""
    user_tasks: int = 100_000
    """Tasks of these jobs."""
    user_mb: int = 64
    """MiB of their scripts, commands and environments, as the journal has them."""
    most_jobs: int = 10_000
    """Jobs of all users together."""
    most_tasks: int = 1_000_000
    """Tasks of all users together."""
    most_mb: int = 256
    """MiB of all users together."""

    def secret(self) -> str:
        """The secret; empty for none. Raises ConfigError."""
        if not self.secret_file:
            return ""
        path = Path(self.secret_file)
        try:
            mode = path.stat().st_mode
            text = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigError(f"[mesos] secret_file: {path}: {why}; name a file with the secret") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP:
            raise ConfigError(f"[mesos] secret_file: {path} can be read by others; chmod 600 {path}")
        if not text:
            raise ConfigError(f"[mesos] secret_file: {path} is empty; write the secret into it")
        return text


def read_settings(table: Mapping[str, Any]) -> Settings:
    """Check the table `[mesos]`. Raises ConfigError naming the key, and the nearest known one for an unknown key."""
    known = list(Settings.__dataclass_fields__)
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:80], known, n=1)
            mend = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"[mesos] {key[:80]}: there is no such setting; {mend}")
    default = Settings()
    settings = Settings(
        master=_masters(table.get("master", list(default.master))),
        user=_text(table, "user", default.user),
        role=_role(table),
        principal=_text(table, "principal", "", empty=True),
        secret_file=_text(table, "secret_file", "", empty=True),
        framework=_text(table, "framework", default.framework),
        hostname=_text(table, "hostname", "", empty=True),
        failover_timeout_s=_number(table, "failover_timeout_s", default.failover_timeout_s, 60, 31_536_000),
        hold_s=_number(table, "hold_s", default.hold_s, 1, 3600),
        refuse_s=_number(table, "refuse_s", default.refuse_s, 0, 31_536_000),
        heartbeats=_number(table, "heartbeats", default.heartbeats, 1, 100),
        unreachable_s=_number(table, "unreachable_s", default.unreachable_s, 0, 31_536_000),
        kill_grace_s=_number(table, "kill_grace_s", default.kill_grace_s, 0, 86_400),
        retries=int(_number(table, "retries", default.retries, 0, 1000)),
        gpus=_truth(table, "gpus", default.gpus),
        revocable=_truth(table, "revocable", default.revocable),
        inside=_truth(table, "inside", default.inside),
        executor=_text(table, "executor", default.executor),
        executor_memory_mb=_number(table, "executor_memory_mb", default.executor_memory_mb, 1, 65_536),
        executor_user=_choice(table, "executor_user", EXECUTOR_USERS, default.executor_user),
        depth=int(_number(table, "depth", default.depth, 1, 100_000)),
        share_users=_choice(table, "share_users", SHARE_USERS, default.share_users),
        lend_multi_node=_truth(table, "lend_multi_node", default.lend_multi_node),
        window_s=_number(table, "window_s", default.window_s, 0, 86_400),
        timeout_s=_number(table, "timeout_s", default.timeout_s, 0.1, 600),
        **{key: _count(table, key, getattr(default, key)) for key in QUOTAS},
    )
    if bool(settings.principal) != bool(settings.secret_file):
        raise ConfigError("[mesos] principal and secret_file go together; give both, or neither")
    if ":" in settings.principal:
        raise ConfigError("[mesos] principal: it holds a colon, which Basic authentication cannot carry")
    return settings


def _masters(value: Any) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given or not all(isinstance(one, str) for one in given):
        raise ConfigError(
            f'[mesos] master: {value!r:.80} is no address; write "host:5050", ["a:5050", "b:5050"] or '
            '"zk://a:2181,b:2181/mesos"'
        )
    parts = [part.strip() for one in given for part in ([one] if one.startswith("zk://") else one.split(","))]
    zookeeper = [part for part in parts if part.startswith("zk://")]
    if zookeeper:
        if len(parts) > 1 or not re.fullmatch(r"zk://[^\s/]+/\S+", parts[0]):
            raise ConfigError(f'[mesos] master: {parts[0]!r:.80}; write one "zk://host:2181,host:2181/mesos"')
        return (parts[0],)
    masters = []
    for part in parts:
        found = ADDRESS.fullmatch(part)
        if found is None or int(found[1] or 1) > 65_535:
            raise ConfigError(f'[mesos] master: {part!r:.80} is no address; write "host:5050"')
        masters.append(part if found[1] else f"{part}:5050")
    return tuple(masters)


def _role(table: Mapping[str, Any]) -> str:
    value = _text(table, "role", "*")
    if value != "*" and not all(ROLE.fullmatch(part) and part != "*" for part in value.split("/")):
        raise ConfigError(f'[mesos] role: {value!r:.80} is no role; write role = "hpc" or "site/hpc"')
    return value


def _text(table: Mapping[str, Any], key: str, default: str, *, empty: bool = False) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value.isprintable() or not (value or empty):
        raise ConfigError(f'[mesos] {key}: {value!r:.80} is no text; write {key} = "…"')
    return value


def _truth(table: Mapping[str, Any], key: str, default: bool) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"[mesos] {key}: {value!r:.80} is no truth value; write true or false")
    return value


def _choice(table: Mapping[str, Any], key: str, choices: tuple[str, ...], default: str) -> str:
    value = table.get(key, default)
    if value not in choices:
        raise ConfigError(f"[mesos] {key}: {value!r:.80} is unknown; choose from {', '.join(choices)}")
    return str(value)


def _number(table: Mapping[str, Any], key: str, default: float, least: float, most: float) -> float:
    value = table.get(key, default)
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not least <= value <= most:
        raise ConfigError(f"[mesos] {key}: {value!r:.80} is no number from {least:g} to {most:g}")
    return float(value)


def _count(table: Mapping[str, Any], key: str, default: int) -> int:
    value = _number(table, key, default, 1, 1_000_000_000)
    if value != int(value):
        raise ConfigError(f"[mesos] {key}: {value:g} is no whole number; write {int(value)}")
    return int(value)
