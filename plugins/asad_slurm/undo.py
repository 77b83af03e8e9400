"""`asad-undo`: take back every offer that is still open and every change of a waiting job, without the daemon.

Run by the unit's ExecStopPost and by a timer of its own. It needs Python's standard library, the journal and scontrol,
and nothing else of asad: it is there for the day on which the rest is broken. An offer whose job runs is left alone:
the job is a guest, and lives as one. A job that waits in the guest partition gets its partition and node list back.
A job that admission has deferred, throttled or put before others gets its own begin time, throttle and nice back.

What another plugin leaves behind is undone by a step of its own: an entry point in the group `asad.undo`, a function
`(state_dir, *, older_than_s, now_s)` that gives sentences and how many things are left. It must need as little.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

CONFIG, STATE_DIR = Path("/etc/asad/asad.toml"), Path("/var/lib/asad")
"""Where the configuration is, and what is looked at if it names no other folder."""
JOURNAL = "offers.journal"
LOCK = "offers.lock"
ALIVE = "offers.alive"
"""Touched by a daemon that stands behind its changes, in every cycle."""
CLOSES = frozenset(("withdrawn", "restored", "refused", "closed"))
BEGIN, THROTTLE, NICE = CHANGES = ("StartTime", "ArrayTaskThrottle", "Nice")
"""What is changed of jobs, as scontrol calls it."""
WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
ENDED = frozenset(
    ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"]
)
"""States of a job that waits, and of one that has ended, as squeue calls them."""
SETTLES_S = 60.0
"""A change that is not seen at once may yet come: Slurm was asked, and had not answered."""
SUPERSEDED = "7"
"""Exit status of a daemon in whose place another one rules, as systemd hands it to what runs after a stop."""
PATIENCE_S = 15.0
"""For so long offers, then changes, then holds are tried again while Slurm refuses them for the moment alone: a unit
that stops waits for it."""
AGAIN_S = 0.2
"""Between two such tries."""
JOB = re.compile(r"\d{1,20}(?:[_+]\d{1,20})?", re.ASCII)
"""How Slurm calls a job, a task of an array, or a part of a heterogeneous one."""
NUMBER = re.compile(r"\d{1,20}", re.ASCII)
SENSELESS = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What comes of reading a line that is no line of a journal: it may be cut short, or worse."""
MOST = 2**33
"""No value that is set for Slurm, and no time of it, is larger."""


def exposed(folder: Path) -> str:
    """Why what is written in a folder is not to be believed, or the empty string. Raises OSError if it cannot be seen.

    Whoever may write there can put a journal of his own into the place of ours, and have jobs changed by our rights.
    """
    if folder.stat().st_mode & stat.S_IWOTH:
        return f"{folder}: others may write there, and so have any job changed; chmod o-w it, and look what is in it"
    return ""


