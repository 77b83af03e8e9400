"""The daemon with a defer policy: its configuration, what it keeps and reports, and what a restart and a reload
find."""

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
from deferred_cluster import HOUR_S, Yielding, job
from slotted_cluster import EPOCH, Job
from test_daemon import configuration, wait_for

from asad.api.control import Refused, ask
from asad.catalog import policy_names
from asad.cli.asactl import asactl
from asad.config import Config, parse
from asad.daemon import Daemon
from asad.defer.at_once import AtOnce
from asad.defer.deferral_options import Options
from asad.defer.deferral_policy import Deferral
from asad.defer.scorers import make_scorer, scorer_names
from asad.defer.windows import Rule
from asad.errors import ConfigError
from asad.stages import policy_of
from asad.store import learned
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

ROOT = Path(__file__).resolve().parents[2]


class Live(Yielding):
    """The cluster as a daemon wants it; its clock stands still but for `pass_by`."""

    def __init__(self, nodes: Sequence[int], jobs: Sequence[Job]) -> None:
        super().__init__(nodes, jobs)
        self.applications = ["ann/train/1", "bob/sim/1"]  # type: ignore[assignment]
        self.ledger: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.looks = self.released = 0
        self.withdrawn: list[bool] = []
        self.lock = threading.Lock()

    def snapshot(self) -> Any:
        self.looks += 1
        with self.lock:
            return super().snapshot()

    def pass_by(self, seconds: float) -> None:
        with self.lock:
            self.run(self.now_s + seconds, step_s=seconds)

    def sentence(self) -> str:
        return "a cluster that yields"

    def recover(self) -> list[str]:
        return []

    def give_back(self, *, begin: bool = True) -> list[str]:
        self.withdrawn.append(begin)
        return []

    def release(self) -> list[str]:
        self.released += 1
        for one in self.jobs:
            one.begin_s = math.nan
        self.held.clear()
        return ["all is released"]

    def close(self) -> None:
        pass


def three() -> list[Job]:
    """Two cores held for long, one job that waits for one of them, and one that is on-demand."""
    return [job("1", 50_000.0, 2), job("2", 600.0, 1, 8 * HOUR_S), job("3", 600.0, 1)]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Daemon, Live]]]:
    """Start daemons; all are stopped at the end."""
    lives: list[tuple[Daemon, threading.Thread]] = []
    put_policy(
        monkeypatch,
        "defer",
        lambda names: Deferral("edf-defer", make_scorer("edf"), names, Options(), poll_s=30.0),
    )

    def start(cluster: Live, mode: str = "enforce", **options: Any) -> tuple[Daemon, Live]:
        cluster.jobs[0].all[0].start_s, cluster.jobs[0].all[0].node = EPOCH - 10.0, 0
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
    wait_for(lambda: cluster.looks > until, 300)


