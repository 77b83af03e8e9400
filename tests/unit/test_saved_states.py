"""What earlier versions saved of jobs that they held back is known again, as tests/golden/saved has it from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deferred_cluster import HOUR_S, Yielding, deferral
from deferred_cluster import cycle_of as deferring
from deferred_cluster import job as deferrable
from slotted_cluster import EPOCH, AsSoonAsRoom, Job, Obedient
from stated_cluster import OPTIONS, ROUND_S, Evicting, FirstFit
from stated_cluster import job as stated

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.sow.statements_policy import Statements
from asad.config import GuardSettings
from asad.cycle import Cycle
from asad.defer.at_once import AtOnce
from asad.guard import guard_for
from asad.place.native import Native
from asad.share.exclusive import Exclusive

SAVED = Path(__file__).parents[1] / "golden" / "saved"
WORTH = "utility=constant(10)"


def saved(name: str) -> Any:
    return json.loads((SAVED / f"{name}.json").read_text())


def looked_at(cluster: Obedient, policy: Any) -> Cycle:
    """One cycle of a daemon that knows what the one before it saved."""
    cycle = Cycle(cluster, policy, AtOnce(), Native(), Exclusive(), guard_for(frozenset(), GuardSettings()))
    cycle.run_once()
    return cycle


def test_admission_knows_what_an_earlier_version_held_back() -> None:
    jobs = [
        Job("7", 100.0, 6, hint=WORTH, array=True, throttle=2),
        Job("8", 100.0, 6, hint=WORTH, array=True, throttle=2),
        Job("9", 150.0, cores=2, hint=WORTH),
        Job("6", 100.0, hint="utility=bribe(3)"),
    ]
    jobs[1].begin_s = EPOCH + 6 * 100.0
    for job in jobs:
        job.admitted = False
    cluster = Obedient([2], jobs)
    policy = Admission(
        "as-soon", AsSoonAsRoom, cluster.applications, Options(slot_s=100.0, horizon=40, again_s=100.0)
    )
    policy.restore(saved("admission"))
    looked_at(cluster, policy)
    story = {name: policy.explain(name) or {} for name in "6789"}
    assert [story[name]["verdict"] for name in "6789"] == ["unfit", "admitted", "admitted", "admitted"]
    assert story["8"]["deferred_s"] == EPOCH + 600.0 and not story["8"]["let_go"]
    assert story["9"]["let_go"], "what its user took back by hand stays so"
    assert "defer" not in cluster.kinds("9") and "defer" not in cluster.kinds("8")
    assert policy.state()["seat 3"]["let_go"] is saved("admission")["seat 3"]["let_go"]


def test_statements_know_what_an_earlier_version_promised() -> None:
    cluster = Evicting([4], [stated("7", at=1, hint="sow=2", cores=2), stated("8", 4, cores=4, hint="sow=1")])
    policy = Statements("sow", FirstFit, cluster.applications, OPTIONS)
    policy.restore(saved("statements"))
    cluster.run(EPOCH + 3 * ROUND_S)
    cluster.jobs[0].begin_s = EPOCH + 4 * ROUND_S
    before = {name: one["row"]["progress"] for name, one in saved("statements").items() if name[-1].isdigit()}
    again = policy.state()
    for name, progress in before.items():
        assert again[name]["row"]["progress"] == progress  # type: ignore[index, call-overload]
    looked_at(cluster, policy)
    assert policy.explain("7")["start_s"] == EPOCH + 4 * ROUND_S  # type: ignore[index]
    assert "defer" not in cluster.kinds("7"), "it is held back already"


def test_deferral_knows_whose_hold_was_taken_back_before_an_upgrade() -> None:
    cluster = Yielding(
        [2],
        [deferrable("1", 3000.0, 2), *(deferrable(name, 600.0, 1, 2 * HOUR_S) for name in "23")],
    )
    policy = deferral()
    policy.restore(saved("deferral"))
    deferring(cluster, policy).run_once()
    states = {name: (policy.explain(name) or {})["state"] for name in "23"}
    assert states["2"] == "by hand" and states["3"] != "by hand"
    assert policy.state()["*"]["by_hand"] == ["2"]
