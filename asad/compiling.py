"""`njit` as asad uses it: kept on disk, and compiled anew when anything changes that it was compiled from.

numba finds again what it has kept by the file of the function alone. What the function calls in other files is compiled
into it, and so are the constants that it takes from there: after an upgrade that changed nothing but those, old machine
code would decide, and look into tables by what their columns were. Here both belong to the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

Function = TypeVar("Function", bound=Callable[..., Any])
CONSTANTS = (bool, int, float, str, tuple, np.generic, np.dtype, np.ndarray)


@overload
def compiled(function: Function) -> Function: ...


@overload
def compiled(**options: Any) -> Callable[[Function], Function]: ...


def compiled(function: Any = None, **options: Any) -> Any:
    """A decorator: `numba.njit(cache=True)`, with other options of it if need be."""
    if function is None:
        return partial(compiled, **options)
    made = njit(**options)(function)
    made._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return made


def borrowing(function: Function) -> Function:
    """A decorator for functions that allocate no array and return none: they borrow their caller's.

    Otherwise each call counts the references to every array of its arguments up and down again, in atomic steps of
    5 ns. numba refuses to compile what would allocate here.
    """
    return compiled(_nrt=False)(function)


def allocating(function: Function) -> Function:
    """A decorator for functions that do allocate, and are called by some that borrow: else they would inherit that."""
    return compiled(_nrt=True)(function)


def inlined(function: Function) -> Function:
    """A decorator for the steps of one long function: they borrow, and become part of their caller.

    A call hands over every array of a tuple in seven words: some steps are done sooner than that.
    """
    return compiled(_nrt=False, forceinline=True)(function)


class _Cache(FunctionCache):
    """numba's cache of one function; its key tells what of other files is compiled into it, too."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        key = super()._index_key(sig, codegen)  # type: ignore[no-untyped-call]
        return (*key, sources(self._py_func))


def sources(function: Callable[..., Any]) -> str:
    """A digest of the files of all compiled functions that `function` reaches, and of the constants they name."""
    reached, files, constants = [function], set(), set()
    for one in reached:  # it grows
        files.add(one.__code__.co_filename)
        for name, value in _named(one):
            if isinstance(value, Dispatcher):
                if value.py_func not in reached:
                    reached.append(value.py_func)
            elif isinstance(value, CONSTANTS):
                constants.add(f"{one.__module__}.{name} = {_told(value)}")
            elif hasattr(value, "_fields"):  # a class of named tuples
                constants.add(f"{one.__module__}.{name} = {value._fields}")
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(Path(file).read_bytes())
    digest.update("\n".join(sorted(constants)).encode())
    return digest.hexdigest()


def _named(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What the names in the code of a function stand for, globally or in one of our modules."""
    names = function.__code__.co_names
    for name in names:
        value = function.__globals__.get(name)
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.startswith("asad."):
            yield from ((f"{name}.{other}", getattr(value, other, None)) for other in names)


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):  # of a long one repr shows the ends alone
        return f"{value.dtype} {value.shape} {value.tobytes()!r}"
    return repr(value)
