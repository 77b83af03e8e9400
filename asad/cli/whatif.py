"""`asactl whatif`: what would another configuration have done to the same recorded cluster?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asad.bounded import printable
from asad.cli.listing import Listing
from asad.cli.replay import replay, replayed
from asad.cli.screen import JSON, cells, respond, table_of
from asad.config import Config, load
from asad.errors import UsageError
from asad.model import Json

if TYPE_CHECKING:
    from asad.replay.results import ReplayResult
    from asad.report.measures import Measure

NOT_ASKED = {
    *(
        "policy",
        "config_file",
        "store",
        "report",
        "vary_demand",
        "experts",
        "contention",
        "poll",
        "no_lending",
    ),
    *("log", "as_json", "full"),
}
"""Options of a replay that the configurations decide, or that are of one replay alone."""
NAMES = ("A", "B")
FIRST = ("What users see", "Who pays", "What the machine does")
"""Groups of figures of which it matters which way they go, in the order in which they are read."""


@click.command(
    short_help="Hold two configurations against each other on an accounting log.",
    params=[parameter for parameter in replay.params if parameter.name not in NOT_ASKED],
)
@click.argument("log", type=click.Path(dir_okay=False, allow_dash=False))
@click.option(
    "--config",
    "files",
    multiple=True,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An asad.toml; to be given twice: what is, and what might be.",
)
@JSON
def whatif(log: str, files: tuple[Path, ...], as_json: bool, **given: Any) -> None:
    """Replay LOG under two configurations, all stages of each together and under its guard, and show what differs:
    first the settings, then the figures, those that users feel before all others.

    LOG and its options are those of asactl replay. Nothing is kept in a store.

    \b
    Example:
      asactl whatif log.txt --config /etc/asad/asad.toml --config asad-new.toml
    """
    if len(files) != 2:
        raise UsageError(f"{len(files)} configurations; give --config twice")
    configs = [load(file) for file in files]
    results = [replayed(log, config_file=file, store="none", vary_demand=False, **given) for file in files]
    changed = changed_settings(*configs)
    rows = compared(*results)
    document = {
        "log": results[0].log,
        "machine": results[0].machine,
        "configurations": {name: str(file) for name, file in zip(NAMES, files, strict=True)},
        "settings": [{"setting": key, "A": one, "B": other} for key, one, other in changed],
        "figures": [
            {"figure": measure.key, "slurm": alone, "A": one, "B": other, "better": verdict}
            for measure, alone, one, other, verdict in rows
        ],
    }
    respond(as_json, document, lambda: _shown(files, changed, rows), indent=1)


def changed_settings(one: Config, other: Config) -> list[tuple[str, Json, Json]]:
    """(`[table] key`, its value in the one, in the other) of the settings that differ; None of what is not there."""
    plain = [_flat(config.to_json()) for config in (one, other)]
    keys = dict.fromkeys([*plain[0], *plain[1]])
    return [
        (key, plain[0].get(key), plain[1].get(key)) for key in keys if plain[0].get(key) != plain[1].get(key)
    ]


def _flat(table: dict[str, Any], name: str = "") -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{name}.{key}" if name else key)
        else:
            found[f"[{name}] {key}"] = value
    return found


Row = tuple["Measure", float | None, float | None, float | None, str]
"""Figure; its value under Slurm alone, under A and under B; which of these two is better, if either is."""


def compared(one: ReplayResult, other: ReplayResult) -> list[Row]:
    """The figures that differ: what users see, who pays, what the machine does, then the others; in each group the
    greatest difference first, as a part of the figure under Slurm alone."""
    from asad.replay.policies import CONFIGURED
    from asad.report.measures import BASELINE, GROUPS

    ranked = []
    for group, measures in GROUPS:
        rank = FIRST.index(group) if group in FIRST else len(FIRST)
        for measure in measures:
            alone = one.policies[BASELINE].metrics.get(measure.key)
            a, b = (result.policies[CONFIGURED].metrics.get(measure.key) for result in (one, other))
            if a == b or measure.key == "wall_s":
                continue
            scale = abs(alone or 0.0) or max(abs(a or 0.0), abs(b or 0.0), 1e-9)
            size = abs((b or 0.0) - (a or 0.0)) / scale
            better = (
                "" if a is None or b is None or not measure.better else NAMES[(b > a) == (measure.better > 0)]
            )
            ranked.append(((rank, not measure.better, -size), (measure, alone, a, b, better)))
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0])]


def _shown(
    files: tuple[Path, ...], changed: list[tuple[str, Json, Json]], rows: list[Row]
) -> Iterator[str | Listing]:
    """Settings that differ, and the figures side by side."""
    from asad.report import units
    from asad.report.measures import row_unit

    for name, file in zip(NAMES, files, strict=True):
        yield f"{name}: {printable(str(file))}"
    yield ""
    if not changed:
        yield "Their settings are the same."
    for key, one, other in changed:
        yield printable(f"{key}: {_value(one)} in A, {_value(other)} in B")
    yield ""
    if not rows:
        yield "No figure differs."
        return
    table = table_of("", "slurm>", "A>", "B>", "B against A>", "better")
    for measure, alone, one, other, better in rows:
        symbol, factor, decimals = row_unit(measure, [alone, one, other])
        values = [
            units.number(None if value is None else value / factor, decimals) for value in (alone, one, other)
        ]
        change = (other - one) / abs(one) if one and other is not None else None
        against = "" if change is None else f"{change:+.1%}" if abs(change) < 10 else f"×{1 + change:.3g}"
        label = f"{measure.label} ({symbol})" if symbol else measure.label
        table.add_row(*cells(label, *values, against, better))
    yield table


def _value(value: Json) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)
