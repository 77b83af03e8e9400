"""Units, measures and the verdict in words."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from report_samples import HOSTILE, admitting, hostile, idle, replay, stored, with_metrics

from asad.replay.results import INELIGIBLE, PolicyResult, ReplayResult, Verdict
from asad.report import funnel, units
from asad.report.measures import GROUPS, MEASURES, affected, difference, headline, ordered_policies, row_unit
from asad.report.verdict import sentences

JSON_KEYS = {
    "jobs", "makespan_s", "response_mean_s", "wait_mean_s", "wait_p95_s", "bounded_slowdown_mean",
    "utilization", "cpu_utilization", "delivered_core_s", "host_stretch_mean", "guest_stretch_mean",
    "runtime_stretch_mean", "runtime_stretch_p95", "lent_core_s", "guests", "losers", "loss_p95_s",
    "loss_max_s", "displaced", "displaced_placebo", "killed", "killed_by_lending", "wall_s", "late", "late_guests",
    "stretched_guests", "stretched_hosts", "stretched_lateness_s", "displaced_unshared",
    "displaced_unshared_placebo", "lateness_over_saved",
}  # fmt: skip


def words_of(result: ReplayResult) -> str:
    """The verdict with ordinary spaces, as a reader takes it."""
    return " ".join(sentences(result)).replace(units.THIN, " ").replace(units.SPACE, " ")


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


def judged(response: float, wait: float) -> ReplayResult:
    """Slurm: response 10 h, wait 5 h; asax changes both by the given fractions."""
    result = with_metrics(replay(400), "slurm", response_mean_s=36_000.0, wait_mean_s=18_000.0)
    return with_metrics(
        result, "asax", response_mean_s=36_000.0 * (1 + response), wait_mean_s=18_000.0 * (1 + wait)
    )


def test_verdict_says_a_gain_with_its_numbers() -> None:
    text = words_of(judged(-0.12, -0.3))
    assert text.startswith(
        "Lending with asax would have cut the mean response of 400 jobs by 12 %, from 10 h to 8 h 48 min, "
        "and cut the mean wait by 30 %."
    )


def test_verdict_says_a_loss_as_plainly() -> None:
    assert "asax would have lengthened the mean response of 400 jobs by 8.0 %" in words_of(judged(0.08, -0.1))
    assert ", but cut the mean wait by 10 %." in words_of(judged(0.08, -0.1))
    assert ", and lengthened the mean wait by 10 %." in words_of(judged(0.08, 0.1))


def test_verdict_does_not_dress_up_what_is_no_change() -> None:
    assert "would have left the mean response of 400 jobs about as it was (10 h)" in words_of(
        judged(-0.004, 0.0)
    )
    assert "and left the mean wait unchanged" in words_of(judged(-0.004, 0.0))


def late(**metrics: float | None) -> str:
    """The verdict on 656 guests, of whom 8 are late by sharing, with other figures where given."""
    figures: dict[str, float | None] = {
        "guests": 656, "late": 152, "late_guests": 10, "stretched_guests": 8, "stretched_hosts": 4,
        "stretched_lateness_s": 12_000.0, "displaced": 140, "displaced_placebo": 138.4,
        "lateness_over_saved": 0.036, "killed_by_lending": 0,
    }  # fmt: skip
    return words_of(with_metrics(replay(100), "asax", **{**figures, **metrics}))


def test_verdict_shows_who_is_late_by_sharing_and_who_since_the_schedule_moved() -> None:
    assert (
        "656 jobs would have run as guests: 8 of them (1.2 %) and 4 hosts would have ended noticeably later "
        "because sharing slowed them (3 h 20 min in all); nobody would have been killed by lending. 140 jobs would "
        "have ended later because the schedule moved around them, about as many as the 138 that chance alone moves "
        "(placebo). What late jobs lose is 3.6 % of what all others save."
    ) in late()


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (
            {"stretched_guests": 0},
            "guests: none of them, but 4 hosts, would have ended noticeably later because sharing slowed them",
        ),
        (
            {"stretched_guests": 1, "stretched_hosts": 0},
            "guests: 1 of them (0.2 %) and no host would have ended",
        ),
        (
            {"stretched_guests": 0, "stretched_hosts": 0},
            "guests; sharing would have slowed none of them, and no host, enough to end late; nobody would",
        ),
        (
            {"guests": 1, "stretched_guests": 1},
            "1 job would have run as a guest: 1 of them (100 %) and 4 hosts",
        ),
        ({"displaced": 200, "displaced_placebo": 99}, "moved around them, more than the 99 that chance"),
        (
            {"displaced": 1, "displaced_placebo": 99},
            "1 job would have ended later because the schedule moved around",
        ),
        ({"displaced": 1, "displaced_placebo": 99}, "around it, fewer than the 99 that chance"),
        ({"displaced": 5, "displaced_placebo": None}, "no placebo says how many"),
        (
            {"displaced": 0},
            "No job would have ended noticeably later for having started later; chance alone moves 138",
        ),
        ({"lateness_over_saved": None}, "(placebo). No job would have ended sooner."),
        ({"lateness_over_saved": 1.4}, "What late jobs lose is 140 % of what all others save."),
        ({"stretched_guests": 7.6, "guests": 655.7}, "656 jobs would have run as guests: 8 of them (1.2 %)"),
    ],
)
def test_verdict_on_lateness_in_every_case(metrics: dict[str, float | None], words: str) -> None:
    assert words in late(**metrics)


def test_verdict_says_nothing_of_what_nobody_lost() -> None:
    text = late(
        late=0, late_guests=0, stretched_guests=0, stretched_hosts=0, displaced=0, lateness_over_saved=0.0
    )
    assert "What late jobs lose" not in text


def test_verdict_on_who_admits_is_about_others_than_those_that_it_managed() -> None:
    text = words_of(
        with_metrics(admitting(), "oasis", displaced=9, displaced_unshared=8, displaced_unshared_placebo=2)
    )
    assert "1 of 100 jobs that were admitted, deferred or throttled" in text
    assert "8 other jobs would have ended later too, more than the 2 that chance alone moves" in text


def test_verdict_counts_each_loser_and_each_host_and_guest_once() -> None:
    result = stored(replay(400))
    policy = result.policies["asax"]
    both = dataclasses.replace(policy, guest=policy.host | policy.guest)
    result = dataclasses.replace(result, policies={**result.policies, "asax": both})
    assert affected(both) == int((policy.host | policy.guest).sum())
    losers = int(policy.loser.sum())
    assert f"{losers} of {affected(both)} hosts and guests (" in words_of(result)


def test_verdict_says_nobody_only_when_it_is_nobody() -> None:
    result = replay(400)
    assert "nobody would have been killed by lending" in words_of(result)
    killing = with_metrics(result, "asax", killed_by_lending=3)
    assert "lending would have killed 3 jobs, which it never may" in words_of(killing)
    assert "nobody" not in words_of(killing)
    unknown = with_metrics(result, "asax", killed_by_lending=None)
    assert "whether lending killed any job is not known" in words_of(unknown)
    nobody = dataclasses.replace(result.policies["asax"], loser=np.zeros(400, dtype=np.bool_))
    result = dataclasses.replace(result, policies={**result.policies, "asax": nobody})
    assert f"None of the {affected(nobody)} hosts and guests would have ended noticeably later" in words_of(
        stored(result)
    )


@pytest.mark.parametrize(
    ("displaced", "placebo", "words"),
    [
        (
            100,
            99,
            "100 other jobs would have ended later too, about as many as the 99 that chance alone moves",
        ),
        (200, 99, "200 other jobs would have ended later too, more than the 99"),
        (1, 99, "1 other job would have ended later too, fewer than the 99"),
        (5, None, "no placebo says how many"),
    ],
)
def test_verdict_on_a_stored_run_holds_the_displaced_against_the_placebo(
    displaced: int, placebo: int | None, words: str
) -> None:
    result = stored(replay(100))
    assert words in words_of(with_metrics(result, "asax", displaced=displaced, displaced_placebo=placebo))


def test_verdict_says_what_it_rests_on_and_when_it_hangs_on_that() -> None:
    result = judged(-0.12, -0.3)
    text = words_of(result).replace(units.MINUS, "-")
    assert (
        "CPU demand was measured for 31 % of the jobs, taken from profiles for 4.0 % and assumed for 65 %"
        in text
    )
    assert (
        "the change in mean response would be -17 % were it 20 % lower and -8.0 % were it 20 % higher."
        in text
    )
    turning = dataclasses.replace(result, verdicts=[Verdict(1.2, "asax", 0.03, 40, 100)])
    assert "+3.0 % were it 20 % higher, so the verdict hangs on it." in words_of(turning)
    bare = dataclasses.replace(result, verdicts=[], demand_sources={})
    assert "does not say on what CPU demand this rests" in words_of(bare)


def test_verdict_of_replays_without_lending() -> None:
    assert words_of(replay(50, ("slurm",))).startswith(
        "Only slurm was replayed, so there is nothing to compare"
    )
    text = words_of(replay(50, ("slurm", "fcfs")))
    assert text.startswith("Scheduling with fcfs would have lengthened")
    assert "killed" not in text
    result = replay(50)
    idle = dataclasses.replace(
        result.policies["asax"], host=np.zeros(50, dtype=np.bool_), guest=np.zeros(50, dtype=np.bool_)
    )
    result = dataclasses.replace(result, policies={**result.policies, "asax": idle})
    assert words_of(result).startswith("asax found nothing to lend")


def test_verdict_calls_the_oracle_a_yardstick() -> None:
    assert "which knows every job’s demand beforehand, as no real policy can" in words_of(
        replay(80, ("slurm", "greedy-oracle"))
    )


def test_verdict_survives_missing_figures_and_an_empty_log() -> None:
    keys = replay(10).policies["asax"].metrics
    nothing = with_metrics(replay(60), "asax", **dict.fromkeys(keys))
    assert "cannot be judged" in words_of(nothing)
    assert "found nothing to lend" in words_of(replay(0))


def test_verdict_is_two_to_four_sentences_without_control_characters() -> None:
    result = hostile()
    assert 2 <= len(sentences(result)) <= 4
    only = {"slurm": result.policies["slurm"], HOSTILE: result.policies[HOSTILE]}
    text = " ".join(sentences(dataclasses.replace(result, policies=only)))
    assert "\x1b" not in text
    assert "\u202e" not in text
    text.encode("utf-8")


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
