"""The page of a replay: one HTML file that needs nothing else, for an operator to read, print and hand on."""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np

from asad import __version__
from asad.model import Floats, Json
from asad.replay.results import PolicyResult, ReplayResult
from asad.report import figures, funnel, units, verdict
from asad.report.measures import (
    BASELINE,
    MEASURES,
    SCHEDULERS,
    YARDSTICKS,
    Measure,
    affected,
    difference,
    groups,
    headline,
    metric,
    ordered_policies,
    relative,
    row_unit,
)

WORST = 20
"""Losers that are listed one by one."""
SKIPPED = 50
"""Skipped lines of the log that are listed one by one."""


def write_page(result: ReplayResult, path: str | os.PathLike[str]) -> None:
    """Write the report of a replay to `path`, whole or not at all. The same result gives the same bytes.

    Raises OSError if `path` cannot be written.
    """
    write_whole(page(result), path)


def write_whole(text: str, path: str | os.PathLike[str]) -> None:
    """Write a page to `path`, whole or not at all. Raises OSError if that cannot be."""
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp's file is for its owner alone; a report is to be shown
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def page(result: ReplayResult) -> str:
    """The page as text."""
    name = headline(result)
    log_name = Path(str(result.log.get("path", "log"))).name
    title = f"{escape(units.plain(log_name, 80))}: " + (
        f"{_doing(result, name)} {_plain(name)}" if name and name not in SCHEDULERS else "replayed"
    )
    return shell(
        title,
        _colours(result),
        [
            _header(result, log_name),
            contents([one for one in SECTIONS if one[0] != "funnel" or funnel.counted(result)]),
            "<main>",
            _verdict(result, name),
            _policies(result, name),
            _funnel(result),
            _figures(result),
            _losers(result, name),
            _method(result),
            "</main>",
        ],
        "verdict",
    )


def bench_page(
    system: str, heading: str, facts: str, title: str, sections: Sequence[tuple[str, str, str]]
) -> str:
    """The page of a benchmark: `sections` are (key, title, HTML), the first is the verdict; `facts` is plain text."""
    body = [
        f'<header><p class="kicker">asad <span>{system}</span></p><h1>{heading}</h1>'
        f'<p class="facts">{escape(facts)}</p></header>',
        contents([(key, name) for key, name, _ in sections]),
        "<main>",
        *(
            f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{name}</h2>{text}</section>'
            for key, name, text in sections
        ),
        "</main>",
    ]
    return shell(title, "", body, sections[0][0])


def shell(title: str, styles: str, body: Sequence[str], first: str) -> str:
    """A whole page: `title` and `body` are HTML, `styles` rules beside the shared ones, `first` a section's key."""
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        # nothing may be fetched and nothing may run, whatever a job's name manages to smuggle in
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
        "'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{title}</title>",
        f"<style>{resources.files('asad.report').joinpath('page.css').read_text('utf-8')}{styles}</style>",
        "</head>",
        "<body>",
        f'<a class="skip" href="#{first}">Skip to the verdict</a>',
        *body,
        f"<footer><p>Written by asad {escape(__version__)}. This file holds everything it shows and asks "
        f"no network for "
        "anything.</p></footer>",
        "</body>",
        "</html>",
        "",
    ]
    return "\n".join(part for part in parts if part != "" or part is parts[-1])


# --------------------------------------------------------------------------------------------- sections

SECTIONS = (
    ("verdict", "Verdict"),
    ("policies", "Policies side by side"),
    ("funnel", "What was idle, and where it went"),
    ("figures", "Figures"),
    ("losers", "Who pays"),
    ("method", "How it was found"),
)


