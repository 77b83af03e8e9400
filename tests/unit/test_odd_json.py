"""JSON as programs join, cut and rewrite it: read, or refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_odd_logs import balanced, json_log, record

from asad.errors import LogError
from asad.replay.readers import read_log

MARK = "\ufeff"
Written = Callable[[Any, Any], str]


def document(*records: Any) -> dict[str, Any]:
    return {"meta": {}, "jobs": records, "errors": []}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize(
    "written",
    [
        lambda one, two: MARK + json.dumps(document(one)) + "\n" + MARK + json.dumps(document(two), indent=1),
        lambda one, two: json.dumps(document(one)) + MARK + json.dumps(document(two)) + MARK,
        lambda one, two: json.dumps(one) + "\r\n" + MARK + json.dumps(two),
    ],
    ids=["lines", "one line", "records"],
)
def test_byte_order_marks_between_documents(tmp_path: Path, written: Written, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(written(record(1, name=MARK), record(2)).encode(encoding))
    recorded = read_log(path)
    assert recorded.jobs.job_id.tolist() == [1, 2]
    assert recorded.jobs.applications[0] == MARK


@pytest.mark.parametrize(
    "written",
    [
        lambda one, two: [document(one), document(two)],
        lambda one, two: [document(one, two), document()],
        lambda one, two: [[one], [two]],
        lambda one, two: [[document(one)], [[two]]],
        lambda one, two: [one, document(two)],
        lambda one, two: [{**one, "comment": {"jobs": [7]}}, two],
    ],
    ids=["documents", "an empty one", "lists", "lists of both", "record and document", "a key of that name"],
)
def test_slurped_documents(tmp_path: Path, written: Callable[[Any, Any], Any]) -> None:
    path = tmp_path / "log"
    for indent in (None, 2):
        path.write_text(json.dumps(written(record(1, name="jobs"), record(2)), indent=indent))
        recorded = read_log(path)
        assert recorded.jobs.job_id.tolist() == [1, 2]
        assert balanced(recorded)


BACKWARDS = {"submission": 1000, "start": 1700, "end": 1100, "limit": 30}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"time": BACKWARDS}, "time.end"),
        ({"time": {"start": 1100, "end": 1700, "elapsed": 600}}, "time.submission"),
        ({"nodes": "n[1-"}, "nodes"),
        ({"time": {"submission": "soon"}}, "time.submission"),
    ],
)
@pytest.mark.parametrize(
    ("written", "place"),
    [
        (lambda one, two: [document(one, two)], "jobs[1]"),
        (lambda one, two: [document(one), document(two)], "document 2, jobs[0]"),
        (lambda one, two: [one, two], "jobs[1]"),
        (lambda one, two: [[document(one), document(two)]], "element 2, jobs[0]"),
        (lambda one, two: [[one, two]], "jobs[1]"),
    ],
)
def test_every_error_of_a_record_has_its_place(
    tmp_path: Path, written: Callable[[Any, Any], list[Any]], place: str, changes: dict[str, Any], key: str
) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(map(json.dumps, written(record(1), record(2, **changes)))))
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert caught.value.column == f"{place}.{key}"
    recorded = read_log(path, skip_bad=True)
    assert [error.column for error in recorded.bad] == [f"{place}.{key}"]
    assert balanced(recorded)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have_are_named_with_their_place(tmp_path: Path, number: str) -> None:
    path = json_log(tmp_path, record(1), record(2, name="a, NaN: b", priority=0.5))
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1).replace("0.5", number))
    at = next(
        at for at, line in enumerate(path.read_text().split("\n"), 1) if number in line and "name" not in line
    )
    with pytest.raises(LogError, match=f"it has no {number}") as caught:
        read_log(path)
    assert (caught.value.line, caught.value.column) == (at, "jobs[1]")


@pytest.mark.parametrize("opening", ["{", "["])
def test_a_warning_before_json_is_left_out_and_noted(tmp_path: Path, opening: str) -> None:
    path = tmp_path / "log"
    text = json.dumps(document(record(1)) if opening == "{" else [record(1)], indent=1)
    path.write_text("sacct: warning: [odd]\n[root@head ~]# sacct --json\n" + text)
    recorded = read_log(path)
    assert recorded.jobs.job_id.tolist() == [1]
    assert any("2 lines before the JSON" in note for note in recorded.notes)
    path.write_text("sacct: warning\n" + text.replace('"fold"', "fold"))
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert caught.value.line == 2 + text[: text.index('"fold"')].count("\n")
