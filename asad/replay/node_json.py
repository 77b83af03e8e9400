"""Nodes in Slurm's JSON: `scontrol show nodes --json`, and `sinfo --json` of all versions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from asad.cluster import slurm_json
from asad.errors import MachineError
from asad.model import Machine
from asad.replay.described_nodes import (
    NO_NODE,
    DescribedNodes,
    Memory,
    cpu_numbers,
    cpus_kept,
    may_be_nodes,
    memory_of,
    names_in,
    shown_names,
)
from asad.replay.described_site import site_of_list, site_of_nodes
from asad.replay.node_records import is_down, listed_memory
from asad.replay.readers.accounting_log import quoted
from asad.replay.slurm_conf_partitions import Partition, time_limits_s

REMEDY = "give the output of `scontrol show nodes --json` or `sinfo --json`"
OTHERS = {
    "jobs": "jobs (squeue or sacct): that is a log, not a machine",
    "partitions": "partitions",
    "reservations": "reservations",
    "config": "a configuration",
    "licenses": "licenses",
    "steps": "steps of jobs",
    "statistics": "statistics of slurmctld",
}
"""What else Slurm writes as JSON, by key."""
UNKNOWN = (TypeError, ValueError, AttributeError, OverflowError)
_TRES_CPUS = re.compile(r"(?:^|,)cpu=(\d{1,9})", re.ASCII)
_BLANK = re.compile(r"\s*")


def from_json(
    path: str, text: str, notes: Sequence[str] = (), configured: Mapping[str, str] | None = None
) -> Machine:
    """The nodes of such a document, or of several; `configured` has settings of the cluster, keys in lower case.

    Raises MachineError, which names file, node and remedy.
    """
    found = DescribedNodes(path)
    of_partition: dict[str, list[str]] = {}
    groups: list[tuple[str, Any]] = []
    documents = _documents(path, text)
    for number, whole in enumerate(documents, 1):
        at = f"{path}: document {number}, " if len(documents) > 1 else f"{path}: "
        nodes, of_sinfo = _lists(at, whole)
        for index, entry in enumerate(nodes):
            with _Named(f"{at}nodes[{index}]", entry) as place:
                _take_node(found, place, entry, of_partition)
        groups += [(f"{at}sinfo[{index}]", group) for index, group in enumerate(of_sinfo)]
    shared: set[str] = set()
    partitions: dict[str, tuple[Partition, list[str]]] = {}
    _take_groups(found, groups, shared, partitions)
    if not found.nodes:
        why = found.instead() or "it lists no nodes that jobs could run on"
        raise MachineError(f"{path}: {why}; {REMEDY}")
    found.leave_out_without({name for names in of_partition.values() for name in names})
    found.nodes = dict(sorted(found.nodes.items()))
    counts, of_memory = listed_memory(found, configured or {})
    machine = found.machine(
        "Slurm's JSON", memory_counts=counts, notes=(*notes, *_notes(groups, shared), *of_memory)
    )
    if partitions:
        limits_s = time_limits_s([partition for partition, _ in partitions.values()])
        return replace(machine, time_limits_s=limits_s, site=site_of_nodes(found, list(partitions.values())))
    return replace(machine, site=site_of_list(found, of_partition))


class _Named:
    """Names the node of an entry in what goes wrong with it."""

    def __init__(self, place: str, entry: Any) -> None:
        self.place, self.entry = place, entry

    def __enter__(self) -> str:
        return self.place

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        name = self.entry.get("name") if isinstance(self.entry, dict) else None
        of = f"{self.place}: node {quoted(name)}" if isinstance(name, str) else self.place
        if isinstance(error, KeyError):
            raise MachineError(f"{of} lacks {quoted(str(error.args[0]))}; {REMEDY}") from error
        if isinstance(error, UNKNOWN):
            raise MachineError(f"{of} is garbled ({quoted(str(error))}); {REMEDY}") from error


def _documents(path: str, text: str) -> list[Any]:
    """The documents of a text, one after the other. Raises MachineError."""
    try:
        return [slurm_json.loads(text.encode("utf-8", "replace"))]
    except orjson.JSONDecodeError as error:
        found = _several(text)
        if not found:
            raise MachineError(
                f"{path}:{error.lineno}: column {error.colno}: this is not JSON: {error.msg}; write the file again"
            ) from error
        return found


def _several(text: str) -> list[Any]:
    """Documents that stand one after the other; none if it is anything else."""
    decoder, found, position = json.JSONDecoder(parse_constant=int), list[Any](), 0
    while match := _BLANK.match(text, position):
        if match.end() == len(text):
            break
        try:
            document, position = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return []
        found.append(document)
    return found


def _lists(at: str, whole: Any) -> tuple[list[Any], list[Any]]:
    """Nodes and groups of nodes of a document: whole answers, or what is in their lists. Raises MachineError."""
    if isinstance(whole, dict):
        if isinstance(whole.get("nodes"), list):
            return whole["nodes"], []
        if isinstance(whole.get("sinfo"), list):
            return [], whole["sinfo"]
        if _is_node(whole):
            return [whole], []
    elif isinstance(whole, list) and whole and all(map(_is_node, whole)):
        return whole, []
    other = (
        next((what for key, what in OTHERS.items() if key in whole), None)
        if isinstance(whole, dict)
        else None
    )
    problem = f"it lists {other}" if other else "there is no list `nodes` or `sinfo`"
    raise MachineError(f"{at}{problem}; {REMEDY}")


def _is_node(entry: Any) -> bool:
    return isinstance(entry, dict) and "name" in entry and "cpus" in entry


def _take_node(
    found: DescribedNodes, place: str, entry: Mapping[str, Any], of_partition: dict[str, list[str]]
) -> None:
    """Take in a node of the list `nodes`."""
    name = str(entry["name"])
    if not may_be_nodes(name) or name.lower() in NO_NODE:
        found.placeholders.setdefault(name, place)
        return
    states = _states(entry.get("state")) + _states(entry.get("state_flags"))
    if any("FUTURE" in state for state in states):
        found.future += 1
        return
    if is_down(states):
        found.down.add(name)
    for partition in dict.fromkeys(_words(entry.get("partitions"))):
        of_partition.setdefault(partition, []).append(name)
    cpus = int(_number(entry, "cpus"))
    limit = _number(entry, "specialized_memory" if "specialized_memory" in entry else "mem_spec_limit", 0.0)
    memory = memory_of(_number(entry, "real_memory", math.nan), limit)
    found.add(place, [name], cpus, _kept_of(entry, cpus), memory)
    features = entry.get("active_features" if "active_features" in entry else "features")
    _offer(found, place, [name], entry.get("gres"), features, entry.get("weight"))


def _offer(
    found: DescribedNodes, place: str, names: Sequence[str], gres: Any, features: Any, weight: Any
) -> None:
    """What else nodes have, in any version's shape."""
    number = slurm_json.plain(weight)
    text = (
        ""
        if number is None
        else str(int(number) if isinstance(number, float) and number.is_integer() else number)
    )
    found.offer(place, names, ",".join(_words(gres)), ",".join(_words(features)), text)


