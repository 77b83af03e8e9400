"""`asactl bench oga`: the evaluation of the OgaSched paper, run anew."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asad.cli.output import require_folder
from asad_papers.harness import JSON, PAGE, Doing, chosen, present, titled

if TYPE_CHECKING:
    from rich.table import Table

SWEEPS = (
    "horizon", "arrivals", "density", "nodes", "ports", "contention", "utilities", "eta", "decay",
)  # fmt: skip
PARTS = ("instance", "seeds", *SWEEPS, "several", "gangs", "large", "growth")


@click.command("oga", short_help="Placement: OgaSched, its baselines and its sweeps.")
@click.option(
    "--instance", "path", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the instance of FILE (.npz), not a drawn one.",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N",
    help="Of the drawn instance; the first of those of part seeds is N + 1.",
)  # fmt: skip
@click.option(
    "--eta", type=click.FloatRange(0, min_open=True), default=None, metavar="η",
    help="η_0 of the strict mode [default: the instance's].",
)  # fmt: skip
@click.option(
    "--reciprocal-scale", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True,
    metavar="S", help="Reciprocal utilities are 1/(Sα) − 1/(y + Sα); the paper prints 1.",
)  # fmt: skip
@click.option(
    "--part", "parts", default="instance", show_default=True, metavar="NAME,…", help="Parts, or all."
)
@click.option(
    "--repeat", type=click.IntRange(1), default=3, show_default=True, metavar="N",
    help="Runs for each speed; the fastest counts.",
)  # fmt: skip
@JSON
@PAGE
def oga(
    path: Path | None,
    seed: int,
    eta: float | None,
    reciprocal_scale: float,
    parts: str,
    repeat: int,
    as_json: bool,
    page: Path | None,
) -> None:
    """OgaSched in three modes beside Fairness, DRF, BinPacking and Spreading, with the paper's figures.

    Parts: instance; seeds (ten fresh instances); horizon, arrivals, density (Table III); nodes, ports, contention
    (Figures 3 and 6); eta, decay (4); large (5); utilities (7); several (§3.4); gangs (§3.5); growth (of the time of a
    slot). What the paper leaves open, and how it was filled, stands in docs/explanation/oga.md.
    """
    from asad_papers.oga import port_figures as ports_bench
    from asad_papers.oga.port_instances import draw_port_instance, read_port_instance

    wanted = chosen(parts, "--part", (*PARTS, "all"))
    if "all" in wanted:
        wanted = PARTS
    require_folder(page)
    instance = draw_port_instance(seed) if path is None else read_port_instance(path, reciprocal_scale)
    document: dict[str, Any] = {}
    with Doing(sys.stderr.isatty()) as step:
        step("compiling")
        ports_bench.warm_up()
        if "instance" in wanted:
            document |= ports_bench.compare(instance, eta, step, repeat)
        if "seeds" in wanted:
            document["seeds"] = ports_bench.seeds(range(seed + 1, seed + 11), step=step)
        swept = [name for name in SWEEPS if name in wanted]
        if swept:
            document["sweep"] = [row for name in swept for row in ports_bench.sweep(name, step)]
        if "several" in wanted:
            document["several"] = ports_bench.several(step=step)
        if "gangs" in wanted:
            document["gangs"] = ports_bench.gangs(step=step)
        if "large" in wanted:
            document["large"] = ports_bench.large(step, repeat)
        if "growth" in wanted:
            document["growth"] = ports_bench.growth(step)

    def html() -> str:
        from asad_papers.oga import port_page as report

        words = ["asactl", "bench", "oga"]
        words += ["--instance", str(path)] if path is not None else ["--seed", str(seed)]
        words += ["--eta", f"{eta:g}"] if eta is not None else []
        words += ["--reciprocal-scale", f"{reciprocal_scale:g}"] if reciprocal_scale != 3.0 else []
        words += ["--part", parts] if parts != "instance" else []
        return report.page(document, shlex.join(words))

    present(document, as_json, page, html, _print)


def _print(document: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from asad.report.units import plain

    console = Console()
    table = partial(titled, console)

    def policies(rows: Mapping[str, Any]) -> Table:
        made = table("Policies", "policy", "reward a slot", "slots/s", "violations")
        for name, row in rows.items():
            made.add_row(
                name, f"{row['reward_mean']:,.2f}", f"{row['slots_per_s']:,.0f}", str(row["violations"])
            )
        return made

    def gains(row: Mapping[str, float | None]) -> list[str]:
        found = (row[name] for name in ("oga-strict", "oga-reclaim"))
        return ["" if one is None else f"{one:+.1%}" for one in found]

    if "policies" in document:
        facts = document["instance"]
        console.print(
            f"[bold]{escape(plain(facts['name'], 60))}[/]: {facts['ports']} ports, {facts['instances']} instances, "
            f"{facts['edges']} edges, {facts['slots']} slots",
            soft_wrap=True,
        )
        console.print(policies(document["policies"]))
        share = document["strict_of_best_fixed"]
        console.print(
            f"Best fixed allocation {document['best_fixed']:,.4f} (proven to "
            f"{document['best_fixed_bound'] - document['best_fixed']:.1g}); strict falls short of it by "
            f"{document['regret_per_slot']:,.2f} a slot"
            + ("" if share is None else f" and reaches {share:.1%}")
            + f". Bound (41): {document['regret_bound_per_slot']:,.0f} a slot.",
            soft_wrap=True,
        )
        for size, row in document["others_slots_per_s"].items():
            text = ", ".join(f"{who} {speed:g}" for who, speed in row.items())
            console.print(f"Slots/s measured by others at {size}: {text}", style="dim", soft_wrap=True)
    if "seeds" in document:
        for key, words in (
            ("same_parameters", "the same α, β and utilities"),
            ("all_drawn", "all drawn anew"),
        ):
            found = document["seeds"][key]
            shown = table(
                f"Fresh instances, {words}: gain over the best baseline", "seed", "strict", "reclaim"
            )
            for row in found["rows"]:
                shown.add_row(str(row["seed"]), *gains(row["gain"]))
            shown.add_row("mean", *gains(found["gain_mean"]))
            console.print(shown)
    sweep = document.get("sweep") or []
    for by in dict.fromkeys(row["by"] for row in sweep):
        rows = [row for row in sweep if row["by"] == by]
        shown = table(f"Reward a slot by {by}", by, *rows[0]["reward_mean"])
        for row in rows:
            shown.add_row(str(row["value"]), *(f"{value:,.1f}" for value in row["reward_mean"].values()))
        console.print(shown)
    if "several" in document:
        rows = document["several"]
        shown = table("Several arrivals a port (§3.4)", "up to", *rows[0]["reward_mean"], "best fixed")
        for row in rows:
            values = (*row["reward_mean"].values(), row["best_fixed"])
            shown.add_row(str(row["most"]), *(f"{value:,.1f}" for value in values))
        console.print(shown)
    if "gangs" in document:
        rows = document["gangs"]
        names = list(rows[0]["reward_mean"])
        shown = table(
            "Gangs of four components (§3.5): reward a slot", "least", "each", *names, "relaxed", words=2
        )
        for row in rows:
            values = (*row["reward_mean"].values(), row["relaxed_best_fixed"])
            shown.add_row(str(row["least"]), f"{row['enough']:.0%}", *(f"{value:,.1f}" for value in values))
        console.print(shown)
        shown = table("Gangs that ran", "least", "each", *names, words=2)
        for row in rows:
            cells = (f"{value:.0%}" for value in row["started"].values())
            shown.add_row(str(row["least"]), f"{row['enough']:.0%}", *cells)
        console.print(shown)
    if "large" in document:
        console.print(f"\n[bold]100 ports, 1024 instances, {document['large']['edges']} edges[/]")
        console.print(policies(document["large"]["policies"]))
    if "growth" in document:
        rows = document["growth"]
        shown = table("Time of a slot (µs)", "edges", *rows[0]["slot_us"])
        for row in rows:
            shown.add_row(str(row["edges"]), *(f"{value:,.0f}" for value in row["slot_us"].values()))
        console.print(shown)
