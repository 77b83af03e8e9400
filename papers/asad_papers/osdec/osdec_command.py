"""`asactl bench osdec`: the evaluation of the OSDEC paper, run anew."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from asad.cli.output import require_folder
from asad.errors import UsageError
from asad_papers.harness import JSON, PAGE, Doing, chosen, present, titled

PARTS = ("instances", "offline", "real-time", "settings", "speed")


@click.command("osdec", short_help="Deferral: OSDEC, its baselines and the offline optimum.")
@click.option(
    "--instances", "path", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the trajectories of FILE (.npz), not drawn ones.",
)  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(1), default=50, show_default=True, metavar="N",
    help="Drawn trajectories, with the seeds 1000 and on.",
)  # fmt: skip
@click.option("--policy", "policies", default=None, metavar="NAME,…", help="Policies [default: all].")
@click.option("--part", "parts", default=None, metavar="NAME,…", help="Parts [default: all five].")
@click.option(
    "--offline", "many", type=click.IntRange(1), default=6, show_default=True, metavar="N",
    help="Trajectories that are also solved offline.",
)  # fmt: skip
@click.option(
    "--time-limit", "time_limit_s", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
    metavar="S", help="Seconds for each of these.",
)  # fmt: skip
@click.option(
    "--delay", type=click.FloatRange(0), default=0.3, show_default=True, metavar="ω1",
    help="What a step of delay costs.",
)  # fmt: skip
@click.option(
    "--violation", type=click.FloatRange(0), default=1.0, show_default=True, metavar="ω2",
    help="What a core above the capacity costs, a step.",
)  # fmt: skip
@click.option(
    "--as-printed", is_flag=True,
    help="A job holds its cores for d + 1 steps, as the paper's sum is printed, instead of d.",
)  # fmt: skip
@JSON
@PAGE
def osdec(
    path: Path | None,
    seeds: int,
    policies: str | None,
    parts: str | None,
    many: int,
    time_limit_s: float,
    delay: float,
    violation: float,
    as_printed: bool,
    as_json: bool,
    page: Path | None,
) -> None:
    """When deferrable jobs start: all policies, with prefix and with skip-fit packing.

    Parts: instances (Table 1), offline (the clairvoyant optimum), real-time (Table 2: the same work without windows),
    settings (Table 4: other cores and durations) and speed. What the paper leaves open, and how it was filled, stands
    in docs/explanation/osdec.md.
    """
    from asad.defer.jobs import Worth
    from asad_papers.osdec import deferral_figures as defer_bench
    from asad_papers.osdec.deferral_instances import draw_trajectories, read_trajectories

    rows = defer_bench.entrants(
        None if policies is None else chosen(policies, "--policy", defer_bench.known())
    )
    wanted = PARTS if parts is None else chosen(parts, "--part", PARTS)
    require_folder(page)
    worth, span = Worth(delay, violation), int(as_printed)
    if path is not None:
        trajectories = read_trajectories(path)
    else:
        first = defer_bench.FIRST_SEED
        trajectories = draw_trajectories(range(first, first + seeds))
    if not len(trajectories.cores):
        raise UsageError(f"{path}: holds no jobs; there is nothing to compare")
    document: dict[str, Any] = {}
    with Doing(sys.stderr.isatty()) as step:
        step("compiling")
        defer_bench.warm_up(rows)
        if "instances" in wanted:
            document |= defer_bench.compare(trajectories, rows, worth, span, step)
        if "offline" in wanted:
            document["offline"] = defer_bench.offline(
                trajectories, rows, worth, span, many, time_limit_s, step
            )
        if "real-time" in wanted:
            document["real_time"] = defer_bench.compare(trajectories.real_time(), rows, worth, span, step)
        if "settings" in wanted:
            document["settings"] = defer_bench.settings(rows, worth, span, seeds, step)
        if "speed" in wanted:
            step("speed")
            document |= defer_bench.speed(rows)
    document["about"] = {
        "name": path.stem if path is not None else f"drawn, seeds 1000 to {999 + seeds}",
        "trajectories": len(trajectories),
        "steps": trajectories.steps,
        "jobs": len(trajectories.cores),
        "omega_1": worth.delay,
        "omega_2": worth.violation,
        "as_printed": as_printed,
    }
    document["paper"] = {name: dict(row) for name, row in defer_bench.PAPER.items()}

    def html() -> str:
        from asad_papers.osdec import deferral_page as report

        words = ["asactl", "bench", "osdec"]
        words += ["--instances", str(path)] if path is not None else ["--seeds", str(seeds)]
        words += ["--policy", policies] if policies else []
        words += ["--part", parts] if parts else []
        words += ["--delay", f"{delay:g}"] if delay != 0.3 else []
        words += ["--violation", f"{violation:g}"] if violation != 1.0 else []
        words += ["--as-printed"] if as_printed else []
        return report.page(document, shlex.join(words))

    present(document, as_json, page, html, _print)


def _print(document: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from asad.report.units import plain

    console = Console()
    table = partial(titled, console)
    about = document["about"]
    console.print(
        f"[bold]{escape(plain(about['name'], 60))}[/]: {about['trajectories']} trajectories of {about['steps']} steps, "
        f"{about['jobs']} jobs; ω1 = {about['omega_1']:g}, ω2 = {about['omega_2']:g}"
        + (", d + 1 steps" if about["as_printed"] else ""),
        soft_wrap=True,
    )
    for key, words in (("prefix", "Prefix packing"), ("skip_fit", "Skip-fit packing")):
        if key not in document:
            continue
        rows = document[key]
        base = rows.get("fifo", {}).get("total_mean")
        shown = table(
            f"{words} (Table 1)", "policy", "total", "over fifo", "±seeds", "utilization", "delay", "violation", "used",
        )  # fmt: skip
        for name, row in rows.items():
            shown.add_row(
                name,
                f"{row['total_mean']:,.1f}",
                f"{row['total_mean'] / base - 1:+.2%}" if base else "",
                f"{row['seeds_std']:.1f}" if row["seeds_std"] is not None else "",
                f"{row['utilization']:,.1f}",
                f"{row['delay']:,.1f}",
                f"{row['violation']:,.1f}",
                f"{row['capacity_used']:.1%}",
            )
        console.print(shown)
    if "offline" in document:
        found = document["offline"]
        shown = table(
            f"The clairvoyant optimum of {found['trajectories']} trajectories",
            "", "prefix", "skip-fit", "of the bound",
        )  # fmt: skip
        for name, share in found["reached"].items():
            cells = (f"{found['policies'][packing][name]:,.1f}" for packing in ("prefix", "skip_fit"))
            shown.add_row(name, *cells, "" if share is None else f"{share:.1%}")
        console.print(shown)
        console.print(
            f"Optimum {found['total_mean']:,.1f}, at most {found['bound_mean']:,.1f} (gap {found['gap_max']:.2%}); "
            f"where no decision exceeds the capacity {found['packed_total_mean']:,.1f}, at most "
            f"{found['packed_bound_mean']:,.1f} (gap {found['packed_gap_max']:.2%}).",
            soft_wrap=True,
        )
    if "real_time" in document:
        shown = table(
            "Deferrable against real-time, skip-fit (Table 2): utilization",
            "policy", "deferrable", "real-time", "gain", "paper",
        )  # fmt: skip
        for name, row in document["real_time"]["skip_fit"].items():
            with_windows = document.get("skip_fit", {}).get(name, {}).get("utilization")
            shown.add_row(
                name,
                "" if with_windows is None else f"{with_windows:,.1f}",
                f"{row['utilization']:,.1f}",
                "" if with_windows is None else f"{with_windows / row['utilization'] - 1:+.1%}",
                _paper_gain(document["paper"].get(name)),
            )
        console.print(shown)
    if "settings" in document:
        rows = document["settings"]
        shown = table("Other cores and durations (Table 4), skip-fit: total", "policy", *rows)
        for name in next(iter(rows.values())):
            shown.add_row(name, *(f"{row[name]:,.0f}" for row in rows.values()))
        console.print(shown)
    if "steps_per_s" in document:
        each = ", ".join(f"{name} {ms:.2f}" for name, ms in document["decide_ms_each"].items())
        console.print(
            f"\nEnvironment: {document['steps_per_s']:,.0f} steps/s of a heuristic, "
            f"{document['steps_per_s_stepped']:,.0f} stepped from outside. One decision with 200 jobs (ms): {each}.",
            soft_wrap=True,
        )


def _paper_gain(printed: Mapping[str, float] | None) -> str:
    if not printed or "deferrable" not in printed:
        return ""
    return f"{printed['deferrable'] / printed['real_time'] - 1:+.1%}"
