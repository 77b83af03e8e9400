"""How the document of `asactl bench asax-paper` reads: Tables 2 and 3 and Figure 3 of the ASAx paper, measured here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from asad.report import units
from asad.report.drawing import INK, PALETTE, SPARE, axes_at, legend, svg
from asad_papers.asax.paper_workload import PAPER, PAPER_RUNS, WORKFLOWS
from asad_papers.harness import Document, Piece, Plot, Reading, Table
from asad_papers.plots import Curve, curves, is_wide

OURS = "asax"
METHOD = (
    "The same workflow runs are submitted three times to a simulated cluster. Figures are of the third submission (but "
    "for the learning curve), means over the seeds. The paper’s figures are its own measurements of a real machine, "
    "not claimed here; run time, CPU and memory of a run alone are those of its Table 2 for Slurm. It prints CPU over "
    "what was allocated to a job, of which a co-located one has a part of each core; here it is over the cores that "
    "the job asked for. greedy-oracle knows every demand and run time; it is a yardstick, no bound. What the paper "
    "leaves open, and how it was filled, stands in docs/explanation/asax.md."
)


def reading(document: Document) -> Reading:
    """Its verdict, tables and figures."""
    return Reading(
        "lending by ASAx",
        "The ASAx paper’s workflows, side by side",
        "Lending by ASAx: the paper’s evaluation",
        _facts(document),
        list(_verdict(document)),
        (
            (
                "clusters",
                "Clusters (Table 3)",
                [
                    _clusters(document["sizes"], "Clusters, third submission (Table 3)"),
                    *_differences(document["sizes"]),
                ],
            ),
            ("runs", "Workflows (Table 2)", [_runs(document)]),
            (
                "figures",
                "Figures",
                [
                    Plot(
                        "Makespan of the queue (Figure 3a)",
                        "Of the third submission; the bar is the deviation over the seeds, a cross the paper’s figure.",
                        partial(makespans, document),
                    ),
                    Plot(
                        "Run time of workflows (Figure 3b)",
                        "Mean of the runs on all numbers of cores; the bar is their deviation, a cross the paper’s.",
                        partial(run_times, document),
                    ),
                    *(
                        Plot(
                            f"What is learned by submission, {size} cores",
                            "Mean wait of each of the three submissions; Slurm’s changes by the order drawn alone.",
                            partial(learning, document, size),
                        )
                        for size in _sizes(document)
                    ),
                ],
            ),
            ("experts", "What the experts add", list(_ablation(document))),
            ("fit", "If sharing cost what the paper’s Static says", list(_fitted(document))),
        ),
        METHOD,
    )


def makespans(document: Document, width: int) -> str:
    """Figure 3a: makespans in hours, a group of marks a size."""
    sizes = _sizes(document)
    groups = [
        (
            f"{size} cores",
            {
                name: (f["makespan_s"] / 3600, f["makespan_sd_s"] / 3600)
                for name, f in document["sizes"][size].items()
            },
            {name: printed.response_h for name, printed in PAPER[int(size)].items()},
        )
        for size in sizes
    ]
    return _groups("asax-makespan", width, groups, "makespan (h)")


def run_times(document: Document, width: int) -> str:
    """Figure 3b: run times in hours, a group of marks a workflow, of the smallest cluster that was asked for."""
    sizes = _sizes(document)
    if not sizes:
        return ""
    size = sizes[0]
    groups = [
        (
            name,
            {
                policy: (
                    f["workflows"][name]["run_mean_s"] / 3600,
                    f["workflows"][name]["run_sd_s"] / 3600,
                )
                for policy, f in document["sizes"][size].items()
            },
            {policy: rows[number][0] for policy, rows in PAPER_RUNS[int(size)].items()},
        )
        for number, name in enumerate(WORKFLOWS)
    ]
    return _groups("asax-runs", width, groups, f"run time (h), {size} cores")


def learning(document: Document, size: str, width: int) -> str:
    """Mean wait of each submission, one line a policy."""
    drawn = []
    for name, f in document["sizes"][size].items():
        colour, dash = _look(document, name)
        waits = [one["wait_mean_s"] / 3600 for one in f["by_submission"]]
        drawn.append(Curve(name, range(1, len(waits) + 1), waits, colour, dash))

    def finish(axes: Axes) -> None:
        axes.set_xticks([1, 2, 3])
        axes.set_ylim(bottom=0)

    return curves(f"asax-learning-{size}", width, drawn, "submission", "mean wait (h)", finish, 4)


# ----------------------------------------------------------------------------------------------------- sections


def _sizes(document: Document) -> list[str]:
    return list(document.get("sizes") or {})


def _policies(document: Document) -> list[str]:
    return list(dict.fromkeys(name for size in _sizes(document) for name in document["sizes"][size]))


def _look(document: Document, name: str) -> tuple[str, Any]:
    others = [policy for policy in _policies(document) if policy not in PALETTE]
    return PALETTE[name] if name in PALETTE else SPARE[others.index(name) % len(SPARE)]


def _facts(document: Document) -> str:
    facts = [units.plural(document.get("seeds", 0), "seed"), "three submissions of 15 workflow runs"]
    facts.append("a job a stage" if document.get("chained") else "a job a run")
    return " · ".join((*facts, " and ".join(f"{size} cores" for size in _sizes(document)) or "no cluster"))


def _verdict(document: Document) -> Iterator[str]:
    for size in _sizes(document):
        rows = document["sizes"][size]
        if OURS in rows and "slurm" in rows:
            f, printed, slurm = rows[OURS], PAPER[int(size)][OURS], PAPER[int(size)]["slurm"]
            yield (
                f"On {size} cores asax ends the queue at {_times(f['makespan_ratio'])} of Slurm’s makespan and waits "
                f"{_times(f['wait_ratio'])} as long (the paper: {_times(printed.response_h / slurm.response_h)} and "
                f"{_times(printed.wait_h / slurm.wait_h)})."
            )
    if not any(OURS in document["sizes"][size] for size in _sizes(document)):
        yield "asax was not among the policies."


def _clusters(sizes: Mapping[str, Any], title: str) -> Table:
    """Table 3: makespan, wait and CPU of the cluster, the paper's beside ours."""
    rows = []
    for size in sizes:
        for name, f in sizes[size].items():
            printed, slurm = PAPER[int(size)].get(name), PAPER[int(size)]["slurm"]
            gain = f.get("gain_of_oracle")
            rows.append(
                (
                    size,
                    name,
                    _hours(f["makespan_s"], f["makespan_sd_s"]),
                    _times(f.get("makespan_ratio")),
                    _times(printed and printed.response_h / slurm.response_h),
                    _hours(f["wait_mean_s"], f["wait_sd_s"]),
                    _times(f.get("wait_ratio")),
                    _times(printed and printed.wait_h / slurm.wait_h),
                    f"{f['response_mean_s'] / 3600:.2f}",
                    f"{f['cpu_utilization']:.0%}",
                    "" if printed is None else f"{printed.cpu:.0%}",
                    f"{f['runtime_stretch_mean']:.2f}",
                    "" if gain is None else f"{gain:.0%}",
                )
            )
    heads = (
        "\ncores", "\npolicy", "makespan\nh", "of\nslurm", "\npaper", "wait\nh", "of\nslurm", "\npaper",
        "response\nh", "\nCPU", "\npaper", "\nstretch", "of\noracle",
    )  # fmt: skip
    page_only = ("response\nh", "\nstretch")
    return Table(title, heads, rows, page_only=page_only)


