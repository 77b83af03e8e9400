"""Whatever users call their jobs, `asactl` and the report show it as text: from Slurm's answer to the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import report_samples
from click.testing import CliRunner
from slurm_samples import START_S, Lab, SlurmInMemory, a_job, running
from test_daemon import Life, Wishes, live, wait_for

from asad.applications import fingerprint
from asad.cli.asactl import asactl
from asad.decisions import Cause, CoAllocate, Decision
from asad.model import Snapshot
from asad.report.page import page
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

__all__ = ["live"]  # the fixture

HOSTILE = {
    "escape sequences": "\x1b[2J\x1b]0;owned\x07\x1b[31mred",
    "control characters": "a\r\nb\tc\x08\x7f\x9b31m\x85d",
    "10 kB": "A" * 10_000,
    "10 kB of escapes": "\x1b[5m" * 2_500,
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg/onload=alert(3)>",
    "SQL": "'; DROP TABLE runs; --",
    "right to left": "\u202egnp.exe\u2066\u2069\u200f\u061cmoc",
    "NUL and what looks like it": "a\0b\u2400\\x00%00&#0;",
    "no characters": "\ufffe\uffff\U000e0041\ue000",
    "markup of rich": "[bold red]x[/bold red][/][link=http://x]y[/link]",
    "formats and shells": "%s%n{0}{job!r}$(reboot)`id`;rm -rf /",
    "line separators": "a\u2028b\u2029c\u200bd\ufeffe",
    "slashes": "../../../etc/passwd/x/2",
}
COMMANDS = (
    ("jobs",),
    ("jobs", "--state", "running"),
    ("status",),
    ("top", "--once"),
    ("nodes",),
    ("explain", "1"),
    ("explain", "1", "-v"),
    ("explain", "2"),
    ("explain", "2", "-v"),
)
WIDEST = 2_500
"""No line is longer: of a name 256 characters are kept, of a reason in the store all."""


class Asking(Wishes):
    """Offers the waiting job a place, and repeats its name in the cause."""

    name_of_job = ""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        if not len(snapshot.queue):
            return []
        guest, host = int(snapshot.queue[0]), int(snapshot.running[0])
        cause = Cause(
            "asax", f"it fits: {self.name_of_job[:300]}", {self.name_of_job[:300]: [self.name_of_job[:300]]}
        )
        return [CoAllocate(cause, guest, (0,), host=host, share=0.5)]


@pytest.fixture(params=HOSTILE, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return HOSTILE[str(request.param)]


@pytest.fixture
def daemon(
    live: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> Iterator[Life]:
    """A daemon before a Slurm whose jobs, users, accounts and comments are all called so; it has decided."""
    # names of users and accounts are the administrators', and not that long
    facts = {
        "name": name,
        "user_name": name[:80],
        "account": name[:80],
        "comment": f"asad:{name}",
        "qos": name[:80],
    }
    lab = Lab(tmp_path, SlurmInMemory(nodes=1))
    lab.slurm.add(running(1, {"n1": 2}, **facts), a_job(2, **facts))
    lab.now_s = START_S
    wishes = Asking()
    wishes.name_of_job = name
    life = live(mode="advise", held=lab.cluster, first_cycle=False)
    life.daemon.cycle.share = wishes
    wait_for(lambda: life.daemon.figures.cycles)
    wait_for(lambda: life.ask("explain", job="2")["decisions"])
    monkeypatch.setenv("ASAD_SOCKET", str(life.socket))
    yield life


def safe(text: str) -> bool:
    """Can a terminal be shown this?"""
    return all(line.isprintable() for line in text.split("\n"))


def no_command_lets_a_name_through_to_the_terminal(daemon: Life, name: str) -> None:
    runner = CliRunner()
    for words in (*COMMANDS, ("jobs", "--user", name), ("explain", name), ("progress", name)):
        if any("\0" in word for word in words):
            continue  # the kernel lets nobody give such an argument
        done = runner.invoke(asactl, words)
        assert safe(done.output) and safe(done.stderr), words
        error = "" if done.exception is None else str(done.exception)
        assert safe(error), words
        assert done.exit_code in (0, 1, 2), (words, done.exception)
        if words in COMMANDS:
            assert done.exit_code == 0, (words, error)
            assert max(map(len, done.output.split("\n"))) <= WIDEST, words


def json_is_whole_and_says_what_the_daemon_knows(daemon: Life, name: str) -> None:
    known = daemon.daemon.cluster.applications[0]
    assert len(known) < 80 + 256 + 10
    record = {}
    for words in (("jobs",), ("status",), ("top",), ("nodes",), ("explain", "1"), ("explain", "2")):
        done = CliRunner().invoke(asactl, [*words, "--json"])
        assert done.exit_code == 0, (words, done.exception)
        assert safe(done.stdout) and done.stdout.isascii(), words
        record[words] = json.loads(done.stdout)
    job = next(job for job in record["jobs",]["jobs"] if job["job"] == "1")
    assert fingerprint(job["user"], job["name"], 2.0) == known or "/" in name
    assert len(job["name"]) <= 256
    decision = record["explain", "2"]["decisions"][-1]
    assert decision["kind"] == "co-allocate" and decision["reason"].startswith("it fits: ")


def the_store_is_whole_and_its_commands_are_safe(daemon: Life) -> None:
    url = daemon.daemon.config.store_url
    runner = CliRunner()
    wait_for(lambda: not daemon.daemon.writer.trouble)
    for words in (
        ("runs",),
        ("runs", "--json"),
        ("explain", "2"),
        ("explain", "2", "-v"),
        ("explain", "2", "--json"),
    ):
        done = runner.invoke(asactl, [*words, "--store", url])
        assert done.exit_code == 0, (words, done.exception)
        assert safe(done.output), words
    with Store.open(url) as store:
        assert [run.state for run in store.runs()] == ["running"], "no table was dropped"


def test_a_name_is_text_from_slurms_answer_to_the_terminal(daemon: Life, name: str) -> None:
    no_command_lets_a_name_through_to_the_terminal(daemon, name)
    json_is_whole_and_says_what_the_daemon_knows(daemon, name)
    the_store_is_whole_and_its_commands_are_safe(daemon)


class Text(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, page_text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.handlers: set[str] = set()
        self.text: list[str] = []
        self.feed(page_text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.handlers |= {
            key for key, value in attrs if key.startswith("on") or "javascript:" in (value or "")
        }

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.slow
def test_the_report_shows_names_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    harmless = Text(page(report_samples.replay(30)))
    monkeypatch.setattr(report_samples, "HOSTILE", "".join(sorted(HOSTILE.values(), key=len)))
    text = page(report_samples.hostile(30))
    text.encode("utf-8")
    assert (
        re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]", text) is None
    )
    found = Text(text)
    assert found.elements - harmless.elements <= {"ul", "li", "p", "details", "summary"}
    assert not found.handlers
    assert HOSTILE["HTML"] in "".join(found.text)
