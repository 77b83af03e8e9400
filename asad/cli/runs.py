"""`asactl runs`: what the state store holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from rich.console import RenderableType

from asad.bounded import printable
from asad.cli import completion
from asad.cli.listing_fields import Chosen, Facts
from asad.cli.listings import listed
from asad.cli.screen import JSON, STORE, YES, counted, respond
from asad.store.records import RunRecord
from asad.store.store import Store

# ------------------------------------------------------------------------------------------------------- runs


@click.group(invoke_without_command=True)
@STORE
@listed("runs")
@JSON
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="At most so many, newest first.",
)
@click.pass_context
def runs(context: click.Context, store_url: str | None, as_json: bool, limit: int, chosen: Chosen) -> None:
    """List the stored runs, or remove some (`rm`, `prune`).

    `killed` is a run whose process went away; what it had decided up to its last checkpoint can be read.
    """
    context.obj = (store_url, as_json)
    if context.invoked_subcommand is not None:
        return
    with Store.open(store_url, create=False) as store:
        found = chosen.ordered([record.to_json() for record in store.runs(limit)])
        place = str(store)
    respond(as_json, {"runs": found}, lambda: _listed(chosen, found, place))


@runs.command("rm", short_help="Remove runs.")
@click.argument("run_ids", metavar="ID...", type=int, nargs=-1, required=True, shell_complete=completion.runs)
@STORE
@YES
@click.option("--force", is_flag=True, help="Remove runs that are still being recorded, too.")
@JSON
@click.pass_obj
def remove(
    of_group: tuple[str | None, bool],
    run_ids: Sequence[int],
    store_url: str | None,
    yes: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Remove the runs ID… with all that they decided."""
    with Store.open(store_url or of_group[0], create=False) as store:
        records = [store.run(run_id) for run_id in dict.fromkeys(run_ids)]
        _remove(store, records, yes, force, as_json or of_group[1])


@runs.command(short_help="Keep the newest runs only.")
@click.option("--keep", type=click.IntRange(min=0), required=True, help="How many of the newest runs stay.")
@STORE
@YES
@JSON
@click.pass_obj
def prune(
    of_group: tuple[str | None, bool], keep: int, store_url: str | None, yes: bool, as_json: bool
) -> None:
    """Remove all but the newest runs; those that are still being recorded stay."""
    with Store.open(store_url or of_group[0], create=False) as store:
        old = [record for record in store.runs()[keep:] if record.state != "running"]
        _remove(store, old, yes, force=False, as_json=as_json or of_group[1])


def _remove(store: Store, records: Sequence[RunRecord], yes: bool, force: bool, as_json: bool) -> None:
    if not records and not as_json:
        click.echo("nothing to remove")
        return
    numbers = ", ".join(str(record.id) for record in records)
    decisions = sum(record.decisions for record in records)
    what = f"{counted(len(records), 'run')} ({numbers}) with {counted(decisions, 'decision')}"
    if records and not yes:
        click.confirm(f"Remove {what} from {printable(str(store))}?", abort=True, err=as_json)
    removed = [record.id for record in records]
    store.remove_runs(removed, force=force)
    respond(as_json, {"removed": removed, "decisions": decisions}, lambda: [f"removed {what}"], indent=None)


def _listed(chosen: Chosen, found: Sequence[Facts], place: str) -> Iterator[RenderableType]:
    yield from chosen.shown(
        found, empty=f"{printable(place)} holds no runs yet; `asactl replay LOG` makes some"
    )
    if not chosen.parts:
        for one in found:
            if one["failure"]:
                yield f"run {one['id']} {one['state']}: {printable(str(one['failure']))}"
