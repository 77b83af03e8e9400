"""`edf`: whose latest start comes first starts first.

Options: none. Cost: O(n log n), with the sort. Not in the OSDEC paper, and better than its baselines: earliest deadline
first of Liu and Layland, *Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment*, with the latest
start for the deadline. What the stage falls back to when a policy errs.
"""

from __future__ import annotations

from asad.defer.features import Weighted, weights


class Edf(Weighted):
    """By the latest start."""

    name = "edf"
    weights = weights({"slack": -1.0})
