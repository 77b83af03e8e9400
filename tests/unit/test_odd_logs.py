"""Logs as they come: every oddity of a real one is read right, or refused by its name."""

from __future__ import annotations

import bz2
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_machine import full_machine
from numpy.typing import NDArray

from asad.errors import LogError
from asad.replay import held_parts, inferred_machine
from asad.replay.held_parts import Events, Spread
from asad.replay.inferred_machine import infer
from asad.replay.readers import Recorded, fields, raw_bytes, read_log
from asad.replay.readers.node_sets import NodeListTable

COLUMNS = "JobID|JobName|User|Partition|State|Submit|Start|End|Elapsed|NNodes|AllocCPUS|TotalCPU|NodeList"
DAY = "2024-03-05"


def line(
    job: str = "1",
    name: str = "fold",
    user: str = "eva",
    start: str = "10:00:00",
    end: str = "11:00:00",
    elapsed: str = "01:00:00",
    cores: int = 4,
    nodes: str = "n1",
    submit: str = "09:30:00",
    state: str = "COMPLETED",
    cpu: str = "02:00:00",
    width: int = 1,
) -> str:
    """A record of one day, in the order of `COLUMNS`."""
    times = [f"{DAY}T{one}" if one[2:3] == ":" else one for one in (submit, start, end)]
    return "|".join([job, name, user, "p", state, *times, elapsed, str(width), str(cores), cpu, nodes])


def log(folder: Path, *lines: str, columns: str = COLUMNS) -> Path:
    path = folder / "log"
    path.write_text("\n".join([columns, *lines]) + "\n")
    return path


def balanced(recorded: Recorded) -> bool:
    """Whether every line is a job or counted by reason."""
    return recorded.counts["lines"] == len(recorded.jobs) + sum(
        number for reason, number in recorded.counts.items() if reason != "lines"
    )


# ------------------------------------------------------------------------------------------------------ identity


def test_requeued_job_is_one_job_whose_last_run_counts(tmp_path: Path) -> None:
    recorded = read_log(
        log(
            tmp_path,
            line(end="10:20:00", elapsed="00:20:00", state="NODE_FAIL"),
            line(submit="10:20:00", start="10:40:00", end="11:00:00", elapsed="00:20:00"),
        )
    )
    assert recorded.counts["earlier run of a requeued job"] == 1
    assert recorded.jobs.start_s.tolist() == [fields.time(f"{DAY}T10:40:00")]
    assert balanced(recorded)


@pytest.mark.parametrize(
    "other",
    [
        line(user="bob", submit="11:00:00", start="12:00:00", end="13:00:00"),
        line(name="relax", submit="11:00:00", start="12:00:00", end="13:00:00"),
        line(submit="09:40:00", start="10:30:00", end="11:30:00", nodes="g1"),
        line(submit="10:50:00", start="12:00:00", end="13:00:00"),
        line(submit="09:30:00", start="11:00:00", end="12:00:00"),
    ],
    ids=["user", "name", "overlap", "submitted before the earlier one ended", "same submission"],
)
def test_an_id_is_not_a_job(tmp_path: Path, other: str) -> None:
    recorded = read_log(log(tmp_path, line(), other))
    assert len(recorded.jobs) == 2
    assert any("1 ids stand for several jobs" in note for note in recorded.notes)
    assert balanced(recorded)


def test_heterogeneous_jobs_of_one_number_stay_apart(tmp_path: Path) -> None:
    first = [line("7+0", cores=2), line("7+1", cores=6, nodes="n2")]
    later = [
        line("7+0", user="bob", submit="12:00:00", start="12:00:00", end="13:00:00"),
        line("7+1", user="bob", submit="12:00:00", start="12:00:00", end="13:00:00", nodes="n2"),
    ]
    jobs = read_log(log(tmp_path, *first, *later)).jobs
    assert jobs.job_id.tolist() == [7, 7]
    assert jobs.cores.tolist() == [8, 8]


