"""`everyone`: Every job of the queue is admitted, as Slurm does.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from asad.admit import AdmitPolicy


class Everyone(AdmitPolicy):
    """Every job of the queue is admitted, as Slurm does."""

    name = "everyone"
