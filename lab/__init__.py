"""The lab: a real Slurm on this machine, real small jobs, and what they do under Slurm alone, static lending and asad.

`lab.hosts` measures what hosts lose beside guests, `lab.replayed` holds replays against what the real asad did,
`lab.queue` makes the log of a Slurm whose jobs wait for limits, priorities, GPUs and more.

Beside it `lab.fuzz`, which puts hostile input to every reader, and `lab.soak`, days of the daemon in minutes. Both need
no Slurm.

Run from the checkout, never installed: `python -m lab`.
"""

from __future__ import annotations


class LabError(Exception):
    """The lab cannot go on; the message names the place and the remedy."""
