"""How much of the queue one user, and all together, may take up. Pure.

What an earlier version has taken in, and what comes out of a Slurm partition, is counted and never turned away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from asad.errors import AsadError
from asad_mesos.job_spec import MEBIBYTE, Spec
from asad_mesos.settings import Settings

KINDS = (
    ("jobs", "jobs", 1),
    ("tasks", "tasks in jobs", 1),
    ("mb", "MiB of scripts, commands and environments in jobs", MEBIBYTE),
)
"""Ends of the names of settings, what is counted, and its unit; in the order of the fields of `Usage`."""


class OverQuota(AsadError):
    """There is no room for another job; the message names the limit and the setting."""


class Usage(NamedTuple):
    """What jobs that have not ended take up."""

    jobs: int = 0
    tasks: int = 0
    size_bytes: int = 0
    """Of their descriptions, as the journal has them."""

    def plus(self, other: Usage, sign: int = 1) -> Usage:
        """Both together; with `sign` -1 this without the other."""
        return Usage(*(mine + sign * others for mine, others in zip(self, other, strict=True)))


def usage_of(spec: Spec, plain: Mapping[str, Any]) -> Usage:
    """What one job takes up, of which `plain` is the JSON."""
    return Usage(1, spec.tasks, len(orjson.dumps(plain)))


def check(spec: Spec, asked: Usage, mine: Usage, everybody: Usage, settings: Settings) -> None:
    """Raises OverQuota if its user or all together have no room for a job; it asks for `asked`, and `mine` is what
    that user has already."""
    for (name, what, unit), more, own, total in zip(KINDS, asked, mine, everybody, strict=True):
        for key, whose, there, whom in (
            (f"user_{name}", f"{spec.user} has", own, "one user has"),
            (f"most_{name}", "all users together have", total, "all have"),
        ):
            most = getattr(settings, key)
            if there + more > most * unit:
                has, asks = _plain(there / unit), _plain(more / unit)
                raise OverQuota(
                    f"{whose} {has} {what} on Mesos that have not ended, and {asks} more are beyond the {most} that "
                    f"{whom} at the most ([mesos] {key}); ask for less, wait until some have ended, or cancel some: "
                    "asactl cancel JOB"
                )


def _plain(amount: float) -> str:
    """Without an exponent, to a thousandth."""
    return f"{amount:.3f}".rstrip("0").rstrip(".") if amount % 1 else f"{amount:.0f}"
