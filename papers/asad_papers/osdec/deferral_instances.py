"""Instances of deferral: read from files, or drawn.

A file is a numpy archive (`.npz`) of B trajectories of T steps with N jobs in all:

| key | shape | what |
|---|---|---|
| `jobs` | (N, 5) | whole numbers: cores, duration, earliest start, latest start, submission; all but cores in steps |
| `offsets` | (B + 1,) | the jobs of trajectory b are rows offsets[b] to offsets[b + 1] - 1 |
| `capacity` | (B, T) | what on-demand jobs leave in each step |

The paper's trace (Azure's packing trace, cut in ways that are not printed) is not to be had, so the rest is drawn: see
`Setting`. Its Table 4 varies how cores and durations are distributed; the sizes behind those shares are not printed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from asad.defer.jobs import Trajectories
from asad.defer.osdec import SHIPPED
from asad.errors import ConfigError, UsageError
from asad.model import Floats
from asad_papers.instance_files import read_archive

KEYS = ("jobs", "offsets", "capacity")


def read_trajectories(path: Path) -> Trajectories:
    """The trajectories of a file. Raises ConfigError that names the file, the key and the remedy."""
    table = read_archive(path, KEYS, "docs/reference/bench-osdec.md")
    for key in KEYS:
        if key not in table:
            raise ConfigError(f"{path}: {key} is missing; add it (the keys are {', '.join(KEYS)})")
    try:
        return Trajectories.of(table["jobs"], table["offsets"], table["capacity"], str(path))
    except UsageError as error:
        raise ConfigError(str(error)) from error


def fresh_seed() -> int:
    """The first seed of trajectories that nobody has looked at: of the SHA-256 of all networks that ship with asad.

    A new network changes it, and so meets days that no choice about it was made on.
    """
    digest = hashlib.sha256()
    for entry in sorted(resources.files(SHIPPED).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith((".json", ".npz")):
            digest.update(entry.name.encode() + b"\0" + entry.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")


@dataclass(frozen=True, slots=True)
class Setting:
    """From what trajectories are drawn. The defaults are those of the recorded instances."""

    steps: int = 96
    total: float = 100.0
    """Cores of which on-demand jobs take a daily sine and an AR(1) process; what they leave is rounded."""
    mean: float = 55.0
    amplitude: float = 20.0
    period: int = 48
    """Steps a day."""
    phase: float = 0.1
    """At which part of the rising sine a trajectory begins, in days. Not known of the recorded ones: fitted to them."""
    persistence: float = 0.8
    deviation: float = 3.0
    """Of the AR(1) process, from 0 at the first step: the coefficient, and the deviation of what is added a step."""
    least: float = 5.0
    """The least capacity, in cores."""
    cores: tuple[int, ...] = (1, 2, 4, 8, 16)
    core_shares: tuple[float, ...] = (0.42, 0.26, 0.18, 0.09, 0.05)
    median: float = 3.0
    sigma: float = 0.8
    """Of the lognormal durations, in steps, rounded to 1 to `longest`; where no shares are given."""
    longest: int = 24
    duration_shares: tuple[float, ...] = ()
    """Of durations of 1, 2, … steps, instead."""
    lead: int = 12
    """Earliest starts are 0 to so many steps after submission, evenly."""
    window: int = 8
    """Latest starts are 0 to so many steps after the earliest, evenly."""
    load: float = 1.1
    """Core-steps that are submitted a step, in the mean, as a multiple of the trajectory's mean capacity."""


SETTINGS: Mapping[str, Setting] = {
    "recorded": Setting(),
    "cores-1": Setting(cores=(1, 2, 4, 8), core_shares=(0.51, 0.37, 0.08, 0.04)),
    "cores-2": Setting(cores=(1, 2, 4, 8), core_shares=(0.25, 0.25, 0.25, 0.25)),
    "cores-3": Setting(cores=(1, 2, 4, 8), core_shares=(0.4, 0.3, 0.2, 0.1)),
    "durations-1": Setting(duration_shares=(1 / 6,) * 6),
    "durations-2": Setting(duration_shares=(0.4, 0.25, 0.15, 0.1, 0.05, 0.05)),
    "durations-3": Setting(duration_shares=(0.6, 0.25, 0.1, 0.05, 0.0, 0.0)),
}
"""The recorded one, and Table 4's six. Its shares of cores fit 1, 2, 4 and 8 (the totals printed are in proportion to
the means of these); its six durations are taken for 1 to 6 steps."""


