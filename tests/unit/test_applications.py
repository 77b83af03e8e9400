"""Applications are named by fingerprints, known in a bounded number, and never mistaken for each other."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from asad_slurm.ended_runs import Applications as SlurmApplications
from deferred_cluster import deferral
from slurm_samples import Lab, SlurmInMemory, a_job, row, running
from test_share_pool import NOBODY, NOW, held_by, host, snapshot_of, waits

from asad import applications
from asad.admit.everyone import Everyone
from asad.admit.run_times import RunTimes
from asad.admit.sow.others import Others
from asad.applications import MOST, MOST_OF_ONE, UNUSED_S, Applications, Turnover, fingerprint, named, normal
from asad.config import Config
from asad.daemon.policy_state import PolicyState
from asad.defer.at_once import AtOnce
from asad.experts import load_experts
from asad.model import Finished, JobLog, Jobs, Snapshot, blank_jobs
from asad.place.free_capacity import Uses
from asad.place.native import Native
from asad.place.port_placing import PortPlacing
from asad.share.asax import Asax
from asad.share.asax_paper import AsaxPaper
from asad.share.measured import Measured
from asad.stages import Stages
from asad.status import job_rows
from asad.store import learned, retention
from asad.store.store import Store

NONE = np.zeros(0, np.int32)


def codes(*known: int) -> Any:
    return np.array(known, np.int32)


# ------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "application"),
    [
        ("run-17", "run-#"),
        ("run_0018.sh", "run_#.sh"),
        ("case 3 (b)", "case # (b)"),
        ("2024-01-02_15:30", "#-#-#_#:#"),
        ("job20240102", "job#"),
        ("lr0.01", "lr0.#"),
        ("resnet50", "resnet50"),
        ("step2of3", "step2of3"),
        ("md5sum", "md5sum"),
        ("gromacs2020", "gromacs2020"),
        ("3d", "3d"),
        ("é3", "é3"),
        ("17", "17"),
        ("", ""),
    ],
)
def test_numbers_are_no_part_of_an_application(name: str, application: str) -> None:
    assert normal(name) == application
    assert normal(normal(name)) == normal(name)


def test_a_fingerprint_is_bounded_and_takes_the_name_of_a_job_again() -> None:
    assert fingerprint("ann", "run-17", 12) == fingerprint("ann", "run-18", 16) == "ann/run-#/16"
    assert fingerprint("", "", 1) == "-/-/1"
    assert len(fingerprint("ann", "x" * 10_000, 1)) < 200
    assert named("ann/run-#/16", "run-17") == "ann/run-17/16"
    assert named("ann/a/b-#/16", "a/b-2") == "ann/a/b-2/16"
    assert (named("ann/run-#/16", None), named("ann/-/1", ""), named("", "x")) == (
        "ann/run-#/16",
        "ann/-/1",
        "",
    )


def a_log(names: Sequence[str]) -> JobLog:
    """A job for each name, of one user and core."""
    one, nothing = np.ones(len(names)), np.full(len(names), np.nan)
    whole = np.ones(len(names), np.int32)
    known = tuple(dict.fromkeys(names))
    return JobLog(
        job_id=np.arange(len(names)),
        submit_s=one,
        start_s=one,
        run_s=one,
        cores=whole,
        nodes=whole,
        time_limit_s=one,
        memory_bytes=nothing,
        cpu_time_s=nothing,
        user=0 * whole,
        application=np.array([known.index(name) for name in names], np.int32),
        partition=0 * whole,
        depends_on=-whole,
        think_s=0 * one,
        users=("ann",),
        applications=known,
    )


def test_a_recorded_job_has_the_application_that_it_would_have_live() -> None:
    names = ["run-17", "fit", "run-18", "resnet50", "run-17"]
    found, labels = a_log(names).fingerprints()
    live = Applications()
    assert [labels[code] for code in found] == [live[live.code("ann", name, 1)] for name in names]
    assert found.tolist() == [0, 1, 0, 2, 0] and found.dtype == np.int32


# ------------------------------------------------------------------------------------------------------------- codes


def test_the_least_recently_seen_application_is_forgotten() -> None:
    known = Applications(most=3, most_of_one=3)
    known.look(NONE, 0.0)
    first = [known.code("ann", name, 1) for name in "abc"]
    known.look(codes(first[0]), 1.0)
    known.code("ann", "b", 1)
    new = known.code("ann", "d", 1)
    assert new == first[2] and known[new] == "ann/d/1" and len(known) == 3
    assert [known.code("ann", name, 1) for name in "abd"] == first


def test_an_application_of_which_jobs_are_there_keeps_its_code() -> None:
    known = Applications(most=2, most_of_one=2)
    known.look(NONE, 0.0)
    there = codes(known.code("ann", "a", 1), known.code("ann", "b", 1))
    for look in range(1, 5):
        known.look(there, float(look))
        rest = known.code("ann", f"{look}x", 1)
        assert known[rest] == "ann/*/1", "what has no room is one application together"
    assert [known[code] for code in there.tolist()] == ["ann/a/1", "ann/b/1"]
    assert known[known.code("bob", "a", 4)] == "bob/*/4"


def test_who_names_each_job_anew_makes_nobody_else_forget() -> None:
    known = Applications(most=100, most_of_one=10)
    known.look(NONE, 0.0)
    bob = known.code("bob", "fit", 1)
    for look in range(200):
        known.look(NONE, 1.0 + look)
        known.code("ann", f"{look}x", 1)
    assert known[bob] == "bob/fit/1" and len(known) <= 11


def test_an_application_that_is_not_used_for_long_is_forgotten() -> None:
    known = Applications()
    known.look(NONE, 0.0)
    old, used = known.code("ann", "old", 1), known.code("ann", "used", 1)
    known.look(codes(-1, used), 10 * UNUSED_S)  # the clock was wrong
    known.look(codes(-1, used), 0.0)
    days = int(UNUSED_S / 86_400.0)
    for day in range(days):
        assert known[old] == "ann/old/1"
        known.look(codes(-1, used), 86_400.0 * (1 + day))
    assert (known[old], known[used]) == ("", "ann/used/1")
    assert known.code("ann", "new", 1) == old


def test_whoever_indexes_by_code_learns_which_mean_something_else() -> None:
    known = Applications(most=2, most_of_one=2)
    known.look(NONE, 0.0)
    known.code("ann", "a", 1)
    turnover = Turnover(known)
    assert turnover.look() == {} and turnover.names == ["ann/a/1"]
    known.code("ann", "b", 1)
    assert turnover.look() == {1: ""}
    known.look(codes(1), 1.0)
    known.code("ann", "c", 1)
    assert turnover.look() == {0: "ann/a/1"} and turnover.names == ["ann/c/1", "ann/b/1"]
    assert turnover.look() == {}
    grows = ["x"]
    of_list = Turnover(grows)
    grows.append("y")
    assert of_list.look() == {1: ""} and of_list.look() == {}


# ----------------------------------------------------------------------------------------------------------- policies


def of_codes(*known: int) -> Snapshot:
    """A host of each of these applications on a node of its own, and nobody waits."""
    hosts = [host(0.3, application=code, submit_s=float(code)) for code in known]
    return snapshot_of([held_by(row) for row in range(len(known))], hosts)


def ended(*rows: int, run_s: float = 100.0, cpu: float = 0.5) -> Finished:
    count = len(rows)
    return Finished(
        codes(*rows), np.full(count, NOW), np.full(count, run_s), np.zeros(count), np.full(count, cpu)
    )


def two() -> tuple[Applications, int]:
    """A table with room for one application, which is `ann/a/4`."""
    known = Applications(most=1, most_of_one=1)
    known.look(NONE, 0.0)
    return known, known.code("ann", "a", 4)


def turned(known: Applications) -> None:
    """`ann/a/4` is forgotten for `ann/b/4`, which has its code."""
    known.look(NONE, 1.0)
    assert known.code("ann", "b", 4) == 0


@pytest.mark.parametrize("make", [Asax, AsaxPaper, Measured])
def test_a_share_policy_knows_nothing_of_an_application_that_has_anothers_code(make: Any) -> None:
    known, code = two()
    policy = make(known) if make is Measured else make(load_experts(None), known, np.random.default_rng(1))
    policy.learn(of_codes(code), ended(0))
    policy.decide(of_codes(code))
    assert policy.history.runs[0] == 1
    turned(known)
    policy.learn(of_codes(code), NOBODY)
    assert policy.history.runs[0] == 0 and policy.history.runs[-1] == 1
    if make is not Measured:
        assert policy.weights.rounds[0] == -1


def test_other_policies_know_nothing_of_it_either() -> None:
    known, code = two()
    snapshot = of_codes(code)
    unmeasured = replace(snapshot, jobs=replace(snapshot.jobs, cpu_fraction=np.full(1, np.nan)))
    uses, others, times = Uses(known), Others(600.0, known), RunTimes(known)
    for policy in (uses, others, times):
        policy.learn(unmeasured, ended(0))
    assert uses.of(unmeasured, 0) == 0.5 and times.task_s(snapshot, 0) == 100.0
    assert others._expected_end_s(snapshot, codes(0))[0] < 16_000.0
    assert set(times.changes()) == {"ann/a/4"}
    turned(known)
    for policy in (uses, others, times):
        policy.learn(unmeasured, NOBODY)
    assert uses.of(unmeasured, 0) == 1.0 and times.task_s(snapshot, 0) == 7200.0
    assert others._expected_end_s(snapshot, codes(0))[0] == 16_000.0
    assert times.changes() == {"ann/a/4": None} and times.to_json() == {}


def test_a_class_that_is_forgotten_gives_its_port_to_another() -> None:
    known, code = two()
    policy = PortPlacing("oga", known)
    jobs = [host(0.3), waits(application=code)]
    policy.learn(snapshot_of([held_by(0)], jobs), NOBODY)
    policy.decide(snapshot_of([held_by(0)], jobs))
    assert set(policy.changes()) == {"ann/a/4", "*"}
    assert set(policy.changes()) == set()
    turned(known)
    policy.learn(snapshot_of([held_by(0)], jobs), NOBODY)
    policy.decide(snapshot_of([held_by(0)], jobs))
    changed = policy.changes()
    assert changed["ann/a/4"] is None and changed["ann/b/4"] and set(policy.state()) == {"ann/b/4", "*"}


def test_runs_of_unknown_length_are_not_learned_from() -> None:
    policy = Measured(["ann/a/4"])
    seen = of_codes(0, 0)
    policy.learn(seen, ended(0, run_s=np.nan))
    assert (policy.history.runs[0], policy.history.measured[0]) == (0, 1), "what it used is known"
    policy.learn(seen, ended(1))
    assert (policy.history.runs[0], policy.history.run[0]) == (1, 100.0)
    others = Others(600.0)
    others.learn(seen, ended(0, run_s=np.nan))
    assert others._ran == {}
    paper = AsaxPaper(load_experts(None), ["ann/a/4"], np.random.default_rng(1))
    paper._unlearned[0].append(np.ones(len(paper.experts)))
    paper.learn(seen, ended(0, run_s=np.nan))
    assert paper.weights.cases[0] == 0


def test_only_what_has_changed_is_reported() -> None:
    names = [f"ann/{letter}/4" for letter in "abc"]
    policy = Measured(names)
    policy.learn(of_codes(0, 1, 2), ended(0, 1))
    assert set(policy.changes()) == {"ann/a/4", "ann/b/4", "*"}
    assert policy.changes() == {}
    policy.learn(of_codes(0, 1, 2), ended(2))
    assert set(policy.changes()) == {"ann/c/4", "*"}
    assert set(policy.state()) == {*names, "*"}
    again = Measured([])
    again.restore(json.loads(json.dumps(policy.state())))
    assert again.changes() == {} and again.state() == policy.state()


# ------------------------------------------------------------------------------------------------- the name of a job


def test_the_very_name_of_a_job_is_reported_and_fits_rules() -> None:
    seen = replace(snapshot_of([held_by(0)], [host(0.3), waits()]), names={0: "run-17", 1: "run-18"})
    assert [row["name"] for row in job_rows(seen, ["ann/run-#/4"])] == ["run-17", "run-18"]
    assert RunTimes(["ann/run-#/4"]).application(seen, 1) == "ann/run-18/4"
    bare = replace(seen, names={})
    assert [row["name"] for row in job_rows(bare, ["ann/run-#/4"])] == ["run-#", "run-#"]
    from asad.defer.windows import Rule

    policy = deferral(rules=[Rule(window_s=600.0, names=("run-18",))], applications=["ann/run-#/4"])
    policy.learn(seen, NOBODY)
    assert list(policy.deferrable.jobs) == ["1"]


# ------------------------------------------------------------------------------------------------------------- Slurm


def test_what_its_runs_took_is_forgotten_with_an_application() -> None:
    known = SlurmApplications()
    code = known.code("ann", "sim", 2)
    for _ in range(3):
        known.ended(code, 0.5, 100.0)
    known.ended(code, 0.5, math.nan)
    assert (known.cpu_fraction(code), known.work_core_s(code)) == (0.5, 50.0)
    known._mean_anew(code)
    assert math.isnan(known.cpu_fraction(code)) and math.isnan(known.work_core_s(code))


def test_a_snapshot_has_the_names_of_jobs_and_the_code_of_their_application(tmp_path: Path) -> None:
    lab = Lab(tmp_path, SlurmInMemory())
    lab.slurm.add(running(1, {"n1": 2}, name="sim"), a_job(7, name="run-17"), a_job(8, name="run-18"))
    snapshot = lab.snapshot()
    seven, eight = row(snapshot, "7"), row(snapshot, "8")
    assert (snapshot.names[seven], snapshot.names.get(eight)) == ("run-17", "run-18")
    assert sorted(snapshot.names.values()) == ["run-17", "run-18", "sim"] and len(snapshot.names) == 3
    assert snapshot.names.get(-1) is None and snapshot.names.get(10**6) is None
    code = int(snapshot.jobs.application[seven])
    assert snapshot.jobs.application[eight] == code and lab.cluster.applications[code] == "ann/run-#/2"


# --------------------------------------------------------------------------------------------------------- the store


def test_the_store_keeps_the_last_learned_and_all_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned, "MOST", 3)
    clock = [1000.0]
    monkeypatch.setattr("asad.store.learned.time.time", lambda: clock[0])
    with Store.open(str(tmp_path / "asad.db")) as store:
        learned.save(
            store, "admit", {f"seat {number}": {"n": number} for number in range(9)} | {"*": {"n": 0}}
        )
        learned.save(store, "asax", {f"ann/{number}/1": {"n": number} for number in range(3)})
        clock[0] += UNUSED_S
        learned.save(store, "asax", {"ann/0/1": {"n": 9}, "ann/7/1": {"n": 7}, "ann/8/1": {"n": 8}})
        assert set(learned.load(store, "asax")) == {"ann/0/1", "ann/7/1", "ann/8/1"}
        learned.save(store, "asax", {"ann/8/1": None, "ann/6/1": None})
        assert set(learned.load(store, "asax")) == {"ann/0/1", "ann/7/1", "ann/1/1"}
        learned.save(store, "asax", {"ann/5/1": {}, "ann/6/1": {}})
        assert retention.forget_before(store, 0.0) == 2 + 1
        clock[0] += 1.0
        assert retention.forget_before(store, 0.0) == 0
        assert set(learned.load(store, "asax")) == {"ann/0/1", "ann/5/1", "ann/6/1"}
        assert len(learned.load(store, "admit")) == 10


class Heard:
    """A writer that notes what it is reported."""

    trouble = ""

    def __init__(self) -> None:
        self.written: list[set[str]] = []

    def save_learned(self, scope: str, memory: Mapping[str, Any]) -> None:
        self.written.append(set(memory))


def test_a_save_hands_the_store_what_has_changed_alone() -> None:
    policy, writer = Measured(names := [f"ann/{letter}/4" for letter in "ab"]), Heard()
    stages = Stages(Everyone(), AtOnce(), Native(), policy)
    policy_state = PolicyState(Config(), cast(Any, writer), stages)
    policy_state.loaded.add("share")
    policy.learn(of_codes(0, 1), ended(0, 1))
    for expected in ({*names, "*"}, set[str]()):
        policy_state.save()
        assert writer.written.pop() == expected
    policy.learn(of_codes(0, 1), ended(1))
    again = Stages(Everyone(), AtOnce(), Native(), Measured(names))
    policy_state.save()
    again.take_over(stages)
    policy_state.switch(again)
    policy_state.save()
    assert writer.written == [{"ann/b/4", "*"}, set()], "what is handed over is not reported anew"


# ------------------------------------------------------------------------------------------------------ many of them


UNIQUE, AT_ONCE, SAVED = 200_000, 5_000, 8
LETTERS = str.maketrans("0123456789", "ghijklmnop")
"""Digits would be taken for numbers."""


def flood(policy: Any, known: Applications, jobs: Jobs, used: int) -> None:
    """Jobs of `UNIQUE` names run and end, `AT_ONCE` at a time, beside one of `used` in every look."""
    seen = of_codes(*[0] * 4)
    rows = np.arange(1, AT_ONCE + 1, dtype=np.int32)
    shown = Finished(
        np.arange(AT_ONCE + 1, dtype=np.int32),
        *(np.full(AT_ONCE + 1, value) for value in (NOW, 100.0, 0.0, 0.5)),
    )
    for begin in range(0, UNIQUE, AT_ONCE):
        known.look(jobs.application, NOW + begin)
        jobs.application[0] = used
        for at, name in zip(rows.tolist(), range(begin, begin + AT_ONCE), strict=True):
            jobs.application[at] = known.code(f"user{name % 20}", f"{name:x}".translate(LETTERS), 4)
        policy.learn(
            replace(seen, jobs=jobs, queue=NONE, running=NONE, core_owner=0 * seen.core_owner - 1), shown
        )


@pytest.mark.slow
def test_two_hundred_thousand_names_stay_bounded_and_a_restart_knows_the_used_ones(tmp_path: Path) -> None:
    known = Applications()
    known.look(NONE, NOW)
    used = known.code("ann", "used", 4)
    jobs = blank_jobs(AT_ONCE + 1)
    jobs.time_limit_s[:] = 3600.0
    policy, times, uses = (
        Asax(load_experts(None), known, np.random.default_rng(1)),
        RunTimes(known),
        Uses(known),
    )

    class All:
        def learn(self, snapshot: Snapshot, finished: Finished) -> None:
            for one in (policy, times, uses):
                one.learn(snapshot, finished)
            looks.append(finished)
            if len(looks) % SAVED == 0:
                with Store.open(str(tmp_path / "asad.db")) as store:
                    learned.save(store, "asax", policy.changes())

    looks: list[Finished] = []
    flood(All(), known, jobs, used)
    most = MOST + 1
    assert len(known) <= most and len(known._code) <= most and len(known._of) <= 21
    assert all(len(mine) <= MOST_OF_ONE for mine in known._of.values())
    assert len(policy.history.runs) <= 2 * most + 1 and policy.weights.alpha.shape[0] <= 2 * most + 1
    assert len(policy._learned.names) <= most and len(policy.state()) <= most + 1
    assert len(policy._learned._to_come) == len(policy._learned._forgotten) == 0
    assert len(times.to_json()) <= most and len(times._changed) <= 3 * MOST and len(uses._known) <= most
    with Store.open(str(tmp_path / "asad.db")) as store:
        memory = learned.load(store, "asax")
    assert len(memory) <= most + 1
    again = Asax(load_experts(None), Applications(), np.random.default_rng(1))
    again.restore(memory)
    entry = again.state()["ann/used/4"]["history"]
    assert isinstance(entry, dict) and entry["runs"] == UNIQUE / AT_ONCE
    assert again.state()["*"] == policy.state()["*"]
    assert applications.MOST == MOST
