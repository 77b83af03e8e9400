"""`asad`: the daemon beside Slurm. It does not exist yet; the command says so."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Always leaves with exit status 2."""
    print(
        "asad: the daemon is not there yet. It will watch a live queue, advise, and lend idle shares.\n"
        "What works today is the replay of an accounting log: asactl replay LOG",
        file=sys.stderr,
    )
    sys.exit(2)
