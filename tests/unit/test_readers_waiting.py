"""What a log says of why jobs waited and how they were started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.model import JobLog, name_of
from asad.replay.readers import read_log

COLUMNS = (
    "JobID JobName Submit Start End ElapsedRaw NCPUS Reason Priority Flags Reservation ReqTRES Constraints"
)
TIMES = ("2024-01-01T00:00:00", "2024-01-01T00:00:10", "2024-01-01T00:01:10", "60")
ROWS = (
    (
        "1",
        "a",
        "QOSMaxCpuPerUserLimit",
        "4294901759",
        "SchedBackfill,StartReceived",
        "maint",
        "gpu",
        "a100&ib",
    ),
    ("2", "b", "None", "", "SchedMain", "", "", ""),
    ("3", "c", "", "0", "StartReceived", "", "", "a100&ib"),
)


def table(delimiter: str, rows: Any = ROWS) -> str:
    """Rows of id, name, reason, priority, flags, reservation, gres and constraints under `COLUMNS`."""
    lines = [delimiter.join(COLUMNS.split())]
    for number, name, reason, priority, flags, reservation, gres, constraints in rows:
        asked = "cpu=4;mem=2G;node=1" + (";gres/gpu=2" if gres else "")
        asked = asked.replace(";", ",")
        cells = (number, name, *TIMES, "4", reason, priority, flags, reservation, asked, constraints)
        lines.append(
            delimiter.join(f'"{cell}"' if delimiter == "," and "," in cell else cell for cell in cells)
        )
    return "\n".join(lines) + "\n"


def shown(jobs: JobLog) -> list[tuple[Any, ...]]:
    """Of each job its reason, priority, who started it, reservation and constraint in words."""
    assert jobs.priority is not None
    columns = [
        (jobs.reason, jobs.reasons),
        (jobs.start_flag, jobs.start_flags),
        (jobs.reservation, jobs.reservations),
        (jobs.constraint, jobs.constraints),
    ]
    words = [[name_of(names, code) for code in codes] for codes, names in columns if codes is not None]
    return list(zip(*words, np.nan_to_num(jobs.priority, nan=-1.0).tolist(), strict=True))


def in_json(old: bool) -> str:
    """The same jobs as `sacct --json` of 22.05 (`old`) and of later ones has them."""
    flags = {"SchedBackfill": "STARTED_ON_BACKFILL", "SchedMain": "STARTED_ON_SCHEDULE"}
    records = []
    for number, name, reason, priority, started, reservation, gres, constraints in ROWS:
        asked = [{"type": "cpu", "count": 4}, {"type": "mem", "count": 2048}]
        asked += [{"type": "gres", "name": "gpu", "count": 2}] if gres else []
        count = int(priority or 2**32 - 2)
        start = [flags[word] for word in started.split(",") if word in flags]
        records.append(
            {
                "job_id": int(number),
                "name": name,
                "time": {"submission": 10, "start": 20, "end": 80, "elapsed": 60},
                "state": {"current": "COMPLETED" if old else ["COMPLETED"], "reason": reason or "None"},
                "flags": [*start, "START_RECEIVED"],
                "priority": count if old else {"set": bool(priority), "infinite": False, "number": count},
                "reservation": {"id": 0, "name": reservation or (0 if old else "")},
                "constraints": constraints,
                "tres": {"allocated": [], "requested": asked},
            }
        )
    return json.dumps({"jobs": records})


@pytest.mark.parametrize("text", [table("|"), table(","), in_json(old=True), in_json(old=False)])
def test_what_a_log_says_of_waiting_and_starting(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    jobs = read_log(tmp_path / "log").jobs
    assert shown(jobs) == [
        ("QOSMaxCpuPerUserLimit", "SchedBackfill", "maint", "a100&ib", 4294901759.0),
        ("-", "SchedMain", "-", "-", -1.0),
        ("-", "-", "-", "a100&ib", 0.0),
    ]
    # of what was asked for only what no other column says
    assert jobs.gres is not None
    assert (jobs.gres_texts, jobs.gres.tolist()) == (("gpu:2",), [0, -1, -1])
    assert (jobs.memory_bytes == 2.0 * 2**30).all()
    some = jobs.take(np.array([2, 0]))
    assert [row[3] for row in shown(some)] == ["a100&ib", "a100&ib"]
    assert [row[0] for row in shown(some)] == ["-", "QOSMaxCpuPerUserLimit"]


def test_columns_that_say_nothing_are_none(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(table("|", [("1", "a", "None", "", "None", "", "", "")] * 2))
    jobs = read_log(tmp_path / "log").jobs
    assert [jobs.reason, jobs.priority, jobs.start_flag, jobs.reservation, jobs.constraint] == [None] * 5


def test_delimiters_in_free_text_beside_constraints_spoil_no_line(tmp_path: Path) -> None:
    """Where a delimiter may belong to either of two columns of free text, the constraint is not known."""
    lines = (
        f"JobID|JobName|Constraints|{'|'.join(COLUMNS.split()[2:7])}",
        "1|a|b|c|" + "|".join((*TIMES, "4")),
        "2|a|c|" + "|".join((*TIMES, "4")),
    )
    (tmp_path / "log").write_text("\n".join(lines).replace("JobName", "WorkDir"))
    jobs = read_log(tmp_path / "log").jobs
    assert jobs.constraint is not None
    assert [name_of(jobs.constraints, code) for code in jobs.constraint] == ["-", "c"]


def test_a_priority_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(table("|").replace("4294901759", "high"))
    with pytest.raises(Exception, match="column priority: 'high' is not a priority"):
        read_log(tmp_path / "log")
