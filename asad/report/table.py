"""A replay on the terminal: what is read first, and with --full all tables."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from asad.replay.results import PolicyResult, ReplayResult
from asad.report import fidelity_table, funnel, job_groups, units
from asad.report.effects import ADMISSION, effect_of
from asad.report.first_screen import parts
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
"""Columns that sentences take at most; longer lines are hard to read."""


def print_first_screen(result: ReplayResult, console: Console) -> None:
    """Print the five parts that are read first, each below its title.

    Names are cleaned of control characters and never taken as markup; a terminal without Unicode gets ASCII.
    """
    for part in parts(result):
        console.print(_for(console, part.title, "bold"), no_wrap=True, crop=False)
        _prose(console, " ".join(part.sentences), indent="  ")


def render_table(result: ReplayResult, console: Console) -> None:
    """Print all tables: what every policy does for users, who pays for it, what was idle, groups of jobs, and what was
    assumed.

    No figure is ever cut short: on a narrower terminal the lines run over.
    """
    asked = (("utility", _worths), ("deferrable", _deferrals), ("stated", _statements))
    for make in (_gains, *(make for key, make in asked if key in result.policies[BASELINE].metrics)):
        console.print(_Uncut(make(result, console)), crop=False)
        console.print()
    others = [name for name in ordered_policies(result) if name not in SCHEDULERS]
    lenders = [name for name in others if result.policies[name].managed is None]
    if lenders:
        console.print(_Uncut(_payers(result, lenders, console)), crop=False)
        console.print()
        for name in funnel.counted(result)[:1]:  # of the others it stands in the page and the JSON
            console.print(_Uncut(_funnel(result, name, console)), crop=False)
            _prose(console, funnel.advice_of(result, name))
            console.print()
    for caption, heads, rows in [*job_groups.tables(result), *fidelity_table.tables(result)]:
        console.print(_Uncut(_group_table(console, caption, heads, rows)), crop=False)
        console.print()
    for text in _assumed(result):
        _prose(console, text)


def _prose(console: Console, text: str, indent: str = "") -> None:
    # textwrap keeps no-break spaces, where rich would break `5 h 31 min`
    width = min(console.width, PROSE_WIDTH)
    for line in textwrap.wrap(
        text, width, break_long_words=False, initial_indent=indent, subsequent_indent=indent
    ):
        console.print(_for(console, line), no_wrap=True, crop=False)


def _assumed(result: ReplayResult) -> Iterator[str]:
    """How the machine was inferred, and all that was assumed."""
    origin = units.plain(str(result.machine.get("origin", "")), 500)
    if origin.startswith("inferred: "):
        yield f"The machine is inferred from the log: {origin.removeprefix('inferred: ')}."
    notes = result.log.get("notes")
    if isinstance(notes, list) and notes:
        yield f"Noted: {'; '.join(units.plain(str(note), 500).rstrip('.') for note in notes)}."


def _group_table(
    console: Console, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]
) -> Table:
    table = _table(console, caption, heads[0])
    for head in heads[1:]:
        table.add_column(_for(console, f" {head}"), justify="right")
    for row in rows:
        table.add_row(*(_for(console, cell if not number else f" {cell}") for number, cell in enumerate(row)))
    return table


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


Cell = Callable[[PolicyResult], str | tuple[str, str]]
"""What a column shows of a policy: a text, or a text and its style."""
Column = tuple[str, Cell]
"""Head and cell."""


def _by_policy(
    result: ReplayResult, console: Console, title: str, columns: Iterable[Column], names: Sequence[str] = ()
) -> Table:
    """A row for each policy, of all if none is named."""
    table, columns = _table(console, title), list(columns)
    for head, _ in columns:
        table.add_column(_for(console, head), justify="right")
    for name in names or ordered_policies(result):
        shown = (cell(result.policies[name]) for _, cell in columns)
        cells = (_for(console, one) if isinstance(one, str) else _for(console, *one) for one in shown)
        table.add_row(_name(console, name), *cells)
    return table


def _in_one_unit(result: ReplayResult, key: str) -> tuple[str, Callable[[float | None], str]]:
    """The unit in which a figure is written for all policies, and how."""
    values = [metric(policy, key) for policy in result.policies.values()]
    symbol, factor, decimals = row_unit(MEASURES[key], values)
    return symbol, lambda value: units.number(None if value is None else value / factor, decimals)


def _measure(result: ReplayResult, key: str, head: str) -> Column:
    """A figure, its unit below the head; the leading space sets it and its difference apart from the next pair."""
    symbol, show = _in_one_unit(result, key)
    return f" {head}\n{symbol}", lambda policy: f" {show(metric(policy, key))}"


def _moved(result: ReplayResult, key: str) -> Column:
    """The difference of a figure from slurm's."""

    def cell(policy: PolicyResult) -> tuple[str, str]:
        moved, tone = difference(result, policy.name, MEASURES[key])
        return moved, {1: "green", 0: "", -1: "yellow"}[tone]

    return "", cell


def _count(key: str, head: str) -> Column:
    return head, lambda policy: units.number(metric(policy, key))


