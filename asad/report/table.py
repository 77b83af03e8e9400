"""The replay's table on the terminal, with the verdict below it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from asad.replay.results import ReplayResult
from asad.report import funnel, units, verdict
from asad.report.measures import (
    BASELINE,
    MEASURES,
    SCHEDULERS,
    affected,
    difference,
    metric,
    ordered_policies,
    row_unit,
    unshared,
)

LEAD = (
    ("response_mean_s", "response"),
    ("wait_mean_s", "wait"),
    ("bounded_slowdown_mean", "slowdown"),
    ("delivered_core_s", "delivered"),
)
"""What an operator looks at first: key and head of the column."""

PROSE_WIDTH = 100
"""Columns that the verdict takes at most; longer lines are hard to read."""


def render_table(result: ReplayResult, console: Console) -> None:
    """Print what every policy does for users, who pays for it, and the verdict; made for 80 columns and more.

    Names are cleaned of control characters and never taken as markup; a terminal without Unicode gets ASCII.
    No figure is ever cut short: on a narrower terminal the lines run over.
    """
    console.print(_Uncut(_gains(result, console)), crop=False)
    console.print()
    others = [name for name in ordered_policies(result) if name not in SCHEDULERS]
    lenders = [name for name in others if result.policies[name].managed is None]
    if "utility" in result.policies[BASELINE].metrics:
        console.print(_Uncut(_worths(result, console)), crop=False)
        console.print()
    if "deferrable" in result.policies[BASELINE].metrics:
        console.print(_Uncut(_deferrals(result, console)), crop=False)
        console.print()
    if "stated" in result.policies[BASELINE].metrics:
        console.print(_Uncut(_statements(result, console)), crop=False)
        console.print()
    if lenders:
        console.print(_Uncut(_payers(result, lenders, console)), crop=False)
        console.print()
        for name in funnel.counted(result)[:1]:  # of the others it stands in the page and the JSON
            console.print(_Uncut(_funnel(result, name, console)), crop=False)
            _prose(console, funnel.advice(result.policies[name].funnel))
            console.print()
    elif not others:
        console.print(_for(console, "No policy of this replay lends, so nobody pays for it."))
        console.print()
    for text in (" ".join(verdict.sentences(result)), *_unseen(result)):
        _prose(console, text)


def _prose(console: Console, text: str) -> None:
    # textwrap keeps no-break spaces, where rich would break `5 h 31 min`
    for line in textwrap.wrap(text, min(console.width, PROSE_WIDTH), break_long_words=False):
        console.print(_for(console, line), no_wrap=True, crop=False)


def _unseen(result: ReplayResult) -> Iterator[str]:
    """What the figures do not show: jobs that are not in them, and a machine that nobody described."""
    out = []
    for key, what, why in (
        ("skipped", "line", "that cannot be read"),
        ("does_not_fit", "job", "too large for the machine"),
    ):
        count = result.log.get(key)
        if isinstance(count, int) and count:
            out.append(f"{units.plural(count, what)} {why}")
    if out:
        yield f"Left out of the log, and of all figures: {' and '.join(out)}."
    origin = units.plain(str(result.machine.get("origin", "")), 300)
    if origin.startswith("inferred: "):
        yield f"Nobody described the machine; it is inferred from the log: {origin.removeprefix('inferred: ')}."


class _Uncut:
    """A table at its natural width, whatever the width of the terminal."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(width=10_000)
        natural = console.measure(self.table, options=endless).maximum
        # rich draws an empty column one wider than it measures it, and would cut a name for that
        room = natural + len(self.table.columns)
        yield from console.render(self.table, options.update(width=room))


