"""Results of sweeps: runs that name their sweep and the task that they are the result of.

Every function raises StoreError, with the store's name and the hint, if the database fails it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from sqlalchemy import delete, insert, select, update

from asad.errors import UsageError
from asad.store import schema
from asad.store.database import Database
from asad.store.encoding import text, to_text
from asad.store.process import this_process
from asad.store.records import Record


class Place(NamedTuple):
    """Where in its sweep a task stands."""

    log: str
    configuration: str
    seed: int


@dataclass(frozen=True, slots=True)
class SweepResult(Record):
    """One replay of one log under one configuration with one seed."""

    HIDDEN: ClassVar[tuple[str, ...]] = ("machine", "settings")

    sweep: str
    task: str
    """Digest of all that decides the outcome."""
    policy: str
    log: dict[str, Any]
    machine: dict[str, Any]
    settings: dict[str, Any]
    """Of the replay; `sweep` in it holds `log`, `configuration` and `seed`, `rank` among the `tasks`, and the
    `baseline` that the other configurations are compared with."""
    started_at: float
    """Wall clock, UTC epoch."""
    ended_at: float
    state: Literal["done", "failed"]
    failure: str
    """Why it failed, or the empty string."""
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Its place in the sweep."""
        return Place(*(self.settings["sweep"][name] for name in Place._fields))


def keep(store: Database, result: SweepResult) -> None:
    """Keep a result, in one transaction, instead of what the same task came to before."""
    runs, process = schema.runs, this_process()
    row = {
        "kind": "replay",
        "sweep": text(result.sweep),
        "task": result.task,
        "policy": text(result.policy),
        "log_path": text(result.log.get("path", "")),
        "log_sha256": text(result.log.get("sha256", "")),
        "log": to_text(result.log),
        "machine": to_text(result.machine, canonical=True),
        "settings": to_text(result.settings, canonical=True),
        "metrics": to_text(result.metrics),
        "started_at": result.started_at,
        "ended_at": result.ended_at,
        "state": result.state,
        "failure": text(result.failure),
        "decisions": 0,
        "host": process.host,
        "boot_id": process.boot_id,
        "pid_namespace": process.pid_namespace,
        "pid": process.pid,
        "pid_started": process.pid_started,
    }
    same = (runs.c.sweep == row["sweep"], runs.c.task == row["task"])
    with store.writing("keeping a result of a sweep") as connection:
        connection.execute(delete(runs).where(*same))
        connection.execute(update(schema.run_number).values(newest=schema.run_number.c.newest + 1))
        number = connection.execute(select(schema.run_number.c.newest)).scalar_one()
        connection.execute(insert(runs).values(id=number, **row))


def states(store: Database, sweep: str) -> dict[str, str]:
    """Task → its state, of what the store holds of a sweep."""
    runs = schema.runs.c
    with store.reading("reading a sweep") as connection:
        rows = connection.execute(select(runs.task, runs.state).where(runs.sweep == text(sweep)))
        return {row.task: row.state for row in rows}


def results(store: Database, sweep: str) -> list[SweepResult]:
    """The results of a sweep by rank, of each place the newest.

    Raises UsageError if there is no sweep of that name.
    """
    runs = schema.runs
    query = select(runs).where(runs.c.sweep == text(sweep)).order_by(runs.c.id)
    with store.reading("reading a sweep") as connection:
        newest = {one.place: one for one in map(SweepResult.of_row, connection.execute(query))}
    if not newest:
        raise UsageError(
            f"{store}: there is no sweep {sweep!r}; `asactl sweep list` lists those that there are"
        )
    return sorted(newest.values(), key=lambda one: int(one.settings["sweep"]["rank"]))


def names(store: Database) -> list[str]:
    """The sweeps, the one with the newest result first."""
    runs = schema.runs.c
    query = select(runs.sweep).where(runs.sweep.is_not(None)).order_by(runs.id.desc())
    with store.reading("listing sweeps") as connection:
        return list(dict.fromkeys(connection.scalars(query)))


def remove(store: Database, sweep: str) -> int:
    """Remove a sweep; how many results it had."""
    with store.writing("removing a sweep") as connection:
        removed = connection.execute(delete(schema.runs).where(schema.runs.c.sweep == text(sweep))).rowcount
    store.give_back_space()
    return int(removed)
