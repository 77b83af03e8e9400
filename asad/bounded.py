"""Text of others as plain data, within bounds: a few kilobytes must neither take minutes nor all memory.

What stands in a file that is read here may be wrong in any way. It is a ValueError then, and nothing else.
"""

from __future__ import annotations

import lzma
import re
import struct
import tokenize
import tomllib
import zipfile
import zlib
from typing import Any

MOST_NUMBER = 1e300
"""No number is larger: JSON and TOML have integers that no float can hold."""
MOST_PARTS = 100
"""Parts of a dotted key; what tomllib takes for one grows with the square of their number."""
BROKEN_ARCHIVE = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    EOFError,
    OSError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    tokenize.TokenError,
    struct.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What comes of reading an archive of arrays that is broken, encrypted, or of a kind that nobody writes."""
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.){0,100}+"|'[^'\n]{0,100}+')"""
"""Part of a key. Of longer ones no text has many, and to look at every quote for its end would take as long."""
_LONG_KEY = re.compile(rf"(?<![\w.-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MOST_PARTS}}}")
"""A key of more than `MOST_PARTS` parts, wherever it may begin: which quotes open and which close is not known."""


def shown(text: str, most: int = 60) -> str:
    """Text of others as it may be shown: short, and without what steers a terminal or cannot be written."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(char if char.isprintable() else "?" for char in cut)


def printable(text: str) -> str:
    """Text of others for a terminal: what could steer it is spelt out (controls, direction marks, lone surrogates)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def toml_of(text: str) -> dict[str, Any]:
    """What a TOML document holds. Raises ValueError if it is none, or nested too deeply."""
    if any(line.count(".") >= MOST_PARTS and _LONG_KEY.search(line) for line in text.split("\n")):
        raise ValueError(f"a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
