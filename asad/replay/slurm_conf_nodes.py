"""slurm.conf as Slurm reads it: lines, includes, and the nodes that its NodeName lines describe.

What the manual leaves open is as slurmctld does it: how lines go on, what CPUs are reset to, what is kept for the
system, which nodes no job can use, and whether memory is something that jobs wait for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.described_nodes import (
    NO_NODE,
    UNFILLED,
    WAYS,
    DescribedNodes,
    Memory,
    cpu_numbers,
    cpus_kept,
    may_be_nodes,
    memory_of,
    names_in,
    shown_names,
    split_names,
)
from asad.replay.described_site import site_of_nodes
from asad.replay.passed_over import PassedOver
from asad.replay.readers.accounting_log import quoted
from asad.replay.scheduled_memory import memory_counts
from asad.replay.scheduling_settings import OF_SCHEDULING, backfill_rules, priority_rules
from asad.replay.site import Site
from asad.replay.slurm_conf_lines import (
    KEY,
    OF_A_NODE,
    SETTINGS,
    SIZES,
    Line,
    logical_lines,
    loose_pairs,
    outside_quotes,
    pairs,
    whole,
)
from asad.replay.slurm_conf_partitions import (
    NodeLists,
    Partition,
    forgive_missing,
    leave_out_of_no_partition,
    partitions_of,
    sharing_notes,
    time_limits_s,
)

DEEPEST_INCLUDE = 8
MOST_INCLUDED = 1000

_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*(.*)", re.IGNORECASE)
_NODES_LATER = re.compile(r"\snodename\s*=", re.IGNORECASE)
_OLD_SLURMD = re.compile(
    r"\s*ClusterName=(?:\(null\)\s+(?=NodeName=)|\S+\s+(?=NodeName=\S+ CPUs=\d+ (?:Procs=\d+ )?(?:Boards|Sockets)=\d))"
)
"""What `slurmd -C` of old versions prints before its node."""
_OF_TEMPLATE = ("{", "<%", "%")
"""How lines begin that only a template has."""

OF_A_RECORD = frozenset(
    {"arch", "os", "cpualloc", "cpuefctv", "cputot", "cpuload", "allocmem", "freemem", "cfgtres"}
)
"""Keys of `scontrol show node` that slurm.conf does not have."""
OF_WHOLE = frozenset({"slurmctldhost", "controlmachine", "authtype", "slurmuser"})
"""Keys of a whole slurm.conf, for which Slurm's defaults hold of what it does not say."""
OF_GRES = frozenset({"name", "file", "cores", "autodetect", "links", "multiplefiles"})
"""Keys of gres.conf, which has lines that begin with NodeName."""


@dataclass(slots=True)
class _Conf:
    """What has been read of a slurm.conf."""

    main: Path
    read: Callable[[Path], str]
    found: DescribedNodes
    settings: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    """Of NodeName=DEFAULT lines so far."""
    features: dict[str, set[str]] = field(default_factory=dict)
    """By feature, the nodes that have it."""
    sizeless: list[tuple[str, str]] = field(default_factory=list)
    """Nodes of which no CPUs are given, with their places."""
    partitions: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Places and settings of PartitionName lines."""
    node_sets: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The same of NodeSet lines."""
    down_lists: list[tuple[str, str]] = field(default_factory=list)
    """Nodes that are down, with their places."""
    missing: list[str] = field(default_factory=list)
    """Included files that are not there, with their places."""
    elsewhere: list[str] = field(default_factory=list)
    """Included files that were found in the folder of the main file."""
    included: int = 0
    other_keys: set[str] = field(default_factory=set)
    """Keys with which other lines begin."""


def from_slurm_conf(
    path: Path, read: Callable[[Path], str], configured: Mapping[str, str] | None = None
) -> Machine:
    """The nodes of a slurm.conf, and what it says of scheduling; `read` gives the text of a file.

    `configured` has settings (keys in lower case) that are known better than from the file. Raises MachineError, which
    names file and line.
    """
    conf = _Conf(path, read, DescribedNodes(str(path)))
    for line in _lines(conf, path, read(path), ()):
        _take(conf, line)
    found = conf.found
    if not found.nodes:
        raise MachineError(f"{_instead(conf)}; give {WAYS}")
    _refuse_reported_sizes(conf)
    partitions = partitions_of(conf.partitions)
    lists = NodeLists(conf.node_sets, conf.features)
    if conf.missing:
        forgive_missing(found, conf.missing[0], partitions, lists)
    leave_out_of_no_partition(found, partitions, lists)
    for place, text in conf.down_lists:
        names = lists.names(place, text)
        found.down.update(found.nodes if names is None else names)
    counts, why = memory_counts(found, {**conf.settings, **(configured or {})}, partitions)
    notes = (*_notes(conf), *sharing_notes(partitions), *why)
    machine = found.machine("its NodeName lines", memory_counts=counts, notes=notes)
    return replace(machine, time_limits_s=time_limits_s(partitions), site=_site(conf, partitions, lists))


