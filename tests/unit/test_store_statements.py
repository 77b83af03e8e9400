"""Statements of work in the state store, on SQLite and PostgreSQL: plans that bind, a ledger that balances."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_store_databases import opened, url

from asad.errors import StoreError
from asad.model import HOUSE
from asad.store import learned, retention, statements
from asad.store.records import (
    PlanRecord,
    StatementBalance,
    StatementChanges,
    StatementEntry,
    StatementRecord,
)
from asad.store.store import Store
from asad.store.writer import RunStart, Writer

__all__ = ["opened", "url"]  # fixtures
SCOPE = "slurm/admit/sow"


def statement(number: int, state: str = "planned", owner: str = "ann", **facts: object) -> StatementRecord:
    known = StatementRecord(
        number=number,
        owner=owner,
        name="nightly",
        job="",
        state=state,
        reason="it is worth its price",
        born_s=1000.0 + number,
        changed_s=2000.0 + number,
        announced={"cores": 4, "runs": [[0.0, 60.0, 1.0]]},
        progress={},
    )
    return replace(known, **facts)  # type: ignore[arg-type]


def posting(number: int, amount_micro: int, what: str = "paid", owner: str = "ann") -> list[StatementEntry]:
    time_s = 3000.0 + number
    return [
        StatementEntry(number, owner, time_s, str(100 + number), what, -amount_micro),
        StatementEntry(number, HOUSE, time_s, str(100 + number), what, amount_micro),
    ]


def kept(*records: StatementRecord, **facts: object) -> StatementChanges:
    return StatementChanges({record.number: record for record in records}, **facts)  # type: ignore[arg-type]


def test_statements_come_back_as_they_were_reported_last(opened: Store) -> None:
    evil = statement(2, owner="bob", name="evil\x1b[2J\0name\udcff", progress={"start_s": math.nan})
    statements.save(opened, SCOPE, kept(statement(1), evil))
    statements.save(opened, SCOPE, kept(statement(1, "completed", job="77")))
    statements.save(opened, "other/admit/sow", kept(statement(1, owner="eve")))
    first, second = statements.statements(opened, SCOPE)[::-1]
    assert first == statement(1, "completed", job="77")
    assert (second.owner, second.name) == ("bob", "evil\x1b[2J\\x00name\\udcff")
    assert second.progress == {"start_s": None}
    assert [one.number for one in statements.statements(opened, SCOPE, over=False)] == [2]
    assert [one.owner for one in statements.statements(opened, owner="eve")] == ["eve"]
    assert len(statements.statements(opened, limit=2)) == 2
    assert statements.newest_number(opened, SCOPE) == 2 and statements.newest_number(opened, "none") == 0


def test_a_plan_is_written_once(opened: Store) -> None:
    plan = PlanRecord(1, 5.0, {"rows": [[10, 0, 12]]})
    statements.save(opened, SCOPE, kept(statement(1), plans={1: plan}))
    statements.save(opened, SCOPE, kept(plans={1: PlanRecord(1, 6.0, {"rows": [[10, 0, 99]]})}))
    assert statements.plans(opened, SCOPE, [1, 2]) == {1: plan}


def test_the_ledger_balances_and_nobody_is_charged_twice(opened: Store) -> None:
    lines = [*posting(1, 2_500_000), *posting(2, 1), *posting(3, 0, "evicted", "bob")]
    statements.save(opened, SCOPE, kept(entries=lines))
    statements.save(
        opened, SCOPE, kept(entries=posting(1, 9_000_000))
    )  # of a daemon that was killed in between
    assert statements.entries(opened, SCOPE) == sorted(lines, key=lambda line: (line.number, line.account))
    assert [line.number for line in statements.entries(opened, account="bob")] == [3]
    assert statements.balances(opened, SCOPE) == [
        StatementBalance(HOUSE, 3, 2, 1, 2_500_001),
        StatementBalance("ann", 2, 2, 0, -2_500_001),
        StatementBalance("bob", 1, 0, 1, 0),
    ]
    assert sum(one.balance_micro for one in statements.balances(opened, SCOPE, since_s=3002.0)) == 0


def test_all_of_a_change_is_kept_or_nothing(opened: Store) -> None:
    wrong = replace(statement(2), state=None)  # type: ignore[arg-type]
    changes = kept(statement(1), wrong, entries=posting(1, 5), memory={"*": {"next": 3}})
    with pytest.raises(StoreError, match="keeping statements of work"):
        statements.save(opened, SCOPE, changes)
    assert statements.statements(opened) == [] and statements.entries(opened) == []
    assert learned.load(opened, SCOPE) == {}


def test_what_the_policy_knows_is_kept_with_it(opened: Store) -> None:
    statements.save(opened, SCOPE, kept(statement(1), memory={"*": {"next": 2}, "mechanism": {"seed": 1}}))
    statements.save(opened, SCOPE, kept(memory={"*": {"next": 9}}))
    assert learned.load(opened, SCOPE) == {"*": {"next": 9}, "mechanism": {"seed": 1}}


def test_plans_by_which_nobody_is_charged_go_and_so_does_what_was_taken_back_in_time(opened: Store) -> None:
    plans = {number: PlanRecord(number, 1.0, {}) for number in range(1, 6)}
    statements.save(opened, SCOPE, kept(*(statement(number) for number in plans), plans=plans))
    statements.save(opened, "other/admit/sow", kept(statement(1), plans={1: plans[1]}))
    over = [
        statement(1, "withdrawn"),
        statement(2, "withdrawn", job="7"),
        statement(3, "missed"),
        statement(4, "declined", job="8"),
        statement(5, "completed", job="9"),
    ]
    statements.save(opened, SCOPE, kept(*over, memory={"*": {"next": 6}}))
    assert [one.number for one in statements.statements(opened, SCOPE)] == [5, 4, 3, 2]
    assert set(statements.plans(opened, SCOPE, list(plans))) == {5}
    assert set(statements.plans(opened, "other/admit/sow", [1])) == {1}
    late = kept(statement(6, "withdrawn"), plans={6: PlanRecord(6, 1.0, {})})
    statements.save(opened, SCOPE, late)  # the store was away while it was open
    assert statements.newest_number(opened, SCOPE) == 5 and statements.plans(opened, SCOPE, [6]) == {}


def test_what_is_old_is_forgotten_and_the_rest_still_balances(opened: Store) -> None:
    old, open_still, young = (
        statement(1, "completed"),
        statement(2),
        statement(3, "evicted", changed_s=9000.0),
    )
    lines = [*posting(1, 7), *posting(3, 0, "evicted")]
    plans = {number: PlanRecord(number, 1.0, {}) for number in (1, 2, 3)}
    statements.save(opened, SCOPE, kept(old, open_still, young, plans=plans, entries=lines))
    assert retention.forget_before(opened, 3002.0) == 2 + 1 + 1
    assert [one.number for one in statements.statements(opened)] == [3, 2]
    assert set(statements.plans(opened, SCOPE, [1, 2, 3])) == {2, 3}
    assert {line.number for line in statements.entries(opened)} == {3}
    assert sum(one.balance_micro for one in statements.balances(opened)) == 0


def test_a_writer_keeps_them_when_the_store_is_back(tmp_path: Path) -> None:
    path, tries = tmp_path / "asad.db", []

    def later(url: str) -> Store:
        tries.append(url)
        if len(tries) < 3:
            raise StoreError("the disk is full; make room")
        return Store.open(url)

    writer = Writer(str(path), RunStart("sow", {}, {}), open_store=later, again_s=(0.01, 0.02))
    plan = PlanRecord(1, 1.0, {"rows": [1]})
    writer.save_statements(SCOPE, kept(statement(1), plans={1: plan}))
    writer.save_statements(SCOPE, kept(statement(1, "completed"), entries=posting(1, 4)))
    writer.save_statements(SCOPE, StatementChanges())
    assert writer.wait_until_written(300.0) and writer.close({})
    with Store.open(str(path)) as store:
        assert [one.state for one in statements.statements(store, SCOPE)] == ["completed"]
        assert statements.plans(store, SCOPE, [1]) == {1: plan}
        assert len(statements.entries(store, SCOPE)) == 2


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_store_statements import SCOPE, PlanRecord, Store, kept, posting, statement, statements
with Store.open({path!r}) as store:
    number = 0
    while True:
        number += 1
        plans = {{number: PlanRecord(number, 1.0, {{}})}}
        changes = kept(statement(number, "completed"), plans=plans, entries=posting(number, number))
        statements.save(store, SCOPE, changes)
        print(number, flush=True)
"""


def test_a_kill_in_the_middle_leaves_whole_postings(tmp_path: Path) -> None:
    path = str(tmp_path / "asad.db")
    code = KILLED.format(tests=str(Path(__file__).parent), path=path)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 20:
        pass
    time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Store.open(path) as store:
        numbers = [one.number for one in statements.statements(store, SCOPE)]
        assert len(numbers) >= 20 and numbers == list(range(len(numbers), 0, -1))
        assert len(statements.entries(store, SCOPE)) == 2 * len(numbers)
        assert len(statements.plans(store, SCOPE, numbers)) == len(numbers)
        assert sum(one.balance_micro for one in statements.balances(store, SCOPE)) == 0
