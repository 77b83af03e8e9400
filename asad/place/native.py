"""`native`: The cluster's own scheduler places.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from asad.place import PlacePolicy
from asad.policy import Given


class Native(PlacePolicy):
    """The cluster's own scheduler places."""

    name = "native"

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """There is one kind of it."""
        return cls()
