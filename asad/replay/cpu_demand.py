"""How much CPU each job really wants, as a fraction of its allocation, and how that is known.

In this order: measured (the log has CPU times), profiled (a workload profile names the application), assumed (a
distribution per application, never one number for all).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from asad.applications import normal
from asad.bounded import toml_of
from asad.errors import ConfigError
from asad.model import Floats, JobLog
from asad.tables import FILE_WORDS, Is, key_lines, read_table

LEAST = 0.01
"""No job is taken to want less than this: a rate has to be divided by it."""

SOURCES = ("measured", "profiled", "assumed")


@dataclass(frozen=True, slots=True)
class Assumption:
    """A Beta distribution over applications."""

    mean: float = 0.6
    concentration: float = 5.0
    """α + β: the greater, the more alike applications are."""

    def draw(self, count: int, seed: int) -> Floats:
        """`count` demands in [LEAST, 1], the same for the same seed."""
        rng = np.random.default_rng(np.random.SeedSequence((seed, 0xDE)))
        alpha = self.mean * self.concentration
        return np.clip(rng.beta(alpha, self.concentration - alpha, count), LEAST, 1.0)

    def __str__(self) -> str:
        return (
            f"Beta with mean {self.mean:g} and concentration {self.concentration:g}, one draw an application"
        )


@dataclass(frozen=True, slots=True)
class _Assumed:
    """`[assume]` of a file."""

    mean: Annotated[float, Is(above=0.0, below=1.0)] = 0.6
    concentration: Annotated[float, Is(above=0.0)] = 5.0
    use_measured: bool = True


@dataclass(frozen=True, slots=True)
class _File:
    applications: Mapping[str, Annotated[float, Is(above=0.0, most=1.0)]] = field(default_factory=dict)
    assume: _Assumed = _Assumed()


@dataclass(frozen=True, slots=True)
class DemandProfile:
    """What is known or assumed of applications before a replay."""

    applications: Mapping[str, float] = field(default_factory=dict)
    """Pattern of `user/name/size` (shell wildcards) → demand; the first that matches counts."""
    assumption: Assumption = field(default_factory=Assumption)
    use_measured: bool = True
    """Prefer CPU times of the log where it has them."""
    factor: float = 1.0
    """Every assumed demand is multiplied by this (and cut at 1): how far off may the assumption be?"""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of each job, and where it comes from."""

    fraction: Floats
    source: NDArray[np.int8]
    """Index into SOURCES."""

    def shares(self) -> dict[str, float]:
        """Share of the jobs by source; sums to 1 (all 0 without jobs)."""
        count = max(1, len(self.source))
        return {name: int(np.count_nonzero(self.source == k)) / count for k, name in enumerate(SOURCES)}


def read_demand(text: str) -> DemandProfile:
    """A profile from what an operator gives: a TOML file, `beta:MEAN` or `beta:MEAN:CONCENTRATION`.

    The file: `[applications]` with `"user/name/size" = 0.35` (wildcards; the sizes are powers of two), and
    `[assume]` with `mean`, `concentration`, and `use_measured = false` to leave CPU times of the log alone.
    Raises ConfigError that names file, key and remedy.
    """
    if text.startswith("beta:"):
        parts = text.split(":")[1:]
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2):
            raise ConfigError(
                f"--demand {text}: not a distribution; write beta:MEAN or beta:MEAN:CONCENTRATION"
            )
        given = dict(zip(("mean", "concentration"), numbers, strict=False))
        made, faults = read_table(_Assumed, given, FILE_WORDS, ())
        if faults:
            raise ConfigError(f"--demand {text}: {faults[0].text}")
        return DemandProfile(assumption=Assumption(made.mean, made.concentration))
    path = Path(text)
    try:
        content = path.read_text(encoding="utf-8")
        table = toml_of(content)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a demand profile, or beta:MEAN") from None
    except ValueError as error:  # of TOML, or no UTF-8
        raise ConfigError(f"{path}: {error}; correct the TOML") from None
    profile, faults = read_table(_File, table, FILE_WORDS, ())
    if faults:
        lines = key_lines(content)
        raise ConfigError("\n".join(fault.located(str(path), lines) for fault in faults))
    assumption = Assumption(profile.assume.mean, profile.assume.concentration)
    return DemandProfile(profile.applications, assumption, profile.assume.use_measured)


def assign(
    log: JobLog,
    fingerprint: NDArray[np.int32],
    names: tuple[str, ...],
    profile: DemandProfile,
    seed: int,
) -> Demand:
    """The demand of every job of `log`, whose applications are `fingerprint` (codes) and `names`."""
    by_application = profile.assumption.draw(len(names), seed) * profile.factor
    source_of = np.full(len(names), SOURCES.index("assumed"), np.int8)
    # a pattern may have the numbers of a job's name, which its application has not
    patterns = [(pattern, _normal(pattern), value) for pattern, value in profile.applications.items()]
    if patterns:
        for code, name in enumerate(names):
            for pattern, normalised, value in patterns:
                if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, normalised):
                    by_application[code] = value
                    source_of[code] = SOURCES.index("profiled")
                    break
    fraction = by_application[fingerprint]
    source = source_of[fingerprint]
    if profile.use_measured:
        measured = np.isfinite(log.cpu_time_s) & (log.run_s > 0)
        fraction = np.where(measured, log.cpu_time_s / (log.run_s * log.cores), fraction)
        source = np.where(measured, np.int8(SOURCES.index("measured")), source)
    return Demand(np.clip(fraction, LEAST, 1.0), source)


def _normal(pattern: str) -> str:
    """A pattern of `user/name/size` with its name as applications have it."""
    user, slash, rest = pattern.partition("/")
    name, again, size = rest.rpartition("/")
    return f"{user}{slash}{normal(name)}{again}{size}"


def believed(fraction: Floats, fingerprint: NDArray[np.int32], error: float, seed: int) -> Floats:
    """(jobs,) The demand that asad is to believe: `fraction` · (1 + e), cut to [LEAST, 1].

    e is uniform in ±`error` (from 0 on), drawn by `seed` once for each application of `fingerprint` (codes from -1,
    not recorded, on): all jobs of an application are misjudged alike, also those whose demand was measured. What one is
    misjudged by depends on its code and the seed alone, and grows with `error` in proportion.
    """
    codes = np.asarray(fingerprint, np.int64) + 1
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0xBE)))
    off = rng.uniform(-1.0, 1.0, int(codes.max(initial=0)) + 1)
    return np.clip(fraction * (1.0 + error * off[codes]), LEAST, 1.0)
