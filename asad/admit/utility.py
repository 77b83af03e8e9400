"""What a job is worth by the time it took: constant, linear, sigmoid, deadline, and a site's own.

Source: OASiS, section V-A (the sigmoid: γ1 priority, γ2 decay, γ3 target completion time); Huang et al., Need for
Speed (INFOCOM 2015), for linear ones and deadlines. Utilities count in slots: the first slot, that of the arrival,
is 1. In a text (a hint of a user, a rule of the configuration) times are seconds, or have a unit:

    constant(WORTH)
    linear(WORTH, BY, ZERO)         WORTH up to BY, then falling evenly to 0 at ZERO
    sigmoid(WORTH, DECAY, TARGET)   WORTH / (1 + exp(DECAY·(time - TARGET)))
    deadline(WORTH, BY)             WORTH up to BY, then 0
    NAME(…)                         a site's own, of the entry points `asad.utilities`

WORTH is a number ≥ 0 on a scale of the site (the paper: 1 to 100). Times: `90`, `90s`, `20m`, `1.5h`, `2d`, or Slurm's
`mm:ss`, `hh:mm:ss`, `d-hh`, `d-hh:mm`, `d-hh:mm:ss`. DECAY is a number a slot, as in the paper, or with its own unit of
time: `0.5`, `0.05/m`, `3/h`; 0 is a constant half of WORTH, as the formula has it. (Slots are what the site's
configuration makes them: 10 minutes unless it says otherwise. A unit makes the hint independent of that.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import NamedTuple

import numpy as np

from asad.admit.elastic import Utility
from asad.bounded import shown
from asad.errors import ConfigError, UsageError
from asad.model import Floats


class Constant(NamedTuple):
    """`worth`, whenever it completes."""

    worth: float

    def __call__(self, slots: float) -> float:
        return self.worth

    @property
    def target(self) -> float:
        """Infinite: its worth never falls."""
        return math.inf


class Linear(NamedTuple):
    """`worth` up to `target` slots, then falling evenly to 0 at `zero` slots."""

    worth: float
    target: float
    """Slots at which the worth begins to fall."""
    zero: float

    def __call__(self, slots: float) -> float:
        return self.worth * min(1.0, max(0.0, (self.zero - slots) / (self.zero - self.target)))


class Sigmoid(NamedTuple):
    """γ1 / (1 + exp(γ2·(slots - γ3))) of the paper (section V-A); γ2 = 0 is a constant γ1/2."""

    worth: float
    decay: float
    target: float
    """γ3, in slots."""

    def __call__(self, slots: float) -> float:
        exponent = self.decay * (slots - self.target)
        return self.worth / (1.0 + math.exp(exponent)) if exponent < 700.0 else 0.0


class Deadline(NamedTuple):
    """`worth` if it completes within `target` slots, else 0."""

    worth: float
    target: float

    def __call__(self, slots: float) -> float:
        return self.worth if slots <= self.target else 0.0


Maker = Callable[[tuple[float, ...], float], Utility]
"""A site's own kind: from its arguments (times in seconds, rates a slot) and the length of a slot in seconds."""


def worth_by_slot(utility: Utility, slots: int) -> Floats:
    """(slots,) what it is worth to complete in the 1st, 2nd, … slot; made to be finite, ≥ 0 and never rising.

    A site's own utility may be none of that, and the best schedule is only exact for what never rises.
    """
    if isinstance(utility, Sigmoid):
        exponent = utility.decay * (np.arange(1, slots + 1) - utility.target)
        with np.errstate(over="ignore"):
            worth: Floats = utility.worth / (1.0 + np.exp(exponent))
        return worth
    if isinstance(utility, Constant):
        return np.full(slots, utility.worth)
    values = np.array([utility(slot) for slot in range(1, slots + 1)], np.float64)
    values[~np.isfinite(values)] = 0.0
    return np.minimum.accumulate(np.maximum(values, 0.0))


def target_slots(utility: Utility, slots: int) -> float:
    """By when it is to be done: the utility's own target, else the last of `slots` slots with all of its worth."""
    target = float(getattr(utility, "target", math.nan))
    if math.isnan(target):
        values = worth_by_slot(utility, slots)
        return float(np.flatnonzero(values >= values[0] * (1 - 1e-9))[-1] + 1)
    return target


def site_utilities() -> dict[str, Maker]:
    """The site's own utilities: entry points of the group `asad.utilities`, loaded.

    Reads what is installed: for the start of a program, not for its decisions. Raises ConfigError if one does not load.
    """
    own: dict[str, Maker] = {}
    for point in entry_points(group="asad.utilities"):
        if point.name in _ARGUMENTS or not re.fullmatch(r"[a-z][a-z0-9-]*", point.name):
            raise ConfigError(
                f"entry point asad.utilities: {point.name!r} ({point.value}) may not be its name; "
                f"rename it: lower-case letters, digits and -, none of {', '.join(_ARGUMENTS)}"
            )
        try:
            own[point.name] = point.load()
        except Exception as error:
            raise ConfigError(
                f"entry point asad.utilities: {point.name} ({point.value}) does not load: {error!r}; "
                "correct or remove that package"
            ) from error
    return own


