"""`exclusive`: nobody shares; Slurm's own way.

Options: none. Cost: none. The baseline of the stage.
"""

from __future__ import annotations

from asad.share import SharePolicy


class Exclusive(SharePolicy):
    """Lends nothing, ever."""

    name = "exclusive"
