"""What owners ask of statements of work: to take them, to take them back, what a job would cost, and how they stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from asad.admit import AdmitPolicy
from asad.admit.sow import Mechanism
from asad.admit.sow.announcements import Announcement, needing
from asad.admit.sow.planning import Planning
from asad.admit.sow.promises import Promise, statement_of
from asad.admit.sow.statement import Bounds
from asad.admit.sow.statement_options import Options
from asad.admit.sow.statement_register import Register
from asad.errors import UsageError
from asad.hold import plain
from asad.model import Json

if TYPE_CHECKING:
    from asad.admit.admission_policy import Admission


class StatementsDesk(AdmitPolicy):
    """A policy that promises something to those who announce their jobs."""

    promises = takes_statements = True

    def __init__(
        self,
        name: str,
        make: Callable[[Bounds], Mechanism],
        applications: Sequence[str],
        options: Options | None = None,
    ) -> None:
        """`make` a mechanism for a cluster; `applications` names the codes of `Jobs.application` and may grow."""
        self.name, self.options = name, options or Options()
        self.register = Register(self.options.round_s)
        self.planning = Planning(make, self.options, self.register, applications)
        self.consents = self.register.consents

    @property
    def admission(self) -> Admission:
        """None: it plans statements. Raises UsageError."""
        raise UsageError(f"[policies] admit is {self.name}: asactl sow status shows statements")

    @property
    def ready(self) -> bool:
        """Is it known what was promised before? Until then nothing is."""
        return self.planning.ready

    @property
    def changed(self) -> bool:
        """Is there something that `unkept` has not described?"""
        return self.register.changed

    def submit(self, announced: Sequence[Announcement], owner: str, now_s: float) -> list[dict[str, Json]]:
        """Plan jobs that their owner announces, in this order. One that is wrong keeps those before it from being made.

        Raises UsageError with the number of the statement, what is wrong and the remedy; AsadError if it is too early.
        """
        mechanism = self.planning.at(now_s)
        register, planning = self.register, self.planning
        mine = sum(promise.owner == owner for promise in register.open.values())
        for whose, there, key in (
            (f"{owner} has", mine, "most_open"),
            ("all owners together have", len(register.open), "most_open_all"),
        ):
            most = getattr(self.options, key)
            if there + len(announced) > most:
                raise UsageError(
                    f"{whose} {there} open statements, and {len(announced)} more are beyond the {most} that may be "
                    f"open at one time ([admit.{self.name}] {key}); wait until some are over, or withdraw some: "
                    "asactl sow cancel NUMBER"
                )
        options, stated = self.options, []
        for at, one in enumerate(announced, 1):
            try:
                if one.value > options.most_value:
                    raise UsageError(
                        f"value: {one.value:g} is more than the {options.most_value:g} that counts here; write less"
                    )
                needs = planning.needs(mechanism, one)
                stated.append(
                    statement_of(
                        one, planning.round, options.round_s, planning.unit, mechanism.bounds, *needs
                    )
                )
            except UsageError as error:
                raise UsageError(f"statement {at}: {error}") from None
        answers = []
        for one, statement in zip(announced, stated, strict=True):
            number = register.number()
            answer = mechanism.submit(number, statement)
            promise = Promise(
                number=number,
                owner=owner,
                announced=one,
                state="declined" if answer.plan.never else "planned",
                reason=answer.reason,
                born_s=now_s,
                birth=planning.round,
                demand=statement.demand,
                longest=int(statement.duration.max()),
                plan=answer.plan,
                utility=answer.utility,
                payment=answer.payment,
                failure=answer.failure.tolist(),
                price=np.array([[round(float(price), 9) for price in row] for row in answer.price]),
                changed_s=now_s,
                tres=dict(statement.tres),
            )
            answers.append(register.view(promise))
            register.add(promise)
        return answers

    def withdraw(self, number: int, owner: str | None, now_s: float) -> dict[str, Json]:
        """Take a statement back; `owner` None may take back anybody's. Its job, if it waits, waits on without it.

        Raises UsageError for a number that is not open, not his, or of a job that runs.
        """
        self.planning.at(now_s)
        promise = self.register.open.get(number)
        if promise is None or (owner is not None and promise.owner != owner):
            raise UsageError(
                f"there is no open statement {number} of yours; asactl sow status lists those that there are"
            )
        if promise.state in ("running", "evicting"):
            raise UsageError(f"statement {number}: its job {promise.job} runs; scancel {promise.job} ends it")
        self.planning.forget(promise)
        self.register.release(promise, "withdrawn", "its owner has taken it back")
        return self.register.view(promise)

    def quote(self, cores: int, now_s: float, beside: Mapping[str, str] | None = None) -> dict[str, Json]:
        """The menu for jobs of so many cores: price and failure probability by start and rounds.

        `beside`: the keys of statements for what they need besides. Raises UsageError for a job that is not planned
        here; AsadError if it is too early.
        """
        mechanism, options = self.planning.at(now_s), self.options
        unit, most = self.planning.unit, mechanism.bounds.max_demand
        if not 1 <= math.ceil(cores / unit) <= most:
            raise UsageError(f"{cores} cores: jobs of 1 to {most * unit} cores are planned here")
        one = needing(cores, beside or {})
        needed, tres = self.planning.needs(mechanism, one)
        demand = math.ceil(needed / unit)
        if demand > most:
            raise UsageError(
                f"memory: it is the share of {needed} cores; jobs of 1 to {most * unit} are planned here"
            )
        price, failure = mechanism.tables(demand, tres) if tres else mechanism.tables(demand)
        return {
            "policy": self.name,
            "cores": cores,
            **one.beside,
            "round_s": options.round_s,
            "first_s": self.planning.round * options.round_s,
            "price": [[plain(one) for one in row] for row in price.tolist()],
            "failure": [[float(one) for one in row] for row in failure.tolist()],
        }

    def status(self, owner: str | None = None) -> dict[str, Json]:
        """Open statements and those that were over last; values and prices only of `owner`, of all if it is None."""
        register = self.register
        return {
            "policy": self.name,
            "now_s": plain(register.now_s),
            "round_s": self.options.round_s,
            "cores": self.planning.cores,
            "counts": dict(register.counts),
            "statements": [
                register.view(promise, own=owner in (None, promise.owner)) for promise in register.rows()
            ],
        }

    def explain(self, job: str) -> dict[str, Json] | None:
        """The statement of a job; None if it has none."""
        return self.register.explain(job)

    def overview(self) -> dict[str, Json]:
        """What `status` describes of everybody's."""
        return self.status()
