"""`everyone`: Every job of the queue is admitted, as Slurm does.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from asad.admit import AdmitPolicy
from asad.policy import Given


class Everyone(AdmitPolicy):
    """Every job of the queue is admitted, as Slurm does."""

    name = "everyone"

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Self:
        """There is one kind of it."""
        return cls()
