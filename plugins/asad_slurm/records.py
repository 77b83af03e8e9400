"""Slurm's JSON as plain rows.

The shape differs by version: 22.05 (`openapi/v0.0.38`) writes plain numbers, one word for a state and null for what is
not set; from 23.02 on (`data_parser/v0.0.39`) a number may be `{"set": …, "infinite": …, "number": …}`, a state may be
a list of words, and `sinfo` lists groups of nodes instead of nodes. `meta` tells which it is. Names and comments come
from users: nothing here trusts them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping
from sys import intern
from typing import Any, NamedTuple


def _json(text: bytes) -> Any:
    return json.loads(text.decode())  # json's own way to read bytes lets halves of characters pass


_strict: Callable[[bytes], Any] = _json
with contextlib.suppress(ImportError):  # json does the same in four times the time
    import orjson

    _strict = orjson.loads


def loads(text: bytes) -> Any:
    """What JSON of Slurm's says. Raises ValueError if it is none.

    Slurm passes on the bytes of users, which need not be UTF-8 (`sbatch -J $'caf\\xe9'`): those that are not are
    replaced.
    """
    try:
        return _strict(text)
    except ValueError:
        return _strict(text.decode("utf-8", "replace").encode())


WAITS, RUNS, LEAVES, ENDED = range(4)
"""Phases of a job. A job that leaves (completing, also before a requeue) holds its cores and is nothing else."""
MIB = 2.0**20
NAN, INF = math.nan, math.inf
MOST = 2**31 - 1
"""No number of cores, nodes or tasks is larger: so much does a column hold."""
MOST_CPUS, MOST_THREADS = 65_536, 1024
"""Of one node, and of one of its cores."""
NONSENSE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What comes of reading JSON that is no answer of Slurm's."""


class JobRecord(NamedTuple):
    """One job as squeue tells it; numbers first, in the order of `NUMBERS`."""

    cores: float
    nodes: float
    time_limit_s: float
    memory_bytes_per_core: float
    submit_s: float
    start_s: float
    """NaN while it waits."""
    end_s: float
    """When it ended, or its time limit will end it; inf for none, NaN while it waits."""
    estimate_s: float
    """Slurm's estimate of its start while it waits; NaN for none."""
    priority: float
    begin_s: float
    """Before this Slurm does not start it (`--begin`, or after a requeue); NaN for none, and while it does not wait.
    One that has passed means nothing: Slurm sets it when it looks at a job first."""
    deadline_s: float
    """By this it must have ended (`--deadline`); NaN for none."""
    phase: int
    text: str
    """Its name for people: `12`, `12_3`, `12+1`."""
    raw: int
    """Slurm's own number of it, which cgroups are named by."""
    tasks: int
    """Jobs that this record stands for: the waiting tasks of an array are one record."""
    name: str
    user: str
    account: str
    partition: str
    qos: str
    reason: str
    nodes_text: str
    required_nodes: str
    excluded_nodes: str
    features: str
    comment: str
    dependency: str
    licences: str
    reservation: str
    gres: bool
    whole_memory: bool
    exclusive: bool
    het: bool
    waits_turn: bool
    """Nothing but its turn keeps it waiting."""
    suspended: bool
    restarts: int
    places: tuple[tuple[str, int], ...]
    """Node and cores (or CPUs) on it; empty if Slurm did not tell."""
    places_are_cores: bool
    completed: bool
    """It has ended, and well."""
    array: int
    """Slurm's number of its array, 0 if it is no task of one."""
    task: int
    """Its number in the array; of tasks that wait together the first one's."""
    throttle: int
    """Most tasks of its array that run at one time, 0 for no bound. Known of the record of those that wait together."""
    nice: int
    admin_comment: str
    most_nodes: int
    """Most nodes that it may have (`--nodes=2-4`); 0 for no bound."""
    mcs_label: str
    """Jobs with other labels may not be on its nodes; empty for none."""

    @property
    def alone(self) -> str:
        """What Slurm's commands take for this job and no other. By the number of an array they mean all of its tasks,
        and the last of them that waits keeps that number for its own."""
        return self.text if self.array else str(self.raw)


