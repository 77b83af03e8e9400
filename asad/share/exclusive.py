"""`exclusive`: nobody shares; Slurm's own way.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from asad.policy import Given
from asad.share import SharePolicy


class Exclusive(SharePolicy):
    """Lends nothing, ever."""

    name = "exclusive"

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """There is one kind of it."""
        return cls()
