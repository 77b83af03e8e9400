"""What `asad-undo` does about Mesos: jobs held for it, of which nothing was launched there, are Slurm's again.

It needs Python's standard library, the journals, Slurm's commands and `asad_slurm.undo`, and nothing else of asad: it
is there for the day on which the rest is broken.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
from pathlib import Path
from typing import Any

from asad_slurm.undo import MOST, SENSELESS, Rounds, append, clean, events, run

QUEUE, GANGS = "slurm-queue.journal", "mesos.journal"
"""Jobs of Slurm's that are in hand for Mesos, and the framework that runs them as gangs."""
GANGS_LOCK = "mesos.journal.lock"
"""Held by a daemon for as long as it lives."""
HOLDING, SERVED, RETURNING = "holding", "served", "returning"
"""States of a job in hand of which nothing need have run. In every other one it has."""
WAITS, LAUNCHED, OVER = "waits", "launched", "over"
"""How a gang stands, as far as it matters here."""


def held_jobs(path: Path) -> dict[int, dict[str, Any]]:
    """By number, the last line of every job that is in hand for Mesos and may not have run there yet.

    Lines that are cut short or make no sense are passed over. Raises OSError if the journal cannot be read.
    """
    held: dict[int, dict[str, Any]] = {}
    for entry in events(path):
        try:
            numbers = [entry[name] for name in ("job", "take", "array", "task", "submit_s", "since_s")]
            whole = all(type(number) in (int, float) and abs(number) < MOST for number in numbers)
            whole = whole and type(entry["facts"]) is dict
            job, state = int(entry["job"]), entry["state"]
        except SENSELESS:
            continue
        if whole:
            held.pop(job, None)
            if state in (HOLDING, SERVED, RETURNING):
                held[job] = entry
    return held


def gangs(path: Path) -> dict[str, str]:
    """By origin (`slurm:17:…`), every gang that Mesos' side knows: LAUNCHED at any time, OVER without that, or WAITS.

    Raises OSError if the journal cannot be read, ValueError for a whole line that makes no sense: it may be a launch.
    """
    origins: dict[str, str] = {}
    stands: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return {}
    for number, line in enumerate(lines[:-1], 1):  # what follows the last end of a line was never acted upon
        if not line:
            continue
        try:
            record = json.loads(line)
            if record["what"] == "job":
                origins[record["job"]] = record["spec"].get("origin", "")
                state = record.get("state", {})
                over = state.get("state", "queued") != "queued"
                stands[record["job"]] = LAUNCHED if state.get("attempt", 0) else OVER if over else WAITS
            elif record["what"] == "launch":
                stands[record["job"]] = LAUNCHED
            elif record["what"] in ("stopping", "over") and stands[record["job"]] == WAITS:
                stands[record["job"]] = OVER
        except SENSELESS:
            raise ValueError(
                f"{path}:{number}: it is no record; what has run on Mesos is not known"
            ) from None
    return {origin: stands[job] for job, origin in origins.items() if origin}


def undo_queue(
    folder: Path, *, older_than_s: float, now_s: float, timeout_s: float = 30.0
) -> tuple[list[str], int]:
    """Return to Slurm the jobs that are held for Mesos and were not launched there, unless a daemon has them in hand.

    The journal says so first: a daemon that comes back cancels the gang before it runs anything. Returns a sentence for
    each job, and how many are still held that need not be.
    """
    if not held_jobs(folder / QUEUE):
        return [], 0
    with (folder / GANGS_LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return [], 0  # a daemon lives
        held = held_jobs(folder / QUEUE)
        try:
            known = gangs(folder / GANGS)
        except (OSError, ValueError) as error:
            return [f"{clean(error)}: {len(held)} jobs stay held"], len(held)
        rounds = Rounds(
            {
                job: entry
                for job, entry in held.items()
                if not entry["facts"].get("undone") and not 0.0 <= now_s - entry["since_s"] < older_than_s
            }
        )
        for job, entry in rounds:
            gang = known.get(f"slurm:{job}:{entry['submit_s']:.0f}:{entry['take']}", "")
            back = entry["state"] == RETURNING or "back" in entry["facts"]
            if gang == LAUNCHED or (gang == "" and entry["state"] == SERVED) or (gang == OVER and not back):
                rounds.sentences.append(f"{job}: it runs on Mesos, or is over there, and is left alone")
                continue
            try:
                why = _unhold(folder / QUEUE, entry, now_s, timeout_s)
            except (OSError, subprocess.SubprocessError) as error:  # the next would wait for nothing, too
                rounds.fail(f"{job}: still held for Mesos, as those after it ({clean(error)})")
                break
            if why == "":
                rounds.sentences.append(f"{job}: Slurm has it again")
            elif why is not None and not rounds.again(job, entry, why):
                rounds.fail(f"{job}: still held for Mesos ({why})")
    return rounds.sentences, rounds.failed


def _unhold(path: Path, entry: dict[str, Any], now_s: float, timeout_s: float) -> str | None:
    """Restore the comments of a job and release it: why not, the empty string, or None if there is nothing to do.

    Raises OSError or SubprocessError where Slurm or the disk does not answer.
    """
    name = f"{entry['array']}_{entry['task']}" if entry["array"] else str(entry["job"])
    answer = run(
        ["squeue", "--noheader", "--all", "--states=all", "--format=%A|%T|%Q", f"--jobs={name}"], timeout_s
    )
    if answer.returncode != 0:
        return None if "Invalid job id" in answer.stderr else clean(answer.stderr or "squeue failed")
    lines = [line.strip().split("|") for line in answer.stdout.splitlines()]
    if [str(entry["job"]), "PENDING", "0"] not in lines:
        return None  # it does not wait, or is not held
    entry["state"], entry["since_s"] = RETURNING, now_s
    entry["facts"]["back"] = "asad-undo"
    append(path, entry)
    for key, own in (("AdminComment", "admin_comment"), ("Comment", "comment")):
        if key in str(entry["facts"].get("wrote", "")).split():
            # what it says there keeps no job
            run(["scontrol", "update", f"jobid={name}", f"{key}={entry.get(own, '')}"], timeout_s)
    answer = run(["scontrol", "release", name], timeout_s)
    if answer.returncode != 0:
        return clean(answer.stderr or "scontrol failed")
    entry["facts"]["undone"] = "yes"  # a hold that is set later is somebody else's
    with contextlib.suppress(OSError):
        append(path, entry)
    return ""
