"""Whatever happens to a log, a reader says what is wrong or accounts for every line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.errors import LogError, MachineError
from asad.replay.inferred_machine import infer
from asad.replay.readers import Recorded, fields, read_log
from asad.replay.readers.accounting_log import BadValue
from asad.replay.readers.node_sets import runs_of

LOGS = Path(__file__).resolve().parent.parent / "golden" / "logs"
SAMPLES = sorted(path for path in LOGS.iterdir() if path.suffix in (".swf", ".sacct", ".csv", ".json"))
INTERESTING = [
    b"",
    b"|",
    b",",
    b"\n",
    b"\r\n",
    b"\0",
    b"-",
    b"\xff",
    b"9" * 30,
    b"[",
    b"{",
    b'"',
    b"null",
    b"1e999",
]

edits = st.lists(
    st.tuples(
        st.floats(0, 1), st.integers(0, 12), st.one_of(st.sampled_from(INTERESTING), st.binary(max_size=4))
    ),
    min_size=1,
    max_size=5,
)


def consistent(recorded: Recorded) -> None:
    """Every line is a row or is counted; every row is a job that ran."""
    jobs = recorded.jobs
    left_out = sum(number for reason, number in recorded.counts.items() if reason != "lines")
    assert recorded.counts["lines"] == len(jobs) + left_out
    assert recorded.counts.get("bad", 0) == len(recorded.bad)
    assert (jobs.run_s > 0).all()
    assert (jobs.cores > 0).all()
    assert np.isfinite(jobs.submit_s).all()
    assert (np.diff(jobs.submit_s) >= 0).all()
    assert (jobs.depends_on < np.arange(len(jobs))).all()
    for codes, names in (
        (jobs.user, jobs.users),
        (jobs.application, jobs.applications),
        (jobs.partition, jobs.partitions),
    ):
        assert ((codes >= -1) & (codes < len(names))).all()


@settings(max_examples=150, deadline=None)
@given(sample=st.sampled_from(SAMPLES), edits=edits, skip_bad=st.booleans())
def test_mutated_logs_are_refused_or_accounted_for(
    sample: Path, edits: list[tuple[float, int, bytes]], skip_bad: bool
) -> None:
    raw = sample.read_bytes()
    for where, length, what in edits:
        at = int(where * len(raw))
        raw = raw[:at] + what + raw[at + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(raw)
        try:
            recorded = read_log(path, skip_bad=skip_bad)
        except LogError as error:
            assert error.remedy
            return
        consistent(recorded)
        try:
            machine = infer(recorded)
        except MachineError:
            return
        assert machine.total_cores > 0


@settings(max_examples=60, deadline=None)
@given(raw=st.binary(max_size=300), form=st.sampled_from([None, "swf", "sacct", "csv", "sacct-json"]))
def test_anything_at_all_is_refused_or_accounted_for(raw: bytes, form: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(raw)
        try:
            consistent(read_log(path, format=form, skip_bad=True))
        except LogError as error:
            assert str(path) in str(error)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.integers(-1, 10**5),
            st.integers(-1, 10**5),
            st.integers(-1, 512),
            st.floats(-1, 1e5, allow_nan=False),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_swf_comes_back_as_it_was_written(rows: list[tuple[int, int, int, int, float]]) -> None:
    lines = [
        f"{number} {submit} {wait} {run} {cores} {cpu:.3f} -1 -1 -1 -1 1 1 1 1 1 1 -1 -1"
        for number, (submit, wait, run, cores, cpu) in enumerate(rows, 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text("\n".join(lines))
        usable = [
            (submit, number, run, cores, float(f"{cpu:.3f}"))
            for number, (submit, _, run, cores, cpu) in enumerate(rows, 1)
            if run > 0 and cores > 0
        ]
        try:
            recorded = read_log(path)
        except LogError:
            assert not usable
            return
    consistent(recorded)
    usable.sort(key=lambda job: (job[0], job[1]))
    jobs = recorded.jobs
    assert jobs.submit_s.tolist() == [job[0] for job in usable]
    assert jobs.job_id.tolist() == [job[1] for job in usable]
    assert jobs.run_s.tolist() == [job[2] for job in usable]
    assert jobs.cores.tolist() == [job[3] for job in usable]
    cpu_time = [job[4] * job[3] if job[4] >= 0 else np.nan for job in usable]
    np.testing.assert_array_equal(jobs.cpu_time_s, cpu_time)


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=40))
def test_fields_are_read_or_refused(text: str) -> None:
    for parse in (
        fields.time,
        fields.duration,
        fields.time_limit,
        fields.time_limit_minutes,
        fields.count,
        fields.memory,
        fields.requested_memory,
        fields.tres,
        fields.state,
        runs_of,
    ):
        try:
            parse(text)
        except BadValue as bad:
            assert bad.remedy


@given(days=st.integers(0, 999), seconds=st.integers(0, 86399), milliseconds=st.integers(0, 999))
def test_durations_come_back(days: int, seconds: int, milliseconds: int) -> None:
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{milliseconds:03d}"
    total = days * 86400 + seconds + milliseconds / 1000
    assert abs(fields.duration(f"{days}-{clock}" if days else clock) - total) < 1e-6
