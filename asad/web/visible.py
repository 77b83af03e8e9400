"""What of a page somebody may see, and in which form it goes to his browser.

The one place that decides it: whatever is not put into a view here is not sent. Who sees `none` of the jobs gets
figures of nodes and of the cluster; who sees his `own` gets those jobs, and of others no name, user or number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from asad.report import units
from asad.web.fragments import Fragments
from asad.web.page_feed import FIGURES, Page
from asad.web.viewers import Viewer

MOST_JOBS = 500
"""So many jobs are sent at one time; the rest is found by filters, or further down."""
OTHER = "another job"
NODE_COLUMNS = ("cores", "allocated", "used", "lent", "pressure", "guests", "bar", "silent", "pool")
"""The last is there where the share policy lends from pools."""
JOB_COLUMNS = (
    "state", "user", "name", "cores", "submit_s", "start_s", "limit_end_s", "estimated_start_s", "cpu_fraction",
    "pressure", "happiness", "host", "share", "host_bar", "guest_bar",
)  # fmt: skip
NUMBER = re.compile(r"(\b(?:from|jobs?|hosts?|guests?|beside|array) )?(?<![\w.])(\d+(?:[_+]\w+)*)(?![\w%])")
"""What may be the number of a job in a sentence, with the word before it after which it is one."""


class Window(NamedTuple):
    """Which jobs somebody wants to see."""

    state: str = ""
    """`waiting`, `offered`, `running` or `guest`; empty: all."""
    text: str = ""
    """Part of number, user or name."""
    first: int = 0
    most: int = 50

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Window:
        """As a query says; what makes no sense in it is passed over."""
        first, most = (_whole(query.get(key), default) for key, default in (("first", 0), ("most", 50)))
        state = query.get("state", "")
        if state not in ("waiting", "offered", "running", "guest"):
            state = ""
        return cls(state, query.get("text", "")[:80], max(0, first), min(max(1, most), MOST_JOBS))


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 8 else default


class Seen(NamedTuple):
    """The jobs of a page that somebody may see."""

    rows: list[dict[str, Any]]
    is_own: Callable[[str], bool]
    """May the job of that number be named?"""
    is_others: Callable[[str], bool]
    """Is that the number of a job of somebody else's, on the page?"""


def seen_jobs(page: Page, viewer: Viewer) -> Seen:
    """The jobs of a page that `viewer` may see."""
    if viewer.sees == "all":
        return Seen(page.jobs, lambda job: True, lambda job: False)
    rows = [row for row in page.jobs if viewer.sees == "own" and row["user"] == viewer.user]
    own = {row["job"] for row in rows}
    others = {row["job"] for row in page.jobs if row["job"] not in own}
    return Seen(rows, own.__contains__, others.__contains__)


def view_of(page: Page, viewer: Viewer, window: Window, fragments: Fragments) -> dict[str, Any]:
    """All that a viewer's page shows, by part (`asad.web.deltas` says which of them are keyed or grow)."""
    parts, seen = page.parts, seen_jobs(page, viewer)
    view: dict[str, Any] = {
        "head": _head(page, viewer),
        "nodes": _nodes(parts.get("nodes")),
        "samples": [list(entry) for entry in page.samples],
        "series": [*FIGURES, *(expert["name"] for expert in _experts(parts))],
        "experts": _leaves(parts, viewer),
        "trees": _experts(parts),
        "fragments": fragments.of(parts, page.jobs, seen, viewer),
    }
    found = [row for row in seen.rows if _fits(row, window)]
    shown = found[window.first : window.first + window.most]
    view["jobs"] = {row["job"]: [_hidden(row[name], name, seen) for name in JOB_COLUMNS] for row in shown}
    view["queue"] = {
        "order": [row["job"] for row in shown],
        "found": len(found),
        "first": window.first,
        "counts": Counter(row["state"] for row in seen.rows),
    }
    view["guests"] = _guests(parts, seen)
    view["decisions"] = [
        [row["number"], decision]
        for row in parts.get("decisions", ())
        if (decision := _decision(row, viewer, seen))
    ]
    return view


