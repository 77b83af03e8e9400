"""Modules that moved into another package, and answer to their old name for one release."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def moved(old: str, new: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose contents are those of `new`: it warns, and hands them out."""

    def of_new(name: str) -> Any:
        if name.startswith("__"):  # what the import machinery asks for is nobody's use of it
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        warnings.warn(f"{old} is {new} now, of the package asad-hpc-papers", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(new), name)

    return of_new
