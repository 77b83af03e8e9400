"""The bytes of a log as plain UTF-8: compression and encoding follow from the first bytes, never from the name."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from asad.errors import LogError

BLOCK_BYTES = 1 << 18
"""Lines are decoded so many bytes at a time: few enough to stay close to the processor."""
MOST_LAYERS = 3
"""Of compression, one around the other."""

SKIPPABLE = b"\x2a\x4d\x18"
"""What a frame of zstd that holds no data begins with, after a byte of 0x50 to 0x5f; its length follows."""
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
NOT_READ = (
    (b"PK\x03\x04", 0, "a zip archive", "give what is in it (unzip -p)"),
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7z archive", "give what is in it (7z x -so)"),
    (b"\x04\x22\x4d\x18", 0, "compressed by lz4", "give what is in it (lz4cat)"),
    (b"\x1f\x9d", 0, "compressed by compress", "give what is in it (zcat)"),
    (b"LZIP", 0, "compressed by lzip", "give what is in it (lzip -dc)"),
    (b"ustar", 257, "a tar archive", "give what is in it (tar -xOf)"),
    (b"PAR1", 0, "a Parquet file", "write it as text: of a log, CSV with sacct's column names"),
    (
        b"SQLite format 3\0",
        0,
        "an SQLite database",
        "write it as text: of a log, CSV with sacct's column names",
    ),
    (b"\x89HDF\r\n\x1a\n", 0, "an HDF5 file", "write it as text: of a log, CSV with sacct's column names"),
)
"""First bytes, where they stand, what such a file is, and the way to one that is read."""


def plain_bytes(name: str, path: str, most_bytes: int = -1) -> bytes:
    """The content of a file (`-`: standard input) as UTF-8 without a byte-order mark, uncompressed; of a larger file
    the first `most_bytes`.

    Raises LogError if it cannot be read, is broken, or is of a kind that is not read.
    """
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(most_bytes)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(most_bytes)
    except OSError as error:
        raise LogError(
            name, None, None, error.strerror or str(error), "check the path and its permissions"
        ) from error
    for _ in range(MOST_LAYERS):
        for first, kind, undo in COMPRESSED:
            if raw.startswith(first):
                raw = _undone(name, raw, kind, undo)
                break
        else:
            break
    for first, at, what, way in NOT_READ:
        if raw.startswith(first, at):
            raise LogError(name, None, None, f"this is {what}", way)
    return utf_8(raw)


def _undone(name: str, raw: bytes, kind: str, undo: Callable[[bytes], bytes]) -> bytes:
    try:
        return undo(raw)
    except ImportError:
        problem = f"it is compressed by {kind}, which no library here can undo"
        way = "install Python's zstandard, or give what is in it (zstdcat)"
        raise LogError(name, None, None, problem, way) from None
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError) as error:
        problem = f"its {kind} data are broken ({error})"
        raise LogError(name, None, None, problem, "copy the file again") from error


def _zstd(raw: bytes) -> bytes:
    """Raises ImportError where no library for it is installed."""
    try:
        undo: Callable[[bytes], bytes] = import_module(
            "compression.zstd"
        ).decompress  # of Python 3.14 and later
    except ImportError:
        zstandard = import_module("zstandard")
        parts = []
        try:
            while raw:  # frame after frame
                if raw[1:4] == SKIPPABLE and raw[0] >> 4 == 5:  # of no data, as pzstd writes them
                    raw = raw[8 + int.from_bytes(raw[4:8], "little") :]
                    continue
                frame = zstandard.ZstdDecompressor().decompressobj()
                parts.append(frame.decompress(raw))
                if not frame.eof:
                    raise ValueError("cut off")
                raw = frame.unused_data
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        return b"".join(parts)
    return undo(raw)


COMPRESSED: tuple[tuple[bytes, str, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", "gzip", gzip.decompress),
    (b"\xfd7zXZ\x00", "xz", lzma.decompress),
    (b"BZh", "bzip2", bz2.decompress),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
    *((bytes([0x50 + kind]) + SKIPPABLE, "zstd", _zstd) for kind in range(16)),
    (b"\x5d\x00\x00", "lzma", lzma.decompress),
    (b"\x78\x9c", "zlib", zlib.decompress),
)


def utf_8(raw: bytes) -> bytes:
    """The same text in UTF-8, if it is in UTF-16 or UTF-32; byte-order marks go."""
    encoding = next((name for mark, name in BYTE_ORDER_MARKS if raw.startswith(mark)), None)
    if encoding is None and raw[:2] and b"\0" in raw[:2]:
        # UTF-16 without a mark: every other byte of plain letters is 0
        encoding = "utf-16-be" if raw[0] == 0 else "utf-16-le"
        if raw[(raw[0] != 0) : 200 : 2].strip(b"\0"):
            encoding = None
    if encoding is not None:
        raw = raw.decode(encoding, "replace").encode("utf-8", "replace")
    return raw.removeprefix(codecs.BOM_UTF8)


def line_blocks(raw: bytes) -> Iterator[list[str]]:
    """The lines of a text, some thousands at a time, without their ends (LF, CR LF or CR).

    A name may be any bytes: what is not UTF-8 is replaced. Logs that were joined keep a byte-order mark at the start of
    lines: it goes.
    """
    first = 0
    while first < len(raw):
        stop = raw.find(b"\n", first + BLOCK_BYTES)
        stop = len(raw) if stop < 0 else stop + 1
        text = raw[first:stop].decode("utf-8", "replace")
        first = stop
        if "\r" in text:
            text = text.replace("\r\n", "\n")
            if "\n" not in text[:-1]:  # lines that end as on an old Macintosh; else it is a part of a name
                text = text.replace("\r", "\n")
        lines = text.removesuffix("\n").split("\n")
        if "\ufeff" in text:
            lines = [line.removeprefix("\ufeff") for line in lines]
        yield lines
