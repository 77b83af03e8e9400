"""The page of a replay: one HTML file that needs nothing else, for an operator to read, print and hand on.

Here is what the page says; how it looks stands in `templates/`, a file for each section. Figures are in
`asad.report.figures`, and what a row of the table means in `asad.report.measures`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from asad.model import Json
from asad.replay.results import PolicyResult, ReplayResult
from asad.report import drawing, fidelity_table, figures, funnel, html, job_groups, units
from asad.report.effects import effect_of
from asad.report.first_screen import parts
from asad.report.html import write_whole
from asad.report.measures import (
    BASELINE,
    SCHEDULERS,
    Measure,
    affected,
    difference,
    groups,
    headline,
    metric,
    ordered_policies,
    row_unit,
)

WORST = 20
"""Losers that are listed one by one."""
SKIPPED = 50
"""Skipped lines of the log that are listed one by one."""
COMMAND = 4_000
"""Characters of a command that are shown."""

SECTIONS = (
    ("verdict", "Verdict"),
    ("policies", "Policies side by side"),
    ("groups", "Who gains"),
    ("funnel", "What was idle, and where it went"),
    ("figures", "Figures"),
    ("losers", "Who pays"),
    ("method", "How it was found"),
)
"""Key, which is the name of the template too, and title."""
SOURCES = (
    ("measured", "measured in the log"),
    ("profiled", "from a workload profile"),
    ("assumed", "assumed"),
)


def write_page(result: ReplayResult, path: str | os.PathLike[str]) -> None:
    """Write the report of a replay to `path`, whole or not at all. The same result gives the same bytes.

    Raises OSError if `path` cannot be written.
    """
    write_whole(page(result), path)


def page(result: ReplayResult) -> str:
    """The page as text."""
    name = headline(result)
    heading = units.plain(Path(str(result.log.get("path", "log"))).name, 80)
    lends = name is not None and name not in SCHEDULERS
    there = {"funnel": bool(funnel.counted(result)), "groups": bool(result.kinds)}
    sections = [one for one in SECTIONS if there.get(one[0], True)]
    return html.render(
        "replay.html",
        title=f"{heading}: {effect_of(result.policies[name]).doing} {units.plain(name)}"
        if name and lends
        else f"{heading}: replayed",
        kicker="replay of a recorded cluster",
        heading=heading,
        facts=_facts(result),
        sections=[{"key": key, "title": title} for key, title in sections],
        baseline=BASELINE,
        name=name,
        colours=[drawing.look(result, policy)[0] for policy in result.policies],
        parts=parts(result),
        **_rests(result),
        job_groups=[
            *job_groups.tables(result),
            *fidelity_table.tables(result),
        ],
        **_policies(result, name),
        funnel=_funnel(result),
        charts=list(_charts(result)),
        losers=_losers(result, name),
        **_method(result),
    )


# --------------------------------------------------------------------------------------------- sections


def _facts(result: ReplayResult) -> str:
    """Without figures: those of the first screen are counted."""
    starts = "recorded starts" if result.baseline.get("kind") == "recorded" else "simulated starts"
    return " · ".join((starts, *(units.plain(name, 18) for name in ordered_policies(result))))


def _rests(result: ReplayResult) -> dict[str, Any]:
    """What the figures rest on."""
    notes, left_out = _log_notes(result)
    origin = units.plain(str(result.machine.get("origin", "")), 500)
    if origin.startswith("inferred: "):
        notes.append(f"The machine is inferred from the log: {origin.removeprefix('inferred: ')}.")
    return {
        "sources": [
            (source, text, share)
            for source, text in SOURCES
            if (share := result.demand_sources.get(source, 0.0)) > 0
        ],
        "moves": [
            (
                "as assumed" if one.demand_factor == 1 else units.change(one.demand_factor - 1),
                units.plain(one.policy),
                units.change(one.response_change),
                units.number(one.losers),
                units.number(one.lent_jobs),
            )
            for one in sorted(result.verdicts, key=lambda one: (one.policy, one.demand_factor))
        ],
        "notes": notes,
        "left_out": left_out,
        "skipped_shown": SKIPPED,
    }


def _log_notes(result: ReplayResult) -> tuple[list[str], list[str]]:
    """What the log has to be excused for: absent columns, notes, how many lines were skipped; and those lines."""
    notes = _texts(result.log.get("notes"))
    if absent := _texts(result.log.get("absent")):
        notes.insert(0, f"Not in the log: {', '.join(absent)}.")
    skipped = result.log.get("skipped")
    lines = _texts(result.log.get("skipped_lines") if isinstance(skipped, int) else skipped)
    count = skipped if isinstance(skipped, int) else len(lines)
    if count:
        were = "was" if count == 1 else "were"
        notes.append(f"{units.plural(count, 'line')} of the log could not be read and {were} left out.")
    return notes, lines


def _policies(result: ReplayResult, name: str | None) -> dict[str, Any]:
    return {
        "policies": ordered_policies(result),
        "place_of": {policy: place for place, policy in enumerate(result.policies)},
        "groups": [
            (group, [_measure_row(result, measure, name) for measure in measures])
            for group, measures in groups(result)
        ],
    }


def _measure_row(
    result: ReplayResult, measure: Measure, headline_name: str | None
) -> tuple[str, str, list[tuple[str, str, str, int]]]:
    """Label, unit, and of each policy the figure, how it is marked, the small figure beside it and its tone."""
    names = ordered_policies(result)
    values = [metric(result.policies[name], measure.key) for name in names]
    symbol, factor, decimals = row_unit(measure, values)
    cells = []
    for name, value in zip(names, values, strict=True):
        shown = units.number(None if value is None else value / factor, decimals)
        small, tone = difference(result, name, measure)
        if measure.key == "losers" and value is not None and (of := affected(result.policies[name])):
            small, tone = units.percent(value / of), 0
        alarm = measure.key == "killed_by_lending" and value
        cells.append((shown, "alarm" if alarm else "here" if name == headline_name else "", small, tone))
    return measure.label, "" if measure.label.endswith("core-hours") else symbol, cells


def _funnel(result: ReplayResult) -> dict[str, Any]:
    """The reasons of the first policy that has them, drawn; those of the others below."""
    names = funnel.counted(result)
    if not names:
        return {}
    tables = [{row.reason: row.share for row in funnel.rows(result.policies[name].funnel)} for name in names]
    reasons = dict.fromkeys(reason for table in tables for reason in table)
    shares = [(reason, *(units.percent(table.get(reason, 0.0)) for table in tables)) for reason in reasons]
    first = result.policies[names[0]].funnel
    return {
        "policy": names[0],
        "rows": funnel.rows(first),
        "advice": funnel.advice_of(result, names[0]),
        "lent": funnel.LENT,
        "others": (("Reason", *(units.plain(name, 18) for name in names)), shares)
        if len(names) > 1
        else None,
    }


def _charts(result: ReplayResult) -> Iterator[tuple[Any, ...]]:
    """What the macro `figure` takes of each figure that there is something to draw of."""
    for chart in figures.CHARTS:
        if wide := chart.draw(result, drawing.WIDE):
            found = list(chart.numbers(result))
            label = f"{chart.title}. {'; '.join(text for text, _ in found)}."
            table = chart.caption, chart.heads, [row for _, rows in found for row in rows]
            yield chart.title, chart.explanation, label, wide, chart.draw(result, drawing.NARROW), table


def _losers(result: ReplayResult, name: str | None) -> dict[str, Any]:
    if name is None or name in SCHEDULERS:
        return {"text": "No policy of this replay lends, so nobody pays for it.", "rows": []}
    policy, base = result.policies[name], result.policies[BASELINE]
    later = policy.end_s - base.end_s
    losers = np.flatnonzero(policy.loser)
    tolerated, count, of = "by more than 60 s or 5 % of", len(losers), affected(policy)
    if not count:
        whom = "no host and no guest" if policy.managed is None else "no managed job"
        text = f"Nobody: under {units.plain(name)} {whom} ends later than under {BASELINE} {tolerated} its response."
        return {"text": text, "rows": []}
    worst = losers[np.argsort(-later[losers], kind="stable")][:WORST].tolist()
    shown = f"The worst {len(worst)} of them" if len(worst) < count else "All of them" if count > 1 else "It"
    caused = policy.stretched is not None
    return {
        "text": f"Under {units.plain(name)}, {units.number(count)} of {units.number(of)} {_whom(policy)} "
        f"({units.percent(count / of if of else None)}) would have ended later than under {BASELINE} {tolerated} "
        f"their response. {shown}:",
        "rows": [_loser(result, policy, row) for row in worst],
        "heads": (
            "Job",
            "Ended later by",
            "Role",
            "Application",
            "Cores",
            "Isolated run time",
            f"Response, {BASELINE}",
            f"Response, {units.plain(name, 18)}",
            "Stretch",
            *(("Cause",) if caused else ()),
        ),
    }


def _loser(result: ReplayResult, policy: PolicyResult, row: int) -> tuple[str, ...]:
    """One job that pays, as a row of their table."""
    base_end_s, end_s = (float(one.end_s[row]) for one in (result.policies[BASELINE], policy))
    submit_s, run_s = float(result.submit_s[row]), float(result.run_s[row])
    roles = [role for role, held in (("host", policy.host[row]), ("guest", policy.guest[row])) if held]
    cause = () if policy.stretched is None else ("stretched" if policy.stretched[row] else "displaced",)
    return (
        units.plain(result.job_id[row], 40),
        units.duration(end_s - base_end_s),
        " and ".join(roles) or "managed",
        units.plain(figures.application_name(result, int(result.application[row])), 60),
        units.number(int(result.cores[row])),
        units.duration(run_s),
        units.duration(base_end_s - submit_s),
        units.duration(end_s - submit_s),
        units.number((end_s - float(policy.start_s[row])) / run_s, 2),
        *cause,
    )


def _whom(policy: PolicyResult) -> str:
    """Those who may have paid for a policy."""
    return "hosts and guests" if policy.managed is None else "managed jobs"


def _method(result: ReplayResult) -> dict[str, Any]:
    shown_elsewhere = ("skipped", "skipped_lines", "notes", "absent")
    log = {key: value for key, value in result.log.items() if key not in shown_elsewhere}
    return {
        "facts_of": (("Log", log), ("Machine", result.machine), ("Settings", result.settings)),
        "definitions": [
            # a number and its unit stay on one line
            (one.label, one.key, re.sub(r"(\d) (s|%|h|d)\b", rf"\1{units.THIN}\2", one.meaning))
            for _, measures in groups(result)
            for one in measures
        ],
        "command": command(result),
    }


def command(result: ReplayResult) -> str:
    """The command that repeats the replay, quoted for a shell: the setting `command`, else what is known."""
    given = result.settings.get("command")
    if isinstance(given, str):
        return units.plain(given, COMMAND)
    if isinstance(given, list):
        return units.plain(shlex.join(str(word) for word in given), COMMAND)
    words = ["asactl", "replay", str(result.log.get("path", "LOG")), "--policy", ",".join(result.policies)]
    seed = result.settings.get("seed")
    if isinstance(seed, int):
        words += ["--seed", str(seed)]
    return units.plain(shlex.join(words), COMMAND)


def _texts(value: Json) -> list[str]:
    """A list of texts from what a log's description holds: none, one text or number, a list, or a table."""
    if value is None or value == "" or isinstance(value, bool):
        return []
    if isinstance(value, dict):
        return [f"{units.plain(key)}: {units.plain(item)}" for key, item in value.items()]
    if isinstance(value, list):
        return [
            units.plain(item if isinstance(item, str) else json.dumps(item, ensure_ascii=False), 300)
            for item in value
        ]
    return [units.plain(value, 300)]
