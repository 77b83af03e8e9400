"""What admission has promised one job, or why it has not, and the same as plain data that outlives the process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from asad.admit.elastic import Allotment
from asad.admit.slot_servers import wanted
from asad.decisions import Outcome, SetThrottle
from asad.hold import HeldJob, Saved, as_number, as_whole, fields_of, fields_to_json, hold_of
from asad.model import Json, Snapshot

State = Literal["admitted", "declined", "unfit", "ended", "released"]
"""`unfit` jobs were never put to the scheme; of `ended` ones nothing waits any more, so there is nothing to decide.
`released` have no plan any more (parameter servers whose workers are gone; who was planned in other slots): what was
changed of them is released, then they are as if never asked for."""
STATES: tuple[State, ...] = ("admitted", "declined", "unfit", "ended", "released")


@dataclass(slots=True)
class Commitment(HeldJob):
    """One job (an array is one job) that has a utility. Slots count from the epoch, in lengths of a slot."""

    key: str
    """Its number, of an array the array's."""
    number: int
    """By which the scheme knows it."""
    state: State
    hint: str
    """As its user wrote it when it was asked for; written otherwise, it is asked for again."""
    utility: str
    """Its utility, or a rule's, as it was written."""
    by_rule: bool
    reason: str
    submit_s: float
    arrival: int
    """Slot in which it was put to the scheme."""
    cores: int = 0
    memory_bytes_per_core: float = 0.0
    tres: Mapping[str, float] = field(default_factory=dict)
    """What a task (of a rigid job: the job) takes of gres and licences, by name."""
    task_s: float = math.nan
    """How long one task (of a rigid job: the job) was expected to run."""
    most_workers: int = 1
    work: int = 0
    """Worker-slots, as of its arrival."""
    deadline_s: float = math.nan
    array: bool = False
    companion: str = ""
    """Of workers: the array whose tasks are their parameter servers; empty for none."""
    beside: str = ""
    """Of such an array: the workers that it belongs to. It follows their plan, and no scheme knows it."""
    workers_per_server: float = math.nan
    server_cores: int = 0
    server_memory_bytes_per_core: float = 0.0
    server_tres: Mapping[str, float] = field(default_factory=dict)
    """What one task of the companion takes."""
    lacks_servers: bool = False
    """It was not put to the scheme because there was no companion."""
    schedule: dict[int, Allotment] = field(default_factory=dict)
    """Of schemes that plan ahead: slot → what it has there."""
    payoff: float = math.nan
    cost: float = math.nan
    worth: float = math.nan
    """At the completion that was planned."""
    user: str = ""
    claim: float = 0.0
    """What its hint claims; 0 of one that has its utility by a rule, or whose user has no budget."""
    counted: float = 0.0
    """What of that counted when it was asked for, by its user's budget."""
    budget: float = math.nan
    """That he had then."""
    own_throttle: int = 0
    """Most tasks at one time by its user's own wish; 0 for no bound."""
    turn_came: bool = False
    """Of a rigid job: its start slot has come, so nothing defers it any more."""
    throttled: int = -1
    """The throttle that we have set last, as the cluster confirmed; -1 for none."""
    wished_tasks: int = -1
    """The throttle that we have asked for last: the cluster may have obeyed and we died of it."""
    asked_at: int = 0
    """How many jobs had ended when it was last asked for."""

    @property
    def part(self) -> float:
        """Of its utility that counts."""
        return self.counted / self.claim if self.claim else 1.0

    @property
    def granted(self) -> float:
        """What it takes of its user's budget."""
        return self.counted if self.state in ("admitted", "ended") else 0.0

    def width(self, slot: int) -> int:
        """Workers in a slot of the plan."""
        there = self.schedule.get(slot)
        return 0 if there is None else there.width

    def servers(self, slot: int) -> int:
        """Parameter servers in a slot of the plan."""
        there = self.schedule.get(slot)
        return 0 if there is None else int(there.servers.sum())

    def planned(self, slot: int) -> int:
        """Worker-slots of the plan from `slot` on."""
        return sum(there.width for at, there in self.schedule.items() if at >= slot)

    def next_slot(self, slot: int) -> int | None:
        """First slot from `slot` on in which it has workers; None for none."""
        return min((at for at, there in self.schedule.items() if at >= slot and there.width), default=None)

    def servers_for(self, width: int) -> int:
        """Parameter servers that so many workers need."""
        return math.ceil(width / self.workers_per_server - 1e-9)

    def lose_plan(self, reason: str) -> bool:
        """Its plan is worth nothing any more; may anything of it have to be released?"""
        if self.state not in ("admitted", "released"):
            return False
        self.state, self.reason, self.schedule = "released", reason, {}
        self.companion = self.beside = ""
        return True

    @property
    def identity(self) -> dict[str, Json]:
        """Its number, of an array the array's."""
        return {"job": self.key}

    def on_outcome(self, outcome: Outcome, now_s: float) -> bool:
        """What became of a decision about it; was it done?"""
        done = HeldJob.on_outcome(self, outcome, now_s)
        if done and isinstance(outcome.decision, SetThrottle):
            self.throttled = outcome.decision.tasks
        return done

    def to_json(self) -> dict[str, Json]:
        """Plain data; numbers that are not known are None."""
        found = {**fields_to_json(self, SAVED), **self.hold_to_json(), "state": self.state}
        found |= {"tres": dict(self.tres), "server_tres": dict(self.server_tres)}
        found["schedule"] = {
            str(slot): [there.worker_server.tolist(), there.workers.tolist()]
            + ([there.parameter_server.tolist(), there.servers.tolist()] if len(there.servers) else [])
            for slot, there in sorted(self.schedule.items())
        }
        return found


