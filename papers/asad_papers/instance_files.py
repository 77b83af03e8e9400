"""Files in which instances of benchmarks come: archives of arrays (`.npz`), and JSON whose values are asked by key."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asad.bounded import BROKEN_ARCHIVE, MOST_NUMBER
from asad.errors import ConfigError, UsageError
from asad.model import Floats


def read_archive(path: Path, keys: Collection[str], page: str) -> dict[str, NDArray[Any]]:
    """Those of `keys` that the archive holds, none pickled. Raises ConfigError, which names the `page` of the docs."""
    try:
        with path.open("rb") as file:  # by ourselves: numpy leaves a broken one open
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ConfigError(
                    f"{path}: is one array, not an archive of several; write it with numpy.savez"
                )
            with archive:
                return {key: archive[key] for key in archive.files if key in keys}
    except BROKEN_ARCHIVE as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read as .npz ({reason}); see {page} for its keys") from error


class JsonTable:
    """A table of a JSON file. Each method raises ConfigError with the file, the place in it and the remedy."""

    def __init__(self, path: Path, plain: Any, where: str = "") -> None:
        """`where`: of this table in the file, as `jobs[3].`; empty for the whole."""
        self.path, self.plain, self.where = path, plain, where
        if not isinstance(plain, dict):
            place = where.rstrip(".") or "it"
            raise ConfigError(f"{path}: {place} is not a table; write {{…}}")

    @classmethod
    def of_file(cls, path: Path, page: str) -> JsonTable:
        """A whole file; `page` of the docs describes it."""
        try:
            return cls(path, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{path}: cannot be read as JSON ({reason}); see {page}") from error

    def wrong(self, key: str, problem: str, remedy: str) -> ConfigError:
        """What is wrong with a key."""
        return ConfigError(f"{self.path}: {self.where}{key} {problem}; {remedy}")

    def get(self, key: str) -> Any:
        """Whatever stands there."""
        if key not in self.plain:
            raise self.wrong(key, "is missing", "add it")
        return self.plain[key]

    def number(self, key: str) -> float:
        """A number, 0 or more."""
        if not is_number(value := self.get(key)):
            raise self.wrong(key, f"is {short(value)}", "write a number, 0 or more")
        return float(value)

    def count(self, key: str, least: int) -> int:
        """A whole number, at least that."""
        value = self.get(key)
        if not is_count(value, least):
            raise self.wrong(key, f"is {short(value)}", f"write a whole number, {least} or more")
        return int(value)

    def rows(self, key: str, problem: str, remedy: str, most: float = float("inf")) -> list[Any]:
        """A list of at most so many."""
        rows = self.get(key)
        if not isinstance(rows, list) or len(rows) > most:
            raise self.wrong(key, problem, remedy)
        return rows

    def tables(self, key: str, problem: str, remedy: str, most: float = float("inf")) -> list[JsonTable]:
        """A list of tables."""
        rows = self.rows(key, problem, remedy, most)
        return [JsonTable(self.path, row, f"{self.where}{key}[{at}].") for at, row in enumerate(rows)]

    def numbers(self, key: str, values: Any, length: int) -> Floats:
        """(length,) of a list of so many numbers, each 0 or more, that stands at `key`."""
        if not isinstance(values, list) or len(values) != length or not all(map(is_number, values)):
            raise self.wrong(key, f"is {short(values)}", f"write {length} numbers, each 0 or more")
        return np.array(values, np.float64)

    def made(self, make: Callable[..., Any], *values: Any) -> Any:
        """Whatever `make` makes of the values, with the place in front of what it finds wrong."""
        try:
            return make(*values)
        except UsageError as error:
            place = f"{self.where.rstrip('.')}: " if self.where else ""
            raise ConfigError(f"{self.path}: {place}{error}") from error


def is_number(value: object) -> bool:
    """A finite number, 0 or more."""
    return type(value) in (int, float) and 0 <= value <= MOST_NUMBER  # type: ignore[operator]


def is_count(value: object, least: int) -> bool:
    """A whole number, at least that."""
    return type(value) is int and least <= value < 2**30


def short(value: Any) -> str:
    """As JSON, its beginning."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
