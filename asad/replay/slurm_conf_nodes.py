"""slurm.conf as Slurm reads it: lines, includes, and the nodes that its NodeName lines describe.

What the manual leaves open is as slurmctld does it: how lines go on, what CPUs are reset to, what is kept for the
system, and whether memory is something that jobs wait for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.described_nodes import (
    NO_NODE,
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
from asad.replay.readers.accounting_log import quoted

DEEPEST_INCLUDE = 8
MOST_INCLUDED = 1000

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*(\\)\s*$")
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_LOOSE_PAIR = re.compile(r'(?<!\S)([A-Za-z0-9_.]++)\s*+[-*+/]?=\s*+(?:"([^"]*)"|(\S++))(?=\s|$)')
"""Found anywhere in a line, in time that grows as its length."""
_KEY = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-*+/]?=")
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*(.*)", re.IGNORECASE)
_NODES_LATER = re.compile(r"\snodename\s*=", re.IGNORECASE)

SETTINGS = frozenset({"clustername", "selecttype", "selecttypeparameters", "maxnodecount"})
"""What of the rest of the file has a meaning for its nodes."""
SIZES = frozenset(
    {
        "cpus",
        "procs",
        "boards",
        "sockets",
        "socketsperboard",
        "corespersocket",
        "threadspercore",
        "realmemory",
    }
)
OF_A_NODE = SIZES | {
    "corespeccount",
    "cpuspeclist",
    "memspeclimit",
    "nodehostname",
    "nodeaddr",
    "tmpdisk",
    "weight",
}
"""Keys that stand on NodeName lines alone."""
ALONE = SETTINGS | {"nodename", "partitionname", "downnodes", "nodeset"}
"""Keys that begin a line, and stand nowhere else."""
OF_A_RECORD = frozenset(
    {"arch", "os", "cpualloc", "cpuefctv", "cputot", "cpuload", "allocmem", "freemem", "cfgtres"}
)
"""Keys of `scontrol show node` that slurm.conf does not have."""
OF_GRES = frozenset({"name", "file", "cores", "autodetect", "links", "multiplefiles"})
"""Keys of gres.conf, which has lines that begin with NodeName."""


class Line(NamedTuple):
    """A line, continued ones joined."""

    place: str
    text: str


@dataclass(slots=True)
class _Conf:
    """What has been read of a slurm.conf."""

    main: Path
    read: Callable[[Path], str]
    found: DescribedNodes
    settings: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    """Of NodeName=DEFAULT lines so far."""
    partitions: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    down_lists: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Included files that are not there, with their places."""
    elsewhere: list[str] = field(default_factory=list)
    """Included files that were found in the folder of the main file."""
    included: int = 0
    other_keys: set[str] = field(default_factory=set)
    """Keys with which other lines begin."""


def from_slurm_conf(path: Path, read: Callable[[Path], str]) -> Machine:
    """The nodes of a slurm.conf; `read` gives the text of a file. Raises MachineError, which names file and line."""
    conf = _Conf(path, read, DescribedNodes(str(path)))
    for line in _lines(conf, path, read(path), 0):
        _take(conf, line)
    if not conf.found.names:
        raise MachineError(f"{path}: {_instead(conf)}; give {WAYS}")
    _forgive_missing(conf)
    _count_down(conf)
    counts, why = _memory_counts(conf)
    notes = list(_notes(conf))
    return conf.found.machine("its NodeName lines", memory_counts=counts, notes=(*notes, *why))


# --------------------------------------------------------------------------------------------------------- lines


def logical_lines(path: str, text: str) -> Iterator[Line]:
    """Lines without comments, those that end with a backslash joined to the next: nothing takes its place."""
    joined, start = "", 0
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        start = start or number
        line = _COMMENT.sub(r"\1", raw)
        if goes_on := _GOES_ON.search(line):
            joined += line[: goes_on.start(1)]
            continue
        whole = re.sub(r"\\(.?)", r"\1", joined + line).rstrip()
        if whole:
            yield Line(f"{path}:{start}", whole)
        joined, start = "", 0