SAVED: Saved = {
    **dict.fromkeys(("key", "hint", "utility", "reason", "companion", "beside", "user"), str),
    **dict.fromkeys(("submit_s", "memory_bytes_per_core", "task_s", "deadline_s"), as_number),
    **dict.fromkeys(("payoff", "cost", "worth", "claim", "counted", "budget"), as_number),
    **dict.fromkeys(("workers_per_server", "server_memory_bytes_per_core"), as_number),
    **dict.fromkeys(("number", "arrival", "cores", "most_workers", "work", "server_cores"), as_whole),
    **dict.fromkeys(("own_throttle", "throttled", "wished_tasks"), as_whole),
    **dict.fromkeys(("by_rule", "array", "turn_came", "lacks_servers"), bool),
}
LATER: Mapping[str, Json] = {
    "companion": "",
    "beside": "",
    "workers_per_server": None,
    "server_memory_bytes_per_core": 0.0,
    "server_cores": 0,
    "user": "",
    "claim": 0.0,
    "counted": 0.0,
    "budget": None,
    "tres": {},
    "server_tres": {},
}
"""What earlier versions did not save, and what it is then."""


def commitment_of(snapshot: Snapshot, row: int, **facts: Any) -> Commitment:
    """A new one of the job in that row: what the cluster shows of it, and `facts`, by name of the field."""
    jobs = snapshot.jobs
    return Commitment(
        hint=snapshot.hints.get(row, ""),
        submit_s=float(jobs.submit_s[row]),
        cores=int(jobs.cores[row]),
        memory_bytes_per_core=float(np.nan_to_num(jobs.memory_bytes_per_core[row])),
        tres=wanted(snapshot.tres, row),
        deadline_s=float(jobs.deadline_s[row]),
        row=row,
        **facts,
    )


def commitment_from_json(kept: Mapping[str, Json]) -> Commitment | None:
    """What `Commitment.to_json` described; None if it cannot be read, since a daemon that starts is worth more."""
    kept = {**LATER, **kept}
    try:
        state = kept["state"]
        if state not in STATES:
            return None
        columns = fields_of(kept, SAVED) | hold_of(kept)
        planned = kept["schedule"]
        if not isinstance(planned, dict):
            return None
        schedule = {_slot(slot): _allotment(there) for slot, there in planned.items()}
        columns |= {name: _amounts(kept[name]) for name in ("tres", "server_tres")}
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return Commitment(state=state, schedule=schedule, **columns)


def _amounts(saved: Json) -> dict[str, float]:
    if not isinstance(saved, dict):
        raise ValueError("no amounts")
    return {name: as_number(amount) for name, amount in saved.items()}


def _slot(name: str) -> int:
    slot = int(name)
    if not abs(slot) < 2**53:  # no calendar is as long, and rows are computed with it
        raise ValueError("no slot")
    return slot


def _allotment(saved: Json) -> Allotment:
    if not isinstance(saved, list) or len(saved) not in (2, 4):
        raise ValueError("no allotment")
    columns = [np.array(column, dtype=np.int32) for column in saved]
    if any(column.ndim != 1 or (column < 0).any() for column in columns):
        raise ValueError("no counts")
    while len(columns) < 4:
        columns.append(np.zeros(0, np.int32))
    if len(columns[0]) != len(columns[1]) or len(columns[2]) != len(columns[3]):
        raise ValueError("counts without servers")
    return Allotment(*columns)


def renumbered(
    schedule: Mapping[int, Allotment],
    before: Sequence[str],
    now: Sequence[str],
    servers_before: Sequence[str] = (),
    servers_now: Sequence[str] = (),
) -> dict[int, Allotment]:
    """A schedule on servers that are numbered otherwise now; what stood on a server that is gone is left out.

    Names are those of the worker servers and of the parameter servers, in the order of their numbers.
    """
    of_workers, of_servers = _numbers(before, now), _numbers(servers_before, servers_now)

    def moved(new: Sequence[int], server: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        there = np.array([new[at] if at < len(new) else -1 for at in server.tolist()], dtype=np.int32)
        return there[there >= 0], count[there >= 0]

    return {
        slot: Allotment(
            *moved(of_workers, there.worker_server, there.workers),
            *moved(of_servers, there.parameter_server, there.servers),
        )
        for slot, there in schedule.items()
    }


def _numbers(before: Sequence[str], now: Sequence[str]) -> list[int]:
    number = {name: at for at, name in enumerate(now)}
    return [number.get(name, -1) for name in before]
