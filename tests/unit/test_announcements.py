"""Statements as owners write them: what is read, what is refused, and that what asad writes it reads again."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from asad.admit.sow.announcements import (
    MOST_CHARACTERS,
    MOST_STATEMENTS,
    Announcement,
    Run,
    announcement_of,
    read_announcements,
    time_s,
    written,
)
from asad.cli.sow import due_text
from asad.errors import ConfigError, UsageError

NOW_S = 1_800_000_000.0
FILE = """\
version = 1

# every night
[[statement]]
name = "nightly"
cores = 8
due = 2027-01-31T02:00:00Z
every = "24h"
runs = [["-5m", "1h", 0.7], ["10m", "90m", 0.3]]
value = 12.0
deadline = "4h"
eviction = "cancel"

[[statement]]
cores = 1
due = "+2h"
runs = [
    [0, 600, 0.25],
    ["1m", "10m", 0.75],
]
value = 3
shape = "linear"
deadline = "1d"
"""
PLAIN = {
    "name": "a",
    "cores": 1,
    "due": 10.0,
    "runs": [[0, 1, 1.0]],
    "value": 1.0,
    "deadline": 5,
}


def test_a_file_is_read() -> None:
    first, second = read_announcements(FILE, "jobs.toml", NOW_S)
    assert first == Announcement(
        "nightly",
        8,
        datetime(2027, 1, 31, 2, tzinfo=UTC).timestamp(),
        (Run(-300.0, 3600.0, 0.7), Run(600.0, 5400.0, 0.3)),
        12.0,
        "deadline",
        14_400.0,
        "cancel",
        86_400.0,
    )
    assert (second.name, second.due_s, second.shape, second.eviction) == (
        "",
        NOW_S + 7200.0,
        "linear",
        "requeue-hold",
    )
    assert second.runs == (Run(0.0, 600.0, 0.25), Run(60.0, 600.0, 0.75))
    assert first.later(2).due_s == first.due_s + 172_800.0
    assert announcement_of(first.to_json(), 0.0) == first


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("version = 1", "version = 2", "jobs.toml: the version of the format is missing or not known"),
        ("version = 1", "version = 1\ncolour = 3", "jobs.toml: unknown key 'colour'"),
        ("cores = 8", "cores = 0", "jobs.toml:6: statement 1: cores: 0 is no number of cores"),
        ("cores = 8", "cores = 8\ncolour = 3", "jobs.toml:7: statement 1: colour: unknown key"),
        (
            "cores = 8",
            "cores = 8\ngpus = 4",
            'jobs.toml:7: statement 1: gpus: it is written otherwise here; write gres = "gpu:2"',
        ),
        ("cores = 8", "cores = 8\ngres = 2", "jobs.toml:7: statement 1: gres: it is no printable text"),
        ("cores = 8", 'cores = 8\ngres = "gpu:0"', "jobs.toml:7: statement 1: gres: gpu:0 asks for none"),
        (
            "cores = 8",
            'cores = 8\ngres = "gpu:2,"',
            "statement 1: gres: gpu:2, names nothing between its commas",
        ),
        (
            "cores = 8",
            'cores = 8\ngres = "gpu:a:b:2"',
            "statement 1: gres: gpu:a:b:2 is no gres; write name:number",
        ),
        ("cores = 8", 'cores = 8\ngres = "cpu:2"', "statement 1: gres: cpu:2 is no gres"),
        ("cores = 8", 'cores = 8\ngres = "gpu:99999"', "99999 of gres/gpu are too many; write at most 30000"),
        ("cores = 8", 'cores = 8\ngres = "g\\u001bpu"', "statement 1: gres: it is no printable text"),
        (
            "cores = 8",
            f'cores = 8\ngres = "{"gpu," * 99}"',
            "statement 1: gres: it is no printable text of at most",
        ),
        ("cores = 8", 'cores = 8\nlicenses = "a|b"', "statement 1: licenses: a|b is no licence; write name"),
        ("cores = 8", 'cores = 8\nmemory = "much"', 'statement 1: memory: much is no memory; write "64G"'),
        ("cores = 8", "cores = 8\nmemory = -1", "statement 1: memory: -1 is no memory"),
        ("cores = 8\n", "", "jobs.toml:4: statement 1: `cores` is missing; write cores = … below"),
        (
            "2027-01-31T02:00:00Z",
            "2027-01-31T02:00:00",
            "jobs.toml:7: statement 1: due: 2027-01-31 02:00:00 is no",
        ),
        ('"+2h"', '"soon"', "jobs.toml:16: statement 2: due: soon is no time"),
        ('"24h"', '"daily"', "jobs.toml:8: statement 1: every: daily is no period"),
        ("0.7]", "0.6]", "jobs.toml:9: statement 1: runs: the probabilities sum to 0.9; make them sum to 1"),
        ("0.7]", "-0.7]", "jobs.toml:9: statement 1: runs: row 1: -0.7 is no probability"),
        ('"1h", 0.7', '"0h", 0.7', "jobs.toml:9: statement 1: runs: row 1: duration 0h is no time above 0"),
        ('"90m", 0.3', "0.3", "jobs.toml:9: statement 1: runs: row 2 has not three parts"),
        ("[0, 600, 0.25]", "[nan, 600, 0.25]", "statement 2: runs: row 1: offset nan is no time"),
        ("value = 12.0", "value = inf", "jobs.toml:10: statement 1: value: inf is no value"),
        ("value = 3", "value = true", "statement 2: value: True is no value"),
        ('"linear"', '"cubic"', "statement 2: shape: cubic is no shape; choose deadline or linear"),
        ('"cancel"', '"kill"', "statement 1: eviction: kill is no way; choose requeue-hold or cancel"),
        ('"4h"', '"-4h"', "statement 1: deadline: -4h is no time after due"),
        ('"nightly"', '"night\\u001bly"', "statement 1: name: it is no printable text"),
        ('"nightly"', f'"{"n" * 129}"', "statement 1: name: it is no printable text"),
        ("cores = 8", "cores = ", "jobs.toml: not TOML: "),
    ],
)
def test_what_is_wrong_is_reported_with_its_line_and_remedy(old: str, new: str, seen: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigError) as error:
        read_announcements(FILE.replace(old, new, 1), "jobs.toml", NOW_S)
    assert seen in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("gres", "units"),
    [
        ("gpu", {"gres/gpu": 1}),
        ("gpu:2", {"gres/gpu": 2}),
        ("gres:gpu:a100:2", {"gres/gpu": 2, "gres/gpu:a100": 2}),
        (
            "gpu:a100:2, gpu:v100:1,fpga",
            {"gres/gpu": 3, "gres/gpu:a100": 2, "gres/gpu:v100": 1, "gres/fpga": 1},
        ),
    ],
)
def test_what_a_job_needs_beside_cores_is_written_as_for_slurm(gres: str, units: dict[str, int]) -> None:
    more = f'cores = 8\ngres = "{gres}"\nlicenses = "abaqus:2,matlab"\nmemory = "1.5G"'
    one, plain = read_announcements(FILE.replace("cores = 8", more, 1), "jobs.toml", NOW_S)
    assert one.tres == units | {"license/abaqus": 2, "license/matlab": 1}
    assert one.memory_bytes == 1536 * 2**20
    assert announcement_of(one.to_json(), 0.0) == one
    assert read_announcements(written([one], [f"{one.due_s:.0f}"]), "again.toml", NOW_S) == [one]
    assert not plain.tres and not plain.beside and plain.to_json().keys().isdisjoint(one.beside)


def test_hostile_files_are_refused_in_short_printable_words() -> None:
    for text, seen in (
        ("version = 1", "it holds no statement"),
        ("version = 1\nstatement = 3", "is no list of tables"),
        ("version = 1\n" + "[[statement]]\n" * (MOST_STATEMENTS + 1), f"keep to {MOST_STATEMENTS}"),
        ("#" * (MOST_CHARACTERS + 1), "KiB; write several files"),
        ("version = 1\nx = " + "[" * 5000, "it is nested too deeply"),
    ):
        with pytest.raises(ConfigError) as error:
            read_announcements(text, "jobs\x1b[2J.toml", NOW_S)
        assert seen in str(error.value) and "\x1b" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("1.5h", 5400),
        ("2d", 172_800),
        (7, 7),
        (0, 0),
        ("1w", None),
        ("", None),
        (-1, None),
    ],
)
def test_times(text: object, seconds: float | None) -> None:
    assert time_s(text) == seconds or (seconds is None and math.isnan(time_s(text)))
    assert time_s("-5m", signed=True) == -300.0 and math.isnan(time_s("9999d"))


@some.composite
def announcements(draw: some.DrawFn) -> Announcement:
    weights = draw(some.lists(some.integers(1, 20), min_size=1, max_size=8))
    runs = tuple(
        Run(
            float(draw(some.integers(-90_000, 90_000))),
            float(draw(some.integers(1, 400_000))),
            weight / sum(weights),
        )
        for weight in weights
    )
    return Announcement(
        name=draw(some.text(some.characters(exclude_categories=("C", "Z")), max_size=20)),
        cores=draw(some.integers(1, 100_000)),
        due_s=float(draw(some.integers(0, 4_000_000_000))),
        runs=runs,
        value=draw(some.floats(1e-3, 1e6)),
        shape=draw(some.sampled_from(("deadline", "linear"))),
        deadline_s=float(draw(some.integers(1, 1_000_000))),
        eviction=draw(some.sampled_from(("requeue-hold", "cancel"))),
        every_s=float(draw(some.sampled_from((0, 60, 90, 3600, 86_400)))),
    )


@settings(deadline=None, max_examples=60)
@given(some.lists(announcements(), min_size=1, max_size=4))
def test_what_is_written_is_read_again(seen: list[Announcement]) -> None:
    text = written(seen, [due_text(one.due_s) for one in seen], ["a note\nof two lines"])
    for one, again in zip(seen, read_announcements(text, "x", 0.0), strict=True):
        assert (again.name, again.cores, again.due_s, again.every_s) == (
            one.name,
            one.cores,
            one.due_s,
            one.every_s,
        )
        assert [run[:2] for run in again.runs] == [run[:2] for run in one.runs]
        assert again.value == pytest.approx(one.value, rel=1e-5)
        assert [run[2] for run in again.runs] == pytest.approx([run[2] for run in one.runs], abs=1e-5)
        assert (again.shape, again.deadline_s, again.eviction) == (one.shape, one.deadline_s, one.eviction)


@settings(deadline=None, max_examples=100)
@given(
    some.dictionaries(
        some.sampled_from([*PLAIN, "every", "shape", "eviction", "x"]),
        some.recursive(
            some.none() | some.booleans() | some.floats() | some.integers() | some.text(max_size=8),
            lambda inner: some.lists(inner, max_size=3),
            max_leaves=6,
        ),
        max_size=4,
    )
)
def test_whatever_is_sent_is_an_announcement_or_refused_in_words(changes: dict[str, object]) -> None:
    try:
        made = announcement_of({**PLAIN, **changes}, NOW_S)
    except UsageError as error:
        assert str(error).isprintable() and len(str(error)) < 600
        return
    assert made.cores >= 1 and math.isfinite(made.due_s) and made.value > 0 and made.deadline_s > 0
    assert abs(math.fsum(run.probability for run in made.runs) - 1.0) < 1e-9
    assert all(run.duration_s > 0 for run in made.runs)
