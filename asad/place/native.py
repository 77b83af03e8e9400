"""`native`: The cluster's own scheduler places.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from asad.place import PlacePolicy


class Native(PlacePolicy):
    """The cluster's own scheduler places."""

    name = "native"
