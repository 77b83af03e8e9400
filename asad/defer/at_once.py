"""`at-once`: nothing is put off.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from asad.defer import DeferPolicy


class AtOnce(DeferPolicy):
    """Nothing is put off."""

    name = "at-once"
