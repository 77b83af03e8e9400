"""What is done to a sample: to its bytes, to its words and values, and to the shape of its JSON.

Everything is drawn from the generator that is handed in, so that the same generator makes the same input again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

Form = Literal["json", "lines", "toml", "text"]
"""One JSON document, a JSON document on each line, TOML, or any other text."""

MOST_BYTES = 256 << 10
HUGE_BYTES = 2 << 20
HUGE = 0.0005
"""So large a part of the inputs may be as long as `HUGE_BYTES`, and nested as deep."""
UNCHANGED = 0.01
"""So large a part are the samples themselves: they show that a reader still reads."""
TIMES = (1, 1, 1, 1, 2, 2, 3, 5)
"""So many mutations are made of one sample, each of these equally likely."""

Make = Callable[[Random, int], str]
Pool = tuple[str | Make, ...]
"""Texts, and what makes one that is at most so many characters long."""

WORD = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[+-]?\d[\w.:+\-]*|[A-Za-z_][\w.\-]*')
"""What a value or a key looks like in any of the forms."""


def _nested_lists(chance: Random, most: int) -> str:
    depth = _depth(chance, most)
    return "[" * depth + "]" * depth


def _nested_tables(chance: Random, most: int) -> str:
    depth = _depth(chance, most // 3)
    return '{"a":' * depth + "1" + "}" * depth


def _nested_inline_tables(chance: Random, most: int) -> str:
    depth = _depth(chance, most // 3)
    return "{a=" * depth + "1" + "}" * depth


def _depth(chance: Random, most: int) -> int:
    """Around the depth at which Python's parsers give up, or far beyond."""
    return min(most // 2, chance.choice((3, chance.randint(100, 1100), 20_000, 1_000_000)))


def _long_string(chance: Random, most: int) -> str:
    return '"' + chance.choice(("A", "é", "\\u0000", "%", "[", "\\\\")) * (_length(chance, most) // 8) + '"'


def _long_word(chance: Random, most: int) -> str:
    return chance.choice(("A", "é", "-", "[", "9", "a.", "1,", "@", "%")) * (_length(chance, most) // 2)


def _long_number(chance: Random, most: int) -> str:
    return chance.choice(("", "-", "0.", "1e")) + "9" * _length(chance, min(most, 20_000))


def _long_key(chance: Random, most: int) -> str:
    return "a." * (_length(chance, most) // 2) + "a = 1"


def _length(chance: Random, most: int) -> int:
    return min(most, chance.choice((20, 300, 4000, 5000, 70_000, 1 << 20)))


NUMBERS: Pool = (
    *("0", "-0.0", "1", "-1", "0.5", "1e-320", "1e300", "1e308", "-1e308", "1e400", "-1e400", "1e-400"),
    *("127", "255", "65534", "65535", "65536", "2147483647", "2147483648", "-2147483648", "4294967294"),
    *("4294967295", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551614", "18446744073709551615", "253402300800", "-62135596801", "1700000000"),
    *("1" + "0" * 40, "1" + "0" * 400, "-1" + "0" * 400),
)
JSON_VALUES: Pool = (
    *NUMBERS,
    *(
        "null",
        "true",
        "false",
        "NaN",
        "Infinity",
        "-Infinity",
        '""',
        "[]",
        "{}",
        "[[]]",
        "[null]",
        "[1, 2, 3]",
    ),
    *('"nan"', '"inf"', '"-1"', '"1e400"', '"²"', '"٣"', '"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"'),
    *('"\\u001b[2J"', '"\\u202e"', '"\\r\\n"', '"n[1-99999999]"', '"n[1-3]"', '"@all"', '"../../etc/passwd"'),
    *('{"set": true, "infinite": false, "number": 7}', '{"set": true, "infinite": true, "number": 0}'),
    *('{"set": true, "infinite": false, "number": 1e400}', '{"set": true}', '{"number": null, "set": 1}'),
    *('{"number": -1, "infinite": 0, "set": "yes"}', '["RUNNING", "COMPLETING"]', '{"value": null}'),
    *('"asad:utility=sigmoid(10,0.5,20m)"', '"asad:sow=1"', '"asad:steps=9999999"', '"1-10000000:1%2"'),
    *("1.7976931348623157e308", "[1e400]", '[["0m", "1h", 1.0]]'),
    *(_nested_lists, _nested_tables, _long_string, _long_string, _long_number),
)
TOML_VALUES: Pool = (
    *NUMBERS,
    *("nan", "inf", "-inf", "true", "false", '""', "''", "[]", "{}", "[[]]", "[1, 2]", "{a = 1}", "[{}]"),
    *("0xFFFFFFFFFFFFFFFFFF", "0b1", "1_000", "1979-05-27T07:32:00Z", "0001-01-01T00:00:00+23:59"),
    *("9999-12-31T23:59:59-23:59", "1979-05-27", "07:32:00", "1979-05-27T07:32:00", '"+1d"', '"+99999999d"'),
    *(
        '"nan"',
        '"inf"',
        '"1e400"',
        '"²"',
        '"\\u0000"',
        '"\\u001b[2J"',
        '"\\u202e"',
        '"/dev/null"',
        '"/"',
        '"."',
    ),
    *('[["0m", "1h", 1.0]]', '["a", 1]', '"constant(1)"', '"sigmoid(1e308, 1e308, 1s)"', '"0.0.0.0:99999"'),
    *(_nested_lists, _nested_inline_tables, _long_string, _long_number),
)
WORDS: Pool = (
    *NUMBERS,
    *("", " ", "nan", "inf", "-inf", "None", "Unknown", "UNLIMITED", "Partition_Limit", "(null)", "N/A"),
    *("²", "٣", "１", "\x1b[2J", "\u202e", "\x00", "\r", "0x10", "1_000", "1e5", "+5", "--", "-"),
    *("9999-12-31T23:59:59", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2024-02-30T25:61:61"),
    *("999999-23:59:59", "99999999:99999999:999999999.999999999", "1-", "-1-00:00:00", "60:61"),
    *("n[1-3]", "n[1-999999]", "n[1-99999999999]", "n[3-1]", "n[1-", "n[001-9]x[1-2]", "@all", "a&b", "a!b"),
    *("cpu=4,mem=8G,node=1", "cpu=,mem=,node=", "cpu=99999999999,mem=1e9T", "mem=99999999999999999999E"),
    *(
        "9223372036854775808",
        "2147486448Mn",
        "1K",
        "CANCELLED by 0",
        "RUNNING",
        "12_[1-10%2]",
        "12+1",
        "12.batch",
    ),
    *("40/0", "1/1e400", "100%", "sigmoid(10,0.5,20m)", "linear(1,2,1)", "constant(1e400)", "deadline(0,0)"),
    *("utility=constant(1)", "workers=999999999999", "ps=a:1e400", "asad:asad:", ";;;;", "1-12:00:00"),
    *(_long_word, _long_word, _long_number),
)
POOLS: dict[Form, Pool] = {"json": JSON_VALUES, "lines": JSON_VALUES, "toml": TOML_VALUES, "text": WORDS}
BYTES = (b"", b"\0", b"\n", b"\r\n", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1f\x8b", b"|", b",", b'"')
BYTES += (b"\\", b"{", b"}", b"[", b"]", b"=", b":", b"%", b"-", b";", b"#", b"9" * 30, b"1e400", b"null")
MARK = "\1hostile"
"""Stands for a value in a document until that is text."""


def mutated(samples: Sequence[bytes], form: Form, chance: Random) -> bytes:
    """One input."""
    data = chance.choice(samples)
    if chance.random() < UNCHANGED:
        return data
    most = HUGE_BYTES if chance.random() < HUGE else MOST_BYTES
    for _ in range(chance.choice(TIMES)):
        kind = chance.random()
        if kind < 0.3 and form in ("json", "lines"):
            data = _reshaped(data, samples, form, chance, most)
        elif kind < 0.65:
            data = _with_other_word(data, form, chance, most)
        else:
            data = chance.choice(BYTE_MUTATIONS)(data, samples, chance)
        data = data[:most]
    return data


def hostile(form: Form, chance: Random, most: int = 2000) -> str:
    """A value that nobody expects, as text."""
    value = chance.choice(POOLS[form])
    return value if isinstance(value, str) else value(chance, most)


# ------------------------------------------------------------------------------------------------------------- values


def _with_other_word(data: bytes, form: Form, chance: Random, most: int) -> bytes:
    """A word (a value or a key) becomes another."""
    if len(data) > 16384:  # looking for all the words of a long text would take the most of the time
        begin = chance.randrange(len(data) - 8192)
        found = [match.span() for match in WORD.finditer(data, begin, begin + 8192)]
    else:
        found = [match.span() for match in WORD.finditer(data)]
    if not found:
        return data
    begin, end = chance.choice(found)
    if form == "toml" and chance.random() < 0.02:
        return data + b"\n" + _long_key(chance, most).encode()
    if chance.random() < 0.2:  # another word of the same text
        other = data[slice(*chance.choice(found))]
    else:
        other = hostile(form, chance, most).encode("utf-8", "surrogatepass")
    return data[:begin] + other + data[end:]


def _reshaped(data: bytes, samples: Sequence[bytes], form: Form, chance: Random, most: int) -> bytes:
    """A value of a JSON document (or of one of its lines) goes, comes twice, moves, or becomes another."""
    lines = data.split(b"\n") if form == "lines" else [data]
    at = chance.randrange(len(lines))
    try:
        document = json.loads(lines[at])
        other = (
            json.loads(chance.choice(chance.choice(samples).split(b"\n"))) if form == "lines" else document
        )
        lines[at] = _edited(document, other, form, chance, most)
    except (ValueError, RecursionError):
        return data
    return b"\n".join(lines)


def _edited(document: Any, other: Any, form: Form, chance: Random, most: int) -> bytes:
    place, key = _place(document, chance)
    instead = hostile(form, chance, most)
    if place is None:
        return instead.encode()
    act = chance.randrange(6)
    if act == 0 and isinstance(place, dict):
        del place[key]
    elif act == 1 and isinstance(place, list):
        place[key:key] = [place[key]] * chance.choice((1, 2, 50))
    elif act == 2:
        there, from_ = _place(other, chance)
        place[key] = there[from_] if there is not None and there is not place else [place[key]]
    elif act == 3 and isinstance(place, dict):
        place[chance.choice((MARK, "", "\0", "*", "a.b", "seat 1", "statement 1"))] = place.pop(key)
    else:
        place[key] = MARK
    text = json.dumps(document, ensure_ascii=chance.random() < 0.5)
    return text.replace(json.dumps(MARK), instead).encode("utf-8", "surrogatepass")


def _place(document: Any, chance: Random) -> tuple[Any, Any]:
    """A container somewhere in a document, and one of its keys; None if it holds nothing."""
    found: tuple[Any, Any] = (None, None)
    while isinstance(document, dict | list) and document:
        key = chance.choice(list(document)) if isinstance(document, dict) else chance.randrange(len(document))
        found = (document, key)
        document = document[key]
        if chance.random() < 0.15:
            break
    return found


# -------------------------------------------------------------------------------------------------------------- bytes


def _span(data: bytes, chance: Random) -> tuple[int, int]:
    begin = chance.randrange(len(data) + 1)
    return begin, min(len(data), begin + chance.choice((0, 1, 2, 8, 64, 1000)))


def _flip(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _remove(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    begin, end = _span(data, chance)
    return data[:begin] + data[end:]


def _repeat(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    begin, end = _span(data, chance)
    return data[:begin] + data[begin:end] * chance.choice((2, 2, 3, 100, 10_000)) + data[end:]


def _insert(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    begin, end = _span(data, chance)
    return data[:begin] + chance.choice(BYTES) + data[chance.choice((begin, end)) :]


def _splice(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    other = chance.choice(samples)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def _lines(data: bytes, samples: Sequence[bytes], chance: Random) -> bytes:
    """Lines come twice, go, or change places; some come from another sample."""
    lines, others = data.split(b"\n"), chance.choice(samples).split(b"\n")
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    act = chance.randrange(4)
    if act == 0:
        lines[at], lines[to] = lines[to], lines[at]
    elif act == 1:
        del lines[at]
    else:
        lines.insert(at, lines[to] if act == 2 else chance.choice(others))
    return b"\n".join(lines)


BYTE_MUTATIONS = (_flip, _cut, _remove, _repeat, _insert, _splice, _lines)
