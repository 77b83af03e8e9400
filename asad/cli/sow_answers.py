"""What `asactl sow … --json` prints; the rest stands in `asad.cli.json_answers`."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Plain = dict[str, Any]
"""An object whose keys depend on the statement."""


class SowInfer(TypedDict):
    """`asactl sow infer`"""

    log: str
    as_of_s: float
    jobs: int
    recurring_jobs: int
    recurring_core_share: float | None
    rejected: dict[str, int]
    calibration: Plain
    recurring: list[Plain]


class SowSubmit(TypedDict):
    """`asactl sow submit`"""

    statements: list[Plain]
    acts: NotRequired[bool]
    kept: NotRequired[bool]
    now_s: NotRequired[float]
    round_s: NotRequired[float]


class SowCancel(TypedDict):
    """`asactl sow cancel`"""

    statements: list[Plain]


class SowQuote(TypedDict):
    """`asactl sow quote`"""

    policy: str
    cores: int
    round_s: float
    first_s: float
    takes_s: float
    menu: list[Plain]
    """By start: `start_s`, `price`, `failure`."""


class SowStatus(TypedDict):
    """`asactl sow status`"""

    statements: list[Plain]
    counts: dict[str, int]


class SowLedger(TypedDict):
    """`asactl sow ledger`"""

    entries: list[Plain]
    balances: list[Plain]
    sum: float | None
