"""`pool-oracle`: pools that know beforehand how much CPU every job uses and how long it runs: a yardstick, no bound.

Lends as `measured` does, with hosts' true use as their 95th percentile from their start on. Options and cost as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from asad.model import Floats, Snapshot
from asad.policy import Given
from asad.share.pool import Options, PoolPolicy


class PoolOracle(PoolPolicy):
    """Knows `demand` (fraction of the cores) and `run_s`, by row."""

    name = "pool-oracle"

    def __init__(
        self, demand: Floats, run_s: Floats, application_names: Sequence[str], options: Options | None = None
    ) -> None:
        super().__init__(application_names, options)
        self.demand, self.run_s = demand, run_s

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """With the truth of a replay."""
        assert given.truth is not None
        pools = Options(**options)._replace(poll_s=given.poll_s)
        return cls(given.truth.demand, given.truth.run_s, given.applications, pools)

    def _draw(self, snapshot: Snapshot) -> None:
        assert self._memo is not None
        self._memo.peak[snapshot.running] = self._memo.mean[snapshot.running] = self.demand[snapshot.running]
        super()._draw(snapshot)