def _gains(result: ReplayResult, console: Console) -> Table:
    """Response, waiting, bounded slowdown and delivered core-hours, each with its difference from slurm."""
    names = ordered_policies(result)
    jobs = units.plural(len(result.submit_s), "job")
    table = _table(
        console,
        f"What {jobs} {'gets' if len(result.submit_s) == 1 else 'get'}, and the difference from {BASELINE}",
    )
    columns = []
    for key, head in LEAD:
        measure = MEASURES[key]
        values = [metric(result.policies[name], key) for name in names]
        symbol, factor, decimals = row_unit(measure, values)
        table.add_column(_for(console, f" {head}\n{symbol}"), justify="right")
        table.add_column(justify="right")
        columns.append((measure, factor, decimals))
    for name in names:
        cells = [_name(console, name)]
        for measure, factor, decimals in columns:
            value = metric(result.policies[name], measure.key)
            # the leading space sets each figure and its difference apart from the next pair
            shown = " " + units.number(None if value is None else value / factor, decimals)
            moved, tone = difference(result, name, measure)
            cells.append(_for(console, shown))
            cells.append(_for(console, moved, {1: "green", 0: "", -1: "yellow"}[tone]))
        table.add_row(*cells)
    return table


def _worths(result: ReplayResult, console: Console) -> Table:
    """What jobs are worth under every policy, who was admitted, and who ends later because of it."""
    jobs = units.plural(int(metric(result.policies[BASELINE], "valued") or 0), "job")
    table = _table(console, f"What {jobs} with a utility are worth, and who pays for it")
    utility = MEASURES["utility"]
    names = ordered_policies(result)
    _, _, decimals = row_unit(utility, [metric(result.policies[name], "utility") for name in names])
    worst = MEASURES["loss_max_s"]
    symbol, factor, places = row_unit(worst, [metric(result.policies[name], worst.key) for name in names])
    for head in (
        "utility",
        "",
        " in time",
        " admitted",
        " not",
        " losers",
        "",
        f"worst\n{symbol}",
        "displaced",
    ):
        table.add_column(_for(console, head), justify="right")
    for name in names:
        policy = result.policies[name]
        moved, tone = difference(result, name, utility)
        cells = [
            _name(console, name),
            _for(console, units.number(metric(policy, "utility"), decimals)),
            _for(console, moved, {1: "green", 0: "", -1: "yellow"}[tone]),
            *(
                _for(console, units.number(metric(policy, key)))
                for key in ("in_time", "admitted", "declined")
            ),
        ]
        other = policy.deferring or policy.stating
        if policy.managed is None or other:  # who pays for those stands in other tables
            cells += [_for(console, "")] * 4
        else:
            losers, of, loss = metric(policy, "losers"), affected(policy), metric(policy, worst.key)
            cells += [
                _for(console, units.number(losers)),
                _for(console, units.percent(losers / of) if losers is not None and of else ""),
                _for(console, units.number(None if loss is None else loss / factor, places)),
                _for(console, units.number(unshared(policy)[0])),
            ]
        table.add_row(*cells)
    return table


def _deferrals(result: ReplayResult, console: Console) -> Table:
    """What becomes of deferrable jobs, and what others have of it."""
    jobs = units.plural(int(metric(result.policies[BASELINE], "deferrable") or 0), "deferrable job")
    table = _table(console, f"What becomes of {jobs}, and of the others beside them")
    names = ordered_policies(result)
    columns = []
    for key, head, moves in (
        ("on_demand_wait_mean_s", "on-demand\nwait", True),
        ("missed", "missed", False),
        ("deferrable_delay_mean_s", "delay", False),
        ("deferrable_utilization", "utilization", False),
        ("displaced", "displaced", False),
        ("displaced_placebo", "placebo", False),
    ):
        measure = MEASURES[key]
        symbol, factor, decimals = row_unit(measure, [metric(result.policies[name], key) for name in names])
        table.add_column(_for(console, f" {head}\n{symbol}" if symbol else f" {head}"), justify="right")
        if moves:
            table.add_column(justify="right")
        columns.append((measure, factor, decimals, moves))
    for name in names:
        policy = result.policies[name]
        cells = [_name(console, name)]
        for measure, factor, decimals, moves in columns:
            value = metric(policy, measure.key)
            if measure.key.startswith("displaced"):
                value = unshared(policy)[measure.key == "displaced_placebo"]
            blank = measure.key.startswith("displaced") and not policy.deferring
            shown = "" if blank else units.number(None if value is None else value / factor, decimals)
            cells.append(_for(console, f" {shown}"))
            if moves:
                moved, tone = difference(result, name, measure)
                cells.append(_for(console, moved, {1: "green", 0: "", -1: "yellow"}[tone]))
        table.add_row(*cells)
    return table