def test_cpu_time_of_a_step_goes_to_the_run_in_whose_time_it_lies(tmp_path: Path) -> None:
    runs = [
        line(end="10:20:00", elapsed="00:20:00", state="REQUEUED", cpu="00:00:00"),
        line("1.batch", user="", start="10:00:00", end="10:20:00", elapsed="00:20:00", cpu="01:00:00"),
        line(submit="10:20:00", start="10:40:00", end="10:41:00", elapsed="00:01:00", cpu="00:00:00"),
        line("1.batch", user="", start="10:40:00", end="10:41:00", elapsed="00:01:00", cpu="00:00:00"),
    ]
    recorded = read_log(log(tmp_path, *runs))
    assert np.isnan(recorded.jobs.cpu_time_s).all()
    assert any("exactly 0" in note for note in recorded.notes)
    # in whatever order they stand
    runs[3] = line("1.batch", user="", start="10:40:00", end="10:41:00", elapsed="00:01:00", cpu="00:02:00")
    recorded = read_log(log(tmp_path, runs[0], runs[2], runs[1], runs[3]))
    assert recorded.jobs.cpu_time_s.tolist() == [120]
    assert balanced(recorded)


def test_several_clusters_are_refused_until_one_is_chosen(tmp_path: Path) -> None:
    columns = f"{COLUMNS}|Cluster"
    path = log(
        tmp_path, f"{line()}|north", f"{line(user='bob')}|South", f"{line('2')}|north", columns=columns
    )
    with pytest.raises(
        LogError, match=r"--cluster of asactl.*: 'north' \(2 records\), 'south' \(1 records\)"
    ):
        read_log(path)
    recorded = read_log(path, cluster="North")
    assert recorded.jobs.job_id.tolist() == [1, 2]
    assert recorded.counts["of another cluster"] == 1
    assert balanced(recorded)
    with pytest.raises(LogError, match="choose from"):
        read_log(path, cluster="east")
    assert len(read_log(log(tmp_path, f"{line()}|north", f"{line('2')}|", columns=columns)).jobs) == 2
    with pytest.raises(LogError, match="names no cluster"):
        read_log(log(tmp_path, line()), cluster="north")


def test_an_id_that_comes_again_after_long_is_another_job_whoever_has_it(tmp_path: Path) -> None:
    again = line(submit="2024-06-05T11:00:00", start="2024-06-05T12:00:00", end="2024-06-05T13:00:00")
    assert len(read_log(log(tmp_path, line(), again)).jobs) == 2


def test_parts_of_a_resized_job_are_jobs(tmp_path: Path) -> None:
    parts = [
        line(cores=8, state="RESIZING"),
        line(cores=4, submit="11:00:00", start="11:00:00", end="12:00:00"),
    ]
    recorded = read_log(log(tmp_path, *parts))
    assert recorded.jobs.cores.tolist() == [8, 4]
    assert any("resized" in note for note in recorded.notes)
    assert balanced(recorded)


def test_a_job_that_was_cancelled_before_its_planned_start_never_started(tmp_path: Path) -> None:
    columns = COLUMNS.replace("Elapsed", "Planned")
    planned = line("2", start="23:00:00", end="10:00:00", state="CANCELLED by 0", nodes="None assigned")
    recorded = read_log(log(tmp_path, line(), planned, columns=columns))
    assert recorded.counts["never started"] == 1


# ---------------------------------------------------------------------------------------------------------- JSON


def record(job_id: int = 1, **changes: Any) -> dict[str, Any]:
    """A job as 22.05 writes it."""
    made = {
        "job_id": job_id,
        "name": "fold",
        "user": "eva",
        "cluster": "c",
        "partition": "p",
        "nodes": "n1",
        "state": {"current": "COMPLETED"},
        "time": {"submission": 1000, "start": 1100, "end": 1700, "elapsed": 600, "limit": 30},
        "required": {"CPUs": 4},
        "tres": {"allocated": [{"type": "cpu", "count": 4}, {"type": "node", "count": 1}]},
        "steps": [],
    }
    return {**made, **changes}


