"""What can be set of the port policies on a cluster: `[place.oga]` and so on of the configuration."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """Of all port policies; shares in [0, 1]."""

    ports: int = 16
    """Classes with a port of their own."""
    headroom: float = 0.1
    """Share of its cores that a host keeps beyond what it uses."""
    least_share: float = 0.05
    """A guest may use at least this of its nodes' cores (or all of its own), as long as they lend so much; with less
    none is placed, unless it runs at a fifth of its pace."""
    step: float = 0.05
    """A quota changes by no less than this part of the guest's cores; it falls by less where hosts need it."""
    memory: bool = True
    """Set memory limits of guests."""


class OgaOptions(NamedTuple):
    """Of `oga` besides."""

    mode: str = "reclaim"
    eta: float = 1.0
    """η_0; 0: in proportion to the mean capacity, as `bench oga` has it, which swings."""
    decay: float = 0.9999
    eta_least: float = 0.1
    """η falls no further than to this part of η_0."""
    reach: float = 8.0
    utility: str = "log"
    alpha: float = 1.0
    beta: float = 0.0
    """Overhead a unit of the dominant resource. Where two resources nearly tie for dominance, which one has it changes
    from cycle to cycle, and with it the allocation."""
