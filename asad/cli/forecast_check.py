"""How well starts are forecast, for `asactl doctor`: what lending gains and promises rests on that."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from asad.cluster.findings import Finding
from asad.errors import AsadError
from asad.replay.fidelity import CLOSE, CLOSE_S, UNLIKE, UNORDERED, Fidelity, compared
from asad.report import units
from asad.store import start_forecasts
from asad.store.store import Store

DAYS = 30
"""Of jobs that started within so many days."""
FEWEST = 30
"""Fewer jobs say nothing of the next ones."""
CHECK = "forecasts of starts"
REMEDY = "have users state time limits nearer to run times; until then gains of lending are as doubtful"
OF_SLURM = "let Slurm plan further (SchedulerParameters: bf_window, bf_max_job_test, bf_continue), and "


def forecast_figures(store_url: str) -> dict[str, Any] | None:
    """What came of the forecasts in a store, of first ones and of those of every hour after; None without a store."""
    with contextlib.suppress(AsadError), Store.open(store_url, create=False) as store:
        forecast_s, recorded_s, is_first = start_forecasts.load(store, time.time() - DAYS * 86_400.0)
        parts = {"first": is_first, "hourly": ~is_first}
        return {
            "days": DAYS,
            "jobs": int(np.count_nonzero(is_first)),
            **{
                name: _plain(compared("", recorded_s[rows], forecast_s[rows])) if rows.any() else None
                for name, rows in parts.items()
            },
        }
    return None


def forecast_finding(figures: Mapping[str, Any], slurm: bool) -> Finding:
    """A warning where means differ by more than a quarter, or ranks agree too little. `slurm`: it is what estimates."""
    jobs, first, hourly = figures["jobs"], figures["first"], figures["hourly"]
    if jobs < FEWEST:
        why = (
            f"too few have been seen to judge them: {units.plural(jobs, 'job')} of {FEWEST} started within "
            f"{figures['days']} days after waiting, with an estimate and without an offer"
        )
        return Finding(CHECK, "ok", _blanks(why))
    lines = [
        f"{units.plural(jobs, 'job')} within {figures['days']} days, when first seen to wait: {_words(first)}"
    ]
    if hourly is not None:
        lines.append(f"{units.plural(hourly['jobs'], 'forecast')} of every hour thereafter: {_words(hourly)}")
    bad = not first["alike"]
    if bad:
        lines.append(
            f"that is poor: means differ by more than {units.percent(UNLIKE)}, or the correlation is below {UNORDERED}"
        )
    remedy = (OF_SLURM if slurm else "") + REMEDY if bad else ""
    return Finding(CHECK, "warn" if bad else "ok", _blanks("\n".join(lines)), remedy)


def _plain(found: Fidelity) -> dict[str, Any]:
    """By the names of forecasts: nothing is simulated, and partitions are taken together."""
    names = {"simulated_mean_s": "forecast_mean_s", "simulated_median_s": "forecast_median_s"}
    return {names.get(key, key): value for key, value in found._asdict().items() if key != "partition"}


def _words(found: Mapping[str, Any]) -> str:
    close = f"{units.percent(found['close'])} within {units.duration(CLOSE_S)} or {units.percent(CLOSE)}"
    ranks = found["rank_correlation"]
    return (
        f"{units.duration(found['recorded_mean_s'])} were left on average (median "
        f"{units.duration(found['recorded_median_s'])}), and {units.duration(found['forecast_mean_s'])} were forecast "
        f"(median {units.duration(found['forecast_median_s'])}); {close}, rank correlation "
        f"{'not known' if ranks is None else units.number(ranks, 2)}"
    )


def _blanks(text: str) -> str:
    return text.replace(units.THIN, " ").replace(units.SPACE, " ").replace(units.MINUS, "-")
