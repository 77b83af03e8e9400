"""What recording costs. `pytest -s` prints the figure."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from asad.model import Cause, CoAllocate, Decision, Outcome, SetShare
from asad.store.encoding import to_text
from asad.store.store import Store

DECISIONS = 300_000
CYCLE = 10
"""Decisions of one cycle."""


def sample(number: int, rng: np.random.Generator) -> Decision:
    detail = {
        "leaf": "cpu-light",
        "probability": float(rng.random()),
        "weights": rng.random(4).tolist(),
        "host_idle": 0.35,
    }
    cause = Cause("asax", "the host leaves 35 % of its CPU idle", detail)
    if number % 3 == 0:
        return SetShare(cause=cause, guest=number, share=0.3)
    return CoAllocate(cause=cause, guest=number, host=number * 7 % 3000, nodes=(number % 64,), share=0.4)


@pytest.mark.slow
def test_recording_costs_little_more_than_json_and_the_insert(tmp_path: Path) -> None:
    """Against json and the bare driver on such rows, in the same process: a ratio, as machines differ."""
    rng = np.random.default_rng(1)
    cycles = [
        [Outcome(sample(first + i, rng), True, "") for i in range(CYCLE)] for first in range(0, 3000, CYCLE)
    ]
    names, hosts = np.arange(3000), np.full(3000, -1)
    with Store.open(str(tmp_path / "asad.db")) as store:
        run = store.begin_run("bench", "asax", None, {}, {})
        began, cpu = time.perf_counter(), time.process_time()
        for cycle in range(DECISIONS // CYCLE):
            run.record(cycle, cycle * 30.0, cycles[cycle % len(cycles)], names, host_rows=hosts)
        run.finish({})
        wall_us = (time.perf_counter() - began) / DECISIONS * 1e6
        ours_us = (time.process_time() - cpu) / DECISIONS * 1e6
        assert store.run(run.id).decisions == DECISIONS
        with store.reading("test") as connection:
            row = connection.exec_driver_sql("SELECT * FROM decisions WHERE seq = 1").one()
            schema = connection.exec_driver_sql(
                "SELECT sql FROM sqlite_master WHERE tbl_name = 'decisions' AND sql IS NOT NULL"
            ).scalars()
            statements = list(schema)

    with closing(sqlite3.connect(tmp_path / "bare.db", isolation_level=None)) as bare:
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = NORMAL")
        for statement in statements:
            bare.execute(statement)
        marks = ", ".join("?" * len(row))
        began_cpu = time.process_time()
        for first in range(0, 50_000, 5000):
            rows = [
                (
                    1,
                    seq,
                    *row[2:-1],
                    to_text(cycles[seq // CYCLE % len(cycles)][seq % CYCLE].decision.cause.detail),
                )
                for seq in range(first, first + 5000)
            ]
            bare.execute("BEGIN IMMEDIATE")
            bare.executemany(f"INSERT INTO decisions VALUES ({marks})", rows)
            bare.execute("COMMIT")
        bare_us = (time.process_time() - began_cpu) / 50_000 * 1e6
    print(f"\nrecording: {wall_us:.1f} µs a decision ({ours_us:.1f} µs of CPU; bare driver {bare_us:.1f} µs)")
    assert ours_us < 2.5 * bare_us
