"""What is kept of compiled code is used again, unless something has changed that it was compiled from."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

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
    )  # Python tells files apart by size and whole seconds

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
