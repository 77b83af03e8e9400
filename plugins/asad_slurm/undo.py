"""`asad-undo`: take back every offer that is still open, without the daemon.

Run by the unit's ExecStopPost and by a timer of its own. It needs Python's standard library, the journal and scontrol,
and nothing else of asad: it is there for the day on which the rest is broken. An offer whose job runs is left alone:
the job is a guest, and lives as one. A job that waits in the guest partition gets its partition and node list back.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JOURNAL = "offers.journal"
LOCK = "offers.lock"
CLOSES = frozenset(("withdrawn", "restored", "refused", "closed"))


def open_offers(path: Path) -> dict[str, dict[str, Any]]:
    """By job, the last `offer` line of a journal that no later line closes; a line that is cut short is passed over.

    An offer whose job has started has `started` set. Raises OSError if the journal is there and cannot be read.
    """
    offers: dict[str, dict[str, Any]] = {}
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return offers
    for line in text.splitlines():
        try:
            event = json.loads(line)
            job, what = str(event["job"]), event["what"]
        except (ValueError, KeyError, TypeError):
            continue
        if what == "offer":
            offers[job] = event
        elif what == "started" and job in offers:
            offers[job]["started"] = True
        elif what in CLOSES:
            offers.pop(job, None)
    return offers


def undo(path: Path, *, older_than_s: float, now_s: float, timeout_s: float = 30.0) -> tuple[list[str], int]:
    """Take back the open offers of a journal that are older than that.

    Returns a sentence for each, and how many could not be taken back.
    """
    said, failed = [], 0
    for job, offer in open_offers(path).items():
        # an offer from the future is of before the clock was set back: nobody knows how old it is
        if 0.0 <= now_s - float(offer.get("time_s", 0.0)) < older_than_s:
            continue
        try:
            state, partition = _look(str(offer.get("raw", job)), timeout_s)
        except (OSError, subprocess.SubprocessError) as error:
            said.append(f"{job}: Slurm could not be asked ({_clean(error)}); the offer stays open")
            failed += 1
            continue
        if not state:
            said.append(f"{job}: it has ended")
            _note(path, "closed", now_s, job)
        elif partition != offer["guest_partition"]:
            said.append(f"{job}: somebody else has moved it back")
            _note(path, "closed", now_s, job)
        elif state == "PENDING":
            why = _restore(offer, timeout_s)
            if why:
                said.append(f"{job}: not taken back ({why}); the offer stays open")
                failed += 1
            else:
                said.append(f"{job}: waits in {offer['partition']} again")
                _note(path, "withdrawn", now_s, job)
        else:
            said.append(f"{job}: it runs as a guest, and is left alone")
    return said, failed


def _look(raw: str, timeout_s: float) -> tuple[str, str]:
    """State and partition of a job; empty if Slurm does not know it any more."""
    answer = _run(
        ["squeue", "--noheader", "--all", "--states=all", "--format=%T|%P", f"--jobs={raw}"], timeout_s
    )
    if answer.returncode != 0:
        if "Invalid job id" in answer.stderr:
            return "", ""
        raise subprocess.SubprocessError(answer.stderr.strip() or "squeue failed")
    state, _, partition = answer.stdout.strip().partition("|")
    ended = {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "BOOT_FAIL",
        "DEADLINE",
    }
    return ("", "") if state in ended or not state else (state, partition.split("\n")[0])


def _restore(offer: dict[str, Any], timeout_s: float) -> str:
    """Give a waiting job its partition and node list back; why not, or the empty string."""
    changes = [f"Partition={offer['partition']}", f"ReqNodeList={offer.get('required_nodes', '')}"]
    try:
        answer = _run(["scontrol", "update", f"jobid={offer.get('raw', offer['job'])}", *changes], timeout_s)
    except (OSError, subprocess.SubprocessError) as error:
        return _clean(error)
    return "" if answer.returncode == 0 else _clean(answer.stderr or "scontrol failed")


def _run(argv: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    keep = {
        key: value for key, value in os.environ.items() if not key.startswith(("SQUEUE_", "SLURM_CLUSTERS"))
    }
    return subprocess.run(  # noqa: S603 (an argv list, no shell)
        argv,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
        env=keep,
        check=False,
    )


def _note(path: Path, what: str, now_s: float, job: str) -> None:
    """Close an offer in the journal; one that stays open by a full disk is looked at again, and does no harm."""
    with contextlib.suppress(OSError), _locked(path.parent / LOCK), path.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"what": what, "time_s": now_s, "job": job, "by": "asad-undo"}) + "\n")
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The journal's lock, or after ten seconds without it: a hung daemon must not stop this."""
    with path.open("a") as file:
        for _ in range(100):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.1)
        yield


def _clean(text: object) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(text)).strip()[:300]


def main(argv: list[str] | None = None) -> int:
    """`asad-undo [--state-dir DIR] [--older-than SECONDS]`: 0 if no offer is left that had to be taken back, else 1."""
    parser = argparse.ArgumentParser(
        prog="asad-undo", description="Take back every offer of asad that its job has not taken."
    )
    parser.add_argument(
        "--state-dir", type=Path, default=Path("/var/lib/asad"), help="folder of offers.journal"
    )
    parser.add_argument(
        "--older-than",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="leave younger offers alone (default 0)",
    )
    chosen = parser.parse_args(argv)
    try:
        said, failed = undo(chosen.state_dir / JOURNAL, older_than_s=chosen.older_than, now_s=time.time())
    except OSError as error:
        print(f"asad-undo: {_clean(error)}; give its folder with --state-dir", file=sys.stderr)
        return 1
    for sentence in said:
        print(_clean(sentence))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
