"""Figures and page: whole, self-contained, deterministic, and proof against hostile names."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from report_samples import HOSTILE, TREATMENT, admitting, as_recorded, history, hostile, replay, with_metrics

from asad.replay.results import ReplayResult
from asad.report import drawing, figures, units
from asad.report.page import command, page, write_page

FIGURES: tuple[Callable[[ReplayResult, int], str], ...] = (
    figures.utilization,
    figures.waiting,
    figures.slowdown,
    figures.stretch_by_application,
    figures.weights,
    figures.risk,
)
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Checked(HTMLParser):
    """Reads a page strictly enough to notice broken nesting, and keeps what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.unfolded = 0
        """Tables that stand outside of `details`."""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.unfolded += tag == "table" and "details" not in self.open
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def words(result: ReplayResult) -> str:
    """The page without its figures, of which a test asks nothing: matplotlib takes a second for those of one page."""
    with patch.object(figures, "svg", lambda *_: ""):
        return page(result)


@pytest.fixture(scope="module")
def plain() -> str:
    return page(replay(600))


@pytest.mark.parametrize("draw", FIGURES)
@pytest.mark.parametrize("width", [drawing.WIDE, drawing.NARROW])
def test_figures_are_well_formed_deterministic_and_take_the_colour_of_the_text(
    draw: Callable[[ReplayResult, int], str], width: int
) -> None:
    result = replay(600)
    text = draw(result, width)
    assert text == draw(replay(600), width)
    root = ET.fromstring(text)
    assert root.get("viewBox", "").startswith(f"0 0 {width} ")
    assert "currentColor" in text
    assert drawing.INK not in text
    assert drawing.PAPER not in text
    assert "<style" not in text
    assert "metadata" not in text
    assert not re.search(r"20\d\d-\d\d-\d\dT", text)


@pytest.mark.parametrize("draw", FIGURES)
def test_figures_of_an_empty_log_are_left_out_or_drawn_but_never_fail(
    draw: Callable[[ReplayResult, int], str],
) -> None:
    assert isinstance(draw(replay(0), drawing.WIDE), str)
    assert isinstance(draw(replay(1, ("slurm",)), drawing.NARROW), str)


@pytest.mark.parametrize("draw", FIGURES)
def test_figures_print_hostile_names_as_text(draw: Callable[[ReplayResult, int], str]) -> None:
    root = ET.fromstring(draw(hostile(), drawing.WIDE))
    assert not [element for element in root.iter() if element.tag.endswith("script")]


def test_figures_do_not_depend_on_the_settings_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    before = figures.waiting(replay(100), drawing.WIDE)
    monkeypatch.setitem(mpl.rcParams, "lines.linewidth", 9.0)
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "path")
    assert figures.waiting(replay(100), drawing.WIDE) == before


def test_colours_are_one_a_policy_and_visible_on_both_papers() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    looks = [*drawing.PALETTE.values(), *drawing.SPARE]
    assert len({colour for colour, _ in looks}) == len(looks)
    assert len({str(dash) for _, dash in looks if dash != "solid"}) == len(looks) - 2
    for colour, _ in looks:
        for paper in ("#fdfdfb", "#15181c", "#ffffff"):
            assert contrast(colour, paper) >= 3, (colour, paper, contrast(colour, paper))


def test_a_policy_of_the_site_has_a_colour_of_its_own() -> None:
    result = replay(30, ("slurm", "one", "two"))
    assert len({drawing.look(result, name) for name in result.policies}) == 3


def test_series_are_binned_without_losing_work() -> None:
    policy = replay(100, bins=1_999).policies["asax"]
    edges, allocated, used = figures.coarse(policy)
    assert len(allocated) == len(used) <= figures.BINS
    assert len(edges) == len(allocated) + 1
    length = np.diff(policy.series_time_s)
    assert np.dot(np.diff(edges), allocated) == pytest.approx(np.dot(length, policy.allocated_fraction))
    assert np.dot(np.diff(edges), used) == pytest.approx(np.dot(length, policy.used_fraction))


def test_bounded_slowdown_is_over_the_isolated_run_time() -> None:
    result = replay(3, ("slurm",))
    policy = dataclasses.replace(
        result.policies["slurm"], end_s=result.submit_s + np.array([5.0, 200.0, np.nan])
    )
    result = dataclasses.replace(result, run_s=np.array([2.0, 50.0, 5.0]))
    assert figures.slowdowns(result, policy).tolist() == [1.0, 4.0]


