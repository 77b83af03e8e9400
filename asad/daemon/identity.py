"""What a daemon keeps in its state folder besides a journal: who it is, its lock, and that it is paused.

Node actors obey the newest daemon of a cluster alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from asad.errors import AsadError
from asad.node.kernel_files import write_durably

log = logging.getLogger(__name__)

FILE = "daemon.json"
PAUSED = "paused"


def take_identity(state_dir: Path, now_s: float) -> tuple[str, int]:
    """Name and epoch for this start, written to `state_dir` before they are used.

    The name is drawn once for each state folder. The epoch is the time (s), and more than at any start before, however
    the clock was set since. Raises OSError if it cannot be written.
    """
    path = state_dir / FILE
    name, epoch = "", 0
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        plain = json.loads(path.read_text(encoding="utf-8"))
        known, last = plain["daemon"], plain["epoch"]
        if isinstance(known, str) and known.isalnum() and len(known) <= 64 and type(last) is int:
            name, epoch = known, last
    name, epoch = name or secrets.token_hex(8), max(epoch + 1, int(now_s))
    write_durably(path, json.dumps({"daemon": name, "epoch": epoch}))
    return name, epoch


@contextlib.contextmanager
def only_one(state_dir: Path) -> Iterator[None]:
    """Hold the lock of `state_dir`. Raises AsadError that says who does, if another daemon runs, and where others may
    write there."""
    path = state_dir / "asad.lock"
    try:
        state_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        if state_dir.stat().st_mode & stat.S_IWOTH:
            raise AsadError(
                f"{state_dir}: others may write there, and so put lock, journal and store of theirs into the place of "
                "ours; chmod o-w it and look what is in it, or choose another [daemon] state_dir"
            )
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise AsadError(
            f"{path}: {error.strerror}; [daemon] state_dir must be a folder that this user can write"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read(100).strip()
            raise AsadError(
                f"{path}: another daemon runs here ({holder if holder.isprintable() else '?'}); "
                "stop it, or give this one a state_dir of its own"
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()}\n")
        file.flush()
        yield


def is_paused(state_dir: Path) -> bool:
    """Was the daemon of this folder paused when it ended?"""
    return (state_dir / PAUSED).exists()


def keep_pause(state_dir: Path, by: str) -> None:
    """Have a restart know that it is paused `by` a user; of nobody, that it is not."""
    path = state_dir / PAUSED
    try:
        if by:
            path.write_text(f"by {by}\n", encoding="utf-8")
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s: %s; a restart will not know of it", path, error.strerror)
