"""The live page: who sees what, what goes over the line, and what no browser is ever given."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from live_page_samples import HOSTILE, answer, columns_of_jobs, story

pytest.importorskip("starlette", reason="no starlette (pip install '.[web]')")

from asad.api.control import ControlServer, DaemonDown
from asad.errors import AsadError, UsageError
from asad.web.deltas import delta
from asad.web.listeners import PageServer, Place, is_loopback, opened, place_of
from asad.web.page_feed import PageFeed
from asad.web.viewers import Viewer, viewer_of
from asad.web.visible import OTHER, Window
from asad.web.web_app import HEADERS, WebApp

ALL, NOBODY, ANN = Viewer("root", "all"), Viewer("", "none"), Viewer("ann", "own")


def alone(work: Coroutine[Any, Any, Any]) -> Any:
    """What it returns, in a thread of its own: who drives a browser in this process leaves its event loop running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


class Daemon:
    """Stands in for a daemon: gives what the test puts there, and counts who asks."""

    def __init__(self, **parts: Any) -> None:
        self.answer = answer(**parts)
        self.asked: list[str] = []
        self.down = ""

    def __call__(self, path: Path, verb: str, *, timeout_s: float = 1.0, **arguments: Any) -> Any:
        self.asked.append(verb)
        if self.down:
            raise DaemonDown(self.down)
        if verb == "explain":
            return story(arguments["job"])
        if arguments["as_of"] == self.answer["as_of"]:
            return {key: self.answer[key] for key in ("as_of", "now_s", "doing", "paused")} | {"same": True}
        return self.answer


def app(daemon: Daemon, **options: Any) -> WebApp:
    """The page over it, which has asked once."""
    web = WebApp(PageFeed(Path("no.sock"), 0.01, daemon), **options)
    alone(web.feed.look())
    return web


def get(
    web: WebApp,
    target: str,
    client: tuple[str, int] = ("tcp", -1),
    *headers: tuple[str, str],
    host: str = "localhost",
) -> tuple[int, dict[str, str], str]:
    """Status, headers and text of a request that ends."""
    path, _, query = target.partition("?")
    sent: list[Mapping[str, Any]] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "server": None,
        "client": client,
        "headers": [(b"host", host.encode())]
        + [(key.lower().encode(), value.encode()) for key, value in headers],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    alone(web.asgi(scope, receive, send))  # type: ignore[arg-type]
    found = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(one.get("body", b"") for one in sent[1:]).decode()


def seen(viewer: Viewer, *, window: Window | None = None, **parts: Any) -> dict[str, Any]:
    """The view of one page."""
    web = app(Daemon(**parts))
    return web.view(web.feed.page, viewer, window or Window())


# ----------------------------------------------------------------------------------------------------- who sees what


def test_whoever_may_see_everything_sees_everything() -> None:
    view = seen(ALL)
    assert view["queue"]["order"] == ["900", "901", "902", "903", "904"]
    assert view["guests"]["900"]["from"] == {"901": 1.2, "902": 0.5, "free": 0.3}
    assert [number for number, _ in view["decisions"]] == [7, 8]
    assert view["experts"]["last"]["job"] == "901" and view["experts"]["applications"]
    assert "cleo" in view["fragments"]["statements"]


def test_where_jobs_are_private_nobody_sees_a_trace_of_anothers() -> None:
    view = seen(ANN)
    assert view["queue"]["order"] == ["900", "902"] and view["queue"]["counts"] == {"guest": 1, "running": 1}
    assert view["guests"]["900"]["from"] == {OTHER: 1.2, "902": 0.5, "free": 0.3}
    (only,) = view["decisions"]
    assert f"1.2 from {OTHER}, 0.5 from 902, 0.3 free; it should end 1309 s sooner" in only[1]["reason"]
    text = json.dumps(view)
    for others in ("bob", "cleo", "secret-project", "render", '"901"', "903", "904", "77", "/secret"):
        assert others not in text, others


