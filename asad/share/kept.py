"""Arrays handed to compiled code once: a call with a tuple of a hundred arrays costs more than many a kernel.

numba looks at the type of every array of a tuple at every call, and takes a reference to each (0.2 µs an array, 13 µs
for a random generator). `keep` does that once; what it returns is passed on in half a microsecond, and compiled code
finds the very same arrays in its `all`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.experimental import structref

Function = TypeVar("Function", bound=Callable[..., Any])


@structref.register
class _KeptType(types.StructRef):
    """numba's side of `Kept`."""


class Kept(structref.StructRefProxy):
    """A tuple on the heap of compiled code. Its arrays live as long as it does."""

    all: Any
    """The tuple; for compiled code alone."""


structref.define_proxy(Kept, _KeptType, ["all"])  # type: ignore[no-untyped-call]


def keep(*values: Any) -> Kept:
    """`values` for compiled code, which unpacks them: `view, memo = kept.all`."""
    return Kept(values)  # type: ignore[no-untyped-call]


_WITHOUT_COUNTS: dict[str, Any] = {"_nrt": False}
_WITH_COUNTS: dict[str, Any] = {"_nrt": True}


def borrowing(function: Function) -> Function:
    """`njit` for functions that allocate no array and return none: they borrow their caller's.

    Otherwise each call counts the references to every array of its arguments up and down again, in atomic steps of
    5 ns. numba refuses to compile what would allocate here.
    """
    return cast(Function, njit(cache=True, **_WITHOUT_COUNTS)(function))


def allocating(function: Function) -> Function:
    """`njit` for functions that do allocate, and are called by some that borrow: else they would inherit that."""
    return cast(Function, njit(cache=True, **_WITH_COUNTS)(function))
