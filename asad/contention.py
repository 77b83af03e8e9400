"""What sharing cores costs beyond the share itself: the measured constants μ of the recorded cluster.

`asactl calibrate` measures them and writes the file that is read here; the model is in
docs/explanation/contention.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from asad.bounded import toml_of
from asad.errors import ConfigError
from asad.tables import NEEDED, Column, Is, Words, read

REMEDY = "measure the file anew with `asactl calibrate --out FILE`, or correct it by hand"
CONSTANTS = ("mu_host_cpu", "mu_guest_cpu", "mu_host_memory", "mu_guest_memory")
COLUMNS = dict.fromkeys(CONSTANTS, Column(float, NEEDED, Is(above=0.0, most=1.0))) | dict.fromkeys(
    ("spread", "unclipped"), Column(Any, None, Is())
)
_WRONG = f"{{place}} = {{value}} is not a number above 0 and at most 1; {REMEDY}"
WORDS = Words(
    unknown="unknown key '{place}'; {nearest}",
    known="the constants are",
    missing=f"{{place}} is missing; {REMEDY}",
    number=_WRONG,
    range=_WRONG,
)


@dataclass(frozen=True, slots=True)
class Contention:
    """Factors in (0, 1] on the rate that a job would have if its share of the cores were all that counted."""

    mu_host_cpu: float
    mu_guest_cpu: float
    """For pairs that compute and leave memory alone."""
    mu_host_memory: float
    mu_guest_memory: float
    """For pairs that live on memory bandwidth."""
    origin: str
    """The file they come from."""

    def at(self, memory_fraction: float) -> tuple[float, float]:
        """μ of host and guest for a pair that uses `memory_fraction` of its node's memory.

        Linear between the two measured ends; beyond [0, 1] counts as the end, NaN (unknown) as half.
        """
        weight = 0.5 if math.isnan(memory_fraction) else min(max(memory_fraction, 0.0), 1.0)
        return (
            (1 - weight) * self.mu_host_cpu + weight * self.mu_host_memory,
            (1 - weight) * self.mu_guest_cpu + weight * self.mu_guest_memory,
        )


def load_contention(path: Path | None = None, lending: str = "idle") -> Contention:
    """The constants in `path`, or those that asad ships (profiles/contention.toml).

    `lending` is `idle` (guests in the idle class, as asad lends) or `static` (quotas on host and guest, as
    the paper does; table `[static]`, or the same as `idle` where that was not measured, and then `origin`
    says so).

    Raises ConfigError, which names file, key and remedy, for a file that cannot be read, a key that
    is unknown or missing, and a μ that is not in (0, 1].
    """
    if lending not in ("idle", "static"):
        raise ConfigError(f"lending {lending!r} is unknown; choose idle or static")
    source = files("asad_profiles") / "contention.toml" if path is None else path
    try:
        table = toml_of(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read ({error.strerror}); {REMEDY}") from error
    except ValueError as error:  # of TOML, or no UTF-8
        raise ConfigError(f"{source}: not TOML ({error}); {REMEDY}") from error
    static = table.pop("static", None)
    table.pop("measured", None)
    found = read_constants(table, str(source))
    if static is not None:
        if not isinstance(static, dict):
            raise ConfigError(f"{source}: static = {static!r:.80} is not a table; {REMEDY}")
        checked = read_constants(static, f"{source} [static]", "static")
        return checked if lending == "static" else found
    return (
        found if lending == "idle" else replace(found, origin=f"{source} (idle class: static not measured)")
    )


def read_constants(table: dict[str, object], origin: str, *at: str) -> Contention:
    """Check one table of four constants, `at` this place of the file. Raises ConfigError."""
    values, faults = read(COLUMNS, table, WORDS, at)
    if faults:
        raise ConfigError(f"{origin}: {faults[0].text}")
    return Contention(**{key: values[key] for key in CONSTANTS}, origin=origin)
