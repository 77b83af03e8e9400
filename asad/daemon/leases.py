"""Leases are renewed by a completed cycle, never by a look alone: what binds jobs must not outlive whoever decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from asad.port import Lease, NodeLink, NodeReport

FAILURES = 3
"""After so many failed cycles in a row the node actors are sent who is a guest, and no quotas any more."""


class Leases:
    """The link to the node actors that a cluster plugin is given.

    What the plugin grants within a cycle is held back until `renew`. Nothing at all is sent at once: it only lifts.
    """

    def __init__(self, link: NodeLink) -> None:
        self._link = link
        self._decided: Mapping[str, Sequence[Lease]] = {}
        self._sent: Mapping[str, Sequence[Lease]] = {}

    def reports(self) -> Mapping[str, NodeReport]:
        """The latest report of every node whose actor answers."""
        return self._link.reports()

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        """At once: a guest is known before it can start."""
        return self._link.announce(node_names, job_id)

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        """What shall hold by node once the cycle is completed."""
        self._decided = leases
        if not any(leases.values()):
            self.renew()

    def renew(self) -> None:
        """A cycle was completed: what it decided holds for another lease."""
        self._sent = self._decided
        self._link.grant(self._sent)

    def renew_roles(self) -> None:
        """Cycles fail: who is a guest stays known, and quotas, memory limits and wide guests come to their end.

        Before anything was sent the actors know more from an earlier daemon than this one does.
        """
        if self._sent:
            self._link.grant({node: [_role(lease) for lease in some] for node, some in self._sent.items()})


def _role(lease: Lease) -> Lease:
    return replace(lease, quota=math.nan, memory_high_bytes=math.nan, widen=False)
