"""Gres of a log: of which kind each job holds most, and how many the nodes have, which no log says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats, Ints, JobLog


def gres_of(jobs: JobLog) -> tuple[Ints, Floats, tuple[str, ...]]:
    """Of each job the kind of gres that it holds most of (-1: none), how much of it, and the names of the kinds.

    A kind is a family (`gpu`), whatever its types: what users ask for is mostly any of them.
    """
    kind, amount = np.full(len(jobs), -1, np.int32), np.zeros(len(jobs))
    if jobs.gres is None:
        return kind, amount, ()
    kinds: dict[str, int] = {}
    of_text = []
    for text in jobs.gres_texts:
        most = (-1, 0.0)
        for one in text.split(","):
            name, _, number = one.rpartition(":")
            if number.isdecimal() and float(number) > most[1]:
                most = (kinds.setdefault(name.split(":")[0], len(kinds)), float(number))
        of_text.append(most)
    for row in np.flatnonzero(jobs.gres >= 0).tolist():
        kind[row], amount[row] = of_text[jobs.gres[row]]
    return kind, amount, tuple(kinds)


def most_held(
    kind: Ints,
    amount: Floats,
    start: Floats,
    stop: Floats,
    at: NDArray[np.int64],
    node: Ints,
    nodes: int,
    kinds: int,
) -> Floats:
    """(nodes, kinds) the most that was held of each node at one time.

    Row by row the kind, how much of it, start and stop of what ran; the nodes of a row are those from `at[row]` to
    `at[row + 1]`, and each has an even part.
    """
    most = np.zeros((nodes, kinds))
    with_gres = np.flatnonzero(kind >= 0)
    if not len(with_gres):
        return most
    width = np.diff(at)
    each = np.repeat(amount / np.maximum(width, 1), width)
    of_row = np.repeat(np.arange(len(width)), width)
    chosen = np.isin(of_row, with_gres)
    of_row, its_node, each = of_row[chosen], node[: len(of_row)][chosen], each[chosen]
    when = np.concatenate((stop[of_row], start[of_row]))
    change, order = np.concatenate((-each, each)), np.argsort(when, kind="stable")
    key = (np.concatenate((its_node, its_node)).astype(np.int64) * kinds + np.tile(kind[of_row], 2))[order]
    for one in np.unique(key).tolist():
        most[one // kinds, one % kinds] = np.cumsum(change[order][key == one]).max()
    return most
