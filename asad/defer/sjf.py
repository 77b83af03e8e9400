"""`sjf`: the shortest job starts first.

Options: none. Cost: O(n log n), with the sort. A baseline of the OSDEC paper (section 5.2).
"""

from __future__ import annotations

from asad.defer.features import Weighted, weights


class Sjf(Weighted):
    """By duration."""

    name = "sjf"
    weights = weights({"duration": -1.0})
