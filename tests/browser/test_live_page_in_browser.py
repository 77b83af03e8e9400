"""The live page in a real browser: what it shows, for whom it is readable, and that names of jobs do nothing there."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from chromium import Chromium
from live_page_samples import HOSTILE, answer, columns_of_jobs, columns_of_nodes, story
from live_recording import Played
from live_server import LiveServer, serving

from asad.api.control import DaemonDown

AA = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}
VERDICT = {"verdict": "admitted", "workers": 2, "next_s": 3000.0, "end_s": 6000.0, "reason": "it pays"}
SLOT = {"planned_cores": 4, "other_cores": 8.0, "price": 0.01}
WAITS = {"state": "held", "cores": 2, "rank": 1, "latest_s": 9000.0, "reason": HOSTILE}
FILLED: dict[str, Any] = {
    "admission": {
        "policy": "oasis",
        "jobs": [{"job": "903", **VERDICT}],
        "slots": [{"start_s": 3600.0 * slot, **SLOT} for slot in range(4)],
    },
    "deferral": {
        "policy": "lookahead",
        "jobs": [{"job": "904", **WAITS}],
        "forecast": [[3600.0 * step, 12.5] for step in range(4)],
    },
}


class Clockwork:
    """A daemon that answers whatever a test has wound it up with; each answer is another cycle's."""

    def __init__(self) -> None:
        self.number = 1
        self.parts: dict[str, Any] = {"private": False, "nodes": columns_of_nodes(40), **FILLED}
        self.down = False

    def __call__(self, path: Path, verb: str, *, timeout_s: float = 1.0, **arguments: Any) -> Any:
        if self.down:
            raise DaemonDown("no daemon answers here")
        return story(arguments["job"]) if verb == "explain" else answer(self.number, **self.parts)


@pytest.fixture
def daemon() -> Clockwork:
    return Clockwork()


@pytest.fixture
def page(daemon: Clockwork, tmp_path: Path) -> Iterator[LiveServer]:
    with serving(daemon, tmp_path) as server:
        yield server


def show(browser: Chromium, server: LiveServer, *, width: int = 1200, dark: bool = False) -> None:
    """Open the page and wait until it has drawn what there is."""
    browser.show(server.url, width=width, dark=dark)
    browser.wait("Boolean(document.documentElement.dataset.drawn && document.querySelector('#jobs tr'))")


@pytest.fixture(autouse=True)
def left(browser: Chromium) -> Iterator[None]:
    """Leaves the page, so that its stream ends before its server does."""
    yield
    browser.page.goto("about:blank")


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_it_fits_complains_of_nothing_and_is_readable_by_everybody(
    browser: Chromium, page: LiveServer, width: int, dark: bool
) -> None:
    show(browser, page, width=width, dark=dark)
    browser.ask("document.querySelectorAll('details').forEach(one => { one.open = true })")
    browser.page.wait_for_selector("#nodes-table tbody tr")
    found = Axe().run(browser.page, options=AA)
    assert found.violations_count == 0, found.generate_report()
    assert browser.complaints() == []
    assert {address.removeprefix(page.url).split("?")[0].split("/")[0] for address in browser.requests()} == {
        "", "static", "events",
    }  # fmt: skip
    assert browser.ask("document.documentElement.scrollWidth") <= width


def test_it_shows_who_looks_and_what_is_there(browser: Chromium, page: LiveServer) -> None:
    show(browser, page)
    me = pwd.getpwuid(os.getuid()).pw_name
    assert f"You are {me} and see everybody’s jobs" in browser.page.inner_text("#cycle")
    assert browser.page.inner_text("#tiles").split("\n")[:2] == ["3", "nodes"]
    label = browser.page.get_attribute("#map", "aria-label")
    assert label is not None and "Map of 40 nodes" in label
    assert browser.page.locator("#jobs tr").count() == 5
    assert "901 1.2, 902 0.5, free cores 0.3" in browser.page.inner_text("#guest-rows")
    assert "set-share: 901" in browser.page.inner_text("#decision-list li:first-child")
    for part in ("prices", "deferral", "statements", "idle", "reasons"):
        assert browser.page.locator(f"[data-fragment={part}] td").count() > 0, part
    assert browser.page.locator("#trees svg .last").count() == 1
    assert browser.page.locator(".uplot").count() == 4


def test_pools_and_what_guests_want_of_them_come_and_go(
    browser: Chromium, page: LiveServer, daemon: Clockwork
) -> None:
    show(browser, page)
    # 0.5 · (0 to 7) of each eight nodes, and 0.25 · (0 to 3) of each four
    assert browser.page.inner_text("#pools") == (
        "35 of 40 nodes have something in their pools: 70.0 cores’ worth of CPU, "
        "of which guests want 15.0 (21\u202f%)."
    )
    label = browser.page.get_attribute("#plot-pools", "aria-label")
    assert label == "Pools over time; at last given to the pools 70.0, wanted by guests 15.0."
    browser.page.click("#pools-table summary")
    browser.page.wait_for_selector("#pools-table tbody tr")
    first = browser.page.inner_text("#pools-table tbody tr:first-child").split("\t")
    assert first == ["n0007", "3.5", "0.8", "21\u202f%", "1"]
    daemon.parts["nodes"] = {key: column for key, column in columns_of_nodes(40).items() if key != "pool"}
    daemon.parts["experts"] = None
    daemon.number += 1
    browser.page.wait_for_selector("#pool-parts", state="hidden")
    assert browser.page.inner_text("#pools") == "The share policy lends from no pools."
    none = "The share policy asax asks no experts: there are no trees to draw."
    assert browser.page.inner_text("#no-experts") == none


