"""Slurm's JSON as plain rows: a job of squeue, a node of sinfo, of any version.

How numbers and lists are written differs by version (`asad.cluster.slurm_json`), and from 23.02 on `sinfo` lists groups
of nodes instead of nodes. `meta` says which version it is. Names and comments come from users: nothing here trusts
them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from sys import intern
from typing import Any, NamedTuple

from asad.cluster.slurm_json import MEBIBYTE, MOST, memory_bytes, number, whole, words
from asad_slurm.gres import Amounts, asked, node_gres
from asad_slurm.nodesets import expand

WAITS, RUNS, LEAVES, ENDED = range(4)
"""Phases of a job. A job that leaves (completing, also before a requeue) holds its cores and is nothing else."""
MIB, NAN, INF = MEBIBYTE, math.nan, math.inf
MOST_CPUS, MOST_THREADS = 65_536, 1024
"""Of one node, and of one of its cores."""
NONSENSE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What comes of reading JSON that is no answer of Slurm's."""


class JobRecord(NamedTuple):
    """One job as squeue shows it; numbers first, in the order of `NUMBERS`."""

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
    """Node and cores (or CPUs) on it; empty if Slurm did not show them."""
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
    tres: Amounts = ()
    """What it holds or wants of gres and licences, over all its nodes."""
    uncounted: str = ""
    """What of that cannot be counted, in a sentence."""

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
    """One node as sinfo shows it."""

    name: str
    cpus: int
    threads: int
    memory_bytes: float
    usable: bool
    """Neither drained nor down, failing, rebooting, reserved for maintenance, or not answering."""
    partitions: tuple[str, ...]
    features: frozenset[str]
    gres: Amounts = ()
    state: str = ""
    """As `scontrol show node` has it: `IDLE+DRAIN`."""


# ------------------------------------------------------------------------------------------------------------- jobs


