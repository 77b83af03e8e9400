"""Tables of TOML: a setting is declared once, as a field with its type, default and range, and read and refused here.

A table is a dataclass or a NamedTuple. A field without a default must be given; `Annotated[float, Is(above=0.0)]` says
what holds of a value besides its type; the docstring below the field is its line in the reference. What reads a table
names the whole place of what is wrong, and what to write instead; how it says so is a row of templates (`Words`).

No library does this for us: pydantic and attrs with cattrs are as long in the tables themselves, need each message
written anew (ours name the key and the hint), know nothing of lines, and take longer to import than all of `asactl`.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from asad.bounded import MOST_NUMBER, printable, toml_of
from asad.errors import ConfigError

NEEDED: Any = dataclasses.MISSING
"""The default of what must be given."""


class Is(NamedTuple):
    """What holds of a value besides its type."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    """A number: at least, at most, above, below."""
    unit: str = ""
    """Of a number, shown with its range."""
    choices: Sequence[str] | Callable[[], Sequence[str]] = ()
    """Names of which it is one. Of those that never change `Literal` is shorter."""
    made: Callable[[Any], Any] | None = None
    """Makes the value of one of this type. Raises ValueError: the problem, a semicolon, and the hint."""
    raw: bool = False
    """`made` takes whatever is written, of any type."""
    secret: bool = False
    """No error may repeat it."""

    @property
    def bounds(self) -> str:
        """The range, in words."""
        if self.least is not None and self.most is not None:
            return f"from {self.least:.12g} to {self.most:.12g} {self.unit}".rstrip()
        ends = {"from": self.least, "above": self.above, "below": self.below, "at most": self.most}
        words = " and ".join(f"{word} {end:g}" for word, end in ends.items() if end is not None)
        return f"{self.unit} {words}".strip() or "one that is finite"

    def holds(self, number: float) -> bool:
        """Is it within the range? NaN never is."""
        return (
            abs(number) <= MOST_NUMBER
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


class Column(NamedTuple):
    """A setting."""

    kind: Any
    """`bool`, `int`, `float`, `str`, `Path`, a `Literal`, a tuple or frozenset (of texts), a mapping, or a table."""
    default: Any
    limits: Is


class Words(NamedTuple):
    """How a reader says what is wrong; what stands in braces is filled in."""

    place: str = "{table}.{key}"
    unknown: str = "{place}: unknown key; {nearest}"
    known: str = "there are"
    missing: str = "{place} is missing; add it"
    kind: str = "{place}: {value} is no {noun}; write {form}"
    number: str = "{place}: {value} is no {noun}; write a number, no quotes"
    range: str = "{place}: {value} is out of range; give {bounds}"
    choice: str = "{place}: {value} is none of the choices; choose one of {choices}"
    made: str = "{place}: {value} {why}"
    table: str = "{table}: not a table; write [{table}] and its keys below"


PLUGIN_WORDS = Words(
    place="[{table}] {key}",
    unknown="{place}: there is no such setting; {nearest}",
    known="known are",
    number="{place}: {value} is no {noun} {bounds}",
    range="{place}: {value} is no {noun} {bounds}",
    choice="{place}: {value} is unknown; choose from {choices}",
    table="{table}: {value} is no table; write [{table}] and its keys below",
)
"""Of tables of cluster plugins, which are read without their file."""
OPTION_WORDS = Words(
    place="{table} {key}",
    unknown="{place}: unknown option; {nearest}",
    kind="{place} = {value}; give {form}",
    number="{place} = {value}; give {form} {bounds}",
    range="{place} = {value}; give {form} {bounds}",
)
"""Of options of policies, and of rules."""
FILE_WORDS = Words(
    place="{table}.{key}",
    kind="{place} = {value}; give {form}",
    number="{place} = {value}; give {form} {bounds}",
    range="{place} = {value}; give {form} {bounds}",
)
"""Of files of their own."""


class Fault(NamedTuple):
    """Something wrong."""

    key: tuple[str, ...]
    """Table and key."""
    text: str
    """Where, what, and the hint; safe for a terminal."""

    def located(self, path: str, lines: Mapping[tuple[str, ...], int]) -> str:
        """With the file, and the line of the key or of the closest thing around it that has one."""
        line = line_of(lines, self.key)
        return f"{path}:{line}: {self.text}" if line else f"{path}: {self.text}"


class _Kind(NamedTuple):
    noun: str
    form: str
    fits: Callable[[Any], bool]
    made: Callable[[Any], Any]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value)


KINDS: dict[Any, _Kind] = {
    bool: _Kind("truth value", "true or false", lambda value: isinstance(value, bool), bool),
    Any: _Kind("value", "one", lambda value: True, lambda value: value),
    str: _Kind("text", "it in quotes", lambda value: isinstance(value, str), str),
    Path: _Kind(
        "absolute path",
        "it in quotes, beginning with /",
        lambda value: isinstance(value, str) and value.startswith("/"),
        Path,
    ),
    tuple: _Kind("list of names", 'a list of names, ["n1", "n2"]', _is_list, tuple),
    frozenset: _Kind("list of names", 'a list of names, ["n1", "n2"]', _is_list, frozenset),
    Mapping: _Kind("table", "a table", lambda value: isinstance(value, Mapping), dict),
}
"""All kinds of values but numbers."""


@cache
def columns_of(kind: Any) -> dict[str, Column]:
    """The settings of a table, by name."""
    hints = get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        defaults = {
            field.name: NEEDED
            if field.default is field.default_factory
            else field.default
            if field.default_factory is dataclasses.MISSING
            else field.default_factory()
            for field in dataclasses.fields(kind)
        }
    else:
        defaults = {name: kind._field_defaults.get(name, NEEDED) for name in kind._fields}
    return {name: column(hints[name], default) for name, default in defaults.items()}


def column(kind: Any, default: Any = NEEDED) -> Column:
    """A setting of a type, which may be `Annotated` with what else holds."""
    if get_origin(kind) is not Annotated:
        return Column(kind, default, Is())
    return Column(
        get_args(kind)[0], default, next((one for one in get_args(kind) if isinstance(one, Is)), Is())
    )


def read(
    columns: Mapping[str, Column], given: Mapping[str, Any], words: Words, at: tuple[str, ...]
) -> tuple[dict[str, Any], list[Fault]]:
    """The values of a table called `at`, and what is wrong."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for key, value in given.items():
        asked = columns.get(key)
        if asked is not None and dataclasses.is_dataclass(asked.kind):
            values[key], wrong = read_table(asked.kind, value, words, (*at, key))
            faults += wrong
            continue
        place = _place(words, at, key)
        try:
            if asked is None:
                nearest = nearest_of(key, columns, words.known)
                parts = {"table": ".".join(at), "key": key[:80], "nearest": nearest}
                raise ValueError(words.unknown.format(place=place, **parts))
            values[key] = taken(value, asked, words, place)
        except ValueError as error:
            faults.append(Fault((*at, key), printable(str(error))))
    for key, asked in columns.items():
        if key not in given and asked.default is NEEDED:
            faults.append(Fault(at, words.missing.format(place=_place(words, at, key))))
    return values, faults


