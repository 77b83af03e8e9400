"""Several daemons of one cluster: the newest is obeyed, and the other learns of it."""

from __future__ import annotations

import json
from pathlib import Path

from asad.api.node_client import SENIOR_S, Clients, NodeClient, Seniority
from asad.daemon.identity import take_identity


def test_a_name_stays_and_the_epoch_grows_however_the_clock_is_set(tmp_path: Path) -> None:
    name, first = take_identity(tmp_path, 1000.7)
    assert name.isalnum() and first == 1000
    assert take_identity(tmp_path, 2000.0) == (name, 2000)
    assert take_identity(tmp_path, 500.0) == (name, 2001)
    (tmp_path / "daemon.json").write_text(json.dumps({"daemon": "../x", "epoch": "many"}))
    other, epoch = take_identity(tmp_path, 500.0)
    assert other != name and epoch == 500
    (tmp_path / "daemon.json").write_text("{")
    assert take_identity(tmp_path, 500.0)[1] == 500


def test_the_newest_daemon_is_obeyed_as_long_as_it_is_heard_of() -> None:
    now = 0.0
    seniority = Seniority(lambda: now)
    assert seniority.obeys("", 0), "an older version, while there is no other"
    assert seniority.obeys("a", 10) and seniority.obeys("a", 10)
    assert not seniority.obeys("b", 9) and not seniority.obeys("b", 10) and not seniority.obeys("", 0)
    assert seniority.obeys("b", 11) and not seniority.obeys("a", 10)
    assert seniority.senior == ("b", 11)
    assert seniority.obeys("b", 3), "its own clock was set back"
    now += SENIOR_S - 1.0
    assert not seniority.obeys("a", 2)
    now += 2.0
    assert seniority.obeys("a", 2), "nothing was heard of the other"


def test_reports_go_to_all_daemons_and_the_rest_to_the_one_that_is_obeyed() -> None:
    class Client(NodeClient):
        def __init__(self, connected: bool, obeyed: bool) -> None:
            self.connected, self.obeyed, self.sent = connected, obeyed, list[object]()

        def send(self, message: object) -> bool:  # type: ignore[override]
            self.sent.append(message)
            return self.connected

    first, second = Client(connected=True, obeyed=False), Client(connected=False, obeyed=True)
    clients = Clients([first, second])
    assert clients.connected
    assert clients.send({"kind": "report"}) and clients.send({"kind": "noted"}) is False
    assert first.sent == [{"kind": "report"}] and second.sent == [{"kind": "report"}, {"kind": "noted"}]
    second.obeyed = False
    clients.send({"kind": "audit"})
    assert len(first.sent) == 2, "it keeps what nobody takes yet"
