"""What `asactl sow` asks of a daemon: statements of work, each of whoever the kernel says that asks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from asad.admit.sow.announcements import MOST_CORES, MOST_STATEMENTS, Announcement, announcement_of
from asad.api.control import Peer, Request, may_change
from asad.errors import AsadError, UsageError
from asad.model import Json
from asad.store import statements as stated
from asad.store.store import Store

if TYPE_CHECKING:
    from asad.admit.sow.statements_policy import Statements
    from asad.daemon.daemon import Daemon

BESIDE = ("gres", "licenses", "memory")
"""Keys of a statement, and of a quote, for what a job needs beside cores."""
WRITTEN_S = 2.0
"""So long a reader of the store waits for what was stated before to be written."""


class StatementRequests:
    """Of one daemon. `answer` is called in the main thread, `ledger` in any."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def answer(self, request: Request, peer: Peer) -> Json:
        """Statements of work: taken, taken back, quoted and described; his who asks, as the kernel says."""
        daemon = self._daemon
        admit = daemon.cycle.admit.statements
        whose = None if may_change(peer, daemon.control.operators) else peer.user
        match request.verb:
            case "sow-status":
                return cast(Json, admit.status(whose))
            case "sow-quote":
                return self._quote(admit, request)
            case "sow-cancel":
                return self._withdraw(admit, request, whose)
        return self._submit(admit, request, peer)

    def _quote(self, admit: Statements, request: Request) -> Json:
        cores = request.arguments.get("cores")
        if not isinstance(cores, int) or isinstance(cores, bool) or not abs(cores) <= MOST_CORES:
            raise UsageError("cores is missing or no whole number; write --cores 8")
        beside = {key: request.arguments[key] for key in BESIDE if request.arguments.get(key)}
        return cast(Json, admit.quote(cores, self._daemon.now_s, cast("Mapping[str, str]", beside)))

    def _withdraw(self, admit: Statements, request: Request, whose: str | None) -> Json:
        number = request.arguments.get("statement")
        if not isinstance(number, int) or isinstance(number, bool):
            raise UsageError("the number of the statement is missing; asactl sow status lists them")
        reported = admit.withdraw(number, whose, self._daemon.now_s)
        return {"statement": cast(Json, reported), "kept": self._daemon.policy_state.kept_now()}

    def _submit(self, admit: Statements, request: Request, peer: Peer) -> Json:
        daemon, cycle, now_s = self._daemon, self._daemon.cycle, self._daemon.now_s
        if cycle.mode == "observe" or cycle.paused:
            why = "it is paused (asactl resume)" if cycle.paused else "its mode is observe"
            raise UsageError(f"nothing new is promised while the daemon only looks on: {why}")
        owner = peer.user
        if peer.uid == 0 and "user" in request.arguments:
            owner = request.text("user")
        answers = admit.submit(_announced(request, now_s), owner, now_s)
        return {
            "statements": cast(Json, answers),
            "acts": cycle.mode == "enforce",
            "kept": daemon.policy_state.kept_now(),
            "now_s": now_s,
            "round_s": admit.options.round_s,
        }

    def ledger(self, peer: Peer) -> Json:
        """The asker's own lines and balance; of an operator all. Read from the store."""
        daemon = self._daemon
        with contextlib.suppress(AsadError):
            daemon.writer.wait_until_written(WRITTEN_S)
        account = None if may_change(peer, daemon.control.operators) else peer.user
        with Store.open(daemon.config.store_url, create=False) as store:
            return cast(Json, stated.ledger(store, daemon.policy_state.ledger_scope, account))


def _announced(request: Request, now_s: float) -> list[Announcement]:
    """The statements of a request, those that come again as often as it says. Raises UsageError."""
    given, times = request.arguments.get("statements"), request.arguments.get("times", 1)
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise UsageError("there is no statement; asactl sow submit FILE sends those of a file")
    if not isinstance(times, int) or isinstance(times, bool) or not 1 <= times <= MOST_STATEMENTS:
        raise UsageError(f"times: write a whole number from 1 to {MOST_STATEMENTS}")
    found: list[Announcement] = []
    for number, plain in enumerate(given, 1):
        try:
            one = announcement_of(cast("Mapping[str, Any]", plain), now_s)
        except UsageError as error:
            raise UsageError(f"statement {number}: {error}") from None
        if times > 1 and not one.every_s:
            raise UsageError(
                f"statement {number}: every: it comes once, and {times} are asked for; write every"
            )
        found += [one.later(again) for again in range(times)]
    if len(found) > MOST_STATEMENTS:
        raise UsageError(f"{len(found)} statements; send at most {MOST_STATEMENTS} at one time")
    return found
