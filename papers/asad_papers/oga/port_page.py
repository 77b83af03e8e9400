"""The page of `asactl bench oga`: Table III and figures 3 to 7 of the OgaSched paper, measured here, one HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from asad.report import units
from asad.report.drawing import INK, NARROW, WIDE, axes_at, legend, svg
from asad.report.page import bench_page, table_of

Document = Mapping[str, Any]
"""What `asactl bench oga --json` prints."""

LOOKS: dict[str, tuple[str, Any]] = {
    "oga-strict": ("#1f7fd1", "solid"),
    "oga-reactive": ("#b5659f", (0, (6, 2))),
    "oga-reclaim": ("#00936b", (0, (7, 2, 1.5, 2))),
    "fairness": ("#7d8590", "solid"),
    "drf": ("#c47a00", (0, (3, 1.5))),
    "spread": ("#94754c", (0, (4, 1.5, 1, 1.5))),
    "binpack": ("#d55e00", (0, (1.5, 1.5))),
}
"""Colour and dash of a policy (Okabe-Ito, as everywhere)."""

AXES = {
    "horizon": ("slots T", "Table III: the time horizon."),
    "arrivals": ("probability of an arrival", "Table III: how often jobs arrive."),
    "density": ("ports an instance, mean", "Table III: how many ports an instance is connected to."),
    "nodes": ("instances", "Figure 3a: the number of instances."),
    "ports": ("ports", "Figure 3b: the number of ports."),
    "contention": ("contention level", "Figure 3c: what ports ask for, as a multiple of an instance."),
    "eta": ("η_0 of all modes", "Figure 4a: the first step."),
    "decay": ("decay", "Figure 4b: how the step changes from slot to slot."),
}
LOGARITHMIC = ("horizon", "nodes", "ports", "contention", "eta")


def page(document: Document, command: str) -> str:
    """The page as text. `command` is what was typed."""
    sections = [("verdict", "Verdict", _verdict(document))]
    tables = _tables(document)
    if tables:
        sections.append(("policies", "Policies", tables))
    figures = "".join(_figures(document))
    if figures:
        sections.append(("figures", "Figures", figures))
    sections.append(("method", "How it was found", _method(command)))
    return bench_page(
        "placement by OgaSched",
        "Capacities among ports, side by side",
        _facts(document),
        "Placement by OgaSched: policies side by side",
        sections,
    )


def swept(document: Document, by: str, key: str, width: int) -> str:
    """Reward (or overhead) a slot against what is varied, one line a policy."""
    rows = [row for row in document.get("sweep") or () if row["by"] == by]
    if not rows:
        return ""
    names = [name for name in LOOKS if name in rows[0][key]]
    spots = [str(row["value"]) for row in rows]
    numbers = by in LOGARITHMIC or by in ("arrivals", "density")

    def draw(figure: Figure) -> None:
        axes = _plot(figure, width, len(names))
        places = [row["value"] if numbers else spot for spot, row in enumerate(rows)]
        for name in names:
            colour, dash = LOOKS[name]
            axes.plot(
                places, [row[key][name] for row in rows], color=colour, linewidth=2, marker="o", markersize=4,
                linestyle=dash,
            )  # fmt: skip
        if by in LOGARITHMIC:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(places, spots)  # of decay side by side: they differ in the fourth figure
        axes.set_xlabel(AXES[by][0])
        axes.set_ylabel({"reward_mean": "reward", "overhead_mean": "overhead"}[key] + " a slot")
        _legend(figure, names, width)

    return svg(f"oga-{by}-{key}", width, _height(width, len(names)), draw)


def growth(document: Document, width: int) -> str:
    """Time of a slot against the number of edges."""
    rows = document.get("growth") or ()
    if not rows:
        return ""
    names = list(rows[0]["slot_us"])

    def draw(figure: Figure) -> None:
        axes = _plot(figure, width, len(names))
        for name in names:
            colour, dash = LOOKS[name]
            axes.plot(
                [row["edges"] for row in rows], [row["slot_us"][name] for row in rows],
                color=colour, linestyle=dash, linewidth=2, marker="o", markersize=4,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
        axes.set_xticks([row["edges"] for row in rows], [units.number(row["edges"]) for row in rows])
        marks = [10**power for power in range(7)]
        low, high = axes.get_ylim()
        shown = [mark for mark in marks if low <= mark <= high]
        axes.set_yticks(shown, [units.number(mark) for mark in shown])
        axes.set_xlabel("edges")
        axes.set_ylabel("µs a slot")
        _legend(figure, names, width)

    return svg("oga-growth", width, _height(width, len(names)), draw)


# ----------------------------------------------------------------------------------------------------- sections


def _facts(document: Document) -> str:
    one = document.get("instance")
    if not one:
        return "drawn instances"
    return " · ".join(
        (
            units.plain(one["name"], 60),
            units.plural(one["ports"], "port"),
            units.plural(one["instances"], "instance"),
            units.plural(one["edges"], "edge"),
            units.plural(one["slots"], "slot"),
        )
    )


def _verdict(document: Document) -> str:
    said = []
    rows = document.get("policies")
    if rows:
        others = {name: row["reward_mean"] for name, row in rows.items() if not name.startswith("oga")}
        best = max(others, key=lambda name: others[name])

        def against(name: str) -> str:
            value = rows[name]["reward_mean"]
            change = f" ({units.change(value / others[best] - 1)})" if others[best] > 0 else ""
            return f"{units.number(value, 2)}{change}"

        said.append(
            f"The strict mode reaches {against('oga-strict')} a slot, reclaim {against('oga-reclaim')}; the best "
            f"baseline, {best}, {units.number(others[best], 2)}."
        )
        said.append(
            f"No fixed allocation is worth more than {units.number(document['best_fixed_bound'], 2)}; strict falls "
            f"short of the best by {units.number(document['regret_per_slot'], 2)} a slot."
        )
    fresh = (document.get("seeds") or {}).get("same_parameters")
    if fresh:
        mean = fresh["gain_mean"]
        said.append(
            f"On {len(fresh['rows'])} fresh instances of the same α, β and utilities, strict gains "
            f"{units.change(mean['oga-strict'])} over the best baseline in the mean, reclaim "
            f"{units.change(mean['oga-reclaim'])}; with all drawn anew, "
            f"{units.change(document['seeds']['all_drawn']['gain_mean']['oga-strict'])} and "
            f"{units.change(document['seeds']['all_drawn']['gain_mean']['oga-reclaim'])}."
        )
    lead, *rest = said or ["No policies were compared on an instance."]
    return f'<p class="lead">{escape(lead)}</p>' + "".join(
        f'<p class="prose">{escape(text)}</p>' for text in rest
    )


def _tables(document: Document) -> str:
    parts = []
    heads = ["policy", "reward a slot", "slots/s", "violations", "gain", "overhead"]
    for title, rows in (
        ("Policies on the instance", document.get("policies")),
        ("100 ports on 1024 instances (Figure 5)", (document.get("large") or {}).get("policies")),
    ):
        if rows:
            parts.append(
                table_of(
                    title,
                    heads,
                    [
                        [
                            name,
                            units.number(row["reward_mean"], 2),
                            units.number(row["slots_per_s"]),
                            units.number(row["violations"]),
                            units.number(row["gain_mean"], 2),
                            units.number(row["overhead_mean"], 2),
                        ]
                        for name, row in rows.items()
                    ],
                )
            )
    others = document.get("others_slots_per_s")
    if others:
        parts.append(
            table_of(
                "Slots a second as others measured them, on their machines",
                ["size", *next(iter(others.values()))],
                [[size, *(f"{value:g}" for value in row.values())] for size, row in others.items()],
            )
        )
    forms = [row for row in document.get("sweep") or () if row["by"] == "utilities"]
    if forms:
        names = list(forms[0]["reward_mean"])
        parts.append(
            table_of(
                "Utilities of one form, and mixed (Figure 7), reward a slot; all linear: not divided by 64",
                ["utility", *names],
                [[row["value"], *(units.number(row["reward_mean"][n], 1) for n in names)] for row in forms],
            )
        )
    several = document.get("several")
    if several:
        names = list(several[0]["reward_mean"])
        parts.append(
            table_of(
                "Several arrivals a port (section 3.4), reward a slot",
                ["up to", *names, "best fixed"],
                [
                    [
                        str(row["most"]),
                        *(units.number(row["reward_mean"][n], 1) for n in names),
                        units.number(row["best_fixed"], 1),
                    ]
                    for row in several
                ],
            )
        )
    gangs = document.get("gangs")
    if gangs:
        names = list(gangs[0]["reward_mean"])
        parts.append(
            table_of(
                "Gangs of four components (section 3.5), reward a slot, and the share that ran",
                ["at least", "each with", *names, "relaxed best fixed"],
                [
                    [
                        str(row["least"]),
                        units.percent(row["enough"]),
                        *(
                            f"{units.number(row['reward_mean'][n], 1)} ({units.percent(row['started'][n])})"
                            for n in names
                        ),
                        units.number(row["relaxed_best_fixed"], 1),
                    ]
                    for row in gangs
                ],
            )
        )
    return "".join(parts)


def _figures(document: Document) -> list[str]:
    drawn = []
    for by, (_, words) in AXES.items():
        drawn.append(_figure(words, document, lambda width, by=by: swept(document, by, "reward_mean", width)))
        if by == "contention":
            drawn.append(
                _figure(
                    "Figure 6: the overhead under contention.",
                    document,
                    lambda width: swept(document, "contention", "overhead_mean", width),
                )
            )
    drawn.append(
        _figure(
            "The time of a slot, on one core of this machine.",
            document,
            lambda width: growth(document, width),
        )
    )
    return drawn


def _figure(words: str, document: Document, draw: Any) -> str:
    wide = draw(WIDE)
    if not wide:
        return ""
    title = words.split(": ", 1)[-1].rstrip(".")
    title = title[0].upper() + title[1:]
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3><p>{escape(words)}</p></figcaption>"
        f'<div class="drawing wide" role="img" aria-label="{escape(title)}">{wide}</div>'
        f'<div class="drawing narrow" role="img" aria-label="{escape(title)}">{draw(NARROW)}</div></figure>'
    )


def _method(command: str) -> str:
    return (
        '<p class="prose">Every policy divides the same capacities among the same arrivals, slot by slot. All but the '
        "strict mode see the arrivals of a slot first. Each allocation is checked against every cap and capacity; the "
        "best fixed allocation is a convex solver’s, with a dual bound. What the paper leaves open, and how it is "
        "filled, stands in docs/explanation/oga.md.</p>"
        f'<pre tabindex="0"><code>{escape(units.plain(command, 4_000))}</code></pre>'
    )


# ------------------------------------------------------------------------------------------------------ drawing


def _rows(width: int, entries: int) -> int:
    return -(-entries // (4 if width >= 600 else 2))


def _height(width: int, entries: int) -> int:
    return 16 + 18 * _rows(width, entries) + (300 if width >= 600 else 230) + 48


def _plot(figure: Figure, width: int, entries: int) -> Any:
    left, tall = (76, 300) if width >= 600 else (66, 230)
    axes = axes_at(figure, left, 16 + 18 * _rows(width, entries), width - left - 26, tall)
    axes.grid(color=INK, alpha=0.12, linewidth=0.8)
    return axes


def _legend(figure: Figure, names: list[str], width: int) -> None:
    handles = [Line2D([], [], color=LOOKS[n][0], linestyle=LOOKS[n][1], linewidth=2) for n in names]
    legend(figure, handles, names, 66 if width >= 600 else 34, 4 if width >= 600 else 2)
