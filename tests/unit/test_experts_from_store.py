"""Trees that are learned from what lending has recorded, and compared with those in force."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from test_store_databases import opened, url

from asad.cli.asactl import asactl
from asad.errors import UsageError
from asad.experts import ACTIONS, FEATURES, INDEX, Expert, Leaf, Node
from asad.experts.comparing import compare
from asad.model import ShareCases
from asad.share.pool import cases as buffers
from asad.share.pool.cases import add_to, new_cases, taken
from asad.store import retention, share_cases
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

__all__ = ["opened", "url"]  # fixtures


def cases_of(count: int, first: int = 0) -> ShareCases:
    """Cases of two jobs, of which each number says which one it is."""
    number = np.arange(first, first + count)
    state = np.full((count, len(FEATURES)), np.nan, np.float32)
    state[:, INDEX["cpu"]] = np.round(number / 1000, 3)
    return ShareCases(
        [f"{k % 2}" for k in number],
        ["ann/sim\0/1"] * count,
        number.astype(float),
        state,
        np.full(count, 0.3),
        np.full(count, 0.25),
        np.round(number / 2000, 4),
    )


# ------------------------------------------------------------------------------------------------------ the buffer


@dataclass
class Jobs:
    job_id: Any
    application: Any


@dataclass
class Seen:
    """What of a snapshot is looked at."""

    jobs: Jobs


def seen(rows: int) -> Any:
    return Seen(Jobs(np.array([f"j{row}" for row in range(rows)]), np.arange(rows, dtype=np.int32) % 2))


def test_a_full_buffer_thins_itself_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    cases, state = new_cases(), np.zeros(len(FEATURES), np.float32)
    for k in range(5 * buffers.MOST):
        add_to(cases, 3, float(k), state, 0.5, 0.1, 0.2)
    found = taken(cases, seen(4), ["a", "b"], buffers.MOST)
    steps = np.diff(found.time_s)
    assert buffers.MOST // 2 <= len(found.job) <= buffers.MOST
    assert set(steps.tolist()) == {8.0} and found.time_s[-1] > 5 * buffers.MOST - 9
    assert set(found.job) == {"j3"} and set(found.application) == {"b"}
    assert taken(cases, seen(4), ["a", "b"], 9).job == [], "what was taken is not held any more"


def test_of_too_many_cases_evenly_chosen_ones_are_taken() -> None:
    cases, state = new_cases(), np.zeros(len(FEATURES), np.float32)
    for k in range(101):
        add_to(cases, k, float(k), state, 0.5, 0.1, 0.2)
    assert taken(cases, seen(101), ["a", "b"], 5).time_s.tolist() == [0.0, 25.0, 50.0, 75.0, 100.0]


# ------------------------------------------------------------------------------------------------------- the store


def test_cases_come_back_by_run_as_they_were_recorded(opened: Store) -> None:
    live = opened.begin_run("live", "asax", None, {}, {})
    replay = opened.begin_run("replay", "asax", None, {}, {})
    share_cases.add(opened, live.id, [cases_of(3, 10), cases_of(2)])
    share_cases.add(opened, replay.id, [cases_of(4, 50)])
    found = share_cases.load(opened)
    assert found.time_s.tolist() == [0.0, 1.0, 10.0, 11.0, 12.0] and found.job == ["0", "1", "0", "1", "0"]
    assert set(found.application) == {"ann/sim\\x00/1"}
    wanted = cases_of(5).state[:, INDEX["cpu"]]
    np.testing.assert_allclose(found.state[:2, INDEX["cpu"]], wanted[:2])
    assert np.isnan(np.delete(found.state, INDEX["cpu"], axis=1)).all()
    np.testing.assert_array_equal(found.loss[2:], cases_of(3, 10).loss)
    assert share_cases.load(opened, [replay.id]).time_s.tolist() == [50.0, 51.0, 52.0, 53.0]
    opened.remove_runs([replay.id], force=True)
    assert share_cases.load(opened, [replay.id]).job == []


def test_old_cases_and_too_many_are_forgotten(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    live = opened.begin_run("live", "asax", None, {}, {})
    replay = opened.begin_run("replay", "asax", None, {}, {})
    share_cases.add(opened, live.id, [cases_of(20)])
    share_cases.add(opened, replay.id, [cases_of(20)])
    assert retention.forget_before(opened, 4.0) == 4
    with opened.writing("trying") as connection:
        assert share_cases.forget_oldest(connection, most=10) == 6
        assert share_cases.forget_oldest(connection, most=10) == 0
    assert share_cases.load(opened).time_s.tolist() == list(map(float, range(10, 20)))
    assert len(share_cases.load(opened, [replay.id]).job) == 20, "a replay's are kept as long as it is"


# -------------------------------------------------------------------------------------------------- the comparison


def lends(name: str, share: float) -> Expert:
    """It lends that share, and now and then another."""
    chances = np.full(len(ACTIONS), 0.1 / (len(ACTIONS) - 1))
    chances[ACTIONS.index(share)] = 0.9
    return Expert(name, "", ACTIONS, "leaf", (), (Leaf("leaf", tuple(chances.tolist())),))


def drawn(truth: dict[bool, float], count: int = 20_000, jobs: int = 2_000) -> tuple[ShareCases, Any]:
    """Shares drawn at random; lending the share that `truth` names of a busy (or not busy) host loses 0.1, else 0.4."""
    chance = np.random.default_rng(5)
    cases = cases_of(count)
    busy = chance.random(count) < 0.5
    cases.state[:, INDEX["cpu"]] = np.where(busy, 0.9, 0.1)
    action = chance.integers(len(ACTIONS), size=count)
    good = np.where(busy, ACTIONS.index(truth[True]), ACTIONS.index(truth[False])) == action
    loss = np.where(good, 0.1, 0.4) + chance.normal(0, 0.01, count)
    names = [str(k) for k in chance.integers(jobs, size=count)]
    known = ShareCases(
        names,
        cases.application,
        cases.time_s,
        cases.state,
        np.array(ACTIONS)[action],
        np.full(count, 0.1),
        loss,
    )
    return known, action.astype(np.intp)


def test_experts_are_judged_by_what_their_own_shares_would_have_lost() -> None:
    cases, action = drawn({True: 0.2, False: 0.7})
    tree = Expert(
        "tree",
        "",
        ACTIONS,
        "busy?",
        (Node("busy?", "cpu", 0.5, "busy", "idle", "idle"),),
        (Leaf("busy", lends("", 0.2).leaves[0].lend), Leaf("idle", lends("", 0.7).leaves[0].lend)),
    )
    found = compare(tree, [lends("always-0.2", 0.2), lends("never-right", 0.4)], cases, action)
    assert (found.cases, found.jobs) == (20_000, 2_000)
    by_name = dict(found.experts)
    assert found.in_force.mean == pytest.approx(0.37, abs=0.005)
    assert found.learned.mean == pytest.approx(0.9 * 0.1 + 0.1 * 0.4, abs=3 * found.learned.error)
    both = 0.5 * (0.9 * 0.1 + 0.1 * 0.4) + 0.5 * (0.4 - 0.3 * 0.1 / 9)
    assert by_name["always-0.2"].mean == pytest.approx(both, abs=3 * by_name["always-0.2"].error)
    assert found.verdict == "better" and found.difference == pytest.approx(0.13 - 0.37, abs=0.01)
    assert found.learned.effective < found.in_force.effective == pytest.approx(20_000)
    assert compare(lends("wrong", 0.4), [tree], cases, action).verdict == "worse"
    few = cases.take(np.arange(40))
    assert compare(lends("half", 0.2), [tree], few, action[:40]).verdict == "cannot tell"


def test_cases_of_one_job_count_together() -> None:
    cases, action = drawn({True: 0.2, False: 0.7}, count=4_000, jobs=4_000)
    alike = ShareCases(
        *(list(part) * 5 if isinstance(part, list) else np.concatenate([part] * 5) for part in cases)
    )
    one, same = (
        compare(lends("a", 0.2), [lends("b", 0.4)], known, acts)
        for known, acts in ((cases, action), (alike, np.tile(action, 5)))
    )
    assert same.learned.mean == pytest.approx(one.learned.mean)
    assert same.error == pytest.approx(one.error), "five copies of every case of a job say no more than one"


# ------------------------------------------------------------------------------------------------------ end to end


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded month: jobs of six applications, some of which leave most of their CPU idle, on 64 cores."""
    chance = np.random.default_rng(11)
    used = (0.2, 0.3, 0.5, 0.6, 0.8, 0.95)
    lines = ["; MaxNodes: 8", "; MaxProcs: 64", "; UnixStartTime: 1704067200"]
    submits = np.sort(chance.uniform(0, 30 * 86_400, 3_800))
    for number, at in enumerate(submits.tolist(), 1):
        app = int(chance.integers(6))
        run, cores = int(chance.lognormal(8.6, 0.8)) + 60, int(chance.choice([2, 4, 8]))
        cpu = run * min(1.0, used[app] * chance.uniform(0.8, 1.2))
        limit = int(run * chance.uniform(1.2, 3))
        facts = [
            number,
            int(at),
            0,
            run,
            cores,
            f"{cpu:.0f}",
            -1,
            cores,
            limit,
            -1,
            1,
            app % 4,
            1,
            app,
            1,
            1,
            -1,
            -1,
        ]
        lines.append(" ".join(map(str, facts)))
    path = tmp_path_factory.mktemp("month") / "month.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*words: str) -> Any:
    result = CliRunner().invoke(asactl, [*words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.slow
def test_a_tree_is_learned_from_a_recorded_month_and_replayed(month: Path, tmp_path: Path) -> None:
    store, tree = tmp_path / "asad.db", tmp_path / "learned.toml"
    replay = ["replay", str(month), "--nodes", "8", "--cores", "8", "--policy", "asax", "--json"]
    before = json.loads(run(*replay, "--store", str(store)).output)
    words = ["experts", "fit", "--from-store", "--store", str(store), "--run", "1", "--out", str(tree)]
    facts = json.loads(run(*words, "--json").output)
    found = facts["comparison"]
    assert facts["rows"] > 1000 and abs(found["cases"] - facts["rows"] / 2) <= 1
    assert 100 < found["jobs"] <= found["cases"]
    assert found["verdict"] in ("better", "worse", "cannot tell")
    assert [loss["experts"] for loss in found["losses"]][:2] == ["in force", "cpu"]
    assert all(0 < loss["mean"] < 1 and 0 < loss["error"] < 1 for loss in found["losses"])
    assert abs(found["losses"][-1]["mean"] - found["losses"][0]["mean"] - found["difference"]) < 1e-12
    # the operator's next step: the same log with the learned tree alone
    after = json.loads(run(*replay, "--store", "none", "--experts", str(tmp_path)).output)
    for one in (before, after):
        assert one["policies"]["asax"]["guests"] > 50
    text = run(*words, "--force").output
    assert "On the latest third (" in text and "in force" in text
    assert ("it is better" in text) == (found["verdict"] == "better")


def test_without_enough_cases_it_says_where_they_come_from(tmp_path: Path) -> None:
    store, out = tmp_path / "asad.db", tmp_path / "learned.toml"
    with Store.open(str(store)) as kept:
        live = kept.begin_run("live", "asax", None, {}, {})
        share_cases.add(kept, live.id, [cases_of(99)])
    words = ["experts", "fit", "--store", str(store), "--out", str(out)]
    for more, why in (
        (["--from-store"], "has 99 cases of lending, and 100 are the least.*--run"),
        (["--from-store", "--run", "7"], "there is no run 7"),
        (["--history", "x.csv"], "--store goes with --from-store"),
        (["--history", "x.csv", "--from-store"], "either --history FILE or --from-store"),
    ):
        with pytest.raises(UsageError, match=why):
            run(*words, *more)
    assert not out.exists()
