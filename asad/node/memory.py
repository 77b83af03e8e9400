"""How much of its memory a job cannot do without: all but clean page cache that nobody has mapped.

The kernel drops such pages for no more than having them read again. Were they counted, a job that reads files would
push every limit up before itself, and be held by none.
"""

from __future__ import annotations

CACHE = frozenset(("inactive_file", "active_file"))
KEPT = frozenset(("file_mapped", "file_dirty", "file_writeback"))
"""Parts of the page cache that a job waits for: its programs, and what is still to be written."""
IN_V1 = {
    "total_inactive_file": "inactive_file",
    "total_active_file": "active_file",
    "total_mapped_file": "file_mapped",
    "total_dirty": "file_dirty",
    "total_writeback": "file_writeback",
}


def needed_bytes(charged: float, stat: str, version: int) -> float:
    """Of `charged` bytes (`memory.current`, in v1 `memory.usage_in_bytes`) those that the job needs.

    `stat` is the text of its `memory.stat`; without one all are. In [0, charged]; NaN of NaN.
    """
    droppable = 0.0
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if version == 1:
            name = IN_V1.get(name, "")
        if name in CACHE and value.isdecimal():
            droppable += int(value)
        elif name in KEPT and value.isdecimal():
            droppable -= int(value)
    return charged - min(max(droppable, 0.0), charged)  # the kernel counts both a little apart


__all__ = ["needed_bytes"]
