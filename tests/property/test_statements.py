"""Whatever is announced, comes, fails, is evicted or killed with the daemon: one plan each, a ledger that balances."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from slotted_cluster import Job
from stated_cluster import EPOCH, ROUND_S, World, announced, job

from asad.decisions import EVICTIONS, Defer, Evict
from asad.model import HOUSE, STATEMENTS_OVER

ROUNDS = 40


@some.composite
def histories(draw: some.DrawFn) -> tuple[list[Job], list[tuple[int, list[Any]]]]:
    """Jobs, some with hints or names of statements, and what is announced before which step."""
    statements: list[tuple[int, list[Any]]] = []
    jobs: list[Job] = []
    for number in range(1, draw(some.integers(1, 6)) + 1):
        birth, due = draw(some.integers(0, 8)), draw(some.integers(0, 6))
        longest, cores = draw(some.integers(1, 5)), draw(some.integers(1, 4))
        late = draw(some.sampled_from((0, 1, 3)))
        by_name = draw(some.booleans())
        statement = announced(
            f"n{number}" if by_name else "",
            due=birth + due,
            cores=cores,
            runs=[(0, 1, 0.5), (late, longest, 0.5)],
            value=draw(some.sampled_from((1.0, 20.0, 90.0))),
            eviction=draw(some.sampled_from(EVICTIONS)),
            shape=draw(some.sampled_from(("deadline", "linear"))),
        )
        statements.append((2 * birth, [statement]))
        if draw(some.booleans()):
            hint = f"sow={number if draw(some.booleans()) else draw(some.integers(1, 9))}"
            at = birth + due + draw(some.integers(-1, 3))
            jobs.append(
                job(str(100 + number), run=draw(some.integers(1, 6)), at=max(0, at), hint=hint, cores=cores)
            )
    for number in range(draw(some.integers(0, 5))):
        at, run = draw(some.integers(0, 20)), draw(some.integers(1, 12))
        jobs.append(job(str(200 + number), run=run, at=at, cores=draw(some.integers(1, 4))))
    return jobs, statements


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(histories(), some.sets(some.integers(0, 2 * ROUNDS), max_size=4), some.data())
def test_plans_bind_the_ledger_balances_and_jobs_end(
    history: tuple[list[Job], list[tuple[int, list[Any]]]], kills: set[int], data: Any
) -> None:
    jobs, statements = history
    world = World(jobs)
    world.cluster.fails |= data.draw(
        some.sets(some.sampled_from([one.name for one in jobs] or [""]), max_size=2)
    )
    begins: dict[str, float] = {}
    answers: list[dict[str, Any]] = []
    for step in range(2 * ROUNDS):
        for at, seen in statements:
            if at == step:
                answers += world.submit(*seen)
        if step in kills:
            # killed before or after what it had decided last was written
            world.restart(keep=data.draw(some.booleans()))
        world.cycle.run_once()
        for one in jobs:
            if not math.isnan(one.begin_s):
                begins[one.name] = one.begin_s
        world.cluster.run(world.cluster.now_s + ROUND_S / 2)
    world.run((world.cluster.now_s - EPOCH) / ROUND_S + 40)

    # of each statement that was not declined one plan, and at most one posting, whose lines sum to zero
    assert [answer["statement"] for answer in answers] == list(range(1, len(statements) + 1))
    numbers = Counter(row["number"] for row in world.plans)
    planned = {answer["statement"] for answer in answers if answer["state"] == "planned"}
    assert set(numbers) == planned == set(world.rows) and set(numbers.values()) <= {1}
    accounts = Counter((line["number"], line["account"]) for line in world.lines)
    assert set(accounts.values()) <= {1}
    for number in numbers:
        charged = world.charged(number)  # type: ignore[arg-type]
        assert sum(charged.values()) == 0 and set(charged) in (set(), {"ann", HOUSE})
        state = world.state_of(number)  # type: ignore[arg-type]
        assert state in STATEMENTS_OVER
        assert any(charged.values()) <= (state == "completed"), "no payment without completion"
        assert bool(charged) == (state in ("completed", "failed", "evicted", "cancelled"))
    # who pays completed well, and nobody was evicted but by his owner's choice
    for row in world.rows.values():
        if row["state"] == "completed":
            assert row["job"] not in world.cluster.fails | set(world.cluster.evicted)
    for _, decision in world.cluster.done:
        if isinstance(decision, Evict):
            seen = statements[int(decision.cause.detail["statement"]) - 1][1][0]  # type: ignore[arg-type]
            assert decision.how == seen.eviction
        if isinstance(decision, Defer):
            row = world.rows[int(decision.cause.detail["statement"])]  # type: ignore[arg-type]
            assert decision.until_s <= EPOCH + ROUND_S * (ROUNDS + 40)
            assert row["job"] == decision.cause.detail["job"]
    # no hold is left, and no job is lost
    assert not world.policy.consents and not world.cluster.illegal
    for one in jobs:
        held = one.name in world.cluster.held
        assert held or all(not math.isnan(task.end_s) for task in one.all), one
        assert held <= (one.name in world.cluster.evicted)