def _runs(document: Document) -> Table:
    """Table 2: run time and CPU of each workflow under the strategies that the paper has, its figures beside ours."""
    rows = []
    for size in _sizes(document):
        printed = PAPER_RUNS[int(size)]
        for name in (name for name in document["sizes"][size] if name in printed):
            for number, (workflow, own) in enumerate(document["sizes"][size][name]["workflows"].items()):
                paper = printed[name][number]
                rows.append(
                    (
                        size,
                        name,
                        workflow,
                        f"{own['run_mean_s'] / 3600:.2f} ±{own['run_sd_s'] / own['run_mean_s']:.0%}",
                        f"{paper[0]:.2f} ±{paper[1]:.0%}",
                        f"{own['cpu_of_cores']:.0%}",
                        f"{paper[2]:.0%}",
                    )
                )
    heads = (
        "\ncores",
        "\npolicy",
        "\nworkflow",
        "run time\nh",
        "\npaper",
        "CPU of\ncores",
        "of allocated,\npaper",
    )
    return Table("Workflows, third submission (Table 2)", heads, rows)


def _differences(sizes: Mapping[str, Any]) -> Iterator[str]:
    """A sentence where ours contradicts the paper: one gains over Slurm’s makespan where the other loses."""
    for name in ("static", OURS):
        apart = []
        for size in sizes:
            f = sizes[size].get(name)
            if f is None or f.get("makespan_ratio") is None:
                continue
            printed = PAPER[int(size)][name].response_h / PAPER[int(size)]["slurm"].response_h
            if (printed - 1.0) * (f["makespan_ratio"] - 1.0) < 0:
                apart.append(f"{size} cores ({_times(f['makespan_ratio'])} here, {_times(printed)} there)")
        if apart:
            yield f"{name} contradicts the paper on {', '.join(apart)}: one gains over Slurm where the other loses."


