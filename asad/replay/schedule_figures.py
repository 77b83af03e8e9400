"""The figures of a replay. Definitions are Feitelson's where the field has them; every one is written down here."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from asad.model import Floats
from asad.replay.workload_columns import Workload

TOLERANCE_S, TOLERANCE = 60.0, 0.05
"""A job is worse off if it ended later than without us by more than both 60 s and 5 % of its response there."""

BINS = 400


def later(workload: Workload, end_s: Floats, baseline_end_s: Floats) -> NDArray[np.bool_]:
    """Which jobs ended later than in the baseline, beyond the tolerance."""
    response = baseline_end_s - workload.submit_s
    return end_s - baseline_end_s > np.maximum(TOLERANCE_S, TOLERANCE * response)


def stretched(
    workload: Workload, start_s: Floats, end_s: Floats, done_s: Floats, baseline_end_s: Floats
) -> NDArray[np.bool_]:
    """Which late jobs would not be late, had each run from its start for as long as its work takes alone.

    `done_s` is the isolated work that it got done: its isolated run time, less what a kill cut off.
    """
    late = later(workload, end_s, baseline_end_s)
    return late & ~later(workload, start_s + done_s, baseline_end_s)


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _percentile(values: Floats, q: float) -> float | None:
    return float(np.percentile(values, q)) if len(values) else None


def figures(
    workload: Workload,
    total_cores: int,
    *,
    start_s: Floats,
    end_s: Floats,
    done_s: Floats,
    demand: Floats,
    overran: NDArray[np.bool_],
    cut: NDArray[np.bool_],
    host: NDArray[np.bool_],
    guest: NDArray[np.bool_],
    lent_core_s: float,
    baseline_end_s: Floats | None = None,
    displaced_placebo: float | None = None,
    displaced_unshared_placebo: float | None = None,
    managed: NDArray[np.bool_] | None = None,
) -> dict[str, float | int | None]:
    """The figures of one policy.

    `done_s` is the isolated work that each job got done, `overran` which jobs asked for less time than they needed
    (and so are killed at their limit where limits kill), `cut` which jobs ended with work left, `managed` which ones
    admission admitted, deferred or throttled. Columns are (jobs,).

    Keys: `response` is end - submit, `wait` start - submit, `bounded_slowdown` response over isolated run time, both
    at least 10 s in the denominator and 1 in all; `utilization` Σ cores·isolated work over cores of the machine ·
    makespan; `cpu_utilization` the same with the CPU that jobs really wanted; `delivered_core_s` Σ cores·isolated
    work, `delivered_by_last_submit_core_s` the part done before the last submission; stretches are run time over
    isolated run time; `losers` hosts, guests and managed jobs that ended later than without us (see `later`).

    `late` is all jobs that did, `late_guests` the guests among them. They are late for one of two reasons:
    `stretched_guests` and `stretched_hosts` because sharing slowed them (see `stretched`; a job of both roles counts as
    a guest), `displaced` because they started late, which is all others, also of those that shared or were managed. So
    late = stretched guests + stretched hosts + displaced. `displaced_placebo` is how many jobs are late when as many
    run times are made 1 s longer (a mean over draws). `displaced_unshared` counts late jobs that neither shared nor
    were managed, `displaced_unshared_placebo` those late under the placebo whose run times it left alone.
    `lateness_over_saved` is Σ over late jobs of end - end without us, over Σ over all jobs of what they end sooner
    (None if none does); `stretched_lateness_s` the former sum over stretched jobs alone.
    """
    cores = workload.cores.astype(float)
    response = end_s - workload.submit_s
    wait = start_s - workload.submit_s
    run = end_s - start_s
    isolated = np.maximum(workload.work_s, 1e-9)
    makespan = float(end_s.max() - workload.submit_s.min()) if len(workload) else 0.0
    capacity = total_cores * makespan
    stretch = run / np.maximum(done_s, 1e-9)
    last_submit = float(workload.submit_s.max()) if len(workload) else 0.0
    # work is taken as done evenly over a job's run
    before = np.clip((last_submit - start_s) / np.maximum(run, 1e-9), 0.0, 1.0)
    delivered = float((cores * done_s).sum())
    figures: dict[str, float | int | None] = {
        "jobs": len(workload),
        "makespan_s": makespan,
        "response_mean_s": _mean(response),
        "wait_mean_s": _mean(wait),
        "wait_p95_s": _percentile(wait, 95),
        "bounded_slowdown_mean": _mean(np.maximum(1.0, response / np.maximum(10.0, isolated))),
        "utilization": delivered / capacity if capacity else None,
        "cpu_utilization": float((cores * done_s * demand).sum()) / capacity if capacity else None,
        "delivered_core_s": delivered,
        "delivered_by_last_submit_core_s": float((cores * done_s * before).sum()),
        "host_stretch_mean": _mean(stretch[host]),
        "guest_stretch_mean": _mean(stretch[guest]),
        "runtime_stretch_mean": _mean(stretch),
        "runtime_stretch_p95": _percentile(stretch, 95),
        "lent_core_s": lent_core_s,
        "hosts": int(host.sum()),
        "guests": int(guest.sum()),
        "losers": 0,
        "loss_p95_s": None,
        "loss_max_s": None,
        "late": 0,
        "late_guests": 0,
        "stretched_guests": 0,
        "stretched_hosts": 0,
        "stretched_lateness_s": 0.0,
        "displaced": 0,
        "displaced_placebo": displaced_placebo,
        "displaced_unshared": 0,
        "displaced_unshared_placebo": displaced_unshared_placebo,
        "lateness_over_saved": None,
        "killed": int((overran & ~cut).sum() + cut.sum()),
        "killed_by_lending": int((cut & ~overran).sum()),
    }
    if baseline_end_s is not None:
        touched = host | guest if managed is None else host | guest | managed
        delay = end_s - baseline_end_s
        worse = later(workload, end_s, baseline_end_s)
        slowed = stretched(workload, start_s, end_s, done_s, baseline_end_s) & (host | guest)
        loss = delay[worse & touched]
        saved_s = float(np.maximum(-delay, 0.0).sum())
        figures |= {
            "losers": len(loss),
            "loss_p95_s": _percentile(loss, 95),
            "loss_max_s": float(loss.max()) if len(loss) else None,
            "late": int(worse.sum()),
            "late_guests": int((worse & guest).sum()),
            "stretched_guests": int((slowed & guest).sum()),
            "stretched_hosts": int((slowed & ~guest).sum()),
            "stretched_lateness_s": float(delay[slowed].sum()),
            "displaced": int((worse & ~slowed).sum()),
            "displaced_unshared": int((worse & ~touched).sum()),
            "lateness_over_saved": float(delay[worse].sum()) / saved_s if saved_s > 0 else None,
        }
    return figures


def over_time(
    workload: Workload,
    total_cores: int,
    start_s: Floats,
    end_s: Floats,
    busy: Floats,
    held: NDArray[np.bool_],
) -> tuple[Floats, Floats, Floats]:
    """(edges (B + 1,), allocated (B,), used (B,)): cores held by batch jobs, and cores really busy, over all cores.

    `busy` is the mean number of cores that each job kept busy while it ran; `held` marks batch jobs.
    """
    if len(workload) == 0:
        return np.zeros(1), np.zeros(0), np.zeros(0)
    edges = np.linspace(float(workload.submit_s.min()), float(end_s.max()), BINS + 1)

    def load(weight: Floats, rows: NDArray[np.bool_]) -> Floats:
        """Mean of a sum of boxes in every bin, exactly: differences of its integral at the edges."""
        integral = np.zeros(BINS + 1)
        for times, sign in ((start_s[rows], 1.0), (end_s[rows], -1.0)):
            order = np.argsort(times, kind="stable")
            times, mass = times[order], weight[rows][order] * sign
            weights = np.concatenate(([0.0], np.cumsum(mass)))
            moments = np.concatenate(([0.0], np.cumsum(mass * times)))
            upto = np.searchsorted(times, edges, side="right")
            integral += weights[upto] * edges - moments[upto]
        mean: Floats = np.diff(integral) / (total_cores * np.diff(edges))
        return np.maximum(mean, 0.0)

    return edges, load(workload.cores.astype(float), held), load(busy, np.ones(len(held), np.bool_))
