"""The daemon with statements of work: what it takes, keeps before it acts, reports, and finds again; asactl sow."""

from __future__ import annotations

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
from plain_answers import plain_of
from slotted_cluster import Job
from stated_cluster import APPLICATIONS, EPOCH, OPTIONS, Evicting, FirstFit, announced, job
from test_daemon import configuration, wait_for

from asad.admit.everyone import Everyone
from asad.admit.sow.statement_options import Options
from asad.admit.sow.statements_policy import Statements
from asad.api.control import Refused, ask
from asad.cli.asactl import asactl
from asad.config import parse
from asad.daemon import Daemon
from asad.decisions import Decision, Outcome
from asad.defer.at_once import AtOnce
from asad.errors import AsadError, ConfigError
from asad.model import HOUSE
from asad.place.native import Native
from asad.share.exclusive import Exclusive
from asad.stages import Circumstances, Stages, policy_of
from asad.store import statements as stated
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

SCOPE = "slurm/admit/sow"
ROOT = Path(__file__).resolve().parents[2]


class Live(Evicting):
    """The cluster as a daemon wants it; its clock stands until the test moves it."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        super().__init__([4], jobs)
        self.applications = list(APPLICATIONS)  # type: ignore[assignment]
        self.ledger: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.looks = 0
        self.before_deeds: Callable[[], None] = lambda: None
        self.lock = threading.Lock()

    def snapshot(self) -> Any:
        with self.lock:
            self.looks += 1
            return super().snapshot()

    def apply(self, decisions: Sequence[Decision]) -> list[Outcome]:
        self.before_deeds()
        return super().apply(decisions)

    def pass_rounds(self, rounds: float) -> None:
        """Time goes on to so many rounds from the epoch, a quarter of one at a time."""
        while self.now_s < EPOCH + 100.0 * rounds:
            with self.lock:
                self.run(self.now_s + 25.0)
            seen(self, 2)

    def sentence(self) -> str:
        return "a cluster that obeys"

    def recover(self) -> list[str]:
        return []

    def release(self) -> list[str]:
        for one in self.jobs:
            one.begin_s = math.nan
        return ["all is released"]

    def close(self) -> None:
        pass


def seen(cluster: Live, cycles: int, seconds: float = 300.0) -> None:
    until = cluster.looks + cycles
    wait_for(lambda: cluster.looks > until, seconds)


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Daemon]]:
    """Start daemons with statements; all are stopped at the end."""
    lives: list[tuple[Daemon, threading.Thread]] = []

    def made(names: Sequence[str]) -> Statements:
        return Statements("sow", FirstFit, names, OPTIONS)

    put_policy(monkeypatch, "admit", made)

    def start(cluster: Live, mode: str = "enforce") -> Daemon:
        daemon = Daemon(configuration(tmp_path, mode), cluster=cluster, clock=lambda: cluster.now_s)
        thread = threading.Thread(target=daemon.run)
        thread.start()
        lives.append((daemon, thread))
        wait_for(lambda: not thread.is_alive() or daemon.endpoint is not None, 300)
        seen(cluster, 2, 300)  # the first cycle of all may have to be compiled
        return daemon

    def stop(daemon: Daemon) -> None:
        daemon.stop()
        next(thread for one, thread in lives if one is daemon).join(300)

    start.stop = stop  # type: ignore[attr-defined]
    yield start
    for daemon, _ in lives:
        stop(daemon)


def run(*words: str, socket: Path) -> str:
    result = CliRunner().invoke(asactl, [*words, "--socket", str(socket)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


FILE = f"""\
version = 1
[[statement]]
name = "train"
cores = 2
due = {EPOCH + 400:.0f}
every = "10m"
runs = [[0, 200, 1.0]]
value = 40
deadline = "1000s"
[[statement]]
name = "cheap"
cores = 2
due = {EPOCH + 400:.0f}
runs = [[0, 200, 1.0]]
value = 1
deadline = "1000s"
"""


@pytest.mark.slow
def test_a_statement_is_announced_followed_and_charged(begin: Any, tmp_path: Path) -> None:
    cluster = Live([job("7", at=1, cores=2, hint="sow=1", begin_s=EPOCH + 150), job("8", at=2, run=3)])
    kept: list[set[str]] = []

    def look() -> None:
        if "admit" not in cluster.kinds("7") or cluster.jobs[0].begin_s != EPOCH + 400.0:
            with Store.open(str(tmp_path / "asad.db")) as store:
                kept.append({f"{one.number} {one.state}" for one in stated.statements(store, SCOPE)})

    begin(cluster)
    cluster.before_deeds = look
    socket = tmp_path / "s"
    file = tmp_path / "mine.toml"
    file.write_text(FILE)
    assert "2 statements, nothing wrong" in run("sow", "submit", str(file), "--dry-run", socket=socket)
    output = run("sow", "submit", str(file), "--user", "ann", socket=socket)
    assert "statement 1 (train): it starts as planned: expected to pay" in output
    assert "starts t=1000400 s, fails with 0.0%" in output and "--comment=asad:sow=1" in output
    assert "statement 2 (cheap): declined: no start pays" in output
    with Store.open(str(tmp_path / "asad.db")) as store:  # it is kept before it is reported
        assert {one.number for one in stated.statements(store, SCOPE)} == {1}, "what was declined is not"
        assert set(stated.plans(store, SCOPE, [1, 2])) == {1}
    cluster.pass_rounds(3)
    assert kept and all("1 arrived" in one for one in kept), (
        "the store knows it before the cluster is informed"
    )
    assert cluster.jobs[0].begin_s == EPOCH + 400.0
    shown = run("sow", "status", socket=socket)
    assert "arrived" in shown and "declined" in shown and "train" in shown
    cluster.pass_rounds(7)
    facts = json.loads(run("sow", "status", "1", "--json", socket=socket))["statements"][0]
    assert (facts["state"], facts["job"], facts["paid"]) == ("completed", "7", 4.0)
    assert "paid 4" in run("sow", "status", "1", socket=socket)
    ledger = plain_of(run("sow", "ledger", "--json", socket=socket))
    assert ledger["sum"] == 0.0 and {one["account"]: one["balance"] for one in ledger["balances"]} == {
        HOUSE: 4.0,
        "ann": -4.0,
    }
    assert "all accounts together: +0.000000" in run("sow", "ledger", "--lines", socket=socket)
    stored = CliRunner().invoke(asactl, ["sow", "ledger", "--store", str(tmp_path / "asad.db"), "--json"])
    assert plain_of(stored.output) == ledger


def test_the_menu_is_shown_and_drawn(begin: Any, tmp_path: Path) -> None:
    begin(Live([]))
    socket, picture = tmp_path / "s", tmp_path / "menu.svg"
    output = run("sow", "quote", "--cores", "2", "--time", "250s", "--plot", str(picture), socket=socket)
    assert "sold out" in output and "█" in output and "6" in output
    assert "<svg" in picture.read_text()
    facts = json.loads(run("sow", "quote", "--cores", "2", "-t", "250s", "--json", socket=socket))
    assert facts["menu"][0]["price"] is None and facts["menu"][1]["price"] == 6.0
    with pytest.raises(AsadError, match="jobs of 1 to 4 cores"):
        run("sow", "quote", "--cores", "9", socket=socket)
    with pytest.raises(AsadError, match="longer than the 1000 s"):
        run("sow", "quote", "--cores", "1", "--time", "2h", socket=socket)
    with pytest.raises(AsadError, match="not a time"):
        run("sow", "quote", "--cores", "1", "--time", "soon", socket=socket)


def test_several_runs_are_announced_at_once_and_taken_back(begin: Any, tmp_path: Path) -> None:
    begin(Live([]))
    socket, file = tmp_path / "s", tmp_path / "mine.toml"
    file.write_text(FILE.partition('[[statement]]\nname = "cheap"')[0])
    document = json.loads(run("sow", "submit", str(file), "--times", "3", "--json", socket=socket))
    assert [one["due_s"] for one in document["statements"]] == [EPOCH + 400, EPOCH + 1000, EPOCH + 1600]
    assert document["acts"] and document["kept"]
    assert "statement 2 is taken back" in run("sow", "cancel", "2", socket=socket)
    with pytest.raises(Refused, match="no open statement 2"):
        run("sow", "cancel", "2", socket=socket)
    with pytest.raises(AsadError, match="there is no statement 99"):
        run("sow", "status", "99", socket=socket)


@pytest.mark.slow
def test_a_daemon_that_starts_again_goes_on_with_what_was_promised(begin: Any, tmp_path: Path) -> None:
    cluster = Live([job("7", at=1, cores=2, hint="sow=1", begin_s=EPOCH + 150)])
    first = begin(cluster)
    ask(tmp_path / "s", "sow-submit", user="ann", statements=[announced("", due=6, cores=2).to_json()])
    cluster.pass_rounds(2)
    assert cluster.jobs[0].begin_s == EPOCH + 600.0
    begin.stop(first)
    assert math.isnan(cluster.jobs[0].begin_s), "a daemon that stops releases"
    begin(cluster)
    wait_for(lambda: cluster.jobs[0].begin_s == EPOCH + 600.0)
    (statement,) = ask(tmp_path / "s", "sow-submit", statements=[announced("b", due=9).to_json()])[
        "statements"
    ]
    assert statement["statement"] == 2
    cluster.pass_rounds(9)
    with Store.open(str(tmp_path / "asad.db")) as store:
        states = {one.number: one.state for one in stated.statements(store, SCOPE)}
        assert states[1] == "completed" and len(stated.entries(store, SCOPE)) == 2
        assert sum(one.balance_micro for one in stated.balances(store, SCOPE)) == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "there is no statement; asactl sow submit FILE"),
        ({"statements": [1]}, "there is no statement"),
        ({"statements": [{}]}, "statement 1: `cores` is missing"),
        ({"statements": [announced().to_json()], "times": 0}, "times: write a whole number"),
        ({"statements": [announced().to_json()], "times": 3}, "every: it comes once, and 3 are asked for"),
        ({"statements": [announced(value=1e6).to_json()]}, "value: 1e+06 is more than the 100"),
        ({"statements": [announced(name="\x1b[2J").to_json()]}, "name: it is no printable text"),
    ],
)
def test_what_is_wrong_with_a_request_is_reported(
    begin: Any, tmp_path: Path, arguments: Any, why: str
) -> None:
    begin(Live([]))
    with pytest.raises(Refused) as error:
        ask(tmp_path / "s", "sow-submit", **arguments)
    assert why in str(error.value) and error.value.exit_status == 2 and str(error.value).isprintable()


def test_nothing_is_promised_by_a_daemon_that_only_looks_on(begin: Any, tmp_path: Path) -> None:
    daemon = begin(Live([]), mode="observe")
    one = announced().to_json()
    with pytest.raises(Refused, match="its mode is observe"):
        ask(tmp_path / "s", "sow-submit", statements=[one])
    ask(tmp_path / "s", "mode", mode="enforce")
    ask(tmp_path / "s", "pause")
    with pytest.raises(Refused, match="it is paused"):
        ask(tmp_path / "s", "sow-submit", statements=[one])
    ask(tmp_path / "s", "resume")
    seen(daemon.cluster, 2)
    assert ask(tmp_path / "s", "sow-submit", statements=[one])["statements"][0]["state"] == "planned"
    with pytest.raises(Refused, match="asactl sow status shows statements"):
        ask(tmp_path / "s", "admission")


@pytest.mark.parametrize("known", [True, False])
def test_a_reload_before_the_store_has_answered_what_was_promised_promises_nothing(known: bool) -> None:
    def statements() -> Stages:
        policy = Statements("sow", FirstFit, APPLICATIONS, OPTIONS)
        return Stages(policy, AtOnce(), Native(), Exclusive())

    old, new = statements(), statements()
    if known:
        old.learners["admit"].restore({"*": {"next": 7}})
    new.take_over(old)
    assert isinstance(new.admit, Statements)
    assert new.admit.ready is known


def test_a_daemon_without_statements_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Any
) -> None:
    put_policy(monkeypatch, "admit", lambda _: Everyone())
    begin(Live([]))
    for verb, arguments in (("sow-submit", {}), ("sow-status", {}), ("sow-quote", {"cores": 1})):
        with pytest.raises(Refused, match="no statements of work are taken here"):
            ask(tmp_path / "s", verb, **arguments)


@pytest.mark.parametrize("name", ["sow", "sow-paper"])
def test_the_configured_policy_has_its_options(name: str, tmp_path: Path) -> None:
    text = f'[policies]\nadmit = "{name}"\n[admit.{name}]\nround_s = 60.0\ndelta = -0.25\n'
    config = parse(text, tmp_path / "a.toml")
    policy = policy_of(config, "admit", Circumstances(["ann/x/1"]))
    assert isinstance(policy, Statements) and policy.options == Options(round_s=60.0)


def test_the_reference_and_the_shipped_configuration_show_the_defaults(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    section = page.split("## `[admit.sow]`")[1].split("\n## ")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", section, re.M))
    defaults = {key: json.dumps(value).removesuffix(".0") for key, value in Options()._asdict().items()}
    assert shown == defaults
    lines = (ROOT / "profiles" / "asad.toml").read_text(encoding="utf-8").splitlines()
    example = [line[1:] for line in lines if line.startswith("#") and not line.startswith("# ")]
    given = parse("\n".join(["[policies]", 'admit = "sow"', *example]), tmp_path / "asad.toml")
    made = policy_of(given, "admit")
    assert given.admit["sow"] and isinstance(made, Statements) and made.options == Options()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("round_s = 1.0", "round_s = 1.0; give a number from 2 to 604800 seconds"),
        ("span = 0", "span = 0; give a whole number from 1"),
        ("most_value = 0.5", "give least_value ≤ most_value"),
        ("most_open = 0", "most_open = 0; give a whole number from 1"),
        ("most_open_all = 0", "most_open_all = 0; give a whole number from 1"),
        ("rounds = 4", "rounds: unknown option"),
        ("delta = 0.99", "delta"),
        ('delta = "much"', "give a number"),
    ],
)
def test_a_wrong_option_is_refused(text: str, why: str, tmp_path: Path) -> None:
    config = parse(f'[policies]\nadmit = "sow"\n[admit.sow]\n{text}\n', tmp_path / "a.toml")
    with pytest.raises(ConfigError) as error:
        policy_of(config, "admit")
    assert why in str(error.value) and "[admit.sow]" in str(error.value)