def test_stretch_is_of_hosts_and_guests_by_application() -> None:
    result = replay(8, ("slurm", "asax"))
    yes = np.array([True, True, False, False, True, False, False, False])
    guest = np.array([False, False, True, False, True, False, False, False])
    policy = dataclasses.replace(
        result.policies["asax"], host=yes, guest=guest, start_s=np.zeros(8),
        end_s=np.array([1.0, 2, 3, 9, 5, 9, 9, 9]),
    )  # fmt: skip
    result = dataclasses.replace(
        result, run_s=np.ones(8), application=np.array([0, 0, 0, 0, -1, 1, 1, 1], dtype=np.int32),
        policies={**result.policies, "asax": policy},
    )  # fmt: skip
    first, second = figures.stretches(result)
    assert first.application == result.application_names[0]
    assert first.host is not None and first.host.jobs == 2 and first.host.median == 1.5
    assert first.guest is not None and first.guest.jobs == 1 and first.guest.median == 3
    # host and guest in turn: shown as the guest it began as
    assert second.application == "not recorded"
    assert second.host is None and second.guest is not None and second.guest.median == 5


def test_weights_of_many_experts_keep_the_heavy_ones() -> None:
    result = replay(50, ("slurm", "asax"))
    count = figures.EXPERTS + 5
    many = history(40, 3, 8)
    weights = np.tile(np.arange(count, dtype=float), (40, 1)) / sum(range(count))
    many = dataclasses.replace(many, names=tuple(f"e{number}" for number in range(count)), weights=weights)
    policy = dataclasses.replace(result.policies["asax"], experts=many)
    result = dataclasses.replace(result, policies={**result.policies, "asax": policy})
    assert figures.expert_names(result) == [f"e{number}" for number in range(5, count)]


@pytest.mark.slow
def test_page_is_the_same_to_the_byte(plain: str) -> None:
    assert plain == page(replay(600))


@pytest.mark.slow
def test_page_is_the_same_from_another_thread(plain: str) -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(page(replay(600))))
    thread.start()
    thread.join()
    assert found == [plain]


def test_page_asks_no_network_and_runs_nothing(plain: str) -> None:
    checked = Checked(plain)
    assert not checked.named("script")
    for _, attrs in checked.tags:
        assert not any(name.startswith("on") for name in attrs)
        for name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
            target = attrs.get(name)
            assert target is None or target.startswith("#") or target == "data:,"
    assert not re.search(r"@import|url\((?!#)", plain)
    policy = next(meta["content"] for meta in checked.named("meta") if "http-equiv" in meta)
    assert policy is not None and policy.startswith("default-src 'none'")


