"""`asactl defer`: deferrable jobs, and the networks that decide when they start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from asad.cli import completion
from asad.cli.deferral import status
from asad.cli.papers import WithPapers
from asad.cli.screen import JSON, respond
from asad.report.units import plain

if TYPE_CHECKING:
    from asad.defer.network import Model

PAPERS = {
    "fit": "Tune linear, and fit what lookahead and rollout expect.",
    "train": "Train a network.",
}


@click.group(cls=WithPapers, papers=PAPERS)
def defer() -> None:
    """Train the policies that decide when deferrable jobs start, look at what was trained, and at who waits."""


defer.add_command(status)


@defer.command(short_help="What a trained network is, and how it was trained.")
@click.argument("model", default="", shell_complete=completion.or_file(completion.networks))
@JSON
def show(model: str, as_json: bool) -> None:
    """Describe MODEL, the name of one that ships with asad or the path of a .json; without it, list those that ship."""
    from asad.defer.network import described
    from asad.defer.osdec import load, shipped

    if not model:
        there = shipped()
        lines = [f"{variant}: {', '.join(one['model'] for one in seeds)}" for variant, seeds in there.items()]
        respond(as_json, {"networks": there}, lambda: lines, indent=1)
        return
    found = load(model)
    respond(as_json, lambda: {"model": described(found)}, lambda: _lines(found), indent=1)


def _lines(found: Model) -> Iterator[str]:
    """What a network is, a line each."""
    shape = found.shape
    many = sum(array.size for array in found.arrays.values())
    yield f"{plain(found.name)}: {shape.network}, {many} weights"
    yield f"rows: {', '.join(shape.job_columns)}" + (", and running jobs" if shape.running else "")
    yield f"cluster: {', '.join(shape.cluster_columns)}"
    yield f"auxiliary information: {shape.information}"
    yield (
        f"scale {found.scale_cores:g} cores, a day of {found.period_steps:g} steps, {found.packing} packing, "
        + ("holds back what scores 0 or less" if found.hold else "starts whatever fits")
        + (", starts the set that gains most together" if found.spread else "")
    )
    figures = found.recipe.get("figures")
    if isinstance(figures, Mapping):
        reported = ", ".join(
            f"{plain(str(key), 20)} {value:,.1f}"
            for key, value in figures.items()
            if _is_number(value) and "gain" not in str(key)
        )
        yield f"reached: {reported}"
        yield from _gains(found.recipe, figures)


def _gains(recipe: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[str]:
    """What training added to the teacher's warm start, and what PPO or REINFORCE added to what they began with."""
    learner = plain(str(recipe.get("algorithm", "ppo")), 20)
    for words, after, before, error in (
        ("training added to the warm start by a teacher", "best", "start", "gain_error"),
        (f"of this {learner} added to what it began with", "best", "improved", "ppo_gain_error"),
    ):
        if _is_number(figures.get(after)) and _is_number(figures.get(before)):
            chance = f" ± {figures[error]:.1f}" if _is_number(figures.get(error)) else ", chance not measured"
            yield f"{words}: {figures[after] - figures[before]:+,.1f}{chance}"
    last, chance_of_it = figures.get("ppo_last_gain"), figures.get("ppo_last_gain_error")
    if _is_number(last) and _is_number(chance_of_it):
        yield f"where {learner} ended, whichever state is kept: {last:+,.1f} ± {chance_of_it:.1f}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
