"""What can be set of `asax`: `[share.asax]` of the configuration."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """Knobs of the policy. Shares and fractions in [0, 1], times in seconds."""

    headroom: float = 0.1
    """Share of its allocation that a host keeps beyond what it uses."""
    exploration: float = 0.05
    """Chance of a draw that ignores the experts (the floor that importance weighting needs)."""
    importance: bool = True
    """Divide a loss by the chance of its action (EXP4), so that rare actions are judged fairly."""
    idle_weight: float = 0.5
    """Loss of withholding all of a host's CPU from a guest that could have used it."""
    full_scale: float = 0.5
    """Slowdown of the host that counts as a loss of 1 (paper, §4.4)."""
    most_cases: int = 50
    """A round of Algorithm 1 ends after so many cases even if no risk has exceeded 1."""
    tries: int = 3
    """Hosts that one job is tried on in one cycle."""
    patience_s: float = 60.0
    """After a draw of nothing, so long until the next."""
    again_s: float = 30.0
    """After a search in vain for a host, so long until the next."""
    least_happiness: float = 1.05
    """A host whose happiness is known and below this lends nothing more."""
    overhead: float = 0.93
    """Rate to expect of a job beside another, before anything is known."""
    full_rate: float = 0.95
    """Share of its full speed at which a guest is hardly slowed; such jobs are offered hosts before the others."""
    least_rate: float = 0.2
    """No guest is expected to run slower than this."""
    pessimism: float = 2.0
    """Standard deviations of its application's run time by which a guest may run longer than the mean."""
    outlast: float = 1.0
    """A host is expected to run on for this fraction of the time that it has run, unless its application's run times
    promise more."""
    most_losers: float = 0.002
    """While no more than `free_losers` and this part of the jobs that shared have ended late, the policy is bold."""
    free_losers: int = 2
    """Late jobs that are not yet a reason for caution."""
    bold_slack: float = 0.5
    bold_pessimism: float = 0.0
    """`slack` and `pessimism` while it is bold."""
    slack_s: float = 60.0
    slack: float = 0.05
    """A delay of so many seconds, or of this fraction of its response, does not hurt a job."""
    early: float = 0.2
    """Quantile of (real wait / estimated wait) that counts as the wait a job would have had by itself."""
    look_ahead: int = 32
    """Up to so many waiting jobs, all well known, pairs are searched by forecast (`search`); 0: never."""
    well_known: float = 0.5
    """Standard deviation over mean up to which the run times of an application count as well known."""
    scenarios: int = 12
    """Run times are drawn so many times to forecast with, to tell a good pair from a lucky one."""
    most_stretch: float = 2.0
    """No guest of a forecast pair is expected to take longer than so many times its run time alone."""
    stretch_weight: float = 4.5
    """Cost of a second that lending takes from a guest, against a second of anybody's response."""
    makespan_weight: float = 20.0
    """Cost of a second of the last end, against the same."""
    restarts: int = 60
    """A search takes the pairs it has found apart by chance, and goes on from there, up to so many times."""
    burst: float = 2.0
    """Cap of a guest over the CPU that it uses on the mean: a job that computes in bursts is slowed by a tight one."""
    least_gain_s: float = 10.0
    """Job-seconds that a pair has to save to be worth it."""
    poll_s: float = 30.0
    """Interval of the cycle."""
