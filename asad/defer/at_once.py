"""`at-once`: nothing is deferred.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from asad.defer import DeferPolicy


class AtOnce(DeferPolicy):
    """Nothing is deferred."""

    name = "at-once"