def test_without_an_identity_only_figures_are_seen() -> None:
    view = seen(NOBODY, private=False)
    assert (view["queue"]["order"], view["jobs"], view["guests"], view["decisions"]) == ([], {}, {}, [])
    assert view["nodes"]["n0001"][:2] == [16, 1] and view["head"]["gains"]["guests"] == 3
    text = json.dumps(view)
    for anybodys in (
        "ann",
        "bob",
        "cleo",
        "sweep",
        "solver",
        *(f'"90{number}' for number in range(5)),
        "/secret",
    ):
        assert anybodys not in text, anybodys


def test_the_host_of_anothers_is_not_named_and_neither_is_the_owner_of_a_veto() -> None:
    jobs = columns_of_jobs(
        [("900", "guest", "ann", "sweep", 4, "901"), ("901", "running", "bob", "x", 8, "")]
    )
    view = seen(ANN, jobs=jobs)
    assert OTHER in view["jobs"]["900"] and "901" not in json.dumps(view["jobs"])
    assert "901" in seen(ALL, jobs=jobs)["jobs"]["900"]


@pytest.mark.parametrize(
    ("user", "private", "sees"),
    [
        ("", False, "none"),
        ("", True, "none"),
        ("ann", True, "own"),
        ("ann", False, "all"),
        ("root", True, "all"),
    ],
)
def test_what_somebody_sees_follows_from_who_he_is_and_what_slurm_says(
    user: str, private: bool, sees: str
) -> None:
    assert viewer_of(user, private, "").sees == sees


def test_operators_see_everything() -> None:
    me = pwd.getpwuid(os.getuid())
    assert viewer_of("nobody-of-that-name", True, "no-such-group").sees == "own"
    import grp

    assert viewer_of(me.pw_name, True, grp.getgrgid(me.pw_gid).gr_name).sees == "all"


# ------------------------------------------------------------------------------------------------------------ identity


def test_the_peer_of_a_socket_is_who_the_kernel_says() -> None:
    web = app(Daemon())
    me = pwd.getpwuid(os.getuid()).pw_name
    assert web.user({"client": ("peer", os.getuid())}, {}) == me
    assert web.user({"client": ("peer", 4_000_000)}, {}) == "4000000"
    assert web.user({"client": ("tcp", -1)}, {}) == ""


def test_a_header_names_the_user_only_where_the_proxy_alone_comes() -> None:
    web = app(Daemon(), header="X-Remote-User")
    named = ("X-Remote-User", "ann")
    assert get(web, "/explain?job=900", ("proxy", 33), named)[0] == 200
    for client in (("tcp", -1), ("peer", 4_000_000)):
        assert get(web, "/explain?job=900", client, named)[0] == 404, client
    for hostile in ("ann\tbob", "../ann", "", "ann,bob", "a" * 90):
        assert get(web, "/explain?job=900", ("proxy", 33), ("X-Remote-User", hostile))[0] == 404, hostile
    assert get(web, "/explain?job=900", ("proxy", 33), named, ("X-Remote-User", "root"))[0] == 404


def test_a_page_of_somebody_elses_cannot_send_a_browser_here() -> None:
    web = app(Daemon(), hosts=("head.site.org",))
    assert get(web, "/", host="evil.example:9621")[0] == 421
    assert get(web, "/", ("peer", 1), host="evil.example")[0] == 421
    for host in ("localhost:8080", "127.0.0.1:9621", "[::1]:9621", "head.site.org"):
        assert get(web, "/", host=host)[0] == 200, host
    assert get(web, "/", ("proxy", 33), host="status.site.org")[0] == 200, "the proxy has seen to that"


@pytest.mark.parametrize("text", ["0.0.0.0:9621", "10.1.2.3:80", "head:9621", "no address", "[::]:80"])
def test_it_listens_nowhere_where_other_machines_come(text: str) -> None:
    with pytest.raises(UsageError, match="--listen"):
        place_of(text)


def test_it_listens_at_sockets_and_at_this_machine() -> None:
    assert place_of("/run/x.sock") == Place("peer", "/run/x.sock")
    assert (
        place_of("127.0.0.1:9621").kind == place_of("localhost:1").kind == place_of("[::1]:5").kind == "tcp"
    )
    assert not is_loopback("localhost.evil.example")


