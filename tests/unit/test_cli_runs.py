"""`asactl runs` and `asactl explain`, as an operator sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from plain_answers import plain_of

from asad.bounded import printable
from asad.cli.asactl import asactl
from asad.cli.explain import detail_lines
from asad.cli.screen import duration
from asad.cli.times import moment
from asad.decisions import Cause, CoAllocate, Decision, ExtendLimit, Outcome, SetQuota, SetShare, vetoed
from asad.errors import UsageError
from asad.store.records import JobEnd
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

NAMES = ["100", "101", "evil\x1b[2J", "[red]x"]
EPOCH_S = 1_704_067_200.0  # 2024-01-01


def cause(reason: str) -> Cause:
    return Cause("asax", reason, {"weights": [0.25, 0.75], "experts": {"cpu": "light\x07"}, "late": False})


def outcomes(*decisions: Decision) -> list[Outcome]:
    return [Outcome(decision, True, "") for decision in decisions]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return filled(str(tmp_path / "asad.db"))


def filled(path: str) -> str:
    """A store with a finished run of `slurm`, one of `asax` that touched jobs, and one that failed."""
    log = {"path": "/logs/[bold]KTH.swf", "sha256": "ab" * 32}
    with Store.open(path) as store:
        store.begin_run("replay", "slurm", log, {}, {}).finish({"response_mean_s": 100_000.0, "losers": 0})
        for policy in ("static", "asax"):
            run = store.begin_run("replay", policy, log, {}, {})
            starts = CoAllocate(cause=cause("idle CPU"), guest=1, host=0, nodes=(0,), share=0.4)
            changes = SetShare(cause=cause("the host is\nbusier"), guest=1, share=0.2)
            extends = ExtendLimit(cause=cause("lending took it"), job=0, by_s=90.0)
            hostile = CoAllocate(cause=cause("x"), guest=2, host=3, nodes=(1,), share=0.1)
            run.record(1, EPOCH_S + 60, outcomes(starts), NAMES)
            run.record(2, EPOCH_S + 120, [Outcome(changes, False, "too late")], NAMES, host_rows=[-1, 0])
            run.record(
                3,
                EPOCH_S + 180,
                [*outcomes(extends), vetoed(hostile, "memory", "full")],
                NAMES,
            )
            run.record_ends(
                [
                    JobEnd("100", "host", EPOCH_S, EPOCH_S, EPOCH_S + 4000, EPOCH_S, EPOCH_S + 3900, True),
                    JobEnd(
                        "101",
                        "guest",
                        EPOCH_S + 30,
                        EPOCH_S + 60,
                        EPOCH_S + 600,
                        EPOCH_S + 90_000,
                        EPOCH_S + 90_600,
                        False,
                    ),
                ]
            )
            run.finish({"response_mean_s": 5_000.0, "losers": 1})
        failed = store.begin_run("replay", "asax", log, {}, {})
        failed.record(1, 30.0, outcomes(starts), NAMES)
        failed.fail("ValueError: \x1b]0;title\x07")
    return path


def call(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(asactl, arguments, input=answer)


# ------------------------------------------------------------------------------------------------------- runs


def test_runs_are_a_table_newest_first(place: str) -> None:
    lines = call("runs", "--store", place).output.splitlines()
    assert lines[0].split() == [
        "id",
        "when",
        "kind",
        "log",
        "policy",
        "state",
        "decisions",
        "response",
        "losers",
    ]
    assert [line.split()[0] for line in lines[1:5]] == ["4", "3", "2", "1"]
    assert "[bold]KTH.swf" in lines[2], "names are no markup"
    assert lines[2].split()[-5:] == ["asax", "done", "4", "1:23:20", "1"]
    assert lines[4].split()[-2:] == ["1-03:46:40", "0"]
    assert lines[5] == "run 4 failed: ValueError: \\x1b]0;title\\x07"
    assert len(call("runs", "--store", place, "--limit", "1").output.splitlines()) == 3


def test_runs_as_json(place: str) -> None:
    records = plain_of(call("runs", "--store", place, "--json").output)["runs"]
    assert [record["id"] for record in records] == [4, 3, 2, 1]
    assert records[1]["metrics"] == {"losers": 1, "response_mean_s": 5000.0}
    assert records[1]["decisions"] == 4


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    path = str(tmp_path / "asad.db")
    Store.open(path).close()
    assert "holds no runs yet" in call("runs", "--store", path).output
    assert plain_of(call("runs", "--store", path, "--json").output) == {"runs": []}


def test_a_missing_store_is_a_usage_error(tmp_path: Path) -> None:
    for command in (["runs"], ["explain", "1"], ["runs", "prune", "--keep", "1"], ["runs", "rm", "1"]):
        result = call(*command, "--store", str(tmp_path / "none.db"))
        assert isinstance(result.exception, UsageError)
        assert result.exception.exit_status == 2


def test_removing_asks_first(place: str) -> None:
    refused = call("runs", "--store", place, "rm", "1", "2", answer="n\n")
    assert refused.exit_code == 1
    assert "Remove 2 runs (1, 2) with 4 decisions" in refused.output
    assert len(plain_of(call("runs", "--store", place, "--json").output)["runs"]) == 4
    assert call("runs", "rm", "1", "2", "2", "--store", place, "--yes").output == (
        "removed 2 runs (1, 2) with 4 decisions\n"
    )
    left = plain_of(call("runs", "--store", place, "--json").output)["runs"]
    assert [record["id"] for record in left] == [4, 3]
    assert isinstance(call("runs", "rm", "1", "--store", place, "--yes").exception, UsageError)
    gone = call("runs", "rm", "4", "--store", place, "--yes", "--json").output
    assert plain_of(gone) == {"removed": [4], "decisions": 1}


def test_pruning_keeps_the_newest_and_those_that_go_on(place: str) -> None:
    with Store.open(place) as store:
        going_on = store.begin_run("live", "asax", None, {}, {})
        assert call("runs", "prune", "--keep", "1", "--store", place, "--yes").exit_code == 0
        assert [record.id for record in store.runs()] == [going_on.id]
        assert call("runs", "prune", "--keep", "0", "--store", place, "--yes").output == "nothing to remove\n"
        assert isinstance(
            call("runs", "rm", str(going_on.id), "--store", place, "--yes").exception, UsageError
        )
        assert call("runs", "rm", str(going_on.id), "--store", place, "--yes", "--force").exit_code == 0
        assert store.runs() == []
    nothing = call("runs", "--json", "prune", "--keep", "0", "--store", place).output
    assert plain_of(nothing) == {"removed": [], "decisions": 0}


# ---------------------------------------------------------------------------------------------------- explain


def test_the_story_of_a_guest(place: str) -> None:
    lines = call("explain", "101", "--store", place).output.splitlines()
    assert lines[0].startswith("job 101 in run 3: replay of [bold]KTH.swf under asax, ")
    assert lines[1] == "  also in run 4 (asax), 2 (static): say --run ID"
    assert lines[2] == "  submitted 2024-01-01 00:00:30 UTC; times count from there"
    assert lines[4:9] == [
        "    +0:00:30  2024-01-01 00:01:00 UTC  guest of asax: starts beside 100, with up to 40 % of its CPU",
        "              because idle CPU",
        "    +0:01:30  2024-01-01 00:02:00 UTC  not done: guest: may take up to 20 % of 100's CPU",
        "              because the host is\\nbusier",
        "              but refused: too late",
    ]
    assert lines[9:] == [
        "ended 2024-01-01 00:10:00 UTC (as guest), 0:09:30 after it was submitted",
        "  1-01:00:00 earlier than without lending (2024-01-02 01:10:00 UTC)",
        "  it started 2024-01-01 00:01:00 UTC; without lending it started 2024-01-02 01:00:00 UTC",
    ]


def test_the_story_of_a_host_holds_what_its_guest_got(place: str) -> None:
    output = call("explain", "100", "--store", place).output
    assert "host: lends up to 40 % of its CPU to 101, which starts beside it" in output
    assert "not done: host: lends up to 20 % of its CPU to 101" in output
    assert "time limit extended by 0:01:30" in output
    assert "  0:01:40 later than without lending (2024-01-01 01:05:00 UTC): a loser" in output


def test_the_story_of_a_guest_without_a_host_says_what_it_needs_where(tmp_path: Path) -> None:
    path = str(tmp_path / "asad.db")
    offer = CoAllocate(cause=cause("node07 can"), guest=1, nodes=(7, 8), demands=(4.2, 2.0))
    wide = CoAllocate(cause=cause("all can"), guest=2, nodes=(0, 1, 2, 3, 4), demands=(1.0,) * 5)
    quota = SetQuota(cause=cause("its part"), guest=1, nodes=(7,), cores=(1.5,))
    lends = SetShare(cause=cause("drawn"), share=0.3, host=0)
    names = [f"node{number:02}" for number in range(9)]
    with Store.open(path) as store, store.begin_run("live", "asax", None, {}, {}) as run:
        run.record(
            1, EPOCH_S, outcomes(offer, quota, lends, wide), NAMES, host_rows=[-1] * 4, node_names=names
        )
        run.record(2, EPOCH_S, [Outcome(offer, False, "too late")], NAMES)  # by whom no names are reported
        run.finish({})
    story = call("explain", "101", "--store", path, "--json").output
    assert json.loads(story)["decisions"][0]["host"] is None
    output = call("explain", "101", "--store", path).output
    assert "  guest of asax: needs 4.2 cores of node07 and 2 of node08\n" in output
    assert "  guest: may use up to 1.5 cores of node07\n" in output
    assert "  not done: guest of asax: needs 4.2 cores of node 7 and 2 of node 8\n" in output
    output = call("explain", "100", "--store", path).output
    assert "  host: lends up to 30 % of its CPU to the guests of its nodes\n" in output
    wide_story = call("explain", str(NAMES[2]), "--store", path).output
    assert "needs 1 core of node[00-04] each" in wide_story


def test_the_numbers_behind_a_decision_are_shown_on_demand(place: str) -> None:
    plain, verbose = (call("explain", "101", "--store", place, *more).output for more in ([], ["-v"]))
    assert "weights" not in plain
    assert "                weights  0.25 0.75\n" in verbose
    assert "                experts\n                  cpu  light\\x07\n" in verbose
    assert "late     no" in verbose


def test_hostile_names_do_not_reach_the_terminal(place: str) -> None:
    output = call("explain", "[red]x", "--store", place, "-v").output
    assert "not done: host: lends up to 10 % of its CPU to evil\\x1b[2J" in output
    assert "but vetoed (memory): full\n" in output
    assert "\x1b" not in output
    assert "\x1b" not in call("explain", "evil\x1b[2J", "--store", place, "-v").output
    unknown = call("explain", "nobody\x1b[2J", "--store", place)
    assert "\x1b" not in str(unknown.exception)


def test_a_run_can_be_chosen_and_an_unfinished_one_says_how_far_it_is_stored(place: str) -> None:
    assert "under static" in call("explain", "101", "--run", "2", "--store", place).output
    lines = call("explain", "101", "--run", "4", "--store", place).output.splitlines()
    assert lines[0].endswith("failed")
    assert lines[1] == "  the run is stored up to t=30 s of the log"
    assert lines[3] == "  times count from its first decision, t=30 s"
    with Store.open(place) as store:
        store.remove_runs([2, 3])
    assert "in run 4" in call("explain", "101", "--store", place).output, "better than nothing"


def test_the_story_as_json(place: str) -> None:
    story = json.loads(call("explain", "100", "--store", place, "--json").output)
    assert (story["job"], story["run"]["id"]) == ("100", 3)
    assert story["others"] == [
        {"id": 4, "policy": "asax", "state": "failed"},
        {"id": 2, "policy": "static", "state": "done"},
    ]
    assert [decision["kind"] for decision in story["decisions"]] == [
        "co-allocate",
        "set-share",
        "extend-limit",
    ]
    assert story["decisions"][0]["detail"]["weights"] == [0.25, 0.75]
    assert story["ends"][0]["loser"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "102"], "job 102: lending did not touch it in any run of .*near: 10"),
        (["explain", "zzz"], "`asactl runs` lists"),
        (["explain", "101", "--run", "1"], "in run 1, .* it is in run 4, 3, 2"),
        (["explain", "102", "--run", "3"], "in run 3, .* near: 10"),
        (["explain", "101", "--run", "9"], "there is no run 9"),
    ],
)
def test_an_unknown_job_or_run_is_met_with_a_hint(place: str, arguments: list[str], words: str) -> None:
    result = call(*arguments, "--store", place)
    assert isinstance(result.exception, UsageError)
    with pytest.raises(UsageError, match=words):
        raise result.exception


# --------------------------------------------------------------------------------------------------- wordings


def test_durations_are_written_as_slurm_does() -> None:
    assert [duration(s) for s in (0, 59.6, 3661, 86_400 + 60)] == [
        "0:00:00",
        "0:01:00",
        "1:01:01",
        "1-00:01:00",
    ]
    assert (duration(-90), duration(90, sign=True), duration(-0.2)) == ("-0:01:30", "+0:01:30", "0:00:00")
    assert duration(float("nan")) == duration(float("inf")) == "unknown"


def test_a_moment_is_a_date_only_where_the_clock_is_an_epoch() -> None:
    assert moment(EPOCH_S) == "2024-01-01 00:00:00 UTC"
    assert (moment(86_400.4), moment(-5.0), moment(1e300)[:4]) == ("t=86400 s", "t=-5 s", "t=10")


def test_what_controls_a_terminal_is_spelt_out() -> None:
    assert printable("a\x1b[31m\n\u202e\udc80\x9b") == "a\\x1b[31m\\n\\u202e\\udc80\\x9b"
    assert printable("Grüße 日本") == "Grüße 日本"


def test_details_of_any_shape_are_lines() -> None:
    detail = {"a": None, "long": [1.23456, 2, [3e9]], "in": {"b": True, "c": [{"d": 1.0}]}}
    assert list(detail_lines(detail)) == [
        "a     -",
        "long  1.235 2 3000000000",
        "in",
        "  b  yes",
        "  c  d: 1",
    ]
