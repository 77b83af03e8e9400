"""`linear`: a linear score of eight features, tuned by the cross-entropy method.

Options: `packing` ("skip-fit" or "prefix"): the weights tuned for that packing. They ship as `linear.toml` of the
installed profiles (`asad_profiles.defer`); `asactl defer fit` tunes others, and `weights` names their file. Cost:
O(n log n), with the sort. A yardstick beside the OSDEC paper; the method is Rubinstein's, *The Cross-Entropy Method for
Combinatorial and Continuous Optimization*.
"""

from __future__ import annotations

from asad.defer.deferral_options import PACKINGS
from asad.defer.features import Weighted, weights
from asad.errors import ConfigError, UsageError
from asad.model import Floats
from asad.tables import fitted

SCHEMA = 1


class Linear(Weighted):
    """A weighted sum with tuned weights."""

    name = "linear"

    def __init__(self, packing: str = "skip-fit", weights: str = "") -> None:
        """`weights`: a file of them; empty for those that ship. Raises UsageError, ConfigError."""
        if packing not in PACKINGS:
            raise UsageError(f"defer linear: packing {packing!r}; there are {', '.join(PACKINGS)}")
        self.weights = read_weights(packing, weights)


def read_weights(packing: str, path: str = "") -> Floats:
    """(8,) From a file (TOML), empty for the one that ships. Raises ConfigError with file, key and remedy."""
    document, path = fitted(path, "asad_profiles.defer/linear.toml", SCHEMA, "tune anew")
    table = document.get(packing)
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: has no weights [{packing}]; tune them, or take the other packing")
    try:
        return weights(table, f"{path}: [{packing}]")
    except UsageError as error:
        raise ConfigError(str(error)) from error
