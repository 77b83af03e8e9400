"""Arrays handed to compiled code once: a call with a tuple of a hundred arrays costs more than many a kernel.

numba looks at the type of every array of a tuple at every call, and takes a reference to each (0.2 µs an array, 13 µs
for a random generator). `bind` does that once; what it returns is passed on in half a microsecond, and compiled code
finds the very same arrays in its `all`.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.experimental import structref

from asad.compiling import compiled


@structref.register
class _JitArgsType(types.StructRef):
    """numba's side of `JitArgs`."""


class JitArgs(structref.StructRefProxy):
    """A tuple on the heap of compiled code. Its arrays live as long as it does."""

    all: Any
    """The tuple; for compiled code alone."""


structref.define_proxy(JitArgs, _JitArgsType, ["all"])  # type: ignore[no-untyped-call]


def bind(*values: Any) -> JitArgs:
    """`values` for compiled code, which unpacks them: `view, memo = args.all`."""
    return _bind(values)


@compiled
def _bind(values: Any) -> Any:
    """In compiled code, which is kept on disk: what Python calls here is compiled anew by every process."""
    return JitArgs(values)  # type: ignore[no-untyped-call]
