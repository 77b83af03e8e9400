"""The requests that a browser makes: the page, its files, what changes (server-sent events), and the story of a job."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
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
MOST_STORIES_OF_USER = 4
"""So many stories may one user wait for at a time: the daemon is asked for one after the other."""
MOST_ASKED, ASKED_S = 60, 10.0
"""So many streams and stories may one user ask for within so many seconds."""
MOST_VIEWS = 40
"""So many views of a page are kept for who may see the same; each is as large as the page."""
TOO_MANY = "too many look at the page, or ask it too much; close some, and try again in half a minute"
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
        self._stories: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._asked_s = 0.0
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
        self.asgi: ASGIApp = _Secured(starlette, self._refused)

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

    def _refused(self, scope: Scope, headers: Any) -> Response | None:
        """The answer to whom a page of somebody else's sends here: by a name that is not this machine's, or to fetch
        what it cannot read and would use up."""
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("a page of another site asked for this", 403)
        if scope["client"] is not None and scope["client"][0] == "proxy":
            return None
        if re.sub(r":\d*$", "", headers.get("host", "")).lower() in self.hosts:
            return None
        return PlainTextResponse("this host is not ours; --host names others than localhost", 421)

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

    def _asks_too_much(self, user: str) -> bool:
        """Has one user asked for more than a person does? The others' answers would wait for theirs."""
        now_s = time.monotonic()
        if now_s >= self._asked_s:
            self._asked_s = now_s + ASKED_S
            self._asked.clear()
        self._asked[user] += 1
        return self._asked[user] > MOST_ASKED

    async def _events(self, request: Request) -> Response:
        user = self.user(request.scope, request.headers)
        streams = self._streams
        if (
            streams.total() >= MOST_STREAMS
            or streams[user] >= MOST_STREAMS_OF_USER
            or self._asks_too_much(user)
        ):
            return PlainTextResponse(TOO_MANY, 503, headers={"Retry-After": "30"})
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        window = Window.of(request.query_params)
        return _EventStream(
            self._stream(user, window, request.query_params.get("known", "")),
            self._streams,
            user,
        )

    async def _stream(self, user: str, window: Window, known: str) -> AsyncIterator[bytes]:
        """What changes for one viewer. He is sent the whole at first; only jobs if he has the rest of this very page
        (`known`), and wants to see other jobs."""
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
                text = json.dumps(change, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
                line = text.encode(
                    errors="replace"
                )  # a lone surrogate somewhere is no reason to send nothing
                yield b"event: change\ndata: " + line + b"\n\n"
                await asyncio.sleep(len(line) / BYTES_A_SECOND)

    def view(self, page: Page, viewer: Viewer, window: Window) -> dict[str, Any]:
        """A view of a page; those who may see the same share one."""
        if page.number != self._views_of:
            self._views_of = page.number
            self._views.clear()
        found = self._views.get((viewer, window))
        if found is None:
            found = view_of(page, viewer, window, self.fragments)
            found["number"] = f"{self._began}-{page.number}"
            if len(self._views) >= MOST_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[viewer, window] = found
        return dict(found)

    async def _explain(self, request: Request) -> Response:
        job, viewer, page = request.query_params.get("job", "")[:80], self.viewer(request), self.feed.page
        user = viewer.user
        if self._stories[user] >= MOST_STORIES_OF_USER or self._asks_too_much(user):
            return HTMLResponse(self._story({"job": job, "error": TOO_MANY}), 503)
        try:
            with _counted(self._stories, user):
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


@contextlib.contextmanager
def _counted(counter: Counter[str], user: str) -> Iterator[None]:
    """One more of a user's, until it is over."""
    counter[user] += 1
    try:
        yield
    finally:
        counter[user] -= 1
        if not counter[user]:
            del counter[user]


class _EventStream(StreamingResponse):
    """Ends as soon as the browser is gone, and not when something is to be sent to it next."""

    def __init__(self, content: AsyncIterator[bytes], streams: Counter[str], user: str) -> None:
        """`streams` counts those of each user: this one too, from the moment in which it is called."""
        super().__init__(content, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._counted = _counted(streams, user)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted:
            await self._until_gone(receive, send)

    async def _until_gone(self, receive: Receive, send: Send) -> None:
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
    """Puts `HEADERS` on every answer, and refuses whom the pages of others send here."""

    def __init__(self, app: ASGIApp, refused: Callable[[Scope, Any], Response | None]) -> None:
        self._app, self._refused = app, refused

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

        refused = self._refused(scope, Request(scope).headers)
        await (refused or self._app)(scope, receive, with_headers)