def _words(value: Any) -> list[str]:
    """A list of words, or one text of them with commas; none of anything else."""
    if isinstance(value, str):
        return [value] if value else []
    return [str(one) for one in value] if isinstance(value, list) else []


def _kept_of(entry: Mapping[str, Any], cpus: int) -> int:
    """CPUs of a node that are kept for the system."""
    effective = _number(entry, "effective_cpus", 0.0)
    if effective > 0:
        return max(0, cpus - int(effective))
    count = int(_number(entry, "specialized_cores", 0.0))
    if count:
        cores = int(_number(entry, "sockets", 1.0) * _number(entry, "cores", 1.0))
        return cpus_kept(cpus, cores, int(_number(entry, "threads", 1.0)), count, None)
    tres = (
        _TRES_CPUS.search(entry["tres"]) if isinstance(entry.get("tres"), str) else None
    )  # what 22.05 has of it
    return max(0, cpus - int(tres[1])) if tres and int(tres[1]) else 0


def _take_groups(
    found: DescribedNodes,
    groups: Sequence[tuple[str, Any]],
    shared: set[str],
    partitions: dict[str, tuple[Partition, list[str]]],
) -> None:
    """Take in the groups of equal nodes that newer versions of sinfo list: a node is in one for each partition.

    `shared` gets the partitions whose jobs share cores, `partitions` all of them by name, with the nodes of each.
    """
    nodes: dict[str, tuple[int, int, Memory]] = {}
    future: set[str] = set()
    unequal: set[str] = set()
    for place, group in groups:
        with _Named(place, group):
            low, high = _number(group["cpus"], "minimum"), _number(group["cpus"], "maximum")
            least, most = _number(group["memory"], "minimum"), _number(group["memory"], "maximum", 0.0)
            reserved = group.get("resource_spec") or {}
            memory = memory_of(least, _number(reserved, "memory", 0.0))
            listed = reserved.get("cpus")
            numbers = cpu_numbers(listed, int(low)) if isinstance(listed, str) and listed else None
            listed_nodes = [str(part) for part in group["nodes"]["nodes"]]
            placeholders = [part for part in listed_nodes if part.lower() in NO_NODE]
            found.placeholders.update((part, place) for part in placeholders)
            names = [
                one for part in listed_nodes if part not in placeholders for one in names_in(place, part)
            ]
            states = _states((group.get("node") or {}).get("state"))
            shared.update(_sharing(group.get("partition")))
            if (partition := _partition(place, group.get("partition"))) is not None:
                partitions.setdefault(partition.name, (partition, []))[1].extend(names)
            _offer(
                found,
                place,
                names,
                (group.get("gres") or {}).get("total"),
                (group.get("features") or {}).get("active"),
                (group.get("weight") or {}).get("minimum"),
            )
        if any("FUTURE" in state for state in states):
            future.update(names)
            continue
        if is_down(states):
            found.down.update(names)
        for name in names:
            before = nodes.get(name)
            if before is None or before[0] < low:
                nodes[name] = (int(low), len(numbers or ()), memory)
        if low != high or most > least:
            unequal.update(names)
    found.future += len(future - nodes.keys())
    for name, (cpus, kept, memory) in nodes.items():
        found.add(found.path, [name], cpus, kept, memory)
    if unequal:
        found.assume(
            "groups of unequal nodes are taken as their smallest: `scontrol show nodes --json` has each by itself",
            sorted(unequal),
        )


