"""`fifo`: who was submitted first starts first.

Options: none. Cost: O(n log n), with the sort. A baseline of the OSDEC paper (section 5.2).
"""

from __future__ import annotations

from asad.defer.features import Weighted, weights


class Fifo(Weighted):
    """In the order of submission."""

    name = "fifo"
    weights = weights({"age": 1.0})
