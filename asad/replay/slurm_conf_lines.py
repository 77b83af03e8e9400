"""Lines of a slurm.conf, what is in them, and the numbers that Slurm reads there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from asad.errors import MachineError
from asad.replay.described_nodes import UNFILLED, is_template
from asad.replay.readers.accounting_log import quoted

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*(\\)\s*$")
_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*[-*+/]?=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_LOOSE_PAIR = re.compile(r'(?<!\S)([A-Za-z0-9_.]++)\s*+[-*+/]?=\s*+(?:"([^"]*)"|(\S++))(?=\s|$)')
"""Found anywhere in a line, in time that grows as its length."""
KEY = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-*+/]?=")
_NUMBER = re.compile(r"\+?(?:0[xX]([0-9a-fA-F]{1,12})|0([0-7]{0,14})|([1-9]\d{0,11}))([kK]?)", re.ASCII)
"""As strtoul reads it: sixteen, eight or ten to the place."""
MOST_SHORT = 65535
"""What a number of 16 bits can be."""

SETTINGS = frozenset({"clustername", "selecttype", "selecttypeparameters", "maxnodecount", "fastschedule"})
"""What of the rest of the file has a meaning for its nodes."""
SIZES = frozenset(
    {
        "cpus",
        "procs",
        "boards",
        "sockets",
        "socketsperboard",
        "corespersocket",
        "threadspercore",
        "realmemory",
    }
)
OF_A_NODE = SIZES | {
    "corespeccount",
    "cpuspeclist",
    "memspeclimit",
    "nodehostname",
    "nodeaddr",
    "tmpdisk",
    "weight",
}
"""Keys that stand on NodeName lines alone."""
ALONE = SETTINGS | {"nodename", "partitionname", "downnodes", "nodeset"}
"""Keys that begin a line, and stand nowhere else."""
WIDE = frozenset({"realmemory", "memspeclimit"})
"""Numbers of more than 16 bits, which may end in k."""


class Line(NamedTuple):
    """A line, continued ones joined."""

    place: str
    text: str


def logical_lines(path: str, text: str) -> Iterator[Line]:
    """Lines without comments, those that end with a backslash joined to the next: nothing takes its place."""
    joined, start = "", 0
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        start = start or number
        line = _COMMENT.sub(r"\1", raw)
        if goes_on := _GOES_ON.search(line):
            joined += line[: goes_on.start(1)]
            continue
        full = re.sub(r"\\(.?)", r"\1", joined + line).rstrip()
        if full:
            yield Line(f"{path}:{start}", full)
        joined, start = "", 0


def pairs(line: Line) -> dict[str, str]:
    """`Key=value` pairs of a line: keys in lower case, quotes taken off, of equal ones the last.

    Raises MachineError.
    """
    found: dict[str, str] = {}
    position = 0
    while position < len(line.text):
        match = _PAIR.match(line.text, position)
        if not match:
            if is_template(line.text):
                raise MachineError(f"{line.place}: {UNFILLED.format(quoted(line.text))}")
            raise MachineError(
                f"{line.place}: {quoted(line.text[position:].strip())} is no Key=value; close quotes, write values "
                "without blanks"
            )
        value = match[2] if match[3] is None else match[3]
        if match[3] is not None and (taken := KEY.match(value)) and taken[1].lower() in OF_A_NODE:
            raise MachineError(
                f"{line.place}: {match[1]}= has no value, so Slurm takes {quoted(value)} for it; give one, or remove it"
            )
        key = match[1].lower()
        if found and key in ALONE:
            raise MachineError(
                f"{line.place}: {match[1]}= stands behind another setting; begin a line with it"
            )
        found[key] = value
        position = match.end()
    return found


def loose_pairs(text: str) -> Iterator[tuple[str, str]]:
    """The same of a line of which only some pairs matter: what is none is passed over."""
    for match in _LOOSE_PAIR.finditer(text):
        yield match[1].lower(), match[2] if match[3] is None else match[3]


def outside_quotes(text: str) -> str:
    return re.sub(r'"[^"]*"', '""', text)


def whole(place: str, settings: Mapping[str, str], key: str, default: int) -> int:
    """A number as Slurm reads it: `0x10` and `020` are 16, large ones may end in k (`64k`). Raises MachineError."""
    text = settings.get(key)
    if text is None:
        return default
    match = _NUMBER.fullmatch(text)
    if not match or (match[4] and key not in WIDE):
        if is_template(text):
            raise MachineError(f"{place}: {key}={UNFILLED.format(quoted(text))}")
        octal = ": what begins with 0 is octal" if re.fullmatch(r"0\d+", text, re.ASCII) else ""
        raise MachineError(f"{place}: {key}={quoted(text)} is not a number{octal}; write a whole number")
    number = int(match[1], 16) if match[1] else int(match[2] or "0", 8) if match[3] is None else int(match[3])
    if key not in WIDE and number > MOST_SHORT:
        raise MachineError(
            f"{place}: {key}={quoted(text)} is refused by Slurm; write a number of at most {MOST_SHORT}"
        )
    return number * 1024 if match[4] else number
