"""What the jobs of one user may claim together: who lies wins nothing beyond his budget, and learns what was cut."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from slotted_cluster import EPOCH, AsSoonAsRoom, Job, Obedient

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.budget import Budgets, Claim, read_share
from asad.admit.commitments import Commitment, commitment_from_json
from asad.admit.hints import Hint, Rule
from asad.admit.schemes import scheme_maker
from asad.cli.admit import story
from asad.cli.asactl import asactl
from asad.config import GuardSettings, parse
from asad.cycle import Cycle
from asad.defer.at_once import AtOnce
from asad.errors import ConfigError, UsageError
from asad.guard import guard_for
from asad.place.native import Native
from asad.replay.replay_settings import Settings
from asad.share.exclusive import Exclusive
from asad.stages import policy_of

pytestmark = pytest.mark.usefixtures("published_schemas")

SLOT = 100.0
OPTIONS = Options(slot_s=SLOT, horizon=40, again_s=SLOT)
USERS = ("ann/train/1", "bob/train/1", "-/train/1")
ANN, BOB, NOBODY = range(3)


def array(name: str, worth: float, user: int = ANN, tasks: int = 8) -> Job:
    return Job(name, 100.0, tasks, hint=f"utility=constant({worth:g})", array=True, application=user)


def begun(cluster: Obedient, name: str = "as-soon", **more: Any) -> tuple[Admission, Cycle]:
    make = AsSoonAsRoom if name == "as-soon" else scheme_maker(name, {})
    policy = Admission(name, make, USERS, more.pop("options", OPTIONS), **more)
    guard = guard_for(frozenset(), GuardSettings())
    return policy, Cycle(cluster, policy, AtOnce(), Native(), Exclusive(), guard)


def story_of(policy: Admission, job: str) -> dict[str, Any]:
    found = policy.explain(job)
    assert found is not None
    return found


def counted(policy: Admission, *jobs: str) -> list[float]:
    return [round(story_of(policy, job)["counted"], 9) for job in jobs]


# ------------------------------------------------------------------------------------------------------- the rule


def verdicts(factor: float, **options: float) -> dict[str, Any]:
    """Ten arrays of each on a cluster that has room for half of them; bob claims what ann does, times `factor`."""
    jobs = [array(f"{k}{'ab'[user]}", 10.0 * factor**user, user) for k in range(10) for user in (ANN, BOB)]
    most = OPTIONS._replace(most_worth=1e6, **options)
    policy, cycle = begun(Obedient([4], jobs), "oasis", options=most)
    cycle.run_once()
    return {
        job.name: (story_of(policy, job.name)["verdict"], story_of(policy, job.name)["schedule"])
        for job in jobs
    }


def won(verdicts: dict[str, Any], whose: str) -> int:
    return sum(name.endswith(whose) and verdict == "admitted" for name, (verdict, _) in verdicts.items())


def test_ten_times_the_claims_win_what_the_budget_wins() -> None:
    honest = verdicts(1.0)
    assert verdicts(10.0) == verdicts(1000.0) == honest
    assert 2 <= won(honest, "a") + won(honest, "b") < 20, "they compete"


def test_without_a_budget_the_same_lie_wins() -> None:
    honest, lied = verdicts(1.0, budget=0.0), verdicts(1000.0, budget=0.0)
    assert won(lied, "a") < won(honest, "a") and won(lied, "b") > won(lied, "a")


def test_a_claim_within_the_budget_is_not_cut_and_one_beyond_is_cut_with_all_of_its_user() -> None:
    jobs = [array("1", 60.0), array("2", 90.0), array("3", 100.0, BOB), array("4", 1.0, NOBODY)]
    policy, cycle = begun(Obedient([4], jobs))
    cycle.run_once()
    assert counted(policy, "1", "2", "3") == [40.0, 60.0, 100.0]
    assert story_of(policy, "3")["reason"] == story_of(policy, "4")["reason"] == "there is room for it"
    assert story_of(policy, "4")["budget"] is None, "nobody's jobs have no budget in common"
    assert story_of(policy, "1")["reason"] == (
        "there is room for it; 40 of the 60 that its hint claims count, for the jobs of ann claim more than his "
        "budget of 100"
    )


def test_a_lie_about_one_job_takes_from_the_others_of_its_user() -> None:
    policy, cycle = begun(Obedient([4], [array("1", 100.0), array("2", 10.0)]))
    cycle.run_once()
    before = counted(policy, "2")[0]
    options = OPTIONS._replace(most_worth=1e6)
    policy, cycle = begun(Obedient([4], [array("1", 1000.0), array("2", 10.0)]), options=options)
    cycle.run_once()
    assert counted(policy, "2")[0] < before / 5


def test_who_has_used_his_budget_up_has_nothing_more_admitted_until_some_of_it_is_back() -> None:
    first = Job("1", 500.0, hint="utility=constant(100)", application=ANN)
    second = Job("2", 100.0, hint="utility=constant(5)", application=ANN, submit_s=EPOCH + SLOT)
    cluster = Obedient([4], [first, second])
    policy, cycle = begun(cluster)
    cycle.run_once()
    for _ in range(3):  # the first runs, so that nothing of it waits any more
        cluster.run(cluster.now_s + SLOT)
        second.begin_s = math.nan
        cycle.run_once()
    assert story_of(policy, "1")["verdict"] == "ended"
    if not math.isnan(second.all[0].start_s):
        assert not second.admitted, "it started as any other of Slurm's queue"
    assert cluster.kinds("2") == ["decline"]
    assert second.comment.startswith("0 of the 5 that its hint claims count")


def test_what_is_free_of_the_budget_again_goes_to_those_that_wait() -> None:
    jobs = [array("1", 100.0, tasks=2), array("2", 50.0, tasks=40)]
    jobs[1].submit_s = EPOCH + 10.0
    cluster = Obedient([1], jobs)
    policy, cycle = begun(cluster)
    cycle.run_once()
    cluster.run(EPOCH + 20.0)
    cycle.run_once()
    assert story_of(policy, "2")["verdict"] == "declined" and counted(policy, "1", "2") == [100.0, 0.0]
    while policy.explain("1") is not None:
        cluster.run(cluster.now_s + SLOT)
        cycle.run_once()
    for _ in range(3):
        cluster.run(cluster.now_s + SLOT)
        cycle.run_once()
    assert story_of(policy, "2")["verdict"] == "admitted" and counted(policy, "2") == [50.0]


@pytest.mark.parametrize(
    ("shares", "of_ann", "of_bob"), [((), 100, 100), (("ann=2", "*=0.5"), 200, 50), (("bob=0",), 100, 0)]
)
def test_budgets_follow_shares(shares: tuple[str, ...], of_ann: float, of_bob: float) -> None:
    budgets = Budgets(Options(shares=shares), {})
    assert (budgets.of("ann"), budgets.of("bob")) == (of_ann, of_bob)
    assert budgets.of("-") == budgets.of("") == Budgets(Options(budget=0.0), {}).of("ann") == math.inf


def test_rules_are_neither_counted_nor_cut() -> None:
    jobs = [Job("1", 100.0, 8, array=True, application=ANN), array("2", 80.0)]
    policy, cycle = begun(Obedient([4], jobs), rules=[Rule("constant(500)")])
    cycle.run_once()
    assert story_of(policy, "1")["by_rule"] and story_of(policy, "1")["budget"] is None
    assert counted(policy, "2") == [80.0]


@pytest.mark.parametrize(
    ("utility", "claims"),
    [
        ("constant(7)", 7.0),
        ("linear(20, 5m, 1h)", 20.0),
        ("deadline(5, 10s)", 5.0),
        ("sigmoid(10, 1, 0s)", 5.0),
        ("constant(1000)", 100.0),
        ("bribe(3)", 0.0),
        ("late(3)", 3.0),
        ("broken(3)", 100.0),
        ("endless(3)", 100.0),
    ],
)
def test_a_hint_claims_what_its_job_would_be_worth_at_once(utility: str, claims: float) -> None:
    def broken(slots: float) -> float:
        return 1.0 / slots

    own = {
        "late": lambda arguments, _: lambda slots: arguments[0] if slots > 0 else 0.0,
        "broken": lambda *_: broken,
        "endless": lambda *_: lambda _: math.inf,
    }
    assert Budgets(OPTIONS, own).worth(utility) == claims


def test_a_utility_of_the_site_is_bounded_by_what_it_claims() -> None:
    """One that rises, which none should, is worth no more later than was counted of it."""
    rising = {"rising": lambda arguments, _: lambda slots: arguments[0] * slots}
    job = array("1", 1.0)
    job.hint = "utility=rising(2)"
    policy, cycle = begun(Obedient([4], [job]), own_utilities=rising)
    cycle.run_once()
    assert counted(policy, "1") == [2.0] and story_of(policy, "1")["worth"] in (None, 2.0)


# ------------------------------------------------------------------------------------------------ kept, and reported


def test_another_process_knows_what_was_counted() -> None:
    cluster = Obedient([4], [array("1", 70.0), array("2", 40.0)])
    cluster.jobs[1].submit_s = EPOCH + SLOT
    policy, cycle = begun(cluster)
    cycle.run_once()
    kept = json.loads(json.dumps(policy.state(), allow_nan=False))
    policy, cycle = begun(cluster)
    policy.restore(kept)
    for job in cluster.jobs:
        job.admitted = False
    cluster.run(EPOCH + SLOT)
    cycle.run_once()
    assert counted(policy, "1", "2") == [70.0, 30.0]


def test_what_an_earlier_version_has_kept_counts_for_nothing() -> None:
    entry = Commitment("1", 1, "admitted", "", "constant(5)", False, "", 0.0, 0)
    plain = {
        key: value
        for key, value in entry.to_json().items()
        if key not in ("user", "claim", "counted", "budget")
    }
    known = commitment_from_json(plain)
    assert known is not None
    assert (known.user, known.granted, known.part) == ("", 0.0, 1.0) and math.isnan(known.budget)


@pytest.mark.parametrize("slot", ["9" * 30, "-" + "9" * 4000, "9" * 5000])
def test_a_slot_that_no_calendar_has_makes_an_entry_unreadable(slot: str) -> None:
    entry = Commitment("1", 1, "admitted", "", "constant(5)", False, "", 0.0, 0)
    assert commitment_from_json(entry.to_json() | {"schedule": {slot: [[0], [1]]}}) is None


def test_what_was_cut_is_explained() -> None:
    policy, cycle = begun(Obedient([4], [array("1", 60.0), array("2", 90.0), array("3", 9.0, BOB)]))
    cycle.run_once()
    assert "  claim     60; 40 of it counts: its user's jobs may claim 100 together" in list(
        story(story_of(policy, "1"))
    )
    assert "  claim     9; all of it counts: its user's jobs may claim 100 together" in list(
        story(story_of(policy, "3"))
    )
    detail = next(one.cause.detail for _, one in cycle.cluster.done if one.cause.detail["job"] == "1")  # type: ignore[attr-defined]
    assert (detail["claim"], detail["counted"], detail["budget"]) == (60.0, 40.0, 100.0)


# -------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("text", ["ann", "=2", "ann=", "ann=-1", "ann=inf", "ann=nan", "ann=२"])
def test_shares_that_cannot_be_read_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no user with a number of shares"):
        read_share(text)
    toml = f'[policies]\nadmit = "oasis"\n[admit.oasis]\nshares = ["{text}"]\n'
    with pytest.raises(ConfigError, match=r"^\[admit.oasis\] shares: "):
        policy_of(parse(toml, tmp_path / "a.toml"), "admit")


def test_replays_have_no_budget_unless_they_are_given_one() -> None:
    assert Settings().budget == 0.0
    with pytest.raises(UsageError, match="--budget"):
        Settings(budget=-1.0)
    assert Settings(policies=("oasis",), budget=5.0).to_json()["budget"] == 5.0


def test_claims_of_jobs_that_were_declined_before_count_with_those_that_are_asked_for() -> None:
    budgets = Budgets(OPTIONS, {})
    entry = Commitment("1", 1, "declined", "", "constant(5)", False, "", 0.0, 0, user="ann", claim=100.0)
    asked = [
        ("2", "ann", Hint("constant(100)")),
        ("3", "bob", Hint("constant(100)")),
        ("4", "ann", "it is wrong"),
    ]
    assert budgets.claims(asked, {"1": entry}) == {
        "2": Claim("ann", 100.0, 50.0, 100.0),
        "3": Claim("bob", 100.0, 100.0, 100.0),
    }


def test_a_replay_cuts_claims_as_the_live_daemon_does(tmp_path: Path) -> None:
    lines = ["; MaxNodes: 1", "; MaxProcs: 4"]
    lines += [f"{k} {k * 60} -1 3000 4 -1 -1 -1 3600 -1 1 {k % 2} 1 1 -1 -1 -1 -1" for k in range(1, 9)]
    log = tmp_path / "small.swf"
    log.write_text("\n".join(lines) + "\n")

    def admitted(*more: str) -> int:
        words = [
            "replay",
            str(log),
            "--json",
            "--store",
            "none",
            "--policy",
            "oasis",
            "--utility",
            "constant(60)",
        ]
        result = CliRunner().invoke(asactl, [*words, *more], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return int(json.loads(result.stdout)["policies"]["oasis"]["admitted"])

    # with a budget of one job of theirs, each user has one admitted at a time
    assert admitted() == admitted("--budget", "1000") > admitted("--budget", "60") > 0