def _where(is_shown: Callable[[PolicyResult], bool], *columns: Column, blank: str = "") -> list[Column]:
    """Columns that are empty for other policies: what they say of these stands in another table."""
    return [
        (head, lambda policy, cell=cell: cell(policy) if is_shown(policy) else blank)  # type: ignore[misc]
        for head, cell in columns
    ]


def _of_all(result: ReplayResult, key: str) -> int:
    """A number of jobs that is the same under all policies."""
    return int(metric(result.policies[BASELINE], key) or 0)


def _gains(result: ReplayResult, console: Console) -> Table:
    """Response, waiting, bounded slowdown and delivered core-hours, each with its difference from slurm."""
    jobs, get = units.plural(len(result.submit_s), "job"), "gets" if len(result.submit_s) == 1 else "get"
    columns = [column for key, head in LEAD for column in (_measure(result, key, head), _moved(result, key))]
    return _by_policy(result, console, f"What {jobs} {get}, and the difference from {BASELINE}", columns)


def _worths(result: ReplayResult, console: Console) -> Table:
    """What jobs are worth under every policy, who was admitted, and who ends later because of it."""
    jobs = units.plural(_of_all(result, "valued"), "job")
    _, worth = _in_one_unit(result, "utility")
    symbol, loss = _in_one_unit(result, "loss_max_s")

    def share(policy: PolicyResult) -> str:
        losers, of = metric(policy, "losers"), affected(policy)
        return units.percent(losers / of) if losers is not None and of else ""

    return _by_policy(
        result,
        console,
        f"What {jobs} with a utility are worth, and who pays for it",
        [
            ("utility", lambda policy: worth(metric(policy, "utility"))),
            _moved(result, "utility"),
            _count("in_time", " in time"),
            _count("admitted", " admitted"),
            _count("declined", " not"),
            *_where(
                lambda policy: effect_of(policy) is ADMISSION,
                _count("losers", " losers"),
                ("", share),
                (f"worst\n{symbol}", lambda policy: loss(metric(policy, "loss_max_s"))),
                ("displaced", lambda policy: units.number(unshared(policy)[0])),
            ),
        ],
    )


def _deferrals(result: ReplayResult, console: Console) -> Table:
    """What becomes of deferrable jobs, and what others have of it."""
    jobs = units.plural(_of_all(result, "deferrable"), "deferrable job")
    wait = "on_demand_wait_mean_s"
    return _by_policy(
        result,
        console,
        f"What becomes of {jobs}, and of the others beside them",
        [
            _measure(result, wait, "on-demand\nwait"),
            _moved(result, wait),
            (" missed", lambda policy: f" {units.number(metric(policy, 'missed'))}"),
            _measure(result, "deferrable_delay_mean_s", "delay"),
            _measure(result, "deferrable_utilization", "utilization"),
            *_where(
                lambda policy: policy.deferring,
                (" displaced", lambda policy: f" {units.number(unshared(policy)[0])}"),
                (" placebo", lambda policy: f" {units.number(unshared(policy)[1])}"),
                blank=" ",
            ),
        ],
    )


def _statements(result: ReplayResult, console: Console) -> Table:
    """What statements of work are worth under every policy, and what became of those that were planned."""
    jobs = units.plural(_of_all(result, "stated_jobs"), "stated job")
    _, worth = _in_one_unit(result, "welfare")
    counts = ("planned", "evicted", "cancelled", "payments", "losers", "displaced")

    def counted(policy: PolicyResult, key: str) -> str:
        value = unshared(policy)[0] if key == "displaced" else metric(policy, key)
        return f" {worth(value) if key == 'payments' else units.number(value)}"

    return _by_policy(
        result,
        console,
        f"What {jobs} are worth to their owners, and what became of their plans",
        [
            ("welfare", lambda policy: worth(metric(policy, "welfare"))),
            _moved(result, "welfare"),
            *_where(
                lambda policy: policy.stating, *((f" {key}", partial(counted, key=key)) for key in counts)
            ),
        ],
    )


def _payers(result: ReplayResult, lenders: list[str], console: Console) -> Table:
    """What was lent, who ends later because of it, and why."""

    def killed(policy: PolicyResult) -> tuple[str, str]:
        count = metric(policy, "killed_by_lending")
        return units.number(count), "bold red" if count else ""

    def lent(policy: PolicyResult) -> str:
        core_s = metric(policy, "lent_core_s")
        return units.number(None if core_s is None else core_s / 3_600)

    placebo = [] if result.baseline.get("kind") == "recorded" else [_count("displaced_placebo", "placebo")]
    return _by_policy(
        result,
        console,
        "What was lent, who ends late, and why",
        [
            _count("guests", "guests"),
            ("lent\ncore-h", lent),
            _count("late", "late"),
            _count("stretched_guests", "stretched\nguests"),
            _count("stretched_hosts", "\nhosts"),
            _count("displaced", "displaced"),
            *placebo,
            ("lost/\nsaved", lambda policy: units.percent(metric(policy, "lateness_over_saved"))),
            ("killed\nby it", killed),
        ],
        lenders,
    )


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
