"""The parts of the live page that are tables and sentences: HTML from the same templates as the replay's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader

from asad.report import funnel, units
from asad.report.html import TEMPLATES
from asad.web.viewers import Viewer

if TYPE_CHECKING:
    from asad.web.visible import Seen

MOST_ROWS = 60
"""So many rows of a table are shown."""
Table = tuple[str, Sequence[str], list[Sequence[str]]]
"""Caption, headings, rows of text."""


def environment() -> Environment:
    """The templates of the report, and those of this room beside them."""
    found = TEMPLATES.overlay(loader=ChoiceLoader([PackageLoader("asad.web"), PackageLoader("asad.report")]))
    found.filters["moment"] = moment
    return found


def moment(time_s: object) -> str:
    """A time of the cluster, in the zone of this machine."""
    if not isinstance(time_s, int | float):
        return units.NONE
    return f"{datetime.fromtimestamp(time_s).astimezone():%Y-%m-%d %H:%M:%S}"


class Fragments:
    """Renders them, each anew only when what it shows has changed."""

    def __init__(self) -> None:
        self.templates = environment()
        self._rendered: dict[str, tuple[Any, str]] = {}
        """By template, what it was filled with last, and the HTML."""

    def of(
        self, parts: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]], seen: Seen, viewer: Viewer
    ) -> dict[str, str]:
        """Name → HTML, of those that there is something to show of."""
        status = parts.get("status") or {}
        found = {
            "idle": self._render("live/funnel_now.html", funnel=_funnel(status)),
            "reasons": self._render("live/table.html", table=_reasons(jobs)),
        }
        own = None if viewer.sees == "all" else seen.is_own
        for name, table in (
            ("waits", _waits(status)),
            ("replay", _replay(parts)),
            ("prices", _prices(parts.get("admission"))),
            ("admission", _admission(parts.get("admission"), own)),
            ("deferral", _deferral(parts.get("deferral"), own)),
            ("forecast", _forecast(parts.get("deferral"))),
            ("statements", _statements(parts.get("statements"), viewer)),
        ):
            if table is not None:
                found[name] = self._render("live/table.html", key=name, table=table)
        return found

    def _render(self, template: str, key: str = "", **values: Any) -> str:
        known = self._rendered.get(template + key)
        if known is not None and known[0] == values:
            return known[1]
        html = self.templates.get_template(template).render(values)
        self._rendered[template + key] = (values, html)
        return html


def _funnel(status: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where the CPU goes that batch leaves idle, as the replay's page shows it; None before anything was counted."""
    counted = [(str(row["reason"]), float(row["core_h"])) for row in status.get("funnel") or ()]
    rows = funnel.rows(counted)
    if not rows:
        return None
    return {
        "policy": str(status.get("policy")),
        "rows": rows,
        "advice": funnel.advice(counted, live=True),
        "lent": funnel.LENT,
        "others": None,
    }


def _reasons(jobs: Sequence[Mapping[str, Any]]) -> Table | None:
    """How many jobs do not lend, or are no guests, by reason. Figures alone, which everybody may see."""
    counted: Counter[tuple[str, str]] = Counter()
    cores: Counter[tuple[str, str]] = Counter()
    for row in jobs:
        waits = row["state"] in ("waiting", "offered")
        reason = row["guest_bar"] if waits else row["host_bar"] if row["state"] == "running" else ""
        if reason:
            what = "is no guest" if waits else "lends nothing"
            counted[what, reason] += 1
            cores[what, reason] += row["cores"]
    rows = [
        (what, reason, units.number(number), units.number(cores[what, reason]))
        for (what, reason), number in counted.most_common(MOST_ROWS)
    ]
    return _table("Jobs that take no part now, by reason", ("What", "Because", "Jobs", "Cores"), rows)


def _waits(status: Mapping[str, Any]) -> Table | None:
    """Why jobs wait, as the cluster says. Figures alone, which everybody may see; None where it says nothing."""
    found = status.get("waits") or ()
    rows = [
        (
            row["reason"],
            units.number(row["jobs"]),
            units.number(row["cores"]),
            units.duration(row["longest_s"]),
            ", ".join(f"{name} {units.number(jobs)}" for name, jobs in row["names"].items()),
        )
        for row in found
        if row["jobs"]
    ]
    if not found:
        return None
    heads = ("Reason", "Jobs", "Cores", "Longest wait", "As the cluster says")
    return _table("Why jobs wait; a limit binds guests too", heads, rows)


