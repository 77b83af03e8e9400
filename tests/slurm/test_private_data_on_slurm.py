"""Where a real Slurm's PrivateData hides jobs, the live page shows them to their owners and to operators alone."""

from __future__ import annotations

import json
import pwd
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asad_slurm import private_data
from asad_under_test import MINUTES, toml, until, until_exists

pytest.importorskip("starlette", reason="no starlette (pip install '.[web]')")

from asad.api.control import ask
from asad.config import load
from asad.daemon.daemon import Daemon
from asad.web import page_feed
from asad.web.listeners import PageServer, Place, opened
from asad.web.page_feed import PageFeed
from asad.web.web_app import WebApp
from lab.live import asad_toml
from lab.slurm import RealSlurm, free_ports

OWNERS = ("nobody", "games")
BROWSER = """import socket, sys
browser = socket.socket(socket.AF_UNIX)
browser.connect(sys.argv[1])
browser.sendall(f"GET {sys.argv[2]} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n".encode())
heard = b""
while b"\\n\\n" not in heard and (block := browser.recv(65536)):
    heard += block
sys.stdout.buffer.write(heard)
"""
"""Prints the answer to a request, or the first event of one that does not end."""


SOW = {"round_s": 5.0, "span": 60, "most_rounds": 40, "most_cores": 1, "patience_s": 2.0, "delta": -0.3}


@pytest.fixture
def daemon(slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Daemon]:
    """One in a thread, with statements of work; it asks Slurm in each cycle what is private."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm.env[name])
    monkeypatch.setattr(private_data, "ASK_S", 0.0)
    here = asad_toml(slurm, tmp_path, "exclusive", free_ports(2))
    settings = here.replace('admit = "everyone"', 'admit = "sow"') + toml({"admit.sow": SOW})
    (tmp_path / "asad.toml").write_text(settings)
    (tmp_path / "state").mkdir()
    daemon = Daemon(load(tmp_path / "asad.toml"))
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        until(lambda: not thread.is_alive() or daemon.endpoint, "it listens")
        until(lambda: ask(daemon.config.daemon.socket, "page", as_of="")["nodes"], "it has seen the nodes")
        yield daemon
    finally:
        daemon.stop()
        thread.join(300)


@pytest.fixture
def feed(slurm: RealSlurm, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageFeed]:
    """The page over it, at `page.sock` in the folder of the cluster."""
    monkeypatch.setattr(page_feed, "IDLE_S", 0.2)
    feed = PageFeed(daemon.config.daemon.socket, 0.2)
    place = Place("peer", str(slurm.folder / "page.sock"))
    with opened([place]) as sockets:
        server = PageServer(WebApp(feed).asgi, [place], feed.close)
        thread = threading.Thread(target=server.run, args=(sockets,))
        thread.start()
        yield feed
        server.should_exit = True
        thread.join(300)


@pytest.fixture
def configure(slurm: RealSlurm) -> Iterator[Callable[[str], None]]:
    """Gives Slurm another `PrivateData`; it has its own again at the end."""
    own = slurm.conf.read_text()

    def configured(line: str) -> None:
        slurm.conf.write_text(own + line)
        slurm.run("scontrol", "reconfigure")

    yield configured
    configured("")


def answered(slurm: RealSlurm, user: str, target: str) -> str:
    """What a user's browser is answered at the page's socket."""
    account = pwd.getpwnam(user)
    become = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    browser = [*become, "/usr/bin/python3", "-c", BROWSER, str(slurm.folder / "page.sock"), target]
    return subprocess.run(browser, capture_output=True, text=True, check=True, timeout=300).stdout


def test_private_jobs_are_shown_to_their_owners_and_to_operators(
    slurm: RealSlurm, daemon: Daemon, feed: PageFeed, configure: Callable[[str], None]
) -> None:
    gate = slurm.folder / "jobs" / "gate-private"
    jobs: dict[str, list[str]] = {}
    """By owner: one that waits for the round of its statement, and two that run, or wait for a core."""

    def decided() -> set[str]:
        return {user for row in feed.page.parts.get("decisions", ()) for user in row["users"]}

    for user in OWNERS:
        stated = {"cores": 1, "due": time.time() + 120, "runs": [[0, 20, 1.0]], "value": 900, "deadline": 240}
        (plan,) = ask(daemon.config.daemon.socket, "sow-submit", user=user, statements=[stated])["statements"]
        hint = f"--comment=asad:sow={plan['statement']}"
        jobs[user] = [slurm.submit("sleep 9", MINUTES, "--begin=now+60", hint, user=user)]
    until(lambda: decided() == set(OWNERS), lambda: f"they wait for their rounds: {feed.page.parts}")
    for user in OWNERS:
        named = f"--job-name=work-of-{user}"
        jobs[user] += [slurm.submit(until_exists(gate), MINUTES, named, user=user) for _ in range(2)]
    here = {job for _, *owned in jobs.values() for job in owned}
    until(lambda: {*feed.page.parts["jobs"]["job"]} == here, lambda: f"all are seen: {feed.page.parts}")

    def is_shown(viewer: str, sees: list[str]) -> None:
        """A viewer sees all of some owners' jobs, and of the others not a trace."""
        event = answered(slurm, viewer, "/events").split("data: ")[1]
        whole, text = json.loads(event), event.replace(f'"viewer":"{viewer}"', "")
        assert whole["head"]["viewer"] == viewer and len(whole["nodes"]["set"]) == 2
        assert set(whole["queue"]["order"]) == {job for user in sees for job in jobs[user][1:]}
        assert {job for _, row in whole.get("decisions", ()) for job in row["jobs"]} >= {
            jobs[user][0] for user in sees
        }
        for user in OWNERS:
            stories = {answered(slurm, viewer, f"/explain?job={job}").split()[1] for job in jobs[user][1:]}
            assert stories == {"200" if user in sees else "404"}, (viewer, user)
            found = [trace for trace in (user, *jobs[user]) if re.search(rf"(?<!\d){trace}(?!\d)", text)]
            assert found == ([user, *jobs[user]] if user in sees else []), (viewer, user)
            statement = re.search(rf"<td[^>]*>{user}</td>", whole["fragments"]["set"]["statements"])
            assert bool(statement) == (user in sees), (viewer, user)

    for viewer in (*OWNERS, "root"):
        is_shown(viewer, [*OWNERS])
    configure("PrivateData=accounts,jobs,nodes,reservations,usage,users\n")
    until(lambda: feed.page.parts["private"], "it follows Slurm's configuration")
    for user in OWNERS:
        is_shown(user, [user])
    is_shown("root", [*OWNERS])
    is_shown("daemon", [])
    configure("PrivateData=accounts,nodes\n")
    until(lambda: not feed.page.parts["private"], "and follows it back")
    is_shown("nobody", [*OWNERS])
    gate.touch()
