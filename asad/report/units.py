"""Numbers and names as people read them: the same words on the terminal, in the figures and on the page."""

from __future__ import annotations

import math

THIN = "\u202f"  # narrow no-break space: between thousands, and between a number and its unit
SPACE = "\u00a0"  # no-break space, so that `5 h 31 min` stays on one line
MINUS = "\u2212"
NONE = "–"


def plain(text: object, limit: int = 200) -> str:
    """`text` fit to be shown: one line of at most `limit` characters that cannot steer a terminal.

    Users choose the names of jobs. Control characters, bidirectional overrides, lone surrogates and the like
    become U+FFFD, so that it can be seen that something was there.
    """
    shown = "".join(letter if letter.isprintable() else "\ufffd" for letter in str(text)[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def number(value: float | None, decimals: int = 0) -> str:
    """`value` with thin spaces between thousands; `–` for none or NaN."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{abs(value):,.{decimals}f}"
    sign = MINUS if value < 0 and float(text.replace(",", "")) else ""
    return sign + text.replace(",", THIN)


def decimals_for(value: float) -> int:
    """Decimals that leave three figures of `value`, at most two."""
    size = abs(value)
    return 0 if size >= 100 else 1 if size >= 10 else 2


def duration(seconds: float | None) -> str:
    """`seconds` in the two units that matter: `42 s`, `12 min 5 s`, `5 h 31 min`, `12 d 4 h`."""
    if seconds is None or not math.isfinite(seconds):
        return number(seconds)
    sign = MINUS if seconds < 0 else ""
    whole = round(abs(seconds))
    if whole == 0:
        return f"0{THIN}s"
    for (large, length), (small, part) in (
        (("d", 86_400), ("h", 3_600)),
        (("h", 3_600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if whole >= length:
            # rounding to the smaller unit may fill the larger one: 59 min 59.6 s is 1 h
            parts = round(whole / part)
            first, rest = divmod(parts, length // part)
            text = f"{sign}{number(first)}{THIN}{large}"
            return f"{text}{SPACE}{rest}{THIN}{small}" if rest else text
    return f"{sign}{whole}{THIN}s"


def percent(fraction: float | None) -> str:
    """`fraction` as per cent, with one decimal below ten."""
    if fraction is None or not math.isfinite(fraction):
        return number(fraction)
    value = fraction * 100
    whole = not round(value, 1) or round(abs(value), 1) >= 10
    return f"{number(value, 0 if whole else 1)}{THIN}%"


def change(ratio: float | None) -> str:
    """A difference of `ratio` (0.1 is a tenth more) with its sign: `−12 %`, `+3.4 %`, `±0 %`."""
    if ratio is None or not math.isfinite(ratio):
        return NONE
    value = ratio * 100
    decimals = 1 if round(abs(value), 1) < 10 else 0
    text = number(value, decimals)
    if not float(f"{abs(value):.{decimals}f}"):
        return f"±0{THIN}%"
    return f"{'' if text.startswith(MINUS) else '+'}{text}{THIN}%"


def points(difference: float | None) -> str:
    """A difference of two shares in percentage points, with its sign."""
    if difference is None or not math.isfinite(difference):
        return NONE
    text = number(difference * 100, 1)
    if not float(f"{abs(difference) * 100:.1f}"):
        return f"±0{THIN}pp"
    return f"{'' if text.startswith(MINUS) else '+'}{text}{THIN}pp"


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit (symbol, seconds) in which a time of this size is written."""
    size = abs(seconds)
    if size >= 100 * 3_600:
        return "d", 86_400.0
    if size >= 3_600:
        return "h", 3_600.0
    return ("min", 60.0) if size >= 60 else ("s", 1.0)


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 job`, `2 310 jobs`."""
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def ascii_only(text: str) -> str:
    """`text` for a terminal that knows nothing but ASCII."""
    swaps = {
        THIN: " ",
        SPACE: " ",
        MINUS: "-",
        NONE: "-",
        "±": "+-",
        "…": "...",
        "·": "-",
        "’": "'",
        "“": '"',
        "”": '"',
        "→": "->",
        "∞": "inf",
    }
    return "".join(swaps.get(letter, letter if letter.isascii() else "?") for letter in text)
