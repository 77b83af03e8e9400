"""What a job says of its progress: a line in a file of its own.

The actor makes `/run/asad-progress/<job>` for every job that it sees and gives it to the job's user; so nobody can
take another's place, and a job can write without asking anybody. `asactl progress 40/100` inside the job writes there.

What jobs write is memory of the node, not of the job. So the folder is a small file system of its own
(`run-asad\\x2dprogress.mount`), and nobody keeps the others from it for long: a file has its page from the start, one
that holds more than a line is emptied within a second, and so is one that is held open after its job has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from asad.errors import ClusterError, UsageError

FOLDER = Path("/run/asad-progress")
VARIABLE = "ASAD_PROGRESS_DIR"
"""Names another folder, for actor and jobs alike."""
FILE_BYTES = 64
"""A file that is longer is not believed, and emptied."""
BLOCK_BYTES = 512
"""In such blocks stat counts how much a file takes."""
ENDED = ".ended-"
"""So the file of a job that has ended is called while somebody holds it open, with its user and inode. No job's file
begins with a dot."""
MOST_HELD = 16
"""A user who holds so many files of ended jobs open gets no other: inodes of the small file system are few."""
NUMBER = r"(\d{1,18}(?:\.\d{1,18})?)"
FORMS = re.compile(rf"{NUMBER}(?:\s*/\s*{NUMBER}|\s*(%))?", re.ASCII)
JOB_ID = re.compile(r"\d{1,18}", re.ASCII)
MESOS_ID = re.compile(r"m\d{1,12}[A-Za-z0-9_.\-]{0,50}", re.ASCII)


def folder_of(environ: Mapping[str, str]) -> Path:
    """Where progress files are."""
    return Path(environ.get(VARIABLE) or FOLDER)


def parse(text: str) -> float:
    """The fraction in `40/100`, `0.4` or `40%`; NaN for anything else and for what is not in [0, 1]."""
    found = FORMS.fullmatch(text.strip(" \t\r\n\0"))
    if found is None:
        return math.nan
    value = float(found[1])
    if found[2] is not None:
        whole = float(found[2])
        value = value / whole if whole > 0 else math.nan
    elif found[3] is not None:
        value /= 100.0
    return value if 0.0 <= value <= 1.0 else math.nan


def write_progress(text: str, environ: Mapping[str, str]) -> None:
    """Say how far the job of `environ` (SLURM_JOB_ID, on Mesos ASAD_JOB_KEY) is: `40/100`, `0.4` or `40%`.

    Raises UsageError for another text or outside of a job, ClusterError where no node actor takes it.
    """
    fraction = parse(text)
    if math.isnan(fraction):
        shown = "".join(c for c in text[:40] if c.isprintable())
        raise UsageError(
            f"progress {shown!r}: write it like 40/100, 0.4 or 40%, from nothing to all of the work"
        )
    job_id = environ.get("ASAD_JOB_KEY") or environ.get("SLURM_JOB_ID", "")
    if JOB_ID.fullmatch(job_id) is None and MESOS_ID.fullmatch(job_id) is None:
        raise UsageError("SLURM_JOB_ID is not set: say the progress of a job inside the job")
    path = folder_of(environ) / job_id
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, f"{fraction:.12f}\n".encode(), 0)  # always as long: one write replaces all
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ClusterError(
            f"{path} is not there: asad-node does not run on this node, or has not seen the job yet; "
            "the job loses nothing, go on without"
        ) from None
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror}; the progress is not reported, go on without") from None


def offer_file(job_id: str, uid: int, folder: Path = FOLDER) -> bool:
    """Make the file of a job and give it to its user; False where that cannot be done (yet). Needs root."""
    path = folder / job_id
    try:
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)  # whatever our umask is
        if len(list(folder.glob(f"{ENDED}{uid}-*"))) >= MOST_HELD:
            return False
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        try:
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_uid == uid:
                return True
        except OSError:
            return False
        remove_file(job_id, folder)  # of an earlier job by this number
        return False  # made anew at the next look
    except OSError:
        return False
    try:
        os.write(descriptor, b"\n")  # its page: who fills the file system later cannot take it away
        os.fchmod(descriptor, 0o644)
        os.fchown(descriptor, uid, -1)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        return False
    finally:
        os.close(descriptor)
    return True


def remove_file(job_id: str, folder: Path = FOLDER) -> None:
    """The job has ended on this node: nothing stays of what it wrote, even where somebody holds the file open."""
    path = folder / job_id
    with contextlib.suppress(OSError):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            path.unlink()
            return
        ended = folder / f"{ENDED}{found.st_uid}-{found.st_ino}"
        path.rename(ended)
        _finish(ended)


def tidy(job_ids: Collection[str], folder: Path = FOLDER) -> None:
    """Empty the files of these jobs that hold more than a line, and remove those of ended jobs that nobody holds any
    more."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(ENDED):
                    _finish(Path(entry.path))
                elif entry.name in job_ids and _is_large(entry.stat(follow_symlinks=False)):
                    _empty(entry.path)


def _is_large(found: os.stat_result) -> bool:
    """Does a file hold more than a line? Its size alone does not show that: space may be taken beyond its end."""
    taken = found.st_blocks * BLOCK_BYTES > found.st_blksize
    return stat.S_ISREG(found.st_mode) and (found.st_size > FILE_BYTES or taken)


def _empty(path: str) -> None:
    """Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _finish(path: Path) -> None:
    """Empty the file of a job that has ended, take it from its user, and remove it unless somebody has it open.

    Once it had no name what is written to it could not be taken away any more. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(PermissionError):  # we are not root: then it is ours already
            os.fchown(descriptor, 0, 0)
        os.fchmod(descriptor, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # granted where nobody else has it open
        except BlockingIOError:
            return
        except OSError:
            pass  # no leases on this file system
        path.unlink()  # closing the file ends the lease
    finally:
        os.close(descriptor)


def read_progress(job_id: str, uid: int, folder: Path = FOLDER) -> float:
    """The progress that a job of `uid` has reported, in [0, 1]; NaN if it reported nothing that can be believed."""
    try:
        descriptor = os.open(f"{folder}/{job_id}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return math.nan
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != uid:
            return math.nan
        if found.st_size > FILE_BYTES:
            os.ftruncate(descriptor, 0)
            return math.nan
        return parse(os.read(descriptor, FILE_BYTES).decode("ascii", "replace"))
    except OSError:
        return math.nan
    finally:
        os.close(descriptor)