def json_log(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "log.json"
    path.write_text(json.dumps({"jobs": records}))
    return path


@pytest.mark.parametrize("number", [65533, 65534, 65535, 2**31, 2**32 - 2, 2**32 - 1, 2**32 + 5])
def test_job_ids_of_json_are_numbers_whatever_they_are(tmp_path: Path, number: int) -> None:
    assert read_log(json_log(tmp_path, record(number))).jobs.job_id.tolist() == [number]


@pytest.mark.parametrize(
    ("amount", "known"), [(65534, True), (65535, True), (2**32 - 2, True), (2**64 - 2, False), (-2, False)]
)
def test_marks_for_not_set_have_the_width_of_their_field(tmp_path: Path, amount: int, known: bool) -> None:
    allocated = [{"type": "cpu", "count": 4}, {"type": "mem", "count": amount}]
    (memory,) = read_log(json_log(tmp_path, record(tres={"allocated": allocated}))).jobs.memory_bytes
    assert memory == amount * 2.0**20 if known else np.isnan(memory)


def test_a_number_that_is_set_is_no_mark(tmp_path: Path) -> None:
    def limit(value: Any) -> float:
        times = {"submission": 1000, "start": 1100, "end": 1700, "elapsed": 600, "limit": value}
        return float(read_log(json_log(tmp_path, record(time=times))).jobs.time_limit_s[0])

    assert limit({"set": True, "infinite": False, "number": 2**32 - 2}) == (2**32 - 2) * 60
    assert limit({"set": True, "infinite": False, "number": 65535}) == 65535 * 60
    assert limit(65534) == 65534 * 60
    assert np.isnan(limit({"set": False, "infinite": False, "number": 7}))
    assert limit({"set": True, "infinite": True, "number": 0}) == np.inf
    assert limit(2**32 - 1) == np.inf


@pytest.mark.parametrize(
    "written",
    [
        lambda one, two: json.dumps({"jobs": [one]}, indent=1) + "\n" + json.dumps({"jobs": [two]}, indent=1),
        lambda one, two: json.dumps({"jobs": [one]}) + json.dumps({"errors": [], "jobs": [two], "meta": {}}),
        lambda one, two: json.dumps(one) + "\n" + json.dumps(two) + "\n",
        lambda one, two: json.dumps(one, indent=2) + "\n" + json.dumps(two, indent=2) + "\n",
        lambda one, two: json.dumps([one, two]),
        lambda one, two: json.dumps([one]) + "\n" + json.dumps([two]),
    ],
    ids=["documents", "documents on one line", "lines", "records", "list", "lists"],
)
def test_documents_of_json_one_after_the_other(tmp_path: Path, written: Callable[[Any, Any], str]) -> None:
    path = tmp_path / "log.json"
    hostile = record(1, name='x"}]},{"job_id": 7, \\ [', comment={"job": "\ud800"})
    path.write_text(written(hostile, record(2, steps=[{"time": {"total": {"seconds": 5}}}])))
    recorded = read_log(path)
    assert recorded.jobs.job_id.tolist() == [1, 2]
    assert recorded.jobs.applications[0] == 'x"}]},{"job_id": 7, \\ ['
    assert balanced(recorded)


def test_what_is_wrong_with_json_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    text = json.dumps({"jobs": [record(1), record(2)]}, indent=1)
    path.write_text(text + "\n" + text[: len(text) // 2])
    with pytest.raises(LogError, match="not JSON") as caught:
        read_log(path)
    assert caught.value.line is not None
    assert text.count("\n") < caught.value.line <= 2 * text.count("\n")
    broken = text.replace('"name": "fold"', '"name": fold', 1)
    path.write_text(broken)
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert broken.split("\n")[caught.value.line - 1].strip() == '"name": fold,'


def test_a_record_without_an_end_still_runs(tmp_path: Path) -> None:
    running = record(2, time={"submission": 1000, "start": 1100, "end": 0, "elapsed": 600}, state=None)
    recorded = read_log(json_log(tmp_path, record(1), running))
    assert recorded.counts["still running"] == 1
    assert recorded.jobs.job_id.tolist() == [1]


# --------------------------------------------------------------------------------------------------------- times


def test_elapsed_wins_over_local_times_that_run_backwards(tmp_path: Path) -> None:
    text = line(start="02:50:00", end="02:20:00", elapsed="00:30:00", submit="01:50:00")
    assert read_log(log(tmp_path, text)).jobs.run_s.tolist() == [1800]
    columns = COLUMNS.replace("Elapsed", "Reserved")
    path = log(tmp_path, text, line("2"), columns=columns)
    with pytest.raises(LogError, match="ended 1800 s before it started") as caught:
        read_log(path)
    assert caught.value.line == 2
    assert len(read_log(path, skip_bad=True).jobs) == 1


@pytest.mark.parametrize("state", ["", "RUNNING", "COMPLETING", "STOPPED"])
def test_without_an_end_a_job_runs_unless_its_state_is_final(tmp_path: Path, state: str) -> None:
    running = line("2", end="Unknown", elapsed="5-00:00:00", state=state)
    recorded = read_log(log(tmp_path, line(), running, line("3", end="Unknown", state="TIMEOUT")))
    assert recorded.jobs.job_id.tolist() == [1, 3]
    assert recorded.counts["still running"] == 1
    columns = COLUMNS.replace("End|", "").replace("State|", "")
    rows = [
        "|".join(part for at, part in enumerate(one.split("|")) if at not in (4, 7))
        for one in (line(), running)
    ]
    assert len(read_log(log(tmp_path, *rows, columns=columns)).jobs) == 2  # nothing says that it runs


def test_a_window_that_cut_jobs_is_noted(tmp_path: Path) -> None:
    cut = [
        line(str(job), submit=f"0{job}:00:00", start="10:00:00", end="12:00:00", elapsed="02:00:00")
        for job in range(1, 7)
    ]
    recorded = read_log(
        log(
            tmp_path, *cut, line("9", submit="11:00:00", start="11:30:00", end="11:40:00", elapsed="00:10:00")
        )
    )
    assert sum("--truncate" in note for note in recorded.notes) == 1
    whole = [
        line(str(job), submit=f"0{job}:00:00", start=f"0{job}:10:00", end="12:00:00", elapsed="02:00:00")
        for job in range(1, 7)
    ]
    assert not any("--truncate" in note for note in read_log(log(tmp_path, *whole)).notes)
    before = line(
        "8", submit="2024-03-01T00:00:00", start="2024-03-01T00:00:00", end="12:00:00", elapsed="4-12:00:00"
    )
    recorded = read_log(log(tmp_path, before, *whole))
    assert any("sacct -S" in note for note in recorded.notes)


# ---------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
def test_any_unicode_of_a_log_is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(f"{COLUMNS}\r\n{line(name='café')}\r\n".encode(encoding))
    recorded = read_log(path)
    assert recorded.jobs.applications == ("café",)
    assert recorded.counts == {"lines": 2, "header": 1}


def test_logs_that_were_joined_keep_their_marks_and_headers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        f"{COLUMNS}\n{line()}\n".encode("utf-8-sig") + f"{COLUMNS}\n{line('2')}\n".encode("utf-8-sig")
    )
    recorded = read_log(path)
    assert recorded.jobs.job_id.tolist() == [1, 2]
    assert recorded.counts["header"] == 2


def _zstd(raw: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(raw))


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, _zstd], ids=["bzip2", "xz", "zstd"])
def test_compression_is_found_by_the_first_bytes(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log.txt"
    raw = f"{COLUMNS}\n{line()}\n".encode()
    path.write_bytes(pack(raw) + pack(f"{line('2')}\n".encode()))
    assert read_log(path).jobs.job_id.tolist() == [1, 2]
    path.write_bytes(pack(raw)[:-20])
    with pytest.raises(LogError, match="broken"):
        read_log(path)


def test_what_cannot_be_undone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    for raw, words in (
        (b"PK\x03\x04rest", r"zip archive.*unzip -p"),
        (b"\x04\x22\x4d\x18rest", "lz4cat"),
        (b"PAR1rest", "Parquet.*CSV"),
        (bytes(257) + b"ustar", "tar archive"),
    ):
        path.write_bytes(raw)
        with pytest.raises(LogError, match=words):
            read_log(path)

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(raw_bytes, "import_module", absent)
    path.write_bytes(b"\x28\xb5\x2f\xfdrest")
    with pytest.raises(LogError, match=r"compressed by zstd.*zstdcat"):
        read_log(path)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", 4),
        ("4.0", 4),
        ("4.", 4),
        ("4e0", 4),
        ("1.2e1", 12),
        ("2K", 2048),
        ("nan", 0),
        ("<NA>", 0),
        ("", 0),
    ],
)
def test_whole_numbers(text: str, number: int) -> None:
    assert fields.count(text) == number


