"""Several admit policies side by side: live, each with what it had promised before; the guard sees who consents to an
eviction; figures over seeds."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from configured_policies import put_policy
from stated_cluster import EPOCH, OPTIONS, Evicting, FirstFit, announced, job
from test_daemon import configuration, wait_for
from test_daemon_statements import SCOPE, Live, seen

from asad.admit.everyone import Everyone
from asad.admit.side_by_side import SideBySide
from asad.admit.sow.statements_policy import Statements
from asad.api.control import ask
from asad.config import parse
from asad.cycle import Cycle
from asad.daemon import Daemon
from asad.defer.at_once import AtOnce
from asad.errors import ConfigError, UsageError
from asad.guard import REPLAY, guard_for
from asad.place.native import Native
from asad.share.exclusive import Exclusive
from asad.stages import Circumstances, policy_of, stages_of
from asad.store import learned
from asad.store import statements as stated
from asad.store.store import Store
from asad_papers.together.mixed_kinds import over_seeds


def both(names: Sequence[str] = ()) -> SideBySide:
    oasis = policy_of(parse('[policies]\nadmit = "oasis"\n', Path("x")), "admit", Circumstances(names))
    return SideBySide([Statements("sow", FirstFit, names, OPTIONS), oasis])


def test_who_consents_later_is_seen_by_a_guard_made_before() -> None:
    policy = both()
    consents = policy.consents
    policy.parts[0].statements.register.consents["7"] = "end"
    assert dict(consents) == {"7": "end"}


def test_each_answers_for_its_own_kind() -> None:
    policy = both()
    assert policy.statements is policy.parts[0] and policy.admission is policy.parts[1]
    alone = SideBySide([Statements("sow", FirstFit, (), OPTIONS), Statements("twice", FirstFit, (), OPTIONS)])
    with pytest.raises(UsageError, match="no jobs are planned by utility"):
        _ = alone.admission
    with pytest.raises(UsageError, match="no statements of work"):
        _ = SideBySide([policy.parts[1], Everyone()]).statements


def test_what_is_learned_goes_by_the_name_of_the_part() -> None:
    made = stages_of(parse('[policies]\nadmit = "sow+oasis"\nshare = "exclusive"\n', Path("x")), ())
    assert made.scopes == {"admit/sow": "admit/sow", "admit/oasis": "admit/oasis"}
    single = stages_of(parse('[policies]\nadmit = "sow"\nshare = "exclusive"\n', Path("x")), ())
    assert single.scopes == {"admit": "admit/sow"}, "who is joined by another knows what he knew alone"
    assert made.slots == [(part.name, part.slot_s) for part in made.admit.parts]


@pytest.mark.parametrize("names", ["sow+sow", "sow+everyone"])
def test_what_cannot_stand_side_by_side_is_refused(names: str) -> None:
    with pytest.raises(ConfigError, match="name different ones"):
        stages_of(parse(f'[policies]\nadmit = "{names}"\n', Path("x")), ())


def planned(policy: SideBySide) -> set[str]:
    return {one["job"] for one in jobs_of(policy.admission.overview())}


def test_who_is_an_earlier_ones_is_not_planned_by_a_later_one_any_more() -> None:
    worth = "utility=sigmoid(5, 0.1, 400s)"
    cluster = Evicting(
        [4], [job("7", at=0, cores=2, hint=f"sow=1;{worth}"), job("8", at=0, cores=1, hint=worth)]
    )
    policy, guard = both(["ann/train/2", "ann/train/1"]), guard_for(frozenset(), REPLAY)
    cycle = Cycle(cluster, policy, AtOnce(), Native(), Exclusive(), guard)
    cycle.run_once()
    assert planned(policy) == set(), "it is not known yet what was promised to whom"
    policy.parts[0].restore({})
    cycle.run_once()
    assert planned(policy) == {"8"}
    cluster.jobs[1].hint = f"sow=2;{worth}"
    cycle.run_once()
    assert planned(policy) == set(), "what was planned for it is free again"
    policy.parts[0].planning.ready = False
    cluster.jobs[1].hint = worth
    cycle.run_once()
    assert planned(policy) == set()


@pytest.mark.slow
def test_a_daemon_with_both_goes_on_with_what_each_had_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_policy(monkeypatch, "admit", both)
    cluster = Live(
        [
            job("9", at=0, cores=4, run=4),
            job("7", at=1, cores=2, hint="sow=1", begin_s=EPOCH + 150),
            job("8", at=1, cores=1, hint="utility=sigmoid(5, 0.1, 400s)"),
        ]
    )
    daemons: list[tuple[Daemon, threading.Thread]] = []

    def begin() -> Daemon:
        daemon = Daemon(configuration(tmp_path, "enforce"), cluster=cluster, clock=lambda: cluster.now_s)
        thread = threading.Thread(target=daemon.run)
        thread.start()
        daemons.append((daemon, thread))
        wait_for(lambda: not thread.is_alive() or daemon.endpoint is not None, 300)
        seen(cluster, 2)
        return daemon

    def stop() -> None:
        daemon, thread = daemons.pop()
        daemon.stop()
        thread.join(300)

    try:
        begin()
        (stated_now,) = ask(
            tmp_path / "s", "sow-submit", user="ann", statements=[announced("", due=6, cores=2).to_json()]
        )["statements"]
        assert stated_now["statement"] == 1
        cluster.pass_rounds(2)
        assert cluster.jobs[1].begin_s == EPOCH + 600.0, "the statement's job is held to its plan"
        assert "8" in {one["job"] for one in jobs_of(ask(tmp_path / "s", "admission"))}
        stop()
        assert math.isnan(cluster.jobs[1].begin_s), "a daemon that stops releases"
        with Store.open(str(tmp_path / "asad.db")) as store:
            assert [one.number for one in stated.statements(store, SCOPE)] == [1]
            assert learned.load(store, "slurm/admit/oasis"), "oasis' own knowledge stands beside it"
        begin()
        wait_for(lambda: cluster.jobs[1].begin_s == EPOCH + 600.0)
        assert ask(tmp_path / "s", "sow-ledger")["entries"] == []
    finally:
        while daemons:
            stop()


def jobs_of(overview: Any) -> list[dict[str, Any]]:
    return [dict(one) for one in overview["jobs"]]


def test_figures_over_seeds_are_means_with_the_error_of_ratios_within_a_seed() -> None:
    def run(welfare: float, ordinary: float | None) -> dict[str, Any]:
        row = {"welfare": welfare, "evicted": None, "response_mean_s": {"ordinary": ordinary}}
        return {"sow": {**row, "welfare": 10.0}, "lending": dict(row), "together": dict(row)}

    found = over_seeds([run(9.0, 60.0), run(11.0, 120.0)])["together"]
    assert found["welfare"] == {"mean": 10.0, "error": pytest.approx(1.0)}
    assert found["welfare_over_sow"]["mean"] == pytest.approx(1.0)
    assert found["evicted"] == {"mean": None, "error": None}
    assert found["ordinary_over_lending"] == {"mean": 1.0, "error": 0.0}
    assert found["response_mean_s"]["ordinary"]["mean"] == 90.0
    assert over_seeds([run(9.0, None)])["together"]["ordinary_over_lending"]["mean"] is None