def _site(conf: _Conf, partitions: Sequence[Partition], lists: NodeLists) -> Site:
    """What the file says of scheduling. Raises MachineError."""
    place, over = str(conf.main), PassedOver()
    is_whole = bool(conf.settings.keys() & (OF_SCHEDULING | {"clustername"}) or OF_WHOLE & conf.other_keys)
    return site_of_nodes(
        conf.found,
        [
            (partition, lists.names(partition.place, partition.settings.get("nodes", "")))
            for partition in partitions
            if partition.name
        ],
        priority=priority_rules(conf.settings, place, over) if is_whole else None,
        backfill=backfill_rules(conf.settings, place, over) if is_whole else None,
        over=over,
    )


# --------------------------------------------------------------------------------------------------------- lines


def _lines(conf: _Conf, path: Path, text: str, by: tuple[Path, ...]) -> Iterator[Line]:
    """Lines of a file, included ones in the place of the lines that name them; `by` are the files that include it."""
    by = (*by, path.resolve())
    for line in logical_lines(str(path), text):
        match = _INCLUDE.fullmatch(line.text)
        if not match:
            yield line
            continue
        conf.included += 1
        if conf.included > MOST_INCLUDED:
            raise MachineError(
                f"{line.place}: more than {MOST_INCLUDED} files are included; correct the Include lines"
            )
        included = _included(conf, line.place, path, match[1].strip("\"'"))
        if included is None:
            continue
        if included.resolve() in by:
            raise MachineError(f"{line.place}: Include {quoted(match[1])} includes itself; remove the line")
        if len(by) > DEEPEST_INCLUDE:
            raise MachineError(f"{line.place}: Include goes deeper than {DEEPEST_INCLUDE} files; join some")
        yield from _lines(conf, included, conf.read(included), by)


def _included(conf: _Conf, place: str, by: Path, name: str) -> Path | None:
    """The file that is included under that name; None if it is missing.

    Its path begins at the folder of the main file, or, as older versions have it, at that of the file that includes it.
    What has an absolute path is looked for beside the main file as well: the files may have been copied together.
    """
    if "%c" in name:
        cluster = conf.settings.get("clustername")
        if cluster is None:
            raise MachineError(
                f"{place}: Include {quoted(name)} needs ClusterName, which stands nowhere above it; write it there"
            )
        name = name.replace("%c", cluster.lower())
    if not name.isprintable():
        raise MachineError(f"{place}: Include {quoted(name)} is no name of a file; correct it")
    asked = Path(name)
    if asked.is_absolute():
        beside = [conf.main.parent.joinpath(*asked.parts[at:]) for at in range(1, len(asked.parts))]
        candidates = [asked, *beside]
    else:
        candidates = [conf.main.parent / asked, by.parent / asked]
    for candidate in candidates:
        if candidate.is_file():
            if asked.is_absolute() and candidate != asked:
                conf.elsewhere.append(f"{name} (read from {candidate})")
            return candidate
    if candidates[0].exists():
        raise MachineError(f"{place}: {candidates[0]} is no file that can be included; correct the path")
    conf.missing.append(f"{place}: there is no file {candidates[0]} to include")
    return None


# ----------------------------------------------------------------------------------------------------- settings


