"""Experts as flat arrays, and their evaluation in compiled code: what the learner calls at every decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.errors import ConfigError
from asad.experts.state import INDEX
from asad.experts.tree import Expert, Node, faults


class CompiledExperts(NamedTuple):
    """n experts over m actions: one table of entries (nodes and leaves of all); plain arrays, for numba.

    Names of leaves are apart: see `leaf_names`.
    """

    feature: NDArray[np.int32]
    """(entries,) place of the tested feature in the state, -1 for a leaf."""
    threshold: NDArray[np.float32]
    """(entries,) `x > threshold` goes to `yes`, `x <= threshold` to `no`, NaN to `unknown`."""
    yes: NDArray[np.int32]
    no: NDArray[np.int32]
    unknown: NDArray[np.int32]
    """(entries,) entry to go on with; of a leaf, itself."""
    leaf: NDArray[np.int32]
    """(entries,) number of the leaf, -1 for a node."""
    root: NDArray[np.int32]
    """(n,) entry at which each expert starts."""
    leaf_p: NDArray[np.float64]
    """(leaves, m) the distributions; each row sums to 1."""


def compile_experts(experts: Sequence[Expert]) -> CompiledExperts:
    """The experts as arrays, in their order. Raises ConfigError if there are none, one is not sound or
    actions differ.
    """
    if not experts:
        raise ConfigError("experts: there are none; name a folder with files of experts")
    for expert in experts:
        for fault in faults(expert):
            place = ".".join(fault.key)
            raise ConfigError(f"expert {expert.name!r}: {place}: {fault.problem}; {fault.remedy}")
        if expert.actions != experts[0].actions:
            raise ConfigError(
                f"expert {expert.name!r}: its actions differ from those of {experts[0].name!r}; "
                "give all experts the same"
            )
    rows: list[tuple[int, float, int, int, int, int]] = []
    root: list[int] = []
    leaf_p: list[tuple[float, ...]] = []
    for expert in experts:
        entry = {name: len(rows) + place for place, name in enumerate(expert.by_name)}
        root.append(entry[expert.root])
        for name, one in expert.by_name.items():
            if isinstance(one, Node):
                rows.append(
                    (INDEX[one.feature], one.above, entry[one.yes], entry[one.no], entry[one.unknown], -1)
                )
            else:
                rows.append((-1, 0.0, entry[name], entry[name], entry[name], len(leaf_p)))
                leaf_p.append(one.lend)
    feature, threshold, yes, no, unknown, leaf = zip(*rows, strict=True)
    p = np.array(leaf_p, dtype=np.float64)
    return CompiledExperts(
        np.array(feature, dtype=np.int32),
        np.array(threshold, dtype=np.float32),
        np.array(yes, dtype=np.int32),
        np.array(no, dtype=np.int32),
        np.array(unknown, dtype=np.int32),
        np.array(leaf, dtype=np.int32),
        np.array(root, dtype=np.int32),
        p,
    )


def leaf_names(experts: Sequence[Expert]) -> tuple[str, ...]:
    """Name of each leaf of `compile_experts(experts)`, by its number."""
    return tuple(leaf.name for expert in experts for leaf in expert.leaves)


@compiled(nogil=True)
def evaluate_all(
    compiled: CompiledExperts, x: NDArray[np.float32], p: NDArray[np.float64], leaf: NDArray[np.int32]
) -> None:
    """What every expert says of the state `x` (features,) in float32.

    Fills p[i, :] (n, m) with expert i's distribution and leaf[i] (n,) with the number of the leaf it
    reached. Allocates nothing; shapes are the caller's promise.
    """
    for i in range(compiled.root.size):
        entry = compiled.root[i]
        while compiled.leaf[entry] < 0:
            value = x[compiled.feature[entry]]
            if value > compiled.threshold[entry]:
                entry = compiled.yes[entry]
            elif value <= compiled.threshold[entry]:
                entry = compiled.no[entry]
            else:
                entry = compiled.unknown[entry]
        number = compiled.leaf[entry]
        leaf[i] = number
        for j in range(compiled.leaf_p.shape[1]):
            p[i, j] = compiled.leaf_p[number, j]
