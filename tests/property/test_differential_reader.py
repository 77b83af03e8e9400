"""asad's reader of logs and a plain one of the tests read the same jobs: of odd logs, recorded ones and real ones.

Where they differ one of them is wrong. `hostile_logs.py` names the oddities; a failure names that of the job.
"""

from __future__ import annotations

import gzip
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hostile_logs import (
    LAYOUTS,
    MISSING,
    ODDITIES,
    USUAL,
    Entry,
    Notation,
    as_json,
    as_table,
    draw_entries,
    draw_notation,
)
from plain_reader import Record, given, read_plain

from asad.errors import LogError
from asad.replay.readers import Recorded, read_log

ROOT = Path(__file__).resolve().parents[2]
RECORDED = sorted(
    path
    for folder in (ROOT / "tests/golden/logs", ROOT / "tests/golden/slurm", ROOT / "profiles/samples")
    for path in folder.rglob("*")
    if path.name.endswith((".sacct", ".csv", "sacct.gz"))
    or (path.suffix == ".json" and path.stem not in ("sinfo", "squeue"))
    if path.parent.parent.name != "queue" or path.name == "log.sacct.gz"  # beside these is more
)
LOGS = 200
"""Generated logs: a third of them text, CSV and JSON each."""
JOBS = 30
FORMS = ("text", "csv", "json", "json of 22.05")
POZIDRIV = (
    "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,"
    "nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
)

Row = tuple[str, ...]


def number(value: float | None) -> str:
    """What both readers must say, which need not add up in the same order."""
    return "-" if value is None or math.isnan(value) else f"{value:.12g}"


def name_of(text: str) -> str:
    """A job may be called `NA`: whether that is a name or none, and the blanks around one, are a matter of taste."""
    return given(text) or "-"


def rows_of_plain(jobs: Sequence[Record]) -> Counter[Row]:
    return Counter(
        (
            job.id,
            *map(number, (job.submit, job.start, job.run, job.cores, job.nodes, job.memory, job.cpu)),
            job.who[0] or "-",
            name_of(job.who[1]),
            job.who[2] or "-",
        )
        for job in jobs
    )


def rows_of_asad(recorded: Recorded) -> Counter[Row]:
    jobs = recorded.jobs
    columns = (
        jobs.submit_s,
        jobs.start_s,
        jobs.run_s,
        jobs.cores,
        jobs.nodes,
        jobs.memory_bytes,
        jobs.cpu_time_s,
    )
    users, names, partitions = (
        [texts[code] if code >= 0 else "" for code in codes.tolist()]
        for codes, texts in (
            (jobs.user, jobs.users),
            (jobs.application, jobs.applications),
            (jobs.partition, jobs.partitions),
        )
    )
    who = (
        [user or "-" for user in users],
        map(name_of, names),
        [partition or "-" for partition in partitions],
    )
    return Counter(
        zip(map(str, jobs.job_id), *(map(number, column.tolist()) for column in columns), *who, strict=True)
    )


def counts_of(counts: Counter[str] | dict[str, int]) -> dict[str, int]:
    """How many records are no jobs, by reason. Whether a job that was cancelled in the second in which it started ever
    did is a matter of taste. Lines are counted by asad alone, and so are those that go on with a record."""
    merged: Counter[str] = Counter()
    for reason, count in counts.items():
        if count and reason not in ("lines", "rest of a line before", "blank"):
            merged["no run" if reason in ("never started", "ran 0 s") else reason] += count
    return dict(merged)


def compare(path: Path, columns: list[str] | None = None, oddities: dict[str, str] | None = None) -> None:
    """Both readers of one log. `oddities` says by id what is odd about a job."""
    jobs, counts = read_plain(path.read_bytes(), columns)
    try:
        recorded = read_log(path, columns=columns, skip_bad=True)
    except LogError as error:
        assert not jobs and "no job" in str(error), f"asad refuses a log of {len(jobs)} jobs: {error}"
        return
    ours, theirs = rows_of_asad(recorded), rows_of_plain(jobs)
    names = "id submit start run cores nodes memory cpu user name partition".split()  # noqa: SIM905
    differ = [
        f"{reader} alone has {' '.join(f'{name}={value!r}' for name, value in zip(names, row, strict=True))}"
        f" ({(oddities or {}).get(row[0], '')})"
        for reader, rows in (("asad", ours - theirs), ("the plain reader", theirs - ours))
        for row in rows.elements()
    ]
    if bad := [str(error) for error in recorded.bad[:3]]:
        differ.append(f"asad calls bad: {bad}")
    assert not differ, "\n" + "\n".join(sorted(differ, key=lambda line: line.partition("id=")[2])[:12])
    assert counts_of(recorded.counts) == counts_of(counts)
    left_out = sum(count for reason, count in recorded.counts.items() if reason != "lines")
    assert recorded.counts["lines"] == len(recorded.jobs) + left_out