_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12}"
_PLAIN = re.compile(rf"({_NUMBER})(s|m|h|d)?", re.ASCII)
_RATE = re.compile(rf"({_NUMBER})/(s|m|h|d)", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?", re.ASCII)
_CALL = re.compile(r"\s*([a-z][a-z0-9-]{0,30})\s*\(([^()]*)\)\s*", re.ASCII)
_ARGUMENTS = {
    "constant": ("worth",),
    "linear": ("worth", "by", "zero"),
    "sigmoid": ("worth", "decay", "target"),
    "deadline": ("worth", "by"),
}
_MOST_CHARACTERS = 200
MOST_WORTH = 1e9
"""A worth beyond this is refused: prices and worths are added, and would lose the small ones."""
LONGEST_S = 10 * 366 * 86400.0
"""Ten years; no time of a utility is longer."""


def parse_utility(text: str, slot_s: float, own: Mapping[str, Maker] | None = None) -> Utility:
    """The utility that `text` describes, in slots of `slot_s` seconds; `own` are the site's kinds by name.

    Raises UsageError with the place and the remedy; the text is a user's, and repeated cut short and printable.
    """
    own = own or {}
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(f"utility: {len(text)} characters are too many; write at most {_MOST_CHARACTERS}")
    call = _CALL.fullmatch(text)
    if call is None:
        raise UsageError(f"utility {shown(text)}: no NAME(…); write for example sigmoid(10, 0.5, 20m)")
    name, inside = call[1], call[2]
    words = [word.strip() for word in inside.split(",")] if inside.strip() else []
    if name in _ARGUMENTS:
        names = _ARGUMENTS[name]
        if len(words) != len(names):
            raise UsageError(
                f"utility {shown(text)}: {name} takes {len(names)} arguments ({', '.join(names)}), not {len(words)}"
            )
        values = [
            _argument(word, argument, text, slot_s) for word, argument in zip(words, names, strict=True)
        ]
        return _known(name, values, text, slot_s)
    if name not in own:
        known = ", ".join([*_ARGUMENTS, *sorted(own)])
        raise UsageError(f"utility {shown(text)}: no kind of that name; there are {known}")
    arguments = tuple(_argument(word, "", text, slot_s) for word in words)
    try:
        made = own[name](arguments, slot_s)
        made(1.0)
    except Exception as error:  # a site's own code, given a user's numbers
        raise UsageError(f"utility {shown(text)}: {name} refuses it: {shown(str(error))}") from error
    return made


def _known(name: str, values: list[float], text: str, slot_s: float) -> Utility:
    match name, values:
        case "constant", [worth]:
            return Constant(worth)
        case "sigmoid", [worth, decay, target_s]:
            return Sigmoid(worth, decay, target_s / slot_s)
        case "deadline", [worth, by_s]:
            return Deadline(worth, by_s / slot_s)
    worth, by_s, zero_s = values
    if zero_s <= by_s:
        raise UsageError(f"utility {shown(text)}: zero must be later than by; swap or change them")
    return Linear(worth, by_s / slot_s, zero_s / slot_s)


def _argument(word: str, argument: str, text: str, slot_s: float) -> float:
    """One number: a worth, a rate a slot, or a time in seconds; `argument` is empty for a site's own, which takes any.

    A site's own takes plain numbers as they are.
    """
    value = math.nan
    rate = _RATE.fullmatch(word)
    plain = _PLAIN.fullmatch(word)
    clock = _CLOCK.fullmatch(word)
    if rate and argument in ("decay", ""):
        value = float(rate[1]) * slot_s / _UNITS_S[rate[2]]
    elif plain and (argument not in ("worth", "decay") or not plain[2]):
        value = float(plain[1]) * _UNITS_S[plain[2] or ""]
    elif clock and argument not in ("worth", "decay"):
        value = _clock_s(clock)
    most = {"worth": MOST_WORTH, "decay": 1e6}.get(argument, LONGEST_S)
    if not value <= most:
        example = {"worth": "10", "decay": "0.5, 0.05/m or 3/h"}.get(
            argument, "90s, 20m, 1.5h, 2d or 1-12:00:00"
        )
        raise UsageError(
            f"utility {shown(text)}: {argument or 'argument'} {shown(word)} cannot be read or is more than {most:g}; "
            f"write for example {example}"
        )
    return value


def _clock_s(clock: re.Match[str]) -> float:
    """Seconds of Slurm's forms: `mm:ss`, `hh:mm:ss`, `d-hh`, `d-hh:mm`, `d-hh:mm:ss`."""
    days, a, b, c = (int(part) if part else 0 for part in clock.groups())
    if clock[1] is None and clock[4] is None:  # no days and no third number: minutes and seconds
        return a * 60.0 + b
    return days * 86400.0 + a * 3600.0 + b * 60.0 + c
