"""Browsers that want the live page for themselves alone, and users whose names are written to break it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="no starlette (pip install '.[web]')")

from live_page_samples import columns_of_jobs
from test_live_page import ALL, Daemon, alone, app, get, serve

from asad.web import listeners, web_app
from asad.web.listeners import Place
from asad.web.visible import Window
from asad.web.web_app import WebApp

__all__ = ["serve"]  # the fixture

SHORT_S = 0.3


@pytest.fixture
def knock(
    serve: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes], socket.socket]:
    """Opens connections to a page that is not patient, and sends something."""
    monkeypatch.setattr(listeners, "REQUEST_S", SHORT_S)
    monkeypatch.setitem(listeners.MOST_CONNECTIONS, "peer", 8)
    monkeypatch.chdir(tmp_path)
    serve(app(Daemon()), [Place("peer", "./page.sock")])

    def connected(sent: bytes) -> socket.socket:
        browser = socket.socket(socket.AF_UNIX)
        browser.settimeout(120)
        browser.connect("page.sock")
        with contextlib.suppress(OSError):
            browser.sendall(sent)
        return browser

    return connected


def rest(browser: socket.socket) -> bytes:
    """What comes until the page ends the connection."""
    heard = b""
    with browser, contextlib.suppress(ConnectionError):
        while block := browser.recv(65536):
            heard += block
    return heard


def asked(target: str, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()


def test_who_sends_nothing_or_little_at_a_time_is_not_waited_for(
    knock: Callable[[bytes], socket.socket],
) -> None:
    watching = knock(asked("/events"))
    slow = {
        what: knock(sent)
        for what, sent in {
            "nothing": b"",
            "half a request": b"GET / HTTP/1.1\r\nHost: local",
            "half a body": asked("/", "POST", "Content-Length: 10000\r\n"),
            "half a body of a page": asked("/", "GET", "Content-Length: 10000\r\n"),
        }.items()
    }
    began = time.monotonic()
    while slow:
        assert time.monotonic() < began + 60, slow.keys()
        time.sleep(SHORT_S / 3)
        for what, browser in list(slow.items()):
            try:  # a byte now and then
                browser.sendall(b"x" * (what != "nothing"))
                browser.recv(65536, socket.MSG_DONTWAIT) or slow.pop(what).close()
            except BlockingIOError:
                pass
            except OSError:
                slow.pop(what).close()
    heard = b""
    while b'"whole":true' not in heard:
        block = watching.recv(65536)
        assert block, "who watches is not sent away"
        heard += block
    watching.close()
    assert rest(knock(asked("/static/live.js"))).startswith(b"HTTP/1.1 200")


def test_who_does_not_read_is_not_kept(knock: Callable[[bytes], socket.socket]) -> None:
    began = time.monotonic()
    with knock(asked("/static/uplot.js") * 60) as greedy, pytest.raises(ConnectionError):
        while time.monotonic() < began + 60:
            time.sleep(SHORT_S)
            with contextlib.suppress(BlockingIOError):
                greedy.send(b"x", socket.MSG_DONTWAIT)


def test_one_user_cannot_take_all_connections(knock: Callable[[bytes], socket.socket]) -> None:
    watching = [knock(asked("/events")) for _ in range(8)]
    assert all(browser.recv(12) == b"HTTP/1.1 200" for browser in watching)
    assert rest(knock(asked("/"))) == b""
    for browser in watching:
        browser.close()
    began, answer = time.monotonic(), b""
    while not answer:
        assert time.monotonic() < began + 60, "there is room again"
        answer = rest(knock(asked("/", more="Connection: close\r\n")))
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent", [asked(f"/?{'a' * 2_000_000}"), asked("/", more=f"X: {'a' * 2_000_000}\r\n")]
)
def test_a_request_without_an_end_is_refused(knock: Callable[[bytes], socket.socket], sent: bytes) -> None:
    assert rest(knock(sent))[9:12] in (b"400", b""), "it does not come, where the rest was not read any more"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (asked("/%2e%2e/%2e%2e/etc/passwd", more="Connection: close\r\n"), b"404"),
        (asked("/static/..%2fweb_app.py", more="Connection: close\r\n"), b"404"),
        (asked("/events", more="Connection: close\r\n", method="HEAD"), b"200"),
        (asked("/", more="Transfer-Encoding: chunked, identity\r\n"), b"400"),
        (asked("/", more="Content-Length: 5\r\nContent-Length: 6\r\n"), b"400"),
        (asked("/", more="X-A: b\r\n X-Remote-User: root\r\nConnection: close\r\n"), b"200"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Remote-User : root\r\n\r\n", b"400"),
    ],
)
def test_what_is_no_good_request_is_answered_and_over(
    knock: Callable[[bytes], socket.socket], sent: bytes, status: bytes
) -> None:
    assert rest(knock(sent))[9:12] == status


# ------------------------------------------------------------------------------------------------------ one of many


def statuses(web: WebApp, targets: list[str], client: tuple[str, int] = ("peer", 4_000_000)) -> Counter[int]:
    """Of requests that come in the same moment, of browsers that go when all have been answered."""

    async def asked_together() -> Counter[int]:
        found: Counter[int] = Counter()
        over = asyncio.Event()

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                found[message["status"]] += 1
                if found.total() == len(targets):
                    over.set()

        async def receive() -> dict[str, Any]:
            await over.wait()
            return {"type": "http.disconnect"}

        async def one(target: str) -> None:
            path, _, query = target.partition("?")
            scope = {
                "type": "http",
                "method": "GET",
                "path": path,
                "query_string": query.encode(),
                "headers": [(b"host", b"localhost")],
                "client": client,
            }
            await web.asgi(scope, receive, send)  # type: ignore[arg-type]

        await asyncio.gather(*map(one, targets))
        return found

    found = alone(asked_together())
    assert isinstance(found, Counter)
    assert web.feed.lookers == web._streams.total() == web._stories.total() == 0
    return found


def test_streams_that_are_opened_in_the_same_moment_are_counted() -> None:
    assert statuses(app(Daemon()), ["/events"] * 50) == {200: 20, 503: 30}


def test_who_asks_more_than_a_person_does_is_refused_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_app, "ASKED_S", 3600.0)
    web = app(Daemon(private=False))
    for number in range(6):
        assert statuses(web, [f"/events?text={number}-{more}" for more in range(10)]) == {200: 10}
    assert statuses(web, ["/events", "/explain?job=900"]) == {503: 2}
    assert statuses(web, ["/events", "/explain?job=900"], ("peer", 0)) == {200: 2}


def test_who_waits_for_many_stories_does_not_keep_others_from_theirs() -> None:
    daemon = Daemon(private=False)
    assert statuses(app(daemon), [f"/explain?job={number}" for number in range(50)]) == {200: 4, 503: 46}
    assert daemon.asked.count("explain") == 4


def test_views_of_what_somebody_types_do_not_fill_memory() -> None:
    web = app(Daemon())
    for number in range(500):
        web.view(web.feed.page, ALL, Window(text=str(number)))
    assert len(web._views) <= web_app.MOST_VIEWS


def test_pages_of_other_sites_fetch_nothing_and_may_link_here() -> None:
    web = app(Daemon(), header="X-Remote-User")
    strange = ("Sec-Fetch-Site", "cross-site")
    for client in (("peer", 0), ("proxy", 33), ("tcp", -1)):
        for target in ("/events", "/explain?job=900", "/static/live.js"):
            assert get(web, target, client, strange, ("Sec-Fetch-Mode", "no-cors"))[0] == 403
        assert get(web, "/", client, strange, ("Sec-Fetch-Mode", "navigate"))[0] == 200


@pytest.mark.parametrize(
    "name",
    ["a\n\nevent: change\ndata: {}\n\n", "a\r\rdata: x\r\r", "\u2028\u2029\x85", "\ud800x", "\0\x1b[2J"],
)
def test_whatever_a_job_or_node_is_called_is_in_one_frame(name: str) -> None:
    jobs = columns_of_jobs([("900", "running", name, name, 4, ""), (name, "waiting", "ann", name, 4, "")])
    daemon = Daemon(jobs=jobs)
    daemon.answer["nodes"]["node"][0] = name
    daemon.answer["status"]["cluster"]["sentence"] = name
    web = app(daemon)

    async def first() -> bytes:
        async with contextlib.aclosing(web._stream("root", Window(), "")) as stream:
            return await anext(stream)

    frame = alone(first())
    head, line, *end = frame.split(b"\n")
    assert (head, end) == (b"event: change", [b"", b""]) and b"\r" not in frame
    assert len(json.loads(line.removeprefix(b"data: "))["jobs"]["set"]) == 2
    assert get(web, "/")[0] == 200
