"""What binds jobs is renewed by completed cycles alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from asad.daemon.leases import Leases
from asad.port import Lease, NodeReport

QUOTA = Lease("12", True, "7", 0.5, 4, 1e9, widen=True)
HOST = Lease("7", False, "", 0.5, 4)


class Link:
    """Keeps what is sent to the actors."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Sequence[Lease]]] = []
        self.announced: list[str] = []

    def reports(self) -> Mapping[str, NodeReport]:
        return {}

    def announce(self, node_names: Sequence[str], job_id: str) -> bool:
        self.announced.append(job_id)
        return True

    def grant(self, leases: Mapping[str, Sequence[Lease]]) -> None:
        self.sent.append(leases)


def test_leases_are_sent_when_the_cycle_is_completed() -> None:
    link = Link()
    leases = Leases(link)
    leases.grant({"n1": [QUOTA]})
    leases.grant({"n1": [QUOTA, HOST]})
    assert link.sent == [] and leases.announce(["n1"], "12") and link.announced == ["12"]
    leases.renew()
    leases.renew()
    assert link.sent == [{"n1": [QUOTA, HOST]}] * 2


def test_what_a_failed_cycle_decided_is_not_sent_and_roles_stay_known() -> None:
    link = Link()
    leases = Leases(link)
    leases.grant({"n1": [QUOTA, HOST]})
    leases.renew()
    leases.grant({"n1": [QUOTA], "n2": [QUOTA]})
    leases.renew_roles()
    (guest, host) = link.sent[-1]["n1"]
    assert "n2" not in link.sent[-1]
    assert (guest.job_id, guest.guest, guest.host_id, guest.widen) == ("12", True, "7", False)
    assert math.isnan(guest.quota) and math.isnan(guest.memory_high_bytes)
    assert host.guest is False and math.isnan(host.quota)


def test_nothing_at_all_is_sent_at_once() -> None:
    link = Link()
    leases = Leases(link)
    leases.renew_roles()
    assert link.sent == [], "an earlier daemon may have named guests"
    leases.grant({"n1": [QUOTA]})
    leases.renew()
    leases.grant({})
    assert link.sent[-1] == {}
    leases.renew_roles()
    assert len(link.sent) == 2
