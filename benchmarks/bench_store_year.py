"""What a year of a large cluster leaves in the state store: each row is written, summed up and removed in its time.

Rows are such as a daemon writes (`make soak` shows their mix and length), and more of them: each job is host or guest
of a lending, has more decisions and quota changes than were ever seen, and each tenth has a statement of work.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stated import beside

from asad.applications import MOST
from asad.experts.state import FEATURES
from asad.store import learned, retention, schema, share_cases, start_forecasts, upkeep
from asad.store.database import BULK_CACHE_MIB
from asad.store.retention import Keep
from asad.store.share_cases import MOST_LIVE
from asad.store.store import Store
from lab.postgres_server import NoServer, postgres_server

DAY_S, DAYS = 86_400.0, 365
NODES, JOBS = 1_000, 2_000_000
DECISIONS, QUOTAS = 8, 4
"""Of each job. The soak's cluster has 2.6 decisions and 0.8 quota changes of each job that lending touches."""
CASES = 28_800
"""A day: what `MOST_CASES` allows of each cycle of 30 s."""
FORECAST = 2
"""Forecasts of each job that has started: one as it came, and of some one an hour."""
STATED = 0.1
"""Part of the jobs that have a statement of work."""
APPLICATIONS, SCOPES = MOST, ("slurm/share/asax", "slurm/admit/oasis", "slurm/defer/rollout")
"""As many as are ever kept, of three stages."""
CGROUP = "/sys/fs/cgroup/system.slice/slurmstepd.scope"
START_S = 1_800_000_000.0 // DAY_S * DAY_S
BOUND_GIB = 10.0
ACCOUNTS = 200
PARTITIONS, REASONS = 20, ("limit", "no room", "order", "not eligible", "other")
"""In each of so many partitions jobs wait at all hours, for each of these reasons."""
KEEP_DAYS = {"decisions": 30, "quota_audit": 14, "others": 90, "sums by hour": 60}
"""The defaults of `[daemon] retention_days` and of `[store]`."""
VACUUM_DAYS = 3
"""PostgreSQL's own vacuum, which looks once a minute, has no time for a year that passes in minutes."""
FIXED = {"decision_summaries", "job_end_summaries", "runs", "run_number", "schema_version"}
"""Tables that do not grow with jobs and nodes."""
MOSTLY = {"share_cases": MOST_LIVE, "forecasts": start_forecasts.MOST}
"""Tables that hold no more rows than these."""
KINDS = (
    ("set-share", 0.60, 16, 443, 57, 0),
    ("set-quota", 0.15, 51, 2, 51, 0),
    ("co-allocate", 0.11, 80, 115, 112, 0),
    ("co-allocate", 0.13, 147, 116, 187, 66),
    ("extend-limit", 0.01, 2, 2, 39, 0),
)
"""Kind, its part of all, and the mean length of `more`, `detail`, `reason` and `outcome_reason` in `make soak`."""