def _statements(result: ReplayResult, console: Console) -> Table:
    """What statements of work are worth under every policy, and what became of those that were planned."""
    jobs = units.plural(int(metric(result.policies[BASELINE], "stated_jobs") or 0), "stated job")
    table = _table(console, f"What {jobs} are worth to their owners, and what became of their plans")
    names, welfare = ordered_policies(result), MEASURES["welfare"]
    _, _, decimals = row_unit(welfare, [metric(result.policies[name], "welfare") for name in names])
    for head in ("welfare", "", " planned", " evicted", " cancelled", " payments", " losers", " displaced"):
        table.add_column(_for(console, head), justify="right")
    for name in names:
        policy = result.policies[name]
        moved, tone = difference(result, name, welfare)
        cells = [
            _name(console, name),
            _for(console, units.number(metric(policy, "welfare"), decimals)),
            _for(console, moved, {1: "green", 0: "", -1: "yellow"}[tone]),
        ]
        keys = ("planned", "evicted", "cancelled", "payments", "losers", "displaced")
        for key in keys:
            value = unshared(policy)[0] if key == "displaced" else metric(policy, key)
            told = units.number(value, decimals if key == "payments" else 0)
            cells.append(_for(console, f" {told}" if policy.stating else ""))
        table.add_row(*cells)
    return table


def _payers(result: ReplayResult, lenders: list[str], console: Console) -> Table:
    """What was lent, who ends later because of it, and why."""
    table = _table(console, "What was lent, who ends late, and why")
    for head in (
        "guests", "lent\ncore-h", "late", "stretched\nguests", "\nhosts", "displaced", "placebo", "lost/\nsaved",
        "killed\nby it",
    ):  # fmt: skip
        table.add_column(_for(console, head), justify="right")
    for name in lenders:
        policy = result.policies[name]
        lent, killed = metric(policy, "lent_core_s"), metric(policy, "killed_by_lending")
        table.add_row(
            _name(console, name),
            _for(console, units.number(metric(policy, "guests"))),
            _for(console, units.number(None if lent is None else lent / 3_600)),
            *(
                _for(console, units.number(metric(policy, key)))
                for key in ("late", "stretched_guests", "stretched_hosts", "displaced", "displaced_placebo")
            ),
            _for(console, units.percent(metric(policy, "lateness_over_saved"))),
            _for(console, units.number(killed), "bold red" if killed else ""),
        )
    return table


def _funnel(result: ReplayResult, name: str, console: Console) -> Table:
    """Where the core-hours went that batch left idle; reasons that kept nothing are left out."""
    table = _table(
        console, f"What batch left idle, and where it went under {units.plain(name, 18)}", "reason"
    )
    for head in ("core-h", "share"):
        table.add_column(_for(console, f" {head}"), justify="right")
    for row in funnel.rows(result.policies[name].funnel):
        if row.core_h:
            table.add_row(
                _for(console, row.reason, "bold" if row.reason == funnel.LENT else ""),
                _for(console, units.number(row.core_h)),
                _for(console, f" {units.percent(row.share)}"),
            )
    return table


def _table(console: Console, title: str, first: str = "policy") -> Table:
    """An empty table whose `first` column says what a row is about; gaps are wider where there is room."""
    table = Table(
        title=_for(console, title, "italic"),
        title_justify="left",
        box=box.ASCII2 if console.options.ascii_only else box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1 if console.width >= 96 else 0, 0, 0),
        pad_edge=False,
    )
    table.add_column(_for(console, first))
    return table


def _name(console: Console, name: str) -> Text:
    return _for(console, units.plain(name, 18), "bold")


def _for(console: Console, text: str, style: str = "") -> Text:
    """Text as it stands (never markup), in letters that the terminal knows."""
    return Text(units.ascii_only(text) if console.options.ascii_only else text, style=style)