NUMBERS = (
    "cores",
    "nodes",
    "time_limit_s",
    "memory_bytes_per_core",
    "submit_s",
    "start_s",
    "end_s",
    "estimate_s",
    "priority",
    "begin_s",
    "deadline_s",
    "phase",
)


FACTS = NUMBERS.index("phase")
"""From here on a record holds no measure that changes while a job waits."""


class NodeRecord(NamedTuple):
    """One node as sinfo tells it."""

    name: str
    cpus: int
    threads: int
    memory_bytes: float
    usable: bool
    """Neither drained nor down, failing, rebooting, reserved for maintenance, or not answering."""
    partitions: tuple[str, ...]
    features: frozenset[str]


# ------------------------------------------------------------------------------------------------------------- jobs


def read_job(job: Mapping[str, Any]) -> JobRecord:
    """One job of squeue's JSON, of any version. Raises KeyError, TypeError or ValueError if it is none."""
    get = job.get
    raw = int(job["job_id"])
    if not 0 <= raw < 2**32:
        raise ValueError("no number of a job")
    state = job["job_state"]
    words = (state,) if state.__class__ is str else tuple(state)
    phase = _phase_of.get(words)
    if phase is None:
        phase = _phase_of[words] = _phase(words)
    reason = get("state_reason") or "None"
    cores = min(max(1.0, _number(get("cpus"), 1.0)), MOST)
    nodes = min(max(0.0, _number(get("node_count"), 0.0)), MOST)
    limit = get("time_limit")
    limit_s = INF if limit is None else 60.0 * _number(limit, INF)
    start = _number(get("start_time"), 0.0)
    end = _number(get("end_time"), 0.0)
    waits = phase == WAITS
    places, are_cores = ((), False) if waits or phase == ENDED else _places(get("job_resources"))
    requested, allocated = get("tres_req_str") or "", get("tres_alloc_str") or ""
    memory = _memory_mib(allocated if allocated and not waits else requested)
    per_node, per_cpu = _number(get("memory_per_node"), 0.0), _number(get("memory_per_cpu"), 0.0)
    if math.isnan(memory):
        memory = per_cpu * cores if per_cpu > 0 else per_node * max(1.0, nodes) if per_node > 0 else NAN
    shared, exclusive = get("shared"), get("exclusive")
    priority = _number(get("priority"), 0.0)
    submit = _number(get("submit_time"), NAN)
    eligible, deadline = _number(get("eligible_time"), 0.0), _number(get("deadline"), 0.0)
    text, tasks, array, task = _job_text(raw, job)
    # each of them is a text, or this is a TypeError
    "".join(get(key) or "" for key in _TEXTS)
    return JobRecord(
        cores,
        nodes,
        limit_s,
        memory * MIB / cores,
        submit,
        NAN if waits or start <= 0 else start,
        NAN if waits else (INF if limit_s == INF and phase != ENDED else end),
        start if waits and start > 0 else NAN,
        priority,
        # of a job without --begin it is when it was submitted
        eligible if waits and submit < eligible < INF else NAN,
        deadline if 0 < deadline < INF else NAN,
        phase,
        text,
        raw,
        tasks,
        # what many jobs have in common is in memory once
        intern(clean((get("name") or "")[:MOST_NAME])),
        intern(clean(get("user_name") or str(get("user_id", "")))),
        intern(clean(get("account") or "")),
        intern(get("partition") or ""),
        intern(clean(get("qos") or "")),
        intern(reason),
        get("nodes") or "",
        get("required_nodes") or "",
        get("excluded_nodes") or "",
        get("features") or "",
        get("comment") or "",
        get("dependency") or "",
        get("licenses") or "",
        get("resv_name") or "",
        "gres" in requested
        or "gres" in allocated
        or "gres"
        in f"{get('tres_per_node')}{get('tres_per_job')}{get('tres_per_task')}{get('tres_per_socket')}"
        or bool(get("gres_detail")),
        per_node <= 0 and per_cpu <= 0,
        _word(shared) in _EXCLUSIVE or _word(exclusive) in _EXCLUSIVE,
        _number(get("het_job_id"), 0.0) > 0,
        waits and priority > 0 and reason in _TURN,
        "SUSPENDED" in words,
        _whole(get("restart_cnt"), 0.0),
        places,
        are_cores,
        "COMPLETED" in words,
        array,
        task,
        _whole(get("array_max_tasks"), 0.0) if array else 0,
        _nice(get("nice")),
        get("admin_comment") or "",
        int(min(_number(get("max_nodes"), 0.0), ANY_NODES)),
        intern(clean(get("mcs_label") or "")),
    )


