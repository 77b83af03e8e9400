"""What the policies that lend from pools have in common; `asad/share/asax.py` says how it goes together."""

from asad.share.pool.pool_options import Options
from asad.share.pool.pool_policy import PoolPolicy

__all__ = ["Options", "PoolPolicy"]
