"""`measured`: every node lends all that its jobs were measured to leave, and no expert is asked.

Pools as those of `asax` (docs/explanation/asax.md), with each host's spare lent whole: what Koordinator's CPU suppress
and collocation agents do. The baseline that shows what experts add. Options: `asad.share.pool.Options`, as far as they
are not of experts. Cost a cycle: O(cores + waiting · nodes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from asad.policy import Given
from asad.share.pool import Options, PoolPolicy


class Measured(PoolPolicy):
    """Lends what measurement leaves."""

    name = "measured"

    def __init__(self, application_names: Sequence[str], options: Options | None = None) -> None:
        super().__init__(application_names, options or Options())

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the interval of the cycle."""
        return cls(given.applications, Options(**options)._replace(poll_s=given.poll_s))
