"""Journals: a line is on the disk before that begins of which it is. Both functions raise OSError where it is not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def append_line(path: Path, line: str, mode: int) -> None:
    """Another line, on the disk when this returns; `mode` is that of a file that was not there.

    A line before it that a full disk cut short does not swallow this one.
    """
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        size = os.fstat(handle).st_size
        whole = size == 0 or os.pread(handle, 1, size - 1) == b"\n"
        data = f"{line}\n" if whole else f"\n{line}\n"
        if os.write(handle, data.encode()) != len(data.encode()):
            raise OSError("written in part")
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_lines(path: Path, lines: Iterable[bytes], mode: int | None = None) -> int:
    """These lines alone from now on, and their size in bytes; if it fails, the old ones are there as they were."""
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        for line in lines:
            file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return path.stat().st_size