def _take(conf: _Conf, line: Line) -> None:
    """Take in a line that is no Include."""
    if old := _OLD_SLURMD.match(line.text):
        line = Line(line.place, line.text[old.end() :])
    match = KEY.match(line.text)
    key = match[1].lower() if match else ""
    if key == "nodename":
        _take_nodes(conf, line.place, pairs(line))
    elif key in OF_A_NODE:
        raise MachineError(
            f"{line.place}: {quoted(line.text)} is of a node, and begins a line; end the line before it with a "
            r"backslash, or give the JSON of `scontrol show nodes --json`"
        )
    elif key == "partitionname":
        conf.partitions.append((line.place, dict(loose_pairs(line.text))))
    elif key == "nodeset":
        conf.node_sets.append((line.place, dict(loose_pairs(line.text))))
    elif key == "downnodes":
        settings = dict(loose_pairs(line.text))
        if settings.get("state", "down").lower().startswith(("down", "drain", "fail")):
            conf.down_lists.append((line.place, settings.get("downnodes", "")))
    elif key in SETTINGS | OF_SCHEDULING:
        known = SETTINGS | OF_SCHEDULING
        conf.settings.update((name, value) for name, value in loose_pairs(line.text) if name in known)
    elif line.text.lstrip().startswith(_OF_TEMPLATE):
        raise MachineError(f"{line.place}: {UNFILLED.format(quoted(line.text))}")
    else:
        conf.other_keys.add(key or line.text.split(maxsplit=1)[0].lower()[:40])
    if key not in ("nodename", "switchname", "name") and _NODES_LATER.search(outside_quotes(line.text)):
        raise MachineError(f"{line.place}: NodeName stands behind another setting; begin a line with it")


# -------------------------------------------------------------------------------------------------------- nodes


def _take_nodes(conf: _Conf, place: str, settings: dict[str, str]) -> None:
    """Take in a NodeName line."""
    found, name = conf.found, settings.pop("nodename")
    if strange := sorted(OF_A_RECORD & settings.keys()):
        raise MachineError(
            f"{place}: {strange[0]} is of `scontrol show node`, and other lines of its records are missing; give its "
            "whole output, or that of `scontrol show nodes --json`"
        )
    if OF_GRES & settings.keys():
        raise MachineError(f"{place}: this is gres.conf: it does not say what nodes there are; give {WAYS}")
    if name.upper() == "DEFAULT":
        conf.defaults.update(settings)
        return
    if name.upper() == "ALL":
        raise MachineError(f"{place}: NodeName=ALL is refused by Slurm; name the nodes, like n[1-4]")
    own, settings = settings.keys(), {**conf.defaults, **settings}
    if own & {"feature", "features"}:
        settings = {
            key: value for key, value in settings.items() if key in own or not key.startswith("feature")
        }
    names: list[str] = []
    for part in split_names(name):
        if part.lower() in NO_NODE and not (SIZES & own and may_be_nodes(part)):
            found.placeholders.setdefault(part, place)
        else:
            names += names_in(place, part)
    if not names:
        return
    state = settings.get("state", "").upper()
    if state.startswith("FUTURE"):
        found.future += len(names)
        for one in names:
            found.claim(place, one)
        return
    if state.startswith(("DOWN", "DRAIN", "FAIL")):
        found.down.update(names)
    features = settings.get("features", settings.get("feature", ""))
    for feature in features.split(","):
        if feature.strip():
            conf.features.setdefault(feature.strip(), set()).update(names)
    size = _size(conf, place, settings, names)
    found.add(place, names, size.cpus, size.kept, size.memory)
    found.offer(place, names, settings.get("gres", ""), features, settings.get("weight", ""))


class _Size(NamedTuple):
    cpus: int
    kept: int
    memory: Memory


