"""`at-once`: nothing is put off.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from asad.defer import DeferPolicy
from asad.policy import Given


class AtOnce(DeferPolicy):
    """Nothing is put off."""

    name = "at-once"

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """There is one kind of it."""
        return cls()
