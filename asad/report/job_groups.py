"""Who would gain: recorded waits and the change by partition, account, QOS, and by whether jobs hold gres."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asad.replay.results import ReplayResult
from asad.report import units
from asad.report.measures import BASELINE, headline

TITLES = {"partition": "Partition", "account": "Account", "qos": "QOS", "gres": "Gres"}
MOST = 20
"""Rows of one property that are shown; the JSON has all."""


class JobGroup(NamedTuple):
    """Jobs that share a property, as the first seed has them."""

    by: str
    """`partition`, `account`, `qos` or `gres`."""
    name: str
    """Empty for jobs of which it is not recorded."""
    jobs: int
    recorded_wait_mean_s: float | None
    """As the log has it; None where it has no starts."""
    policy: str | None
    """The policy that the report is about; None where there is none."""
    response_change: float | None
    """Their mean response under it over that of the cluster left alone, minus 1."""
    guests: int | None
    """How many of them it ran as guests."""


def job_groups(result: ReplayResult) -> list[JobGroup]:
    """By each property that the log has, the groups in order of their jobs, the largest first."""
    return [
        group
        for by, kind in result.kinds.items()
        for group in sorted(
            (_group(result, by, code) for code in np.unique(kind.code).tolist()),
            key=lambda group: (-group.jobs, group.name),
        )
    ]


def _group(result: ReplayResult, by: str, code: int) -> JobGroup:
    kind, name = result.kinds[by], headline(result)
    rows = kind.code == code
    wait_s, change, guests = None, None, None
    if result.recorded_wait_s is not None and not np.isnan(result.recorded_wait_s[rows]).any():
        wait_s = float(result.recorded_wait_s[rows].mean())
    if name is not None:
        own, alone = (
            float((result.policies[one].end_s - result.submit_s)[rows].mean()) for one in (name, BASELINE)
        )
        change = own / alone - 1.0 if alone else None
        guests = int(result.policies[name].guest[rows].sum())
    return JobGroup(by, kind.names[code] if code >= 0 else "", int(rows.sum()), wait_s, name, change, guests)


def tables(result: ReplayResult) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Caption, heads and rows of a table by each property."""
    found = job_groups(result)
    heads = ("jobs", "recorded wait", "response", "guests")
    return [
        (
            f"Jobs by {title if by == 'qos' else title.lower()}",
            (title, *heads),
            [
                (
                    units.plain(group.name, 30) or "not recorded",
                    units.number(group.jobs),
                    units.duration(group.recorded_wait_mean_s),
                    units.change(group.response_change),
                    units.number(group.guests),
                )
                for group in [one for one in found if one.by == by][:MOST]
            ],
        )
        for by, title in TITLES.items()
        if by in result.kinds
    ]
