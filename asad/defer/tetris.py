"""`tetris`: who fills most of what is free starts first, the shorter of those alike.

Options: none. Cost: O(n log n), with the sort. A baseline of the OSDEC paper (section 5.2), after Grandl et al.,
*Multi-Resource Packing for Cluster Schedulers*, section 3: the alignment of what is asked with what is free (of one
resource: c times the same number for all), less ε times what is left to run, with ε = 1/4 of a core a step.
"""

from __future__ import annotations

from asad.defer.features import Weighted, weights


class Tetris(Weighted):
    """By alignment, then by duration."""

    name = "tetris"
    weights = weights({"cores": 1.0, "duration": -0.25})
