"""Companions: arrays whose tasks are the parameter servers of another array, the workers that name them (`ps=NAME`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from asad.admit.commitments import Commitment, commitment_of
from asad.admit.elastic import Allotment
from asad.admit.hints import read_hint
from asad.admit.run_times import RunTimes
from asad.admit.seen import Seen, can_start, name_of, own_throttle_of
from asad.model import Snapshot


def companions(
    snapshot: Snapshot, seen: Mapping[str, Seen], known: Mapping[str, Commitment], run_times: RunTimes
) -> dict[str, str]:
    """Arrays whose tasks are parameter servers → the workers that name them.

    By number or by name, of the same user; none that names parameter servers itself. Of several of one name each
    array of workers has its own, in the order of their submission.
    """
    jobs = snapshot.jobs
    wanted: list[tuple[float, str, str]] = []
    found: dict[str, str] = {}
    for key, there in seen.items():
        entry, text = known.get(key), snapshot.hints.get(there.any_row, "")
        if entry is not None and entry.companion in seen:
            found[entry.companion] = key
        elif there.array >= 0 and "ps" in text and (entry is None or not entry.beside):
            try:
                name = read_hint(text).parameter_servers
            except ValueError:
                continue
            if name:
                wanted.append((float(jobs.submit_s[there.any_row]), key, name))
    if not wanted:
        return found
    workers = {key for _, key, _ in wanted} | set(found.values())
    named: dict[tuple[int, str], list[str]] = {}
    arrays = [(key, there.any_row) for key, there in seen.items() if there.array >= 0]
    for key, row in sorted(arrays, key=lambda one: (float(jobs.submit_s[one[1]]), one[0])):
        if key in workers or not can_start(snapshot, seen[key], known.get(key)):
            continue
        user = int(jobs.user[row])
        for name in {key, name_of(run_times.application(snapshot, row))}:
            named.setdefault((user, name), []).append(key)
    for _, key, name in sorted(wanted):
        user = int(jobs.user[seen[key].any_row])
        mate = next((one for one in named.get((user, name), ()) if one not in found), None)
        if mate is not None:
            found[mate] = key
    return found


def taken_in(
    snapshot: Snapshot,
    there: Seen,
    key: str,
    number: int,
    workers: Commitment,
    before: Commitment | None,
    slot: int,
    asked_at: int,
) -> Commitment:
    """A new companion; of what it was `before` for itself only what was changed of it stays known."""
    entry = commitment_of(
        snapshot,
        there.any_row,
        key=key,
        number=number,
        state="ended",
        utility="",
        by_rule=False,
        reason="",
        arrival=slot,
        array=True,
        beside=workers.key,
        own_throttle=own_throttle_of(snapshot, there),
        asked_at=asked_at,
    )
    if before is not None:
        entry.state = "admitted" if before.state == "released" else before.state
        for name in ("reported", "hold", "until_s", "wished_s", "own_throttle", "throttled", "wished_tasks"):
            setattr(entry, name, getattr(before, name))
    return entry


def follow(entry: Commitment, workers: Commitment, slot: int) -> bool:
    """The verdict of the workers is that of their companion too, and their plan from `slot` on; is any of it new?"""
    state = "admitted" if workers.state == "ended" else workers.state
    verdict = "admitted" if state == "admitted" else "not admitted"
    reason = f"its tasks are the parameter servers of {workers.key}, which is {verdict}"
    plan = {
        at: workers.servers_for(there.width)
        for at, there in workers.schedule.items()
        if there.width and at >= slot
    }
    new = False
    if (entry.state, entry.reason) != (state, reason):
        # who was admitted for itself needs no verdict again
        entry.reported = entry.reported and entry.state == state
        entry.state, entry.reason, new = state, reason, True
    if plan != {at: there.width for at, there in entry.schedule.items()}:
        entry.schedule, new = {at: _anywhere(tasks) for at, tasks in plan.items()}, True
    return new


def released(entry: Commitment, there: Seen) -> bool:
    """Its workers are gone, so it is to be as its user had it; is there anything to release?"""
    entry.schedule = {}
    if entry.state == "admitted" and there.row >= 0:
        entry.state = "released"
        return True
    return entry.state == "released" and there.row >= 0


def _anywhere(tasks: int) -> Allotment:
    """So many tasks, wherever they stand."""
    none = np.zeros(0, np.int32)
    return Allotment(np.zeros(1, np.int32), np.array([tasks], np.int32), none, none)
