"""What the pages of docs/ (and README) have readers type, and the files that they have them write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
TYPED = {"$ ": False, "# ": True}
"""The prompt of a line in a `console` block → whether it is root's."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    """`console`, `bash`, `toml`, …; empty where the page names none."""
    text: str
    line: int
    """Its first line within the page, counted from 1."""


@dataclass(frozen=True)
class Command:
    """One command that a page has its reader type."""

    page: str
    """The page, as seen from the root of the repository."""
    line: int
    text: str
    """Without the prompt; of several lines where it goes on by a backslash, or has a here-document."""
    root: bool
    printed: tuple[str, ...]
    """What the page shows below the command, line by line."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def pages() -> list[str]:
    """Every page, as seen from the root of the repository."""
    return ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md")))]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of one page, in its order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in FENCE.finditer(text)
    ]


def written(page: str, language: str = "toml") -> list[str]:
    """The files, or parts of files, of one kind that the page shows."""
    return [block.text for block in blocks(page) if block.language == language]


def commands(page: str) -> list[Command]:
    """What the page has typed: lines after a prompt in `console` blocks, every line of `bash` blocks."""
    return [
        command
        for block in blocks(page)
        if block.language in ("console", "bash")
        for command in _of_block(page, block)
    ]


def commands_under(page: str, heading: str, *, deeper: bool = True) -> list[Command]:
    """What the page has typed under one heading. deeper: and under the headings below that one.

    Raises ValueError where the page has no such heading.
    """
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    headings = [
        (number, found[1], found[2])
        for number, line in enumerate(lines, 1)
        if (found := re.match(r"(##+) (.*)", line))
    ]
    for place, (began, level, name) in enumerate(headings):
        if name == heading:
            later = [at for at, its, _ in headings[place + 1 :] if not deeper or len(its) <= len(level)]
            ends = min(later, default=len(lines) + 1)
            return [command for command in commands(page) if began < command.line < ends]
    raise ValueError(f"{page} has no heading {heading!r}")


def _of_block(page: str, block: Block) -> Iterator[Command]:
    lines = block.text.splitlines()
    number = 0
    while number < len(lines):
        began = number
        first = lines[number]
        number += 1
        if block.language == "bash":
            text, root = first, False
            if not first or first.startswith("#"):
                continue
        elif first[:2] in TYPED:
            text, root = first[2:], TYPED[first[:2]]
        else:
            continue
        while text.endswith("\\"):
            text += "\n" + lines[number]
            number += 1
        here = re.search(r"<<'?(\w+)'?", text)
        if here:
            until = lines.index(here[1], number) + 1
            text += "\n" + "\n".join(lines[number:until])
            number = until
        after = number
        while block.language == "console" and after < len(lines) and lines[after][:2] not in TYPED:
            after += 1
        yield Command(page, block.line + began, text, root, tuple(lines[number:after]))
        number = after
