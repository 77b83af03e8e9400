"""How many components a gang has, as its user gives it (Slurm: `--comment='asad:components=4-8'`).

Words are separated by `;`, those that mean nothing here belong to others and are passed over. The text is hostile: its
length is bounded, and what a message repeats of it is short and printable.
"""

from __future__ import annotations

from typing import NamedTuple

MOST_CHARACTERS = 1000
MOST = 1_000_000


class Components(NamedTuple):
    """Of a job its nodes, of an array its tasks: at least `least` of them start together, or none does."""

    least: int
    most: int


def read_components(text: str) -> Components | None:
    """What `text` says of components; None if nothing. Raises ValueError with a sentence for the user."""
    if "components" not in text:
        return None
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the hint is longer than {MOST_CHARACTERS} characters; shorten it")
    found: list[str] = []
    for word in text.replace(",", ";").split(";"):
        key, equals, value = word.strip().partition("=")
        if equals and key.strip().removeprefix("asad:") == "components":
            found.append(value.strip())
    if not found:
        return None
    if len(found) > 1:
        raise ValueError("components is given twice; give it once")
    first, dash, last = found[0].partition("-")
    least, most = _number(first), _number(last if dash else first)
    if not 1 <= least <= most <= MOST:
        given = "".join(char if char.isprintable() else "?" for char in found[0][:60])
        raise ValueError(
            f"components={given} is no number from 1 to {MOST}, nor two of them; "
            "write components=8 or components=4-8"
        )
    return Components(least, most)


def _number(text: str) -> int:
    """A whole number in ASCII digits; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 7 else 0
