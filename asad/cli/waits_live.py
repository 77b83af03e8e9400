"""`asactl waits` without a log: why jobs wait now, as the cluster itself says, and for how long they did of late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from asad.api.control import ask
from asad.cli.listing import Listing
from asad.cli.live import clock_of, control_socket, daemon_store, rows_of
from asad.cli.screen import cells, counted, respond, table_of
from asad.cli.times import moment
from asad.cluster.reason_words import WORDS
from asad.errors import UsageError
from asad.report import units
from asad.report.wait_reasons import LIVE_MEANING, live_sentence
from asad.store import wait_hours as stored
from asad.store.store import Store

MOST_ROWS = 20


def show_now(socket_path: str | None, by: Sequence[str], as_json: bool) -> None:
    """Ask the daemon, and print its answer."""
    facts = ask(control_socket(socket_path), "waits")
    reasons = rows_of(facts, "reasons")
    known = facts.get("by")
    groups: dict[str, Any] = {name: (known or {}).get(name) or [] for name in by}
    plain = {"now_s": clock_of(facts), "waiting": facts.get("waiting"), "reasons": reasons, "by": groups}
    respond(as_json, plain, lambda: _now(reasons, groups))


def _now(reasons: Sequence[Mapping[str, Any]], groups: Mapping[str, Any]) -> Iterator[str | Listing]:
    yield _plain(live_sentence(reasons))
    if not any(row["jobs"] for row in reasons):
        return
    yield ""
    table = table_of("reason", "jobs>", "cores>", "longest>", "which means?")
    for row in reasons:
        if row["jobs"]:
            figures = units.number(row["jobs"]), units.number(row["cores"]), units.duration(row["longest_s"])
            table.add_row(*_cells(row["reason"], *figures, LIVE_MEANING.get(row["reason"], "")))
    yield table
    yield ""
    named = table_of("as the cluster says*", "reason", "jobs>")
    for row in reasons:
        for name, jobs in (row.get("names") or {}).items():
            named.add_row(*_cells(name, row["reason"], units.number(jobs)))
    yield named
    words = [row["reason"] for row in reasons if row["jobs"]]
    for name, rows in groups.items():
        yield ""
        table = table_of(name, "jobs>", "cores>", "longest>", *(f"{word}>" for word in words))
        for row in rows[:MOST_ROWS]:
            figures = units.number(row["jobs"]), units.number(row["cores"]), units.duration(row["longest_s"])
            parts = (units.number(row["reasons"].get(word, 0)) for word in words)
            table.add_row(*_cells(row["name"], *figures, *parts))
        _cut(table, len(rows))
        yield table


def show_history(store_url: str | None, since_s: float, by: Sequence[str], as_json: bool) -> None:
    """Read what the daemon has kept, and print it. Raises UsageError for a group of which nothing is kept."""
    if wrong := [name for name in by if name != "partition"]:
        raise UsageError(
            f"--by {wrong[0]}: the store keeps hours by partition alone; leave out --since to see who waits now"
        )
    with Store.open(store_url or daemon_store(), create=False) as store:
        found, place = stored.hours(store, since_s), str(store)
        first_s = stored.first_s(store)
    totals = {
        word: [sum(of.get(word, (0.0, 0.0))[k] for of in found.values()) for k in (0, 1)] for word in WORDS
    }
    whole = sum(hours for hours, _ in totals.values())
    reasons: list[dict[str, Any]] = [
        {"reason": word, "wait_h": hours, "core_h": core_h, "share": hours / whole if whole else 0.0}
        for word, (hours, core_h) in totals.items()
    ]
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "wait_h": sum(hours for hours, _ in of.values()),
            "core_h": sum(core_h for _, core_h in of.values()),
            "reasons": {word: of.get(word, (0.0, 0.0))[0] for word in WORDS},
        }
        for name, of in found.items()
    ]
    rows.sort(key=lambda row: -row["wait_h"])
    groups: dict[str, Any] = dict.fromkeys(by, rows)
    plain = {"since_s": since_s, "first_s": first_s, "reasons": reasons, "by": groups}
    respond(as_json, plain, lambda: _history(plain, place))


def _history(plain: Mapping[str, Any], place: str) -> Iterator[str | Listing]:
    reasons, first_s = plain["reasons"], plain["first_s"]
    words = [row["reason"] for row in reasons if row["wait_h"] > 0]
    if first_s is None or not words:
        yield _plain(
            f"{units.plain(place)} holds no waits from then on: no job has waited, no daemon has run, or its cluster "
            "gives no reasons"
        )
        return
    if first_s > plain["since_s"]:
        yield _plain(f"Nothing was kept before {moment(first_s)}.")
    table = table_of("reason", "hours of jobs>", "core-hours>", "share>", "which means?")
    for row in reasons:
        if row["wait_h"] > 0:
            figures = (
                units.number(row["wait_h"], 1),
                units.number(row["core_h"], 1),
                units.percent(row["share"]),
            )
            table.add_row(*_cells(row["reason"], *figures, LIVE_MEANING[row["reason"]]))
    yield table
    for name, rows in plain["by"].items():
        yield ""
        table = table_of(name, "hours of jobs>", *(f"{word}>" for word in words))
        for row in rows[:MOST_ROWS]:
            parts = (row["reasons"][word] / row["wait_h"] if row["wait_h"] else 0.0 for word in words)
            table.add_row(*_cells(row["name"], units.number(row["wait_h"], 1), *map(units.percent, parts)))
        _cut(table, len(rows))
        yield table


def _cut(table: Listing, rows: int) -> None:
    if rows > MOST_ROWS:
        table.notes.append(next(cells(f"and {counted(rows - MOST_ROWS, 'more row')}; --json has all")))


def _plain(text: str) -> str:
    """With plain blanks in its figures, which what cleans users' texts would show otherwise."""
    return text.replace(units.THIN, " ").replace(units.SPACE, " ")


def _cells(*texts: Any) -> Iterator[Any]:
    return cells(*(_plain(str(one)) for one in texts))
