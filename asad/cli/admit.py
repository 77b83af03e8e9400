"""`asactl admit explain JOB`, `asactl admit status`: what admission says of jobs, and has planned for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from asad.api.control import ask
from asad.bounded import printable
from asad.cli import completion
from asad.cli.explain import ADMISSION, ask_about
from asad.cli.listing import Listing
from asad.cli.listing_fields import Chosen
from asad.cli.listings import listed
from asad.cli.live import SOCKET, clock_of, control_socket, rows_of
from asad.cli.screen import JSON, STORE, cells, duration, respond, table_of
from asad.cli.times import moment
from asad.decisions import Admit, Decline, Defer, Evict, SetThrottle, Start
from asad.errors import UsageError
from asad.store.records import DecisionRecord, RunRecord
from asad.store.store import Store

KINDS = (Admit.kind, Decline.kind, Defer.kind, Start.kind, SetThrottle.kind, Evict.kind)
BAR = 40
"""Columns of the widest bar of a schedule."""
MOST_SHOWN = 40
"""So many slots or jobs are shown; JSON holds all."""


@click.group()
def admit() -> None:
    """What admission says of jobs, and has planned for them."""


@admit.command(short_help="Why was this job admitted or not, and when does it run?")
@click.argument("job", shell_complete=completion.jobs)
@click.option(
    "--run",
    "run_id",
    type=int,
    metavar="ID",
    shell_complete=completion.runs,
    help="Run to look in [default: the newest that admitted it].",
)
@STORE
@SOCKET
@JSON
def explain(
    job: str, run_id: int | None, store_url: str | None, socket_path: str | None, as_json: bool
) -> None:
    """Describe what admission decided about JOB (of a task: about its array): its worth, the prices, its plan by slot,
    and what price would have let it in.

    A daemon that runs and knows the job is asked first; --run or --store look at what is stored instead.
    """
    answer: Mapping[str, Any] | None = None
    if run_id is None and store_url is None:
        answer = ask_about(job, "admission", socket_path)
    if answer is None:
        answer = _stored(job, run_id, store_url)
    respond(as_json, answer, lambda: map(printable, story(answer)))


@admit.command(short_help="All jobs that admission knows, and what is planned by slot.")
@SOCKET
@listed("admit status")
@JSON
def status(socket_path: str | None, chosen: Chosen, as_json: bool) -> None:
    """Show the jobs with a utility, what was promised to them, and by slot what is planned, what others hold, and
    what a core costs.
    """
    facts = ask(control_socket(socket_path), "admission")
    found = chosen.ordered(rows_of(facts, "jobs"), clock_of(facts))
    rows = chosen.shown(found, clock_of(facts), most=MOST_SHOWN)
    respond(
        as_json,
        {**facts, "jobs": found},
        lambda: rows if chosen.parts else [Text(_head(facts)), *rows, Text(""), _slots_table(facts)],
    )


def _stored(job: str, run_id: int | None, store_url: str | None) -> dict[str, Any]:
    """The last verdict and what was decided since, from a run in the store. Raises UsageError."""
    with Store.open(store_url, create=False) as store:
        runs = store.runs() if run_id is None else [store.run(run_id)]
        for run in runs:
            found = _decided(store, run, job)
            if found:
                return _of_records(job, run, found)
    where = "any run" if run_id is None else f"run {run_id}"
    raise UsageError(
        printable(
            f"job {job}: admission decided nothing about it in {where}: it stated no utility, or there is no such job; "
            "`asactl runs` lists what is stored"
        )
    )


def _decided(store: Store, run: RunRecord, job: str) -> list[DecisionRecord]:
    """Decisions about a job; of an array about whichever of its tasks stood for it."""
    found = [record for record in store.decisions(run.id, job) if record.kind in KINDS]
    if not found:
        array = job.partition("_")[0]
        names = [name for name in store.jobs_touched(run.id) if name.partition("_")[0] == array]
        found = [
            record
            for name in names
            for record in store.decisions(run.id, name)
            if record.kind in KINDS and record.detail.get("job") in (job, array)
        ]
    return sorted(found, key=lambda record: record.seq)


def _of_records(job: str, run: RunRecord, found: Sequence[DecisionRecord]) -> dict[str, Any]:
    verdict = next((record for record in reversed(found) if record.kind in (Admit.kind, Decline.kind)), None)
    answer: dict[str, Any] = {"job": job, "run": run.id, "policy": found[-1].policy}
    if verdict is not None:
        answer |= verdict.detail | {
            "verdict": "admitted"
            if verdict.kind == Admit.kind
            else verdict.detail.get("verdict", "declined"),
            "reason": verdict.reason,
            "decided_s": verdict.time_s,
        }
    answer["decisions"] = [
        {
            "time_s": record.time_s,
            "kind": record.kind,
            "reason": record.reason,
            "outcome": record.outcome,
            "outcome_reason": record.outcome_reason,
            **record.more,
        }
        for record in found
    ]
    return answer


# ------------------------------------------------------------------------------------------------------- wording


def story(answer: Mapping[str, Any]) -> Iterator[str]:
    """One job's admission as lines; not yet safe to print."""
    where = f" in run {answer['run']}" if "run" in answer else ""
    yield f"job {answer.get('job')}{where}: {_verdict(answer)} by {answer.get('policy')}: {answer.get('reason', '-')}"
    if answer.get("utility"):
        by = "by rule" if answer.get("by_rule") else "as its user stated"
        yield f"  utility   {answer['utility']} ({by})"
    if _number(answer.get("budget")):
        cut = answer["counted"] < answer["claim"]
        counts = f"{answer['counted']:.4g} of it counts" if cut else "all of it counts"
        yield f"  claim     {answer['claim']:.4g}; {counts}: its user's jobs may claim {answer['budget']:.4g} together"
    if _number(answer.get("task_s")):
        yield (
            f"  work      {answer.get('work')} worker-slots of {duration(answer.get('slot_s') or 0.0)}: a task is "
            f"expected to run {duration(answer['task_s'])}; at most {answer.get('most_workers')} at one time"
        )
    if answer.get("tres"):
        wants = ", ".join(f"{amount:g} of {name}" for name, amount in answer["tres"].items())
        yield f"  takes     beside cores and memory {wants}, each task"
    if answer.get("companion"):
        yield f"  servers   array {answer['companion']}: one for every {answer.get('workers_per_server')} workers"
    if _number(answer.get("worth")):
        cost = f", it costs {answer['cost']:.4g}" if _number(answer.get("cost")) else ""
        payoff = f": a payoff of {answer['payoff']:.4g}" if _number(answer.get("payoff")) else ""
        yield f"  payoff    at its planned end it is worth {answer['worth']:.4g}{cost}{payoff}"
    if _number(answer.get("let_in_at")):
        yield f"            it would have been let in at {answer['let_in_at']:.1%} of the prices of that moment"
    yield from _plan_lines(answer)
    if _number(answer.get("deferred_s")) and answer["deferred_s"] > clock_of(answer):
        yield f"  deferred  until {moment(answer['deferred_s'])}; it starts then even if asad is gone"
    if answer.get("let_go"):
        yield "  somebody has taken its deferral back by hand: it is not deferred again"
    for record in answer.get("decisions") or []:
        yield f"  {moment(record['time_s'])}  {deed(record)}"