@pytest.mark.parametrize(
    ("text", "words"), [("1.5", "not a whole number"), ("3e9", "below 2"), ("-1", "whole")]
)
def test_numbers_that_are_none_are_named_truly(text: str, words: str) -> None:
    with pytest.raises(fields.BadValue, match="number") as caught:
        fields.count(text)
    assert words in caught.value.problem


def test_a_table_that_a_program_has_written_again(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "JobID,User,JobName,Submit,Start,End,ElapsedRaw,NCPUS,NNodes,TimelimitRaw\n"
        '7.0,eva,"a, ""b""\nc",2024-03-05 09:00:00,2024-03-05 10:00:00.000000,NaT,600.0,4.0,1.0,30.0\n'
        "8.0,bob,,2024-03-05 09:00:00+00:00,1709632800.0,1709633400.0,0 days 00:10:00,4,,nan\n"
    )
    recorded = read_log(path)
    assert recorded.jobs.job_id.tolist() == [8]  # the other one has no end
    assert recorded.counts["still running"] == 1
    path.write_text(path.read_text().replace("NaT", "2024-03-05 10:10:00"))
    recorded = read_log(path)
    assert recorded.jobs.job_id.tolist() == [7, 8]
    assert recorded.jobs.applications == ('a, "b"\nc',)
    assert recorded.jobs.run_s.tolist() == [600, 600]
    assert balanced(recorded)


