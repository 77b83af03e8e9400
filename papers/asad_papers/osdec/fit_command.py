"""`asactl defer fit`: what the policies of deferral without a network learn."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from asad.cli.output import schema_name
from asad.errors import UsageError
from asad_papers.osdec.trajectories import of_trajectories, split, trajectories

FIRST_SEED = 200_000
"""Of generated trajectories: far from those that `asactl bench osdec` draws."""


@click.command(short_help="Tune linear, and fit what lookahead and rollout expect.")
@of_trajectories
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the search."
)
@click.option(
    "--out", "folder", type=click.Path(path_type=Path), default=Path("deferral"), show_default=True, metavar="DIR",
    help="linear.toml, expected.toml and sample.toml go there.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def fit(
    path: Path | None,
    many: int | None,
    setting: str,
    deferrable: str,
    step: str,
    cores: int | None,
    seed: int,
    folder: Path,
    as_json: bool,
) -> None:
    """Tune the weights of linear, and fit the daily course and the usual jobs that lookahead and rollout
    expect.

    It takes about ten seconds, and no extra. A fifth of the trajectories is kept aside, and measured on.

    \b
    Examples:
      asactl defer fit --log sacct.txt --cores 1024 \\
        --deferrable share=0.3,window=6h
      asactl defer fit --generate 64 --out /etc/asad/defer
    """
    import numpy as np

    from asad.defer.deferral_options import PACKINGS
    from asad.defer.jobs import Worth
    from asad.defer.scorers import make_scorer
    from asad_papers.harness import Doing
    from asad_papers.osdec import deferral_fitting as fitting
    from asad_papers.osdec.environment import play, play_weights
    from asad_papers.osdec.tuning import tune, written_weights

    found, steps = trajectories(FIRST_SEED, path, many, setting, deferrable, step, cores)
    period = int(steps)
    learned, kept = split(found, "fit", 5)
    if not len(found.cores):
        raise UsageError("defer fit: there are no deferrable jobs to learn from; see --deferrable")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Doing(sys.stderr.isatty()) as doing:
            doing("fitting what is to be expected")
            usual = fitting.fit(learned, period)
            (folder / "expected.toml").write_text(fitting.written_expected(usual), encoding="utf-8")
            sample = fitting.fit_sample(learned, usual, seed)
            (folder / "sample.toml").write_text(
                fitting.written_sample(sample, "By asactl defer fit."), encoding="utf-8"
            )
            weights = {}
            for packing in PACKINGS:
                doing(f"tuning linear for {packing} packing")
                weights[packing] = tune(learned, np.random.default_rng(seed), packing)
            about = {"method": "cross-entropy, asactl defer fit", "trajectories": len(learned), "seed": seed}
            (folder / "linear.toml").write_text(written_weights(weights, about), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot be written ({error.strerror})") from error
    files = {key: str((folder / f"{key}.toml").absolute()) for key in ("expected", "sample")}
    figures: dict[str, dict[str, float]] = {}
    for packing in PACKINGS:
        row = {name: play(kept, make_scorer(name), packing).gains for name in ("fifo", "edf")}
        row["linear"] = play_weights(kept, weights[packing], packing)
        row["lookahead"] = play(
            kept, make_scorer("lookahead", {"expected": files["expected"]}), packing
        ).gains
        row["rollout"] = play(kept, make_scorer("rollout", files), packing).gains
        figures[packing.replace("-", "_")] = {
            name: float(gains.total(Worth()).mean()) for name, gains in row.items()
        }
    if as_json:
        click.echo(
            json.dumps(
                {"schema": schema_name("defer fit"), "kept": len(kept), "total_mean": figures}, indent=1
            )
        )
        return
    for key, totals in figures.items():
        text = ", ".join(f"{name} {value:,.1f}" for name, value in totals.items())
        click.echo(f"{key.replace('_', '-')}, on {len(kept)} trajectories kept aside: {text}")
    click.echo(f"Written to {folder}: linear.toml, expected.toml, sample.toml. In asad.toml:")
    click.echo('[defer.linear] weights = "…/linear.toml"')
    click.echo(f'[defer.lookahead] expected = "…/expected.toml", period = {period}')
    click.echo(f'[defer.rollout] expected = "…/expected.toml", sample = "…/sample.toml", period = {period}')
