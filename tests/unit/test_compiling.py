"""What is kept of compiled code is used again, unless something has changed that it was compiled from."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.compiling import compiled, watching

CALLER = """
from asad.compiling import compiled
from made_up_callee import WIDTH, inner

@compiled
def outer(x):
    return 100 * inner(x) + WIDTH
"""
CALLEE = """
from asad.compiling import borrowing
from made_up_callees_callee import innermost

WIDTH = 3

@borrowing
def inner(x):
    return innermost(x) + 1
"""
INNERMOST = """
from asad.compiling import compiled

@compiled(error_model="numpy")
def innermost(x):
    return 2 * x
"""
FILES = {"made_up_caller": CALLER, "made_up_callee": CALLEE, "made_up_callees_callee": INNERMOST}


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write three files that call each other, some of them changed, and import the first as a new process would."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # Python distinguishes files by size and whole seconds

    def load(**changed: str) -> Any:
        for name, text in (FILES | changed).items():
            (tmp_path / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("made_up_caller").outer

    yield load
    for name in FILES:
        sys.modules.pop(name, None)


def test_only_a_change_is_compiled_anew_wherever_it_is(caller: Any) -> None:
    assert caller()(1) == 303
    assert caller(made_up_callee=CALLEE.replace("+ 1", "+ 2"))(1) == 403
    assert caller(made_up_callee=CALLEE.replace("WIDTH = 3", "WIDTH = 4"))(1) == 304
    assert caller(made_up_callees_callee=INNERMOST.replace("2 * x", "3 * x"))(1) == 403
    unchanged = caller()
    assert unchanged(1) == 303
    assert sum(unchanged.stats.cache_hits.values()) == 1


def test_who_watches_hears_how_many_functions_are_compiled_and_nothing_of_those_on_disk(caller: Any) -> None:
    heard: list[tuple[int, int]] = []
    with watching(lambda done, all_: heard.append((done, all_))):
        assert caller()(1) == 303
        assert heard == [(0, 3), (1, 3), (2, 3), (3, 3)]
        assert caller()(1) == 303
    assert len(heard) == 4


def test_a_function_is_compiled_once_for_rows_and_flags_of_any_kind() -> None:
    @compiled
    def inner(row: int, on: bool) -> int:
        return row if on else -row

    @compiled
    def outer(rows: Any, on: bool) -> int:
        return inner(rows[0], True) + inner(7, on) + inner(len(rows), False)

    assert outer(np.array([3], np.int32), True) == 3 + 7 - 1
    assert len(inner.part.signatures) == 1
    assert inner(3, False) == -3  # and Python may call it all the same


@pytest.mark.parametrize("renamed", ["class", "module"])
def test_what_was_compiled_for_a_type_that_is_gone_keeps_nobody_from_starting(
    renamed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "made_up_taker.py").write_text(
        "from asad.compiling import compiled\n\n@compiled\ndef take(values):\n    return values[0]\n"
    )

    def taken(module: str, name: str, value: float) -> float:
        text = f"from typing import NamedTuple\n\nclass {name}(NamedTuple):\n    first: float\n"
        (tmp_path / f"{module}.py").write_text(text)
        importlib.invalidate_caches()
        kind = getattr(importlib.import_module(module), name)
        found: float = importlib.import_module("made_up_taker").take(kind(value))
        (tmp_path / f"{module}.py").unlink()
        for gone in (module, "made_up_taker"):
            del sys.modules[gone]
        return found

    assert taken("made_up_types", "Pair", 1.0) == 1.0
    after = ("made_up_types", "Couple") if renamed == "class" else ("made_up_kinds", "Pair")
    assert taken(*after, 2.0) == 2.0
    assert taken(*after, 3.0) == 3.0