def _head(page: Page, viewer: Viewer) -> dict[str, Any]:
    """How the daemon is, in a few figures."""
    parts, status = page.parts, page.parts.get("status") or {}
    cycle = status.get("cycle") or {}
    return {
        "viewer": viewer.user,
        "sees": viewer.sees,
        "trouble": units.plain(page.trouble, 300),
        "version": status.get("version"),
        "mode": status.get("mode"),
        "paused": parts.get("paused"),
        "doing": (parts.get("doing") or "").partition(", for ")[0],
        "policies": {stage: status.get(stage) for stage in ("admit", "defer", "place", "policy")},
        "cluster": status.get("cluster"),
        "gains": status.get("gains"),
        "vetoes": status.get("vetoes"),
        "actors": {
            "connected": (status.get("actors") or {}).get("connected"),
            "silent": len((status.get("actors") or {}).get("silent") or ()),
        },
        "since_s": status.get("since_s"),
        "now_s": parts.get("now_s"),
        "cycle": {key: cycle.get(key) for key in ("number", "time_s", "wall_ms", "sentence")},
        "store_away": bool((status.get("store") or {}).get("trouble")),
    }


def _nodes(columns: Mapping[str, Sequence[Any]] | None) -> dict[str, list[Any]]:
    if not columns:
        return {}
    rows = zip(*(columns[name] for name in NODE_COLUMNS if name in columns), strict=True)
    return {name: list(row) for name, row in zip(columns["node"], rows, strict=True)}


def _fits(row: Mapping[str, Any], window: Window) -> bool:
    if window.state and row["state"] != window.state:
        return False
    if not window.text:
        return True
    text = window.text.lower()
    return any(text in str(row[key]).lower() for key in ("job", "user", "name"))


def _hidden(value: Any, name: str, seen: Seen) -> Any:
    """A cell; the host of a guest is somebody's job too. What users write is fit to be shown."""
    if name == "host" and value and not seen.is_own(value):
        return OTHER
    return units.plain(value) if isinstance(value, str) else value


def _guests(parts: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    """Guest → where it is, what it needs there and who gives it."""
    rows: dict[str, Any] = {}
    for pair in (parts.get("status") or {}).get("lending") or ():
        if not seen.is_own(pair["guest"]):
            continue
        given: Counter[str] = Counter()
        for sources in (pair.get("from") or {}).values():
            for source, cores in sources.items():
                given[source if source == "free" or seen.is_own(source) else OTHER] += cores
        host = pair.get("host")
        rows[pair["guest"]] = {
            "user": units.plain(pair["guest_user"]),
            "nodes": pair["nodes"],
            "host": host if host is None or seen.is_own(host) else OTHER,
            "share": pair["share"],
            "needs": round(sum((pair.get("needs") or {}).values()), 2),
            "from": {source: round(cores, 2) for source, cores in given.items()},
            "since_s": pair["since_s"],
            "pace": _rounded(pair["pace"]),
            "happiness": _rounded(pair["happiness"]),
            "pressure": _rounded(pair["host_pressure"]),
        }
    return rows


def _decision(row: Mapping[str, Any], viewer: Viewer, seen: Seen) -> dict[str, Any] | None:
    """A decision as a viewer may see it; None if he may not."""
    jobs = list(zip(row["jobs"], row["users"], strict=True))
    if viewer.sees == "none" or (viewer.sees == "own" and viewer.user not in row["users"]):
        return None
    own = {job for job, user in jobs if viewer.sees == "all" or user == viewer.user}
    others = [job for job, _ in jobs if job not in own]
    return {
        "time_s": row["time_s"],
        "kind": row["kind"],
        "jobs": [job if job in own else OTHER for job, _ in jobs],
        "nodes": row["nodes"],
        "reason": without(row["reason"], seen, others, viewer),
        "verdict": row["verdict"],
        "outcome": without(row["outcome"], seen, others, viewer),
    }


def without(text: str, seen: Seen, others: Iterable[str], viewer: Viewer) -> str:
    """A sentence without the numbers of others' jobs: of `others`, of those on the page, and whatever follows a word
    that a job's number follows."""
    if viewer.sees != "all":
        hidden = set(others)

        def shown(found: re.Match[str]) -> str:
            before, number = found[1] or "", found[2]
            named = bool(before) or number in hidden or seen.is_others(number)
            return before + (OTHER if named and not seen.is_own(number) else number)

        text = NUMBER.sub(shown, text)
    return units.plain(text, 400)


def _experts(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (parts.get("experts") or {}).get("experts") or []


def _leaves(parts: Mapping[str, Any], viewer: Viewer) -> dict[str, Any] | None:
    """Weights and leaves; applications and jobs are named to those alone who see everybody's."""
    experts = parts.get("experts")
    if not experts:
        return None
    last, all_jobs = experts["last"], viewer.sees == "all"
    return {
        "actions": experts["actions"],
        "weights": experts["weights"],
        "reached": experts["reached"],
        "last": last and {**last, "job": last["job"] if all_jobs else OTHER},
        "applications": [
            [units.plain(name, 80), rounds, weights] for name, rounds, weights in experts["applications"]
        ]
        if all_jobs
        else [],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
