"""The table on the terminal."""

from __future__ import annotations

import io

import pytest
from report_samples import TREATMENT, admitting, hostile, replay, stored, with_metrics
from rich.console import Console

from asad.replay.results import ReplayResult
from asad.report import units
from asad.report.table import render_table


def printed(result: ReplayResult, width: int = 80, *, encoding: str = "utf-8", colour: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(
        file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    render_table(result, console)
    file.flush()
    return raw.getvalue().decode(encoding).replace(units.THIN, " ").replace(units.SPACE, " ")


@pytest.mark.parametrize("width", [80, 100, 200])
def test_it_fits_the_terminal(width: int) -> None:
    text = printed(replay(2_000, tuple(TREATMENT)), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text


def test_it_shows_what_matters_by_policy() -> None:
    result = with_metrics(replay(400), "slurm", response_mean_s=36_000.0)
    result = with_metrics(
        result, "asax", response_mean_s=30_600.0, delivered_core_s=3_600.0 * 123_456, losers=17,
        guests=612, late=338, stretched_guests=13, stretched_hosts=4, displaced=321, displaced_placebo=318,
        lateness_over_saved=0.036, killed_by_lending=0,
    )  # fmt: skip
    text = printed(result)
    gains, payers = (line for line in text.splitlines() if line.startswith("asax "))
    assert "8.5" in gains.split()
    assert f"{units.MINUS}15 %" in gains
    assert "123 456" in gains
    assert payers.split()[1] == "612"
    assert payers.split()[-8:] == ["338", "13", "4", "321", "318", "3.6", "%", "0"]
    assert "Lending with asax would have cut the mean response of 400 jobs by 15 %" in " ".join(text.split())


def test_policies_that_lend_nothing_are_not_among_those_who_pay() -> None:
    assert "No policy of this replay lends" in printed(replay(50, ("slurm", "fcfs")))
    assert sum(line.startswith("slurm ") for line in printed(replay(50)).splitlines()) == 1


def test_a_narrow_terminal_runs_over_rather_than_hide_digits() -> None:
    result = replay(400)
    wide = [line.split() for line in printed(result, 80).splitlines() if line.startswith("asax ")]
    narrow = [line.split() for line in printed(result, 40).splitlines() if line.startswith("asax ")]
    assert wide == narrow


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    text = printed(replay(400), encoding="ascii")
    assert "-" in text
    assert "asax" in text


def test_hostile_names_cannot_control_the_terminal_nor_the_markup() -> None:
    text = printed(hostile(), 120)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script>" in text


def test_the_funnel_stands_below_what_was_lent() -> None:
    text = printed(replay(400))
    lent, idle = text.index("What was lent, who ends late, and why"), text.index("What batch left idle")
    assert lent < idle < text.index("Lending with asax would have cut")
    assert "share groups" not in text, "it kept nothing"
    lines = {line.rsplit("  ", 2)[0].strip(): line.split() for line in text[idle:].splitlines()}
    assert lines["opted out or ineligible: it opted out"][-1] == "%"
    assert "the largest reason against it that an operator can change is “expert's share”" in " ".join(
        text.split()
    )
    assert '"expert\'s share"' in printed(replay(400), encoding="ascii")


def test_a_run_that_was_stored_before_has_dashes_and_no_funnel() -> None:
    text = printed(stored(replay(400)))
    payers = [line for line in text.splitlines() if line.startswith("asax ")][1].split()
    assert payers[-7:-4] == ["–", "–", "–"]
    assert payers[-2] == "–"
    assert "What batch left idle" not in text


def test_names_are_not_markup() -> None:
    result = replay(100, ("slurm", "[red]x[/red]"))
    assert "[red]x[/red]" in printed(result)


def test_missing_figures_and_empty_logs_are_dashes() -> None:
    result = replay(60)
    nothing = with_metrics(result, "asax", **dict.fromkeys(result.policies["asax"].metrics))
    assert "–" in printed(nothing)
    assert "found nothing to lend" in printed(replay(0))


def test_a_job_killed_by_lending_stands_out() -> None:
    text = printed(with_metrics(replay(200), "asax", killed_by_lending=2), colour=True)
    assert "\x1b[1;31m" in text


def test_what_jobs_are_worth_has_a_table_of_its_own() -> None:
    result = admitting()
    text = printed(result)
    slurm, oasis, fcfs = (
        [line for line in text.splitlines() if line.startswith(f"{name} ")][1].split()
        for name in ("slurm", "oasis", "fcfs")
    )
    assert slurm[1:3] == ["400", "60"]
    assert oasis[1:6] == ["500", "+25", "%", "60", "70"]
    assert oasis[6:8] == ["50", "1"]
    assert fcfs[1:4] == ["300", f"{units.MINUS}25", "%"]
    assert "What was lent" not in text
    assert "utility" not in printed(replay(50))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
