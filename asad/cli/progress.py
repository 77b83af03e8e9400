"""`asactl progress`: a job says how far it is."""

from __future__ import annotations

import os

import click

from asad.bounded import printable
from asad.errors import ClusterError
from asad.node.progress_files import write_progress


@click.command(short_help="Say, inside a job, how far it is.")
@click.argument("done", metavar="DONE")
def progress(done: str) -> None:
    """Say how much of its work the job has DONE: `40/100`, `40%` or `0.4`.

    asad then knows how long the job still takes, instead of guessing from its CPU time. Where nobody listens, it
    says so and leaves with 0 all the same: a job must never fail for this.
    """
    try:
        write_progress(done, os.environ)
    except ClusterError as error:
        click.echo(f"asactl: {printable(str(error))}", err=True)
