"""The story of a job on demand, as `asactl explain` has it, as far as a viewer may know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asad.report import units
from asad.web.fragments import moment
from asad.web.page_feed import Page, PageFeed
from asad.web.viewers import Viewer
from asad.web.visible import OTHER, Seen, seen_jobs, without

MOST_DECISIONS = 200
NOW = (
    ("state", "state"),
    ("user", "user"),
    ("name", "name"),
    ("cores", "cores"),
    ("nodes", "nodes"),
    ("submit_s", "submitted"),
    ("wait_reason", "waits for"),
    ("start_s", "started"),
    ("estimated_start_s", "own turn estimated for"),
    ("limit_end_s", "ends at the latest"),
    ("cpu_fraction", "uses of its CPU"),
    ("happiness", "happiness"),
    ("pressure", "waited for CPU"),
    ("host", "beside"),
    ("share", "share"),
    ("host_bar", "lends nothing because"),
    ("guest_bar", "is no guest because"),
)
"""Of a job as it is now: column, and what it is called."""


async def story_of(feed: PageFeed, page: Page, job: str, viewer: Viewer) -> dict[str, Any]:
    """What became of `job`; with an `error` where it is not known, or not for this viewer. Raises AsadError."""
    unknown = {"job": units.plain(job, 80), "error": "there is no such job here, or it is not yours to see"}
    seen = seen_jobs(page, viewer)
    if not job or viewer.sees == "none" or (viewer.sees == "own" and not seen.is_own(job)):
        return unknown
    answer = await feed.story(job)
    if not isinstance(answer, Mapping) or "error" in answer:
        return (
            unknown
            if viewer.sees != "all"
            else unknown | {"error": units.plain(answer.get("error", ""), 400)}
        )
    return {
        "job": units.plain(job, 80),
        "now": _now(answer.get("live"), seen),
        "decisions": [
            _decision(one, job, seen, viewer) for one in (answer.get("decisions") or [])[-MOST_DECISIONS:]
        ],
        "ends": [
            (one["role"], moment(one["start_s"]), moment(one["end_s"]), moment(one["baseline_end_s"]))
            for one in answer.get("ends") or []
        ],
        "deferral": _sentence(answer.get("deferral"), seen, viewer),
        "gang": _sentence(answer.get("gang"), seen, viewer),
    }


def _now(live: Any, seen: Seen) -> list[tuple[str, str]]:
    if not isinstance(live, Mapping):
        return []
    found = []
    for key, label in NOW:
        value = live.get(key)
        if value is None or value in ("", []):
            continue
        if key.endswith("_s"):
            text = moment(value)
        elif key == "host":
            text = value if seen.is_own(value) else OTHER
        elif key in ("cpu_fraction", "pressure", "share"):
            text = units.percent(value)
        elif isinstance(value, float):
            text = units.number(value, 2)
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        found.append((label, units.plain(text, 300)))
    return found


def _decision(one: Mapping[str, Any], job: str, seen: Seen, viewer: Viewer) -> tuple[str, str, str, str, str]:
    """Time, kind, whom it is about besides, why, and what became of it."""
    partners = {one.get("job"), one.get("host")} - {job, None}
    named = sorted(str(partner) if seen.is_own(str(partner)) else OTHER for partner in partners)
    others = [str(partner) for partner in partners if not seen.is_own(str(partner))]
    outcome = one.get("outcome", "")
    why = one.get("outcome_reason") or ""
    return (
        moment(one.get("time_s")),
        units.plain(one.get("kind", "")),
        units.plain(", ".join(named) or units.NONE),
        without(str(one.get("reason", "")), seen, others, viewer),
        without(f"{outcome}: {why}" if why else str(outcome), seen, others, viewer),
    )


def _sentence(reported: Any, seen: Seen, viewer: Viewer) -> str:
    """What a stage or cluster reports of a job, in short."""
    if not isinstance(reported, Mapping):
        return ""
    words = [str(reported.get(key)) for key in ("state", "reason", "waits") if reported.get(key)]
    return without(", ".join(words), seen, (), viewer)