def test_page_has_landmarks_captions_scopes_and_unique_ids(plain: str) -> None:
    checked = Checked(plain)
    for tag in ("header", "nav", "main", "footer", "h1"):
        assert len(checked.named(tag)) == 1
    assert len(checked.named("table")) == len(checked.named("caption"))
    assert all(attrs.get("scope") for attrs in checked.named("th"))
    ids = [attrs["id"] for _, attrs in checked.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for attrs in checked.named("a"):
        assert (attrs["href"] or "")[1:] in ids
    for _, attrs in checked.tags:
        assert attrs.get("aria-labelledby", ids[0]) in ids
    drawings = [attrs for _, attrs in checked.tags if attrs.get("role") == "img"]
    assert len(drawings) == 2 * len(FIGURES)
    assert all(len(attrs["aria-label"] or "") > 60 for attrs in drawings)
    assert checked.unfolded == 0 and len(checked.named("table")) > len(FIGURES)


def test_page_reads_in_the_order_of_an_operator(plain: str) -> None:
    places = [
        plain.index(f'<section id="{key}"')
        for key in ("verdict", "policies", "funnel", "figures", "losers", "method")
    ]
    assert places == sorted(places)
    assert plain.index("lending with asax would have cut") < places[1]


def test_page_always_shows_who_pays(plain: str) -> None:
    for text in (
        "Losers",
        "Displaced",
        "Displaced by a placebo",
        "Stretched guests",
        "Stretched hosts",
        "Late jobs",
        "Lateness over time saved",
        "Killed at the time limit",
        "Killed by lending",
    ):
        assert f">{text}" in plain


def test_page_says_what_was_not_in_the_log_and_what_was_left_out(plain: str) -> None:
    assert "Not in the log: cpu_time_s, memory_bytes." in plain
    assert "9 jobs ran past their time limit" in plain
    assert "3 lines of the log could not be read" in plain
    lines = [f"line {number}: bad" for number in range(80)]
    result = dataclasses.replace(replay(30), log={"path": "x", "skipped": list(lines)})
    text = words(result)
    assert "line 49: bad" in text
    assert "line 50: bad" not in text
    assert f"… and {units.number(30)} more" in text


def test_page_escapes_whatever_users_wrote() -> None:
    text = page(hostile())
    checked = Checked(text)
    assert not checked.named("script")
    assert "\x1b" not in text
    assert "\u202e" not in text
    text.encode("utf-8")
    assert '<script>alert("$x^$")</script>' in "".join(checked.text)


def test_page_shows_who_gains_by_what_the_log_has() -> None:
    text = words(as_recorded())
    section = text.partition('<section id="groups"')[2].partition("</section>")[0]
    assert "<summary>Jobs by partition</summary>" in section and "<summary>Jobs by gres</summary>" in section
    assert "by account" not in section and "with gres" in section and "not recorded" in section
    assert 'href="#groups"' not in words(replay(60)), "nothing is known of the jobs"


def test_page_lists_the_worst_losers_by_their_ids() -> None:
    result = replay(2_000)
    policy, base = result.policies["asax"], result.policies["slurm"]
    result = dataclasses.replace(result, job_id=np.array([f"job_{number}" for number in range(2_000)]))
    later = policy.end_s - base.end_s
    losers = np.flatnonzero(policy.loser)
    assert len(losers) > 20
    ranked = losers[np.argsort(-later[losers])]
    text = words(result)
    section = text[text.index('<section id="losers"') : text.index('<section id="method"')]
    listed = re.findall(r'<th scope="row">(job_\d+)</th>', section)
    assert listed == [f"job_{row}" for row in ranked[:20]]


def test_page_shows_why_each_loser_is_late() -> None:
    result = replay(2_000)
    policy = result.policies["asax"]
    assert policy.stretched is not None and policy.stretched.any()
    section = words(result).partition('<section id="losers"')[2].partition("</section>")[0]
    assert re.findall(r'<td class="word">(stretched|displaced)</td>', section)


def test_page_draws_the_funnel_with_a_bar_for_each_reason(plain: str) -> None:
    section = plain.partition('<section id="funnel"')[2].partition("</section>")[0]
    policy = replay(600).policies["asax"]
    widths = [float(width) for width in re.findall(r'class="meter"><svg.*?<rect width="([\d.]+)%', section)]
    assert len(widths) == len(policy.funnel) == 11
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert "Opted out or ineligible: it opted out" in section
    assert "the largest reason against it that an operator can change is" in section
    assert "The other policies" in section
    alone = words(replay(60, ("slurm", "asax")))
    assert 'href="#funnel"' in alone
    assert "The other policies" not in alone


@pytest.mark.slow
@pytest.mark.parametrize(
    "policies", [("slurm",), ("slurm", "fcfs"), ("slurm", "greedy-oracle"), tuple(TREATMENT)]
)
@pytest.mark.parametrize("jobs", [0, 40])
def test_page_of_any_replay_is_whole(policies: tuple[str, ...], jobs: int) -> None:
    Checked(page(replay(jobs, policies)))


@pytest.mark.slow
def test_page_without_figures_of_a_policy_shows_dashes() -> None:
    result = replay(60)
    keys = result.policies["asax"].metrics
    bare = dataclasses.replace(
        with_metrics(result, "asax", **dict.fromkeys(keys)),
        verdicts=[],
        demand_sources={},
        settings={},
        log={},
    )
    assert "cannot be judged" in page(bare)


def test_a_job_killed_by_lending_is_marked() -> None:
    assert 'class="alarm"' not in words(replay(60))
    assert 'class="alarm"' in words(with_metrics(replay(60), "asax", killed_by_lending=1))


def test_command_is_quoted_for_a_shell() -> None:
    result = replay(10, ("slurm", "asax"))
    assert command(result) == "asactl replay logs/KTH-SP2-1996.swf.gz --policy slurm,asax --seed 1"
    given = dataclasses.replace(result, settings={"command": ["asactl", "replay", "my log; rm -rf /"]})
    assert command(given) == "asactl replay 'my log; rm -rf /'"


def test_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "svg", lambda *_: "")
    target = tmp_path / "report.html"
    write_page(replay(60), target)
    before = target.read_bytes()
    assert before == page(replay(60)).encode()
    assert target.stat().st_mode & 0o400

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            write_page(replay(61), target)
    assert target.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.slow
def test_page_of_a_long_log_stays_small() -> None:
    result = replay(450_000, tuple(TREATMENT), bins=2_000)
    assert len(page(result).encode()) < 1_500_000


def test_hostile_text_is_what_it_is_meant_to_be() -> None:
    assert {"\x1b", "\u202e", "\udc80", "<", "&", '"', "$"} <= set(HOSTILE)


def test_a_policy_that_admits_is_reported_by_what_jobs_are_worth() -> None:
    text = page(admitting())
    seen = " ".join(" ".join(Checked(text).text).split())
    assert "admission by oasis" in text
    assert "oasis would have raised the total utility of the jobs by 25" in seen
    assert "it admitted 70 jobs and left 50 to the queue" in seen
    assert "What jobs are worth" in seen
    assert "What jobs are worth" not in words(replay(200))
    assert "1 of 100 jobs that were admitted, deferred or throttled" in seen
    assert "1 of 100 managed jobs" in seen
    assert "killed by lending" not in Checked(text).text  # the tile: nobody lends
    assert "Lending" not in seen.partition("What this rests on")[0]
