"""`asactl ledger`: what lending gave to and took from each account."""

from __future__ import annotations

import math
import time
from dataclasses import asdict

import click

from asad.bounded import printable
from asad.cli.listing_fields import Chosen
from asad.cli.listings import listed
from asad.cli.live import daemon_store
from asad.cli.screen import JSON, respond
from asad.store import lending_ledger as stored
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
@listed("ledger")
@JSON
def ledger(store_url: str | None, days: float | None, chosen: Chosen, as_json: bool) -> None:
    """Sum, by account and role, the core-seconds that hosts gave and guests got, and by how much limits were extended.

    A job is entered when it has ended. Reads the store, so no daemon need run.
    """
    since_s = -math.inf if days is None else time.time() - days * DAY_S
    with Store.open(store_url or daemon_store(), create=False) as store:
        totals, place = [asdict(total) for total in stored.totals(store, since_s)], str(store)
    found = chosen.ordered(totals)
    empty = f"{printable(place)} holds no entry: no job that lent or was a guest has ended"
    respond(as_json, {"accounts": found}, lambda: chosen.shown(found, empty=empty))
