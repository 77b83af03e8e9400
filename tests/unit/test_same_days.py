"""Gains of a live run beside those of a replay: of the same days, counted alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from asad.store.records import JobEnd, Role, RunKind
from asad.store.same_days import beside_replay
from asad.store.store import Store

HOUR = 3600.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "asad.db")) as opened:
        yield opened


def end(job: str, end_s: float, sooner_s: float, role: Role = "guest", loser: bool = False) -> JobEnd:
    return JobEnd(job, role, 0.0, 1.0, end_s, None, end_s + sooner_s, loser)


def run(store: Store, kind: RunKind, policy: str, *ends: JobEnd, finished: bool = True) -> int:
    recording = store.begin_run(kind, policy, {}, {}, {})
    recording.record_ends(ends)
    if finished:
        recording.finish({})
    else:
        recording.flush()
    return recording.id


def test_what_both_know_of_is_counted_alike(store: Store) -> None:
    live = run(
        store, "live", "asax",
        end("1", 10 * HOUR, 500.0), end("2", 20 * HOUR, 700.0), end("3", 21 * HOUR, 0.0, "host", True),
        finished=False,
    )  # fmt: skip
    played = run(
        store, "replay", "asax",
        end("1", 2 * HOUR, 9000.0), end("1", 12 * HOUR, 40.0), end("4", 22 * HOUR, -100.0, "guest", True),
    )  # fmt: skip
    found = beside_replay(store, live)
    assert found == {
        "run": played,
        "policy": "asax",
        "from_s": 10 * HOUR,
        "to_s": 21 * HOUR,
        "live": {"guests": 2, "sooner_s": 1200.0, "losers": 1},
        "replay": {"guests": 1, "sooner_s": 40.0, "losers": 0},
    }


def test_a_replay_of_the_same_policy_comes_before_a_newer_one(store: Store) -> None:
    days = end("1", HOUR, 1.0), end("2", 9 * HOUR, 1.0)
    live = run(store, "live", "asax", *days, finished=False)
    same, _ = run(store, "replay", "asax", *days), run(store, "replay", "static", *days)
    assert (beside_replay(store, live) or {})["run"] == same


def test_other_days_unfinished_replays_and_empty_runs_are_none(store: Store) -> None:
    live = run(store, "live", "asax", end("1", HOUR, 1.0), end("2", 5 * HOUR, 1.0), finished=False)
    run(store, "replay", "asax", end("1", 90 * HOUR, 1.0), end("2", 99 * HOUR, 1.0))
    run(store, "replay", "asax")
    run(store, "live", "asax", end("1", HOUR, 1.0), end("2", 5 * HOUR, 1.0))
    assert beside_replay(store, live) is None
    assert beside_replay(store, run(store, "live", "asax", finished=False)) is None
    assert beside_replay(store, 999) is None
