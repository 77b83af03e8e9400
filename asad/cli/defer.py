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
@click.option(
    "--log", "path", type=click.Path(path_type=Path), metavar="FILE",
    help="Learn from FILE: trajectories (.npz), or an accounting log.",
)  # fmt: skip
@click.option(
    "--generate", "many", type=click.IntRange(8), metavar="N", help="Learn from N drawn trajectories."
)
@click.option(
    "--setting", default="recorded", show_default=True, metavar="NAME",
    help="From what they are drawn, as in asactl bench osdec.",
)  # fmt: skip
@click.option(
    "--deferrable", default="share=0.2,window=4h", show_default=True, metavar="WORDS",
    help="Of an accounting log: which share of the jobs is taken for deferrable, and by how much.",
)  # fmt: skip
@click.option(
    "--step", default="30m", show_default=True, metavar="TIME", help="Of an accounting log: one step."
)
@click.option(
    "--cores", type=click.IntRange(1), metavar="N",
    help="Of an accounting log: cores of the cluster [default: the most in use].",
)  # fmt: skip
@click.option(
    "--variant", default="osdec", show_default=True, metavar="NAME", help="The network and its recipe."
)
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=3, show_default=True, metavar="N", help="Train so many."
)
@click.option(
    "--processes", type=click.IntRange(1, 64), default=2, show_default=True, metavar="N", help="At a time."
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
    help="Change a number of the recipe; may be repeated.",
)
@click.option("--resume", is_flag=True, help="Go on where an interrupted training stopped.")
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
    data = _data(path, many, setting, deferrable, step, cores)
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


def _data(
    path: Path | None, many: int | None, setting: str, deferrable: str, step: str, cores: int | None
) -> Data:
    if (path is None) == (many is None):
        raise UsageError("asactl defer: learn from --log FILE or from --generate N; give one of them")
    if path is not None:
        return _from_file(path, deferrable, step, cores)
    assert many is not None
    return _drawn(many, setting)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be made ({error.strerror})") from error


def _drawn(many: int, setting: str) -> Data:
    from asad.cli.evaluation import chosen
    from asad.replay.defer_instances import SETTINGS, draw_trajectories
    from asad.rl.recipes import Data

    (name,) = chosen(setting, "--setting", tuple(SETTINGS))[:1]
    drawn = draw_trajectories(range(FIRST_SEED, FIRST_SEED + many), SETTINGS[name])
    return _split(drawn, float(SETTINGS[name].period), Data)


def _from_file(path: Path, deferrable: str, step: str, cores: int | None) -> Data:
    from asad.replay.defer_instances import Setting, read_trajectories
    from asad.rl.recipes import Data

    if path.suffix == ".npz":
        return _split(read_trajectories(path), float(Setting().period), Data)
    from asad.cli.replay import seconds
    from asad.replay.defer_logs import from_log, parse_deferrable
    from asad.replay.readers import read_log

    step_s = seconds(step, "--step")
    share, window_s = parse_deferrable(deferrable)
    trajectories, period = from_log(read_log(path).jobs, cores, step_s, share, window_s)
    return _split(trajectories, period, Data)


def _split(trajectories: Trajectories, period: float, made: type[Data]) -> Data:
    many = len(trajectories)
    if many < 4:
        raise UsageError(
            f"defer train: {many} trajectories are too few to learn from; give at least 4 (of a log: a longer one)"
        )
    kept = max(1, round(KEPT * many))
    return made(trajectories.take(range(many - kept)), trajectories.take(range(many - kept, many)), period)
