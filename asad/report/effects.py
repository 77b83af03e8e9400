"""What kinds of policies do to jobs, in the words of the report: one row a kind, read by verdict, page and table."""

from __future__ import annotations

from typing import NamedTuple

from asad.replay.results import PolicyResult
from asad.report.measures import SCHEDULERS


class Effect(NamedTuple):
    """The words for one kind of policy; `{}` stands for the policy's name."""

    doing: str
    """Between the log and the policy's name, in the title of the page."""
    subject: str
    """Begins a sentence about what it gained."""
    nothing: str
    """The whole sentence if it touched no job; empty where such a policy still has a gain to report."""
    touched: str
    """Those who may have paid for it, after a number."""


LENDING = Effect(
    "lending with",
    "Lending with {}",
    "{} found nothing to lend: no job became host or guest.",
    "hosts and guests",
)
SCHEDULING = Effect("replayed under", "Scheduling with {}", "", "hosts and guests")
DEFERRAL = Effect(
    "deferral by",
    "Deferral by {}",
    "{} changed nothing: no job was deferred.",
    "deferrable jobs that were held back",
)
STATEMENTS = Effect(
    "planning by",
    "Statements of work by {}",
    "{} changed nothing: no job was held to a plan.",
    "jobs that were held to their plans or evicted",
)
ADMISSION = Effect(
    "admission by",
    "Admission by {}",
    "{} changed nothing: no job was admitted, deferred or throttled.",
    "jobs that were admitted, deferred or throttled",
)


def effect_of(policy: PolicyResult) -> Effect:
    """The kind of a policy, by what its result counts."""
    if policy.deferring:
        return DEFERRAL
    if policy.stating:
        return STATEMENTS
    if policy.managed is not None:
        return ADMISSION
    return SCHEDULING if policy.name in SCHEDULERS else LENDING