_TEXTS = (
    "state_reason",
    "partition",
    "nodes",
    "required_nodes",
    "excluded_nodes",
    "features",
    "comment",
    "dependency",
    "licenses",
    "resv_name",
    "admin_comment",
)
ANY_NODES = 65534
"""As many nodes as scontrol takes for the most of a job: as good as no bound, which it cannot set again."""


_EXCLUSIVE = frozenset(("none", "user", "mcs", "topo", "true"))
"""squeue's `shared` is "none" for --exclusive; newer ones say so in `exclusive` as well."""
_TURN = frozenset(("None", "Priority", "Resources"))
_RUNS = frozenset(("RUNNING", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED", "SUSPENDED"))
_WAITS = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_LEAVES = frozenset(("COMPLETING", "STAGE_OUT"))


_phase_of: dict[tuple[str, ...], int] = {}


def _phase(words: tuple[str, ...]) -> int:
    if not _LEAVES.isdisjoint(words):
        return LEAVES
    if not _RUNS.isdisjoint(words):
        return RUNS
    if not _WAITS.isdisjoint(words):
        return WAITS
    return ENDED


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(value or ())


def _word(value: Any) -> str:
    if isinstance(value, list):
        value = value[0] if value else ""
    return value if isinstance(value, str) else ""


def _number(value: Any, default: float) -> float:
    """A number of any version's shape; `default` if it is not set."""
    if value is None:
        return default
    if value.__class__ is dict:
        if value["infinite"]:
            return INF
        return float(value["number"]) if value["set"] else default
    return float(value)


def _whole(value: Any, default: float, most: float = MOST) -> int:
    """The same as a whole number from 0 to `most`; what is beyond is cut."""
    return int(min(max(0.0, _number(value, default)), most))


def _nice(value: Any) -> int:
    """22.05 writes a negative one as what is left of 2^32. With either sign it can be held in 32 bits."""
    nice = int(min(max(-(2.0**31), _number(value, 0.0)), 2.0**32 - 1))
    return max(1 - 2**31, nice - 2**32 if nice >= 2**31 else nice)


def _job_text(raw: int, job: Mapping[str, Any]) -> tuple[str, int, int, int]:
    """Its name, the jobs that it stands for, its array (0 for none) and its number in that."""
    array, het = (_whole(job.get(key), 0.0, 2**32 - 1) for key in ("array_job_id", "het_job_id"))
    if array <= 0 and het <= 0:
        return str(raw), 1, 0, 0
    if array > 0:
        waiting = job.get("array_task_string") or ""
        if waiting:
            first, count = _waiting_tasks(waiting)
            return f"{array}_{first}", count, array, first
        if not math.isnan(_number(job.get("array_task_id"), NAN)):
            task = _whole(job.get("array_task_id"), 0.0)
            return f"{array}_{task}", 1, array, task
    if het > 0:
        return f"{het}+{_whole(job.get('het_job_offset'), 0.0)}", 1, 0, 0
    return str(raw), 1, 0, 0


def _waiting_tasks(text: str) -> tuple[int, int]:
    """First task and number of tasks of `1-10:2,15%4`; a long list ends in `…` and is counted as far as it goes."""
    first, count = -1, 0
    for part in text.partition("%")[0].split(","):
        found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", part, re.ASCII)
        if found is None:
            continue
        low = int(found.group(1))
        high = int(found.group(2) or low)
        first = low if first < 0 else min(first, low)
        count += max(0, (high - low) // max(1, int(found.group(3) or 1)) + 1)
    return max(0, first), min(max(1, count), MOST)


_memory_of: dict[str, float] = {}
_UNIT = {"K": 2.0**-10, "M": 1.0, "": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}


def _memory_mib(tres: str) -> float:
    """Memory in a TRES text (`cpu=2,mem=4G,node=1`), NaN if it names none."""
    memory = _memory_of.get(tres)
    if memory is None:
        found = re.search(r"(?:^|,)mem=(\d{1,18}(?:\.\d{1,18})?)([KMGTP]?)", tres, re.ASCII)
        memory = float(found.group(1)) * _UNIT[found.group(2)] if found else NAN
        if len(_memory_of) > 100_000:
            _memory_of.clear()
        _memory_of[tres] = memory
    return memory


def _places(resources: Any) -> tuple[tuple[tuple[str, int], ...], bool]:
    """Where a job has its cores: (node, number) pairs, and whether the numbers are cores (else CPUs)."""
    if not isinstance(resources, dict):
        return (), False
    nodes = resources.get("nodes")
    if isinstance(nodes, dict):  # from v0.0.41 on
        found = []
        for node in nodes.get("allocation") or ():
            cpus = node.get("cpus") or {}
            found.append((str(node["name"]), _whole(cpus.get("count"), 0.0, MOST_CPUS)))
        return (tuple(found), False) if all(count > 0 for _, count in found) else ((), False)
    found = []
    for node in resources.get("allocated_nodes") or ():
        sockets = node.get("sockets") or {}
        sockets = sockets.values() if isinstance(sockets, dict) else sockets
        cores = sum(len(socket.get("cores") or ()) for socket in sockets)
        found.append((str(node["nodename"]), cores))
    return (tuple(found), True) if all(count > 0 for _, count in found) else ((), False)


# ------------------------------------------------------------------------------------------------------------ nodes

_USABLE = frozenset(
    ("IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "")
)


def read_nodes(document: Mapping[str, Any]) -> list[NodeRecord]:
    """Nodes of sinfo's JSON, of any version."""
    from asad_slurm.nodesets import expand

    nodes: dict[str, NodeRecord] = {}
    if "nodes" in document:
        for node in document["nodes"]:
            words = (*_words(node.get("state")), *_words(node.get("state_flags")))
            name = clean(str(node["name"]))
            nodes[name] = NodeRecord(
                name,
                _whole(node.get("effective_cpus") or node["cpus"], 0.0, MOST_CPUS),
                max(1, _whole(node.get("threads"), 1.0, MOST_THREADS)),
                _number(node.get("real_memory"), NAN) * MIB,
                _USABLE.issuperset(word.upper() for word in words),
                tuple(_listed(node.get("partitions"))),
                frozenset(_listed(node.get("active_features") or node.get("features"))),
            )
        return list(nodes.values())
    for group in document["sinfo"]:
        partition = group.get("partition") or {}
        partitions = tuple(_listed(partition.get("name")))
        words = _words((group.get("node") or {}).get("state"))
        features = frozenset(_listed((group.get("features") or {}).get("active")))
        for text in group["nodes"].get("nodes") or ():
            for name in map(clean, expand(text)):
                known = nodes.get(name)
                nodes[name] = NodeRecord(
                    name,
                    _whole(group["cpus"]["minimum"], 0.0, MOST_CPUS),
                    max(1, _whole((group.get("threads") or {}).get("minimum"), 1.0, MOST_THREADS)),
                    _number((group.get("memory") or {}).get("minimum"), NAN) * MIB,
                    _USABLE.issuperset(word.upper() for word in words),
                    (known.partitions if known else ()) + partitions,
                    features,
                )
    return list(nodes.values())


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return [word for word in value.split(",") if word]
    return [str(word) for word in value or ()]


# ------------------------------------------------------------------------------------------------------------- words

MOST_NAME = 256
"""So much of a job's name is kept (characters): what is learned of applications is kept by it."""
MOST_HINT = 1000
"""Longest hint that is passed on (characters)."""


def hint(comment: str) -> str:
    """What a job tells asad: its comment after `asad:`, printable and bounded; the empty string for nothing.

    One that is too long ends in an ellipsis, so that nobody takes it for the whole.
    """
    if not comment.startswith("asad:"):
        return ""
    told = clean(comment[5 : 6 + MOST_HINT])
    return told if len(told) <= MOST_HINT else told[: MOST_HINT - 1] + "…"


_CONTROL = dict.fromkeys(
    (*range(32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)), "�"
)
"""Controls, separators of lines, and marks that turn the direction of writing."""


def clean(text: str) -> str:
    """Text of a user without control characters, which would speak to a terminal."""
    return text if text.isprintable() else text.translate(_CONTROL)


def short(error: Exception) -> str:
    return clean(str(error))[:120]
