"""The table on the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from report_samples import TREATMENT, admitting, as_recorded, hostile, replay, with_metrics
from rich.console import Console

from asad.replay.results import ReplayResult
from asad.report import units
from asad.report.table import print_first_screen, render_table
from asad.report.terminal import terminal_console


def printed(
    result: ReplayResult,
    width: int = 80,
    *,
    encoding: str = "utf-8",
    colour: bool = False,
    show: Callable[[ReplayResult, Console], None] = render_table,
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(
        file=file, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    show(result, console)
    file.flush()
    return raw.getvalue().decode(encoding).replace(units.THIN, " ").replace(units.SPACE, " ")


def first_screen(result: ReplayResult, width: int = 80) -> str:
    """What is printed without --full, with its spaces as they are."""
    console = Console(file=io.StringIO(), width=width)
    print_first_screen(result, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


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


def test_policies_that_lend_nothing_are_not_among_those_who_pay() -> None:
    assert "What was lent" not in printed(replay(50, ("slurm", "fcfs")))
    assert sum(line.startswith("slurm ") for line in printed(replay(50)).splitlines()) == 1


@pytest.mark.parametrize("show", [render_table, print_first_screen])
def test_no_column_and_no_word_is_cut_at_any_width(show: Callable[[ReplayResult, Console], None]) -> None:
    """A narrower terminal has lines run over rather than hide digits."""
    result = as_recorded()
    wide = printed(result, 200, show=show).split()
    for width in range(40, 200, 8):
        text = printed(result, width, show=show)
        assert text.split() == wide or width < 96, width
        assert [word for word in text.split() if word[0] != "─"] == [word for word in wide if word[0] != "─"]
        assert "…" not in text


@pytest.mark.parametrize("columns", ["40", "60", "80", "120", "200"])
def test_columns_of_the_environment_cut_nothing(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = as_recorded()
    shown = []
    for width in ("200", columns):
        monkeypatch.setenv("COLUMNS", width)
        print_first_screen(result, terminal_console())
        render_table(result, terminal_console())
        shown.append([word for word in capsys.readouterr().out.split() if word[0] not in "─-"])
    assert shown[0] == shown[1]


def test_the_first_screen_fits_any_terminal() -> None:
    for width in range(40, 200, 8):
        assert max(len(line) for line in first_screen(as_recorded(), width).splitlines()) <= width


def test_groups_of_jobs_have_their_recorded_wait_and_what_they_gain() -> None:
    text = printed(as_recorded())
    lines = {line.split("  ")[0].strip(): line.split() for line in text.splitlines()}
    assert "Jobs by partition" in text and "Jobs by gres" in text and "Jobs by account" not in text
    assert lines["short"][1] == "133" and lines["not recorded"][2] == "134"
    assert lines["with gres"][2] == "40"
    assert "placebo" not in text, "where starts are recorded none is needed"


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
    assert lent < idle
    assert "share groups" not in text, "it kept nothing"
    lines = {line.rsplit("  ", 2)[0].strip(): line.split() for line in text[idle:].splitlines()}
    assert lines["opted out or ineligible: it opted out"][-1] == "%"
    assert "the largest reason against it that an operator can change is “expert's share”" in " ".join(
        text.split()
    )
    assert '"expert\'s share"' in printed(replay(400), encoding="ascii")


def test_names_are_not_markup() -> None:
    result = replay(100, ("slurm", "[red]x[/red]"))
    assert "[red]x[/red]" in printed(result)


def test_missing_figures_and_empty_logs_are_dashes() -> None:
    result = replay(60)
    nothing = with_metrics(result, "asax", **dict.fromkeys(result.policies["asax"].metrics))
    assert "–" in printed(nothing)
    assert printed(replay(0))


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
