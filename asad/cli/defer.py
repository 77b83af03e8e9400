"""`asactl defer`: train the policies of deferral that learn, and look at what was trained."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asad.cli.defer_fit import fit
from asad.cli.deferral import status
from asad.cli.trajectories import of_trajectories, trajectories
from asad.errors import AsadError, UsageError

if TYPE_CHECKING:
    from asad.defer.jobs import Trajectories
    from asad.rl.recipes import Data

KEPT = 0.2
"""Part of the trajectories of a file that is not trained on, and decides what is best."""
FIRST_SEED = 100_000
"""Of generated trajectories: far from those that `asactl bench osdec` draws."""


@click.group()
def defer() -> None:
    """Train the policies that decide when deferrable jobs start, look at what was trained, and at who waits."""


defer.add_command(status)
defer.add_command(fit)


@defer.command(short_help="Train a network.")
@of_trajectories
@click.option(
    "--variant", default="osdec", show_default=True, metavar="NAME", help="The network and its recipe."
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    metavar="N",
    help="Train so many networks.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    metavar="N",
    help="So many at a time, each on one core.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="M",
    help="Begin nothing new after M minutes a seed.",
)
@click.option(
    "--set",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a number of the recipe (iterations, rate and the like); may be repeated, "
    "and a wrong name lists them all.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on from the last checkpoint; the result is the same, byte for byte, as "
    "without the interruption.",
)
@click.option(
    "--out", "folder", type=click.Path(path_type=Path), default=Path("osdec"), show_default=True, metavar="DIR",
    help="Models, checkpoints and logs for TensorBoard go there.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def train(
    path: Path | None,
    many: int | None,
    setting: str,
    deferrable: str,
    step: str,
    cores: int | None,
    variant: str,
    seeds: int,
    processes: int,
    minutes: float | None,
    options: tuple[str, ...],
    resume: bool,
    folder: Path,
    as_json: bool,
) -> None:
    """Train a network that scores deferrable jobs; needs the extra asad[rl], serving does not.

    Of the trajectories a fifth is kept aside: it decides what is best, and when to stop. Each seed gives
    DIR/VARIANT-sSEED.json and .npz, for `model` under [defer.osdec].

    \b
    Examples:
      asactl defer train --generate 512
      asactl defer train --log trajectories.npz --variant ppo-att --seeds 1 --out try
      asactl defer train --log sacct.txt --deferrable share=0.3,window=6h --cores 1024
    """
    from asad.cli.evaluation import chosen

    _need_torch()
    from asad.rl.recipes import VARIANTS, changed

    (name,) = chosen(variant, "--variant", tuple(VARIANTS))[:1]
    recipe = changed(VARIANTS[name], _assignments(options))
    data = _split(*trajectories(FIRST_SEED, path, many, setting, deferrable, step, cores))
    _make(folder)
    from asad.rl.seeds import train_seeds

    found = train_seeds(
        recipe, data, name, range(1, seeds + 1), folder, resume=resume, minutes=minutes, processes=processes,
        show=sys.stderr.isatty(),
    )  # fmt: skip
    if as_json:
        click.echo(json.dumps({"variant": name, "models": found}, indent=1))
        return
    for row in found:
        figures = row["figures"]
        click.echo(
            f"{row['model']}: {figures['best']:,.1f} on what was kept aside, in {row['minutes']:.1f} min"
        )
    best = max(found, key=lambda row: row["figures"]["best"])
    click.echo(f'The best: {best["model"]}. In asad.toml: [defer.osdec] model = "{best["model"]}"')


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
        told = ", ".join(
            f"{plain(str(key), 20)} {value:,.1f}" for key, value in figures.items() if _is_number(value)
        )
        click.echo(f"reached: {told}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _need_torch() -> None:
    try:
        import stable_baselines3  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise AsadError(
            f"defer train: {error.name} is missing; install the extra: pip install 'asad[rl]' "
            "(serving a trained network needs nothing more)"
        ) from error


def _assignments(options: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text[:60]}: write KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be made ({error.strerror})") from error


def _split(found: Trajectories, period: float) -> Data:
    from asad.rl.recipes import Data

    many = len(found)
    if many < 4:
        raise UsageError(
            f"defer train: {many} trajectories are too few to learn from; give at least 4 (of a log: a longer one)"
        )
    kept = max(1, round(KEPT * many))
    return Data(found.take(range(many - kept)), found.take(range(many - kept, many)), period)
