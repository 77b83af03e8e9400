"""The state store: what every run decided and why, and how it ended.

SQLite in WAL mode by default, PostgreSQL by URL; one process writes a run, any number read it meanwhile. What live
clusters keep besides stands in `learned`, `ledger`, `quota_audit`, `share_cases` and `statements`, for as long as
`retention` says.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from sqlalchemy import Column, Connection, Row, Select, delete, func, insert, or_, select, union, update

from asad.errors import UsageError
from asad.model import Json
from asad.store import schema
from asad.store.database import PAGE, Database
from asad.store.encoding import text, to_text
from asad.store.process import ProcessMark, this_process
from asad.store.recording import FLUSH_EVERY, Run
from asad.store.records import DecisionRecord, JobEnd, RunKind, RunRecord


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, by which the store knows a log again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Story(NamedTuple):
    """What is stored of one job."""

    runs: list[RunRecord]
    """Oldest first."""
    decisions: list[DecisionRecord]
    """By time; of one time as they were recorded."""
    ends: list[JobEnd]


class Store(Database):
    """An open state store. Also a context manager that closes it.

    Every method raises StoreError, with the store's name and the hint, if the database fails it.
    """

    def begin_run(
        self,
        kind: RunKind,
        policy: str,
        log: Mapping[str, Json] | None,
        machine: Mapping[str, Json],
        settings: Mapping[str, Json],
        *,
        supersede_killed: bool = False,
        flush_every: int = FLUSH_EVERY,
    ) -> Run:
        """Begin to record a run.

        `log` says what is replayed: its `path` and `sha256` (see `file_sha256`), and whatever else is known
        of it; None for a live cluster. `settings` hold the seed. With `supersede_killed` every killed run of
        the same kind, policy, log (by its sha256), machine and settings is removed with what it had decided,
        in the same transaction: a replay that was interrupted starts again and leaves nothing twice.
        """
        if kind not in get_args(RunKind):
            raise UsageError(f"a run is one of {', '.join(get_args(RunKind))}, not {kind!r}")
        log = dict(log or {})
        process = this_process()
        sha256 = log.get("sha256")
        row = {
            "kind": kind,
            "policy": text(policy),
            "log_path": text(log["path"]) if log.get("path") is not None else None,
            "log_sha256": text(sha256) if sha256 is not None else None,
            "log": to_text(log),
            "machine": to_text(machine, canonical=True),
            "settings": to_text(settings, canonical=True),
            "started_at": time.time(),
            "state": "running",
            "failure": "",
            "decisions": 0,
            "metrics": "{}",
            "host": process.host,
            "boot_id": process.boot_id,
            "pid_namespace": process.pid_namespace,
            "pid": process.pid,
            "pid_started": process.pid_started,
        }
        identity = ("kind", "policy", "log_sha256", "machine", "settings")
        with self.writing("beginning a run") as connection:
            _mark_killed(connection)
            if supersede_killed and sha256 is not None:
                same = [schema.runs.c[column] == row[column] for column in identity]
                connection.execute(delete(schema.runs).where(schema.runs.c.state == "killed", *same))
            connection.execute(update(schema.run_number).values(newest=schema.run_number.c.newest + 1))
            number = connection.execute(select(schema.run_number.c.newest)).scalar_one()
            connection.execute(insert(schema.runs).values(id=number, **row))
        return Run(self, number, flush_every)

    def continue_run(self, run_id: int, *, flush_every: int = FLUSH_EVERY) -> Run:
        """Go on recording a run of this process after its store was lost and found.

        Raises UsageError if the store does not hold it (any more).
        """
        self.run(run_id)
        with self.reading("finding the end of a run") as connection:
            following = [
                connection.scalar(
                    select(func.coalesce(func.max(table.c.seq) + 1, 0)).where(table.c.run_id == run_id)
                )
                for table in (schema.decisions, schema.job_ends)
            ]
        return Run(self, run_id, flush_every, *following)

    def runs(self, limit: int | None = None) -> list[RunRecord]:
        """The stored runs, newest first, at most `limit` of them; those of sweeps are in `asad.store.sweeps`."""
        alone = select(schema.runs).where(schema.runs.c.sweep.is_(None))
        with self.reading("listing runs") as connection:
            return _run_records(connection, alone.limit(limit))

    def run(self, run_id: int) -> RunRecord:
        """One stored run.

        Raises UsageError if there is none of that number.
        """
        with self.reading("reading a run") as connection:
            found = _run_records(connection, select(schema.runs).where(schema.runs.c.id == run_id))
        if not found:
            raise UsageError(f"{self}: there is no run {run_id}; `asactl runs` lists those that there are")
        return found[0]

    def runs_of(self, job: str) -> list[RunRecord]:
        """The stored runs in which lending touched `job`, newest first."""
        name = text(job)
        touched = union(
            select(schema.decisions.c.run_id).where(schema.decisions.c.job == name),
            select(schema.decisions.c.run_id).where(schema.decisions.c.host == name),
            select(schema.job_ends.c.run_id).where(schema.job_ends.c.job == name),
        )
        with self.reading("looking for a job") as connection:
            return _run_records(connection, select(schema.runs).where(schema.runs.c.id.in_(touched)))

    def story(self, job: str, run: RunRecord, *, alone: bool = False) -> Story:
        """What `run` has of a job, and if it is a daemon's (unless `alone`) what earlier ones on the same cluster have.

        A job goes on while the daemon is started anew. What a daemon replays begins again instead, with the same jobs.
        """
        cluster, runs = run.machine.get("cluster"), [run]
        if run.kind == "live" and cluster != "recorded" and not alone:
            runs += [
                other
                for other in self.runs_of(job)
                if other.kind == "live" and other.id < run.id and other.machine.get("cluster") == cluster
            ]
        runs.reverse()
        decisions = [decision for one in runs for decision in self.decisions(one.id, job)]
        return Story(
            runs,
            sorted(decisions, key=lambda decision: decision.time_s),
            [end for one in runs for end in self.job_ends(one.id, job)],
        )

    def remove_runs(self, run_ids: Iterable[int], *, force: bool = False) -> int:
        """Remove runs with all that belongs to them; how many there were.

        Raises UsageError, and removes none, if one of them does not exist or (without `force`) still runs.
        """
        wanted = set(run_ids)
        with self.writing("removing runs") as connection:
            found = _run_records(connection, select(schema.runs).where(schema.runs.c.id.in_(wanted)))
            missing = wanted - {record.id for record in found}
            if missing:
                numbers = ", ".join(map(str, sorted(missing)))
                raise UsageError(
                    f"{self}: there is no run {numbers}; `asactl runs` lists those that there are"
                )
            for record in found:
                if record.state == "running" and not force:
                    raise UsageError(
                        f"{self}: run {record.id} is still being recorded by process {record.process.pid} "
                        f"on {record.process.host}; stop that first, or say --force"
                    )
            connection.execute(delete(schema.runs).where(schema.runs.c.id.in_(wanted)))
        self.give_back_space()
        return len(found)

    def decisions(self, run_id: int, job: str | None = None) -> Iterator[DecisionRecord]:
        """The decisions of a run in order; only those of `job`, as guest or as host, if given."""
        columns = schema.decisions.c
        query = select(schema.decisions).where(columns.run_id == run_id)
        if job is not None:
            query = query.where(or_(columns.job == text(job), columns.host == text(job)))
        return map(DecisionRecord.of_row, self._in_order(query, columns.seq, "reading decisions"))

    def job_ends(self, run_id: int, job: str | None = None) -> Iterator[JobEnd]:
        """How the jobs that lending touched ended, in the order of recording; only `job`, if given."""
        columns = schema.job_ends.c
        query = select(schema.job_ends).where(columns.run_id == run_id)
        if job is not None:
            query = query.where(columns.job == text(job))
        return map(JobEnd.of_row, self._in_order(query, columns.seq, "reading the ends of jobs"))

    def _in_order(self, query: Select[Any], seq: Column[int], doing: str) -> Iterator[Row[Any]]:
        """Rows by rising `seq`, page by page: whoever reads slowly holds up no writer."""
        query, last = query.order_by(seq).limit(PAGE), -1
        while True:
            with self.reading(doing) as connection:
                page = connection.execute(query.where(seq > last)).all()
            yield from page
            if len(page) < PAGE:
                return
            last = page[-1].seq

    def jobs_touched(self, run_id: int, limit: int = 20_000) -> list[str]:
        """Names of jobs that lending touched in a run, sorted, at most `limit` of them."""
        names = union(
            select(schema.decisions.c.job).where(schema.decisions.c.run_id == run_id),
            select(schema.decisions.c.host).where(
                schema.decisions.c.run_id == run_id, schema.decisions.c.host.is_not(None)
            ),
            select(schema.job_ends.c.job).where(schema.job_ends.c.run_id == run_id),
        ).subquery()
        with self.reading("listing jobs") as connection:
            return list(connection.scalars(select(names.c.job).order_by(names.c.job).limit(limit)))


def _mark_killed(connection: Connection) -> None:
    """Note which runs are gone while that can still be determined: after a move or a reboot it may not be."""
    running = select(schema.runs).where(schema.runs.c.state == "running")
    for record in map(_run_record, connection.execute(running).all()):
        if record.state == "killed":
            connection.execute(
                update(schema.runs)
                .where(schema.runs.c.id == record.id)
                .values(state="killed", failure=record.failure)
            )


def _run_records(connection: Connection, query: Select[Any]) -> list[RunRecord]:
    return [_run_record(row) for row in connection.execute(query.order_by(schema.runs.c.id.desc())).all()]


def _run_record(row: Row[Any]) -> RunRecord:
    process = ProcessMark(row.host, row.boot_id, row.pid_namespace, row.pid, row.pid_started)
    killed = row.state == "running" and process.is_gone()
    return RunRecord(
        id=row.id,
        kind=row.kind,
        policy=row.policy,
        log=json.loads(row.log),
        machine=json.loads(row.machine),
        settings=json.loads(row.settings),
        started_at=row.started_at,
        ended_at=row.ended_at,
        state="killed" if killed else row.state,
        failure=f"process {row.pid} went away" if killed else row.failure,
        checkpoint_s=row.checkpoint_s,
        decisions=row.decisions,
        metrics=json.loads(row.metrics),
        process=process,
    )