def _verdict(answer: Mapping[str, Any]) -> str:
    words = {
        "admitted": "admitted",
        "ended": "admitted, and nothing of it waits any more,",
        "released": "released",
        "declined": "not admitted",
        "unfit": "not admitted",
    }
    return words.get(str(answer.get("verdict")), "no verdict")


def _plan_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Workers by slot, and what one costs there."""
    plan = [pair for pair in answer.get("schedule") or [] if isinstance(pair, list) and len(pair) == 2]
    prices = {pair[0]: pair[1] for pair in answer.get("prices") or [] if isinstance(pair, list)}
    if not plan:
        return
    widest = max(width for _, width in plan)
    yield f"  plan      {len(plan)} slots, done by {moment(answer['end_s']) if answer.get('end_s') else '-'}"
    for start_s, width in plan[:MOST_SHOWN]:
        price = f"  a worker costs {prices[start_s]:.4g}" if _number(prices.get(start_s)) else ""
        yield f"    {moment(start_s)}  {width:>5}  {'█' * max(1, round(BAR * width / widest))}{price}"
    if len(plan) > MOST_SHOWN:
        yield f"    … {len(plan) - MOST_SHOWN} more; --json shows them"


def deed(record: Mapping[str, Any]) -> str:
    """A decision of admission in words: `kind`, and `until_s` or `tasks`; what became of it if it was not done."""
    words = ADMISSION[record["kind"]].format(
        until=moment(record.get("until_s") or 0.0), tasks=record.get("tasks"), how=record.get("how")
    )
    outcome = record.get("outcome", "done")
    return words if outcome == "done" else f"not done: {words} ({record.get('outcome_reason') or outcome})"


def _head(facts: Mapping[str, Any]) -> str:
    jobs = rows_of(facts, "jobs")
    admitted = sum(job.get("verdict") == "admitted" for job in jobs)
    return printable(
        f"{facts.get('policy')}: {len(jobs)} jobs stated a utility, {admitted} of them are admitted; slots of "
        f"{duration(facts.get('slot_s') or 0.0)}, {facts.get('horizon')} ahead, {facts.get('cores', 0):.0f} cores"
        f"{_prices(facts)}"
    )


def _prices(facts: Mapping[str, Any]) -> str:
    """Of gres and licences, where some have a price."""
    found = facts.get("unit_prices") or {}
    prices = [
        f"one of {name} costs {price:.4g}" for name, price in found.items() if "/" in name and _number(price)
    ]
    return f"; in this slot {', '.join(prices)}" if prices else ""


def _slots_table(facts: Mapping[str, Any]) -> Listing:
    table = table_of("slot", "planned cores>", "held by others>", "price of a core>")
    for slot in rows_of(facts, "slots")[:MOST_SHOWN]:
        other, price = slot.get("other_cores"), slot.get("price")
        shown = (
            moment(slot.get("start_s") or 0.0),
            str(slot.get("planned_cores")),
            f"{other:.0f}" if _number(other) else "-",
            f"{price:.4g}" if _number(price) else "-",
        )
        table.add_row(*cells(*shown))
    return table


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
