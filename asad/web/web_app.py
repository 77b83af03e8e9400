"""The requests that a browser makes: the page, its files, what changes (server-sent events), and the story of a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from asad.errors import AsadError
from asad.report import units
from asad.web.deltas import delta
from asad.web.fragments import Fragments
from asad.web.page_feed import Page, PageFeed
from asad.web.stories import story_of
from asad.web.viewers import USER, Viewer, user_of_uid, viewer_of
from asad.web.visible import Window, view_of

BYTES_A_SECOND = 12_000
"""What one viewer is sent on average, so that a page that is left open takes less than a megabyte a minute."""
PING_S = 20.0
"""So often something is sent where nothing happens: whoever is gone is noticed."""
VIEWER_S = 60.0
"""So long holds what was found of somebody's groups."""
MOST_STREAMS, MOST_STREAMS_OF_USER = 200, 20
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Of every answer."""
TYPES = {"js": "text/javascript", "css": "text/css"}
SECTIONS = (
    ("now", "The cluster now"),
    ("queue", "Jobs and the queue"),
    ("guests", "Pools and their guests"),
    ("decisions", "Decisions"),
    ("gains", "Gains to date"),
    ("experts", "Experts"),
    ("plans", "Prices, deferral and statements"),
    ("idle", "What was idle, and where it went"),
)
"""Key, which is the name of the template too, and title."""


class WebApp:
    """What is asked of `asad-web`, and who asks."""

    def __init__(self, feed: PageFeed, header: str = "", hosts: Sequence[str] = ()) -> None:
        """`header` is where the proxy names the user, `hosts` are names of this machine beside localhost."""
        self.feed, self.header = feed, header
        self.hosts = {"localhost", "127.0.0.1", "[::1]", *hosts}
        self.fragments = Fragments()
        self.static = dict(_static())
        self._streams: Counter[str] = Counter()
        self._views: dict[tuple[Viewer, Window], Any] = {}
        self._views_of = -1
        self._viewers: dict[tuple[str, bool, str], Viewer] = {}
        self._forget_s = 0.0
        self._began = secrets.token_hex(4)
        """By which this process's pages differ from those of another one."""
        routes = [
            Route("/", self._page),
            Route("/events", self._events),
            Route("/explain", self._explain),
            Route("/static/{name}", self._file),
        ]
        starlette = Starlette(routes=routes, lifespan=self._lifespan)
        # which names the host, scheme and path that the proxy asked by, and not those of the browser
        starlette.router.redirect_slashes = False
        self.asgi: ASGIApp = _Secured(starlette, self._is_strange)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        asking = asyncio.create_task(self.feed.run())
        try:
            yield
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking

    # --------------------------------------------------------------------------------------------------- who asks

    def _is_strange(self, scope: Scope, headers: Any) -> bool:
        """Does it ask for another host than this? Then a page of somebody else's steers a browser here."""
        if scope["client"] is not None and scope["client"][0] == "proxy":
            return False
        return re.sub(r":\d*$", "", headers.get("host", "")).lower() not in self.hosts

    def user(self, scope: Scope, headers: Any) -> str:
        """The name of who asks; empty where nobody vouches for one."""
        kind, uid = scope["client"] or ("tcp", -1)
        if kind == "peer" and uid >= 0:
            return user_of_uid(uid)
        if kind == "proxy" and self.header:
            named = headers.getlist(self.header)
            if len(named) == 1 and USER.fullmatch(named[0]):
                return str(named[0])
        return ""

    def viewer(self, request: Request) -> Viewer:
        """Who asks, and what he may see by now."""
        return self._viewer(self.user(request.scope, request.headers))

    def _viewer(self, user: str) -> Viewer:
        """Groups are looked up where the site keeps them, and not for every answer."""
        parts, now_s = self.feed.page.parts, time.monotonic()
        asked = (user, bool(parts.get("private", True)), str(parts.get("operators", "")))
        if now_s >= self._forget_s:
            self._forget_s = now_s + VIEWER_S
            self._viewers.clear()
        if asked not in self._viewers:
            self._viewers[asked] = viewer_of(*asked)
        return self._viewers[asked]

    # ---------------------------------------------------------------------------------------------------- answers

    async def _page(self, request: Request) -> Response:
        page = self.feed.page
        cluster = (page.parts.get("status") or {}).get("cluster") or {}
        html = self.fragments.templates.get_template("live.html").render(
            title="asad: the cluster now",
            kicker="live",
            heading="The cluster now",
            facts=units.plain(cluster.get("sentence") or page.trouble or "nothing has been seen yet"),
            modules=[name for name in self.static if name.endswith(".js") and name != "uplot.js"],
            sections=[{"key": key, "title": title} for key, title in SECTIONS],
        )
        return HTMLResponse(html)

    async def _file(self, request: Request) -> Response:
        found = self.static.get(request.path_params["name"])
        if found is None:
            return PlainTextResponse("no such file", 404)
        content, kind, tag = found
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    async def _events(self, request: Request) -> Response:
        user = self.user(request.scope, request.headers)
        if self._streams.total() >= MOST_STREAMS or self._streams[user] >= MOST_STREAMS_OF_USER:
            return PlainTextResponse(
                "too many look at the page; close some", 503, headers={"Retry-After": "30"}
            )
        window = Window.of(request.query_params)
        return _EventStream(
            self._stream(user, window, request.query_params.get("known", "")),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _stream(self, user: str, window: Window, known: str) -> AsyncIterator[bytes]:
        """What changes for one viewer. He is sent the whole at first; only jobs if he has the rest of this very page
        (`known`), and wants to see other jobs."""
        self._streams[user] += 1
        try:
            sent: dict[str, Any] = {}
            async with contextlib.aclosing(self.feed.pages(PING_S)) as pages:
                async for page in pages:
                    view = self.view(page, self._viewer(user), window)
                    if not sent and known == view["number"]:
                        sent = {part: value for part, value in view.items() if part not in ("jobs", "queue")}
                    is_whole, change = not sent, delta(sent, view)
                    if is_whole:
                        change["whole"] = True
                    if not change:
                        yield b": still here\n\n"
                        continue
                    sent = view
                    line = json.dumps(
                        change, separators=(",", ":"), ensure_ascii=False, allow_nan=False
                    ).encode()
                    yield b"event: change\ndata: " + line + b"\n\n"
                    await asyncio.sleep(len(line) / BYTES_A_SECOND)
        finally:
            self._streams[user] -= 1

    def view(self, page: Page, viewer: Viewer, window: Window) -> dict[str, Any]:
        """A view of a page; those who may see the same share one."""
        if page.number != self._views_of:
            self._views_of = page.number
            self._views.clear()
        found = self._views.get((viewer, window))
        if found is None:
            found = view_of(page, viewer, window, self.fragments)
            found["number"] = f"{self._began}-{page.number}"
            self._views[viewer, window] = found
        return dict(found)

    async def _explain(self, request: Request) -> Response:
        job, viewer, page = request.query_params.get("job", "")[:80], self.viewer(request), self.feed.page
        try:
            story = await story_of(self.feed, page, job, viewer)
        except AsadError as error:
            return HTMLResponse(self._story({"job": job, "error": units.plain(error, 400)}), 503)
        return HTMLResponse(self._story(story), 404 if "error" in story else 200)

    def _story(self, story: dict[str, Any]) -> str:
        return self.fragments.templates.get_template("live/story.html").render(story=story)


def _static() -> dict[str, tuple[bytes, str, str]]:
    """Files of the page by name, with their type and a tag that changes with them."""
    from hashlib import sha256

    report = files("asad.report") / "templates" / "page.css"
    found = [
        entry for entry in (files("asad.web") / "static").iterdir() if entry.name.rpartition(".")[2] in TYPES
    ]
    static = {}
    for entry in [report, *found]:
        content = entry.read_bytes()
        static[entry.name] = (
            content,
            TYPES[entry.name.rpartition(".")[2]],
            f'"{sha256(content).hexdigest()[:20]}"',
        )
    return static


class _EventStream(StreamingResponse):
    """Ends as soon as the browser is gone, and not when something is to be sent to it next."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        both = [asyncio.create_task(self.stream_response(send)), asyncio.create_task(gone())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)


class _Secured:
    """Puts `HEADERS` on every answer, and refuses who asks for another host."""

    def __init__(self, app: ASGIApp, is_strange: Any) -> None:
        self._app, self._is_strange = app, is_strange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if self._is_strange(scope, Request(scope).headers):
            text = "this host is not ours; --host names others than localhost"
            await PlainTextResponse(text, 421)(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)
