"""What policies of deferral expect, fitted to trajectories that were seen, and written as the files that they read."""

from __future__ import annotations

from typing import Any

import numpy as np

from asad.defer import expected as expecting
from asad.defer import rollout as playing
from asad.defer.expected import Expected, classes_of, persistence_of
from asad.defer.jobs import Trajectories
from asad.defer.outlook import CLASSES, LAGS, LEAD, LOOK, TERMS
from asad.defer.rollout import Rollout
from asad.errors import UsageError
from asad.model import Floats, Ints

HARMONICS = 2
"""Of the day, that a fitted profile follows."""
SAMPLED = 400
"""Jobs of a sample."""
RIDGE = 1e-3
"""Of the least squares of a forecast, in parts of the rows."""


def fit(trajectories: Trajectories, period: int) -> Expected:
    """From what was seen, with `period` steps a day (0: there is no day). Raises UsageError."""
    t = trajectories
    if not 0 <= period <= 100_000:
        raise UsageError(f"period {period}; give steps a day, or 0 for none")
    steps = np.arange(t.steps)
    mean = t.capacity.mean(axis=0)
    if period and t.steps >= period:
        turns = [np.ones(t.steps)]
        for harmonic in range(1, HARMONICS + 1):
            angle = 2 * np.pi * harmonic * steps / period
            turns += [np.sin(angle), np.cos(angle)]
        weights = np.linalg.lstsq(np.array(turns).T, mean, rcond=None)[0]
        profile = np.asarray(np.array(turns).T[:period] @ weights)
        left = t.capacity - profile[steps % period]
    else:
        profile = np.array([mean.mean()])
        left = t.capacity - profile
    lead = t.earliest - t.submitted
    longest = int(min(1000, lead.max(initial=0)))
    unknown = np.array([float((lead < k).mean()) if len(lead) else 1.0 for k in range(1, longest + 2)])
    # a trajectory begins with nobody submitted: the first earliest starts are too few
    begin = min(longest, t.steps // 2)
    full = t.earliest >= begin
    coming, duration, window = classes_of(
        t.cores[full], t.duration[full], (t.latest - t.earliest)[full], len(t) * (t.steps - begin)
    )
    return Expected(profile, persistence_of(left), coming, duration, window, unknown)


def written_expected(found: Expected) -> str:
    """The text of a file for `read_expected`."""

    def listed(values: Floats | Ints) -> str:
        return "[" + ", ".join(f"{float(value):.6g}" for value in values) + "]"

    return (
        f"schema = {expecting.SCHEMA}\npersistence = {found.persistence:.6g}\n"
        f"profile = {listed(np.maximum(0.0, found.profile))}\ncoming = {listed(found.coming)}\n"
        f"duration = {listed(found.duration)}\nwindow = {listed(found.window)}\nunknown = {listed(found.unknown)}\n"
    )


def fit_sample(trajectories: Trajectories, expected: Expected, seed: int = 0) -> tuple[Ints, float, float]:
    """As `asad.defer.rollout.of_shown`, from trajectories that were seen: `SAMPLED` of their jobs, drawn by a seed."""
    t = trajectories
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(t.cores), min(SAMPLED, len(t.cores)), replace=False))
    table = np.column_stack((t.cores, t.duration, t.earliest - t.submitted, t.latest - t.earliest))[rows]
    step = np.arange(t.steps) % len(expected.profile)
    left = t.capacity - expected.profile[step]
    noise = left[:, 1:] - expected.persistence * left[:, :-1]
    return table.astype(np.int32), len(t.cores) / (len(t) * t.steps), float(noise.std())


def written_sample(sample: tuple[Ints, float, float], about: str) -> str:
    """As a file (TOML)."""
    jobs, rate, deviation = sample
    rows = "".join(f"  [{', '.join(str(int(value)) for value in row)}],\n" for row in jobs)
    return (
        f"# {' '.join(about.split())}\nschema = {playing.SCHEMA}\nrate = {rate:.6g}\ndeviation = {deviation:.6g}\n"
        f"# cores, duration, lead, window\njobs = [\n{rows}]\n"
    )


def learned_rollout(trajectories: Trajectories, period: int, **options: Any) -> Rollout:
    """One that expects what these trajectories show, with `period` steps a day, and has no files."""
    made = Rollout(period=period, **options)
    made.expected = made.lookahead.expected = fit(trajectories, period)
    made.sample = fit_sample(trajectories, made.expected)
    return made


def fit_forecast(capacity: Floats, period: float, scale: float) -> Floats:
    """Weights (LOOK, TERMS) of the capacity some steps ahead from its present, fitted by least squares.

    `capacity` (trajectories, steps) in cores; `period` in steps, 0 for none; `scale` in cores. Row 0 is the present
    itself. Steps ahead that no trajectory reaches are taken for the last that one does.
    """
    scaled = np.asarray(capacity, dtype=np.float64) / scale
    rows, steps = scaled.shape
    weights = np.zeros((LOOK, TERMS))
    weights[0, 3] = 1.0
    terms = np.zeros((rows, steps, TERMS))
    terms[:, :, 0] = 1.0
    if period > 0.0:
        angle = 2.0 * np.pi * np.arange(steps) / period
        terms[:, :, 1], terms[:, :, 2] = np.sin(angle), np.cos(angle)
    for lag in range(LAGS):
        terms[:, :, 3 + lag] = scaled[:, np.maximum(np.arange(steps) - lag, 0)]
    for ahead in range(1, LOOK):
        if steps - ahead < 2 * TERMS and ahead > 1:
            weights[ahead] = weights[ahead - 1]
            continue
        left = terms[:, : steps - ahead].reshape(-1, TERMS)
        right = scaled[:, ahead:].reshape(-1)
        gram = left.T @ left + RIDGE * len(left) * np.diag([0.0] + [1.0] * (TERMS - 1))
        weights[ahead] = np.linalg.lstsq(gram, left.T @ right, rcond=None)[0]
    return weights


def fit_coming(trajectories: Trajectories, period: float) -> tuple[Floats, Floats]:
    """(CLASSES, 3) cores a step, duration and window of jobs to come, and (LEAD,) which share is not submitted yet."""
    seen = fit(trajectories, int(period))
    coming = np.zeros((CLASSES, 3))
    split = (seen.duration <= 4, seen.duration > 4)
    for row, mine in zip(coming, split, strict=True):
        total = float(seen.coming[mine].sum())
        if total > 0.0:
            share = seen.coming[mine] / total
            row[:] = total, round(float(share @ seen.duration[mine])), round(float(share @ seen.window[mine]))
    unknown = np.ones(LEAD)
    many = min(LEAD, len(seen.unknown))
    unknown[:many] = seen.unknown[:many]
    return coming, unknown
