"""What can be set of every scheme on a cluster."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

from asad.errors import UsageError
from asad.tables import Is


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


def _shares(texts: tuple[str, ...]) -> tuple[str, ...]:
    """As `read_share` reads them."""
    try:
        [read_share(text) for text in texts]
    except UsageError as error:
        raise ValueError(f": {error}") from None
    return texts


class Options(NamedTuple):
    """Options of every scheme on a cluster, by name as in asad.toml."""

    slot_s: Annotated[float, Is(least=1.0, most=604_800.0, unit="seconds")] = 600.0
    """Length of a slot."""
    horizon: Annotated[int, Is(least=2, most=10_000, unit="slots")] = 144
    """Slots that are planned ahead."""
    again_s: float = 600.0
    """A job that was not admitted is asked for again so much later, if any job has ended meanwhile."""
    most_worth: float = 100.0
    """No hint of a user is worth more than this; rules of the site may be."""
    whole: bool = False
    """Plan for the cluster as one server, instead of one a node: for jobs of several nodes, and for many nodes."""
    parameter_server_nodes: tuple[str, ...] = ()
    """Patterns of names (`"ps*"`) of nodes that hold parameter servers and no workers."""
    server_share: Annotated[float, Is(least=0.0, below=1.0)] = 0.0
    """Where no nodes are named for them: part of each node that is set aside for parameter servers."""
    ps_patience_s: float = 300.0
    """So long after its submission an array waits for the companion that its `ps=` names."""
    budget: float = 100.0
    """What the hints of one user's jobs may claim together at one time, for each share that he has; 0: no bound."""
    shares: Annotated[tuple[str, ...], Is(made=_shares)] = ()
    """Users who have not one share: `["ann=2", "proj-*=0.5"]`, names or patterns; the first that fits holds."""
    early: bool = False
    """What jobs without a plan hold goes to admitted jobs as soon as it falls free, before their slots come, where no
    other plan has it."""
