"""`asactl bench osdec`: the evaluation of the OSDEC paper, run anew."""

from __future__ import annotations

from pathlib import Path

import click

from asad.cli import completion
from asad.errors import UsageError
from asad_papers.harness import JSON, PAGE, Parts, Step, chosen, evaluate

PARTS = ("instances", "offline", "real-time", "settings", "logs", "trained", "speed")


@click.command("osdec", short_help="Deferral: OSDEC, its baselines and the offline optimum.")
@click.option(
    "--instances", "path", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the trajectories of FILE (.npz), not drawn ones.",
)  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(1), default=50, show_default=True, metavar="N",
    help="Drawn trajectories.",
)  # fmt: skip
@click.option(
    "--first-seed", "first", type=click.IntRange(0), default=None, metavar="N",
    help="Of them [default: from the SHA-256 of the networks that ship, so that a new network meets new days].",
)  # fmt: skip
@click.option(
    "--policy",
    "policies",
    default=None,
    metavar="NAME,…",
    shell_complete=completion.constant("asad_papers.osdec.deferral_figures:known"),
    help="Policies [default: all].",
)
@click.option("--part", "parts", default=None, metavar="NAME,…", help="Parts [default: all].")
@click.option(
    "--end", "end", type=click.Choice(("known", "unknown")), default="known", show_default=True,
    help="Do policies know when a trajectory ends? A cluster's time does not end; logs are judged so in any case.",
)  # fmt: skip
@click.option(
    "--log", "logs", type=click.Path(path_type=Path), multiple=True, metavar="FILE",
    help="Accounting log of the part logs; may be repeated [default: those in ASAD_TRACES].",
)  # fmt: skip
@click.option(
    "--columns", metavar="NAME,…", help="Of logs that are tables without a header, as in asactl replay."
)
@click.option(
    "--models", type=click.Path(path_type=Path), metavar="DIR",
    help="Networks of the part trained: what asactl defer train left in DIR.",
)  # fmt: skip
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
    first: int | None,
    policies: str | None,
    parts: str | None,
    end: str,
    logs: tuple[Path, ...],
    columns: str | None,
    models: Path | None,
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
    settings (Table 4: other cores and durations), logs (real ones), trained (networks of --models against what they
    began with) and speed. What the paper leaves open, and how it was filled, stands
    in docs/explanation/osdec.md.
    """
    from asad.defer.jobs import Worth
    from asad_papers.osdec import deferral_figures as defer_bench
    from asad_papers.osdec.deferral_instances import draw_trajectories, fresh_seed, read_trajectories
    from asad_papers.osdec.deferral_page import reading
    from asad_papers.osdec.trajectories import real_loads

    rows = defer_bench.entrants(
        None if policies is None else chosen(policies, "--policy", defer_bench.known())
    )
    wanted = PARTS if parts is None else chosen(parts, "--part", PARTS)
    worth, span = Worth(delay, violation), int(as_printed)
    first = fresh_seed() if first is None else first
    drawn = range(first, first + seeds)
    found = read_trajectories(path) if path is not None else draw_trajectories(drawn)
    ends = end == "known"
    if parts is not None and "trained" in wanted and models is None:
        raise UsageError("--part trained: name the folder of asactl defer train with --models DIR")
    if not len(found.cores):
        raise UsageError(f"{path}: holds no jobs; there is nothing to compare")

    def runs(step: Step) -> Parts:
        return {
            "instances": lambda: defer_bench.compare(
                found, rows, worth, span, step, ends=ends, both_ends=True
            ),
            "offline": lambda: {
                "offline": defer_bench.offline(found, rows, worth, span, many, time_limit_s, step, ends)
            },
            "real-time": lambda: {
                "real_time": defer_bench.compare(found.real_time(), rows, worth, span, step, ends=ends)
            },
            "settings": lambda: {"settings": defer_bench.settings(rows, worth, drawn, span, step, ends)},
            "logs": lambda: {
                "logs": defer_bench.logs(
                    real_loads(logs, columns), [name for name, _ in rows], worth, span, step
                )
            },
            "trained": lambda: (
                {}
                if models is None
                else {"trained": defer_bench.trained_against(models, found, span, step, ends)}
            ),
            "speed": lambda: defer_bench.speed(rows),
        }

    about = {
        "name": path.stem if path is not None else f"drawn, seeds {drawn[0]} to {drawn[-1]}",
        "trajectories": len(found),
        "steps": found.steps,
        "jobs": len(found.cores),
        "omega_1": worth.delay,
        "omega_2": worth.violation,
        "as_printed": as_printed,
        "end": end,
    }
    paper = {name: dict(row) for name, row in defer_bench.PAPER.items()}
    always = {"about": about, "paper": paper}
    evaluate(runs, wanted, lambda: defer_bench.warm_up(rows), reading, as_json, page, always)
