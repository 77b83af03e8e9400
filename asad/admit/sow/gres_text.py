"""What jobs need beside cores, as users write it for Slurm: `gpu:a100:2,fpga`, `abaqus:2`, `64G`.

The text is a user's: hostile, and whatever is wrong with it is named with the remedy. Cost: O(characters).
"""

from __future__ import annotations

import re

from asad.bounded import shown

MOST_TEXT = 256
MOST_UNITS = 30_000
"""Of one gres or licence."""
MOST_BYTES = 2**60
_GRES = re.compile(
    r"(?:gres[:/])?([A-Za-z][\w-]{0,40})(?::([A-Za-z][\w.-]{0,60}))?(?:[:=]([0-9]{1,6}))?", re.ASCII
)
_LICENCE = re.compile(r"([A-Za-z][\w.@/-]{0,100})(?:[:=]([0-9]{1,6}))?", re.ASCII)
_MEMORY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)([KMGT])?B?", re.ASCII | re.IGNORECASE)
_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_TAKEN = ("cpu", "mem", "node", "billing")


def gres_of(text: str) -> dict[str, int]:
    """Units by name of the trackable resource (`gres/gpu`, `gres/gpu:a100`); who names a type has of its gres too.

    Of the whole job, over all its nodes. Raises ValueError with what is wrong and the remedy.
    """
    found: dict[str, int] = {}
    for word in _words(text, 'write "gpu:2" or "gpu:a100:2", several with commas'):
        part = _GRES.fullmatch(word)
        if part is None or part[1].lower() in _TAKEN:
            raise ValueError(
                f'{shown(word)} is no gres; write name:number or name:type:number, as "gpu:a100:2"'
            )
        name = f"gres/{part[1]}"
        for each in (name, f"{name}:{part[2]}") if part[2] else (name,):
            found[each] = found.get(each, 0) + _units(word, part[3])
    return _within(found)


def licences_of(text: str) -> dict[str, int]:
    """Units by name (`license/abaqus`). Raises ValueError with what is wrong and the remedy."""
    found: dict[str, int] = {}
    for word in _words(text, 'write "abaqus:2", several with commas'):
        part = _LICENCE.fullmatch(word)
        if part is None:
            raise ValueError(f'{shown(word)} is no licence; write name or name:number, as "abaqus:2"')
        name = f"license/{part[1]}"
        found[name] = found.get(name, 0) + _units(word, part[2])
    return _within(found)


def bytes_of(value: object) -> int:
    """Bytes of `64G`, `4096` (mebibytes, as `--mem` of Slurm has them). Raises ValueError."""
    part = _MEMORY.fullmatch(value) if isinstance(value, str) and len(value) <= MOST_TEXT else None
    if isinstance(value, int) and not isinstance(value, bool):
        part = _MEMORY.fullmatch(str(value)) if 0 < value <= MOST_BYTES else None
    amount = int(float(part[1]) * _BYTES[(part[2] or "M").upper()]) if part else 0
    if not 0 < amount <= MOST_BYTES:
        raise ValueError(f'{shown(str(value)[:80])} is no memory; write "64G", of the whole job')
    return amount


def memory_text(amount: int) -> str:
    """As `bytes_of` reads it, to the mebibyte above."""
    mebibytes = -(-amount // 2**20)
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


def _words(text: object, form: str) -> list[str]:
    if not isinstance(text, str) or not text.isprintable() or len(text) > MOST_TEXT:
        raise ValueError(f"it is no printable text of at most {MOST_TEXT} characters; {form}")
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ValueError(f"{shown(text) or 'nothing'} names nothing between its commas; {form}")
    return words


def _units(word: str, count: str | None) -> int:
    units = 1 if count is None else int(count)
    if units < 1:
        raise ValueError(f"{shown(word)} asks for none; leave it out, or write 1 or more")
    return units


def _within(found: dict[str, int]) -> dict[str, int]:
    for name, units in found.items():
        if units > MOST_UNITS:
            raise ValueError(f"{units} of {shown(name)} are too many; write at most {MOST_UNITS}")
    return found
