"""`asad-node`: the actor on every node. It does not exist yet; the command says so."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Always leaves with exit status 2."""
    print(
        "asad-node: the node actor is not there yet. It will measure jobs and write CPU quotas.\n"
        "What works today is the replay of an accounting log: asactl replay LOG",
        file=sys.stderr,
    )
    sys.exit(2)
