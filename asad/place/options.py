"""What can be set of the port policies on a cluster: `[place.oga]` and so on of the configuration."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """Of all port policies; shares in [0, 1]."""

    ports: int = 16
    """Application classes with a port of their own, the first that are met (a port is free again when its application
    is forgotten); the rest has one together; 0 to 1000."""
    headroom: float = 0.1
    """Share of its cores that a host keeps beyond what it uses; 0 to below 1."""
    least_share: float = 0.05
    """A guest may use at least so much of its nodes' cores (or all of its own), as long as they lend it; with less
    none is placed, unless it runs at a fifth of its pace."""
    step: float = 0.05
    """A quota changes by no less than this part of the guest's cores, but falls by less where batch jobs need it."""
    memory: bool = True
    """Set memory limits of guests."""


class OgaOptions(NamedTuple):
    """Of `oga` besides."""

    mode: str = "reclaim"
    """`strict`, `reactive` or `reclaim`."""
    eta: float = 1.0
    """First step η₀, in quarters of a node; with much more, quotas swing from cycle to cycle; 0: in proportion to the
    mean capacity, as in the bench."""
    decay: float = 0.9999
    """Factor of η from cycle to cycle."""
    eta_least: float = 0.1
    """η falls no further than to this part of η₀, so that a daemon that never stops never stops learning."""
    reach: float = 8.0
    """In mode `reclaim` the step among the classes present is so many times η."""
    utility: str = "log"
    """What an amount is worth: `linear`, `log`, `reciprocal`, `poly`."""
    alpha: float = 1.0
    """α of the utility."""
    beta: float = 0.0
    """Overhead a unit of the resource of which a class has most; above 0, shares swing where two resources nearly
    tie."""