def _header(result: ReplayResult, log_name: str) -> str:
    facts = [units.plural(len(result.submit_s), "job")]
    cores, nodes = result.machine.get("cores"), result.machine.get("nodes")
    if isinstance(cores, int) and isinstance(nodes, int):
        facts.append(f"{units.plural(cores, 'core')} on {units.plural(nodes, 'node')}")
    if len(result.submit_s):
        last = max(float(np.nanmax(policy.end_s, initial=-np.inf)) for policy in result.policies.values())
        facts.append(f"{units.duration(last - float(result.submit_s.min()))} of work")
    facts.append(units.plural(len(result.policies), "policy", "policies"))
    return (
        '<header><p class="kicker">asad <span>replay of a recorded cluster</span></p>'
        f"<h1>{escape(units.plain(log_name, 80))}</h1>"
        f'<p class="facts">{" · ".join(escape(fact) for fact in facts)}</p></header>'
    )


def contents(sections: Sequence[tuple[str, str]]) -> str:
    """Links to the sections, by key and title."""
    items = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title in sections)
    return f'<nav aria-label="Contents"><ol>{items}</ol></nav>'


def _verdict(result: ReplayResult, name: str | None) -> str:
    lead, *others = verdict.sentences(result)
    parts = [f'<p class="lead">{escape(lead)}</p>']
    if others:
        parts.append(f'<p class="prose">{escape(" ".join(others))}</p>')
    known = next((policy for policy in YARDSTICKS if policy in result.policies), None)
    yardstick = None if known is None else relative(result, known, "response_mean_s")
    if known is not None and yardstick is not None and name is not None and name not in YARDSTICKS:
        parts.append(
            f'<p class="prose">A yardstick that knows every job’s demand and run time beforehand ({known}) changes '
            f"the mean response by {escape(units.change(yardstick))}; it is no bound, but no real policy knows as "
            f"much.</p>"
        )
    parts += [_tiles(result, name), _rests_on(result, name)]
    return _section("verdict", "".join(parts))


def _tiles(result: ReplayResult, name: str | None) -> str:
    if name is None:
        return ""
    policy = result.policies[name]
    tiles: list[tuple[str, str, str, int]] = []
    for key, label in (("response_mean_s", "mean response"), ("wait_mean_s", "mean wait")):
        moved = relative(result, name, key)
        if moved is not None:
            text = units.change(moved)
            was, now = (units.duration(metric(result.policies[which], key)) for which in (BASELINE, name))
            tone = 0 if text.startswith("±") else -1 if moved > 0 else 1
            tiles.append((text, label, f"{was} → {now}", tone))
    if policy.deferring:
        text, tone = difference(result, name, MEASURES["on_demand_wait_mean_s"])
        waits = (metric(result.policies[which], "on_demand_wait_mean_s") for which in (BASELINE, name))
        waited = " → ".join(units.duration(value) for value in waits)
        tiles.insert(0, (text or units.NONE, "mean wait, on-demand", waited, tone))
        before, after = (metric(result.policies[which], "missed") for which in (BASELINE, name))
        tiles.append(
            (units.number(after), "missed latest starts", f"{units.number(before)} under {BASELINE}", 0)
        )
    elif policy.stating:
        text, tone = difference(result, name, MEASURES["welfare"])
        worths = " → ".join(
            units.number(metric(result.policies[which], "welfare")) for which in (BASELINE, name)
        )
        tiles.insert(0, (text or units.NONE, "welfare of stated jobs", worths, tone))
        planned, gone = (units.number(metric(policy, key)) for key in ("planned", "evicted"))
        tiles.append((gone, "evicted", f"of {planned} planned", 0))
    elif policy.managed is not None:
        text, tone = difference(result, name, MEASURES["utility"])
        before, after = (metric(result.policies[which], "utility") for which in (BASELINE, name))
        earned = (units.number(value, units.decimals_for(value or 0.0)) for value in (before, after))
        tiles.insert(0, (text or units.NONE, "total utility", " → ".join(earned), tone))
    lends = name not in SCHEDULERS and policy.managed is None
    if lends and metric(policy, "late") is not None:
        tiles += _lateness(policy)
    elif name not in SCHEDULERS:
        losers, of = int(policy.loser.sum()), affected(policy)
        note = (
            f"of {units.number(of)} {_whom(policy)} ({units.percent(losers / of)})"
            if of
            else f"there are no {_whom(policy)}"
            if policy.managed is not None
            else "nobody lent or borrowed"
        )
        tiles.append((units.number(losers), "losers" if losers != 1 else "loser", note, 0))
    if lends:
        killed = metric(policy, "killed_by_lending")
        tone = -1 if killed else 0
        tiles.append((units.number(killed), "killed by lending", "must be 0", tone))
    cells = "".join(
        f'<div class="tile"><dt>{escape(label)}</dt><dd class="big{_tone(tone)}">{escape(value)}</dd>'
        f'<dd class="note">{escape(note)}</dd></div>'
        for value, label, note, tone in tiles
    )
    return f'<dl class="tiles" aria-label="{_plain(name)} against {BASELINE}">{cells}</dl>' if cells else ""