def _size(conf: _Conf, place: str, settings: Mapping[str, str], names: list[str]) -> _Size:
    """What Slurm makes of the sizes that a NodeName line gives."""

    def given(key: str, default: int) -> int:
        return whole(place, settings, key, default)

    found = conf.found
    cores, threads = max(given("corespersocket", 1), 1), max(given("threadspercore", 1), 1)
    boards, per_board = max(given("boards", 1), 1), settings.get("socketsperboard")
    stated = "cpus" if "cpus" in settings else "procs" if "procs" in settings else None
    cpus = max(given(stated, 1), 1) if stated else 0
    if per_board is not None:
        sockets = boards * max(given("socketsperboard", 1), 1)
    elif "sockets" in settings:
        sockets = max(given("sockets", 1), 1)
    elif cpus and cpus % (cores * threads) == 0:
        sockets = cpus // (cores * threads)
    else:
        sockets = boards
    threads_of_all = sockets * cores * threads
    if not stated:
        if not (SIZES - {"realmemory"}) & settings.keys():
            found.assume("no CPUs are given of some nodes, so Slurm counts one each", names)
            conf.sizeless.append((place, names[0]))
        cpus = threads_of_all
    elif cpus not in (sockets, sockets * cores, threads_of_all):
        found.assume(
            f"{place}: CPUs={cpus} are neither the sockets, nor the cores, nor the threads of a node, so Slurm counts "
            f"{threads_of_all}",
            names,
        )
        cpus = threads_of_all
    count, spec_list = given("corespeccount", 0), None
    if "cpuspeclist" in settings:
        spec_list = cpu_numbers(settings["cpuspeclist"], cpus)
        if spec_list is None:
            found.assume(f"{place}: CpuSpecList names CPUs that are not there, so Slurm ignores it", names)
    if count >= sockets * cores and spec_list is None:
        found.assume(f"{place}: CoreSpecCount={count} would leave no core, so Slurm keeps 1", names)
    kept = cpus_kept(cpus, sockets * cores, threads, count, spec_list)
    real = given("realmemory", 0)
    return _Size(cpus, kept, memory_of(real, given("memspeclimit", 0)))


# --------------------------------------------------------------------------------------------- of the whole file


def _refuse_reported_sizes(conf: _Conf) -> None:
    """Raise MachineError where sizes are what nodes report of themselves, and the file has none."""
    if conf.settings.get("fastschedule") == "0" and conf.sizeless:
        place, name = conf.sizeless[0]
        raise MachineError(
            f"{place}: node {quoted(name)} has no CPUs here, since with FastSchedule=0 nodes report their sizes; give "
            "the output of `scontrol show node`"
        )


def _notes(conf: _Conf) -> Iterator[str]:
    for missing in conf.missing:
        yield f"{missing}: it describes no node of the partitions, so it is left out"
    for file in conf.elsewhere:
        yield f"{file}: it stands beside {conf.main.name}"
    if conf.settings.get("fastschedule") == "0":
        yield "FastSchedule=0: nodes count with the sizes of the file, though there they count with what they report"
    most = conf.settings.get("maxnodecount", "")
    if most.isascii() and most.isdecimal() and 0 < len(most) <= 9 and int(most) > len(conf.found.nodes):
        yield (
            f"{conf.found.path} allows for dynamic nodes (MaxNodeCount={int(most)}), which it does not describe: give "
            "the JSON of `scontrol show nodes --json` for those that are there"
        )


INSTEAD = (
    (
        {"switchname", "blockname"},
        "this is topology.conf: it says how nodes are connected, not what they are",
    ),
    (
        {
            *("cgroupplugin", "cgroupautomount", "cgroupmountpoint", "cgroupreleaseagentdir", "taskaffinity"),
            *(
                "constraincores",
                "constraindevices",
                "constrainramspace",
                "constrainswapspace",
                "constrainkmemspace",
            ),
            *(
                "allowedramspace",
                "allowedswapspace",
                "allowedkmemspace",
                "allowedcores",
                "alloweddevicesfile",
            ),
            *("maxrampercent", "maxswappercent", "minramspace", "memoryswappiness"),
            *("ignoresystemd", "ignoresystemdonfailure", "enablecontrollers", "systemdtimeout"),
        },
        "this is cgroup.conf",
    ),
    ({"dbdhost", "dbdaddr", "storagehost"}, "this is slurmdbd.conf"),
    ({"autodetect", "name"}, "this is gres.conf: it does not say what nodes there are"),
)
"""Keys of other files, and what to say of them."""


def _instead(conf: _Conf) -> str:
    """Where there is no node, and why, in words."""
    path, found, nothing = conf.main, conf.found, "no NodeName line describes a node"
    for keys, what in INSTEAD:
        if keys & conf.other_keys:
            return f"{path}: {what}"
    if conf.missing:
        return f"{path}: {nothing}, and a file is missing ({conf.missing[0]})"
    if why := found.instead():
        return f"{path}: {why}"
    if found.placeholders:
        return f"{next(iter(found.placeholders.values()))}: {nothing} but {shown_names(list(found.placeholders))}"
    if "maxnodecount" in conf.settings or conf.node_sets:
        return f"{path}: {nothing}: its nodes are dynamic"
    if not (conf.other_keys or conf.settings or conf.partitions):
        return f"{path}: it has nothing but comments"
    return f"{path}: {nothing}"
