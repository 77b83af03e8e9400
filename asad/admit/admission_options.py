"""What can be set of every scheme on a cluster."""

from __future__ import annotations

import math
from typing import NamedTuple

from asad.errors import UsageError


class Share(NamedTuple):
    """So many shares have the users whose names fit the pattern."""

    users: str
    shares: float


def read_share(text: str) -> Share:
    """`NAME=SHARES`, where NAME may be a pattern. Raises UsageError."""
    users, equals, number = text.rpartition("=")
    try:
        shares = float(number) if number.isascii() else math.nan
    except ValueError:
        shares = math.nan
    if not equals or not users.strip() or not 0.0 <= shares < math.inf:
        raise UsageError(f'{text!r:.80} is no user with a number of shares; write "ann=2" or "proj-*=0.5"')
    return Share(users.strip(), shares)


class Options(NamedTuple):
    """Options of every scheme on a cluster, by name as in asad.toml."""

    slot_s: float = 600.0
    """Length of a slot; from 1 second to a week."""
    horizon: int = 144
    """Slots that are planned ahead; 2 to 10000."""
    again_s: float = 600.0
    """A job that was not admitted is asked for again so much later, if any job has ended meanwhile."""
    most_worth: float = 100.0
    """No hint of a user is worth more than this; rules of the site may be."""
    whole: bool = False
    """Plan for the cluster as one server, instead of one a node: for jobs of several nodes, and for many nodes."""
    parameter_server_nodes: tuple[str, ...] = ()
    """Patterns of names (`"ps*"`) of nodes that hold parameter servers and no workers."""
    server_share: float = 0.0
    """Where no nodes are named for them: part of each node that is set aside for parameter servers; 0 to below 1."""
    ps_patience_s: float = 300.0
    """So long after its submission an array waits for the companion that its `ps=` names."""
    budget: float = 100.0
    """What the hints of one user's jobs may claim together at one time, for each share that he has; 0: no bound."""
    shares: tuple[str, ...] = ()
    """Users who have not one share: `["ann=2", "proj-*=0.5"]`, names or patterns; the first that fits holds."""

    def check(self) -> None:
        """Raises UsageError for what is out of range."""
        if not 1.0 <= self.slot_s <= 604_800.0:
            raise UsageError(f"slot_s = {self.slot_s:g}; give from 1 to 604800 seconds")
        if not 2 <= self.horizon <= 10_000:
            raise UsageError(f"horizon = {self.horizon}; give from 2 to 10000 slots")
        if not 0.0 <= self.server_share < 1.0:
            raise UsageError(f"server_share = {self.server_share:g}; give from 0 to below 1")
        if not 0.0 <= self.ps_patience_s < math.inf:
            raise UsageError(f"ps_patience_s = {self.ps_patience_s:g}; give 0 or more seconds")
        for text in self.shares:
            try:
                read_share(text)
            except UsageError as error:
                raise UsageError(f"shares: {error}") from error
