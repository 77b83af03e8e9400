"""How the document of `asactl bench sow` reads: statements of work beside queues and reservations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asad.report import units
from asad.report.drawing import INK, axes_at, svg
from asad_papers.harness import Document, Piece, Plot, Reading, Table
from asad_papers.plots import Curve, curves

LOOKS = {
    "sow": ("#1f7fd1", "D"),
    "sow-paper": ("#b5659f", "s"),
    "sow, cores alone": ("#d55e00", "X"),
    "fcfs": ("#94754c", "o"),
    "reservation": ("#7d8590", "v"),
    "density": ("#00936b", "^"),
}
"""Colour and mark of a policy (Okabe-Ito, as everywhere)."""
OTHER = ("#5b7fa6", "o")
"""Those of a policy of the site."""

METHOD = (
    "Every policy runs the same jobs, round by round; what runs is checked against the capacity. Evicted jobs are "
    "worth nothing. The hindsight LP knows all arrivals and durations beforehand, and may run jobs in parts; fcfs and "
    "density know a job’s duration when it arrives, sow and sow-paper do not. What the paper leaves open, and how it "
    "is filled, stands in docs/explanation/sow.md."
)


def reading(document: Document, instance: str) -> Reading:
    """Its verdict, tables and figures."""
    return Reading(
        "statements of work",
        "Jobs announced before they come",
        "Statements of work: policies side by side",
        units.plain(instance, 60),
        _verdict(document),
        (
            ("paper", "Beside the paper", list(_beside_paper(document))),
            ("policies", "Policies", list(_policies(document))),
            ("truthfulness", "Truthfulness and speed", list(_others(document))),
            ("seeds", "Fresh instances", list(_drawn(document, "seeds", "Fresh instances"))),
            ("gpus", "Two types of GPUs", list(_drawn(document, "gpus", "Two types of GPUs"))),
            ("samples", "How many futures are drawn", list(_samples(document))),
        ),
        METHOD,
    )


def welfare(document: Document, width: int) -> str:
    """Welfare over the hindsight LP by policy, on the instance."""
    rows = document.get("policies") or {}
    if not rows:
        return ""
    tall = 30 * len(rows) + 8

    def draw(figure: Figure) -> None:
        left = 130 if width >= 600 else 100
        axes = axes_at(figure, left, 16, width - left - 30, tall)
        axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.8)
        for number, (name, row) in enumerate(rows.items()):
            colour, mark = LOOKS.get(name, OTHER)
            axes.plot([0, row["welfare_ratio"]], [number, number], color=colour, linewidth=2, alpha=0.5)
            axes.plot([row["welfare_ratio"]], [number], mark, color=colour, markersize=7)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, 1.02)
        axes.set_xlabel("welfare over the hindsight LP")

    return svg("sow-welfare", width, tall + 16 + 50, draw)


def by_load(rows: Sequence[Document], chart: str, width: int) -> str:
    """Welfare over the hindsight LP against load, one mark an instance."""
    names = list(rows[0]["policies"]) if rows else []
    loads = sorted({row["load"] for row in rows})

    def finish(axes: Axes) -> None:
        axes.set_xticks(range(len(loads)), [f"{load:g}" for load in loads])
        axes.set_ylim(0, 1.02)

    drawn = []
    for number, name in enumerate(names):
        colour, mark = LOOKS.get(name, OTHER)
        places = [loads.index(row["load"]) + (number - (len(names) - 1) / 2) * 0.09 for row in rows]
        ratios = [row["policies"][name]["welfare_ratio"] for row in rows]
        drawn.append(Curve(name, places, ratios, colour, "none", mark))
    return curves(chart, width, drawn, "demand over capacity", "welfare / LP", finish)


def _verdict(document: Document) -> list[str]:
    sentences = []
    rows = document.get("policies") or {}
    if "sow" in rows:
        own = rows["sow"]
        text = f"sow reaches {own['welfare_ratio']:.1%} of the hindsight LP"
        if "reservation" in rows and rows["reservation"]["welfare_ratio"] > 0.0:
            text += f", {own['welfare_ratio'] / rows['reservation']['welfare_ratio']:.1f} times worst-case reservation"
        sentences.append(
            text + f"; {own['evicted'] / max(1, own['planned']):.1%} of the jobs it planned had to go."
        )
    if "misreport_gain_max" in document:
        sentences.append(
            f"The best misreport that was found gains {document['misreport_gain_max']:.3g} of value; "
            f"{units.number(document['statements_per_s'])} statements a second are planned."
        )
    return sentences or ["No policies were compared."]


def _policies(document: Document) -> Iterator[Piece]:
    rows = document.get("policies") or {}
    if rows:
        yield Plot("Welfare", "", partial(welfare, document))
        yield Table(
            f"Welfare over the hindsight LP, which is {units.number(document['hindsight_lp'], 1)}",
            ("policy", "welfare", "planned", "evicted", "evicted %"),
            [[name, *_outcome(row), _evicted(row)] for name, row in rows.items()],
        )
        yield (
            f"sow: {document['statements_per_s']:,.0f} statements/s; best misreport found gains "
            f"{document['misreport_gain_max']:.3g} of value."
        )


def _outcome(row: Document) -> tuple[str, str, str]:
    return f"{row['welfare_ratio']:.3f}", units.number(row["planned"]), units.number(row["evicted"])


def _evicted(row: Document) -> str:
    return f"{row['evicted'] / max(1, row['planned']):.1%}"


def _others(document: Document) -> Iterator[Piece]:
    if "truthfulness" in document:
        found = document["truthfulness"]
        yield Table(
            f"Best gains over {units.plural(found['jobs'], 'job')}, in units of value",
            ("misreport of", "gain"),
            [[kind, f"{gain:.4f}"] for kind, gain in found["by_kind"].items()],
        )
        yield (
            f"Mean utility {found['utility_mean']:.2f}. With announced probabilities taken as true "
            f"{found['announced']:.2g}; no misreport at birth gains more than {found['bound']:.4f}; allowed "
            f"{found['allowed']:g} (2μ·v_max). Later births gain {found['birth_mean']:.4f} in the mean over jobs "
            f"(standard error of the best, {found['birth_error']:.3f}); that of the last job to be born, "
            f"{found['birth_of_last']:.4f}."
        )
    if "speed" in document:
        found = document["speed"]
        speeds = ("statements_per_s", "first_tenth_per_s", "last_tenth_per_s")
        yield Table(
            f"Statements a second, of {units.number(found['statements'])}",
            ("all", "first tenth", "last tenth"),
            [[units.number(found[key]) for key in speeds]],
        )
    if "stochastic" in document:
        yield Table(
            "Where what may come is known (sow-stochastic, on a drawn prior)",
            ("load", "welfare", "planned", "evicted", "bundles of LP", "proven"),
            [
                [f"{row['load']:g}", *_outcome(row), f"{row['bundles_of_lp']:.2f}", f"{row['proven']:.3f}"]
                for row in document["stochastic"]
            ],
        )


def _drawn(document: Document, part: str, title: str) -> Iterator[Piece]:
    rows = document.get(part) or []
    if rows:
        names = list(rows[0]["policies"])
        yield Plot("Welfare against load", "", partial(by_load, rows, f"sow-{part}-by-load"))
        yield Table(
            f"{title}: welfare over the hindsight LP",
            ("load", "seed", *names, "sow evicted"),
            [
                [
                    f"{row['load']:g}",
                    units.number(row["seed"]),
                    *(f"{row['policies'][name]['welfare_ratio']:.3f}" for name in names),
                    _evicted(row["policies"]["sow"]),
                ]
                for row in rows
            ],
        )


def _samples(document: Document) -> Iterator[Piece]:
    rows = document.get("samples") or []
    if rows:
        yield Table(
            "sow by the number of futures that it draws",
            ("futures", "error", "welfare over the LP", "planned", "evicted", "statements/s"),
            [
                [
                    units.number(row["samples"]),
                    f"{row['error']:g}",
                    f"{row['welfare_ratio']:.3f}",
                    units.number(row["planned"]),
                    units.number(row["evicted"]),
                    units.number(row["statements_per_s"]),
                ]
                for row in rows
            ],
        )


def _beside_paper(document: Document) -> Iterator[Piece]:
    """The paper measures nothing and has no figure: what it proves stands beside what came out."""
    rows = []
    truth = document.get("truthfulness")
    if truth:
        best = truth["misreport_gain_max"]
        rows.append(
            (
                "Theorem 3.2: 2·μ·v_max",
                f"{truth['allowed']:.3g}",
                f"{best:.3g}",
                "held" if best <= truth["allowed"] else "exceeded",
            )
        )
    for row in document.get("stochastic") or []:
        held = row["welfare_ratio"] >= row["proven"]
        rows.append(
            (
                f"Lemma E.3, load {row['load']:g}",
                f"{row['proven']:.3f}",
                f"{row['welfare_ratio']:.3f}",
                "more than proven" if held else "less, on one draw",
            )
        )
    if rows:
        yield Table(
            "What the paper proves, and what came out", ("proven", "bound", "here", "difference"), rows
        )
