"""Units, measures and the funnel in words."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from report_samples import idle, replay, with_metrics

from asad.replay.results import INELIGIBLE, PolicyResult
from asad.report import funnel, units
from asad.report.measures import GROUPS, MEASURES, difference, headline, ordered_policies, row_unit

JSON_KEYS = {
    "jobs", "makespan_s", "response_mean_s", "wait_mean_s", "wait_p95_s", "bounded_slowdown_mean",
    "utilization", "cpu_utilization", "delivered_core_s", "host_stretch_mean", "guest_stretch_mean",
    "runtime_stretch_mean", "runtime_stretch_p95", "lent_core_s", "guests", "losers", "loss_p95_s",
    "loss_max_s", "displaced", "displaced_placebo", "killed", "killed_by_lending", "wall_s", "late", "late_guests",
    "stretched_guests", "stretched_hosts", "stretched_lateness_s", "displaced_unshared",
    "displaced_unshared_placebo", "lateness_over_saved", "limits_broken", "kept_by_limits", "moved",
}  # fmt: skip


def spaced(text: str) -> str:
    return text.replace(units.THIN, " ").replace(units.SPACE, " ").replace(units.MINUS, "-")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (42, "42 s"),
        (60, "1 min"),
        (725, "12 min 5 s"),
        (3599.6, "1 h"),
        (19_860, "5 h 31 min"),
        (86_400 * 12 + 4 * 3_600, "12 d 4 h"),
        (29_363_626, "339 d 21 h"),
        (86_400 * 1_234, "1 234 d"),
        (-90, "-1 min 30 s"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
    ],
)
def test_duration_is_written_in_the_two_units_that_matter(seconds: float | None, text: str) -> None:
    assert spaced(units.duration(seconds)) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (-0.12, "-12 %"), (0.034, "+3.4 %"), (0.0, "±0 %"), (-0.0004, "±0 %"), (0.0996, "+10 %"),
        (2.5, "+250 %"), (12.345, "+1 234 %"), (None, "–"), (math.nan, "–"),
    ],
)  # fmt: skip
def test_change_always_has_its_sign(ratio: float | None, text: str) -> None:
    assert spaced(units.change(ratio)) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.0, "0 %"), (0.006, "0.6 %"), (0.0996, "10 %"), (0.31, "31 %"), (1, "100 %"), (None, "–")],
)
def test_percent_has_a_decimal_only_where_it_shows(fraction: float | None, text: str) -> None:
    assert spaced(units.percent(fraction)) == text


def test_points_and_numbers() -> None:
    assert spaced(units.points(0.142)) == "+14.2 pp"
    assert spaced(units.points(-0.00001)) == "±0 pp"
    assert spaced(units.number(-1_234.5, 1)) == "-1 234.5"
    assert spaced(units.number(-0.001, 1)) == "0.0"
    assert spaced(units.plural(1, "job")) == "1 job"
    assert spaced(units.plural(2_310, "policy", "policies")) == "2 310 policies"


def test_plain_takes_away_what_could_control_a_terminal_or_break_a_file() -> None:
    text = units.plain("a\x1b[2Jb\r\nc\u202ed\udc80\x00\u2028e")
    assert text == "a\ufffd[2Jb\ufffd\ufffdc\ufffdd\ufffd\ufffd\ufffde"
    assert units.plain("日本語 é") == "日本語 é"
    assert units.plain("x" * 500, 10) == "x" * 9 + "…"
    assert units.plain("x" * 10, 10) == "x" * 10
    text.encode("utf-8")


def test_ascii_only_leaves_nothing_else() -> None:
    assert units.ascii_only(f"−12{units.THIN}% ’x’ … ± 日") == "-12 % 'x' ... +- ?"


def test_every_figure_of_the_json_is_in_the_table_and_defined() -> None:
    keys = [measure.key for _, measures in GROUPS for measure in measures]
    assert set(keys) == JSON_KEYS
    assert len(keys) == len(set(keys))
    assert all(measure.meaning.endswith(".") for measure in MEASURES.values())


@pytest.mark.parametrize(
    ("policies", "name"),
    [
        (("slurm", "static", "greedy-oracle", "asax"), "asax"),
        (("slurm", "greedy-oracle", "asax-paper", "static"), "asax-paper"),
        (("slurm", "fcfs", "greedy-oracle", "site"), "site"),
        (("slurm", "fcfs", "greedy-oracle"), "greedy-oracle"),
        (("slurm", "fcfs"), "fcfs"),
        (("slurm",), None),
    ],
)
def test_headline_is_what_asad_would_do_and_the_yardstick_only_for_want_of_better(
    policies: tuple[str, ...], name: str | None
) -> None:
    assert headline(replay(50, policies)) == name


def test_tables_begin_with_slurm_and_the_headline() -> None:
    result = replay(50, ("fcfs", "static", "asax", "slurm"))
    assert ordered_policies(result) == ["slurm", "asax", "fcfs", "static"]


def test_a_row_has_one_unit_and_three_figures() -> None:
    assert row_unit(MEASURES["wait_mean_s"], [7_200.0, None, 90.0]) == ("h", 3_600.0, 2)
    assert row_unit(MEASURES["wait_mean_s"], [None]) == ("s", 1.0, 2)
    assert row_unit(MEASURES["guests"], [3.0]) == ("", 1.0, 0)
    assert row_unit(MEASURES["delivered_core_s"], [3.6e6]) == ("core-h", 3_600.0, 0)


def test_difference_knows_what_is_better() -> None:
    result = with_metrics(replay(50), "slurm", response_mean_s=100.0, delivered_core_s=100.0, utilization=0.5)
    result = with_metrics(result, "asax", response_mean_s=80.0, delivered_core_s=90.0, utilization=0.4)
    assert difference(result, "asax", MEASURES["response_mean_s"]) == (units.change(-0.2), 1)
    assert difference(result, "asax", MEASURES["delivered_core_s"]) == (units.change(-0.1), -1)
    # allocating less is no harm when guests run on what is lent
    assert difference(result, "asax", MEASURES["utilization"]) == (units.points(-0.1), 0)
    assert difference(result, "slurm", MEASURES["response_mean_s"]) == ("", 0)
    nothing = with_metrics(result, "slurm", response_mean_s=0.0)
    assert difference(nothing, "asax", MEASURES["response_mean_s"]) == ("", 0)
    missing = with_metrics(result, "asax", response_mean_s=None)
    assert difference(missing, "asax", MEASURES["response_mean_s"]) == ("", 0)


def funnelled(*reasons: tuple[str, float]) -> PolicyResult:
    return dataclasses.replace(replay(30).policies["asax"], funnel=reasons)


def test_the_funnel_ends_with_the_largest_reason_that_an_operator_can_change() -> None:
    policy = funnelled(("unmeasured", 10.0), ("p95 above the mean", 50.0), ("headroom", 15.0), ("lent", 25.0))
    assert spaced(funnel.advice(policy.funnel)) == (
        "Of the 100 core-h that batch would have left idle, 25 % would have been lent; the largest reason against it "
        "that an operator can change is “headroom” (15 %): lower the option headroom, and watch whether hosts are "
        "stretched."
    )
    assert [row.share for row in funnel.rows(policy.funnel)] == [0.1, 0.5, 0.15, 0.25]
    assert spaced(funnel.advice(policy.funnel, live=True)).startswith(
        "Of the 100 core-h that batch left idle, 25 % was lent; "
    )


def test_the_funnel_says_when_there_is_nothing_to_change() -> None:
    policy = funnelled(("unmeasured", 0.0), ("no waiting job that would gain", 75.0), ("lent", 25.0))
    assert "nothing that kept the rest is for an operator to change" in funnel.advice(policy.funnel)
    assert funnel.advice(funnelled().funnel) == ""
    assert funnel.advice(funnelled(("lent", 0.0)).funnel) == "", "nothing was idle"


def test_the_funnel_shows_those_who_opted_out_from_those_who_may_be_let_lend() -> None:
    opted, several = (f"{INELIGIBLE}{why}" for why in ("its account opted out", "it has several nodes"))
    assert "ask those who opted out" in funnel.advice(funnelled((opted, 9.0), (several, 1.0)).funnel)
    assert "by the option lend" in funnel.advice(funnelled((opted, 1.0), (several, 9.0)).funnel)


def test_every_reason_of_the_funnel_is_explained() -> None:
    reasons = [INELIGIBLE if reason.startswith(INELIGIBLE) else reason for reason, _ in idle(1.0, 0.0)]
    assert list(funnel.MEANINGS) == reasons
    assert set(funnel.CHANGES) < set(reasons)
    docs = Path(__file__).parents[2] / "docs"
    for page in ("explanation/reading-a-report.md", "reference/figures.md"):
        text = (docs / page).read_text(encoding="utf-8")
        assert [reason for reason in reasons if f"`{reason.strip()}" not in text] == [], page


def test_the_explanation_names_every_figure_of_the_json() -> None:
    text = (Path(__file__).parents[2] / "docs/explanation/reading-a-report.md").read_text(encoding="utf-8")
    assert [key for key in sorted(JSON_KEYS) if f"`{key}`" not in text] == []