def test_a_proxys_socket_is_its_groups_alone(tmp_path: Path) -> None:
    import grp

    group = grp.getgrgid(os.getgid()).gr_name
    path = tmp_path / "proxy.sock"
    with opened([Place("proxy", str(path), group), Place("peer", str(tmp_path / "page.sock"))]):
        assert path.stat().st_mode & 0o777 == 0o660 and path.stat().st_gid == os.getgid()
        assert (tmp_path / "page.sock").stat().st_mode & 0o777 == 0o666
        with pytest.raises(AsadError, match="another process listens"), opened([Place("peer", str(path))]):
            pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="no group"), opened([Place("proxy", str(path), "no-such-group")]):
        pass


# ------------------------------------------------------------------------------------------------------ over the line


def test_only_what_has_changed_is_sent() -> None:
    old = {
        "nodes": {"a": [1], "b": [2], "c": [3]},
        "head": {"x": 1},
        "decisions": [[1, "p"], [2, "q"]],
        "trees": [1],
    }
    new = {"nodes": {"a": [1], "b": [9]}, "head": {"x": 2}, "decisions": [[2, "q"], [3, "r"]], "trees": [1]}
    assert delta(old, new) == {
        "nodes": {"set": {"b": [9]}, "drop": ["c"]},
        "head": {"x": 2},
        "decisions": [[3, "r"]],
    }
    assert delta(new, new) == {}
    assert delta({}, new)["decisions"] == new["decisions"]


def test_a_daemon_that_starts_anew_counts_its_decisions_anew() -> None:
    assert delta({"decisions": [[90, "old"]]}, {"decisions": [[1, "new"]]}) == {"decisions": [[1, "new"]]}


def events(
    web: WebApp, user: str, count: int, *, window: Window | None = None, known: str = ""
) -> list[dict[str, Any]]:
    """The first changes that are sent to a user; the daemon has a new cycle between two."""
    daemon = web.feed._ask
    assert isinstance(daemon, Daemon)

    async def collected() -> list[dict[str, Any]]:
        found = []
        stream = web._stream(user, window or Window(), known)
        async for block in stream:
            found.append(json.loads(block.split(b"data: ")[1]))
            if len(found) == count:
                break
            following = answer(len(daemon.asked) + 5)
            following["nodes"]["used"][1] = 3.25
            daemon.answer = following
            await web.feed.look()
        await stream.aclose()
        return found

    return alone(collected())


def test_a_viewer_is_sent_the_whole_and_then_what_changed() -> None:
    web = app(Daemon())
    whole, change = events(web, "root", 2)
    assert whole["whole"] is True and set(whole["nodes"]["set"]) == {"n0000", "n0001", "n0002"}
    assert set(change) == {"head", "nodes", "samples", "number"}
    assert change["nodes"] == {"set": {"n0001": [16, 1, 3.25, 0.25, 0.01, 1, "", False, 0.5]}, "drop": []}
    assert web.feed.lookers == 0 and web._streams.total() == 0


def test_whoever_wants_other_jobs_is_sent_those_alone() -> None:
    web = app(Daemon())
    (whole,) = events(web, "root", 1)
    (change,) = events(web, "root", 1, window=Window(text="solver"), known=whole["number"])
    assert set(change) == {"jobs", "queue"} and change["queue"]["order"] == ["902"]


def test_jobs_are_found_by_state_and_by_part_of_what_they_are_called() -> None:
    assert seen(ALL, window=Window(state="running"))["queue"]["order"] == ["901", "902"]
    assert seen(ALL, window=Window(text="SECRET"))["queue"]["order"] == ["903"]
    assert seen(ALL, window=Window(first=1, most=2))["queue"] | {"counts": 0} == {
        "order": ["901", "902"], "found": 5, "first": 1, "counts": 0,
    }  # fmt: skip
    assert seen(ANN, window=Window(text="secret"))["queue"]["found"] == 0
    assert Window.of({"state": "x", "first": "-3", "most": "1e9"}) == Window()
    assert Window.of({"state": "guest", "first": "40", "most": "9999", "text": "a" * 99}) == Window(
        "guest", "a" * 80, 40, 500
    )


