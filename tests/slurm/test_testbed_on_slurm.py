"""Arrays under `oasis` on a real Slurm: as wide as planned, their own throttles at the daemon's stop, all completed."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asad_slurm.undo import open_changes
from asad_under_test import Asad, until
from test_admission_on_slurm import Port

from asad.api.control import Refused, ask
from lab.slurm import RealSlurm

SLOT_S = 5.0
SOON, TASKS = 4, 10
"""So many tasks of an array end at once, of so many; the others when they are let."""


@pytest.fixture
def port(slurm: RealSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    port = Port(slurm, tmp_path)
    yield port
    port.let_end()
    port.cluster.close()


@pytest.fixture
def asad(slurm: RealSlurm) -> Iterator[Asad]:
    """The daemon with `oasis`, lending nothing."""
    settings = {
        "daemon": {"interval_s": 0.5},
        "policies": {"share": "exclusive", "admit": "oasis"},
        "admit.oasis": {"slot_s": SLOT_S, "horizon": 400, "budget": 0.0},
    }
    with Asad(slurm, settings) as asad:
        yield asad


class Planned(NamedTuple):
    """What the daemon has planned for an array at one time."""

    slot: int
    tasks: int
    """At one time in that slot, or in the next one that has any."""
    runs: bool
    """It has a place in this slot."""


def planned(asad: Asad, job: str, own: int) -> Planned | None:
    """Of an array whose user has bounded it to `own` tasks; None while it is not admitted, or its plan is over."""
    try:
        answer: Any = ask(asad.socket, "admission", job=job)
    except Refused:  # it has not been seen yet
        return None
    if answer["verdict"] != "admitted":
        return None
    slot = math.floor(answer["now_s"] / SLOT_S)
    widths = {round(start_s / SLOT_S): width for start_s, width in answer["schedule"]}
    ahead = [at for at in widths if at >= slot]
    return Planned(slot, min(own, widths[min(ahead)]), min(ahead) == slot) if ahead else None


def test_arrays_are_as_wide_as_planned_and_their_users_own_when_the_daemon_stops(
    port: Port, asad: Asad
) -> None:
    slurm = port.slurm
    script = f"until [ $SLURM_ARRAY_TASK_ID -lt {SOON} ] || [ -e {port.gate} ]; do sleep 0.2; done"
    hint = "--comment=asad:utility=constant(50);workers=1"
    own = {
        slurm.submit(script, "--time=3", f"--array=0-{TASKS - 1}%{throttle}", hint): throttle
        for throttle in (5, 4)
    }
    first, _ = own
    slots: dict[str, set[int]] = {job: set() for job in own}

    def follows(job: str) -> bool:
        """Does Slurm show the throttle of the plan, in one slot that is the same before and after?"""
        before = planned(asad, job, own[job])
        waits = [one for one in port.records(job) if one["job_state"] == "PENDING"]
        if not waits or (throttle := waits[0]["array_max_tasks"]) == own[job]:
            return False  # no task waits at this moment, or nothing is set yet
        after = planned(asad, job, own[job])
        if before is None or before != after or throttle != before.tasks:
            return False
        slots[job].add(before.slot)
        return True

    def story() -> str:
        plans = {job: (planned(asad, job, throttle), port.records(job)) for job, throttle in own.items()}
        return f"{plans}\n{asad.last_words()}"

    def both_follow() -> bool:
        """Each in two slots, by which time it may have been planned anew; side by side, since tasks end meanwhile."""
        for job, seen in slots.items():
            if len(seen) < 2:
                follows(job)
        return all(len(seen) >= 2 for seen in slots.values())

    until(both_follow, lambda: f"both follow their plans: {slots} {story()}")
    until(lambda: port.array(first)["ended"] >= SOON, lambda: f"its tasks end under its throttle: {story()}")
    assert {(job, "ArrayTaskThrottle") for job in own} <= set(open_changes(asad.journal))

    asad.kill("asad", signal.SIGTERM)
    for job, throttle in own.items():
        assert port.facts(job) == (throttle, 0, 0), asad.last_words()
    assert not open_changes(asad.journal)

    port.let_end()

    def accounted() -> dict[str, int]:
        rows = slurm.sacct("-X", "-j", ",".join(own), fields="JobID,State")
        found = dict.fromkeys(own, 0)
        for row in rows:
            found[row["JobID"].partition("_")[0]] += row["State"] == "COMPLETED"
        return found

    until(lambda: accounted() == dict.fromkeys(own, TASKS), lambda: f"every task completes: {accounted()}")
