"""The records of a log in JSON, one at a time: a whole document as objects takes ten times the room of its text.

A compiled scan finds where each record begins and ends; each is parsed by itself. Documents may stand one after the
other, a line each or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.errors import LogError

RECORD, DOCUMENT = 0, 1
MOST_NESTED = 3
"""Lists and documents in one another."""
JOBS = re.compile(rb'"jobs"\s*:\s*\[')
"""What an element of a list has that is a document itself."""
WRITE_AGAIN = "write the log again (cut off?)"


@compiled(nogil=True)
def _scan(text: NDArray[np.uint8], kind: NDArray[np.uint8], span: NDArray[np.int64]) -> int:
    """Find the documents of a text and the elements of the lists in them that can be lists of jobs.

    Fills `kind` and (rows, 4) `span` with begin and end of each, and for elements where the key of the list begins and
    ends (0, 0: the document itself is the list). A document follows its elements. Returns how many there are, or if
    they are more than rows, that; the rest is not filled in then.
    """
    found = 0
    depth = 0
    document = -1
    element = -1
    key_first, key_stop = 0, 0
    text_first, text_stop = 0, 0
    list_depth = 0  # of the list whose elements are wanted: 1 where the document is a list, else 2; 0 outside
    position = 0
    while position < text.size:
        byte = text[position]
        if byte == 34:  # a text: skip it
            first = position
            position += 1
            while position < text.size and text[position] != 34:
                position += 2 if text[position] == 92 else 1
            if depth == 0 and document < 0:
                document = first
            text_first, text_stop = first + 1, min(position, text.size)
            if list_depth == depth and depth > 0 and element < 0:
                element = first
        elif byte == 58 and depth == 1:  # the key of the document's member
            key_first, key_stop = text_first, text_stop
        elif byte == 123 or byte == 91:
            if depth == 0 and document < 0:
                document = position
                key_first, key_stop = 0, 0
            elif list_depth == depth and depth > 0 and element < 0:
                element = position
            depth += 1
            if byte == 91 and list_depth == 0 and depth <= 2:
                list_depth = depth
        elif byte == 125 or byte == 93 or byte == 44:
            if list_depth == depth and depth > 0 and element >= 0:  # between or behind elements
                if found < kind.size:
                    kind[found] = 0
                    span[found, 0], span[found, 1], span[found, 2], span[found, 3] = (
                        element,
                        position,
                        key_first,
                        key_stop,
                    )
                found += 1
                element = -1
            if byte != 44:
                if list_depth == depth:
                    list_depth = 0
                depth = max(depth - 1, 0)
                if depth == 0 and document >= 0:
                    if found < kind.size:
                        kind[found] = 1
                        span[found, 0], span[found, 1] = document, position + 1
                    found += 1
                    document = -1
        elif (
            byte == 0xEF
            and depth == 0
            and document < 0
            and position + 2 < text.size
            and text[position + 1] == 0xBB
            and text[position + 2] == 0xBF
        ):
            position += 2  # a byte-order mark of documents that were joined
        elif byte > 32:
            if depth == 0 and document < 0:
                document = position
            elif list_depth == depth and depth > 0 and element < 0:
                element = position
        position += 1
    if document >= 0:  # cut off, or no object at all
        if found < kind.size:
            kind[found] = 1
            span[found, 0], span[found, 1] = document, text.size
        found += 1
    return found


def records_of(path: str, raw: bytes) -> Iterator[tuple[str, Any]]:
    """Place (`jobs[3]`) and content of each record: the elements of a document's list `jobs`, of a document that is a
    list, or a document that is a record itself (as `jq -c .jobs[]` writes them). Elements of a list may be documents
    or lists themselves (as `jq -s` writes them).

    Raises LogError, with the line, for what is no JSON, and for a document that is neither a record nor has such a
    list."""
    return _records_within(_Text(path, raw), 0, len(raw), "", MOST_NESTED)


class _Text(NamedTuple):
    """A log, of which parts are read."""

    path: str
    raw: bytes


def _records_within(text: _Text, begin: int, end: int, within: str, deeper: int) -> Iterator[tuple[str, Any]]:
    """The records of the documents in a part of a log, which stands `within` another one."""
    raw = text.raw
    part = np.frombuffer(raw, dtype=np.uint8)[begin:end]
    rows = 1024 + len(part) // 300  # records are longer
    while True:
        kind, span = np.empty(rows, np.uint8), np.zeros((rows, 4), np.int64)
        found = _scan(part, kind, span)
        if found <= rows:
            break
        rows = found
    elements: list[tuple[int, int]] = []
    documents = int(np.count_nonzero(kind[:found] == DOCUMENT))
    number = 0
    counted = 0
    for row in range(found):
        first, stop, key_first, key_stop = (span[row] + begin).tolist()
        if kind[row] == RECORD:
            if key_stop == begin or raw[key_first:key_stop] == b"jobs":
                elements.append((first, stop))
            continue
        number += 1
        of = f"{within}document {number}, " if documents > 1 else within
        yield from _records_of_document(text, first, stop, elements, of, within, counted, deeper)
        counted += len(elements) or 1
        elements = []


def _records_of_document(
    text: _Text,
    first: int,
    stop: int,
    elements: list[tuple[int, int]],
    of: str,
    within: str,
    counted: int,
    deeper: int,
) -> Iterator[tuple[str, Any]]:
    """The records of one document. All that stands around them is checked first."""
    raw = text.raw
    if elements:
        around = raw[first : elements[0][0]] + b"0" + raw[elements[-1][1] : stop]
        whole = _parsed(text, first, around, of)
    else:
        whole = _parsed(text, first, raw[first:stop], of)
    if isinstance(whole, dict) and "job_id" in whole and not isinstance(whole.get("jobs"), list):
        yield f"{within}jobs[{counted}]", whole
        return
    jobs = whole.get("jobs") if isinstance(whole, dict) else whole
    if not isinstance(jobs, list):
        raise LogError(
            text.path,
            raw.count(b"\n", 0, first) + 1 if first else None,
            f"{of}jobs",
            "there is no list of jobs",
            "give the output of `sacct --json`",
        )
    may_be_nested = deeper and isinstance(whole, list)
    for number, (begin, end) in enumerate(elements):
        if may_be_nested and (raw[begin] == ord("[") or JOBS.search(raw, begin, end)):
            yield from _records_within(text, begin, end, f"{of}element {number + 1}, ", deeper - 1)
            continue
        place = f"{of}jobs[{number}]"
        yield place, _parsed(text, begin, raw[begin:end], place)


def _parsed(text: _Text, first: int, part: bytes, place: str) -> Any:
    """What `part` says, which stands in the log from byte `first` on. Raises LogError with the line of what is wrong,
    and where that is not known, with `place`."""
    try:
        return orjson.loads(part)
    except ValueError:
        pass
    try:  # bytes of users that are no UTF-8, halves of characters: the slow way takes them
        return parsed(text.path, part.decode("utf-8", "replace"))
    except LogError as error:
        line = text.raw.count(b"\n", 0, first) + (error.line or 1)
        column = error.column or place.rstrip(", ") or None
        raise LogError(text.path, line, column, error.problem, error.remedy) from None


def parsed(path: str, text: str) -> Any:
    """What JSON says, strictly: no NaN, bounded depth. Raises LogError that names the line."""
    try:
        return json.loads(text, parse_constant=_refuse(text))
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg}"
        raise LogError(path, error.lineno, str(error.colno), problem, WRITE_AGAIN) from error
    except _NoNumber as error:
        line = 1 + text.count("\n", 0, error.found.start(1)) if error.found else None
        problem = f"this is not JSON: it has no {error.name}"
        raise LogError(path, line, None, problem, "write null for what is not known") from None
    except (RecursionError, ValueError) as error:
        raise LogError(
            path, None, None, "this is not JSON as Slurm writes it", "write the log again with --json"
        ) from error


class _NoNumber(ValueError):
    """`NaN` and its like, which JSON does not have."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name)
        self.name = name
        self.found = re.search(rf"[:\[,]\s*({re.escape(name)})(?=\s*[,\]}}])", text)


def _refuse(text: str) -> Callable[[str], float]:
    """What refuses a constant in `text`."""

    def refuse(name: str) -> float:
        raise _NoNumber(name, text)

    return refuse
