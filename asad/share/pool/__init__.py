"""What the policies that lend from pools have in common; `asad/share/asax.py` tells how it goes together."""

from asad.share.pool.options import Options
from asad.share.pool.policy import PoolPolicy

__all__ = ["Options", "PoolPolicy"]
