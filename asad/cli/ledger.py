"""`asactl ledger`: what lending gave to and took from each account."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict

import click
from rich.table import Table
from rich.text import Text

from asad.cli.live import JSON, daemon_store, print_screen
from asad.cli.runs import duration, printable
from asad.store import ledger as stored
from asad.store.records import AccountTotal
from asad.store.store import Store

DAY_S = 86_400.0


@click.command(short_help="What lending gave to and took from each account.")
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="State store of the daemon [default: as asad.toml says].",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    help="Only jobs that ended within so many days [default: all that the store keeps].",
)
@JSON
def ledger(store_url: str | None, days: float | None, as_json: bool) -> None:
    """Sum, by account and role, the core-seconds that hosts gave and guests got, and by how much limits were extended.

    A job is entered when it has ended. Reads the store, so no daemon need run.
    """
    since_s = -math.inf if days is None else time.time() - days * DAY_S
    with Store.open(store_url or daemon_store(), create=False) as store:
        totals, place = stored.totals(store, since_s), str(store)
    if as_json:
        click.echo(json.dumps([asdict(total) for total in totals], indent=2))
    elif totals:
        _print(totals)
    else:
        click.echo(f"{printable(place)} holds no entry: no job that lent or was a guest has ended")


def _print(totals: list[AccountTotal]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("account", overflow="fold")
    table.add_column("role")
    for heading in ("jobs", "core-hours", "extended by"):
        table.add_column(heading, justify="right", no_wrap=True)
    for total in totals:
        cells = (
            printable(total.account) or "-",
            total.role,
            f"{total.jobs}",
            f"{total.lent_core_s / 3600.0:.2f}",
            duration(total.extended_s),
        )
        table.add_row(*(Text(cell) for cell in cells))
    print_screen(table)