def test_what_changes_comes_without_a_reload(browser: Chromium, page: LiveServer, daemon: Clockwork) -> None:
    show(browser, page)
    browser.ask("window.stayed = true")
    daemon.parts["jobs"] = columns_of_jobs([("977", "running", "dora", "fresh", 4, "")])
    daemon.number += 1
    browser.wait("document.querySelector('#jobs').textContent.includes('977')")
    assert browser.page.locator("#jobs tr").count() == 1 and browser.ask("window.stayed") is True
    before = page.sent
    daemon.number += 1
    browser.wait("document.querySelector('#cycle').textContent.includes('cycle 3')")
    assert page.sent - before < 3_000, "a cycle that changes next to nothing costs next to nothing"


def test_hostile_names_are_text(browser: Chromium, page: LiveServer) -> None:
    show(browser, page)
    assert browser.page.inner_text("#jobs tr:nth-child(2) .name").startswith("<img src=x onerror=alert(1)>")
    browser.page.click("#jobs tr:nth-child(1) button")
    browser.page.wait_for_selector("#story[open]")
    assert "<img src=x" in browser.page.inner_text("#story")
    assert browser.ask("window.pwned === undefined && document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []


def test_a_tag_that_got_in_would_run_nothing(browser: Chromium, page: LiveServer) -> None:
    show(browser, page)
    browser.ask("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=1\">')")
    browser.page.wait_for_timeout(200)
    assert browser.ask("window.pwned === undefined") is True
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_everything_can_be_done_with_the_keyboard(browser: Chromium, page: LiveServer) -> None:
    show(browser, page)
    browser.page.focus("#map")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowRight"):
        browser.page.keyboard.press(key)
    assert browser.page.inner_text("#node").startswith("n0001: 1 of 16 cores allocated")
    browser.page.focus("#filter input")
    browser.page.keyboard.type("solver")
    browser.wait("document.querySelectorAll('#jobs tr').length === 1")
    browser.page.focus("#jobs button")
    browser.page.keyboard.press("Enter")
    browser.page.wait_for_selector("#story[open]")
    assert "Job 902" in browser.page.inner_text("#story")
    found = Axe().run(browser.page, options=AA)
    assert found.violations_count == 0, found.generate_report()
    browser.page.keyboard.press("Escape")
    browser.page.wait_for_selector("#story:not([open])", state="attached")


def test_a_daemon_that_is_gone_is_reported_on_the_page(
    browser: Chromium, page: LiveServer, daemon: Clockwork
) -> None:
    show(browser, page)
    daemon.down = True
    browser.page.wait_for_selector("#trouble:not([hidden])")
    assert "no daemon answers here" in browser.page.inner_text("#trouble")
    assert browser.page.locator("#jobs tr").count() == 5, "what was seen stays"
    daemon.down = False
    browser.page.wait_for_selector("#trouble[hidden]", state="attached")


def test_the_scheme_changes_with_the_viewers(browser: Chromium, page: LiveServer) -> None:
    show(browser, page)
    light = browser.ask("getComputedStyle(document.body).backgroundColor")
    browser.page.emulate_media(color_scheme="dark")
    browser.wait("document.querySelectorAll('.uplot').length === 4")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") != light
    assert browser.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
def test_what_a_daemon_really_answers_is_drawn(
    browser: Chromium, tmp_path: Path, pictures: Path, dark: bool
) -> None:
    played = Played()
    with serving(played, tmp_path, 0.05) as server:
        browser.show(server.url, width=1200, dark=dark)
        last = played.answers[-1]["status"]["cycle"]["number"]
        browser.wait(f"document.querySelector('#cycle').textContent.includes('cycle {last}:')")
        browser.wait("document.querySelectorAll('.uplot').length === 4")
        assert browser.page.locator("#trees > details").count() == 8
        assert browser.page.locator("#trees svg .last").count() == 1
        assert (
            browser.page.locator("#guest-rows tr").count()
            == played.answers[-1]["status"]["cluster"]["guests"]
        )
        assert browser.complaints() == []
        waiting = played.answers[-1]["status"]["cluster"]["waiting"]
        browser.page.select_option("#filter select", "waiting")  # short enough for pools to be in the picture
        browser.wait(f"document.querySelectorAll('#jobs tr').length === {waiting}")
        picture = pictures / ("live-page-dark.png" if dark else "live-page.png")
        browser.screenshot(picture, 2100)
        assert picture.stat().st_size > 20_000
        browser.page.goto("about:blank")