def _place(words: Words, at: tuple[str, ...], key: str) -> str:
    return words.place.format(table=".".join(at), key=key[:80]) if at else key[:80]


def read_table(kind: Any, given: Any, words: Words, at: tuple[str, ...]) -> tuple[Any, list[Fault]]:
    """A table as `kind`, with defaults for what is wrong (None where there is no default), and what that is."""
    if not isinstance(given, Mapping):
        text = words.table.format(table=".".join(at), value=f"{given!r:.80}")
        values, faults = dict[str, Any](), [Fault(at, text)]
    else:
        values, faults = read(columns_of(kind), given, words, at)
    needed = {key for key, asked in columns_of(kind).items() if asked.default is NEEDED}
    return (kind(**values) if needed <= values.keys() else None), faults


def read_or_raise(kind: Any, given: Any, words: Words, at: tuple[str, ...]) -> Any:
    """A table as `kind`. Raises ConfigError with the first fault."""
    made, faults = read_table(kind, given, words, at)
    if faults:
        raise ConfigError(faults[0].text)
    return made


def taken(value: Any, asked: Column, words: Words, place: str) -> Any:
    """A value as its column wants it. Raises ValueError with the place, the problem and the hint."""
    shown = "what is written there" if asked.limits.secret else f"{value!r:.80}"
    kind, limits = get_origin(asked.kind) or asked.kind, asked.limits
    if not limits.raw:
        value = _typed(value, asked, words, place, shown)
    if limits.made is not None:
        try:
            value = limits.made(value)
        except ValueError as error:
            raise ValueError(words.made.format(place=place, value=shown, why=error)) from None
    if kind is Literal or limits.choices:
        choices = limits.choices() if callable(limits.choices) else limits.choices or get_args(asked.kind)
        for one in [value] if kind in (str, Literal) else value:
            if one not in choices:
                parts = {"value": f"{one!r:.80}", "choices": ", ".join(choices)}
                raise ValueError(words.choice.format(place=place, **parts))
    return value


