"""Small accounting logs with node lists, for tests of recorded starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asad.replay.readers import Recorded, read_log

BEGIN_S = 1_700_000_000
HEADER = (
    "JobID|Submit|Eligible|Start|End|ElapsedRaw|NCPUS|NNodes|NodeList|TimelimitRaw|TotalCPU|User|JobName|"
    "Partition|State|ReqMem|AllocTRES|Account|QOS|Reason|Flags"
)


def _time(after_s: float) -> str:
    return datetime.fromtimestamp(BEGIN_S + after_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def line(job: Mapping[str, Any]) -> str:
    """A record; times are seconds after `BEGIN_S`. Needed: id, start, run, nodes (a list as Slurm writes it)."""
    start, run, cores = job["start"], job["run"], job.get("cores", 1)
    submit = job.get("submit", start)
    used = round(job.get("cpu", 0.5) * run * cores)
    tres = f"billing={cores},cpu={cores},node={job.get('wide', 1)}" + job.get("tres", "")
    return "|".join(
        map(
            str,
            (
                job["id"],
                _time(submit),
                _time(job.get("eligible", submit)),
                _time(start),
                _time(start + run),
                run,
                cores,
                job.get("wide", 1),
                job["nodes"],
                job.get("limit", 2 * run) // 60 if job.get("limit", 1) else "",
                f"{used // 3600}:{used // 60 % 60:02d}:{used % 60:02d}",
                job.get("user", "ann"),
                job.get("name", "sim"),
                job.get("partition", "batch"),
                job.get("state", "COMPLETED"),
                job.get("memory", "1Gn"),
                tres,
                job.get("account", "phys"),
                job.get("qos", "normal"),
                job.get("reason", ""),
                job.get("flags", ""),
            ),
        )
    )


def log_of(path: Path, jobs: Sequence[Mapping[str, Any]]) -> Recorded:
    """The log of these jobs, written and read again."""
    path.write_text("\n".join((HEADER, *map(line, jobs))) + "\n")
    return read_log(path)
