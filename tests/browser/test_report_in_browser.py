"""The page of a replay as a browser shows it: on a desk, at night, on a telephone, on paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import Chromium
from report_samples import TREATMENT, hostile, replay

from asad.report.page import write_page

SIZES = [(1200, False), (1200, True), (820, False), (390, False), (390, True), (320, False)]

# every element that sticks out of the window, other than what lies in a region made to scroll
STICKING_OUT = """
[...document.querySelectorAll("body *")]
  .filter(element => !element.closest(".scroll, .skip, .hidden, defs"))
  .filter(element => element.getClientRects().length)
  .map(element => [element, element.getBoundingClientRect()])
  .filter(([, box]) => box.width && (box.right > innerWidth + 1 || box.left < -1))
  .map(([element, box]) => `${element.tagName} ${element.textContent.slice(0, 40)} ${box.left} ${box.right}`)
"""

# letters of a figure that leave it, and labels of one kind that lie upon each other
LETTERS_LOST = """
[...document.querySelectorAll(".drawing svg")].filter(svg => svg.getClientRects().length).flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll("text")]
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  const out = boxes.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1
    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1).map(([text]) => `out: ${text}`);
  const upon = boxes.flatMap(([text, one], at) => boxes.slice(at + 1)
    .filter(([, other]) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
      && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 3)
    .map(([other]) => `upon each other: ${text} | ${other}`));
  return [...out, ...upon];
})
"""

# text whose contrast with what lies behind it is below WCAG's 4.5
FAINT = """
(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")].filter(element => element.getClientRects().length)
    .filter(element => [...element.childNodes]
      .some(node => node.nodeType === 3 && node.textContent.trim()))
    .map(element => {
      const style = getComputedStyle(element);
      const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
      const [one, other] = [light(parts(ink)), light(behind(element))];
      const [bright, dim] = one > other ? [one, other] : [other, one];
      return [element, (bright + 0.05) / (dim + 0.05)];
    })
    .filter(([, contrast]) => contrast < 4.5)
    .map(([element, contrast]) =>
      `${element.tagName} ${element.textContent.slice(0, 20)} ${contrast.toFixed(2)}`);
})()
"""

SHOWN = """
[...document.querySelectorAll(".drawing")]
  .filter(one => one.getClientRects().length).map(one => one.className)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_page(replay(2_000), path)
    return path


@pytest.fixture(scope="module")
def full_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "all-policies.html"
    write_page(replay(2_000, tuple(TREATMENT)), path)
    return path


@pytest.fixture(scope="module")
def hostile_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "hostile.html"
    write_page(hostile(), path)
    return path


@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_it_fits_says_nothing_and_asks_for_nothing(
    browser: Chromium, report: Path, pictures: Path, width: int, dark: bool
) -> None:
    browser.show(report, width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [report.as_uri()]
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(STICKING_OUT) == []
    assert browser.ask(LETTERS_LOST) == []
    picture = pictures / f"report-{width}-{'dark' if dark else 'light'}.png"
    browser.screenshot(picture)
    assert picture.stat().st_size > 20_000


@pytest.mark.parametrize("width", [1200, 390])
def test_all_policies_at_once_fit_too(browser: Chromium, full_report: Path, width: int) -> None:
    browser.show(full_report, width=width)
    assert browser.ask(STICKING_OUT) == []
    assert browser.ask(LETTERS_LOST) == []


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_is_readable_on_its_paper(browser: Chromium, report: Path, dark: bool) -> None:
    browser.show(report, width=1200, dark=dark)
    paper = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(21, 24, 28)" if dark else "rgb(253, 253, 251)")
    assert browser.ask("getComputedStyle(document.querySelector('svg text')).fill") == browser.ask(
        "getComputedStyle(document.body).color"
    )
    browser.ask("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert browser.ask(FAINT) == []


def test_of_each_figure_the_drawing_that_fits_is_shown(browser: Chromium, report: Path) -> None:
    browser.show(report, width=1200)
    assert set(browser.ask(SHOWN)) == {"drawing wide"}
    browser.show(report, width=390)
    assert set(browser.ask(SHOWN)) == {"drawing narrow"}
    assert len(browser.ask(SHOWN)) == 6


@pytest.mark.parametrize("width", [1200, 390])
def test_hostile_names_run_nothing_and_stay_in_their_place(
    browser: Chromium, hostile_report: Path, pictures: Path, width: int
) -> None:
    browser.show(hostile_report, width=width)
    assert browser.complaints() == []
    assert browser.requests() == [hostile_report.as_uri()]
    assert browser.ask("document.scripts.length") == 0
    assert browser.ask(STICKING_OUT) == []
    browser.screenshot(pictures / f"hostile-{width}.png")


def test_nothing_may_be_fetched_even_if_someone_got_a_tag_in(
    browser: Chromium, tmp_path: Path, report: Path
) -> None:
    path = tmp_path / "broken.html"
    evil = "<img src='http://127.0.0.1:9/x.png'><script>window.pwned = 1</script>"
    path.write_text(report.read_text(encoding="utf-8").replace("<main>", f"<main>{evil}"), encoding="utf-8")
    browser.show(path, width=1200)
    assert browser.ask("window.pwned === undefined") is True
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


def test_it_prints(browser: Chromium, report: Path, pictures: Path) -> None:
    browser.show(report, width=720, dark=True, media="print")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("document.querySelector('nav').getClientRects().length") == 0
    assert set(browser.ask(SHOWN)) == {"drawing wide"}
    assert browser.ask(STICKING_OUT) == []
    browser.screenshot(pictures / "report-print.png")
    assert browser.pdf().startswith(b"%PDF")
