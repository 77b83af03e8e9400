"""What can be set of the policies that lend from pools: `[share.asax]` and `[share.measured]` of the configuration."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """Knobs of the policies. Shares and fractions in [0, 1], times in seconds."""

    headroom: float = 0.1
    """Share of its cores that a host keeps beyond the 95th percentile of its use, and free cores beyond usual use."""
    pace_target: float = 0.9
    """Nodes on which a guest runs at this rate are as good as any: the smallest pools that suffice are taken."""
    least_rate: float = 0.2
    """No guest is expected to run slower than this, on the slowest of its nodes."""
    margin: float = 0.1
    """A guest should end sooner than by waiting by this part of its run time at least."""
    early: float = 0.3
    """Quantile of (real wait / estimated wait) that counts as the wait a job would have had by itself."""
    pressure: float = 0.2
    """Where a host waits for CPU for more of the time, its guests' quotas are left to the guard."""
    host_loss: float = 0.054
    """Part of its pace that a host may lose beside guests, by calibration."""
    slack_s: float = 60.0
    """A delay of so many seconds does not hurt a job, nor does one of the part `slack` of its response: nodes of
    hosts that would be later than that with guests take no more of them."""
    slack: float = 0.05
    """See `slack_s`."""
    again_s: float = 60.0
    """After a look in vain for nodes, so long until the next."""
    patience_s: float = 60.0
    """After an offer that came to nothing, so long until the next."""
    exploration: float = 0.05
    """Chance of a draw that ignores the experts (the floor that importance weighting needs)."""
    importance: bool = True
    """Divide a loss by the chance of its action (EXP4), so that rare actions are judged fairly."""
    idle_weight: float = 0.5
    """Loss of withholding all of a host's spare CPU from a guest that it would have fitted."""
    full_scale: float = 0.5
    """Slowdown of the host that counts as a loss of 1 (paper, §4.4)."""
    most_cases: int = 50
    """A round of Algorithm 1 ends after so many cases even if no risk has exceeded 1."""
    redraw_s: float = 600.0
    """A host's share is drawn anew so often, and its loss learned."""
    soonest_redraw_s: float = 60.0
    """Where its share alone stopped a guest it is drawn anew sooner, but no sooner than this."""
    poll_s: float = 30.0
    """Interval of the cycle."""
