"""Lists that whoever runs the cycles empties, and that stay short where nobody does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOST_SENTENCES = 1000
MOST_ENTRIES = 100_000


class Sentences(list[str]):
    """What happened outside of `apply`, in words; the last of many."""

    def add(self, sentences: Iterable[str]) -> None:
        """This has happened, too."""
        self += sentences
        del self[:-MOST_SENTENCES]


class Ledger(list[dict[str, Any]]):
    """Of every guest and host that has ended: what was lent, and by how much its limit was extended."""

    def enter(
        self, time_s: float, account: str, job_id: str, guest: bool, lent_core_s: float, extended_s: float
    ) -> None:
        """A guest, or a host, has ended."""
        self.append(
            {
                "time_s": time_s,
                "account": account,
                "job_id": job_id,
                "role": "guest" if guest else "host",
                "lent_core_s": float(lent_core_s),
                "extended_s": float(extended_s),
            }
        )
        del self[:-MOST_ENTRIES]
