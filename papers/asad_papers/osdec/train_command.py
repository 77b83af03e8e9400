"""`asactl defer train`: train a network that scores deferrable jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from asad.cli.output import schema_name
from asad.errors import AsadError, UsageError
from asad_papers.harness import chosen
from asad_papers.osdec.trajectories import make_folder, of_trajectories, split, trajectories

FIRST_SEED = 100_000
"""Of generated trajectories: far from those that `asactl bench osdec` draws."""


@click.command(short_help="Train a network.")
@of_trajectories
@click.option(
    "--variant", default="osdec", show_default=True, metavar="NAME,…",
    help="Networks and their recipes, or all: one after the other.",
)  # fmt: skip
@click.option(
    "--steps", type=click.IntRange(1), metavar="N",
    help="Let each learn from N steps of trajectories in all, whatever its recipe takes.",
)  # fmt: skip
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
    steps: int | None,
    seeds: int,
    processes: int,
    minutes: float | None,
    options: tuple[str, ...],
    resume: bool,
    folder: Path,
    as_json: bool,
) -> None:
    """Train a network that scores deferrable jobs; needs the extra `rl` of asad-hpc-papers, serving does not.

    Of the trajectories a fifth is kept aside: it decides what is best, and when to stop. Each seed gives
    DIR/VARIANT-sSEED.json and .npz, for `model` under [defer.osdec].

    \b
    Examples:
      asactl defer train --generate 512
      asactl defer train --log trajectories.npz --variant ppo-att --out try
      asactl defer train --generate 640 --variant all --steps 1000000 --seeds 1
      asactl defer train --log sacct.txt --cores 1024 \\
        --deferrable share=0.3,window=6h
    """
    _need_torch()
    from asad_papers.osdec.rl.recipes import VARIANTS, Data, changed, with_steps

    names = tuple(VARIANTS) if variant == "all" else chosen(variant, "--variant", tuple(VARIANTS))
    recipes = {name: changed(VARIANTS[name], _assignments(options)) for name in names}
    found, period = trajectories(FIRST_SEED, path, many, setting, deferrable, step, cores)
    data = Data(*split(found, "train", 4), period)
    if steps is not None:
        recipes = {name: with_steps(recipe, data, steps) for name, recipe in recipes.items()}
    make_folder(folder)
    from asad_papers.osdec.rl.seeds import train_seeds

    trained = []
    for name, recipe in recipes.items():
        rows = train_seeds(
            recipe, data, name, range(1, seeds + 1), folder, resume=resume, minutes=minutes, processes=processes,
            show=sys.stderr.isatty(),
        )  # fmt: skip
        trained += rows
        if not as_json:
            for row in rows:
                click.echo(_sentence(row))
    if as_json:
        click.echo(
            json.dumps(
                {"schema": schema_name("defer train"), "variant": variant, "models": trained}, indent=1
            )
        )
        return
    if len(names) == 1:
        best = max(trained, key=lambda row: row["figures"]["best"])
        click.echo(f'The best: {best["model"]}. In asad.toml: [defer.osdec] model = "{best["model"]}"')
    else:
        click.echo(f"Hold them against each other: asactl bench osdec --part trained --models {folder}")


def _sentence(row: Mapping[str, Any]) -> str:
    figures = row["figures"]
    return (
        f"{row['model']}: {figures['best']:,.1f} on what was kept aside, "
        f"{figures['gain']:+,.1f} ± {figures['gain_error']:.1f} since the warm start, of which PPO's last state added "
        f"{figures['ppo_last_gain']:+,.1f} ± {figures['ppo_last_gain_error']:.1f}; {row['steps']:,} steps, "
        f"{row['minutes']:.1f} min ({row['cpu_minutes']:.1f} of CPU)"
    )


def _need_torch() -> None:
    try:
        import stable_baselines3  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise AsadError(
            f"defer train: {error.name} is missing; install the extra: pip install "
            "'/path/to/asad/papers[rl]', with the path of a checkout of asad (serving a trained network needs no more)"
        ) from error


def _assignments(options: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text[:60]}: write KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