def _lines(conf: _Conf, path: Path, text: str, depth: int) -> Iterator[Line]:
    """The same, included files in the place of the lines that name them."""
    if depth > DEEPEST_INCLUDE:
        raise MachineError(
            f"{path}: Include goes deeper than {DEEPEST_INCLUDE} files; does a file include itself?"
        )
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
        if included is not None:
            yield from _lines(conf, included, conf.read(included), depth + 1)


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
    match = _KEY.match(line.text)
    key = match[1].lower() if match else ""
    if key == "nodename":
        _take_nodes(conf, line.place, pairs(line))
    elif key in OF_A_NODE:
        raise MachineError(
            f"{line.place}: {quoted(line.text)} is of a node, and begins a line; end the line before it with a "
            r"backslash, or give the JSON of `scontrol show nodes --json`"
        )
    elif key in ("partitionname", "downnodes"):
        settings = dict(_loose_pairs(line.text))
        if key == "partitionname":
            conf.partitions.append((line.place, settings))
        elif settings.get("state", "down").lower().startswith(("down", "drain", "fail")):
            conf.down_lists.append(settings.get("downnodes", ""))
    elif key in SETTINGS:
        conf.settings.update((name, value) for name, value in _loose_pairs(line.text) if name in SETTINGS)
    else:
        conf.other_keys.add(key or line.text.split(maxsplit=1)[0].lower()[:40])
    if key not in ("nodename", "switchname", "name") and _NODES_LATER.search(_outside_quotes(line.text)):
        raise MachineError(f"{line.place}: NodeName stands behind another setting; begin a line with it")


def pairs(line: Line) -> dict[str, str]:
    """`Key=value` pairs of a line: keys in lower case, quotes taken off, of equal ones the last.

    Raises MachineError.
    """
    found: dict[str, str] = {}
    position = 0
    while position < len(line.text):
        match = _PAIR.match(line.text, position)
        if not match:
            raise MachineError(
                f"{line.place}: {quoted(line.text[position:].strip())} is no Key=value; close quotes, write values "
                "without blanks"
            )
        value = match[2] if match[3] is None else match[3]
        if match[3] is not None and (taken := _KEY.match(value)) and taken[1].lower() in OF_A_NODE:
            raise MachineError(
                f"{line.place}: {match[1]}= has no value, so Slurm takes {quoted(value)} for it; give one, or remove it"
            )
        key = match[1].lower()
        if found and key in ALONE:
            raise MachineError(
                f"{line.place}: {match[1]}= stands behind another setting; begin a line with it"
            )
        found[key] = value
        position = match.end()
    return found


def _loose_pairs(text: str) -> Iterator[tuple[str, str]]:
    """The same of a line of which only some pairs matter: what is none is passed over."""
    for match in _LOOSE_PAIR.finditer(text):
        yield match[1].lower(), match[2] if match[3] is None else match[3]


def _outside_quotes(text: str) -> str:
    return re.sub(r'"[^"]*"', '""', text)


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
    names: list[str] = []
    for part in split_names(name):
        if not may_be_nodes(part) or (part.lower() in NO_NODE and not SIZES & own):
            found.placeholders.append(part)
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
        conf.down_lists += names
    size = _size(conf, place, settings, names)
    found.add(place, names, size.cpus, size.kept, size.memory)


class _Size(NamedTuple):
    cpus: int
    kept: int
    memory: Memory


def _size(conf: _Conf, place: str, settings: Mapping[str, str], names: list[str]) -> _Size:
    """What Slurm makes of the sizes that a NodeName line gives."""

    def given(key: str, default: int) -> int:
        return _whole(place, settings, key, default)

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
    whole = sockets * cores * threads
    if not stated:
        if not (SIZES - {"realmemory"}) & settings.keys():
            found.assume("no CPUs are given of some nodes, so Slurm counts one each", names)
        cpus = whole
    elif cpus not in (sockets, sockets * cores, whole):
        found.assume(
            f"{place}: CPUs={cpus} are neither the sockets, nor the cores, nor the threads of a node, so Slurm counts "
            f"{whole}",
            names,
        )
        cpus = whole
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


def _whole(place: str, settings: Mapping[str, str], key: str, default: int) -> int:
    text = settings.get(key)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII):
        raise MachineError(f"{place}: {key}={quoted(text)} is not a number; write a whole number")
    return int(text)


# --------------------------------------------------------------------------------------------- of the whole file


def _memory_counts(conf: _Conf) -> tuple[bool, list[str]]:
    """Do jobs wait for memory there, and what is to be noted of it?

    With `_Memory` in SelectTypeParameters they do. Without the parameter, they do where single cores are allocated
    (cons_tres, cons_res) and do not where whole nodes are (linear). A partition may have it otherwise.
    """
    plugin = conf.settings.get("selecttype", "").lower().removeprefix("select/")
    stated = conf.settings.get("selecttypeparameters", "")
    words = {word.strip().lower() for word in stated.split(",")} - {"", "none"}
    by_partition = _partition_memory(conf, words, plugin)
    if words:
        counts, why = any(map(_is_memory, words)), f"SelectTypeParameters={stated[:100]}"
    elif plugin:
        counts = plugin in ("cons_tres", "cons_res")
        why = f"SelectType={conf.settings['selecttype'][:100]}"
    else:
        counts, why = True, ""
    if by_partition and len(set(by_partition.values())) == 1 and len(by_partition) == len(_named(conf)):
        counts, why = next(iter(by_partition.values())), "SelectTypeParameters of its partitions"
    elif other := [name for name, one in by_partition.items() if one != counts]:
        holds = "is" if counts else "is not"
        return counts, [
            f"partitions differ in whether memory is scheduled ({shown_names(other)}): here it {holds}, for all"
        ]
    if not counts:
        return False, [f"memory is not scheduled there ({_shown(why)}): no job waits for it"]
    if not why and any(size == size for size in conf.found.memory_bytes):
        return True, [
            f"{conf.found.path} does not say whether memory is scheduled (SelectType, SelectTypeParameters): jobs wait "
            "for it, as is usual since Slurm 23.11"
        ]
    return True, []