def _partition(place: str, partition: Any) -> Partition | None:
    """A partition of sinfo with its settings as slurm.conf has them; None if it has no name.

    Raises one of `UNKNOWN` where it has another shape.
    """
    if not isinstance(partition, dict) or not partition.get("name"):
        return None
    most, least = partition.get("maximums") or {}, partition.get("minimums") or {}
    usual, rank = partition.get("defaults") or {}, partition.get("priority") or {}
    state = partition.get("partition") or {}
    shared = str(state.get("oversubscribe") or "")
    if not shared and "oversubscribe" in most and slurm_json.plain(most.get("shares")) == 0:
        shared = "EXCLUSIVE"  # as 24.11 has it
    settings = {
        "maxtime": _text(most.get("time")),
        "maxnodes": _text(most.get("nodes")),
        "minnodes": _text(least.get("nodes")),
        "defaulttime": _text(usual.get("time")),
        "prioritytier": _text(rank.get("tier")),
        "priorityjobfactor": _text(rank.get("job_factor")),
        "oversubscribe": shared,
        "exclusiveuser": "YES" if str(state.get("exclusive") or "").upper() == "USER" else "",
        "default": "YES" if "DEFAULT" in _states(partition.get("flags")) else "",
        "state": next(iter(_words(state.get("state"))), ""),
        "qos": str((partition.get("qos") or {}).get("assigned") or ""),
    }
    return Partition(place, str(partition["name"]), settings, settings)


def _text(number: Any) -> str:
    """A number of Slurm's JSON as slurm.conf has it: empty if it is not set."""
    found = slurm_json.plain(number)
    if found is None or isinstance(found, bool):
        return ""
    if isinstance(found, float):
        return "UNLIMITED" if found == math.inf else str(int(found))
    return str(found)


def _sharing(partition: Any) -> list[str]:
    """The name of a partition of sinfo, if its jobs always share cores."""
    if not isinstance(partition, dict):
        return []
    over = (partition.get("maximums") or {}).get("oversubscribe") or {}
    flags = [str(flag).lower() for flag in slurm_json.words(over.get("flags"))]
    return [str(partition.get("name"))] if "force" in flags and _number(over, "jobs", 0.0) > 1 else []


def _notes(groups: Sequence[tuple[str, Any]], shared: set[str]) -> list[str]:
    """What `sinfo --json` does not say, and where jobs share cores."""
    notes = []
    if groups and not any(isinstance(group, dict) and group.get("resource_spec") for _, group in groups):
        notes.append(
            "`sinfo --json` does not say what nodes keep for the system (CoreSpecCount, MemSpecLimit): nothing is "
            "taken off; `scontrol show nodes --json` has it"
        )
    if shared:
        notes.append(
            f"jobs of partitions with OverSubscribe=FORCE ({shown_names(sorted(shared))}) share cores there, which is "
            "not replayed: they wait here where they did not wait there"
        )
    return notes


def _states(state: Any) -> list[str]:
    """The words of a state in upper case, in any version's shape."""
    words = [state] if isinstance(state, str) else state if isinstance(state, list) else []
    return [part for word in words for part in re.split(r"[^A-Z_]+", str(word).upper())]


def _number(entry: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A number in any of Slurm's notations; `default` if it is not there, or not set.

    Raises KeyError if it is missing and has none, ValueError for another.
    """
    number = slurm_json.plain(entry[key] if default is None else entry.get(key))
    if number is None and default is not None:
        return default
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 2**53:
        raise ValueError(f"{key} is {number}")
    return float(number)
