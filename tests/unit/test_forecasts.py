"""When jobs would start by themselves: what is forecast live is held against what came, and the doctor judges it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from plain_answers import validate
from slurm_samples import BECAUSE, START_S, Lab, SlurmInMemory, a_job, row, running, sample
from small_cluster import cluster
from test_daemon import Held, Life, live, wait_for

from asad.cli import forecast_check
from asad.cli.asactl import asactl
from asad.cli.forecast_check import CHECK, FEWEST, forecast_figures, forecast_finding
from asad.daemon.forecasts import AGAIN_S, MOST_OF_JOB, Forecasts
from asad.decisions import CoAllocate, Outcome
from asad.metrics import METRICS
from asad.model import Finished, Snapshot
from asad.replay.fidelity import compared, is_close
from asad.store import start_forecasts as stored
from asad.store.retention import Keep, steps
from asad.store.start_forecasts import Foreseen
from asad.store.store import Store

__all__ = ["live"]  # the fixture

DAY_S = 86_400.0


class Watched:
    """A Slurm in memory, and the forecasts of what it estimates."""

    def __init__(self, folder: Path) -> None:
        slurm = SlurmInMemory()
        slurm.add(running(1, {"n1": 2}), a_job(10, start_time=int(START_S) + 7200), a_job(11, start_time=0))
        self.lab = Lab(folder, slurm)
        self.slurm = slurm
        self.lab.actors.report("n1", sample(1))
        self.forecasts = Forecasts()
        self.now_s = 0.0

    def at(self, now_s: float, *outcomes: Outcome) -> list[Foreseen]:
        """What is known once the cluster was looked at so many seconds after the beginning."""
        self.snapshot: Snapshot = self.lab.snapshot(now_s - self.now_s)
        self.now_s = now_s
        return self.forecasts.look(self.snapshot, self.lab.cluster.finished(0.0), outcomes)

    def start(self, number: int, node: str, at_s: float) -> None:
        self.slurm.start(number, node, START_S + at_s)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_start_is_held_against_the_first_forecast_and_those_of_every_hour(watched: Watched) -> None:
    began_s = watched.lab.snapshot().time_s - START_S
    assert watched.at(began_s + 5) == [] and watched.at(began_s + 600) == []
    watched.slurm.jobs[10]["start_time"] = int(START_S) + 5400
    assert watched.at(began_s + 5 + AGAIN_S) == []
    watched.start(10, "n2", began_s + 4000)
    first, again = watched.at(began_s + 4005)
    assert first == Foreseen(START_S + began_s + 4000, START_S + began_s + 5, START_S + 7200, "batch", True)
    assert again == first._replace(
        made_s=START_S + began_s + 5 + AGAIN_S, forecast_s=START_S + 5400, is_first=False
    )
    assert first.remaining() == (7195 - began_s, 3995)
    assert watched.at(began_s + 4010) == [], "it is reported once"
    assert watched.forecasts.to_json() == {
        "jobs": 1,
        "forecast_mean_s": 7195 - began_s,
        "recorded_mean_s": 3995.0,
        "close": 0.0,
    }


def test_of_a_job_without_an_estimate_nothing_is_forecast_until_it_has_one(watched: Watched) -> None:
    watched.at(5)
    watched.slurm.jobs[11]["start_time"] = int(START_S) + 2000
    watched.at(600)
    watched.start(11, "n2", 2000)
    (one,) = watched.at(2005)
    assert one.is_first and one.remaining() == (1400.0, 1400.0)
    assert watched.forecasts.to_json()["close"] == 1.0


def test_who_starts_at_once_was_never_forecast(watched: Watched) -> None:
    watched.at(5)
    watched.slurm.add(a_job(12))
    watched.start(12, "n3", 7)
    assert watched.at(10) == []


def test_a_start_and_an_end_between_two_looks_count_too(watched: Watched) -> None:
    watched.at(5)
    watched.start(10, "n2", 20)
    watched.slurm.end(10, START_S + 50)
    (one,) = watched.at(60)
    assert one.time_s == START_S + 20


def test_guests_and_jobs_with_an_offer_are_left_out_for_good(watched: Watched) -> None:
    watched.at(5)
    offer = CoAllocate(BECAUSE, row(watched.snapshot, "10"), (1,), host=-1, share=math.nan)
    watched.at(10, Outcome(offer, True, ""))
    watched.at(20)
    watched.start(10, "n2", 25)
    assert watched.at(30) == [], "its start was another's doing"
    refused = CoAllocate(BECAUSE, row(watched.snapshot, "11"), (1,), host=-1, share=math.nan)
    watched.slurm.jobs[11]["start_time"] = int(START_S) + 2000
    watched.at(40, Outcome(refused, False, "no"))
    watched.start(11, "n3", 45)
    assert len(watched.at(50)) == 1, "an offer that was not made changes nothing"


def test_a_guest_whose_offer_nobody_knew_of_is_no_proof_either() -> None:
    seen, forecasts, nothing = cluster(), Forecasts(), np.zeros(0)
    ended = Finished(np.zeros(0, np.int32), nothing, nothing, nothing, nothing)
    waits = replace(seen, queue=np.array([2, 3], np.int32), guests=np.zeros(0, np.int32))
    waits.jobs.own_estimate_s[2:4] = 2000.0
    assert forecasts.look(waits, ended) == []
    begun = replace(cluster(start_s={2: 1400.0, 3: 1500.0}), time_s=1600.0, queue=np.zeros(0, np.int32))
    assert [one.time_s for one in forecasts.look(begun, ended)] == [1500.0], "2 is a guest, 3 is none"


def test_who_begins_when_asad_decides_is_left_out() -> None:
    seen, forecasts, nothing = cluster(), Forecasts(), np.zeros(0)
    ended = Finished(np.zeros(0, np.int32), nothing, nothing, nothing, nothing)
    forecasts.look(replace(seen, own_begins={3: math.nan}), ended)
    forecasts.look(seen, ended)
    begun = replace(cluster(start_s={3: 1500.0}), time_s=1600.0, queue=np.zeros(0, np.int32))
    assert forecasts.look(begun, ended) == []


def test_a_row_that_another_job_has_now_says_nothing_of_it() -> None:
    seen, forecasts, nothing = cluster(), Forecasts(), np.zeros(0)
    ended = Finished(np.zeros(0, np.int32), nothing, nothing, nothing, nothing)
    forecasts.look(seen, ended)
    other = replace(
        cluster(job_id={3: "99"}, start_s={3: 1500.0}), time_s=1600.0, queue=np.zeros(0, np.int32)
    )
    assert forecasts.look(other, ended) == []
    forecasts.look(seen, ended)
    forecasts.forget_rows()
    assert forecasts.look(replace(cluster(start_s={3: 1500.0}), queue=np.zeros(0, np.int32)), ended) == []


def test_forecasts_of_one_job_are_bounded(watched: Watched) -> None:
    for hour in range(MOST_OF_JOB + 20):
        watched.at(5 + AGAIN_S * hour)
    begin_s = AGAIN_S * (MOST_OF_JOB + 20)
    watched.start(10, "n2", begin_s)
    found = watched.at(begin_s + 5)
    assert len(found) == MOST_OF_JOB and [one.is_first for one in found].count(True) == 1


# -------------------------------------------------------------------------------------------------------------- store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(tmp_path / "asad.db")) as opened:
        yield opened


def seen_at(
    time_s: float, waited_s: float = 1000.0, forecast_s: float = 1000.0, first: bool = True
) -> Foreseen:
    return Foreseen(time_s, time_s - waited_s, time_s - waited_s + forecast_s, "batch", first)


def test_the_store_keeps_the_newest_of_them_as_long_as_it_keeps_rows(store: Store) -> None:
    stored.add(store, [seen_at(DAY_S * day, 100.0, 50.0, day % 2 == 0) for day in range(1, 11)])
    forecast_s, recorded_s, is_first = stored.load(store, 3 * DAY_S)
    assert forecast_s.tolist() == [50.0] * 8 and recorded_s.tolist() == [100.0] * 8
    assert is_first.tolist() == [day % 2 == 0 for day in range(3, 11)]
    with store.writing("test") as connection:
        assert stored.forget_oldest(connection, most=6) == 4
    list(steps(store, 12 * DAY_S, None, Keep(4 * DAY_S)))
    assert len(stored.load(store)[0]) == 3


def test_estimates_in_the_past_leave_nothing_to_wait_for() -> None:
    assert Foreseen(100.0, 50.0, 20.0, "", True).remaining() == (0.0, 50.0)


# ------------------------------------------------------------------------------------------------------------- daemon


def test_the_daemon_keeps_what_it_forecast_and_reports_it(live: Callable[..., Life], tmp_path: Path) -> None:
    held = Held()
    life = live(mode="observe", held=held)
    assert life.ask("status")["forecasts"] == {
        "jobs": 0,
        "forecast_mean_s": None,
        "recorded_mean_s": None,
        "close": None,
    }
    begun = cluster(start_s={3: 2000.0})
    held.shown = replace(
        begun, time_s=2005.0, queue=np.array([4], np.int32), running=np.array([0, 1, 3], np.int32)
    )
    life.cycles(2)
    wait_for(lambda: life.daemon.figures.forecasts.jobs)
    life.cycles(1)
    found = life.ask("status")["forecasts"]
    assert found == {"jobs": 1, "forecast_mean_s": 2600.0, "recorded_mean_s": 1000.0, "close": 0.0}
    text = life.ask("metrics")
    assert "asad_forecast_starts_total 1.0" in text
    assert 'asad_forecast_wait_seconds_total{wait="forecast"} 2600.0' in text
    assert 'asad_forecast_wait_seconds_total{wait="recorded"} 1000.0' in text
    assert METRICS["asad_forecast_wait_seconds_total"].labels == ("wait",)
    life.daemon.stop()
    life.thread.join(300)
    with Store.open(str(tmp_path / "asad.db"), create=False) as opened:
        assert [part.tolist() for part in stored.load(opened)] == [[2600.0], [1000.0], [True]]


# ------------------------------------------------------------------------------------------------------------- doctor


def filled(folder: Path, waited_s: np.ndarray[Any, Any], forecast_s: np.ndarray[Any, Any]) -> dict[str, Any]:
    place = str(folder / "asad.db")
    with Store.open(place) as opened:
        now_s = time.time() - 3600.0
        pairs = zip(waited_s.tolist(), forecast_s.tolist(), strict=True)
        stored.add(opened, [seen_at(now_s, *pair) for pair in pairs])
        stored.add(opened, [seen_at(now_s - 40 * DAY_S, 1e6, 0.0)] * 50)
    found = forecast_figures(place)
    assert found is not None
    return found


WAITS = np.linspace(600.0, 60_000.0, 40)


@pytest.mark.parametrize(
    ("forecast_s", "state", "words"),
    [
        (WAITS * 1.1, "ok", "100 % within 5 min or 25 %, rank correlation 1.00"),
        (WAITS * 1.3, "warn", "8 h 25 min were left on average"),
        (WAITS[::-1].copy(), "warn", "rank correlation -1.00"),
        (np.full(40, WAITS.mean()), "ok", "rank correlation not known"),
    ],
)
def test_the_doctor_judges_by_means_and_ranks(
    tmp_path: Path, forecast_s: np.ndarray[Any, Any], state: str, words: str
) -> None:
    figures = filled(tmp_path, WAITS, forecast_s)
    assert figures["jobs"] == 40 and figures["first"]["jobs"] == 40 and figures["hourly"] is None
    finding = forecast_finding(figures, slurm=True)
    assert finding.state == state and words in finding.why, finding.why
    assert ("that is poor: means differ by more than 25 %" in finding.why) is (state == "warn")
    assert bool(finding.remedy) is (state == "warn") and "\n" not in finding.remedy
    assert "bf_window" not in forecast_finding(figures, slurm=False).remedy
    same = compared("", WAITS, forecast_s)
    assert figures["first"]["alike"] is same.alike and figures["first"]["close"] == same.close


def test_too_few_jobs_are_no_judgement(tmp_path: Path) -> None:
    figures = filled(tmp_path, WAITS[: FEWEST - 1], WAITS[: FEWEST - 1] * 9)
    finding = forecast_finding(figures, slurm=True)
    assert finding.state == "ok" and "too few have been seen to judge them: 29 jobs of 30" in finding.why
    empty = tmp_path / "empty"
    empty.mkdir()
    nothing = filled(empty, WAITS[:0], WAITS[:0])
    assert nothing["first"] is None and "0 jobs of 30" in forecast_finding(nothing, slurm=True).why
    assert forecast_figures(str(tmp_path / "missing.db")) is None


def test_forecasts_of_every_hour_have_a_line_of_their_own(tmp_path: Path) -> None:
    filled(tmp_path, WAITS, WAITS)
    with Store.open(str(tmp_path / "asad.db")) as opened:
        stored.add(opened, [seen_at(time.time(), 100.0, 9000.0, first=False)] * 3)
    figures = forecast_figures(str(tmp_path / "asad.db"))
    assert figures is not None and figures["hourly"]["jobs"] == 3
    finding = forecast_finding(figures, slurm=True)
    assert finding.state == "ok" and "3 forecasts of every hour thereafter: 1 min 40 s" in finding.why


def test_asactl_doctor_prints_it_and_has_it_in_its_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, WAITS, WAITS * 2)
    config = tmp_path / "asad.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\nsocket = "{tmp_path}/s"\n')
    monkeypatch.setattr("asad.cli.doctor.examine", lambda *given: iter(()))
    words = ["doctor", "--config", str(config)]
    text = " ".join(CliRunner().invoke(asactl, words).output.split())
    assert "warn forecasts of starts 40 jobs within 30 days" in text and "bf_window" in text
    found = json.loads(CliRunner().invoke(asactl, [*words, "--json"]).output)
    validate(found)
    assert found["forecasts"]["first"]["forecast_mean_s"] == pytest.approx(2 * WAITS.mean())
    assert [one["check"] for one in found["findings"]] == [CHECK]
    assert found["forecasts"]["days"] == forecast_check.DAYS


def test_close_is_five_minutes_or_a_quarter() -> None:
    assert is_close(np.array([0.0, 10_000.0, 10_000.0]), np.array([300.0, 12_500.0, 12_501.0])).tolist() == [
        True,
        True,
        False,
    ]
