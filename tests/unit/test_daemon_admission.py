"""The daemon with an admit policy: what it keeps before it acts, what it reports, and what a restart finds."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from configured_policies import put_policy
from slotted_cluster import EPOCH, AsSoonAsRoom, Job, Obedient
from test_daemon import configuration, wait_for

from asad.admit.admission_options import Options
from asad.admit.admission_policy import Admission
from asad.admit.everyone import Everyone
from asad.admit.hints import Rule
from asad.api.control import Refused, ask
from asad.cli.admit import story
from asad.cli.asactl import asactl
from asad.config import Config, parse
from asad.daemon import Daemon, policy_state
from asad.daemon.policy_state import PolicyState
from asad.decisions import Decision, Outcome
from asad.defer.at_once import AtOnce
from asad.errors import ClusterError, ConfigError
from asad.place.native import Native
from asad.share.exclusive import Exclusive
from asad.stages import Stages, policy_of
from asad.store import learned
from asad.store.store import Store
from asad.store.writer import RunStart, Writer

pytestmark = pytest.mark.usefixtures("published_schemas")

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = Options(slot_s=100.0, horizon=40, again_s=100.0)
WORTH = "utility=constant(10)"


class Live(Obedient):
    """The obedient cluster as a daemon wants it."""

    def __init__(self, nodes: Sequence[int], jobs: Sequence[Job]) -> None:
        super().__init__(nodes, jobs)
        self.applications = ["ann/train/1", "bob/sim/1"]  # type: ignore[assignment]
        self.ledger: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.looks = 0
        self.before_deeds: Callable[[], None] = lambda: None
        self.released = 0

    def snapshot(self) -> Any:
        self.looks += 1
        return super().snapshot()

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        self.before_deeds()
        return super().apply(decisions)

    def sentence(self) -> str:
        return "a cluster that obeys"

    def recover(self) -> list[str]:
        return []

    def release(self) -> list[str]:
        self.released += 1
        for job in self.jobs:
            job.begin_s, job.throttle, job.admitted = math.nan, 0, False
        return ["all is released"]

    def close(self) -> None:
        pass


def two() -> list[Job]:
    return [Job("7", 100.0, 4, hint=WORTH, array=True), Job("8", 100.0, cores=2, hint=WORTH)]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Daemon, Live]]]:
    """Start daemons; all are stopped at the end."""
    lives: list[tuple[Daemon, threading.Thread]] = []
    put_policy(monkeypatch, "admit", lambda names: Admission("as-soon", AsSoonAsRoom, names, OPTIONS))

    def start(cluster: Live, mode: str = "enforce", **options: Any) -> tuple[Daemon, Live]:
        daemon = Daemon(configuration(tmp_path, mode), cluster=cluster, **options)
        thread = threading.Thread(target=daemon.run)
        thread.start()
        lives.append((daemon, thread))
        wait_for(lambda: not thread.is_alive() or daemon.endpoint is not None, 300)
        after(cluster, 2)
        return daemon, cluster

    yield start
    for daemon, thread in lives:
        daemon.stop()
        thread.join(300)


def after(cluster: Live, cycles: int) -> None:
    until = cluster.looks + cycles
    # the first cycle of all may have to be compiled
    wait_for(lambda: cluster.looks > until, 300)


def slots(url: str) -> dict[str, Any]:
    with Store.open(url) as store:
        kept = learned.load(store, "slurm/admit/as-soon")
    return {str(entry["key"]): entry for name, entry in kept.items() if name.startswith("seat") and entry}


@pytest.mark.slow
def test_promises_are_in_the_store_before_the_cluster_is_asked(begin: Any, tmp_path: Path) -> None:
    cluster = Live([2], two())
    kept: list[dict[str, Any]] = []
    cluster.before_deeds = lambda: kept.append(slots(str(tmp_path / "asad.db")))
    begin(cluster)
    assert set(kept[0]) == {"7", "8"}
    assert kept[0]["8"]["wished_s"] == cluster.jobs[1].begin_s == EPOCH + 400.0


def test_a_daemon_that_is_killed_finds_its_promises_and_repeats_nothing(begin: Any, tmp_path: Path) -> None:
    cluster = Live([2], two())
    begin(cluster)
    count = len(cluster.done)
    # what a kill leaves: the store as it is now, and a cluster that was released nothing
    url = str(tmp_path / "asad.db")
    kept = slots(url)
    policy = Admission("as-soon", AsSoonAsRoom, cluster.applications, OPTIONS)
    with Store.open(url) as store:
        policy.restore(learned.load(store, "slurm/admit/as-soon"))
    decisions = policy.decide(cluster.snapshot())
    assert {decision.kind for decision in decisions} == {"admit"}, (
        "informed again that it is admitted, and no more"
    )
    assert len(cluster.done) == count and set(kept) == {"7", "8"}


def test_what_a_release_that_fails_half_way_gave_back_is_not_taken_for_let_go_by_hand(begin: Any) -> None:
    class HalfWay(Live):
        def release(self) -> list[str]:
            super().release()
            raise ClusterError("slurmctld does not answer any more")

    cluster = HalfWay([2], two())
    daemon, _ = begin(cluster)
    begin_s = cluster.jobs[1].begin_s
    assert begin_s > EPOCH
    answer = ask(daemon.config.daemon.socket, "release")
    assert "slurmctld does not answer any more" in answer["done"][0]
    assert math.isnan(cluster.jobs[1].begin_s)
    ask(daemon.config.daemon.socket, "resume")
    after(cluster, 2)
    assert cluster.jobs[1].begin_s == begin_s, "it is held to its plan again"


def test_a_store_that_does_not_show_is_asked_once_a_minute_and_not_in_every_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, now_s = [0], [0.0]

    def silent(_seconds: float, _read: Callable[[], Any]) -> Any:
        asked[0] += 1
        raise TimeoutError

    monkeypatch.setattr(policy_state, "within", silent)
    writer = Writer(str(tmp_path / "asad.db"), RunStart("asax", {}, {}))
    policy = Admission("as-soon", AsSoonAsRoom, Live.applications, OPTIONS)
    policies = Stages(policy, AtOnce(), Native(), Exclusive())
    known = PolicyState(configuration(tmp_path), writer, policies, lambda: now_s[0])
    known.load()
    for _ in range(5):
        policy.book.changed = True
        known.keep_promises()
        known.save_in_time()
        assert not known.kept_now()
    assert asked == [1]
    now_s[0] = 60.0
    known.save_in_time()
    assert asked == [2]
    known.save()  # as at the stop
    assert asked == [2]
    assert writer.close({})


def test_a_stop_gives_everything_back_and_a_start_makes_it_so_again(begin: Any) -> None:
    cluster = Live([2], two())
    daemon, _ = begin(cluster)
    begin_s, throttle = cluster.jobs[1].begin_s, cluster.jobs[0].throttle
    daemon.stop()
    wait_for(lambda: cluster.released)
    assert math.isnan(cluster.jobs[1].begin_s) and cluster.jobs[0].throttle == 0
    wait_for(lambda: daemon.task_queue.fileno() == -1)
    begin(cluster)
    assert (cluster.jobs[1].begin_s, cluster.jobs[0].throttle) == (begin_s, throttle)
    assert cluster.illegal == []


def test_release_pauses_and_resume_promises_anew(begin: Any) -> None:
    cluster = Live([2], two())
    daemon, _ = begin(cluster)
    begin_s = cluster.jobs[1].begin_s
    place = daemon.config.daemon.socket
    ask(place, "release")
    after(cluster, 2)
    assert math.isnan(cluster.jobs[1].begin_s), "a paused daemon defers nobody"
    ask(place, "resume")
    wait_for(lambda: cluster.jobs[1].begin_s == begin_s)
    assert (ask(place, "admission", job="8"))["let_go"] is False


def test_what_admission_says_is_asked_for_by_asactl(begin: Any) -> None:
    cluster = Live([2], [*two(), Job("9", 100.0, hint="utility=bribe(1)")])
    daemon, _ = begin(cluster)
    place = str(daemon.config.daemon.socket)

    def asactl_says(*words: str) -> str:
        result = CliRunner().invoke(asactl, [*words, "--socket", place], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    output = asactl_says("admit", "explain", "8")
    assert "job 8: admitted by as-soon: there is room for it" in output
    assert "deferred  until 1" in output.replace("t=", "") and "constant(10) (as its user stated)" in output
    assert "at its planned end it is worth 10, it costs 0: a payoff of 10" in output
    assert "not admitted by as-soon: utility bribe(1): no kind of that name" in asactl_says(
        "admit", "explain", "9"
    )
    plain = json.loads(asactl_says("admit", "explain", "7_2", "--json"))
    assert plain["job"] == "7" and len(plain["schedule"]) == 4
    screen = asactl_says("admit", "status")
    assert "as-soon: 3 jobs stated a utility, 2 of them are admitted" in screen and "constant(10)" in screen
    assert json.loads(asactl_says("admit", "status", "--json"))["cores"] == 2.0
    assert "deferred until" in asactl_says("explain", "8")
    with pytest.raises(Refused, match="admission does not know it"):
        ask(Path(place), "admission", job="55")


def test_what_was_decided_is_reported_from_the_store(begin: Any, tmp_path: Path) -> None:
    cluster = Live([2], two())
    daemon, _ = begin(cluster)
    assert daemon.writer.wait_until_written(300.0)
    url = str(tmp_path / "asad.db")
    for job, words in (("8", "deferred until"), ("7", "at most 2 tasks of its array at one time")):
        result = CliRunner().invoke(asactl, ["admit", "explain", job, "--store", url], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert f"job {job} in run 1: admitted by as-soon: there is room for it" in result.output
        assert words in result.output
    result = CliRunner().invoke(asactl, ["admit", "explain", "55", "--store", url])
    assert "admission decided nothing about it in any run" in str(result.exception)


def test_status_names_the_admit_policy_and_everyone_explains_nothing(
    tmp_path: Path, begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_policy(monkeypatch, "admit", lambda _: Everyone())
    daemon, _ = begin(Live([2], two()))
    place = daemon.config.daemon.socket
    assert ask(place, "status")["admit"] == "everyone"
    with pytest.raises(Refused, match="every job is admitted here"):
        ask(place, "admission")


def test_a_reload_keeps_promises(begin: Any, tmp_path: Path) -> None:
    cluster = Live([2], two())
    text = f"""
        [daemon]
        mode = "enforce"
        interval_s = 0.02
        state_dir = "{tmp_path}"
        socket = "{tmp_path}/s"
        [metrics]
        listen = "127.0.0.1:0"
        [guard]
        guests_cap = 7
        """
    daemon, _ = begin(cluster, reread=lambda: parse(text, tmp_path / "asad.toml"))
    begin_s, seen, admit = cluster.jobs[1].begin_s, len(cluster.done), daemon.cycle.admit
    daemon.reload()
    wait_for(lambda: daemon.cycle.admit is not admit)
    after(cluster, 2)
    assert cluster.jobs[1].begin_s == begin_s
    assert {decision.kind for _, decision in cluster.done[seen:]} <= {"admit"}
    assert cluster.released == 0


def test_other_slots_give_everything_back_and_ask_anew(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Live([2], two())
    daemon, _ = begin(cluster, reread=lambda: dataclasses.replace(daemon.config, share={"asax": {}}))
    put_policy(
        monkeypatch,
        "admit",
        lambda names: Admission("as-soon", AsSoonAsRoom, names, OPTIONS._replace(slot_s=200.0)),
    )
    daemon.reload()
    wait_for(lambda: cluster.released)
    # 4 tasks of 200 s on 2 cores are 2 slots of 200 s
    wait_for(lambda: cluster.jobs[1].begin_s == EPOCH + 400.0)
    assert cluster.illegal == []


# ----------------------------------------------------------------------------------------------- configuration


def config(text: str) -> Config:
    return parse(text, Path("asad.toml"))


def test_policies_are_made_as_configured() -> None:
    assert isinstance(policy_of(config(""), "admit"), Everyone)
    text = """
        [policies]
        admit = "fifo"
        [admit.fifo]
        slot_s = 60
        parameter_server_nodes = ["ps*"]
        [[admit.rules]]
        utility = "linear(5, 1h, 1d)"
        names = ["train*"]
        rigid = false
    """
    made = policy_of(config(text), "admit")
    assert isinstance(made, Admission)
    assert made.options == Options(slot_s=60.0, parameter_server_nodes=("ps*",))
    assert [rule.names for rule in made.asking.rules] == [("train*",)]


def test_the_example_in_the_shipped_configuration_is_right() -> None:
    lines = (ROOT / "profiles" / "asad.toml").read_text(encoding="utf-8").splitlines()
    example = [line[1:] for line in lines if line.startswith("#") and not line.startswith("# ")]
    given = config("\n".join(["[policies]", 'admit = "oasis"', *example]))
    made = policy_of(given, "admit")
    assert isinstance(made, Admission)
    assert made.options == Options(), "it shows the defaults"
    assert set(given.admit["oasis"]) == set(Options._fields)
    assert set(given.admit["rules"][0]) == set(Rule._fields)


def test_the_reference_lists_options_and_rules_with_their_defaults() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    for heading, kind in (("## `[admit.NAME]`", Options), ("## `[[admit.rules]]`", Rule)):
        section = page.split(heading)[1].split("\n## ")[0]
        shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.M))
        defaults = kind()._asdict()
        assert set(shown) == set(defaults)
        for key, default in defaults.items():
            written = json.dumps(default).removesuffix(".0")
            assert shown[key].strip("`") == written, key


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[policies]\nadmit='fifo'\n[admit.fifo]\nslots_s = 5", "unknown option; did you mean 'slot_s'?"),
        (
            "[policies]\nadmit='fifo'\n[admit.fifo]\nslot_s = 0",
            "slot_s = 0; give a number from 1 to 604800 seconds",
        ),
        (
            "[policies]\nadmit='fifo'\n[admit.fifo]\nhorizon = 1.5",
            "give a whole number from 2 to 10000 slots",
        ),
        ("[policies]\nadmit='fifo'\n[admit.fifo]\nhorizon = 1", "give a whole number from 2 to 10000 slots"),
        ("[policies]\nadmit='fifo'\n[admit.fifo]\nparameter_server_nodes = 'a'", "give a list of names"),
        ("[policies]\nadmit='fifo'\n[admit.fifo]\nwhole = 1", "give true or false"),
        ("[admit.everyone]\nslot_s = 5", "everyone has no options"),
        ("[[admit.rules]]\nusers = ['ann']", "number 1: no utility"),
        ("[[admit.rules]]\nutility = 'bribe(1)'", "number 1: utility bribe(1): no kind of that name"),
        ("[[admit.rules]]\nutility = 'constant(1)'\nuser = 'ann'", "unknown option; did you mean 'users'?"),
    ],
)
def test_wrong_options_and_rules_are_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        policy_of(config(text), "admit")


def test_a_story_shows_at_what_price_a_job_would_have_been_let_in() -> None:
    record = {
        "job": "7",
        "verdict": "declined",
        "policy": "oasis",
        "reason": "it costs more than it is worth",
        "worth": 5.0,
        "cost": 20.0,
        "payoff": -15.0,
        "let_in_at": 0.25,
    }
    lines = list(story(record))
    assert "it would have been let in at 25.0% of the prices of that moment" in "\n".join(lines)
    assert lines[0] == "job 7: not admitted by oasis: it costs more than it is worth"