class Year:
    """Draws the rows of days."""

    def __init__(self, part: float) -> None:
        self.rng = np.random.default_rng(1)
        self.part, self.jobs = part, max(1, round(JOBS * part / DAYS))
        self.nodes = max(1, round(NODES * part))
        self.first = self.decided = 0
        state = json.dumps({feature.name: 0.1234 for feature in FEATURES[:9]}, separators=(",", ":"))
        self.state = state
        self.texts = [tuple("x" * length if length else "" for length in lengths) for _, _, *lengths in KINDS]

    def day(self, number: int, age_days: float = 0.0) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        """Rows of one day, by table, of those tables in which they are kept at that age."""
        rng, begin = self.rng, START_S + number * DAY_S
        names = [str(self.first + k) for k in range(self.jobs)]
        self.first += self.jobs
        ends = np.sort(rng.uniform(begin, begin + DAY_S, self.jobs)).tolist()
        if age_days < KEEP_DAYS["decisions"]:
            yield "decisions", self._decisions(begin, names)
        yield from self._ends(number, names, ends)
        if age_days < KEEP_DAYS["quota_audit"]:
            yield "quota_audit", self._quotas(begin, names)

    def _decisions(self, begin: float, names: list[str]) -> list[tuple[Any, ...]]:
        rng, parts = self.rng, np.array([part for _, part, *_ in KINDS])
        count = DECISIONS * self.jobs
        of_job = rng.integers(0, self.jobs, count).tolist()
        of_kind = rng.choice(len(KINDS), count, p=parts).tolist()
        times = np.sort(rng.uniform(begin, begin + DAY_S, len(of_job))).tolist()
        shares = np.round(rng.random(len(of_job)), 4).tolist()
        rows = [
            (
                *(1, self.decided + k, self.decided // 30 + k, times[k], KINDS[kind][0], names[job], job),
                *(names[job - 1], job, shares[k], None, self.texts[kind][0], "asax", self.texts[kind][2]),
                *("vetoed" if kind == 3 else "done", self.texts[kind][3], self.texts[kind][1]),
            )
            for k, (job, kind) in enumerate(zip(of_job, of_kind, strict=True))
        ]
        self.decided += len(of_job)
        return rows

    def _ends(
        self, number: int, names: list[str], ends: list[float]
    ) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        """What is kept for ninety days."""
        rng, begin = self.rng, START_S + number * DAY_S
        roles = ["guest" if guest else "host" for guest in (rng.random(self.jobs) < 0.15).tolist()]
        accounts = rng.integers(0, ACCOUNTS, self.jobs).tolist()
        yield (
            "job_ends",
            [
                (
                    1,
                    self.first + k,
                    names[k],
                    roles[k],
                    end - 9e4,
                    end - 8e4,
                    end,
                    end - 7e4,
                    end + 1.0,
                    k % 50 == 0,
                )
                for k, end in enumerate(ends)
            ],
        )
        yield (
            "ledger",
            [
                (names[k], roles[k], end, f"account{accounts[k]}", 1234.5678 + k, 0.5)
                for k, end in enumerate(ends)
            ],
        )
        cases = np.sort(rng.uniform(begin, begin + DAY_S, max(1, round(CASES * self.part)))).tolist()
        yield (
            "share_cases",
            [
                (
                    1,
                    time_s,
                    names[k % self.jobs],
                    f"user{k % 500}/run-#/16",
                    0.3,
                    0.5102160737734144,
                    0.25,
                    self.state,
                )
                for k, time_s in enumerate(cases)
            ],
        )
        yield (
            "forecasts",
            [
                (end - 8e4, end - 9e4, end - 5e4, f"partition{k % PARTITIONS}", not again)
                for k, end in enumerate(ends)
                for again in range(FORECAST)
            ],
        )
        stated = range(max(1, round(STATED * self.jobs)))
        number *= len(stated)
        yield (
            "statements",
            [
                (
                    *(
                        "slurm/admit/sow",
                        number + k,
                        f"user{k % 500}",
                        "nightly-run",
                        names[k % self.jobs],
                        "completed",
                    ),
                    *("it is worth its price", ends[k] - 9e4, ends[k], "a" * 300, "p" * 200),
                )
                for k in stated
            ],
        )
        yield "launch_plans", [("slurm/admit/sow", number + k, ends[k] - 9e4, "p" * 600) for k in stated]
        yield (
            "statement_ledger",
            [
                ("slurm/admit/sow", number + k, account, ends[k], names[k], "paid", amount)
                for k in stated
                for account, amount in ((f"user{k % 500}", -1_000_000), ("(house)", 1_000_000))
            ],
        )

    def _quotas(self, begin: float, names: list[str]) -> list[tuple[Any, ...]]:
        rng = self.rng
        changed = np.sort(rng.uniform(begin, begin + DAY_S, QUOTAS * self.jobs)).tolist()
        of_node = rng.integers(0, self.nodes, len(changed)).tolist()
        return [
            (
                *(f"cn{of_node[k]}", time_s, names[k // QUOTAS]),
                f"{CGROUP}/job_{names[k // QUOTAS]}/cpu.{'max' if k % 2 else 'idle'}",
                *("100000 100000", "20450 100000", "leased"),
            )
            for k, time_s in enumerate(changed)
        ]

    def sums(self, number: int, age_days: float) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
        """What is left of a day at that age, by table: about as many sums as its rows would have become."""
        step_s = 3600 if age_days < KEEP_DAYS["sums by hour"] else round(DAY_S)
        yield "wait_summaries", self.waits(number, step_s)
        begins = np.arange(START_S + number * DAY_S, START_S + (number + 1) * DAY_S, float(step_s)).tolist()
        jobs = self.jobs * step_s / DAY_S
        if age_days >= KEEP_DAYS["decisions"]:
            kinds = [(name, "vetoed" if k == 3 else "done", part) for k, (name, part, *_) in enumerate(KINDS)]
            yield (
                "decision_summaries",
                [
                    (step_s, begin, "asax", name, outcome, count, 0.5 * count, 0.98765)
                    for begin in begins
                    for name, outcome, part in kinds
                    for count in (int(DECISIONS * jobs * part) or 1,)
                ],
            )
        if age_days >= KEEP_DAYS["quota_audit"]:
            files, counts = ("cpu.max", "cpu.idle"), self._counts(len(begins), self.nodes * 2, QUOTAS * jobs)
            yield (
                "quota_summaries",
                [(step_s, begins[k], f"cn{of // 2}", files[of % 2], count) for k, of, count in counts],
            )
        if age_days >= KEEP_DAYS["others"]:
            counts, roles = self._counts(len(begins), ACCOUNTS * 2, jobs), ("host", "guest")
            yield (
                "ledger_summaries",
                [
                    (
                        step_s,
                        begins[k],
                        f"account{of // 2}",
                        roles[of % 2],
                        count,
                        1234.5 * count,
                        4321.5,
                        0.5,
                        0.5,
                    )
                    for k, of, count in counts
                ],
            )
            yield (
                "job_end_summaries",
                [
                    (step_s, begin, role, loser, int(jobs / 4) or 1, 1e5 * jobs, 123456.7)
                    for begin in begins
                    for role in roles
                    for loser in (False, True)
                ],
            )

    def waits(self, number: int, step_s: int = 3600) -> list[tuple[Any, ...]]:
        """For how long jobs waited on a day: sums from the first, of a look a minute."""
        begins = np.arange(START_S + number * DAY_S, START_S + (number + 1) * DAY_S, float(step_s)).tolist()
        partitions = max(1, round(PARTITIONS * self.part))
        looks, jobs = step_s // 60, 123.0
        return [
            (
                step_s,
                begin,
                f"partition{k}",
                reason,
                looks,
                60 * jobs * looks,
                60 * jobs,
                960 * jobs * looks,
                960 * jobs,
            )
            for begin in begins
            for k in range(partitions)
            for reason in REASONS
        ]

    def _counts(self, steps: int, cells: int, total: float) -> list[tuple[int, int, int]]:
        """Step, cell and count where that is not zero, of so many rows a step thrown into the cells."""
        thrown = self.rng.poisson(total / cells, (steps, cells))
        where = np.nonzero(thrown)
        return list(zip(*(part.tolist() for part in where), thrown[where].tolist(), strict=True))


def load(store: Store, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows into a table by the shortest way that its database has."""
    columns = ", ".join(schema.METADATA.tables[name].c.keys())
    with store.writing("filling") as connection:
        if store.url.get_backend_name() == "sqlite":
            marks = ", ".join("?" * len(rows[0]))
            connection.exec_driver_sql(f"INSERT INTO {name} ({columns}) VALUES ({marks})", list(rows))  # noqa: S608
            return
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {name} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)


def live(store: Store, part: float) -> None:
    """The run of the daemon, and what it has learned."""
    store.begin_run("live", "asax", None, {"cluster": "slurm"}, {"interval_s": 30.0})
    for scope in SCOPES:
        names = [f"user{k % 500}/application-{k}-#/16" for k in range(round(APPLICATIONS * part))]
        learned.save(store, scope, {name: {"w": "x" * 820} for name in names})


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("way", ["passes through", "leaves"])
def test_a_year(tmp_path: Path, request: pytest.FixtureRequest, kind: str, way: str, smallest: bool) -> None:
    """`passes through`: each row is written and removed in its time. `leaves`: what is left is written at once."""
    part = 0.0005 if smallest else float(request.config.getoption("--of-year"))
    fill = pass_through if way == "passes through" else leave
    if kind == "sqlite":
        fill(str(tmp_path / "asad.db"), part, smallest)
        return
    try:
        with postgres_server(tempfile.gettempdir()) as folder:
            fill(f"postgresql://asad@/postgres?host={folder}", part, smallest)
    except NoServer as missing:
        pytest.skip(str(missing))


def pass_through(url: str, part: float, smallest: bool) -> None:
    """The year day by day, and the table of what it left."""
    keep = Keep(*(DAY_S * KEEP_DAYS[name] for name in ("others", "decisions", "quota_audit", "sums by hour")))
    year, (days, look_days) = Year(part), (100, 10) if smallest else (DAYS, 1)
    most_bytes, longest_s, removing_s, steps = 0, 0.0, 0.0, 0
    began, cpu = time.perf_counter(), time.process_time()
    with Store.open(url, cache_mib=BULK_CACHE_MIB) as store:
        live(store, part)
        for number in range(days):
            for name, rows in (*year.day(number), ("wait_summaries", year.waits(number))):
                load(store, name, rows)
            if (number + 1) % look_days:
                continue
            step_s = time.perf_counter()
            for _ in retention.steps(store, START_S + (number + 1) * DAY_S, None, keep):
                now_s = time.perf_counter()
                longest_s, removing_s = max(longest_s, now_s - step_s), removing_s + now_s - step_s
                steps, step_s = steps + 1, now_s
            if store.url.get_backend_name() == "postgresql" and number % VACUUM_DAYS == 0:
                upkeep.vacuum(store, lambda done, whole: None)
            most_bytes = max(most_bytes, upkeep.total_bytes(store))
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        print(
            f"\n{place(store)}, {part:g} of a year passed through: {wall_s:.0f} s, {cpu_s:.0f} s of CPU here;"
        )
        print(
            f"{steps} steps of retention took {removing_s:.0f} s, the longest {longest_s:.2f} s; at most "
            f"{most_bytes / 2**20:,.0f} MiB on the disk"
        )
        report(store, part)


def leave(url: str, part: float, smallest: bool) -> None:
    """What is left after a year, and the table of it."""
    year, days = Year(part), 100 if smallest else DAYS
    began, cpu = time.perf_counter(), time.process_time()
    with Store.open(url, cache_mib=BULK_CACHE_MIB) as store:
        live(store, part)
        for number in range(days):
            age_days = days - 1 - number
            raw = year.day(number, age_days) if age_days < KEEP_DAYS["others"] else ()
            for name, rows in (*raw, *year.sums(number, age_days)):
                if rows:
                    load(store, name, rows)
        with store.writing("filling") as connection:
            share_cases.forget_oldest(connection)
            start_forecasts.forget_oldest(connection)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        print(f"\n{place(store)}, what {part:g} of a year leaves: {wall_s:.0f} s, {cpu_s:.0f} s of CPU here")
        report(store, part)


def place(store: Store) -> str:
    return store.url.get_backend_name()


def report(store: Store, part: float) -> None:
    """The table by table, and what all of it comes to for the whole year."""
    found, on_disk = upkeep.sizes(store), upkeep.total_bytes(store)
    print(f"{'table':20} {'rows':>12} {'MiB':>9} {'bytes/row':>9} {'rows of all':>12} {'MiB of all':>10}")
    whole = 0.0
    for one in found:
        size = one.bytes or 0
        each = size / one.rows if one.rows else 0.0
        rows = one.rows if one.table in FIXED else min(one.rows / part, MOSTLY.get(one.table, np.inf))
        whole += rows * each
        print(
            f"{one.table:20} {one.rows:12,} {size / 2**20:9.1f} {each:9.0f} {rows:12,.0f} {rows * each / 2**20:10.1f}"
        )
    print(f"on the disk at the end {on_disk / 2**20:,.0f} MiB")
    print(beside("all tables of a whole year", whole / 2**30, BOUND_GIB, "GiB"))
    assert sum(one.rows for one in found if one.table.endswith("_summaries")) > 0