def read_job(job: Mapping[str, Any]) -> JobRecord:
    """One job of squeue's JSON, of any version. Raises KeyError, TypeError or ValueError if it is none."""
    get = job.get
    raw = int(job["job_id"])
    if not 0 <= raw < 2**32:
        raise ValueError("no number of a job")
    state = job["job_state"]
    states = (state,) if state.__class__ is str else tuple(state)
    phase = _phase_of(states)
    reason = get("state_reason") or "None"
    cores = min(max(1.0, number(get("cpus"), 1.0)), MOST)
    nodes = min(max(0.0, number(get("node_count"), 0.0)), MOST)
    limit_s = 60.0 * number(get("time_limit"), INF)
    start, end = number(get("start_time"), 0.0), number(get("end_time"), 0.0)
    waits = phase == WAITS
    places, are_cores = ((), False) if waits or phase == ENDED else _places(get("job_resources"))
    requested, allocated = get("tres_req_str") or "", get("tres_alloc_str") or ""
    memory = memory_bytes(allocated if allocated and not waits else requested)
    per_node, per_cpu = number(get("memory_per_node"), 0.0), number(get("memory_per_cpu"), 0.0)
    if math.isnan(memory):
        memory = MIB * (
            per_cpu * cores if per_cpu > 0 else per_node * max(1.0, nodes) if per_node > 0 else NAN
        )
    priority = number(get("priority"), 0.0)
    submit = number(get("submit_time"), NAN)
    eligible, deadline = number(get("eligible_time"), 0.0), number(get("deadline"), 0.0)
    text, tasks, array, task = _job_text(raw, job)
    licences = get("licenses") or ""
    gres = (
        "gres" in requested
        or "gres" in allocated
        or "gres"
        in f"{get('tres_per_node')}{get('tres_per_job')}{get('tres_per_task')}{get('tres_per_socket')}"
        or bool(get("gres_detail"))
    )
    counted, uncounted = (
        asked(job, phase in (RUNS, LEAVES), nodes, requested if waits else allocated)
        if gres or licences
        else ((), "")
    )
    # each of them is a text, or this is a TypeError
    "".join(get(key) or "" for key in _TEXTS)
    return JobRecord(
        cores,
        nodes,
        limit_s,
        memory / cores,
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
        licences,
        get("resv_name") or "",
        gres,
        per_node <= 0 and per_cpu <= 0,
        _word(get("shared")) in _EXCLUSIVE or _word(get("exclusive")) in _EXCLUSIVE,
        number(get("het_job_id"), 0.0) > 0,
        waits and priority > 0 and reason in _TURN,
        "SUSPENDED" in states,
        whole(get("restart_cnt"), 0.0),
        places,
        are_cores,
        "COMPLETED" in states,
        array,
        task,
        whole(get("array_max_tasks"), 0.0) if array else 0,
        _nice(get("nice")),
        get("admin_comment") or "",
        int(min(number(get("max_nodes"), 0.0), ANY_NODES)),
        intern(clean(get("mcs_label") or "")),
        tuple((intern(clean(name)), amount) for name, amount in counted),
        clean(uncounted),
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


@cache
def _phase_of(states: tuple[str, ...]) -> int:
    phases = ((_LEAVES, LEAVES), (_RUNS, RUNS), (_WAITS, WAITS))
    return next((phase for named, phase in phases if not named.isdisjoint(states)), ENDED)


def _word(value: Any) -> str:
    """The first of several."""
    return next(iter(words(value)), "") if isinstance(value, str | list) else ""


def _nice(value: Any) -> int:
    """22.05 writes a negative one as what is left of 2^32. With either sign it can be held in 32 bits."""
    nice = int(min(max(-(2.0**31), number(value, 0.0)), 2.0**32 - 1))
    return max(1 - 2**31, nice - 2**32 if nice >= 2**31 else nice)


def _job_text(raw: int, job: Mapping[str, Any]) -> tuple[str, int, int, int]:
    """Its name, the jobs that it stands for, its array (0 for none) and its number in that."""
    array, het = (whole(job.get(key), 0.0, 2**32 - 1) for key in ("array_job_id", "het_job_id"))
    if array and (waiting := job.get("array_task_string")):
        task, count = _waiting_tasks(waiting)
        return f"{array}_{task}", count, array, task
    if array and not math.isnan(number(job.get("array_task_id"), NAN)):
        task = whole(job.get("array_task_id"))
        return f"{array}_{task}", 1, array, task
    return f"{het}+{whole(job.get('het_job_offset'))}" if het else str(raw), 1, 0, 0


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


def _places(resources: Any) -> tuple[tuple[tuple[str, int], ...], bool]:
    """Where a job has its cores: (node, number) pairs, and whether the numbers are cores (else CPUs)."""
    if not isinstance(resources, dict):
        return (), False
    nodes: Any = resources.get("nodes")
    are_cores = not isinstance(nodes, dict)  # before v0.0.41
    if are_cores:
        found = [
            (str(node["nodename"]), _cores_of(node.get("sockets")))
            for node in resources.get("allocated_nodes") or ()
        ]
    else:
        found = [
            (str(node["name"]), whole((node.get("cpus") or {}).get("count"), 0.0, MOST_CPUS))
            for node in nodes.get("allocation") or ()
        ]
    return (tuple(found), are_cores) if all(count > 0 for _, count in found) else ((), False)


def _cores_of(sockets: Any) -> int:
    """Listed cores of all sockets, which are a list or an object by number."""
    listed = sockets.values() if isinstance(sockets, dict) else sockets or ()
    return sum(len(socket.get("cores") or ()) for socket in listed)


# ------------------------------------------------------------------------------------------------------------ nodes

_USABLE = frozenset(
    ("IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "")
)


def read_nodes(document: Mapping[str, Any]) -> list[NodeRecord]:
    """Nodes of sinfo's JSON, of any version, each once."""
    nodes: dict[str, NodeRecord] = {}
    shown = map(_node, document["nodes"]) if "nodes" in document else map(_group, document["sinfo"])
    for names, cpus, threads, memory, states, partitions, features, gres in shown:
        for name in map(clean, names):
            known = nodes[name].partitions if name in nodes else ()
            nodes[name] = NodeRecord(
                name,
                whole(cpus, 0.0, MOST_CPUS),
                max(1, whole(threads, 1.0, MOST_THREADS)),
                number(memory, NAN) * MIB,
                _USABLE.issuperset(state.upper() for state in states),
                tuple(dict.fromkeys((*known, *_listed(partitions)))),
                frozenset(_listed(features)),
                _gres(gres),
                clean("+".join(state.upper() for state in states if state)),
            )
    return list(nodes.values())


def _node(node: Mapping[str, Any]) -> tuple[Any, ...]:
    """Names, CPUs, threads, memory, states, partitions, features and gres of one node."""
    return (
        (str(node["name"]),),
        node.get("effective_cpus") or node["cpus"],
        node.get("threads"),
        node.get("real_memory"),
        (*words(node.get("state")), *words(node.get("state_flags"))),
        node.get("partitions"),
        node.get("active_features") or node.get("features"),
        node.get("gres"),
    )


def _group(group: Mapping[str, Any]) -> tuple[Any, ...]:
    """The same of nodes of a partition that are alike; a node is in as many groups as it has partitions."""
    threads, memory, partition, node, features, gres = (
        group.get(key) or {} for key in ("threads", "memory", "partition", "node", "features", "gres")
    )
    return (
        [name for text in group["nodes"].get("nodes") or () for name in expand(text)],
        group["cpus"]["minimum"],
        threads.get("minimum"),
        memory.get("minimum"),
        words(node.get("state")),
        partition.get("name"),
        features.get("active"),
        gres.get("total"),
    )


def _gres(text: Any) -> Amounts:
    """Of a node; of one whose gres cannot be read none is known."""
    try:
        return tuple((clean(name), amount) for name, amount in node_gres(text or ""))
    except ValueError:
        return ()


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
    """What a job has for asad: its comment after `asad:`, printable and bounded; the empty string for nothing.

    One that is too long ends in an ellipsis, so that nobody takes it for the whole.
    """
    if not comment.startswith("asad:"):
        return ""
    text = clean(comment[5 : 6 + MOST_HINT])
    return text if len(text) <= MOST_HINT else text[: MOST_HINT - 1] + "…"


_CONTROL = dict.fromkeys(
    (*range(32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)), "�"
)
"""Controls, separators of lines, and marks that turn the direction of writing."""


def clean(text: str) -> str:
    """Text of a user without control characters, which would speak to a terminal."""
    return text if text.isprintable() else text.translate(_CONTROL)


def short(error: Exception) -> str:
    return clean(str(error))[:120]