def _replay(parts: Mapping[str, Any]) -> Table | None:
    """Gains beside those of a replay of the same days, counted alike."""
    found = parts.get("replay")
    if not found:
        return None
    live, played = found["live"], found["replay"]
    rows = [
        ("Guests that ended", units.number(live["guests"]), units.number(played["guests"])),
        (
            "They ended sooner by, in sum",
            units.duration(live["sooner_s"]),
            units.duration(played["sooner_s"]),
        ),
        ("Guests and hosts that lost", units.number(live["losers"]), units.number(played["losers"])),
    ]
    caption = f"From {moment(found['from_s'])} to {moment(found['to_s'])}"
    return _table(caption, ("", "Here", f"Replay {found['run']} of {units.plain(found['policy'], 40)}"), rows)


def _prices(admission: Mapping[str, Any] | None) -> Table | None:
    if not admission:
        return None
    rows = [
        (
            moment(slot["start_s"]),
            units.number(slot["planned_cores"]),
            _figure(slot["other_cores"]),
            _figure(slot["price"], 4),
        )
        for slot in admission["slots"]
    ]
    caption = f"What a core costs in coming slots, under {units.plain(admission['policy'])}"
    return _table(caption, ("Slot", "Planned cores", "Held by others", "Price of a core"), rows)


def _admission(admission: Mapping[str, Any] | None, own: Callable[[str], bool] | None) -> Table | None:
    if not admission:
        return None
    rows = [
        (
            job["job"],
            job["verdict"],
            _figure(job["workers"]),
            moment(job["next_s"]),
            moment(job["end_s"]),
            job["reason"],
        )
        for job in _visible(admission["jobs"], own)
    ]
    heads = ("Job", "Verdict", "Workers", "Runs next", "Done", "Because")
    return _table("Jobs that state a utility", heads, rows)


def _deferral(deferral: Mapping[str, Any] | None, own: Callable[[str], bool] | None) -> Table | None:
    if not deferral:
        return None
    rows = [
        (
            job["job"],
            job["state"],
            _figure(job["cores"]),
            _figure(job["rank"]),
            moment(job["latest_s"]),
            job["reason"],
        )
        for job in _visible(deferral["jobs"], own)
    ]
    caption = f"Deferrable jobs that wait, in the order of {units.plain(deferral['policy'])}"
    return _table(caption, ("Job", "State", "Cores", "Rank", "Starts at the latest", "Because"), rows)


def _forecast(deferral: Mapping[str, Any] | None) -> Table | None:
    if not deferral or not deferral["forecast"]:
        return None
    rows = [(moment(start_s), _figure(cores, 1)) for start_s, cores in deferral["forecast"]]
    return _table("Cores that on-demand jobs are expected to hold", ("From", "Cores"), rows)


def _statements(statements: Mapping[str, Any] | None, viewer: Viewer) -> Table | None:
    if not statements:
        return None
    rows = [
        (
            one["statement"], one["owner"], one["job"] or one["name"], one["state"], _figure(one["cores"]),
            moment(one["start_s"]), _figure(one.get("value")), _figure(one.get("paid"), 2), one.get("reason"),
        )
        for one in statements["statements"]
        if viewer.sees == "all" or (viewer.sees == "own" and one.get("owner") == viewer.user)
    ]  # fmt: skip
    heads = ("Statement", "Owner", "Job", "State", "Cores", "Planned start", "Value", "Paid", "Because")
    return _table(f"Statements of work, under {units.plain(statements['policy'])}", heads, rows)


def _visible(rows: Iterable[Mapping[str, Any]], own: Callable[[str], bool] | None) -> list[Mapping[str, Any]]:
    return [row for row in rows if own is None or own(str(row["job"]))]


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Table | None:
    """A table of texts that are fit to be shown; the first rows of a long one."""
    if len(rows) > MOST_ROWS:
        caption += f" (the first {MOST_ROWS} of {units.number(len(rows))})"
    return caption, heads, [[units.plain(cell or units.NONE) for cell in row] for row in rows[:MOST_ROWS]]


def _figure(value: Any, decimals: int = 0) -> str:
    return units.number(value if isinstance(value, int | float) else None, decimals)