def draw_trajectories(seeds: Iterable[int], setting: Setting | None = None) -> Trajectories:
    """One trajectory a seed. The same seed and setting give the same one, alone or among others.

    Jobs that might not start before the end are left out, and latest starts end with it. Raises UsageError for a
    setting that cannot be, and for no seed.
    """
    setting = setting or Setting()
    _check(setting)
    drawn = [_draw(seed, setting) for seed in seeds]
    if not drawn:
        raise UsageError("no seeds; give at least one")
    first = np.concatenate(([0], np.cumsum([len(jobs) for jobs, _ in drawn])))
    return Trajectories.of(
        np.concatenate([jobs for jobs, _ in drawn]), first, np.array([capacity for _, capacity in drawn])
    )


def draw_jobs(capacity: Floats, setting: Setting | None = None, seed: int = 0) -> Trajectories:
    """Jobs as a setting has them, for trajectories of a given `capacity` (B, T)."""
    setting = replace(setting or Setting(), steps=capacity.shape[1])
    _check(setting)
    drawn = [
        _draw_jobs(np.random.default_rng((seed, number)), setting, row) for number, row in enumerate(capacity)
    ]
    first = np.concatenate(([0], np.cumsum([len(jobs) for jobs in drawn])))
    return Trajectories.of(np.concatenate(drawn), first, capacity)


def _draw(seed: int, setting: Setting) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], Floats]:
    rng = np.random.default_rng(seed)
    steps = setting.steps
    noise = rng.normal(0.0, setting.deviation, steps)
    noise[0] = 0.0
    wandering = np.asarray(lfilter([1.0], [1.0, -setting.persistence], noise))
    day = np.sin(2 * math.pi * (np.arange(steps) / setting.period + setting.phase))
    demand = setting.mean + setting.amplitude * day + wandering
    capacity: Floats = np.maximum(setting.least, np.rint(setting.total - demand))
    return _draw_jobs(rng, setting, capacity), capacity


def _draw_jobs(
    rng: np.random.Generator, setting: Setting, capacity: Floats
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    steps, shares = setting.steps, setting.duration_shares
    lengths = np.arange(1, len(shares) + 1) if shares else np.arange(1, setting.longest + 1)
    of_lengths = np.array(shares) if shares else lognormal_shares(setting)
    work = float(np.dot(setting.cores, setting.core_shares) * np.dot(lengths, of_lengths))
    submitted = np.repeat(np.arange(steps), rng.poisson(setting.load * capacity.mean() / work, steps))
    many = len(submitted)
    cores = rng.choice(setting.cores, many, p=setting.core_shares)
    duration = rng.choice(lengths, many, p=of_lengths)
    earliest = submitted + rng.integers(0, setting.lead, many, endpoint=True)
    latest = np.minimum(steps - 1, earliest + rng.integers(0, setting.window, many, endpoint=True))
    jobs = np.column_stack((cores, duration, earliest, latest, submitted))
    return jobs[earliest < steps].astype(np.int64)


def lognormal_shares(setting: Setting) -> Floats:
    """(longest,) How often a duration of 1, 2, … steps is drawn: the lognormal law, rounded and clipped."""
    from scipy.special import ndtr

    bounds = np.arange(1, setting.longest) + 0.5
    below = ndtr(np.log(bounds / setting.median) / setting.sigma)
    found: Floats = np.diff(np.concatenate(([0.0], below, [1.0])))
    return found


def _check(setting: Setting) -> None:
    for key in ("steps", "period", "longest"):
        if not 1 <= getattr(setting, key) <= 1_000_000:
            raise UsageError(f"setting: {key} is {getattr(setting, key)}; give 1 to 1000000")
    for key in ("lead", "window"):
        if not 0 <= getattr(setting, key) <= 1_000_000:
            raise UsageError(f"setting: {key} is {getattr(setting, key)}; give 0 to 1000000")
    for key in ("median", "sigma", "load", "total"):
        if not 0 < getattr(setting, key) < 1e6:
            raise UsageError(f"setting: {key} is {getattr(setting, key)}; give a number above 0")
    for key, many in (("core_shares", len(setting.cores)), ("duration_shares", len(setting.duration_shares))):
        shares = getattr(setting, key)
        if len(shares) != many or (shares and (min(shares) < 0 or abs(sum(shares) - 1.0) > 1e-9)):
            raise UsageError(f"setting: {key} is {shares}; give {many} shares that add up to 1")
    if not setting.cores or min(setting.cores) < 1:
        raise UsageError(f"setting: cores is {setting.cores}; give sizes above 0")


def setting_of(name: str, **changes: float) -> Setting:
    """A setting by name, some numbers changed. Raises UsageError."""
    if name not in SETTINGS:
        raise UsageError(f"setting {name!r}: there are {', '.join(SETTINGS)}")
    return replace(SETTINGS[name], **changes)  # type: ignore[arg-type]
