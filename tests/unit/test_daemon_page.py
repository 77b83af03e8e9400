"""What a daemon answers to the live page: columns as of the last cycle, once for everybody, and whose is what."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_cluster import GUEST, HOST, NOW, OFFERED, OTHER_HOST, WAITING, cluster
from test_daemon import CAUSE, Held, Life, live, wait_for
from test_share_pool import NOBODY, held_by, host, snapshot_of, waits

from asad.api.control import Peer, Request
from asad.daemon import page_requests
from asad.daemon.page_tables import NAME, job_columns, node_columns
from asad.decisions import CoAllocate, Outcome, SetShare
from asad.experts import load_experts
from asad.model import Finished
from asad.share import drawn_experts
from asad.share.asax import Asax
from asad.share.asax_paper import AsaxPaper
from asad.share.learner import new_weights
from asad.share.static import Static
from asad.status import job_rows, node_rows

__all__ = ["live"]  # the fixture

APPLICATIONS = ["ann/sim/4"]


def test_columns_of_jobs_are_the_rows_of_asactl() -> None:
    snapshot = cluster()
    columns, rows = job_columns(snapshot, APPLICATIONS), job_rows(snapshot, APPLICATIONS)
    for name, values in columns.items():
        wanted = [row[name] for row in rows]
        if name == "host":
            wanted = [value or "" for value in wanted]
        assert values == wanted, name


def test_columns_of_nodes_are_the_rows_of_asactl_but_for_what_they_sum_up() -> None:
    snapshot = cluster(node_bar={1: 2})
    columns, rows = node_columns(snapshot, ["n0"], True), node_rows(snapshot, {}, NOW)
    assert columns["node"] == [row["node"] for row in rows] and columns["bar"] == [row["bar"] for row in rows]
    assert columns["allocated"] == [4, 4] and columns["silent"] == [False, True]
    assert columns["used"] == [0.3 * 4 + 0.9 * 2, 0.2 * 4]
    assert columns["lent"] == [row["lent"] * row["cores"] for row in rows] == [0.3 * 4, 0.0]
    assert columns["guests"] == [1, 0]


def test_what_a_guest_draws_from_a_pool_counts_by_what_it_needs() -> None:
    snapshot = cluster(demand={GUEST: 0.5}, host={GUEST: -1}, share={GUEST: math.nan})
    columns, rows = node_columns(snapshot, [], False), node_rows(snapshot, {}, NOW)
    assert columns["lent"] == [row["lent"] * row["cores"] for row in rows] == [1.0, 0.0]
    assert columns["silent"] == [False, False], "a cluster without actors misses none"


def test_pools_are_shown_where_there_are_some_of_these_very_nodes() -> None:
    assert node_columns(cluster(), [], False, np.array([1.26, math.nan]))["pool"] == [1.3, None]
    assert "pool" not in node_columns(cluster(), [], False, np.zeros(3))
    assert "pool" not in node_columns(cluster(), [], False)


def test_nobody_knows_what_unmeasured_jobs_use() -> None:
    columns = node_columns(cluster(cpu_fraction={OTHER_HOST: math.nan}, pressure={HOST: 0.4}), [], False)
    assert columns["used"] == [pytest.approx(3.0), None] and columns["pressure"] == [0.4, 0.0]


def test_a_name_of_thousands_of_letters_is_cut() -> None:
    columns = job_columns(cluster(), [f"ann/{'x' * 5000}/4"])
    assert {len(str(name)) for name in columns["name"]} == {NAME}  # type: ignore[union-attr]


def test_an_empty_cluster_has_empty_columns() -> None:
    snapshot = cluster()
    nothing = np.zeros(0, np.int32)
    for name in ("queue", "running", "guests"):
        object.__setattr__(snapshot, name, nothing)
    assert set(map(len, job_columns(snapshot, APPLICATIONS).values())) == {0}  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- the daemon


def test_the_page_is_answered_as_of_the_last_cycle_and_the_same_is_not_sent_again(
    live: Callable[..., Life],
) -> None:
    life = live()
    page = life.ask("page")
    assert page["jobs"]["job"] == ["12", "10", "11", "13", "14"] and page["nodes"]["node"] == ["n0", "n1"]
    assert page["status"]["mode"] == "enforce" and page["private"] is False and page["admission"] is None
    same = page
    while "same" not in same:  # there may be a cycle in between
        same = life.ask("page", as_of=same["as_of"])
    assert set(same) == {"as_of", "same", "now_s", "doing", "paused"}


def test_tables_are_made_once_however_many_ask(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(snapshot: Any, applications: Any) -> Any:
        made.append("jobs")
        return job_columns(snapshot, applications)

    monkeypatch.setattr(page_requests, "job_columns", counted)
    life = live()
    seen = {life.ask("page")["as_of"] for _ in range(40)}
    assert len(made) <= len(seen)


def test_decisions_are_shown_as_they_fall_with_whose_jobs_they_are_about(live: Callable[..., Life]) -> None:
    life = live()
    life.wishes.wishes = [CoAllocate(CAUSE, WAITING, (0, 1), host=HOST, share=0.2)]
    wait_for(lambda: life.ask("page")["decisions"])
    first = life.ask("page")["decisions"][0]
    assert first["number"] == 1 and first["kind"] == "co-allocate" and first["verdict"] in ("done", "vetoed")
    assert (
        first["jobs"] == ["13", "10"] and first["users"] == ["ann", "ann"] and first["nodes"] == ["n0", "n1"]
    )


def test_what_became_of_a_decision_is_one_word() -> None:
    from asad.daemon.cycle_records import recent_row

    share = SetShare(CAUSE, share=0.5, host=HOST)
    verdicts = {
        "done": Outcome(share, True, ""),
        "advised": Outcome(share, False, "advise"),
        "refused": Outcome(share, False, "Slurm refused"),
        "vetoed": Outcome(share, False, "vetoed (x): y", veto="x"),
    }
    for verdict, outcome in verdicts.items():
        row = recent_row(1, cluster(), outcome, APPLICATIONS)
        assert row["verdict"] == verdict and row["jobs"] == ["10"]
    assert OFFERED


class Private(Held):
    """A cluster that shows users their own jobs alone."""

    def hides_jobs(self) -> bool:
        return True


def test_whether_jobs_are_private_is_the_clusters_to_say_unless_it_is_configured(
    live: Callable[..., Life],
) -> None:
    life = live(held=Private())
    assert life.ask("page")["private"] is True


def test_the_configuration_has_the_last_word_on_privacy(live: Callable[..., Life]) -> None:
    life = live(held=Private(), more='[web]\nprivate = "no"')
    assert life.ask("page")["private"] is False


def test_statements_are_given_to_those_alone_who_may_read_them(
    live: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(more='[web]\nuser = "daemon"')
    requests = life.daemon.requests
    monkeypatch.setattr(page_requests, "_or_none", lambda make: {"policy": "sow", "statements": []})
    import pwd

    def statements(uid: int) -> Any:
        answer = requests.handle(Request("page"), Peer(uid, 4_000_000, 1))
        assert isinstance(answer, dict)
        return answer["statements"]

    assert statements(pwd.getpwnam("daemon").pw_uid) is not None, "asad-web shows them to their owners"
    assert statements(os.geteuid()) is not None
    assert statements(4_000_000) is None


# ---------------------------------------------------------------------------------------------------------- experts


def test_experts_are_described_with_weights_and_the_leaves_that_hosts_reached() -> None:
    experts, snapshot = load_experts(None)[:2], cluster()
    names = tuple(f"{number}" for number in range(9))
    drawn_at, share = np.full(5, math.nan), np.zeros(5)
    nothing = drawn_experts.leaves(snapshot, drawn_at, np.zeros((5, 2), np.int32), share, names)
    assert nothing == {"last": None, "reached": []}
    drawn_at[[HOST, OTHER_HOST, GUEST]], share[OTHER_HOST] = [50.0, 70.0, 99.0], 0.4
    leaf = np.array([[0, 4], [1, 4], [2, 5], [0, 0], [0, 0]], np.int32)
    reached = drawn_experts.leaves(snapshot, drawn_at, leaf, share, names)
    assert reached["last"] == {"job": "11", "time_s": 70.0, "share": 0.4, "leaves": ["1", "4"]}
    assert reached["reached"] == [{"0": 1, "1": 1}, {"4": 2}], "of hosts that run, guests draw nothing"
    weights = new_weights(2, 2)
    weights.rounds[1] = 3
    described = drawn_experts.describe(experts, weights, ["ann/a/1", "bob/b/1"], reached)
    assert described["weights"] == [0.5, 0.5] and described["applications"] == [["bob/b/1", 3, [0.5, 0.5]]]
    assert [tree["name"] for tree in described["experts"]] == [one.name for one in experts]  # type: ignore[index,union-attr]


@pytest.mark.parametrize("make", [Asax, AsaxPaper])
def test_every_policy_with_expert_trees_describes_them(make: type[Asax] | type[AsaxPaper]) -> None:
    experts = load_experts(None)
    policy = make(experts, ["a/b/1"], np.random.default_rng(1))
    jobs = [host(0.1), host(0.1), *(waits(1e6) for _ in range(6))]
    seen = snapshot_of([held_by(0), held_by(1)], jobs)
    assert isinstance(policy, drawn_experts.HasExperts) and not isinstance(
        Static(0.5), drawn_experts.HasExperts
    )
    policy.learn(seen, NOBODY)
    assert policy.drawn_experts(seen)["last"] is None
    policy.decide(seen)
    drawn: Any = json.loads(json.dumps(policy.drawn_experts(seen)))
    assert (
        drawn["last"]["job"] in ("0", "1")
        and drawn["last"]["time_s"] == seen.time_s
        and drawn["last"]["share"] > 0
    )
    for tree, leaf, reached in zip(drawn["experts"], drawn["last"]["leaves"], drawn["reached"], strict=True):
        assert leaf in reached and {*reached} <= {one["name"] for one in tree["leaves"]}
    over = replace(seen, running=seen.running[:0])
    policy.learn(over, Finished(seen.running, *np.full((4, 2), 100.0)))
    assert policy.drawn_experts(over)["last"] is None
