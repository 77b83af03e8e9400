"""In which order equal nodes are tried: the seed draws it, so that seeds differ where nothing else is drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from asad.model import Ints, Machine
from asad.replay.recorded_starts import RecordedStarts
from asad.replay.site import site_of


def drawn_order(starts: RecordedStarts, seed: int) -> RecordedStarts:
    """The same jobs on the same nodes; nodes of equal size change places among each other, but with seed 0."""
    if seed == 0:
        return starts
    order = _order(starts.machine, starts.closed, seed)
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=order.dtype)
    machine, slots = starts.machine, starts.slots
    site = site_of(machine)
    rows = np.repeat(np.arange(len(slots.start)), np.diff(slots.at))
    parts = np.lexsort((place[slots.node], rows))
    reaches = np.repeat(np.arange(len(slots.reach_at) - 1), np.diff(slots.reach_at))
    reached = np.lexsort((place[slots.reach_node], reaches))
    return replace(
        starts,
        machine=replace(
            machine,
            node_names=tuple(machine.node_names[node] for node in order.tolist()),
            cores=machine.cores[order],
            memory_bytes=machine.memory_bytes[order],
            site=None if site is None else site.of_nodes(order),
        ),
        closed=starts.closed[order],
        slots=slots._replace(
            node=place[slots.node][parts],
            cores=slots.cores[parts],
            reach_node=place[slots.reach_node][reached],
        ),
    )


def _order(machine: Machine, closed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], seed: int) -> Ints:
    """(N,) which node stands at each place: nodes of the same cores and memory are drawn."""
    kinds = np.stack((machine.cores, np.nan_to_num(machine.memory_bytes, nan=-1.0), closed), axis=1)
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    order = np.arange(len(machine.cores), dtype=np.int32)
    draw = np.random.default_rng([seed, len(order)])
    for one in range(int(kind.max(initial=-1)) + 1):
        places = np.flatnonzero(kind.ravel() == one)
        order[places] = draw.permutation(places)
    return order
