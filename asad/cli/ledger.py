"""`asactl ledger`: what lending gave to and took from each account."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict

import click
from rich.console import RenderableType

from asad.bounded import printable
from asad.cli.live import daemon_store
from asad.cli.screen import JSON, cells, duration, respond, table_of
from asad.store import lending_ledger as stored
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
    respond(as_json, {"accounts": [asdict(total) for total in totals]}, lambda: _listed(totals, place))


def _listed(totals: list[AccountTotal], place: str) -> Iterator[RenderableType]:
    if not totals:
        yield f"{printable(place)} holds no entry: no job that lent or was a guest has ended"
        return
    table = table_of("account", "role*", "jobs>", "core-hours>", "extended by>")
    for total in totals:
        core_h = f"{total.lent_core_s / 3600.0:.2f}"
        table.add_row(
            *cells(total.account or None, total.role, total.jobs, core_h, duration(total.extended_s))
        )
    yield table
