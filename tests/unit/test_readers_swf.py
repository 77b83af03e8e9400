"""Reading SWF: every field where it belongs, every line accounted for, every error with its place."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from asad.errors import LogError, UsageError
from asad.replay.readers import Recorded, read_log

LOGS = Path(__file__).resolve().parent.parent / "golden" / "logs"
GOOD = "1 0 10 100 4 95 -1 4 120 1024 1 3 1 7 1 1 -1 -1\n"


def balanced(recorded: Recorded) -> bool:
    """Whether every line is a row or is counted under some reason."""
    left_out = sum(number for reason, number in recorded.counts.items() if reason != "lines")
    return recorded.counts["lines"] == len(recorded.jobs) + left_out


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_every_field_lands_in_its_column() -> None:
    recorded = read_log(LOGS / "small.swf")
    jobs = recorded.jobs
    assert recorded.format == "swf"
    assert jobs.job_id.tolist() == [1, 5, 2, 6]  # by submission, ties in the order of the log
    assert jobs.submit_s.tolist() == [0, 4, 5, 9]
    assert jobs.start_s.tolist() == [10, 5, 5, 10]
    assert jobs.run_s.tolist() == [100, 20, 50, 20]
    assert jobs.cores.tolist() == [4, 1, 2, 1]  # job 2 has only requested processors
    assert jobs.nodes.tolist() == [0, 0, 0, 0]
    np.testing.assert_array_equal(jobs.time_limit_s, [120, np.nan, 60, np.nan])
    np.testing.assert_array_equal(jobs.memory_bytes, [1024 * 1024 * 4, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(jobs.cpu_time_s, [95.5 * 4, np.nan, np.nan, np.nan])
    assert [jobs.users[code] if code >= 0 else None for code in jobs.user] == ["3", "3", "4", None]
    assert [jobs.applications[code] if code >= 0 else None for code in jobs.application] == [
        "7",
        "7",
        None,
        "7",
    ]
    assert [jobs.partitions[code] if code >= 0 else None for code in jobs.partition] == [
        "batch",
        "2",
        "batch",
        None,
    ]
    assert jobs.depends_on.tolist() == [-1, 0, -1, -1]  # 99 is not in the log
    assert jobs.think_s.tolist() == [0, 30, 0, 0]


def test_header_counts_and_absent_columns_are_reported() -> None:
    recorded = read_log(LOGS / "small.swf")
    assert recorded.header["MaxProcs"] == "16"
    assert recorded.header["Note"] == "one\ntwo"
    assert recorded.counts == {
        "lines": 17,
        "comment": 9,
        "blank": 1,
        "never started": 1,
        "ran 0 s": 1,
        "no processors": 1,
    }
    assert balanced(recorded)
    assert recorded.absent == ("nodes",)
    assert any("independent" in note for note in recorded.notes)


@pytest.mark.parametrize(
    ("line", "column", "problem"),
    [
        ("1 2 3\n", None, "3 fields"),
        (GOOD.replace("95", "9x5"), "6 (average CPU time)", "'9x5' is not a number"),
        (GOOD.replace(" 4 95", " 4.5 95"), "5 (allocated processors)", "4.5 is not whole"),
        (GOOD.replace("1 0 10", "1 -1 10"), "2 (submit time)", "-1 is no submit time"),
        (GOOD.replace("100 4", "100 9999999999"), "5 (allocated processors)", "too many"),
        (GOOD.replace("120", "120\x1b[2J"), "9 (requested time)", r"'120\x1b[2J'"),
        (GOOD.strip() + " 5\n", None, "19 fields"),
    ],
)
def test_bad_line_is_named(tmp_path: Path, line: str, column: str | None, problem: str) -> None:
    path = written(tmp_path, "; a comment\n" + GOOD + line)
    with pytest.raises(LogError) as caught:
        read_log(path, format="swf")
    assert (caught.value.line, caught.value.column) == (3, column)
    assert problem in caught.value.problem
    assert caught.value.remedy
    recorded = read_log(path, format="swf", skip_bad=True)
    assert recorded.counts["bad"] == 1
    assert str(recorded.bad[0]) == str(caught.value)
    assert balanced(recorded)


def test_numbers_the_fast_path_refuses_are_read_slowly(tmp_path: Path) -> None:
    line = "1 0 +10 1e2 4.0 95 -1 4 120 1024 1 3 1 7 1 1 -1 -1\r\n"
    jobs = read_log(written(tmp_path, line)).jobs
    assert (jobs.start_s[0], jobs.run_s[0], jobs.cores[0]) == (10, 100, 4)


def test_partial_executions_do_not_count_twice(tmp_path: Path) -> None:
    partial = GOOD.replace("1024 1 3", "1024 2 3") + GOOD.replace("1024 1 3", "1024 3 3")
    recorded = read_log(written(tmp_path, GOOD + partial))
    assert len(recorded.jobs) == 1
    assert balanced(recorded)


def test_gzip_is_found_by_its_bytes_and_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress((LOGS / "small.swf").read_bytes())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    recorded = read_log("-")
    assert recorded.path == "standard input"
    assert len(recorded.jobs) == 4


@pytest.mark.parametrize("cut", [3, 50, 120])
def test_broken_gzip_is_an_error(tmp_path: Path, cut: int) -> None:
    packed = gzip.compress((LOGS / "small.swf").read_bytes())
    with pytest.raises(LogError, match="gzip"):
        read_log(written(tmp_path, packed[:cut]))


def test_nothing_usable_is_an_error_that_says_why(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace(" 100 4", " 0 4"))
    with pytest.raises(LogError, match="1 ran 0 s"):
        read_log(path)
    with pytest.raises(LogError, match=r"empty|no log"):
        read_log(written(tmp_path, ""))
    with pytest.raises(LogError, match="No such file"):
        read_log(tmp_path / "nowhere")


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose one of swf"):
        read_log(LOGS / "small.swf", format="xml")
    with pytest.raises(UsageError, match="--delimiter"):
        read_log(LOGS / "small.swf", delimiter="\n")


@pytest.mark.traces
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("KTH-SP2-1996-2.1-cln-filtered.swf.gz", 28481),
        ("RICC-2010-2.swf.gz", 447784),
        ("HPC2N-2002-2.2-excerpt3170.swf", 3145),
        ("COARE-Saliksik-2020-cln.swf.gz", 19760),
    ],
)
def test_real_logs(traces: Path, name: str, rows: int) -> None:
    recorded = read_log(traces / name)
    assert len(recorded.jobs) == rows
    assert balanced(recorded)
    assert (np.diff(recorded.jobs.submit_s) >= 0).all()
    assert (recorded.jobs.run_s > 0).all()
    assert (recorded.jobs.cores > 0).all()
