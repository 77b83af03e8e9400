"""The table `[mesos]` of asad.toml, checked."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from asad.errors import ConfigError
from asad.tables import PLUGIN_WORDS, Is, read_or_raise

ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-_]+)(?::(\d{1,5}))?", re.ASCII)
ROLE = re.compile(r"(?!-|\.{1,2}$)[^\s/\\\x00-\x1f\x7f]+")
"""A component of a role's path (Mesos: roles.md)."""


def _masters(value: Any) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given or not all(isinstance(one, str) for one in given):
        raise ValueError(
            'is no address; write "host:5050", ["a:5050", "b:5050"] or "zk://a:2181,b:2181/mesos"'
        )
    parts = [part.strip() for one in given for part in ([one] if one.startswith("zk://") else one.split(","))]
    if any(part.startswith("zk://") for part in parts):
        if len(parts) > 1 or not re.fullmatch(r"zk://[^\s/]+/\S+", parts[0]):
            raise ValueError('is no address of ZooKeeper; write one "zk://host:2181,host:2181/mesos"')
        return (parts[0],)
    found = [(part, ADDRESS.fullmatch(part)) for part in parts]
    if any(match is None or int(match[1] or 1) > 65_535 for _, match in found):
        raise ValueError('is no address; write "host:5050"')
    return tuple(part if match and match[1] else f"{part}:5050" for part, match in found)


def _name(value: str) -> str:
    if not value:
        raise ValueError("is no text; write what it is called, or leave it out")
    return value


def _role(value: str) -> str:
    if value != "*" and not all(ROLE.fullmatch(part) and part != "*" for part in value.split("/")):
        raise ValueError('is no role; write role = "hpc" or "site/hpc"')
    return value


@dataclass(frozen=True, slots=True)
class Settings:
    """How the framework presents itself, and how long it waits for what."""

    master: Annotated[tuple[str, ...], Is(made=_masters, raw=True)] = ("127.0.0.1:5050",)
    """`"host:5050"`, a list of masters of which any leads, or one `"zk://host:2181,host:2181/mesos"`."""
    user: Annotated[str, Is(made=_name)] = "root"
    """The framework's user, as Mesos wants one; each job runs under its own."""
    role: Annotated[str, Is(made=_role)] = "*"
    """Role whose resources are asked for."""
    principal: str = ""
    """Who we are for the master (Basic authentication). A framework stays with its principal: to change it, end the
    framework first (`asactl teardown`)."""
    secret_file: str = ""
    """File with the secret of `principal`, readable by the daemon alone."""
    framework: Annotated[str, Is(made=_name)] = "asad"
    """The framework's name, for people."""
    hostname: str = ""
    """Shown beside it; empty: this host's own."""
    failover_timeout_s: Annotated[float, Is(60, 31_536_000)] = 604_800.0
    """So long Mesos keeps our tasks when the daemon is gone."""
    hold_s: Annotated[float, Is(1, 3600)] = 30.0
    """No offer is withheld for longer."""
    refuse_s: Annotated[float, Is(0, 31_536_000)] = 5.0
    """What is declined is not offered again within this; within a minute while nobody waits."""
    heartbeats: Annotated[float, Is(1, 100)] = 3.0
    """So many heartbeats missing, and the connection is given up and made anew."""
    unreachable_s: Annotated[float, Is(0, 31_536_000)] = 300.0
    """A task whose agent cannot be reached for so long is taken for lost."""
    kill_grace_s: Annotated[float, Is(0, 86_400)] = 30.0
    """Between SIGTERM and SIGKILL."""
    retries: Annotated[int, Is(0, 1000)] = 3
    """So often a gang that lost tasks which ran is queued again."""
    gpus: bool = False
    """Take agents with GPUs (capability `GPU_RESOURCES`), which are offered to nobody else that asks for none."""
    revocable: bool = True
    """Run guests on revocable resources where an agent offers them."""
    inside: bool = True
    """Run guests within the executors of their hosts."""
    executor: Annotated[str, Is(made=_name)] = "asad-mesos-executor"
    """Command that starts the executor on an agent."""
    executor_memory_mb: Annotated[float, Is(1, 65_536)] = 32.0
    """Memory that it takes on each agent, once a gang and once a task of an elastic job."""
    executor_user: Literal["job", "root"] = "job"
    """Executors run as the `job`'s user, or as `root`, who can run guests of other users too (`share_users = "any"`;
    agents with `--switch_user`)."""
    depth: Annotated[int, Is(1, 100_000)] = 100
    """Waiting jobs that are looked at."""
    share_users: Literal["same", "any"] = "same"
    """Host and guest belong to the `same` user, or to `any`."""
    lend_multi_node: bool = False
    """Jobs on several nodes lend too."""
    window_s: Annotated[float, Is(0, 86_400)] = 60.0
    """A job counts as measured when the actors of all its nodes have watched it for this long."""
    timeout_s: Annotated[float, Is(0.1, 600)] = 10.0
    """A call that the master has not answered by then has failed."""
    user_jobs: Annotated[int, Is(1, 1_000_000_000)] = 1000
    """Jobs of one user that have not ended; who submits more is refused, as with the next five."""
    user_tasks: Annotated[int, Is(1, 1_000_000_000)] = 100_000
    """Tasks of these jobs."""
    user_mb: Annotated[int, Is(1, 1_000_000_000)] = 64
    """MiB of their scripts, commands and environments, as the journal has them."""
    most_jobs: Annotated[int, Is(1, 1_000_000_000)] = 10_000
    """Jobs of all users together."""
    most_tasks: Annotated[int, Is(1, 1_000_000_000)] = 1_000_000
    """Tasks of all users together."""
    most_mb: Annotated[int, Is(1, 1_000_000_000)] = 256
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
    settings: Settings = read_or_raise(Settings, table, PLUGIN_WORDS, ("mesos",))
    if bool(settings.principal) != bool(settings.secret_file):
        raise ConfigError("[mesos] principal and secret_file go together; give both, or neither")
    if ":" in settings.principal:
        raise ConfigError("[mesos] principal: it holds a colon, which Basic authentication cannot carry")
    return settings
