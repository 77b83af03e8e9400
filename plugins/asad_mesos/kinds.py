"""Are the columns of a record that was read of the kinds that they are annotated with? Journals come from disks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

MOST = 2**53
"""No number of a journal is larger."""


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) < MOST


def _number(value: Any) -> bool:
    """What is not known is NaN, and what never comes infinite."""
    return _real(value) or (type(value) is float and not math.isfinite(value))


def _real(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MOST


def _text(value: Any) -> bool:
    return type(value) is str


def _table(key: Callable[[Any], bool], value: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda table: type(table) is dict and all(key(one) and value(two) for one, two in table.items())


CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "int": _whole,
    "float": _number,
    "str": _text,
    "bool": lambda value: type(value) is bool,
    "list[int]": lambda value: type(value) is list and all(map(_whole, value)),
    "set[int]": lambda value: type(value) is set and all(map(_whole, value)),
    "dict[int, int]": _table(_whole, _whole),
    "dict[int, float]": _table(_whole, _real),
    "dict[str, str]": _table(_text, _text),
    "list[dict[str, Any]]": lambda value: type(value) is list and all(type(one) is dict for one in value),
}
"""By annotation; columns of other kinds are not looked at."""


def require_kinds(record: Any) -> None:
    """Raises TypeError that names the column of a dataclass which is of another kind."""
    for column in fields(record):
        check = CHECKS.get(str(column.type))
        if check is not None and not check(getattr(record, column.name)):
            raise TypeError(f"{column.name} is no {column.type}")
