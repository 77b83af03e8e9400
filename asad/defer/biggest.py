"""`biggest`: who brings most core-steps starts first.

Options: none. Cost: O(n log n), with the sort. Not in the OSDEC paper: greedy in its revenue r = c·d.
"""

from __future__ import annotations

from asad.defer.features import Weighted, weights


class Biggest(Weighted):
    """By cores times duration."""

    name = "biggest"
    weights = weights({"area": 1.0})
