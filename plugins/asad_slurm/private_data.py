"""Does Slurm show users no jobs but their own? Its `PrivateData`, asked for when somebody wants to know."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from asad.errors import ClusterError
from asad_slurm.slurm_conf import Slurm, read_config

ASK_S = 60.0
"""So long may what has become private be shown on."""


@runtime_checkable
class ShowsConfiguration(Protocol):
    """A way to Slurm that can show its configuration."""

    def configuration(self) -> str:
        """What `scontrol show config` writes. Raises ClusterError."""
        ...


class PrivateData:
    """What was configured when Slurm was last asked, at the most every minute."""

    def __init__(self, transport: object, monotonic: Callable[[], float]) -> None:
        self._transport, self._monotonic = transport, monotonic
        self._private = True
        """Until it is known: whoever shows jobs to others by mistake cannot take that back."""
        self._next_s = -math.inf

    def hides_jobs(self) -> bool:
        """Are jobs their users' alone? What was known last holds where Slurm does not answer."""
        now_s = self._monotonic()
        if now_s >= self._next_s and isinstance(self._transport, ShowsConfiguration):
            self._next_s = now_s + ASK_S
            try:
                slurm = Slurm(read_config(self._transport.configuration()), {})
            except ClusterError:
                return self._private
            self._private = "jobs" in slurm.words("PrivateData")
        return self._private