def test_rounded_memory_is_the_least_that_is_printed_so() -> None:
    assert fields.tres("mem=503.24G").memory_bytes == pytest.approx(503.235 * 2**30)
    assert fields.tres("mem=503G").memory_bytes == 503 * 2**30
    assert fields.memory("1.5T") == 1.5 * 2**40  # what somebody wrote himself is not rounded


def test_node_lists_of_any_length() -> None:
    table = NodeListTable()
    names = [f"r{rack}n{node:02d}" for rack in range(1, 40) for node in range(1, 100, 2)]
    long = table.code(",".join(names))
    wide = table.code("r[1-39]n[01-99],login")
    assert len(",".join(names)) > 8192
    sets = table.sets()
    assert sets is not None
    assert sets.sizes[[long, wide]].tolist() == [len(names), 39 * 99 + 1]
    first, stop = sets.first[: sets.begin[1]], sets.stop[: sets.begin[1]]
    found = {sets.names[node] for a, b in zip(first, stop, strict=True) for node in range(a, b)}
    assert found == set(names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[1-2],n2,n[2-3]", "n1 n2 n3"),
        ("rack1[01-02]", "rack101 rack102"),
        ("n[1-2]-ib0", "n1-ib0 n2-ib0"),
        ("c[0-1]s[0-1]n[0-1]", "c0s0n0 c0s0n1 c0s1n0 c0s1n1 c1s0n0 c1s0n1 c1s1n0 c1s1n1"),
        ("n007", "n007"),
        ("login", "login"),
    ],
)
def test_names_of_node_lists(text: str, names: str) -> None:
    table = NodeListTable()
    whole, single = table.code(text), [table.code(one) for one in names.split()]
    sets = table.sets()
    assert sets is not None
    assert sorted(sets.names) == names.split()  # the same nodes, however they are written
    assert sets.sizes[whole] == len(single)
    assert (sets.sizes[single] == 1).all()


# ------------------------------------------------------------------------------------------------------ inferred


def test_an_uneven_job_makes_no_node_larger(tmp_path: Path) -> None:
    machine = infer(
        read_log(
            log(
                tmp_path,
                line("1", cores=28, nodes="n[1-2]", width=2),
                line("2", cores=20, nodes="n2"),
                line("3", cores=24, nodes="n1", start="12:00:00", end="13:00:00"),
                line("4", cores=24, nodes="n2", start="12:00:00", end="13:00:00"),
            )
        )
    )
    assert machine.cores.tolist() == [24, 24]
    assert "uneven" in machine.origin
    assert "lower bound" not in machine.origin


