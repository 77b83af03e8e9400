"""`asactl defer`: deferrable jobs, and the networks that decide when they start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from asad.cli.deferral import status
from asad.cli.papers import WithPapers

PAPERS = {
    "fit": "Tune linear, and fit what lookahead and rollout expect.",
    "train": "Train a network.",
}


@click.group(cls=WithPapers, papers=PAPERS)
def defer() -> None:
    """Train the policies that decide when deferrable jobs start, look at what was trained, and at who waits."""


defer.add_command(status)


@defer.command(short_help="What a trained network is, and how it was trained.")
@click.argument("model", default="")
@click.option("--json", "as_json", is_flag=True, help="Print its description as JSON.")
def show(model: str, as_json: bool) -> None:
    """Describe MODEL, the name of one that ships with asad or the path of a .json; without it, list those that ship."""
    from asad.defer.network import described
    from asad.defer.osdec import load, shipped
    from asad.report.units import plain

    if not model and as_json:
        click.echo(json.dumps(shipped(), indent=1))
        return
    if not model:
        for variant, seeds in shipped().items():
            click.echo(f"{variant}: {', '.join(one['model'] for one in seeds)}")
        return
    found = load(model)
    table = described(found)
    if as_json:
        click.echo(json.dumps(table, indent=1))
        return
    shape = found.shape
    many = sum(array.size for array in found.arrays.values())
    click.echo(f"{plain(found.name)}: {shape.network}, {many} weights")
    click.echo(f"rows: {', '.join(shape.job_columns)}" + (", and running jobs" if shape.running else ""))
    click.echo(f"cluster: {', '.join(shape.cluster_columns)}")
    click.echo(f"auxiliary information: {shape.information}")
    click.echo(
        f"scale {found.scale_cores:g} cores, a day of {found.period_steps:g} steps, {found.packing} packing, "
        + ("holds back what scores 0 or less" if found.hold else "starts whatever fits")
        + (", starts the set that gains most together" if found.spread else "")
    )
    figures = found.recipe.get("figures")
    if isinstance(figures, Mapping):
        reported = ", ".join(
            f"{plain(str(key), 20)} {value:,.1f}" for key, value in figures.items() if _is_number(value)
        )
        click.echo(f"reached: {reported}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