def written(entries: list[Entry], form: str, draw: Random, notation: Notation | None = None) -> bytes:
    if form.startswith("json"):
        layout = "one document" if notation else draw.choice(LAYOUTS)
        raw = as_json(entries, layout, old=form != "json")
    else:
        raw = as_table(entries, notation or draw_notation(draw, entries, form), form)
    return gzip.compress(raw, mtime=0) if draw.random() < 0.2 else raw


def oddities_of(entries: list[Entry]) -> dict[str, str]:
    return {
        key: entry.oddity for entry in entries for key in (entry.id, str(entry.number), str(entry.leader))
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("oddity", sorted(ODDITIES))
def test_each_oddity_is_read_alike(tmp_path: Path, oddity: str, form: str) -> None:
    """Three jobs of it between plain ones, written as the documentation says."""
    draw = Random(f"{oddity} {form}")
    entries = draw_entries(draw, ["plain", oddity, oddity if "width" not in oddity else "plain", "plain"])
    usual = Notation(columns=tuple(USUAL.split()), delimiter="," if form == "csv" else "|", draw=draw)
    path = tmp_path / "log"
    path.write_bytes(written(entries, form, draw, usual))
    compare(path, oddities=oddities_of(entries))


NOTATIONS: dict[str, dict[str, Any]] = {
    **{f"missing is {word!r}": {"missing": (word,)} for word in MISSING},
    **{
        f"numbers as {style.format(4)}": {"number": style, "columns": (*USUAL.split(), "ElapsedRaw")}
        for style in ("{}.0", "{}e0", "K")
    },
    **{f"times as {style}": {"times": style} for style in ("zone", "epoch", "epoch.0", "blank")},
    **{f"between fields {by!r}": {"delimiter": by} for by in (";", "\t", "@@", "\x1f", "^", ":::")},
    "memory in GiB": {"unit": "G"},
    "a delimiter at the end": {"ends_with_delimiter": True},
    "line ends of Windows": {"line_end": "\r\n"},
    "a byte-order mark": {"marked": True},
    "headers again": {"headers_at": (3, 17, 18)},
    "steps without times": {"steps_have_times": False},
}


@pytest.mark.parametrize("notation", NOTATIONS)
def test_each_notation_is_read_alike(tmp_path: Path, notation: str) -> None:
    """Of all oddities, with the usual columns; names have what stands between fields where that is `|`."""
    draw = Random(notation)
    changes = NOTATIONS[notation]
    other = {"name_with_the_delimiter"} if "delimiter" in changes else set()
    kinds = [name for name in sorted(set(ODDITIES) - other) if "width" not in name]
    entries = draw_entries(draw, kinds)
    usual = Notation(columns=tuple(USUAL.split()), draw=draw)
    path = tmp_path / "log"
    path.write_bytes(as_table(entries, replace(usual, **changes), "text"))
    compare(path, oddities=oddities_of(entries))


@pytest.mark.parametrize("seed", range(LOGS))
def test_hostile_logs_are_read_alike(tmp_path: Path, seed: int) -> None:
    """Oddities together, in any order of columns and however a site or a tool writes them."""
    draw = Random(seed)
    form = FORMS[seed % len(FORMS)]
    kinds = [name for name in sorted(ODDITIES) if "width" not in name or name.startswith("memory")]
    if form == "text" and draw.random() < 0.5:
        kinds = [name for name in kinds if not name.startswith("name_with")]
    oddities = [draw.choice(kinds) for _ in range(JOBS - 1)]
    entries = draw_entries(draw, [*oddities, "id_of_another_width"])
    path = tmp_path / "log"
    path.write_bytes(written(entries, form, draw))
    compare(path, oddities=oddities_of(entries))


@pytest.mark.parametrize("seed", range(20))
def test_a_table_however_written_and_json_of_the_same_records_are_the_same_jobs(seed: int) -> None:
    """The plain reader by itself: it would be no judge if it depended on the notation."""
    draw = Random(f"notations {seed}")
    form = ("text", "csv")[seed % 2]
    entries = draw_entries(draw, [draw.choice(sorted(ODDITIES)) for _ in range(JOBS)])
    columns = ("JobID", *draw.sample(USUAL.split()[1:], len(USUAL.split()) - 1))
    notation = replace(draw_notation(draw, entries, form), columns=columns, unit="M")
    table, new, old = (
        rows_of_plain(read_plain(raw)[0])
        for raw in (
            as_table(entries, notation, form),
            as_json(entries, draw.choice(LAYOUTS), old=False),
            as_json(entries, draw.choice(LAYOUTS), old=True),
        )
    )
    assert table == new == old


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_recorded_logs_are_read_alike(path: Path) -> None:
    compare(path)


@pytest.mark.traces
@pytest.mark.parametrize(
    ("name", "columns"),
    [("pozidriv.sacct.gz", POZIDRIV.split(",")), ("cirrus-2024Q1-sacct-subset.csv", None)],
)
def test_real_logs_are_read_alike(traces: Path, name: str, columns: list[str] | None) -> None:
    compare(traces / name, columns)
