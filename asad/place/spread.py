"""`spread`: as `binpack`, with the instance first of which most is left.

Options: none. Cost of a slot: O(E · K · log R). Source: Zhao et al., section 4: Spreading, Kubernetes' LeastAllocated.
"""

from __future__ import annotations

from asad.place.binpack import BinPack


class Spread(BinPack):
    """The emptiest instance first."""

    name = "spread"
    emptiest_first = True
