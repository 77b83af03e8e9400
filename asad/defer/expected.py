"""What is to be expected: the capacity of the next steps, and the jobs that nobody has submitted yet.

The capacity is a daily profile plus what is left of the present deviation from it,
C_{t+k} ≈ p_{t+k} + ρ^k (C_t − p_t), the best forecast of an AR(1) process around p. Jobs come at a mean rate, in
classes of duration and window. Both are fitted to trajectories that were seen (`asactl defer fit`), or, without any,
taken from what a policy is shown (`of_past`). Nothing here looks ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from asad.defer.jobs import Waiting
from asad.errors import ConfigError
from asad.model import Floats, Ints
from asad.tables import fitted

SCHEMA = 1
DURATIONS = (4, 24)
"""Upper ends of the classes of duration, the last for all that is longer."""
WINDOWS = (8,)
"""The same of latest less earliest start. More classes of either were no better."""
NEAR = 3
"""Steps ahead whose jobs stand for those to come, where nothing was fitted."""


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """Made by `of_past` or `read_expected`."""

    profile: Floats
    """(P,) C_t in each step of a day; one number where no day is known."""
    persistence: float
    """ρ, 0 to 1."""
    coming: Floats
    """(K,) Cores of each class of jobs whose earliest start falls into a step, in the mean."""
    duration: Ints
    window: Ints
    """(K,) Of the classes, in steps."""
    unknown: Floats
    """(L,) Of the jobs whose earliest start is k = 1, 2, … steps ahead, which share is not submitted yet; then all."""

    def capacity(self, now: int, present: float, steps: int) -> Floats:
        """(steps,) Of the present step, the next, and so on; 0 or more."""
        ahead = np.arange(steps)
        day = self.profile[(now + ahead) % len(self.profile)]
        found: Floats = np.maximum(0.0, day + self.persistence**ahead * (present - day[0]))
        return found


def of_past(waiting: Waiting, period: int) -> Expected:
    """From what a policy is shown alone: a day once two have been seen, and the jobs that are known for later.

    Of those whose earliest start is one to `NEAR` steps ahead it is taken that most are known.
    """
    seen = waiting.history
    if period > 0 and len(seen) >= 2 * period:
        step = (np.arange(len(seen)) - (len(seen) - 1) + waiting.now) % period
        profile = np.bincount(step, weights=seen, minlength=period) / np.bincount(step, minlength=period)
        left = seen - profile[step]
    else:
        profile = np.array([float(seen.mean())])
        left = seen - profile
    near = (waiting.earliest > waiting.now) & (waiting.earliest <= waiting.now + NEAR)
    coming, duration, window = classes_of(
        waiting.cores[near], waiting.duration[near], (waiting.latest - waiting.earliest)[near], NEAR
    )
    ahead = waiting.earliest - waiting.now
    by_step = np.bincount(ahead[ahead > 0], weights=waiting.cores[ahead > 0])[1:]
    mean = coming.sum()
    unknown = np.clip(1.0 - by_step / mean, 0.0, 1.0) if mean > 0 else np.zeros(0)
    return Expected(profile, persistence_of(left), coming, duration, window, np.append(unknown, 1.0))


def persistence_of(left: Floats) -> float:
    """ρ of what is left of the capacity (…, steps) beside its profile, 0 to 0.999."""
    before, after = left[..., :-1], left[..., 1:]
    squares = float((before**2).sum())
    return min(0.999, max(0.0, float((after * before).sum()) / squares)) if squares > 0 else 0.0


def classes_of(cores: Ints, duration: Ints, span: Ints, steps: int) -> tuple[Floats, Ints, Ints]:
    """Cores a step, mean duration and mean window of each class that has jobs."""
    coming: list[float] = []
    lengths: list[int] = []
    windows: list[int] = []
    below = 0
    for upper in DURATIONS:
        here = (duration > below) & ((duration <= upper) | (upper == DURATIONS[-1]))
        narrow = -1
        for wide in WINDOWS:
            mine = here & (span > narrow) & ((span <= wide) | (wide == WINDOWS[-1]))
            if mine.any():
                coming.append(float(cores[mine].sum()) / max(1, steps))
                lengths.append(max(1, round(float(duration[mine].mean()))))
                windows.append(round(float(span[mine].mean())))
            narrow = wide
        below = upper
    return np.array(coming), np.array(lengths, np.int32), np.array(windows, np.int32)


def read_expected(path: str = "") -> Expected:
    """From a file (TOML), empty for the one that ships. Raises ConfigError with file, key and remedy."""
    document, path = fitted(path, "asad_profiles.defer/expected.toml", SCHEMA, "fit anew")
    found = {key: _numbers(path, key, document.get(key)) for key in ("profile", "coming", "unknown")}
    whole = {key: _numbers(path, key, document.get(key)) for key in ("duration", "window")}
    persistence = document.get("persistence")
    if not isinstance(persistence, int | float) or isinstance(persistence, bool) or not 0 <= persistence <= 1:
        raise ConfigError(f"{path}: persistence is {persistence!r:.80}; give a number, 0 to 1")
    if not len(found["profile"]) or not len(found["unknown"]):
        raise ConfigError(f"{path}: profile or unknown is empty; give at least one number each")
    if not len(found["coming"]) == len(whole["duration"]) == len(whole["window"]):
        raise ConfigError(f"{path}: coming, duration and window differ in length; give one number a class")
    if (whole["duration"] < 1).any():
        raise ConfigError(f"{path}: duration holds 0; give steps, 1 or more")
    return Expected(
        found["profile"],
        float(persistence),
        found["coming"],
        whole["duration"].astype(np.int32),
        whole["window"].astype(np.int32),
        np.minimum(1.0, found["unknown"]),
    )


def _numbers(path: str, key: str, given: Any) -> Floats:
    good = isinstance(given, list) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= 1e9 for one in given
    )
    if not good:
        raise ConfigError(f"{path}: {key} is not a list of numbers, 0 to 1e9; fit anew")
    return np.array(given, np.float64)
