"""The table `[mesos.queue]` of asad.toml, checked."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from asad.errors import ConfigError
from asad_mesos.jobs import NAME


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`[mesos.queue]`"""

    partition: str = "mesos"
    """Partition of Slurm whose jobs run on Mesos; Slurm itself must not start them (`State=DOWN`)."""
    head: int = 8
    """So many of its jobs wait for offers at one time, from 1."""
    patience_s: float = 600.0
    """A job that Mesos has not started by then is returned to Slurm."""
    again_s: float = 600.0
    """So long it is left alone then; also how often a job that Mesos cannot serve is looked at again."""
    arguments: bool = True
    """Take jobs whose scripts have arguments: Slurm reports them as one text, which is split at blanks."""
    timeout_s: float = 10.0
    """A command of Slurm's that has not answered by then is killed."""


def read_queue(table: Any) -> QueueSettings:
    """Check the table `[mesos.queue]`. Raises ConfigError that names the key and the mend."""
    if not isinstance(table, Mapping):
        raise ConfigError("[mesos] queue: it is no table; write [mesos.queue] and its keys below")
    known = QueueSettings.__dataclass_fields__
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:80], list(known), n=1)
            mend = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"[mesos.queue] {key[:80]}: there is no such setting; {mend}")
    default = QueueSettings()
    partition = table.get("partition", default.partition)
    if not isinstance(partition, str) or not NAME.fullmatch(partition):
        raise ConfigError(
            f'[mesos.queue] partition: {partition!r:.80} is no partition; write partition = "mesos"'
        )
    numbers = {}
    for key, least, most in (
        ("head", 1, 10_000),
        ("patience_s", 1, 31_536_000),
        ("again_s", 0, 31_536_000),
        ("timeout_s", 0.1, 600),
    ):
        value = table.get(key, getattr(default, key))
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not least <= value <= most or (key == "head" and value != int(value)):
            raise ConfigError(f"[mesos.queue] {key}: {value!r:.80} is no number from {least:g} to {most:g}")
        numbers[key] = value
    arguments = table.get("arguments", default.arguments)
    if not isinstance(arguments, bool):
        raise ConfigError(
            f"[mesos.queue] arguments: {arguments!r:.80} is no truth value; write true or false"
        )
    return QueueSettings(
        partition=partition,
        head=int(numbers["head"]),
        arguments=arguments,
        **{key: float(numbers[key]) for key in ("patience_s", "again_s", "timeout_s")},
    )