def test_many_uneven_jobs_make_nodes_little_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_text("".join(full_machine([32] * 40, 1500, seed=7)))
    recorded = read_log(path)
    machine = infer(recorded)
    assert len(machine.cores) == 40
    assert 0.95 * 1280 <= machine.cores.sum() <= 1.1 * 1280
    assert "a tenth too many cores" in machine.origin
    monkeypatch.setattr(held_parts, "MOST_PARTS", 0)
    even = infer(recorded)
    assert even.cores.sum() > 1.3 * 1280
    assert "too many to be looked for" in even.origin


@pytest.mark.parametrize("terms", [held_parts.MOST_TERMS, 0])
def test_uneven_parts_are_all_that_jobs_held(
    terms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the linear program as in passes: at least a core of each node, and as many as the log says."""
    seen = []

    def looked_for(
        events: Events, taken: NDArray[np.bool_], cores: NDArray[np.int64], even: Spread, enough: float
    ) -> tuple[NDArray[np.float64] | None, str]:
        found, what = held_parts.uneven_parts(events, taken, cores, even, enough)
        seen.append((found, cores, even.offset))
        return found, what

    monkeypatch.setattr(held_parts, "MOST_TERMS", terms)
    monkeypatch.setattr(inferred_machine, "uneven_parts", looked_for)
    path = tmp_path / "log"
    path.write_text("".join(full_machine([16] * 20, 200, seed=3)))
    infer(read_log(path))
    ((parts, cores, offset),) = seen
    assert parts is not None
    held = np.diff(np.concatenate(([0.0], np.cumsum(parts)))[offset])
    several = np.diff(offset) > 0
    assert held[several] == pytest.approx(cores[several])
    assert parts.min() >= 1.0 - 1e-9


def test_uneven_parts_beside_a_night_and_a_job_of_fewer_cores_than_nodes(tmp_path: Path) -> None:
    night = "2024-10-27T02"
    at_night = {
        "submit": f"{night}:00:00",
        "start": f"{night}:10:00",
        "end": f"{night}:50:00",
        "elapsed": "00:40:00",
    }
    rows = [
        line("1", cores=28, nodes="n[1-2]", width=2),
        line("2", cores=20, nodes="n2"),
        line("3", cores=24, nodes="n1", start="12:00:00", end="13:00:00"),
        line("4", cores=24, nodes="n2", start="12:00:00", end="13:00:00"),
        line("5", cores=1, nodes="n[1-2]", width=2, start="14:00:00", end="15:00:00"),
        *(line(str(job), cores=30, nodes="n[1-2]", width=2, **at_night) for job in range(6, 9)),
    ]
    assert infer(read_log(log(tmp_path, *rows))).cores.tolist() == [24, 24]


def test_even_parts_where_nothing_speaks_against_them(tmp_path: Path) -> None:
    machine = infer(
        read_log(log(tmp_path, line("1", cores=64, nodes="n[1-4]", width=4), line("2", cores=4, nodes="n1")))
    )
    assert machine.cores.tolist() == [20, 16, 16, 16]


def test_only_nodes_that_jobs_held_are_nodes(tmp_path: Path) -> None:
    rows = [line(), line("2", state="RUNNING", nodes="n[2-5]"), line("3", elapsed="00:00:00", nodes="n[6-9]")]
    assert infer(read_log(log(tmp_path, *rows))).node_names == ("n1",)


def test_what_jobs_without_a_node_list_held_counts(tmp_path: Path) -> None:
    rows = [line(str(job), cores=16, nodes="n1" if job == 1 else "") for job in range(1, 5)]
    machine = infer(read_log(log(tmp_path, *rows)))
    assert machine.cores.tolist() == [16] * 4
    assert "3 jobs without a node list" in machine.origin


def test_what_is_held_through_the_night_that_clocks_are_put_back_counts(tmp_path: Path) -> None:
    night = "2024-10-27T0"
    times = {
        "submit": f"{night}2:00:00",
        "start": f"{night}3:00:00",
        "end": f"{night}9:00:00",
        "elapsed": "06:00:00",
    }
    rows = [line(str(job), cores=16, **times) for job in range(1, 5)]
    assert infer(read_log(log(tmp_path, *rows))).cores.tolist() == [64]
    bare = [row.rpartition("|")[0] for row in rows]
    path = log(tmp_path, *bare, columns=COLUMNS.removesuffix("|NodeList"))
    assert infer(read_log(path)).total_cores == 64


def test_a_machine_has_as_many_nodes_as_a_job_held(tmp_path: Path) -> None:
    bare = line(cores=10, width=10).rpartition("|")[0]
    assert len(infer(read_log(log(tmp_path, bare, columns=COLUMNS.removesuffix("|NodeList")))).cores) == 10


def test_parts_are_whole_cores(tmp_path: Path) -> None:
    machine = infer(read_log(log(tmp_path, line("1", cores=10, nodes="n[1-3]", width=3))))
    assert machine.cores.tolist() == [4, 3, 3]
    rows = [line("1", cores=17, nodes="n[1-2]", width=2), line("2", cores=15, nodes="n2")]
    assert infer(read_log(log(tmp_path, *rows))).total_cores == 32


def test_the_hour_that_comes_twice_makes_no_node_larger(tmp_path: Path) -> None:
    night = "2024-10-27T0"
    rows = [
        line(
            str(job),
            cores=16,
            submit=f"{night}2:00:00",
            start=f"{night}2:{job}0:00",
            end=f"{night}2:59:00",
            elapsed="00:20:00",
        )
        for job in range(1, 4)
    ]
    machine = infer(read_log(log(tmp_path, *rows, line("9", cores=12))))
    assert machine.cores.tolist() == [16]
    epochs = read_log(log(tmp_path, *(_epochs(row) for row in [*rows, line("9", cores=12)])))
    assert infer(epochs).cores.tolist() == [32]  # without a doubt about the hour


def test_the_hour_that_comes_twice_is_in_no_peak_without_node_lists_either(tmp_path: Path) -> None:
    night = "2024-11-03T01"
    times = {
        "submit": f"{night}:00:00",
        "start": f"{night}:10:00",
        "end": f"{night}:50:00",
        "elapsed": "00:40:00",
    }
    rows = [line(str(job), cores=8, nodes="", **times) for job in range(1, 4)]
    columns = COLUMNS.removesuffix("|NodeList")
    path = log(
        tmp_path, *(row.removesuffix("|") for row in [*rows, line("9", cores=12, nodes="")]), columns=columns
    )
    assert infer(read_log(path)).total_cores == 12


def _epochs(row: str) -> str:
    return "|".join(
        str(int(fields.time(part))) if part[4:5] == "-" and "T" in part else part for part in row.split("|")
    )


def test_suspended_jobs_and_the_second_of_a_handover_make_no_node_larger(tmp_path: Path) -> None:
    rows = [
        f"{line('1', cores=16, end='10:30:00', elapsed='00:30:00')}|00:00:00",
        f"{line('2', cores=16, start='10:29:59', end='11:00:00', elapsed='00:30:01')}|00:00:00",
        f"{line('3', cores=16, start='10:10:00', end='12:00:00', elapsed='01:00:00')}|00:50:00",
    ]
    machine = infer(read_log(log(tmp_path, *rows, columns=f"{COLUMNS}|Suspended")))
    assert machine.cores.tolist() == [16]


def test_how_sure_the_inference_is_stands_in_it(tmp_path: Path) -> None:
    often = [
        line(str(hour), cores=8, start=f"{hour}:00:00", end=f"{hour}:30:00", elapsed="00:30:00")
        for hour in range(10, 14)
    ]
    origin = infer(read_log(log(tmp_path, *often, line("99", nodes="n2")))).origin
    assert "2 nodes" in origin and "1 of them were as full on 3 occasions" in origin


def test_swf_takes_what_was_allocated(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(
        "1 0 10 600 64 -1 -1 60 1800 -1 1 1 1 1 1 1 -1 -1\n2 0 9 60 -1 -1 -1 8 1800 -1 1 1 1 1 1 1 -1 -1\n"
    )
    recorded = read_log(path)
    assert recorded.jobs.cores.tolist() == [64, 8]
    assert any("another number of processors" in note for note in recorded.notes)
