"""What recording costs, against JSON and the bare driver on such rows in the same process."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
from stated import beside

from asad.decisions import Cause, CoAllocate, Decision, Outcome, SetShare
from asad.store.database import BULK_CACHE_MIB
from asad.store.encoding import to_text
from asad.store.store import Store

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


def test_recording_against_json_and_the_bare_driver(tmp_path: Path, smallest: bool) -> None:
    decisions, bare_rows = (3_000, 5_000) if smallest else (300_000, 50_000)
    rng = np.random.default_rng(1)
    cycles = [
        [Outcome(sample(first + i, rng), True, "") for i in range(CYCLE)] for first in range(0, 3000, CYCLE)
    ]
    names, hosts = np.arange(3000), np.full(3000, -1)
    with Store.open(str(tmp_path / "asad.db"), cache_mib=BULK_CACHE_MIB) as store:
        run = store.begin_run("bench", "asax", None, {}, {})
        began, cpu = time.perf_counter(), time.process_time()
        for cycle in range(decisions // CYCLE):
            run.record(cycle, cycle * 30.0, cycles[cycle % len(cycles)], names, host_rows=hosts)
        run.finish({})
        wall_us = (time.perf_counter() - began) / decisions * 1e6
        ours_us = (time.process_time() - cpu) / decisions * 1e6
        assert store.run(run.id).decisions == decisions
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
        for first in range(0, bare_rows, 5000):
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
            bare.executemany(f"INSERT INTO decisions VALUES ({marks})", rows)  # noqa: S608
            bare.execute("COMMIT")
        bare_us = (time.process_time() - began_cpu) / bare_rows * 1e6
    print(f"\nrecording: {wall_us:.1f} µs a decision ({ours_us:.1f} µs of CPU; bare driver {bare_us:.1f} µs)")
    print(beside("CPU of recording over that of the bare driver", ours_us / bare_us, 2.5, "times"))
