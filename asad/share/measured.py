"""`measured`: every node lends all that its jobs were measured to leave, and no expert is asked.

Pools as those of `asax` (docs/explanation/asax.md), with each host's spare lent whole: what Koordinator's CPU suppress
and collocation agents do. The baseline that shows what experts add. Options: `asad.share.pool.Options`, as far as they
are not of experts. Cost as there.
"""

from __future__ import annotations

from asad.share.pool import PoolPolicy


class Measured(PoolPolicy):
    """Lends what measurement leaves."""

    name = "measured"