@pytest.mark.slow
def test_why_a_job_waits_is_asked_for_by_asactl(begin: Any) -> None:
    daemon, _ = begin(Live([2], three()))
    place = str(daemon.config.daemon.socket)

    def says(*words: str) -> str:
        result = CliRunner().invoke(asactl, [*words, "--socket", place], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    output = says("explain", "2")
    assert (
        "deferrable (its user says that it is deferrable): held back; it is 1st of 1, and 0 cores are free"
        in output
    )
    assert "it starts then even if asad is gone" in output and "1 of 1 by edf-defer" in output
    assert "deferred until" in output, "and what was decided"
    screen = says("defer", "status")
    assert "edf-defer: 1 deferrable jobs wait, 0 run" in screen and "held back" in screen
    assert json.loads(says("defer", "status", "--json"))["jobs"][0]["job"] == "2"
    assert ask(Path(place), "status")["defer"] == "edf-defer"
    assert "1 deferrable held back" in ask(Path(place), "status")["cycle"]["sentence"]
    with pytest.raises(Refused, match="the defer stage does not know it"):
        ask(Path(place), "deferral", job="3")


def test_renewals_are_not_kept(begin: Any, tmp_path: Path) -> None:
    daemon, cluster = begin(Live([2], three()))
    for _ in range(6):
        cluster.pass_by(90.0)
        after(cluster, 2)
    renewals = [d for _, d in cluster.done if d.cause.detail.get("renewal")]
    assert len(renewals) >= 3 and daemon.writer.wait_until_written(300.0)
    with Store.open(str(tmp_path / "asad.db")) as store:
        (record,) = store.decisions(1, "2")
    assert record.kind == "defer" and record.detail["latest_s"] == EPOCH + 8 * HOUR_S


def test_what_was_learned_outlives_the_process(begin: Any, tmp_path: Path) -> None:
    daemon, cluster = begin(Live([2], three()))
    cluster.pass_by(4000.0)
    after(cluster, 2)
    daemon.stop()
    wait_for(lambda: daemon.task_queue.fileno() == -1)
    with Store.open(str(tmp_path / "asad.db")) as store:
        kept = learned.load(store, "slurm/defer")
    assert any(name.startswith("day ") for name in kept)
    known = daemon.cycle.defer.overview()["known_days"]  # type: ignore[attr-defined]
    again, _ = begin(Live([2], three()))
    assert known > 0 and again.cycle.defer.overview()["known_days"] >= known  # type: ignore[attr-defined]


def test_a_stop_gives_back_and_a_start_leaves_begin_times_to_this_stage(begin: Any) -> None:
    daemon, cluster = begin(Live([2], three()))
    assert cluster.withdrawn == [False] and cluster.held == {"2"}
    daemon.stop()
    wait_for(lambda: cluster.released)
    assert cluster.held == set()


def test_what_is_deferred_no_more_is_returned(
    begin: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (
        f'[daemon]\nmode = "enforce"\ninterval_s = 0.02\nstate_dir = "{tmp_path}"\nsocket = "{tmp_path}/s"\n'
    )
    text += '[metrics]\nlisten = "127.0.0.1:0"\n[guard]\nguests_cap = 7\n'
    daemon, cluster = begin(Live([2], three()), reread=lambda: parse(text, tmp_path / "asad.toml"))
    before = daemon.cycle.defer
    daemon.reload()
    wait_for(lambda: daemon.cycle.defer is not before)
    after(cluster, 2)
    assert cluster.held == {"2"} and cluster.released == 0, "the same policy goes on"
    put_policy(monkeypatch, "defer", lambda _: AtOnce())
    text = text.replace("guests_cap = 7", "guests_cap = 8")
    daemon.reload()
    wait_for(lambda: cluster.released == 1)
    after(cluster, 2)
    assert cluster.held == set()
    with pytest.raises(Refused, match="nothing is deferred here"):
        ask(daemon.config.daemon.socket, "deferral")


# ----------------------------------------------------------------------------------------------- configuration


def config(text: str) -> Config:
    return parse(text, Path("asad.toml"))


def test_policies_are_made_as_configured() -> None:
    assert isinstance(policy_of(config(""), "defer"), AtOnce)
    text = """
        [daemon]
        interval_s = 10
        [policies]
        defer = "fifo"
        [defer.fifo]
        reserve = 0.1
        packing = "prefix"
        [[defer.rules]]
        window_s = 3600
        qos = ["night"]
        [guard]
        most_lease_s = 40
    """
    made = policy_of(config(text), "defer")
    assert isinstance(made, Deferral) and made.name == "fifo-defer"
    assert made.options == Options(reserve=0.1, packing="prefix")
    assert made.deferrable.rules == (Rule(3600.0, qos=("night",)),)
    assert made.terms.lease_s(10_000) == 40.0


def test_every_policy_can_be_configured_and_replayed() -> None:
    assert {*policy_names("defer")} == {*scorer_names(), "at-once"}
    for name in scorer_names():
        made = policy_of(config(f'[policies]\ndefer = "{name}"'), "defer")
        assert isinstance(made, Deferral) and made.options == Options()
        made.warm_up()


def test_the_example_in_the_shipped_configuration_is_right() -> None:
    lines = (ROOT / "profiles" / "asad.toml").read_text(encoding="utf-8").splitlines()
    example = [line[1:] for line in lines if line.startswith("#") and not line.startswith("# ")]
    (name,) = {match[1] for line in example if (match := re.match(r"\[defer\.(\w+)\]", line))}
    given = config("\n".join(["[policies]", f'defer = "{name}"', *example]))
    made = policy_of(given, "defer")
    assert isinstance(made, Deferral)
    assert made.options == Options(), "it shows the defaults"
    assert set(given.defer[name]) == set(Options._fields)
    assert set(given.defer["rules"][0]) == set(Rule._fields)


def test_the_reference_lists_options_and_rules_with_their_defaults() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    for heading, kind in (("## `[defer.NAME]`", Options), ("## `[[defer.rules]]`", Rule)):
        section = page.split(heading)[1].split("\n## ")[0]
        shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.M))
        defaults = kind()._asdict()
        assert set(shown) == set(defaults)
        for key, default in defaults.items():
            assert shown[key].strip("`") == json.dumps(default).removesuffix(".0"), key


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[policies]\ndefer='fifo'\n[defer.fifo]\nreserved = 0.5", "unknown option; did you mean 'reserve'?"),
        (
            "[policies]\ndefer='fifo'\n[defer.fifo]\nreserve = 1.5",
            "reserve = 1.5; give a number from 0 to 0.99",
        ),
        ("[policies]\ndefer='fifo'\n[defer.fifo]\nstep_s = 7000", "of which a day has a whole number"),
        ("[policies]\ndefer='fifo'\n[defer.fifo]\nstep_s = 0", "of which a day has a whole number"),
        (
            "[policies]\ndefer='fifo'\n[defer.fifo]\npacking = 'tight'",
            "none of the choices; choose one of prefix, skip-fit",
        ),
        ("[policies]\ndefer='fifo'\n[defer.fifo]\ndays = 1000", "give a whole number from 0 to 366"),
        (
            "[policies]\ndefer='fifo'\n[defer.fifo]\nhorizon_s = 10",
            "give a number from 300 to 2678400 seconds",
        ),
        ("[policies]\ndefer='fifo'\n[defer.fifo]\npatience_s = 0", "give a number above 0"),
        ("[policies]\ndefer='fifo'\n[defer.fifo]\nby_node = 1", "give true or false"),
        ("[defer.at-once]\nreserve = 0.5", "at-once has no options"),
        ("[[defer.rules]]\nqos = ['night']", "number 1: window_s = 0; give seconds above 0"),
        ("[[defer.rules]]\nwindow_s = 5\nuser = 'ann'", "unknown option; did you mean 'users'?"),
    ],
)
def test_wrong_options_and_rules_are_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        policy_of(config(text), "defer")


@pytest.mark.parametrize(
    "text", ["[defer.easy]", "[[defer]]", "[defer]\nrules = 5", "[policies]\ndefer = 'easy'"]
)
def test_what_is_no_policy_is_no_configuration(text: str) -> None:
    with pytest.raises(ConfigError):
        config(text)
