"""The machine that a log describes: from SWF's header, from what jobs held of named nodes, or from what was in use."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.held_parts import (
    UNTRIED,
    Spread,
    even_parts,
    events_of,
    hours_that_come_twice,
    largest,
    needed,
    peaks,
    uneven_parts,
)
from asad.replay.machine import MOST_NODES, machine_of, spread, uniform
from asad.replay.readers import Holdings, Recorded

MOST_WHOLE = 20_000_000
"""Jobs over several nodes have whole cores of each if they have no more parts (8 bytes each)."""
FULL_AGAIN = 3
"""A node that was so full on as many occasions is taken for full."""


def infer(recorded: Recorded) -> Machine:
    """The machine that the log describes; `origin` says how far that is an assumption.

    SWF says it in its header. Else, with node lists, nodes are as small as what they held at one time allows. Else the
    machine has the most cores that were in use at one time, in nodes as large as the most that a job held of one.
    Raises MachineError if that is more than any machine has.
    """
    if recorded.format == "swf" and (machine := _from_swf_header(recorded.header)):
        return machine
    if recorded.held is not None:
        return _from_holdings(recorded, recorded.held)
    jobs = recorded.jobs
    peak = _peak_cores(recorded)
    wide = jobs.nodes > 0
    if not wide.any():
        return spread(
            min(peak, MOST_NODES),
            peak,
            f"inferred: {peak} cores were in use at one time; nodes are not recorded: one core each",
        )
    per_node = int(np.ceil(jobs.cores[wide] / jobs.nodes[wide]).max())
    nodes = max(-(-peak // per_node), int(jobs.nodes.max()))
    return uniform(
        nodes,
        per_node,
        np.nan,
        f"inferred: {peak} cores were in use at one time, and a job held {per_node} cores of one node: "
        f"{nodes} nodes of {per_node} cores; where jobs share cores it is too many, and where some were never used at "
        "one time too few",
    )


def _from_swf_header(header: Mapping[str, str]) -> Machine | None:
    def leading_number(key: str) -> int:
        """The largest of a key that may be repeated, each perhaps with commas: `1,024`."""
        texts = header.get(key, "").split("\n")
        found = [re.match(r"\d{1,3}(?:,\d{3}){1,2}(?!\d)|\d{1,9}", text, re.ASCII) for text in texts]
        return max((int(match[0].replace(",", "")) for match in found if match), default=0)

    nodes, cores = leading_number("MaxNodes"), leading_number("MaxProcs")
    if not cores:
        return None
    if not 1 <= nodes <= min(cores, MOST_NODES):
        return spread(
            min(cores, MOST_NODES), cores, f"SWF header: MaxProcs {cores}; nodes not given: one core each"
        )
    how = "" if cores % nodes == 0 else ", spread as evenly as can be"
    return spread(nodes, cores, f"SWF header: MaxNodes {nodes}, MaxProcs {cores}{how}")


def _peak_cores(recorded: Recorded) -> int:
    """The most cores in use at one time, as recorded; from the submission on if no start is known. At least those of
    the largest job."""
    jobs = recorded.jobs
    start = np.where(np.isnan(jobs.start_s), jobs.submit_s, jobs.start_s)
    when = np.concatenate((start + jobs.run_s, start))  # ends first where both are at one time
    change = np.concatenate((-jobs.cores.astype(np.int64), jobs.cores))
    order = np.argsort(when, kind="stable")
    in_use = np.cumsum(change[order])
    if recorded.local_times:  # what was held when such a night is over counts
        night = hours_that_come_twice(when[order])
        in_use[night & np.append(night[1:], False)] = 0
    return max(int(in_use.max()), int(jobs.cores.max()))


# ---------------------------------------------------------------------------------------------------- by node lists


def _from_holdings(recorded: Recorded, held: Holdings) -> Machine:
    """Nodes with as few cores as explain the log: that each job held what it held, where it did.

    How a job was spread over its nodes is not known. Even parts are assumed, and where uneven ones need fewer cores in
    all, those. Jobs that were suspended may have shared their cores: they count by themselves alone. What jobs
    without a node list held besides is put on nodes of its own.
    """
    path = recorded.path
    sets = held.lists.sets()
    if sets is None:
        raise MachineError(
            f"{path}: its node lists name more than {MOST_NODES} nodes; describe the machine with --machine or --nodes"
        )
    width = sets.sizes[held.node_set]
    several = width > 1
    offset = np.concatenate(([0], np.cumsum(np.where(several, width, 0))))
    where = (held.node_set, sets.begin, sets.first, sets.stop)
    nothing, nodes, together = np.zeros(0), len(sets.names), ~held.suspended
    events = events_of(held, recorded.local_times)

    in_parts = bool(several.any()) and offset[-1] <= MOST_WHOLE
    parts = even_parts(held.cores, np.where(several, width, 0), offset) if in_parts else nothing
    even = Spread(*where, held.cores / width, parts, offset, nodes)
    chosen, cores = even, needed(events, together, even)
    how, known_of = "jobs over several nodes are taken to have held even parts of them", UNTRIED
    if in_parts:
        parts_found, known_of = uneven_parts(events, together, held.cores, even, cores.sum())
        if parts_found is not None:
            uneven = even._replace(parts=parts_found)
            fewer = needed(events, together, uneven)
            if fewer.sum() < cores.sum():
                chosen, cores = uneven, fewer
                how = "some jobs over several nodes are taken to have held uneven parts of them"
            else:
                known_of = ""
    how = f"{how}{known_of}; " if several.any() else ""

    known = ~np.isnan(held.memory_bytes)
    of_memory = even._replace(each=np.where(known, held.memory_bytes, 0.0) / width, parts=nothing)
    memory = np.maximum(peaks(events, known & together, of_memory, cores)[0], largest(of_memory))
    memory[memory == 0] = np.nan
    _, full = peaks(events, together, chosen, cores)
    sure = int(np.count_nonzero(full >= FULL_AGAIN))
    # of lists that no job of these has, nodes are named that nobody held
    order = sorted(np.flatnonzero(cores > 0).tolist(), key=lambda node: sets.names[node])
    names, sizes = [sets.names[node] for node in order], cores.astype(np.int64)[order].tolist()
    origin = (
        f"inferred: {len(order)} nodes of the log's node lists, with as few cores as explain what they held at each "
        f"time; {sure} of them were as full on {FULL_AGAIN} occasions or more, the others may be larger; {how}where "
        "partitions share cores (OverSubscribe) nodes are smaller"
    )
    missing = _peak_cores(recorded) - sum(sizes) if held.unlisted else 0
    if missing > 0:
        size = max(sizes)
        more = [size] * (missing // size) + [missing % size] * (missing % size > 0)
        names += [f"unlisted{number}" for number in range(1, len(more) + 1)]
        sizes += more
        origin += f"; {len(more)} nodes more for what {held.unlisted} jobs without a node list held besides"
    of_nodes = [*memory[order].tolist(), *[np.nan] * (len(sizes) - len(order))]
    return machine_of(path, names, sizes, of_nodes, origin)