def test_ten_viewers_ask_the_daemon_no_more_than_one() -> None:
    daemon = Daemon()
    web = app(daemon)

    async def watched() -> list[int]:
        heard = [0] * 10

        async def look(at: int) -> None:
            async for _ in web._stream("root", Window(), ""):
                heard[at] += 1

        looking = [asyncio.create_task(look(at)) for at in range(10)]
        while min(heard) < 1:
            await asyncio.sleep(0.01)
        daemon.answer = answer(2)
        await web.feed.look()
        while min(heard) < 2:
            await asyncio.sleep(0.01)
        web.feed.close()
        await asyncio.gather(*looking)
        return heard

    assert alone(watched()) == [2] * 10
    assert daemon.asked == ["page", "page"] and web.feed.lookers == 0


def test_whoever_comes_does_not_make_it_ask_sooner_than_the_interval() -> None:
    daemon = Daemon()
    feed = PageFeed(Path("no.sock"), 3600.0, daemon)

    async def watched() -> None:
        asking = asyncio.create_task(feed.run())
        while not feed.asked:
            await asyncio.sleep(0.01)
        for _ in range(20):
            async with contextlib.aclosing(feed.pages(0.01)) as pages:
                async for _ in pages:
                    break
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    alone(watched())
    assert feed.asked == 1


def test_a_daemon_that_is_down_is_reported_and_found_again() -> None:
    daemon = Daemon()
    web = app(daemon)
    daemon.down = "no daemon answers"
    alone(web.feed.look())
    view = web.view(web.feed.page, ALL, Window())
    assert view["head"]["trouble"] == "no daemon answers" and view["queue"]["found"] == 5, (
        "what was seen stays"
    )
    daemon.down = ""
    alone(web.feed.look())
    assert web.view(web.feed.page, ALL, Window())["head"]["trouble"] == ""


def test_a_page_without_any_answer_yet_is_empty_and_says_why() -> None:
    daemon = Daemon()
    daemon.down = "no daemon answers"
    web = app(daemon)
    view = web.view(web.feed.page, ALL, Window())
    assert (view["nodes"], view["jobs"], view["head"]["trouble"]) == ({}, {}, "no daemon answers")
    assert "no daemon answers" in get(web, "/")[2]


# ----------------------------------------------------------------------------------------------------- hostile names


def test_what_users_call_their_jobs_is_never_markup() -> None:
    web = app(Daemon(private=False))
    page, explained = get(web, "/")[2], get(web, "/explain?job=900", ("peer", 0))[2]
    for html in (page, explained, *seen(ALL)["fragments"].values()):
        assert "<img" not in html and "<script>w" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in explained
    name = seen(ALL)["jobs"]["901"][2]
    assert name.startswith("<img") and "\x1b" not in name and "\u202e" not in name, "text, put there as text"
    assert HOSTILE.startswith("<img")


@pytest.mark.parametrize(
    "target", ["/", "/explain?job=900", "/static/live.js", "/static/page.css", "/nowhere"]
)
def test_every_answer_lets_nothing_in_and_nothing_out(target: str) -> None:
    _, headers, _ = get(app(Daemon()), target, ("peer", 0))
    assert {
        key.lower(): value for key, value in HEADERS.items() if key != "Cache-Control"
    }.items() <= headers.items()
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["content-security-policy"].startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'"
    )


def test_the_page_has_no_script_or_style_within_and_names_no_other_place() -> None:
    web = app(Daemon())
    html = get(web, "/")[2]
    assert "<style" not in html and " style=" not in html and " onload" not in html
    assert "<script src=" in html and "<script>" not in html
    for name, (content, _, _) in web.static.items():
        found = (
            content.decode()
            .replace("https://github.com/leeoniya/uPlot", "")
            .replace("http://www.w3.org/2000/svg", "")
        )
        assert "://" not in found, name


