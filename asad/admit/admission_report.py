"""Reports of admission, as plain data: the numbers behind a verdict, one job, and all of them by slot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from asad.admit.commitments import Commitment
from asad.bounded import shown
from asad.hold import Hold, plain
from asad.model import Json

MOST_SLOTS = 60
"""So many slots of a plan are reported."""


def story(entry: Commitment, slot_s: float) -> dict[str, Json]:
    """The numbers behind a verdict."""
    plan = sorted((at, there.width) for at, there in entry.schedule.items() if there.width)
    found: dict[str, Json] = {
        "verdict": entry.state,
        "utility": entry.utility,
        "by_rule": entry.by_rule,
        "claim": plain(entry.claim),
        "counted": plain(entry.counted),
        "budget": plain(entry.budget),
        "slot_s": slot_s,
        "arrival_s": entry.arrival * slot_s,
        "submit_s": plain(entry.submit_s),
        "task_s": plain(entry.task_s),
        "work": entry.work,
        "most_workers": entry.most_workers,
        "cores": entry.cores,
        "tres": dict(entry.tres),
        "companion": entry.companion or None,
        "workers_per_server": plain(entry.workers_per_server),
        "beside": entry.beside or None,
        "payoff": plain(entry.payoff),
        "worth": plain(entry.worth),
        "cost": plain(entry.cost),
        "schedule": [[at * slot_s, width] for at, width in plan[:MOST_SLOTS]],
        "end_s": (plan[-1][0] + 1) * slot_s if plan else None,
    }
    if entry.state != "admitted" and entry.cost > 0 and math.isfinite(entry.worth):
        # its cost is linear in prices, so at this part of them it would have paid
        found["let_in_at"] = max(0.0, entry.worth / entry.cost)
    return found


def job(entry: Commitment, slot: int, slot_s: float) -> dict[str, Json]:
    """One job: the verdict, and what holds it back."""
    return {
        "job": entry.key,
        "reason": entry.reason,
        "hint": shown(entry.hint),
        **story(entry, slot_s),
        "deferred_s": plain(entry.until_s),
        "throttle": entry.throttled if entry.throttled >= 0 else None,
        "next_s": _start_s(entry.next_slot(slot), slot_s),
        "let_go": entry.hold is Hold.USER_OVERRIDE,
    }


def row(entry: Commitment, slot: int, slot_s: float) -> dict[str, Json]:
    """One job of many."""
    return {
        "job": entry.key,
        "verdict": entry.state,
        "utility": entry.utility,
        "reason": entry.reason,
        "payoff": plain(entry.payoff),
        "workers": entry.width(slot) if entry.schedule else None,
        "work": entry.work,
        "next_s": _start_s(entry.next_slot(slot), slot_s),
        "end_s": (max(entry.schedule) + 1) * slot_s if entry.schedule else None,
    }


def slots(
    entries: Iterable[Commitment],
    slot: int,
    slot_s: float,
    others: Sequence[float] | None,
    prices: Sequence[float] | None,
) -> list[Json]:
    """From the present slot to the last that is planned: cores of plans and of `others`, and the price of a core."""
    planned: dict[int, int] = {}
    for entry in entries:
        for at, there in entry.schedule.items():
            if at >= slot:
                planned[at] = planned.get(at, 0) + there.width * entry.cores
    last = min(max(planned, default=slot) + 1, slot + MOST_SLOTS)
    return [
        {
            "start_s": at * slot_s,
            "planned_cores": planned.get(at, 0),
            "other_cores": _at(others, at - slot),
            "price": _at(prices, at - slot),
        }
        for at in range(slot, last)
    ]


def prices_by_slot(prices: Sequence[float], slot: int, slot_s: float) -> list[Json]:
    """[beginning of the slot, price] from the present slot on."""
    return [[(slot + ahead) * slot_s, plain(float(price))] for ahead, price in enumerate(prices[:MOST_SLOTS])]


def _at(values: Sequence[float] | None, ahead: int) -> Json:
    return None if values is None or ahead >= len(values) else plain(float(values[ahead]))


def _start_s(slot: int | None, slot_s: float) -> float | None:
    return None if slot is None else slot * slot_s
