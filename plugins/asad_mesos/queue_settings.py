"""The table `[mesos.queue]` of asad.toml, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from asad.tables import PLUGIN_WORDS, Is, read_or_raise
from asad_mesos.job_spec import NAME


def _partition(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError('is no partition; write partition = "mesos"')
    return value


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`[mesos.queue]`"""

    partition: Annotated[str, Is(made=_partition)] = "mesos"
    """Partition of Slurm whose jobs run on Mesos; Slurm itself must not start them (`State=DOWN`)."""
    head: Annotated[int, Is(1, 10_000)] = 8
    """So many of its jobs wait for offers at one time."""
    patience_s: Annotated[float, Is(1, 31_536_000)] = 600.0
    """A job that Mesos has not started by then is returned to Slurm."""
    again_s: Annotated[float, Is(0, 31_536_000)] = 600.0
    """So long it is left alone then; also how often a job that Mesos cannot serve is looked at again."""
    arguments: bool = True
    """Take jobs whose scripts have arguments: Slurm reports them as one text, which is split at blanks."""
    timeout_s: Annotated[float, Is(0.1, 600)] = 10.0
    """A command of Slurm's that has not answered by then is killed."""


def read_queue(table: Any) -> QueueSettings:
    """Check the table `[mesos.queue]`. Raises ConfigError that names the key and the remedy."""
    settings: QueueSettings = read_or_raise(QueueSettings, table, PLUGIN_WORDS, ("mesos", "queue"))
    return settings