def _ablation(document: Document) -> Iterator[Piece]:
    rows = []
    for setting, variants in (document.get("ablation") or {}).items():
        for name, f in variants.items():
            lost = f.get("stretched_lateness_s")
            counts = (f["guests"], f["stretched_guests"], f["stretched_hosts"])
            rows.append(
                (
                    setting,
                    name,
                    f"×{f['response_ratio']:.3f}",
                    f"×{f['wait_ratio']:.3f}",
                    *("" if count is None else str(count) for count in counts),
                    "" if lost is None else f"{lost / 3600:.1f}",
                )
            )
    heads = (
        "jobs", "policy", "response\nof slurm", "wait\nof slurm", "guests", "stretched\nguests", "hosts",
        "lost by\nthem h",
    )  # fmt: skip
    if rows:
        yield Table("What the experts add, on the generated sample", heads, rows)


def _fitted(document: Document) -> Iterator[Piece]:
    found = document.get("static_fit")
    if not found:
        return
    yield (
        f"Static comes nearest to the paper’s makespans with μ = {found['mu_cpu']:g} for pairs that compute and "
        f"{found['mu_memory']:g} for pairs that live on memory (alone is 1; measured constants are in "
        f"profiles/contention.toml). What is left is a factor of {math.exp(found['residual']):.2f} in the root mean "
        "square over the sizes. These constants are fitted on the figures beside them: they explain, and claim nothing."
    )
    yield _clusters(found["sizes"], "Under the fitted constants, third submission")
    yield from _differences(found["sizes"])


def _times(value: float | None) -> str:
    return "" if value is None else f"×{value:.2f}"


def _hours(mean_s: float, deviation_s: float) -> str:
    return f"{mean_s / 3600:.2f} ±{deviation_s / mean_s:.0%}" if mean_s else "0.00"


Marks = Mapping[str, tuple[float, float]]
"""By policy a mean and its deviation."""


def _groups(key: str, width: int, groups: Sequence[tuple[str, Marks, Mapping[str, float]]], what: str) -> str:
    """Marks with their deviations side by side, a group for each name; crosses are the paper's."""
    names = list(dict.fromkeys(name for _, marks, _ in groups for name in marks))
    if not names:
        return ""
    looks = {name: PALETTE.get(name) or SPARE[place % len(SPARE)] for place, name in enumerate(names)}
    wide = is_wide(width)
    left, top, tall = (
        66 if wide else 44,
        16 + 18 * (-(-len(names) // (4 if wide else 2))),
        300 if wide else 230,
    )

    def draw(figure: Figure) -> None:
        axes = axes_at(figure, left, top, width - left - 12, tall)
        axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
        for place, (_, marks, printed) in enumerate(groups):
            for number, (name, (mean, deviation)) in enumerate(marks.items()):
                x = place + 0.8 * ((number + 0.5) / len(marks) - 0.5)
                axes.errorbar(
                    [x], [mean], [deviation], color=looks[name][0], marker="o", markersize=5, capsize=3
                )
                if name in printed:
                    axes.plot([x], [printed[name]], color=INK, marker="x", markersize=6, linestyle="none")
        axes.set_xticks(range(len(groups)), [name for name, _, _ in groups])
        axes.set_xlim(-0.5, len(groups) - 0.5)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(what)
        handles = [Line2D([], [], color=looks[name][0], marker="o", linestyle="none") for name in names]
        legend(figure, handles, [units.plain(name, 18) for name in names], left, 4 if wide else 2)

    return svg(key, width, top + tall + 40, draw)