def _lateness(policy: PolicyResult) -> list[tuple[str, str, str, int]]:
    """Tiles of a policy that lends: whom sharing made late, and what lateness comes to."""
    guests, slowed, hosts, late, displaced, placebo, ratio = (
        metric(policy, key)
        for key in (
            "guests", "stretched_guests", "stretched_hosts", "late", "displaced", "displaced_placebo",
            "lateness_over_saved",
        )
    )  # fmt: skip
    note = f"of {units.number(guests)} guests"
    if guests and slowed is not None:
        note += f" ({units.percent(slowed / guests)})"
    by_chance = "" if placebo is None else f" (by chance {units.number(placebo)})"
    of_late = f"{units.number(late)} late, {units.number(displaced)} displaced{by_chance}"
    return [
        (units.number(slowed), "stretched guests", f"{note}; {units.number(hosts)} hosts", 0),
        (units.percent(ratio), "lateness over time saved", of_late, 0),
    ]


def _rests_on(result: ReplayResult, name: str | None) -> str:
    parts = ["<h3>What this rests on</h3>"]
    sources = [
        (source, share, text)
        for source, text in (
            ("measured", "measured in the log"),
            ("profiled", "from a workload profile"),
            ("assumed", "assumed"),
        )
        if (share := result.demand_sources.get(source, 0.0)) > 0
    ]
    if sources:
        bar = "".join(
            f'<span class="{source}" style="width:{min(max(share, 0.0), 1.0) * 100:.2f}%"></span>'
            for source, share, _ in sources
        )
        keys = "".join(
            f'<li class="{source}">{escape(units.percent(share))} of the jobs: {text}</li>'
            for source, share, text in sources
        )
        parts.append(
            '<div class="demand"><p>Where the CPU demand of the jobs comes from</p>'
            f'<div class="bar" aria-hidden="true">{bar}</div><ul class="keys">{keys}</ul></div>'
        )
    if result.verdicts:
        rows = [
            (
                _factor(one.demand_factor),
                units.plain(one.policy),
                units.change(one.response_change),
                units.number(one.losers),
                units.number(one.lent_jobs),
            )
            for one in sorted(result.verdicts, key=lambda one: (one.policy, one.demand_factor))
        ]
        parts.append(
            table_of(
                f"How the verdict against {BASELINE} moves if jobs need less or more CPU than assumed",
                ("CPU demand", "Policy", "Mean response", "Losers", "Hosts and guests"),
                rows,
            )
        )
    notes = _log_notes(result)
    if notes:
        parts.append(f'<ul class="notes">{notes}</ul>')
    return f'<div class="rests">{"".join(parts)}</div>' if len(parts) > 1 else ""


