"""The page that a newcomer reads first names every room, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
NAMED = set(
    re.findall(
        r"`((?:asad|plugins|papers|profiles|sql|systemd|tests|benchmarks|lab|docs)(?:/[\w./]+)?)`", PAGE
    )
)


def packages() -> list[str]:
    """Folders and modules of asad, the plugins, the papers, and the folders around them."""
    inside = [path for path in (ROOT / "asad").iterdir() if path.suffix == ".py" and path.stem != "__init__"]
    inside += [
        path.parent for room in ("asad", "plugins", "papers") for path in (ROOT / room).glob("*/__init__.py")
    ]
    around = ["profiles", "sql", "systemd", "tests", "benchmarks", "lab", "docs"]
    return [*(path.relative_to(ROOT).as_posix() for path in sorted(inside)), *around]


@pytest.mark.parametrize("room", packages())
def test_every_room_is_named(room: str) -> None:
    assert room in NAMED, (
        f"docs/explanation/architecture.md does not name {room}: say in a line what is in it"
    )


@pytest.mark.parametrize("name", sorted(NAMED))
def test_what_is_named_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_it_is_two_pages_with_one_picture() -> None:
    assert 600 < len(PAGE.split()) < 1300 and PAGE.count("![") == 1
    assert (ROOT / "docs/explanation" / re.findall(r"!\[.*?\]\((.*?)\)", PAGE)[0]).exists()
