"""Statements of work on a real Slurm: planned, started in their round, charged, evicted as agreed, past kill -9 too."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from asad_slurm.undo import main as asad_undo
from asad_slurm.undo import open_changes
from asad_under_test import Asad, until, until_exists

from asad.api.control import ask
from asad.model import HOUSE
from asad.store import statements as stated
from asad.store.store import Store
from lab.slurm import RealSlurm

ROUND_S = 5.0
SOON = "--begin=now+8"
"""Slurm starts a job on idle cores before anybody has looked at it; this leaves the daemon a few cycles."""
SCOPE = "slurm/admit/sow"
_numbers = itertools.count()


@pytest.fixture
def asad(slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asad]:
    """The daemon with `sow` on two cores, of which it sells both, lending nothing."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    sow = {
        "round_s": ROUND_S,
        "span": 60,
        "most_rounds": 40,
        "most_cores": 1,
        "patience_s": 2.0,
        "delta": -0.3,
    }
    settings = {"policies": {"share": "exclusive", "admit": "sow"}, "admit": {"sow": sow}}
    with Asad(slurm, settings) as asad:
        yield asad


def asactl(asad: Asad, *words: str) -> Any:
    """What a command prints as JSON."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("asactl")), *words, "--socket", str(asad.socket), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def announce(asad: Asad, folder: Path, due: str, takes: str, **facts: str) -> Mapping[str, Any]:
    """Submit a statement by a file, as its owner does; what is informed of it."""
    known = {
        "cores": "1",
        "due": f'"{due}"',
        "runs": f'[["0s", "{takes}", 1.0]]',
        "value": "900",
        "deadline": '"4m"',
    }
    lines = [f"{key} = {value}" for key, value in (known | facts).items()]
    path = folder / f"statement-{next(_numbers)}.toml"
    path.write_text("version = 1\n[[statement]]\n" + "\n".join(lines) + "\n")
    answer = asactl(asad, "sow", "submit", str(path))
    assert answer["acts"] and answer["kept"]
    (answers,) = answer["statements"]
    assert answers["state"] == "planned", answers
    return answers  # type: ignore[no-any-return]


def state(asad: Asad, number: int) -> Mapping[str, Any]:
    """What is reported of one statement."""
    rows = asactl(asad, "sow", "status", str(number))["statements"]
    return rows[0]  # type: ignore[no-any-return]


def begin_s(slurm: RealSlurm, job: str) -> float:
    """When a waiting job begins, as Slurm has it; 0 for at once."""
    (found,) = [one for one in slurm.squeue() if str(one["job_id"]) == job]
    return float(found["eligible_time"]) if found["eligible_time"] > time.time() else 0.0


def submit(slurm: RealSlurm, script: str, *options: str) -> str:
    return slurm.submit(script, "--time=10", *options)


def test_a_stated_job_starts_in_its_planned_round_completes_and_is_charged(
    slurm: RealSlurm, asad: Asad, tmp_path: Path
) -> None:
    menu = asactl(asad, "sow", "quote", "--cores", "1", "--time", "5s")
    assert menu["menu"][1]["price"] > 0 and menu["menu"][1]["failure"] == 0
    answers = announce(asad, tmp_path, "+15s", "4s")
    number, start_s = answers["statement"], answers["plan"][0][1]
    assert start_s % ROUND_S == 0 and start_s > time.time()
    job = submit(slurm, "sleep 3", SOON, f"--comment=asad:sow={number}")
    until(lambda: begin_s(slurm, job) == start_s, lambda: f"it waits for its round: {state(asad, number)}")
    assert (job, "StartTime") in open_changes(asad.journal)
    (waiting,) = [one for one in slurm.squeue() if str(one["job_id"]) == job]
    assert waiting["admin_comment"].startswith("asad: admitted by sow: it starts as planned")
    slurm.wait(job)
    facts = slurm.job(job)
    assert facts["JobState"] == "COMPLETED"
    until(
        lambda: state(asad, number)["state"] == "completed", lambda: f"it is charged: {state(asad, number)}"
    )
    done = state(asad, number)
    assert done["started_s"] >= start_s
    price = menu["menu"][1]["price"]
    assert done["paid"] == pytest.approx(price, rel=0.5) and done["paid"] > 0
    with Store.open(asad.store_url, create=False) as store:
        lines = stated.entries(store)
        assert {line.account: line.amount_micro for line in lines} == {
            "root": -round(1e6 * done["paid"]),
            HOUSE: round(1e6 * done["paid"]),
        }
        assert sum(one.balance_micro for one in stated.balances(store)) == 0
    ledger = asactl(asad, "sow", "ledger")
    assert ledger["sum"] == 0 and [one["what"] for one in ledger["entries"]] == ["paid", "paid"]


def test_kill_9_leaves_no_hold_and_no_second_plan(slurm: RealSlurm, asad: Asad, tmp_path: Path) -> None:
    first = announce(asad, tmp_path, "+30s", "4s")
    second = announce(asad, tmp_path, "+200s", "4s")
    numbers = first["statement"], second["statement"]
    jobs = [submit(slurm, "sleep 2", SOON, f"--comment=asad:sow={number}") for number in numbers]
    starts = first["plan"][0][1], second["plan"][0][1]
    until(lambda: [begin_s(slurm, job) for job in jobs] == list(starts), "both wait for their rounds")
    asad.kill("asad")
    with Store.open(asad.store_url, create=False) as store:
        plans = stated.plans(store, SCOPE, list(numbers))
    assert [begin_s(slurm, job) for job in jobs] == list(starts)
    # the next daemon goes on with what was promised
    asad.start("asad")
    asad.wait_until_whole()
    asad.next_cycles(3)
    assert [begin_s(slurm, job) for job in jobs] == list(starts)
    assert [state(asad, number)["state"] for number in numbers] == ["arrived", "arrived"]
    with Store.open(asad.store_url, create=False) as store:
        assert stated.plans(store, SCOPE, list(numbers)) == plans
    # and when none goes on, the first starts by itself, and what the unit runs lets the other go
    asad.kill("asad")
    slurm.wait(jobs[0], timeout_s=300)
    assert slurm.job(jobs[0])["JobState"] == "COMPLETED" and time.time() >= starts[0]
    assert begin_s(slurm, jobs[1]) == starts[1]
    assert asad_undo(["--state-dir", str(asad.journal.parent)]) == 0
    slurm.wait(jobs[1])
    assert slurm.job(jobs[1])["JobState"] == "COMPLETED" and time.time() < starts[1]
    assert not open_changes(asad.journal)
    asad.start("asad")
    asad.wait_until_whole()
    until(
        lambda: {state(asad, number)["state"] for number in numbers} <= {"withdrawn", "failed"},
        lambda: f"nobody looked on when they ended: {[state(asad, number) for number in numbers]}",
    )
    with Store.open(asad.store_url, create=False) as store:
        assert sum(abs(line.amount_micro) for line in stated.entries(store)) == 0, "nobody pays for that"


@pytest.mark.parametrize("how", ["requeue-hold", "cancel"])
def test_the_latest_born_is_evicted_as_its_owner_chose(
    slurm: RealSlurm, asad: Asad, tmp_path: Path, how: str
) -> None:
    gate = slurm.folder / "jobs" / f"statements-{next(_numbers)}"
    first = announce(asad, tmp_path, "+60s", "20s")["statement"]
    # it is worth something only if it starts soon after it comes, which on a busy machine may be late, and before the
    # first: whatever its start, it meets all rounds of that, so that none is cheaper for being later
    rows = ", ".join(f'["{late}s", "120s", {chance}]' for late, chance in ((1, 0.4), (12, 0.3), (35, 0.3)))
    facts = {"eviction": f'"{how}"', "deadline": '"165s"', "runs": f"[{rows}]"}
    answers = announce(asad, tmp_path, "+0s", "120s", **facts)
    second = answers["statement"]
    assert max(start for _, start, _ in answers["plan"]) < state(asad, first)["plan"][0][1], answers["plan"]
    late = submit(slurm, until_exists(gate), f"--comment=asad:sow={second}")
    # it comes before it is due, and waits for its round: however busy the machine is, it does not come too late
    early = submit(slurm, "sleep 5", "--begin=now+50", f"--comment=asad:sow={first}")
    slurm.wait(late, state="RUNNING")
    until(lambda: state(asad, second)["state"] == "running", lambda: f"it is known: {state(asad, second)}")
    other = submit(slurm, until_exists(gate))  # nobody announced it, and nobody may end it
    slurm.wait(other, state="RUNNING")
    until(
        lambda: state(asad, second)["state"] == "evicted",
        lambda: f"it has to go: {asactl(asad, 'sow', 'status')}",
    )
    slurm.wait(early)
    assert slurm.job(early)["JobState"] == "COMPLETED" and slurm.job(other)["JobState"] == "RUNNING"
    facts = slurm.job(late)
    if how == "cancel":
        assert facts["JobState"] == "CANCELLED"
    else:
        assert (facts["JobState"], facts["Restarts"], facts["Priority"]) == ("PENDING", "1", "0")
    kinds = asad.kinds_decided(late)
    assert "evict" in kinds and "evict" not in asad.kinds_decided(other)
    until(lambda: state(asad, first)["state"] == "completed", lambda: f"it is charged: {state(asad, first)}")
    with Store.open(asad.store_url, create=False) as store:
        lines = {
            (line.number, line.account): (line.what, line.amount_micro) for line in stated.entries(store)
        }
    assert lines[second, "root"] == ("evicted", 0) and lines[first, "root"][0] == "paid"
    assert lines[first, "root"][1] == -lines[first, HOUSE][1] < 0
    # its owner lets it go, and it runs as any other: what was promised is over
    gate.touch()
    if how == "requeue-hold":
        slurm.run("scontrol", "release", late)
        # Slurm lets more than a minute pass before a requeued job begins anew
        until(lambda: slurm.job(late)["Priority"] != "0", "it waits as any other")
        assert state(asad, second)["state"] == "evicted"
    slurm.wait(other)
    assert slurm.job(other)["JobState"] == "COMPLETED"
    assert ask(asad.socket, "status")["cycles"]["failed"] == 0
