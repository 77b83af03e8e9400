"""`njit` as asad uses it: kept on disk, and compiled anew when anything changes that it was compiled from.

numba finds again what it has kept by the file of the function alone. What the function calls in other files is compiled
into it, and so are the constants that it takes from there: after an upgrade that changed nothing but those, old machine
code would decide, and look into tables by what their columns were. Here both belong to the key.

A function is compiled twice if both Python and compiled code call it: as an entry, with all that it calls linked in,
optimised and kept on disk, and as a part of others, which is neither. So the first call of another entry compiles the
parts anew that it shares with those on disk; within one process they are shared.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar, overload

import numpy as np
from numba.core import event, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

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
    return _Entry(function, targetoptions={"nopython": True, "boundscheck": None, **options})


def borrowing(function: Function) -> Function:
    """A decorator for functions that allocate no array and return none: they borrow their caller's.

    Otherwise each call counts the references to every array of its arguments up and down again, in atomic steps of
    5 ns. numba refuses to compile what would allocate here.
    """
    return compiled(_nrt=False)(function)


def allocating(function: Function) -> Function:
    """A decorator for functions that do allocate, and are called by some that borrow: else they would inherit that."""
    return compiled(_nrt=True)(function)


def chosen_by_type(*choices: Callable[..., Any]) -> Callable[[Function], Function]:
    """A decorator for a function that numba's `overload` replaces by one of the `choices`, by the types of arguments.

    What compiled code calls by it belongs to its key in the cache.
    """

    def mark(function: Function) -> Function:
        function.choices = choices  # type: ignore[attr-defined]
        return function

    return mark


class _Entry(CPUDispatcher):
    """A function as Python calls it. Compiled code that calls it calls its `part`."""

    def __init__(self, py_func: Callable[..., Any], **options: Any) -> None:
        super().__init__(py_func, pipeline_class=_Compiler, **options)
        self._cache = _Cache(py_func)
        self.part = _Part(py_func, pipeline_class=_PartCompiler, **options)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        plain = {name: _plain(kind) for name, kind in kws.items()}
        return self.part.get_call_template(tuple(_plain(kind) for kind in args), plain)

    def get_overload(self, sig: Any) -> Any:
        return self.part.get_overload(sig)

    def add_overload(self, cres: Any) -> None:
        super().add_overload(cres)
        for (
            environment
        ) in cres._find_referenced_environments():  # those of its parts: this code alone has them
            cres.codegen.set_env(environment.env_name, environment)


class _Part(CPUDispatcher):
    """A function as compiled code calls it: it becomes part of what calls it, and is nothing by itself.

    numba would have wrappers for Python and C around each, and machine code, with all that it calls in turn linked
    and optimised into it once more: half of the time that a scheduler takes to compile.
    """

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres


class _Listener(event.Listener):
    """Counts the functions of ours that are compiled."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self.report, self.done, self.all = report, 0, 0

    def on_start(self, event: event.Event) -> None:
        made = event.data["dispatcher"]
        if isinstance(made, _Entry):
            self.all = self.done + len(_reached(made.py_func))
            self.report(self.done, self.all)

    def on_end(self, event: event.Event) -> None:
        made = event.data["dispatcher"]
        if isinstance(made, _Entry | _Part):
            self.done = self.all if isinstance(made, _Entry) else min(self.done + 1, self.all)
            self.report(self.done, self.all)


def watching(report: Callable[[int, int], None]) -> AbstractContextManager[Any]:
    """While it lasts, `report` hears after each function that is compiled how many are, and of how many by now.

    How many functions Python calls will yet want compiling nobody knows: so the second number grows. It hears nothing
    of what is found on disk.
    """
    return event.install_listener("numba:compile", _Listener(report))


def _plain(kind: types.Type) -> types.Type:
    """What an argument is passed as: a part is compiled once for every bool and integer."""
    kind = types.unliteral(kind)
    return types.int64 if kind in types.signed_domain else kind


class _Flags(Flags):
    """What a function is compiled with; numba looks up every operator by it, so the same are one object."""

    __slots__ = ("_hash",)
    _hash: int
    _known: ClassVar[dict[str, _Flags]] = {}

    def copy(self) -> _Flags:
        """What holds while the function is compiled; nobody changes it."""
        same = self._known.setdefault(self.summary(), _Flags(self))
        same._hash = Flags.__hash__(same)
        return same

    def __hash__(self) -> int:
        return self._hash if hasattr(self, "_hash") else super().__hash__()


class _Compiler(Compiler):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.flags = _Flags(self.state.flags)


class _PartCompiler(_Compiler):
    def define_pipelines(self) -> list[PassManager]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_LowerPart if one is NativeLowering else one, name) for one, name in passes.passes]
        passes.finalize()
        return [passes]


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(NativeLowering):
    """Lowers to LLVM's language, and leaves it at that."""

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        flags = state.flags
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        state.library = library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        key = object()  # what callers find it by
        state["cr"] = state["cr"]._replace(cfunc=key)
        state.targetctx.insert_user_function(key, state["cr"].fndesc, [library, *library._linking_libraries])
        return True


class _PartLibrary(JITCodeLibrary):
    """The code of one part without what it calls: who calls it links both."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """That is done for all at once."""
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalize_dynamic_globals()
        self._finalized = True


class _CacheFile(IndexDataCacheFile):
    """What is kept of one function on disk."""

    def _load_index(self) -> Any:
        """It names the types of arguments, and those of an earlier asad may be gone: then nothing is kept."""
        try:
            return super()._load_index()
        except (AttributeError, ImportError):
            return {}


class _Cache(FunctionCache):
    """numba's cache of one function; its key says what of other files is compiled into it, too."""

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        key = super()._index_key(sig, codegen)
        return (*key, sources(self._py_func))


def sources(function: Callable[..., Any]) -> str:
    """A digest of the files of all compiled functions that `function` reaches, and of the constants they name."""
    files, constants = set(), set()
    for one in _reached(function):
        files.add(one.__code__.co_filename)
        for name, value in _named(one):
            if isinstance(value, CONSTANTS):
                constants.add(f"{one.__module__}.{name} = {_described(value)}")
            elif hasattr(value, "_fields"):  # a class of named tuples
                constants.add(f"{one.__module__}.{name} = {value._fields}")
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(Path(file).read_bytes())
    digest.update("\n".join(sorted(constants)).encode())
    return digest.hexdigest()


def _reached(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The function, and all compiled ones that it calls, or that these call."""
    reached = [function]
    for one in reached:  # it grows
        for _, value in _named(one):
            chosen = getattr(value, "choices", ()) if inspect.isfunction(value) else ()
            for other in (value, *chosen):
                other = other.py_func if isinstance(other, Dispatcher) else other if chosen else None
                if other is not None and other not in reached:
                    reached.append(other)
    return reached


def _named(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What the names in the code of a function stand for, globally or in one of our modules."""
    names = function.__code__.co_names
    for name in names:
        value = function.__globals__.get(name)
        yield name, value
        if isinstance(value, ModuleType) and value.__name__.startswith("asad."):
            yield from ((f"{name}.{other}", getattr(value, other, None)) for other in names)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):  # of a long one repr shows the ends alone
        return f"{value.dtype} {value.shape} {value.tobytes()!r}"
    return repr(value)
