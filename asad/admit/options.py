"""What can be set of every scheme on a cluster."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """Options of every scheme on a cluster, by name as in asad.toml."""

    slot_s: float = 600.0
    """Length of a slot."""
    horizon: int = 144
    """Slots that are planned ahead."""
    again_s: float = 600.0
    """A job that was not admitted is asked for again so much later, if any job has ended meanwhile."""
    most_worth: float = 100.0
    """No hint of a user is worth more than this; rules of the configuration may be."""
    whole: bool = False
    """The cluster is one server instead of one a node: for jobs of several nodes, and for many nodes."""
    parameter_server_nodes: tuple[str, ...] = ()
    """Patterns of the names of nodes that hold parameter servers, and no workers."""
    server_share: float = 0.0
    """Part of each node that is set aside for parameter servers where no nodes are named for them."""
    ps_patience_s: float = 300.0
    """So long after its submission an array waits for the companion that it names; then it is not admitted."""
    budget: float = 100.0
    """What the hints of one user's jobs may claim together at one time, for each share that he has; 0: no bound."""
    shares: tuple[str, ...] = ()
    """`NAME=SHARES` of users who have not one share; NAME may be a pattern."""