def test_files_are_those_that_there_are_and_are_not_sent_twice() -> None:
    web = app(Daemon())
    status, headers, _ = get(web, "/static/uplot.js")
    assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert get(web, "/static/uplot.js", ("tcp", -1), ("If-None-Match", headers["etag"]))[0] == 304
    for name in ("/static/nothing.js", "/static/../web_app.py", "/static/uplot.LICENSE"):
        assert get(web, name)[0] == 404, name


# ------------------------------------------------------------------------------------------------------------- stories


def test_the_story_of_a_job_is_its_owners_where_jobs_are_private() -> None:
    daemon = Daemon()
    web = app(daemon, header="X-Remote-User")

    def explained(job: str, user: str) -> tuple[int, str]:
        status, _, html = get(web, f"/explain?job={job}", ("proxy", 33), ("X-Remote-User", user))
        return status, html

    assert explained("900", "ann")[0] == 200
    assert "901" not in explained("900", "ann")[1] and OTHER in explained("900", "ann")[1]
    assert (
        explained("901", "ann") == explained("12345", "ann")
        or explained("901", "ann")[0] == explained("12345", "ann")[0] == 404
    )
    assert "901" in explained("900", "root")[1]
    assert daemon.asked.count("explain") == 1, "once a cycle, whoever asks"


def test_a_story_that_cannot_be_had_says_so() -> None:
    daemon = Daemon()
    web = app(daemon)
    daemon.down = "no daemon answers"
    status, _, html = get(web, "/explain?job=900", ("peer", 0))
    assert status == 503 and "no daemon answers" in html


# ------------------------------------------------------------------------------------------------------ a real server


@pytest.fixture
def serve() -> Iterator[Callable[[WebApp, list[Place]], None]]:
    """Serves a page in a thread until the test is over."""
    running: list[tuple[PageServer, threading.Thread, Any]] = []

    def start(web: WebApp, places: list[Place]) -> None:
        listening = opened(places)
        sockets = listening.__enter__()
        server = PageServer(web.asgi, places, web.feed.close)
        thread = threading.Thread(target=server.run, args=(sockets,))
        thread.start()
        running.append((server, thread, listening))

    yield start
    for server, thread, listening in running:
        server.should_exit = True
        thread.join(300)
        listening.__exit__(None, None, None)


def test_a_real_socket_says_whose_browser_comes(serve: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "page.sock"
    web = app(Daemon())
    serve(web, [Place("peer", str(path))])
    with socket.socket(socket.AF_UNIX) as browser:
        browser.settimeout(300)
        browser.connect(str(path))
        browser.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = b""
        while b'"viewer"' not in heard:
            heard += browser.recv(65536)
        assert b"text/event-stream" in heard
        assert f'"viewer":"{pwd.getpwuid(os.getuid()).pw_name}"'.encode() in heard


def asad_web(*options: str) -> subprocess.Popen[str]:
    """The program, in a process of its own."""
    code = "from asad.web.asad_web import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def test_the_program_asks_a_real_control_socket_and_leaves_nothing_behind(tmp_path: Path) -> None:
    control = ControlServer(tmp_path / "asad.sock", lambda request, peer: answer(1))
    control.start()
    page = tmp_path / "page.sock"
    process = asad_web("--socket", str(tmp_path / "asad.sock"), "--listen", str(page), "--interval", "0.5")
    try:
        heard, until = b"", time.monotonic() + 300
        while b'"900"' not in heard and time.monotonic() < until:
            with socket.socket(socket.AF_UNIX) as browser, contextlib.suppress(OSError):
                browser.settimeout(5)
                browser.connect(str(page))
                browser.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                while b'"900"' not in heard and (block := browser.recv(65536)):
                    heard += block
        assert b'"900"' in heard
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=300)
        control.stop()
    assert process.returncode == 0 and "Traceback" not in errors and not page.exists(), errors


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--listen", "0.0.0.0:80"), "can be reached from other machines"),
        (("--proxy-socket", "/nowhere/x.sock"), "--proxy-group go together"),
        (("--identity-header", "X User"), "letters, digits and hyphens"),
    ],
)
def test_wrong_usage_is_named_with_a_hint(options: tuple[str, ...], hint: str) -> None:
    process = asad_web(*options)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2 and hint in errors