def _log_notes(result: ReplayResult) -> str:
    """Absent columns, notes and skipped lines, as list items."""
    items = []
    absent = _texts(result.log.get("absent"))
    if absent:
        items.append(f"Not in the log: {escape(', '.join(absent))}.")
    items += [escape(note) for note in _texts(result.log.get("notes"))]
    skipped = result.log.get("skipped")
    count = skipped if isinstance(skipped, int) else len(_texts(skipped))
    if count:
        were = "was" if count == 1 else "were"
        text = f"{units.plural(count, 'line')} of the log could not be read and {were} left out."
        items.append(escape(text))
    lines = _texts(skipped) if not isinstance(skipped, int) else _texts(result.log.get("skipped_lines"))
    text = "".join(f"<li>{item}</li>" for item in items)
    if lines:
        listed = "".join(f"<li>{escape(line)}</li>" for line in lines[:SKIPPED])
        more = f"<li>… and {units.number(len(lines) - SKIPPED)} more</li>" if len(lines) > SKIPPED else ""
        text += f"<li><details><summary>The lines left out</summary><ul>{listed}{more}</ul></details></li>"
    return text


def _policies(result: ReplayResult, name: str | None) -> str:
    policies = ordered_policies(result)
    head = "".join(
        f'<th scope="col"{_here(policy == name)}><span class="swatch '
        f'{_swatch(result, policy)}"></span>{_plain(policy)}</th>'
        for policy in policies
    )
    body = []
    for group, measures in groups(result):
        rows = [
            f'<tr class="group"><th colspan="{len(policies) + 1}" '
            f'scope="rowgroup"><span>{group}</span></th></tr>'
        ]
        rows += [_measure_row(result, measure, name) for measure in measures]
        body.append(f"<tbody>{''.join(rows)}</tbody>")
    text = (
        '<p class="prose">Every figure is over all jobs of the log unless it says otherwise. Small figures '
        "are the "
        f"difference from {BASELINE}; blue is better, orange is worse. What each figure means stands "
        '<a href="#definitions">at the end</a>.</p>'
        '<div class="scroll" role="region" aria-label="Policies side by side" tabindex="0">'
        '<table class="policies"><caption class="hidden">Figures of every policy</caption>'
        f'<thead><tr><th scope="col">Figure</th>{head}</tr></thead>{"".join(body)}</table></div>'
    )
    return _section("policies", text)


def _measure_row(result: ReplayResult, measure: Measure, headline_name: str | None) -> str:
    names = ordered_policies(result)
    values = [metric(result.policies[name], measure.key) for name in names]
    symbol, factor, decimals = row_unit(measure, values)
    cells = []
    for name, value in zip(names, values, strict=True):
        shown = units.number(None if value is None else value / factor, decimals)
        moved, tone = difference(result, name, measure)
        small = f'<small class="moved{_tone(tone)}">{escape(moved)}</small>' if moved else ""
        if measure.key == "losers" and value is not None and (of := affected(result.policies[name])):
            small = f'<small class="moved">{escape(units.percent(value / of))}</small>'
        alarm = (
            ' class="alarm"' if measure.key == "killed_by_lending" and value else _here(name == headline_name)
        )
        cells.append(f"<td{alarm}>{escape(shown)}{small}</td>")
    unit = (
        f' <span class="unit">{symbol}</span>' if symbol and not measure.label.endswith("core-hours") else ""
    )
    return f'<tr><th scope="row">{escape(measure.label)}{unit}</th>{"".join(cells)}</tr>'


def _funnel(result: ReplayResult) -> str:
    """The reasons of the first policy that has them, drawn; those of the others below."""
    names = funnel.counted(result)
    if not names:
        return ""
    policy = result.policies[names[0]]
    body = []
    for row in funnel.rows(policy.funnel):
        lent = ' class="here"' if row.reason == funnel.LENT else ""
        meaning = f"<small>{escape(row.meaning)}</small>" if row.meaning else ""
        body.append(
            f'<tr{lent}><th scope="row">{_capitals(row.reason)}{meaning}</th>'
            f"<td>{escape(units.number(row.core_h))}</td>"
            f'<td class="meter"><span style="width:{min(max(row.share, 0.0), 1.0) * 100:.2f}%"></span></td>'
            f"<td>{escape(units.percent(row.share))}</td></tr>"
        )
    parts = [
        f'<p class="prose">{escape(funnel.advice(policy.funnel))}</p>',
        '<div class="scroll" role="region" aria-label="What was idle, and where it went" tabindex="0">'
        f'<table class="funnel"><caption><span>Cores × time less what batch used, by reason, under {_plain(names[0])}'
        '</span></caption><thead><tr><th scope="col">Reason</th><th scope="col">core-h</th>'
        '<th scope="colgroup" colspan="2">Share</th></tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>",
    ]
    if len(names) > 1:
        tables = [
            {row.reason: row.share for row in funnel.rows(result.policies[name].funnel)} for name in names
        ]
        reasons = dict.fromkeys(reason for table in tables for reason in table)
        rows = [(reason, *(units.percent(table.get(reason, 0.0)) for table in tables)) for reason in reasons]
        heads = ("Reason", *(units.plain(name, 18) for name in names))
        shares = table_of("Share of what batch left idle, by reason", heads, rows)
        parts.append(f"<details><summary>The other policies</summary>{shares}</details>")
    return _section("funnel", "".join(parts))


