"""What is kept as text, in such a form that every database takes it: names from users, and plain data as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_text(value: Any, *, canonical: bool = False) -> str:
    """JSON of plain data; what JSON does not have (NaN, infinities) becomes null.

    `canonical` sorts the keys, so that equal data give equal text.
    """
    encode = _CANONICAL if canonical else _ENCODE
    try:
        return encode(value)
    except ValueError:
        return encode(_finite(value))


def _plain(value: Any) -> Any:
    """numpy's scalars and arrays, and mappings that are no dicts, as JSON's own."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    raise TypeError(f"{type(value).__name__} is no plain data; a cause holds numbers, text, lists and dicts")


_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain).encode
_CANONICAL = json.JSONEncoder(allow_nan=False, sort_keys=True, separators=(",", ":"), default=_plain).encode


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return value


def object_of(encoded: str) -> dict[str, Any] | None:
    """The JSON object in a text, None if it holds none. Numbers that no float can hold are infinite."""
    try:
        found = json.loads(encoded, parse_int=_bounded)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _bounded(digits: str) -> int | float:
    return int(digits) if len(digits) < 19 else float(digits)


def text(value: Any) -> str:
    """Text that every database takes: lone surrogates and NUL, which not all do, are spelt out."""
    found = str(value)
    if found.isprintable():
        return found
    return found.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
