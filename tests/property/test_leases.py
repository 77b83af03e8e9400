"""Leases: nothing holds without renewal, whatever happens in whichever order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from asad.node.quota_leases import LEAST_S, MOST_S, RENEWALS, SQUEEZE_S, Leases
from asad.port import Lease

JOBS = ("1", "2", "3")
shares = st.one_of(st.just(math.nan), st.floats(0.0, 1.0))
leases = st.lists(
    st.builds(
        Lease, st.sampled_from(JOBS), st.booleans(), st.sampled_from(("", "9")), shares, st.integers(1, 64)
    ),
    max_size=3,
    unique_by=lambda lease: lease.job_id,
)
lengths = st.floats(-10.0, 1e9)


class LeaseMachine(RuleBasedStateMachine):
    """Beside the leases, only what was sent last and when."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.now_s = 0.0
        self.sent: dict[str, Lease] = {}
        self.sent_until_s = -math.inf
        self.squeezed_s: dict[str, float] = {}
        self.longest_s = LEAST_S

    @rule(jobs=leases, length_s=lengths)
    def renew(self, jobs: list[Lease], length_s: float) -> None:
        self.leases.renew(jobs, length_s, self.now_s)
        kept_s = min(MOST_S, max(LEAST_S, length_s))
        self.sent, self.sent_until_s = {lease.job_id: lease for lease in jobs}, self.now_s + kept_s
        self.longest_s = max(self.longest_s, kept_s)

    @rule(passed_s=st.floats(0.0, 60.0))
    def pass_time(self, passed_s: float) -> None:
        self.now_s += passed_s

    @rule(job_id=st.sampled_from(JOBS))
    def squeeze(self, job_id: str) -> None:
        self.leases.expire(self.now_s)
        if self.leases.squeeze(job_id, "9", self.now_s):
            self.squeezed_s[job_id] = self.now_s

    @rule()
    def expire(self) -> None:
        self.leases.expire(self.now_s)
        assert self.leases.next_s() > self.now_s

    @precondition(lambda self: self.squeezed_s)
    @rule()
    def two_renewals_give_back(self) -> None:
        for _ in range(RENEWALS):
            self.leases.renew(self.sent.values(), 60.0, self.now_s)
        self.sent_until_s = self.now_s + 60.0
        self.longest_s = max(self.longest_s, 60.0)
        assert not self.leases.squeezes

    @rule()
    def silence_lifts_everything(self) -> None:
        self.now_s += max(self.longest_s, SQUEEZE_S) + 1e-3
        assert self.leases.caps(self.now_s) == {}
        self.leases.expire(self.now_s)
        assert self.leases.next_s() == math.inf
        assert self.leases.role("1") is None

    @invariant()
    def what_holds_was_sent_and_has_not_run_out(self) -> None:
        for job_id, (cores, why) in self.leases.caps(self.now_s).items():
            assert why
            if cores == 0.0 and job_id in self.leases.squeezes:
                assert self.now_s - self.squeezed_s[job_id] <= max(self.longest_s, SQUEEZE_S)
                continue
            lease = self.sent[job_id]
            assert self.now_s < self.sent_until_s
            assert cores == lease.quota * lease.cores

    @invariant()
    def what_was_sent_holds_unless_squeezed(self) -> None:
        if self.now_s < self.sent_until_s:
            caps = self.leases.caps(self.now_s)
            for job_id, lease in self.sent.items():
                assert job_id in caps or math.isnan(lease.quota)


TestLeases = LeaseMachine.TestCase


@given(share=shares, other=shares)
def test_a_new_share_ends_a_squeeze_at_once_and_the_same_does_not(share: float, other: float) -> None:
    held = Leases()
    held.renew([Lease("1", True, "9", share, 4)], 30.0, 0.0)
    assert held.squeeze("1", "9", 1.0)
    assert not held.squeeze("1", "9", 2.0)
    assert held.caps(2.0)["1"][0] == 0.0
    held.renew([Lease("1", True, "9", other, 4)], 30.0, 3.0)
    same = share == other or (math.isnan(share) and math.isnan(other))
    assert ("1" in held.squeezes) is same


@given(length_s=lengths, jump_s=st.floats(0.0, 1e9))
def test_a_lease_has_bounds(length_s: float, jump_s: float) -> None:
    held = Leases()
    held.renew([Lease("1", True, "", 0.5, 2)], length_s, 0.0)
    holds = jump_s < min(MOST_S, max(LEAST_S, length_s))
    assert (held.caps(jump_s) == {"1": (1.0, "leased: 50% of 2 cores")}) is holds