def _typed(value: Any, asked: Column, words: Words, place: str, shown: str) -> Any:
    """A value, if it is of the type of its column."""
    kind = get_origin(asked.kind) or asked.kind
    if kind in (int, float):
        parts = {"place": place, "value": shown, "bounds": asked.limits.bounds}
        return _number(value, kind, asked.limits, words, parts)
    if kind is Literal or (kind is str and asked.limits.choices):
        return value if isinstance(value, str) else repr(value)
    known = KINDS.get(kind, KINDS[Mapping])
    if not known.fits(value):
        raise ValueError(words.kind.format(place=place, value=shown, noun=known.noun, form=known.form))
    if isinstance(value, str) and not value.isprintable():
        raise ValueError(f"{place}: {shown} is no text to be shown, it holds control characters; remove them")
    if isinstance(value, Mapping) and (of := get_args(asked.kind)):
        return {key: taken(one, column(of[1]), words, f"{place}.{key[:80]}") for key, one in value.items()}
    return known.made(value)


def _number(value: Any, kind: type, limits: Is, words: Words, parts: dict[str, str]) -> float:
    noun = "number" if kind is float else "whole number"
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or (kind is int and not (isinstance(value, int) or value.is_integer())):
        raise ValueError(words.number.format(noun=noun, form=f"a {noun}", **parts))
    if not limits.holds(value):
        raise ValueError(words.range.format(noun="number", form=f"a {noun}", **parts))
    number: float = kind(value)
    return number


def fitted(path: str, shipped: str, schema: int, hint: str) -> tuple[dict[str, Any], str]:
    """What a file holds that asad itself wrote, and its name; of an empty path the one that ships (`package/name`).

    Raises ConfigError with file and hint if it cannot be read, or is of another schema.
    """
    from importlib.resources import files

    package, _, name = shipped.partition("/")
    source = Path(path) if path else files(package) / name
    try:
        document = toml_of(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{source}: cannot be read as TOML ({reason}); {hint}") from error
    if document.get("schema") != schema:
        raise ConfigError(f"{source}: schema is {document.get('schema')!r:.40}, not {schema}; {hint}")
    return document, str(source)


def nearest_of(name: str, names: Mapping[str, Any] | Sequence[str], known: str = "there are") -> str:
    """`did you mean 'x'?`, or all names where none is like it."""
    close = difflib.get_close_matches(name[:80], list(names), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"{known} {', '.join(names)}"


# ----------------------------------------------------------------------------------------------------------- lines


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Path of keys → the line (from 1) on which it is written, as far as single lines show it.

    Of `[[name]]` the keys of the n-th table are below `name`, n (as text, from 1), too.
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    counted: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith("["):
            table = _keys(line) or table
            if line.startswith("[[") and table:
                lines.setdefault(table, number)
                counted[table] = counted.get(table, 0) + 1
                table = (*table, str(counted[table]))
            path = table
        elif "=" in line and not line.startswith("#"):
            keys = _keys(f"{line.partition('=')[0]}= 0")
            path = (*table, *keys) if keys else ()
        else:
            path = ()
        if path:
            lines.setdefault(path, number)
    return lines


def line_of(lines: Mapping[tuple[str, ...], int], key: tuple[str, ...]) -> int | None:
    """The line of a key, or of the closest thing around it that has one."""
    return next((lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), None)


def _keys(line: str) -> tuple[str, ...]:
    """The path of keys that one line of TOML opens, empty if it opens none."""
    try:
        level: Any = toml_of(line)
    except ValueError:
        return ()
    path: list[str] = []
    while isinstance(level, dict) and level:
        path.append(next(iter(level)))
        level = level[path[-1]]
        if isinstance(level, list) and level:
            level = level[0]
    return tuple(path)
