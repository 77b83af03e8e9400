"""`asactl defer status`: deferrable jobs, who waits for what, and what on-demand jobs leave to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import click
from rich.text import Text

from asad.api.control import ask
from asad.bounded import printable
from asad.cli.listing_fields import Chosen
from asad.cli.listings import DEFERRAL_STATES, listed
from asad.cli.live import SOCKET, clock_of, control_socket, rows_of
from asad.cli.screen import JSON, duration, respond
from asad.cli.times import moment

MOST_SHOWN = 40
"""So many jobs are shown; JSON holds all."""
BAR = 40
"""Columns of the widest bar of the forecast."""


@click.command(short_help="Deferrable jobs, why they wait, and what is left to them.")
@SOCKET
@listed("defer status")
@JSON
def status(socket_path: str | None, chosen: Chosen, as_json: bool) -> None:
    """Show the deferrable jobs that wait, in the order of their scores, why, and until when they can; who missed his
    latest start; and what is foretold to be left to them.
    """
    facts = ask(control_socket(socket_path), "deferral")
    found = chosen.ordered(rows_of(facts, "jobs"), clock_of(facts))
    rows = chosen.shown(found, clock_of(facts), most=MOST_SHOWN)
    respond(
        as_json,
        {**facts, "jobs": found},
        lambda: rows if chosen.parts else [*map(Text, _head(facts)), Text(""), *rows, *_forecast(facts)],
    )


def _head(facts: Mapping[str, Any]) -> Iterator[str]:
    counts = facts.get("counts") or {}
    held = facts.get("held_cores")
    yield printable(
        f"{facts.get('policy')}: {facts.get('waiting')} deferrable jobs wait, {facts.get('running')} run on "
        f"{_whole(held)} of the {_whole(facts.get('capacity'))} cores that on-demand jobs leave"
    )
    yield (
        f"since the start {counts.get('let go', 0)} were let go, {counts.get('started', 0)} have started, "
        f"{counts.get('missed', 0)} have missed their latest start; {facts.get('known_days')} days are known"
    )
    if facts.get("erred"):
        yield printable(f"the policy errs, edf decides meanwhile: {facts['erred']}")
    missed = [pair for pair in facts.get("missed") or [] if isinstance(pair, list) and len(pair) == 2]
    if missed:
        names = ", ".join(str(job) for job, _ in missed[-8:])
        yield printable(f"missed: {names}" + (f" and {len(missed) - 8} before" if len(missed) > 8 else ""))


def _forecast(facts: Mapping[str, Any]) -> Iterator[Text]:
    """What will be left, by hour, where the history reports."""
    ahead = [pair for pair in facts.get("forecast") or [] if isinstance(pair, list) and _number(pair[1])]
    step_s = facts.get("step_s")
    if len(ahead) < 2 or not _number(step_s):
        return
    every = max(1, round(3600.0 / float(step_s or 3600.0)))
    widest = max(float(value) for _, value in ahead) or 1.0
    yield Text("")
    yield Text("foretold to be left")
    for time_s, value in ahead[::every]:
        yield Text(f"  {moment(time_s)}  {value:>8.0f}  {'█' * round(BAR * value / widest)}")


def report_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """What the defer stage says of a job, as lines; not yet safe to print."""
    state = DEFERRAL_STATES.get(str(answer.get("state")), answer.get("state"))
    reason = answer.get("reason")
    yield f"deferrable ({answer.get('because') or answer.get('policy')}): {state}" + (
        f"; {reason}" if reason else ""
    )
    if _number(answer.get("latest_s")) and _number(answer.get("earliest_s")):
        slack_s = _known(answer.get("slack_s"))
        slack = f", {duration(slack_s)} from now" if slack_s > 0 else ""
        yield f"  may start from {moment(answer['earliest_s'])} to {moment(answer['latest_s'])}{slack}"
    if _number(answer.get("score")):
        free = (
            f"; {answer['free_cores']:.0f} cores were free for it"
            if _number(answer.get("free_cores"))
            else ""
        )
        place = f"{answer.get('rank')} of {answer.get('of')} by {answer.get('policy')}"
        yield f"  score {answer['score']:.4g}, {place}{free}"
    if _number(answer.get("held_until_s")):
        yield f"  held back until {moment(answer['held_until_s'])}; it starts then even if asad is gone"
    if answer.get("missed"):
        yield "  it has missed its latest start"


def _whole(value: Any) -> str:
    return f"{value:.0f}" if _number(value) else "-"


def _known(value: Any) -> float:
    """A number, NaN where there is none."""
    return float(value) if _number(value) else math.nan


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