def _is_memory(word: str) -> bool:
    return word == "cr_memory" or word.endswith("_memory")


def _named(conf: _Conf) -> list[str]:
    names = [settings.get("partitionname", "") for _, settings in conf.partitions]
    return [name for name in names if name.upper() != "DEFAULT"]


def _partition_memory(conf: _Conf, words: set[str], plugin: str) -> dict[str, bool]:
    """By partition that says so itself (not by its DEFAULT), whether memory is scheduled there.

    Slurm applies it where cores or sockets are allocated.
    """
    by_cores = plugin != "linear" and (
        not words or any(word.removesuffix("_memory") in ("cr_core", "cr_socket") for word in words)
    )
    found: dict[str, bool] = {}
    for _, settings in conf.partitions:
        stated = settings.get("selecttypeparameters", "").lower()
        name = settings.get("partitionname", "")
        if by_cores and stated.startswith(("cr_core", "cr_socket")) and name.upper() != "DEFAULT":
            found[name] = stated.startswith(("cr_core_memory", "cr_socket_memory"))
    return found


def _forgive_missing(conf: _Conf) -> None:
    """A file that is missing may only concern others: if every node of every partition is described.

    Raises MachineError else.
    """
    if not conf.missing:
        return
    listed = 0
    for place, settings in conf.partitions:
        for part in split_names(settings.get("nodes", "")):
            if part.upper() == "ALL" or not may_be_nodes(part) or part.lower() in NO_NODE:
                continue
            names = names_in(place, part)
            listed += len(names)
            if unknown := [name for name in names if name not in conf.found.place_of]:
                raise MachineError(
                    f"{conf.missing[0]}, and {shown_names(unknown)} of a partition are not described; correct the path"
                )
    if not listed:
        raise MachineError(
            f"{conf.missing[0]}, and it may describe nodes; correct the path, or remove the line from a copy"
        )


def _count_down(conf: _Conf) -> None:
    """How many of the nodes are down by what the file says."""
    down: set[str] = set()
    for text in conf.down_lists:
        for part in split_names(text):
            if may_be_nodes(part):
                down.update(names_in(str(conf.main), part))
    conf.found.down = len(down.intersection(conf.found.names))


def _notes(conf: _Conf) -> Iterator[str]:
    for missing in conf.missing:
        yield f"{missing}: it describes no node of the partitions, so it is left out"
    for file in conf.elsewhere:
        yield f"{file}: it stands beside {conf.main.name}"
    most = conf.settings.get("maxnodecount", "")
    if most.isascii() and most.isdecimal() and 0 < len(most) <= 9 and int(most) > len(conf.found.names):
        yield (
            f"{conf.found.path} allows for dynamic nodes (MaxNodeCount={int(most)}), which it does not describe: give "
            "the JSON of `scontrol show nodes --json` for those that are there"
        )


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)


INSTEAD = (
    (
        {"switchname", "blockname"},
        "this is topology.conf: it says how nodes are connected, not what they are",
    ),
    (
        {"cgroupplugin", "cgroupautomount", "cgroupmountpoint", "constraincores", "constrainramspace"},
        "this is cgroup.conf",
    ),
    ({"dbdhost", "dbdaddr", "storagehost"}, "this is slurmdbd.conf"),
    ({"autodetect", "name"}, "this is gres.conf: it does not say what nodes there are"),
)
"""Keys of other files, and what to say of them."""


def _instead(conf: _Conf) -> str:
    """Why there is no node, in words."""
    for keys, what in INSTEAD:
        if keys & conf.other_keys:
            return what
    if conf.missing:
        return f"no NodeName line describes a node, and a file is missing ({conf.missing[0]})"
    if conf.found.future:
        return f"all of its {conf.found.future} nodes have State=FUTURE"
    if conf.found.placeholders:
        return f"no NodeName line describes a node but {shown_names(conf.found.placeholders)}"
    if "maxnodecount" in conf.settings or "nodeset" in conf.other_keys:
        return "no NodeName line describes a node: its nodes are dynamic"
    return "no NodeName line describes a node"