def _capitals(text: str) -> str:
    return escape(text[:1].upper() + text[1:])


def _figures(result: ReplayResult) -> str:
    parts = [
        _figure(
            "Utilization over time",
            "Pale: cores that batch jobs hold. Full: cores that really work. The gap between them is what "
            "can be lent.",
            figures.utilization,
            result,
            *_utilization_numbers(result),
        ),
        _figure(
            "How long jobs wait",
            "For every wait, the share of jobs that had started by then; a curve further up and left is "
            "better.",
            figures.waiting,
            result,
            *_quantiles(result, figures.waits, units.duration, "Wait of started jobs"),
        ),
        _figure(
            "Bounded slowdown",
            "For every slowdown, the share of jobs with at most that; a curve further up and left is better.",
            figures.slowdown,
            result,
            *_quantiles(
                result,
                figures.slowdowns,
                lambda value: units.number(value, units.decimals_for(value)),
                "Bounded slowdown",
            ),
        ),
        _figure(
            "What lending costs while jobs run",
            "Run time over isolated run time, for the applications that lending touches most. The mark is "
            "the median, "
            "the bar the middle half of the jobs, the line the middle 90 %.",
            figures.stretch_by_application,
            result,
            *_stretch_numbers(result),
        ),
        _figure(
            "Whom the learner listens to",
            "Weight of each expert, round by round, over the whole cluster. The thin line is where all "
            "experts began; the "
            "percentage is where each one ended.",
            figures.weights,
            result,
            *_weight_numbers(result),
        ),
        _figure(
            "What learning costs",
            "How much more was lost than by the best single expert known only afterwards, and the most "
            "that Theorem 1 "
            "allows it to be.",
            figures.risk,
            result,
            *_risk_numbers(result),
        ),
    ]
    return _section("figures", "".join(parts) or '<p class="prose">There is nothing to draw.</p>')


Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Caption, column heads and rows of the numbers behind a figure."""


def _figure(
    title: str,
    explanation: str,
    draw: Callable[[ReplayResult, int], str],
    result: ReplayResult,
    alternative: str,
    table: Table,
) -> str:
    """One figure, drawn for a page and for a telephone, with its text alternative and its numbers."""
    wide = draw(result, figures.WIDE)
    if not wide:
        return ""
    narrow = draw(result, figures.NARROW)
    label = escape(f"{title}. {alternative}")
    # two drawings of one thing, of which the style sheet shows the one that fits
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3><p>{escape(explanation)}</p></figcaption>"
        f'<div class="drawing wide" role="img" aria-label="{label}">{wide}</div>'
        f'<div class="drawing narrow" role="img" aria-label="{label}">{narrow}</div>'
        f"<details><summary>The numbers</summary>{table_of(*table)}</details></figure>"
    )


def _utilization_numbers(result: ReplayResult) -> tuple[str, Table]:
    rows: list[tuple[str, ...]] = []
    said = []
    for policy in result.policies.values():
        if not len(policy.allocated_fraction):
            continue
        allocated, used = figures.mean_utilization(policy)
        row = (units.plain(policy.name), units.percent(allocated), units.percent(used))
        rows.append((*row, units.percent(float(policy.used_fraction.max()))))
        said.append(f"{row[0]}: {row[1]} of the cores allocated and {row[2]} really busy, on average")
    heads = ("Policy", "Allocated, mean", "Really busy, mean", "Really busy, most")
    return "; ".join(said) + ".", ("Utilization, mean over the makespan", heads, rows)


def _quantiles(
    result: ReplayResult,
    values: Callable[[ReplayResult, PolicyResult], Floats],
    show: Callable[[float], str],
    caption: str,
) -> tuple[str, Table]:
    rows: list[tuple[str, ...]] = []
    said = []
    for policy in result.policies.values():
        found = values(result, policy)
        if not len(found):
            continue
        cells = [show(float(value)) for value in np.percentile(found, [25, 50, 75, 95, 99, 100])]
        rows.append((units.plain(policy.name), *cells))
        said.append(
            f"{units.plain(policy.name)}: half of the jobs at most {cells[1]}, 95{units.THIN}% at most "
            f"{cells[3]}"
        )
    heads = ("Policy", "25 %", "Median", "75 %", "95 %", "99 %", "Most")
    return "; ".join(said) + ".", (caption, heads, rows)


def _stretch_numbers(result: ReplayResult) -> tuple[str, Table]:
    rows: list[tuple[str, ...]] = []
    said = []
    for row in figures.stretches(result):
        for kind, spread in (("hosts", row.host), ("guests", row.guest)):
            if spread is not None:
                cells = [
                    units.number(value, 2)
                    for value in (spread.p5, spread.p25, spread.median, spread.p75, spread.p95)
                ]
                name = units.plain(row.application, 60)
                rows.append((name, kind, units.number(spread.jobs), *cells))
                said.append(f"{name}, {units.number(spread.jobs)} {kind}: median {cells[2]}")
    heads = ("Application", "Role", "Jobs", "5 %", "25 %", "Median", "75 %", "95 %")
    return "; ".join(said) + ".", ("Run time over isolated run time", heads, rows)


def _weight_numbers(result: ReplayResult) -> tuple[str, Table]:
    rows: list[tuple[str, ...]] = []
    said = []
    for policy in result.policies.values():
        history = policy.experts
        if history is None or not len(history.round):
            continue
        for number, expert in enumerate(history.names):
            column = history.weights[:, number]
            rows.append(
                (
                    units.plain(policy.name),
                    units.plain(expert, 60),
                    units.percent(1 / len(history.names)),
                    units.percent(float(column[len(column) // 2])),
                    units.percent(float(column[-1])),
                )
            )
        best = int(np.argmax(history.weights[-1]))
        share = units.percent(float(history.weights[-1, best]))
        said.append(f"{units.plain(policy.name)} ends with {share} on {units.plain(history.names[best], 60)}")
    heads = ("Policy", "Expert", "At first", "Half-way", "At last")
    return "; ".join(said) + ".", ("Weights of the experts", heads, rows)


def _risk_numbers(result: ReplayResult) -> tuple[str, Table]:
    rows: list[tuple[str, ...]] = []
    said = []
    for policy in result.policies.values():
        history = policy.experts
        if history is None or not len(history.round):
            continue
        name = units.plain(policy.name)
        for number in sorted({0, len(history.round) // 2, len(history.round) - 1}):
            risk, bound = float(history.excess_risk[number]), float(history.bound[number])
            rows.append(
                (
                    name,
                    units.number(int(history.round[number])),
                    units.number(risk, 2),
                    units.number(bound, 2),
                )
            )
        over = int((history.excess_risk > history.bound).sum())
        said.append(
            f"{name}: {rows[-1][2]} after {units.plural(int(history.round[-1]), 'round')}, bound "
            f"{rows[-1][3]}"
            + (f", above the bound in {units.number(over)} of the rounds shown" if over else "")
        )
    heads = ("Policy", "Round", "Excess risk", "Bound")
    return "; ".join(said) + ".", ("Excess risk against Theorem 1’s bound", heads, rows)


def _losers(result: ReplayResult, name: str | None) -> str:
    if name is None or name in SCHEDULERS:
        return _section(
            "losers", '<p class="prose">No policy of this replay lends, so nobody pays for it.</p>'
        )
    policy, base = result.policies[name], result.policies[BASELINE]
    later = policy.end_s - base.end_s
    losers = np.flatnonzero(policy.loser)
    if not len(losers):
        return _section(
            "losers",
            f'<p class="prose">Nobody: under {_plain(name)} {_nobody(policy)} ends later than under '
            f"{BASELINE} by more "
            "than 60 s or 5 % of its response.</p>",
        )
    worst = losers[np.argsort(-later[losers], kind="stable")][:WORST]
    rows = []
    for row in worst.tolist():
        host, guest = bool(policy.host[row]), bool(policy.guest[row])
        response = float(policy.end_s[row] - result.submit_s[row])
        before = float(base.end_s[row] - result.submit_s[row])
        stretch = float((policy.end_s[row] - policy.start_s[row]) / result.run_s[row])
        rows.append(
            (
                units.plain(result.job_id[row], 40),
                units.duration(float(later[row])),
                "host and guest" if host and guest else "host" if host else "guest" if guest else "managed",
                units.plain(figures.application_name(result, int(result.application[row])), 60),
                units.number(int(result.cores[row])),
                units.duration(float(result.run_s[row])),
                units.duration(before),
                units.duration(response),
                units.number(stretch, 2),
                *(
                    ()
                    if policy.stretched is None
                    else ("stretched" if policy.stretched[row] else "displaced",)
                ),
            )
        )
    shown = (
        f"The worst {len(rows)} of them"
        if len(rows) < len(losers)
        else "All of them"
        if len(rows) > 1
        else "It"
    )
    of = affected(policy)
    text = (
        f'<p class="prose">Under {_plain(name)}, {escape(units.number(len(losers)))} of '
        f"{escape(units.number(of))} {_whom(policy)} "
        f"({escape(units.percent(len(losers) / of if of else None))}) would have ended later than under "
        f"{BASELINE} by more than 60 s or 5 % of their response. {shown}:</p>"
    )
    heads = (
        "Job",
        "Ended later by",
        "Role",
        "Application",
        "Cores",
        "Isolated run time",
        f"Response, {BASELINE}",
        f"Response, {units.plain(name, 18)}",
        "Stretch",
        *(() if policy.stretched is None else ("Cause",)),
    )
    return _section("losers", text + table_of("Losers, the worst first", heads, rows))


def _doing(result: ReplayResult, name: str) -> str:
    policy = result.policies[name]
    return (
        "putting off with"
        if policy.deferring
        else "planning by"
        if policy.stating
        else "lending with"
        if policy.managed is None
        else "admission by"
    )


def _whom(policy: PolicyResult) -> str:
    """Those who may have paid for a policy."""
    return "hosts and guests" if policy.managed is None else "managed jobs"


def _nobody(policy: PolicyResult) -> str:
    return "no host and no guest" if policy.managed is None else "no managed job"


def _method(result: ReplayResult) -> str:
    parts = ['<div class="columns">']
    facts = {
        key: value
        for key, value in result.log.items()
        if key not in ("skipped", "skipped_lines", "notes", "absent")
    }
    for title, table in (("Log", facts), ("Machine", result.machine), ("Settings", result.settings)):
        if table:
            rows = "".join(_fact(str(key), value) for key, value in table.items() if key != "command")
            parts.append(f'<section><h3>{title}</h3><dl class="facts-list">{rows}</dl></section>')
    parts.append("</div>")
    definitions = "".join(
        f"<div><dt>{escape(measure.label)} "
        f"<code>{measure.key}</code></dt><dd>{escape(_tied(measure.meaning))}</dd></div>"
        for _, measures in groups(result)
        for measure in measures
    )
    parts.append(
        f'<h3 id="definitions">What each figure means</h3><dl class="definitions">{definitions}</dl>'
    )
    parts.append(
        '<h3>To see the same again</h3><p class="prose">The same log, settings and seed give the same '
        "figures; only the "
        f'time that the simulation took differs.</p><pre tabindex="0"><code>{escape(command(result))}'
        "</code></pre>"
    )
    return _section("method", "".join(parts))


def command(result: ReplayResult) -> str:
    """The command that repeats the replay, quoted for a shell: the setting `command`, else what is known."""
    given = result.settings.get("command")
    if isinstance(given, str):
        return _one_line(given)
    if isinstance(given, list):
        return _one_line(shlex.join(str(word) for word in given))
    words = ["asactl", "replay", str(result.log.get("path", "LOG")), "--policy", ",".join(result.policies)]
    seed = result.settings.get("seed")
    if isinstance(seed, int):
        words += ["--seed", str(seed)]
    return _one_line(shlex.join(words))


# ----------------------------------------------------------------------------------------------- pieces


def _section(key: str, body: str) -> str:
    title = f'<h2 id="{key}-title">{dict(SECTIONS)[key]}</h2>'
    return f'<section id="{key}" aria-labelledby="{key}-title">{title}{body}</section>'


def table_of(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts, not yet escaped; the first column names its row."""
    rows = list(rows)
    # a column whose cells all begin like numbers is set flush right, so that its digits line up
    words = [not all(_numeric(row[number]) for row in rows) for number in range(len(heads))]
    head = "".join(
        f'<th scope="col"{_word(word)}>{escape(text)}</th>' for text, word in zip(heads, words, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(
            f"<td{_word(word)}>{escape(cell)}</td>" for cell, word in zip(row[1:], words[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption><span>{escape(caption)}</span></caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _numeric(text: str) -> bool:
    return text[:1] in "0123456789+±–∞" or text.startswith(units.MINUS)


def _word(word: bool) -> str:
    return ' class="word"' if word else ""


def _plain(value: object) -> str:
    """A stranger's text, cleaned and escaped."""
    return escape(units.plain(value))


def _tied(text: str) -> str:
    """Keeps a number and its unit on one line."""
    return re.sub(r"(\d) (s|%|h|d)\b", rf"\1{units.THIN}\2", text)


def _one_line(text: str) -> str:
    return units.plain(text, 4_000)


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


def _fact(key: str, value: Json) -> str:
    """A line of log, machine or settings; the unit in its key goes behind the number."""
    name, _, unit = key.rpartition("_")
    shown = _value(value)
    if unit == "s" and isinstance(value, int | float):
        shown += f"{units.THIN}s"
    elif unit == "bytes" and isinstance(value, int | float):
        shown = escape(f"{value / 2**30:.6g}{units.THIN}GiB")
    elif unit not in ("s", "bytes"):
        name = key
    return f"<div><dt>{_plain(name.replace('_', ' '))}</dt><dd>{shown}</dd></div>"


def _value(value: Json) -> str:
    """One setting as HTML."""
    if value is None:
        return units.NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return escape(f"{value:.15g}".replace("-", units.MINUS))
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return _plain(", ".join(str(item) for item in value))
    if isinstance(value, dict):
        return "<br>".join(f"{_plain(key)}: {_value(item)}" for key, item in value.items())
    return f"<code>{escape(units.plain(json.dumps(value, ensure_ascii=False), 1_000))}</code>"


def _factor(factor: float) -> str:
    return "as assumed" if factor == 1 else units.change(factor - 1)


def _tone(tone: int) -> str:
    return {1: " better", 0: "", -1: " worse"}[tone]


def _here(here: bool) -> str:
    return ' class="here"' if here else ""


def _swatch(result: ReplayResult, name: str) -> str:
    return f"policy-{list(result.policies).index(name)}"


def _colours(result: ReplayResult) -> str:
    """One rule a policy, so that its name carries the colour that it has in the figures."""
    return "".join(
        f"\n.policy-{number}{{background:{figures.look(result, name)[0]}}}"
        for number, name in enumerate(result.policies)
    )
