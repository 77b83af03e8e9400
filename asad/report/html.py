"""HTML from the templates beside this file: every value that comes in is escaped, a page holds all that it shows.

A template may use `show`, the macros of `macros.html`, and `units` for numbers and names. What Python hands over is
plain text; only what a macro made is taken as it stands.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from asad import __version__
from asad.report import units

TONES = {1: " better", 0: "", -1: " worse"}
"""The class of a difference, by whether it is an improvement."""


def _is_word(column: Iterable[str]) -> bool:
    """A column whose cells all begin like numbers is set flush right, so that its digits line up; others are words."""
    return not all(cell[:1] in "0123456789+±–∞" or cell.startswith(units.MINUS) for cell in column)


def _words_of(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> list[bool]:
    return [_is_word(row[number] for row in rows) for number in range(len(heads))]


TEMPLATES = Environment(
    loader=PackageLoader("asad.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {
    "words_of": _words_of,
    "json": partial(json.dumps, ensure_ascii=False),
    "bar_width": lambda share: f"{min(max(share, 0.0), 1.0) * 100:.2f}",
}
TEMPLATES.tests["scalar"] = lambda value: isinstance(value, str | int | float)
TEMPLATES.globals |= {"units": units, "tones": TONES, "version": __version__}
show: Any = TEMPLATES.get_template("macros.html").module
"""The macros of `macros.html`; called with plain text, each gives `Markup`."""
TEMPLATES.globals["show"] = show


def render(template: str, **values: Any) -> str:
    """A page: `template` filled with `values`."""
    return TEMPLATES.get_template(template).render(values)


def write_whole(text: str, path: str | os.PathLike[str]) -> None:
    """Write a page to `path`, whole or not at all. Raises OSError if that cannot be."""
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)  # mkstemp's file is for its owner alone; a report is to be shown
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