def events(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal that are JSON objects; others, which may be cut short, are passed over.

    Raises OSError if the journal is there and cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in filter(None, text.splitlines()):
        try:
            event = json.loads(line)
        except SENSELESS:
            continue
        if isinstance(event, dict):
            yield event


def open_offers(path: Path) -> dict[str, dict[str, Any]]:
    """By job, the last `offer` line of a journal that no later line closes; a line that is cut short is passed over.

    An offer whose job has started has `started` set. Raises OSError if the journal is there and cannot be read.
    """
    offers: dict[str, dict[str, Any]] = {}
    for event in events(path):
        try:
            job, what = str(event["job"]), str(event["what"])
        except SENSELESS:
            continue
        if not JOB.fullmatch(job):
            continue
        if what == "offer":
            offers[job] = event
        elif what == "started" and job in offers:
            offers[job]["started"] = True
        elif what in CLOSES:
            offers.pop(job, None)
    return offers


def open_changes(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """By job and key, the last `changed` line of a journal that no `given-back` line follows.

    Lines that are cut short or make no sense are passed over. Raises OSError if the journal cannot be read.
    """
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for event in events(path):
        try:
            what, job, key = event["what"], str(event["job"]), event.get("key", "")
            if what == "changed" and key in CHANGES and NUMBER.fullmatch(job):
                whole = [event["was"], *event["ours"], event["time_s"]]
                if len(whole) > 2 and all(
                    type(value) in (int, float) and abs(value) < MOST for value in whole
                ):
                    event["was"], event["ours"] = int(whole[0]), [int(value) for value in whole[1:-1]]
                    changes[job, key] = event
            elif what == "given-back":
                changes.pop((job, key), None)
        except SENSELESS:
            continue
    return changes


def changed_words(key: str, value: int, now_s: float) -> str:
    """A value as scontrol takes it, in an environment with `TZ=UTC0`."""
    if key != BEGIN:
        return str(value)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(value)) if value > now_s else "now"


def undo(path: Path, *, older_than_s: float, now_s: float, timeout_s: float = 30.0) -> tuple[list[str], int]:
    """Take back the open offers of a journal that are older than that.

    Returns a sentence for each, and how many could not be taken back.
    """
    rounds = Rounds(open_offers(path))
    for job, offer in rounds:
        # an offer from the future is of before the clock was set back: nobody knows how old it is
        age_s = now_s - _made_s(offer)
        if 0.0 <= age_s < older_than_s:
            continue
        try:
            state, partition, nodes = _look(job, timeout_s)
        except (OSError, subprocess.SubprocessError) as error:
            rounds.fail(f"{job}: Slurm could not be asked ({clean(error)}); the offer stays open")
            continue
        waits, changes = state in WAITING, _own_nodes(offer)
        if not state:
            rounds.close(path, now_s, "closed", job, "it has ended")
            continue
        # of another version, or cut short; that it stays open shows it to whoever reads the journal
        if not {"partition", "guest_partition"} <= offer.keys():
            rounds.fail(f"{job}: its line in {path.name} makes no sense; see `scontrol show job {job}`")
            continue
        moved = partition != offer["guest_partition"]
        # to bring it back would mean to requeue it, and its work would be lost
        if not moved and not waits:
            rounds.sentences.append(f"{job}: it runs as a guest, and is left alone")
            continue
        if not moved:
            changes = [f"Partition={offer['partition']}", *changes]
        elif not waits or nodes != offer.get("nodes") or nodes == offer.get("required_nodes", ""):
            changes = []
        # else whoever moved it need not have known of our node list: nobody else would ever take it off
        why = _update(job, changes, timeout_s) if changes else ""
        if rounds.again(job, offer, why):
            continue
        if why:
            what = "still bound to the nodes of its offer" if moved else "not taken back"
            rounds.fail(f"{job}: {what} ({why}); the offer stays open")
        elif not moved:
            rounds.close(path, now_s, "withdrawn", job, f"waits in {offer['partition']} again")
        elif waits and 0.0 <= age_s < SETTLES_S:  # a killed daemon's scontrol lives on
            rounds.sentences.append(
                f"{job}: is not offered anything yet; it may come, and the offer stays open until then"
            )
        else:
            rounds.close(path, now_s, "closed", job, "somebody else has moved it back")
    return rounds.sentences, rounds.failed


def _made_s(offer: dict[str, Any]) -> float:
    """When an offer was made; long ago if its line does not say so."""
    made_s: Any = offer.get("time_s")
    return float(made_s) if type(made_s) in (int, float) and abs(made_s) < MOST else 0.0


def undo_changes(
    path: Path, *, older_than_s: float, now_s: float, timeout_s: float = 30.0
) -> tuple[list[str], int]:
    """Restore what was changed of jobs that wait, unless a daemon has completed a look within `older_than_s`.

    Returns a sentence for each job, and how many of them could not be restored.
    """
    by_job: dict[str, dict[str, dict[str, Any]]] = {}
    for (job, key), change in open_changes(path).items():
        by_job.setdefault(job, {})[key] = change
    if not by_job or 0.0 <= _silent_s(path.parent / ALIVE, now_s) < older_than_s:
        return [], 0
    rounds = Rounds(by_job)
    for job, changes in rounds:
        try:
            there = _look_closely(job, THROTTLE in changes, timeout_s)
        except (OSError, subprocess.SubprocessError) as error:
            rounds.fail(f"{job}: Slurm could not be asked ({clean(error)}); its changes stay open")
            continue
        if there is None:
            rounds.sentences.append(f"{job}: it does not wait any more")
        wanted: dict[str, str] = {}
        over: list[str] = []
        for key, change in changes.items():
            if there is None or there[key] not in change["ours"]:
                if there is None or not _may_come(change, there[key], now_s):
                    over.append(key)
            # priority 0 is how Slurm holds a job, and setting a nice computes it anew
            elif key == NICE and there["Priority"] <= 0:
                rounds.sentences.append(
                    f"{job}: it is held, and its nice would release it; its nice stays open"
                )
            else:
                wanted[key] = changed_words(key, change["was"], now_s)
        assignments = [f"{key}={words}" for key, words in wanted.items()]
        why = _update(job, assignments, timeout_s) if wanted else ""
        again = rounds.again(job, {key: changes[key] for key in wanted}, why)
        if wanted and there is not None and not why:
            over += [key for key in wanted if not _may_come(changes[key], there[key], now_s)]
            rounds.sentences.append(f"{job}: {' '.join(assignments)} as before")
        elif why and not again:
            rounds.fail(f"{job}: not restored ({why}); {' '.join(wanted)} stay open")
        for key in over:
            _note(path, "given-back", now_s, job, key=key)
    return rounds.sentences, rounds.failed


def _may_come(change: dict[str, Any], seen: int, now_s: float) -> bool:
    """May what was asked for last still reach Slurm? A killed daemon's scontrol lives on, and asks for it."""
    return bool(seen != change["ours"][-1]) and 0.0 <= now_s - change["time_s"] < SETTLES_S


def undo_others(folder: Path, *, older_than_s: float, now_s: float) -> tuple[list[str], int]:
    """What other plugins have to undo. One that is broken keeps nobody else from it."""
    sentences, failed = list[str](), 0
    for point in entry_points(group="asad.undo"):
        try:
            done = point.load()(folder, older_than_s=older_than_s, now_s=now_s)
        except OSError:
            raise
        except Exception as error:
            done = [f"{point.name}: what it holds stays so ({type(error).__name__}: {clean(error)})"], 1
        sentences, failed = sentences + done[0], failed + done[1]
    return sentences, failed


def boot_id() -> str:
    """The kernel's own name of this boot; empty if it has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _silent_s(path: Path, now_s: float) -> float:
    """For how long no daemon has shown that it lives: since this boot by the clock that is never set."""
    try:
        boot, _, passed_s = path.read_text(encoding="ascii", errors="replace").partition(" ")
        if boot and boot == boot_id():
            return time.monotonic() - float(passed_s)
        return now_s - path.stat().st_mtime
    except (OSError, ValueError):
        return float("inf")


FORMAT = "JobID:30,State:30,EligibleTime:30,Nice:30,PriorityLong:30"
"""No field of the users', and none with blanks in it."""


def _look_closely(job: str, throttled: bool, timeout_s: float) -> dict[str, int] | None:
    """What a job that waits (of an array the tasks that wait) has there now; None if it does not wait any more.

    Its throttle is asked for only if it is `throttled`.
    """
    asked = ["squeue", "--noheader", "--all", "--states=PENDING", f"--Format={FORMAT}", f"--jobs={job}"]
    lines = [line.split() for line in _answer(asked, timeout_s).splitlines()]
    lines = [words for words in lines if len(words) == 5 and words[1] == "PENDING"]
    if not lines:
        return None
    # the tasks that wait together go by the number of the array itself
    _, _, eligible, nice, priority = next((words for words in lines if words[0] == job), lines[0])
    try:
        return {
            BEGIN: int(eligible) if eligible.isdigit() else 0,
            NICE: int(nice),
            THROTTLE: _throttle(job, timeout_s) if throttled else 0,
            "Priority": int(priority),
        }
    except ValueError:
        raise subprocess.SubprocessError("squeue's answer cannot be read") from None


def _throttle(job: str, timeout_s: float) -> int:
    """How many tasks of an array may run at one time; 0 for no bound.

    squeue's list of tasks (`3-9%2`) does not always have it: not of the last one, and on 26.05 of none once one of them
    has a number of its own.
    """
    answer = _answer(["scontrol", "show", "job", "--oneliner", job], timeout_s)
    # the name of the job is the user's, and may be lines like these; it stands behind
    found = re.match(r"JobId=\d+ ArrayJobId=\d+ ArrayTaskId=\S+ ArrayTaskThrottle=(\d{1,9}) ", answer)
    return int(found[1]) if found else 0


def _look(job: str, timeout_s: float) -> tuple[str, str, str]:
    """State, partition and required nodes of a job; empty if Slurm does not know it any more."""
    asked = ["squeue", "--noheader", "--all", "--states=all", "--format=%T|%P|%n", f"--jobs={job}"]
    line = _answer(asked, timeout_s).partition("\n")[0]
    state, partition, nodes = [*line.strip().split("|"), "", ""][:3]
    return ("", "", "") if state in ENDED or not state else (state, partition, nodes)


def _answer(argv: list[str], timeout_s: float) -> str:
    """What a command prints; nothing where Slurm does not know the job any more. Raises SubprocessError."""
    answer = run(argv, timeout_s)
    if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
        raise subprocess.SubprocessError(answer.stderr.strip() or f"{argv[0]} failed")
    return answer.stdout if answer.returncode == 0 else ""


def _own_nodes(offer: dict[str, Any]) -> list[str]:
    """What restores the nodes that its user asked for. How many they were was not changed by every offer."""
    number = offer.get("num_nodes", "")
    return [f"ReqNodeList={offer.get('required_nodes', '')}"] + ([f"NumNodes={number}"] if number else [])


def _update(job: str, words: list[str], timeout_s: float) -> str:
    """Change a job; why that failed, or the empty string."""
    try:
        answer = run(["scontrol", "update", f"jobid={job}", *words], timeout_s)
    except (OSError, subprocess.SubprocessError) as error:
        return clean(error)
    if answer.returncode == 0 or in_part(job, answer.stderr):
        return ""
    return clean(answer.stderr or "scontrol failed")


def for_now(why: str) -> bool:
    """Has Slurm refused a change for the moment alone, and may do the very same when it is asked again?"""
    return any(words in why for words in _FOR_NOW)


_FOR_NOW = (
    # 26.05, at random, of the partition of a job whose user has no association: it reads an errno that is not its own
    "Resource temporarily unavailable",
    "the DB index is being set, try again",  # slurmdbd has not numbered the job yet
)


class Rounds:
    """Jobs, one after the other; then again, after a while, those that Slurm has refused to change for the moment."""

    def __init__(self, todo: Mapping[Any, Any]) -> None:
        self._todo, self._later = dict(todo), dict[Any, Any]()
        self._until_s = time.monotonic() + PATIENCE_S
        self.sentences, self.failed = list[str](), 0
        """What became of the jobs, and of how many it is not what it should be."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        while self._todo:
            yield from self._todo.items()
            self._todo, self._later = self._later, {}
            if self._todo:
                time.sleep(AGAIN_S)

    def again(self, job: Any, entry: Any, why: str) -> bool:
        """Is a job to be tried again, which was refused because of that? Then it comes once more."""
        if not for_now(why) or time.monotonic() >= self._until_s:
            return False
        self._later[job] = entry
        return True

    def fail(self, sentence: str) -> None:
        """Something stays as it is that should not."""
        self.sentences.append(sentence)
        self.failed += 1

    def close(self, path: Path, now_s: float, what: str, job: str, why: str) -> None:
        """An offer is over, and noted so in the journal."""
        self.sentences.append(f"{job}: {why}")
        _note(path, what, now_s, job)


def in_part(job: str, complaint: str) -> bool:
    """Has scontrol changed those tasks of an array that wait, and complained only of others that they do not wait?

    It then fails, with a line for each part of the array: `6_[0-3]: Job is no longer pending execution`. Of the others
    it says `No error`, or nothing at all (since 24.11): an array of which no task waits looks the same, and has
    nothing that could be changed. A single task (`6_3`) is changed or not.
    """
    parts = [line.partition(": ") for line in complaint.splitlines() if line.strip()]
    return (
        bool(parts)
        and all(_TASKS.fullmatch(tasks) and why.strip() in _HARMLESS for tasks, _, why in parts)
        and ("_" not in job or any(why.strip() == "No error" for _, _, why in parts))
    )


_TASKS = re.compile(r"\d+_?\S*", re.ASCII)
_HARMLESS = (
    "No error",
    "Job is no longer pending execution",
    "Job has already finished",
    "Job/step already completing or completed",
)


FIXED = {
    "LC_ALL": "C.UTF-8",
    "SLURM_TIME_FORMAT": "%s",
    # begin times are written in it: no hour is there twice
    "TZ": "UTC0",
    # a list of tasks that is cut short cannot be counted
    "SLURM_BITSTR_LEN": "4096",
}
OURS_ALONE = ("SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_", "SCANCEL_", "SLURM_CLUSTERS")
"""Variables that begin so change what a command does or writes."""


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a Slurm command: `given` (or ours), without the settings that change what it writes."""
    all_of_it = os.environ if given is None else given
    return {key: value for key, value in all_of_it.items() if not key.startswith(OURS_ALONE)} | FIXED


def run(argv: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 (an argv list, no shell)
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            env=environment(),
            check=False,
        )
    except ValueError as error:  # a zero byte, or half a character: no command can be given that
        raise subprocess.SubprocessError(f"its line in the journal is broken ({error})") from None


def _note(path: Path, what: str, now_s: float, job: str, **facts: str) -> None:
    """Close an offer or a change in the journal; one that stays open is looked at again."""
    event = {"what": what, "time_s": now_s, "job": job, **facts, "by": "asad-undo"}
    with contextlib.suppress(OSError), _locked(path.parent / LOCK):
        append(path, event)


def append(path: Path, event: dict[str, Any]) -> None:
    """A line more, on the disk when this returns. Raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(event) + "\n")  # a line that was cut short must not swallow this one
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


def clean(text: object) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(text)).strip()[:300]


def configured(path: Path) -> tuple[Path, Path, str]:
    """`[daemon] state_dir` of asad.toml and `[slurm] journal_dir`, or the defaults, and what is wrong with the file.

    Of a file that is no TOML any more the lines themselves are looked for: the daemon that died may have read it
    before.
    """
    why = ""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return STATE_DIR, STATE_DIR, ""
    except OSError as error:
        return STATE_DIR, STATE_DIR, f"{path} cannot be read ({error.strerror}); {STATE_DIR} is looked at"
    keys = (("daemon", "state_dir"), ("slurm", "journal_dir"))
    try:
        plain = tomllib.loads(text)
        found = [plain.get(table, {}).get(key, "") for table, key in keys]
    except (ValueError, AttributeError, RecursionError) as error:
        lines = [
            re.search(
                rf"^[ \t]*\[{table}\][^\[]*?^[ \t]*{key}[ \t]*=[ \t]*[\"']([^\"'\n]+)", text, re.MULTILINE
            )
            for table, key in keys
        ]
        found = [line[1] if line else "" for line in lines]
        why = f"{path} is not TOML ({error}); {found[0] or STATE_DIR} is looked at"
    absolute = [Path(one) if isinstance(one, str) and one.startswith("/") else None for one in found]
    state_dir = absolute[0] or STATE_DIR
    return state_dir, absolute[1] or state_dir, why


def arguments() -> argparse.ArgumentParser:
    """What `asad-undo` can be given."""
    parser = argparse.ArgumentParser(
        prog="asad-undo",
        description="Take back every offer of asad that its job has not taken, what it changed of waiting jobs, "
        "and what its other plugins hold (jobs that wait for Mesos).",
    )
    parser.add_argument(
        "--config", type=Path, default=CONFIG, help="where the folders are read (default %(default)s)"
    )
    parser.add_argument(
        "--state-dir", type=Path, help="folder of offers.journal, instead of the configured one"
    )
    parser.add_argument(
        "--older-than",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="leave younger offers alone, and changes while the daemon has looked since then (default 0)",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """`asad-undo [--config FILE | --state-dir DIR] [--older-than SECONDS]`: 0 if nothing is left that had to be taken
    back, else 1."""
    chosen = arguments().parse_args(argv)
    if os.environ.get("EXIT_STATUS") == SUPERSEDED:
        print("another daemon has taken over, and stands behind what is offered: nothing is taken back")
        return 0
    folder = chosen.state_dir
    if chosen.state_dir is None:
        chosen.state_dir, folder, why = configured(chosen.config)
        if why:
            print(f"asad-undo: {clean(why)}", file=sys.stderr)
    path, now_s = folder / JOURNAL, time.time()
    try:
        for place in (folder, chosen.state_dir):
            if place.exists() and (why := exposed(place)):
                raise OSError(why)
        sentences, failed = undo(path, older_than_s=chosen.older_than, now_s=now_s)
        for step, place in ((undo_changes, path), (undo_others, chosen.state_dir)):
            more, left = step(place, older_than_s=chosen.older_than, now_s=now_s)
            sentences, failed = sentences + more, failed + left
    except OSError as error:
        print(f"asad-undo: {clean(error)}; another folder is given by --state-dir", file=sys.stderr)
        return 1
    for sentence in sentences:
        print(clean(sentence))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
