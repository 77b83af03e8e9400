"""The five parts that an operator reads first, the same on the terminal and on the page."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from report_samples import HOSTILE, admitting, as_recorded, hostile, replay, with_metrics
from test_report_table import first_screen

from asad.replay.results import ReplayResult, Verdict
from asad.report import figures, units
from asad.report.first_screen import MOST_FIGURES, change_range, figures_in, parts
from asad.report.page import page

TITLES = [
    "What the log says",
    "What lending would have brought",
    "Who would be worse off",
    "What is not in it",
]
TITLES.append("What to do next")
BROUGHT, HARM, MISSING, NEXT = 1, 2, 3, 4


def words_of(result: ReplayResult, part: int | None = None) -> str:
    """One part or all with ordinary spaces, as a reader takes them."""
    found = parts(result) if part is None else [parts(result)[part]]
    text = " ".join(sentence for one in found for sentence in one.sentences)
    return text.replace(units.THIN, " ").replace(units.SPACE, " ").replace(units.MINUS, "-")


def counted(text: str) -> int:
    """Figures of a text, counted by other means than `figures_in`: durations are one, names of jobs are none."""
    plain = re.sub(r"[\u202f\u00a0]", " ", re.sub("job “[^”]*”", "", text))
    plain = re.sub(r"(?<=\d) (?=\d{3}\b)", "", plain)
    plain = re.sub(r"(\d+) (?:d|h|min) \d+ (?:h|min|s)\b", r"\1", plain)
    return len(re.findall(r"\d+(?:\.\d+)?", plain))


def busiest() -> ReplayResult:
    """All that there is to say at once."""
    result = with_metrics(
        as_recorded(chosen=11), "asax", guests=612, late=338, stretched_guests=13, stretched_hosts=4, displaced=321,
        killed_by_lending=2, moved=19,
    )  # fmt: skip
    log = {**result.log, "skipped": 31, "does_not_fit": 7}
    return dataclasses.replace(
        result,
        log=log,
        demand_sources={"measured": 0.3, "profiled": 0.2, "assumed": 0.5},
        verdicts=[Verdict(0.8, "asax", -0.2, 9, 50), Verdict(1.2, "asax", -0.05, 9, 50)],
    )


SAMPLES: dict[str, Callable[[], ReplayResult]] = {
    "busiest": busiest,
    "recorded": as_recorded,
    "simulated": lambda: as_recorded(kind="simulated", why="an SWF log names no nodes"),
    "without baseline": lambda: replay(400),
    "admission": admitting,
    "slurm alone": lambda: replay(50, ("slurm",)),
    "another scheduler": lambda: replay(50, ("slurm", "fcfs")),
    "no jobs": lambda: replay(0),
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_first_screen_has_five_parts_and_at_most_fifteen_figures(sample: str) -> None:
    found = parts(SAMPLES[sample]())
    assert [part.key for part in found] == ["log", "brought", "harm", "missing", "next"]
    assert all(part.sentences and all(text.endswith(".") for text in part.sentences) for part in found)
    text = " ".join(sentence for part in found for sentence in part.sentences)
    assert counted(text) == figures_in(text)
    assert counted(text) <= MOST_FIGURES, text
    assert "at least" not in text and "  " not in text


def test_the_busiest_first_screen_still_has_every_figure_that_it_must_have() -> None:
    text = words_of(busiest())
    for figure in (
        "13 guests and 4 hosts",
        "321 other jobs",
        "killed 2 jobs",
        "1.",
        "-6.0 %",
        "-22 %",
        "33 min 30 s",
    ):
        assert figure in text, (figure, text)
    assert "half of them" not in text, "the median gives way"
    assert "Some lines" in text or "Some jobs" in text


@pytest.mark.parametrize("sample", SAMPLES)
def test_terminal_and_page_say_the_same_sentences(sample: str) -> None:
    result = SAMPLES[sample]()
    with patch.object(figures, "svg", lambda *_: ""):
        whole = page(result)
    top = whole[whole.index("<header>") : whole.index('<section id="policies"')]
    top = re.sub(r"<nav.*?</nav>|<details.*</details>|<style.*?</style>|<h1>.*?</h1>", "", top, flags=re.S)
    shown = html.unescape(re.sub(r"<[^>]+>", " ", top))
    printed = first_screen(result, 100)
    for part in parts(result):
        for sentence in part.sentences:
            assert sentence in shown
            assert " ".join(sentence.split()) in " ".join(printed.split())
        assert part.title in printed and part.title in shown
    assert counted(shown) <= MOST_FIGURES, "also with what stands above them"


def test_the_log_comes_first_with_jobs_and_recorded_wait() -> None:
    def of(mean_s: float | None, median_s: float | None, why: dict[str, Any] | None = None) -> str:
        recorded = {"wait_mean_s": mean_s, "wait_median_s": median_s, "response_mean_s": None}
        result = with_metrics(as_recorded(recorded=recorded, why_waited=why), "asax", stretched_hosts=0)
        return words_of(dataclasses.replace(result, log={"format": "sacct"}), 0)

    assert (
        of(6_060.0, 600.0)
        == "400 jobs, which waited for 1 h 41 min in the mean, half of them for at most 10 min."
    )
    assert of(None, None) == "400 jobs; when they started it does not record."
    assert of(60.0, 0.0) == "400 jobs, which waited for 1 min in the mean, half of them not at all."
    why = as_recorded().baseline["why_waited"]
    assert isinstance(why, dict)
    assert "For 70 % of that time too few cores were free in the job’s partition." in of(60.0, 0.0, why)


def test_what_lending_brings_is_a_range_beside_held_slots_and_the_simulated_slurm() -> None:
    text = words_of(as_recorded(), BROUGHT)
    assert (
        "With every recorded start kept, lending with asax would have cut the mean response (from submission to end) "
        "by 10 % to 14 % over five seeds: an estimate."
    ) in text
    assert "run at once as guests, on CPU that running jobs (their hosts)" in text
    assert "it is lent on (-6.0 % where it is not)" in text
    assert (
        "A simulated Slurm, where the queue moves up behind guests, comes to -22 %; without lending jobs wait for "
        "33 min 30 s there in the mean: not this cluster."
    ) in text
    close = {"wait_mean_s": 6_000.0, "response_change": -0.22}
    assert "about as long as recorded" in words_of(as_recorded(simulated=close), BROUGHT)


def test_the_range_is_over_seeds_and_assumed_demand() -> None:
    assert change_range(as_recorded(), "asax") == (-0.14, -0.10)
    assert change_range(busiest(), "asax") == (-0.2, -0.05)
    assert "over five seeds and assumed CPU demand a fifth lower and higher" in words_of(busiest(), BROUGHT)
    alone = dataclasses.replace(replay(50), verdicts=[])
    assert change_range(alone, "asax") is not None and "seeds" not in words_of(alone, BROUGHT)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ((-0.12, -0.12), "cut the mean response (from submission to end) by 12.0 %"),
        ((-0.1231, -0.1182), "by 11.8 % to 12.3 %"),
        ((-0.02, 0.03), "changed the mean response (from submission to end) by -2.0 % to +3.0 %"),
        ((0.02, 0.08), "lengthened the mean response (from submission to end) by 2.0 % to 8.0 %"),
        ((-0.004, 0.001), "left the mean response (from submission to end) about as it was"),
    ],
)
def test_a_loss_is_reported_as_plainly_as_a_gain(changes: tuple[float, ...], text: str) -> None:
    result = as_recorded()
    result.repeats["response_change"] = {"asax": list(changes)}
    assert text in words_of(result, BROUGHT)


def test_a_simulated_baseline_says_so_and_why_and_how_like_the_cluster_it_is() -> None:
    result = with_metrics(SAMPLES["simulated"](), "slurm", wait_mean_s=2_010.0)
    text = words_of(result, BROUGHT)
    assert text.startswith(
        "Jobs start when a simulated Slurm (EASY backfill on one pool of nodes) starts them, not when they did, since "
        "an SWF log names no nodes; they wait for 33 min 30 s there in the mean: not this cluster. There, lending with "
        "asax would have cut"
    )
    assert "recorded start kept" not in text
    assert "placebo" in words_of(result, HARM) and "placebo" not in words_of(as_recorded(), HARM)


def test_who_would_be_worse_off_has_the_worst_case_by_its_number() -> None:
    result = with_metrics(
        as_recorded(),
        "asax",
        stretched_guests=13.4,
        stretched_hosts=0,
        displaced=1.0,
        guest_stretch_mean=1.284,
    )
    policy, base = result.policies["asax"], result.policies["slurm"]
    later = policy.end_s - base.end_s
    text = words_of(result, HARM)
    assert (
        "13 guests and no host would have ended noticeably later because sharing slowed them (stretched). 1 other job "
        "would have because its cores became free later (displaced). "
        f"The worst off is job “{result.job_id[int(np.argmax(later))]}”, by "
    ) in text
    assert text.endswith("A guest runs 1.28 times as long as alone in the mean.")
    assert "killed 3 jobs" in words_of(with_metrics(result, "asax", killed_by_lending=3), HARM)
    assert "killed 1 job" in words_of(with_metrics(result, "asax", killed_by_lending=0.2), HARM)
    unharmed = with_metrics(result, "asax", stretched_guests=0, displaced=0)
    assert "No job would have ended noticeably later" in words_of(unharmed, HARM)
    assert "worst off" not in words_of(unharmed, HARM)


def test_what_is_not_in_it_is_counted_and_names_what_would_bring_it() -> None:
    result = with_metrics(as_recorded(chosen=1, why_waited=None), "asax", stretched_hosts=0)
    text = words_of(result, MISSING)
    assert (
        "40 jobs have no time limit, and so nothing is offered to them (sacct’s column TimelimitRaw)." in text
    )
    assert "7 jobs start on other nodes than recorded, since their own were not free yet." in text
    assert (
        "1 job names no node of the machine: it runs on nodes that were free (sacct’s column NodeList)."
        in text
    )
    assert "Limits of users, accounts and QOS are not known" in text and "--limits" in text
    assert "The machine is inferred from the log" in text
    assert "CPU time" not in text, "all were measured"
    assumed = dataclasses.replace(as_recorded(), demand_sources={"measured": 0.5, "assumed": 0.5})
    assert (
        "200 jobs have no CPU time, and so their use of CPU is assumed (sacct’s column TotalCPU)."
        in words_of(assumed, MISSING)
    )
    assert "3 lines cannot be read and are left out." in text


def next_of(result: ReplayResult, **facts: Any) -> str:
    return words_of(dataclasses.replace(result, **facts), NEXT)


def test_what_to_do_next_is_never_contradicted_by_the_log() -> None:
    described = {"machine": {"nodes": 1, "cores": 4, "origin": "slurm.conf"}}
    assert "To lend more," in next_of(as_recorded(), **described)
    assert "TotalCPU" not in next_of(as_recorded(), **described)
    lacking = {**as_recorded().log, "absent": ["time_limit_s", "cpu_time_s"]}
    nothing = {"limited": np.zeros(400, np.bool_), "demand_sources": {"assumed": 1.0}, "log": lacking}
    text = next_of(as_recorded(), **nothing, **described)
    assert "column TimelimitRaw" in text and "column TotalCPU" in text and "headroom" not in text
    text = next_of(as_recorded(), limited=np.zeros(400, np.bool_), **described)
    assert "DefaultTime" in text and "TimelimitRaw" not in text
    assert len(parts(as_recorded())[NEXT].sentences) <= 2
    assert "asax is what asad would use" in next_of(replay(50, ("slurm", "fcfs")))
    assert "slurm.conf" in next_of(as_recorded())
    limits = {"reasons": [{"reason": "limit", "share": 0.9}], "limits": []}
    assert "asactl waits" in next_of(as_recorded(why_waited=limits))


def test_replays_of_other_kinds_have_the_parts_too() -> None:
    assert "there is nothing to compare" in words_of(replay(50, ("slurm",)))
    text = words_of(replay(50, ("slurm", "fcfs")))
    assert "Scheduling with fcfs would have lengthened the mean response by" in text
    assert "No policy of this replay lends" in text
    text = words_of(
        with_metrics(admitting(), "oasis", displaced=9, displaced_unshared=8, displaced_unshared_placebo=2)
    )
    assert "oasis would have raised the total utility of the jobs by 25 %, from 400 to 500" in text
    assert "1 of 100 jobs that were admitted, deferred or throttled would have ended noticeably later" in text
    assert "8 other jobs would have ended later too, more than chance alone moves (placebo)" in text
    assert "which knows every job’s demand beforehand" in words_of(replay(80, ("slurm", "greedy-oracle")))


def test_missing_figures_and_an_empty_log_are_survived() -> None:
    keys = replay(10).policies["asax"].metrics
    nothing = with_metrics(replay(60), "asax", **dict.fromkeys(keys))
    assert "cannot be judged" in words_of(nothing)
    assert "found nothing to lend" in words_of(replay(0))


def test_hostile_names_stay_without_control_characters() -> None:
    result = hostile()
    only = {"slurm": result.policies["slurm"], HOSTILE: result.policies[HOSTILE]}
    text = words_of(dataclasses.replace(result, policies=only))
    assert "\x1b" not in text
    assert "\u202e" not in text
    text.encode("utf-8")
