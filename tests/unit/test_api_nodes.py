"""Daemon and node actors over real sockets, with a real munged and real certificates."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import os
import secrets
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from persistent_clients import persistent_clients
from test_api_wire import SAMPLE

from asad.api import node_server
from asad.api.auth import open_authenticator
from asad.api.munge import Munge, munge_for
from asad.api.node_client import NodeClient, Seniority
from asad.api.node_server import NodeServer
from asad.api.tls import Tls, certificate_names
from asad.api.wire import (
    Answer,
    Authenticator,
    AuthError,
    Greeting,
    Message,
    TrustedChannel,
    WireError,
    frame,
    pack,
    unpack,
)
from asad.errors import ConfigError
from asad.node.actor import sample_to_json
from asad.port import Lease

ME = os.geteuid()
CURVE = "-pkeyopt ec_paramgen_curve:P-256 -nodes"


def until(condition: Callable[[], object], what: str, deadline_s: float = 300.0) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.01)


# --------------------------------------------------------------------------------------------------- real keys


@contextlib.contextmanager
def munged(folder: Path) -> Iterator[str]:
    """A munged of this user with a key of its own; its socket."""
    key = folder / "munge.key"
    if not key.exists():
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
    place = str(folder / "munge.socket")
    files = {"pid-file": "munged.pid", "log-file": "munged.log", "seed-file": "munged.seed"}
    words = ["/usr/sbin/munged", "--foreground", "--force", f"--socket={place}", f"--key-file={key}"]
    words += [f"--{option}={folder / name}" for option, name in files.items()]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until(lambda: Path(place).is_socket(), "munged is up")
        yield place
    finally:
        process.terminate()
        process.wait(300)


@pytest.fixture(scope="module")
def munge_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with munged(tmp_path_factory.mktemp("munge")) as place:
        yield place


@pytest.fixture
def munge(munge_socket: str) -> Munge:
    """Both ends are this user."""
    return Munge(frozenset({ME}), ME, munge_socket)


class Authority:
    """A certificate authority of a site, by the `openssl` command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._openssl("req -x509 -newkey ec", CURVE, "-days 2 -subj /CN=asad -keyout ca.key -out ca.pem")

    def _openssl(self, *words: str) -> None:
        command = ["openssl", *" ".join(words).split()]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def tls(self, name: str, san: str = "") -> Tls:
        """What the holder of a certificate for `name` has."""
        (self.folder / "san").write_text(f"subjectAltName=DNS:{san or name}")
        self._openssl("req -newkey ec", CURVE, f"-subj /CN={name} -keyout {name}.key -out {name}.csr")
        signed_by = "-CA ca.pem -CAkey ca.key -days 2 -extfile san"
        self._openssl("x509 -req", signed_by, f"-in {name}.csr -out {name}.pem")
        (self.folder / f"{name}.key").chmod(0o600)
        return Tls(*(str(self.folder / file) for file in (f"{name}.pem", f"{name}.key", "ca.pem")))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Anyone:
    """Believes every greeting: for tests of all that comes after."""

    name = "anyone"
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None

    def check(self) -> None: ...

    def greet(self, node: str) -> Greeting:
        return Greeting(pack({"node": node}), b"")

    def answer(self, greeting: bytes, certificate: Any) -> Answer:
        return Answer(b"{}", str(unpack(greeting)["node"]), TrustedChannel())

    def accept(self, greeting: Greeting, answer: bytes) -> TrustedChannel:
        return TrustedChannel()


# ---------------------------------------------------------------------------------------------------- both ends


@pytest.fixture
def serve() -> Iterator[Callable[..., NodeServer]]:
    servers = []

    def start(auth: Authenticator, lease_s: float = 15.0, **more: Any) -> NodeServer:
        server = NodeServer("127.0.0.1:0", auth, lease_s, **more)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


class Actor:
    """A client that keeps what it is reported, and notes announcements unless it is reported not to."""

    def __init__(self, address: str, node: str, auth: Authenticator, *, notes: bool = True) -> None:
        self.sent: list[Message] = []
        self.notes = notes
        self.client = NodeClient(address, node, auth, self.take, cgroup=1, retry_s=(0.05, 0.2))
        self.client.start()

    def take(self, message: Message) -> None:
        self.sent.append(message)
        if message["kind"] == "announce" and self.notes:
            self.client.send({"kind": "noted", "id": message["id"]})

    def report(self) -> bool:
        return self.client.send(
            {"kind": "report", "node": self.client.node, "jobs": {"12_3": sample_to_json(SAMPLE)}}
        )

    def of_kind(self, kind: str) -> list[Message]:
        return [message for message in self.sent if message["kind"] == kind]


@pytest.fixture
def join() -> Iterator[Callable[..., Actor]]:
    actors = []

    def start(server: NodeServer | str, node: str, auth: Authenticator, **more: Any) -> Actor:
        address = server if isinstance(server, str) else f"localhost:{server.address[1]}"
        actors.append(Actor(address, node, auth, **more))
        return actors[-1]

    yield start
    for actor in actors:
        actor.client.stop()


@pytest.fixture(params=["munge", "tls"])
def ends(request: pytest.FixtureRequest) -> tuple[Authenticator, Authenticator]:
    """What the daemon has, and the actor of n1."""
    if request.param == "munge":
        both = request.getfixturevalue("munge")
        return both, both
    made: Authority = request.getfixturevalue("authority")
    return made.tls("head", "localhost"), made.tls("n1")


def test_a_daemon_that_was_started_before_another_learns_that_it_is_not_obeyed(
    serve: Callable[..., NodeServer],
) -> None:
    """Both are reached by every node; what the older one says counts no more, and it can see that."""
    auth = Anyone()
    servers = [serve(auth, identity=identity) for identity in (("first", 10), ("second", 20))]
    seen: list[Message] = []
    clients, seniority = [], Seniority()
    for server in servers:
        address = f"localhost:{server.address[1]}"
        clients.append(NodeClient(address, "n1", auth, seen.append, seniority=seniority, retry_s=(0.05, 0.2)))
        clients[-1].start()
        until(lambda server=server: server.connected, "the actor is connected")
    until(lambda: clients[1].obeyed, "the second has stated who it is")
    servers[0].grant({"n1": [Lease("1", True, "", 0.5, 2)]})
    until(lambda: servers[0].superseded, "the first is refused")
    servers[1].grant({"n1": [Lease("2", True, "", 0.5, 2)]})
    until(lambda: seen, "the second is obeyed")
    assert [lease["job_id"] for lease in seen[-1]["jobs"]] == ["2"]  # type: ignore[index, union-attr, call-overload]
    assert not servers[1].superseded and clients[0].connected and not clients[0].obeyed
    for client in clients:
        client.stop()


def test_reports_go_up_and_leases_come_down(
    ends: tuple[Authenticator, Authenticator], serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(ends[0], clock=lambda: 1000.0)
    actor = join(server, "n1", ends[1])
    until(lambda: actor.client.connected, "the actor is connected")
    assert actor.client.trouble == ""
    assert actor.report()
    until(server.reports, "the report is there")
    report = server.reports()["n1"]
    assert (report.node, report.time_s, report.cgroup) == ("n1", 1000.0, 1)
    assert repr(report.jobs) == repr({"12_3": SAMPLE})
    assert server.connected == ["n1"]
    assert server.silent() == []
    server.grant({"n1": [Lease("12_3", True, "7", math.nan, 2)], "n9": []})
    until(lambda: actor.of_kind("lease"), "the lease is there")
    assert actor.sent[0] == {
        "kind": "lease",
        "lease_s": 15.0,
        "jobs": [{"job_id": "12_3", "guest": True, "host_id": "7", "quota": None, "cores": 2}],
    }
    assert server.refused == 0


def test_an_announcement_is_good_when_all_nodes_noted_it(
    ends: tuple[Authenticator, Authenticator], serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(ends[0], answer_s=300.0)
    actor = join(server, "n1", ends[1])
    until(lambda: server.connected, "the actor is connected")
    assert server.announce(["n1"], "12")
    assert actor.of_kind("announce") == [{"kind": "announce", "id": 1, "job": "12", "patience_s": 60.0}]
    assert server.announce([], "12")
    assert not server.announce(["n1", "n2"], "12"), "n2 is not there"


def test_audits_arrive_and_wait_for_a_connection(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone())
    port = server.address[1]
    server.stop()
    actor = join(f"localhost:{port}", "n1", Anyone())
    until(lambda: actor.client.trouble, "the daemon is missed")
    row: Message = {
        "time_s": 1,
        "file": "cpu.max",
        "job_id": "12",
        "old": "max",
        "new": "5" * 9999,
        "why": None,
    }
    assert not actor.report(), "of a report nothing is kept"
    assert actor.client.send({"kind": "audit", "rows": [row]})
    again = NodeServer(f"127.0.0.1:{port}", Anyone(), 15.0)
    again.start()
    try:
        until(lambda: again.audit, "the audit is there")
        assert again.audit.popleft() == {**row, "node": "n1", "time_s": 1.0, "new": "5" * 1024}
        assert again.reports() == {}
    finally:
        again.stop()


# ---------------------------------------------------------------------------------------------- slow, gone, many


def test_an_announcement_waits_no_longer_than_it_may(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone(), answer_s=0.3)
    join(server, "n1", Anyone())
    join(server, "n2", Anyone(), notes=False)
    join(server, "n3", Anyone(), notes=False)
    until(lambda: len(server.connected) == 3, "all are connected")
    before = time.monotonic()
    assert not server.announce(["n1", "n2", "n3"], "12")
    assert time.monotonic() - before >= 0.3
    assert server.announce(["n1"], "12")


def test_an_announcement_ends_when_a_node_goes(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone(), answer_s=3600.0)
    actor = join(server, "n1", Anyone(), notes=False)
    until(lambda: server.connected, "connected")
    threading.Timer(0.2, actor.client.stop).start()
    before = time.monotonic()
    assert not server.announce(["n1"], "12")
    assert time.monotonic() - before < 300.0, "it did not wait for the answer that cannot come"


def test_a_node_that_is_silent_for_longer_than_the_lease_has_no_report(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone(), lease_s=0.5)
    actor = join(server, "n1", Anyone())
    until(lambda: actor.client.connected, "connected")
    # until one is seen: on a busy machine a report is too old before anybody looks
    until(lambda: actor.report() and server.reports(), "reported")
    until(lambda: not server.reports(), "the report is too old")
    assert server.silent() == ["n1"]
    assert server.connected == ["n1"], "its connection lives"


def test_a_node_that_takes_nothing_blocks_nobody_and_is_let_go(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone(), write_s=0.5)
    good = join(server, "n1", Anyone())
    with greeted(server, "n2") as stuck:
        stuck.sendall(frame(pack({"kind": "hello", "node": "n2", "version": "0", "cgroup": 2})))
        until(lambda: len(server.connected) == 2, "both are connected")
        many = [Lease(str(k), True, "7", 0.5, 2) for k in range(20_000)]
        end = time.monotonic() + 300.0
        while "n2" in server.connected:
            assert time.monotonic() < end
            server.grant({"n2": many, "n1": many[:1]})
            time.sleep(0.05)
        until(lambda: good.of_kind("lease"), "the other node has its lease")
        assert server.refused == 0


def test_leases_are_sent_once_more_empty_and_then_not_at_all(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone(), answer_s=300.0)
    actor = join(server, "n1", Anyone())
    until(lambda: server.connected, "connected")
    lease = Lease("12", True, "7", 0.5, 2)
    for leases in ([lease], [lease], [], [], []):
        server.grant({"n1": leases} if leases else {})
    assert server.announce(["n1"], "99"), "which comes after all that was granted"
    assert [len(message["jobs"]) for message in actor.of_kind("lease")] == [1, 1, 0]  # type: ignore[arg-type]


def test_a_node_that_connects_anew_replaces_its_dead_connection(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone(), answer_s=300.0)
    with greeted(server, "n1") as dead:
        dead.sendall(frame(pack({"kind": "hello", "node": "n1", "version": "0", "cgroup": 2})))
        until(lambda: server.connected, "connected")
        actor = join(server, "n1", Anyone())
        dead.settimeout(300)
        with contextlib.suppress(ConnectionResetError):
            assert dead.recv(1) == b""
        until(lambda: actor.client.connected and server.announce(["n1"], "1"), "the new one is used")
    assert server.connected == ["n1"]


def test_a_daemon_that_starts_again_is_found_again(join: Callable[..., Actor], munge: Munge) -> None:
    first = NodeServer("127.0.0.1:0", munge, 15.0)
    first.start()
    actor = join(first, "n1", munge)
    until(lambda: first.connected, "connected")
    first.stop()
    until(lambda: not actor.client.connected, "the actor sees it")
    second = NodeServer(f"127.0.0.1:{first.address[1]}", munge, 15.0)
    second.start()
    try:
        until(lambda: second.connected, "connected again")
        assert second.announce(["n1"], "1")
    finally:
        second.stop()


def test_a_fault_in_following_a_message_does_not_end_the_connection(
    serve: Callable[..., NodeServer], join: Callable[..., Actor], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(Anyone())
    actor = join(server, "n1", Anyone())
    actor.client.on_message = lambda message: 1 / 0  # type: ignore[assignment,return-value]
    until(lambda: server.connected, "connected")
    server.grant({})
    until(lambda: "ZeroDivisionError" in caplog.text, "the fault is in the log")
    assert actor.report()
    until(server.reports, "the report still arrives")


def test_a_thousand_connections_that_say_nothing_hold_up_no_announcement(
    serve: Callable[..., NodeServer], join: Callable[..., Actor]
) -> None:
    server = serve(Anyone(), greeting_s=3600.0, answer_s=300.0)
    actor = join(server, "n1", Anyone())
    until(lambda: server.connected, "connected")
    with contextlib.ExitStack() as held:
        for _ in range(1000):
            held.enter_context(socket.create_connection(server.address))
        for k in range(50):
            assert server.announce(["n1"], str(k))
    assert len(actor.of_kind("announce")) == 50


def test_strangers_are_limited(serve: Callable[..., NodeServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_server, "STRANGERS", 3)
    server = serve(Anyone())
    with contextlib.ExitStack() as held:
        for _ in range(5):
            held.enter_context(socket.create_connection(server.address))
        until(lambda: server.refused == 2, "the two oldest are closed")


def test_an_address_that_is_taken_is_named(serve: Callable[..., NodeServer]) -> None:
    server = serve(Anyone())
    with pytest.raises(WireError, match=r"^\[nodes\] listen: 127\.0\.0\.1:\d+ cannot be had"):
        NodeServer(f"127.0.0.1:{server.address[1]}", Anyone(), 15.0).start()


def test_before_and_after_its_life_a_server_does_nothing() -> None:
    server = NodeServer("127.0.0.1:0", Anyone(), 15.0)
    for step in (server.stop, server.start, server.stop, server.stop):
        step()
        if step != server.start:
            server.grant({"n1": []})
            assert not server.announce(["n1"], "1")
            assert server.reports() == {}


# ------------------------------------------------------------------------------------------- who is not believed


@contextlib.contextmanager
def greeted(server: NodeServer, node: str) -> Iterator[socket.socket]:
    """A connection by hand, past the greeting of `Anyone`."""
    with socket.create_connection(server.address, timeout=300) as connection:
        connection.sendall(frame(pack({"node": node})))
        assert receive(connection) == b"{}"
        yield connection


def receive(connection: socket.socket) -> bytes:
    """One frame; empty when the connection was closed."""
    held = b""
    while len(held) < 4 or len(held) < 4 + int.from_bytes(held[:4], "big"):
        try:
            more = connection.recv(65536)
        except ConnectionResetError:
            return b""
        if not more:
            return b""
        held += more
    return held[4:]


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "report", "node": "n2", "jobs": {}},
        {"kind": "report", "node": "n1"},
        {"kind": "report", "node": "n1", "jobs": {"1": {}}},
        {"kind": "hello", "node": "n1", "cgroup": 7},
        {"kind": "hello", "node": 3, "cgroup": 1},
        {"kind": "audit", "rows": [{"time_s": "x"}]},
        {"kind": "audit", "rows": 5},
    ],
    ids=str,
)
def test_nonsense_closes_the_connection_and_counts(
    serve: Callable[..., NodeServer], message: Message
) -> None:
    server = serve(Anyone())
    with greeted(server, "n1") as connection:
        connection.sendall(frame(pack(message)))
        assert receive(connection) == b""
    until(lambda: server.refused == 1, "it counts")
    assert server.reports() == {}


def test_kinds_that_we_do_not_know_are_let_be(serve: Callable[..., NodeServer]) -> None:
    server = serve(Anyone())
    with greeted(server, "n1") as connection:
        for message in ({"kind": "weather"}, {"kind": "noted", "id": [1]}, {"kind": "noted", "id": 99}, {}):
            connection.sendall(frame(pack(message)))  # type: ignore[arg-type]
        connection.sendall(frame(pack({"kind": "report", "node": "n1", "jobs": {}})))
        until(server.reports, "the report after them arrives")
    assert server.refused == 0


@pytest.mark.parametrize(
    "greeting",
    [
        frame(b"MUNGE:AwQDAAAA:"),
        frame(b""),
        frame(b"\0" * 100),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 8,
        frame(b"a") + frame(b"b"),
    ],
)
def test_a_stranger_is_refused(serve: Callable[..., NodeServer], munge: Munge, greeting: bytes) -> None:
    server = serve(munge)
    with socket.create_connection(server.address, timeout=300) as connection:
        connection.sendall(greeting)
        assert receive(connection) == b""
    until(lambda: server.refused == 1, "it counts")


def test_a_stranger_that_says_nothing_is_closed(serve: Callable[..., NodeServer], munge: Munge) -> None:
    server = serve(munge, greeting_s=0.3)
    with socket.create_connection(server.address, timeout=300) as connection:
        connection.sendall(b"\0\0")
        assert receive(connection) == b""
    assert server.refused == 1


def test_a_greeting_that_is_sent_again_is_refused(serve: Callable[..., NodeServer], munge: Munge) -> None:
    server = serve(munge)
    greeting = munge.greet("n1")
    with socket.create_connection(server.address, timeout=300) as first:
        first.sendall(frame(greeting.frame))
        channel = munge.accept(greeting, receive(first))
        hello = frame(channel.seal(pack({"kind": "hello", "node": "n1", "version": "0", "cgroup": 2})))
        first.sendall(hello)
        until(lambda: server.connected == ["n1"], "the first is believed")
        with socket.create_connection(server.address, timeout=300) as second:
            second.sendall(frame(greeting.frame))
            assert receive(second) == b""
        until(lambda: server.refused == 1, "the second counts")
        first.sendall(hello)
        assert receive(first) == b"", "nor may a frame be sent again"
        until(lambda: server.refused == 2, "that counts too")
    assert server.connected == []


def test_who_overheard_a_greeting_can_say_nothing(serve: Callable[..., NodeServer], munge: Munge) -> None:
    server = serve(munge)
    greeting = munge.greet("n1")
    with socket.create_connection(server.address, timeout=300) as thief:
        thief.sendall(frame(greeting.frame))
        assert receive(thief)
        thief.sendall(frame(bytes(32) + pack({"kind": "report", "node": "n1", "jobs": {}})))
        assert receive(thief) == b""
    assert server.refused == 1
    assert server.connected == []


def test_munge_of_another_user_or_key_is_refused(munge_socket: str, tmp_path: Path) -> None:
    munge = Munge(frozenset({ME}), ME, munge_socket)
    stranger = Munge(frozenset({ME + 1}), ME, munge_socket)
    with pytest.raises(AuthError, match=f"a credential of uid {ME} came where one of uid {ME + 1} was due"):
        stranger.open(munge.seal(b"x"))
    with munged(tmp_path) as other:
        foreign = Munge(frozenset({ME}), ME, other)
        with pytest.raises(AuthError, match="Invalid credential"):
            munge.open(foreign.seal(b"x"))


def test_a_credential_can_be_opened_once_and_by_its_addressee(munge_socket: str) -> None:
    munge = Munge(frozenset({ME}), ME, munge_socket)
    sealed = munge.seal(b"\0binary\xff")
    assert munge.open(sealed) == b"\0binary\xff"
    with pytest.raises(AuthError, match="Replayed credential"):
        munge.open(sealed)
    with pytest.raises(AuthError, match="Unauthorized"):
        munge.open(Munge(frozenset({ME}), ME + 1, munge_socket).seal(b"x"))
    with pytest.raises(AuthError):
        munge.open(b"x" * 100)
    with pytest.raises(WireError, match="700000 bytes at most"):
        munge.seal(bytes(700_001))
    assert munge.open(munge.seal(bytes(700_000))) == bytes(700_000)


def test_a_credential_for_one_purpose_serves_no_other(munge: Munge) -> None:
    greeting = munge.greet("n1")
    with pytest.raises(AuthError, match="not the greeting of an asad daemon"):
        munge.accept(greeting, munge.greet("n1").frame)
    with pytest.raises(AuthError, match="answers another greeting"):
        munge.accept(munge.greet("n1"), munge.answer(munge.greet("n1").frame).frame)
    with pytest.raises(WireError):
        munge.answer(munge.greet("../n1").frame)
    for text in ("zz", "00"):
        message: Message = {"asad": 1, "from": "actor", "node": "n1", "secret": text}
        with pytest.raises(AuthError, match="no secret"):
            munge.answer(munge.seal(pack(message)))


def test_a_node_has_only_its_own_certificate(
    serve: Callable[..., NodeServer], join: Callable[..., Actor], authority: Authority, tmp_path: Path
) -> None:
    server = serve(authority.tls("head", "localhost"))
    actor = join(server, "n2", authority.tls("n1"))
    until(lambda: server.refused, "n1 may not speak for n2")
    actor.client.stop()
    refused = server.refused
    foreign = Authority(tmp_path / "foreign")
    other = join(server, "n1", foreign.tls("n1"))
    until(
        lambda: "certificate verify failed" in other.client.trouble, "the actor does not believe the daemon"
    )
    unasked = foreign.tls("n1")
    assert unasked.client_tls is not None
    unasked.client_tls.load_verify_locations(str(authority.folder / "ca.pem"))
    join(server, "n1", unasked)
    until(lambda: server.refused > refused, "nor does the daemon believe the actor")
    assert server.connected == []


def test_an_actor_does_not_take_a_node_for_the_daemon(
    serve: Callable[..., NodeServer], join: Callable[..., Actor], authority: Authority
) -> None:
    server = serve(authority.tls("n7"))
    actor = join(server, "n1", authority.tls("n1"))
    until(lambda: "Hostname mismatch" in actor.client.trouble, "the name is checked")
    assert server.connected == []


def test_plain_talk_to_a_tls_server_is_refused(
    serve: Callable[..., NodeServer], authority: Authority
) -> None:
    server = serve(authority.tls("head", "localhost"))
    with socket.create_connection(server.address, timeout=300) as connection:
        connection.sendall(frame(pack({"asad": 1, "node": "n1"})))
        connection.shutdown(socket.SHUT_WR)
        until(lambda: server.refused == 1, "it counts")


@pytest.mark.slow
def test_a_server_that_stops_amid_connections_leaves_none_open(authority: Authority) -> None:
    # what it leaves open raises a ResourceWarning when it is collected, and that fails the test
    both: list[Authenticator] = [Anyone(), authority.tls("head", "localhost")]
    for auth in both * 2:
        server = NodeServer("127.0.0.1:0", auth, 15.0)
        server.start()

        def come(address: tuple[str, int] = server.address) -> None:
            with socket.create_connection(address, timeout=300) as connection:
                connection.sendall(b"who is there?")

        with persistent_clients(come, lambda server=server: server.refused):  # type: ignore[misc]
            server.stop()


@pytest.mark.slow
def test_a_client_that_stops_amid_a_handshake_leaves_nothing_open(
    serve: Callable[..., NodeServer], authority: Authority
) -> None:
    server = serve(authority.tls("head", "localhost"))
    tls = authority.tls("n1")
    for part in range(12):
        client = NodeClient(f"localhost:{server.address[1]}", "n1", tls, lambda message: None, cgroup=1)
        client.start()
        time.sleep(part * 6e-4)
        client.stop()
        gc.collect()


def test_who_shows_no_certificate_is_refused_whatever_he_says(
    serve: Callable[..., NodeServer], authority: Authority
) -> None:
    server = serve(authority.tls("head", "localhost"))
    context = ssl.create_default_context(cafile=str(authority.folder / "ca.pem"))
    greeting = frame(pack({"asad": 1, "node": "n1"}))
    report = frame(pack({"kind": "report", "node": "n1", "jobs": {}}))
    # in TLS 1.3 the client's end of the handshake is over before the server has looked for a certificate
    with (
        socket.create_connection(server.address, timeout=300) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
        contextlib.suppress(OSError),
    ):
        connection.sendall(greeting + report)
        assert connection.recv(100) == b""
    until(lambda: server.refused == 1, "it counts")
    assert server.connected == [] and server.reports() == {}


def test_names_of_a_certificate() -> None:
    assert certificate_names({"subject": ((("commonName", "n1"),),)}) == {"n1"}
    both = {"subject": ((("commonName", "n1"),),), "subjectAltName": (("DNS", "n2"), ("IP Address", "::1"))}
    assert certificate_names(both) == {"n2"}
    assert certificate_names({}) == set()


# --------------------------------------------------------------------------------------------- nobody without keys


@dataclass
class Settings:
    auth: str = "munge"
    user: str = "root"
    munge_socket: str = ""
    cert: str = ""
    key: str = ""
    ca: str = ""


def test_nobody_starts_without_keys(tmp_path: Path, munge_socket: str, authority: Authority) -> None:
    authority.tls("n1")
    files = {name: str(authority.folder / file) for name, file in (("cert", "n1.pem"), ("ca", "ca.pem"))}
    loose, junk = tmp_path / "loose.key", tmp_path / "junk.key"
    loose.write_text((authority.folder / "n1.key").read_text())
    loose.chmod(0o644)
    junk.write_text("junk")
    junk.chmod(0o600)
    for settings, text in (
        (Settings(munge_socket=str(tmp_path / "none")), "is munged running"),
        (Settings(user="no-such-user"), r"\[nodes\] user: this machine has no user 'no-such-user'"),
        (Settings(auth="none"), r"\[nodes\] auth: 'none' is neither"),
        (Settings(auth="tls"), r"\[nodes\] cert: .* needs a PEM file"),
        (Settings(auth="tls", key=str(tmp_path / "gone"), **files), r"\[nodes\] key: there is no file"),
        (Settings(auth="tls", key=str(loose), **files), "chmod 0600"),
        (Settings(auth="tls", key=str(junk), **files), "PEM files that belong together"),
    ):
        with pytest.raises(ConfigError, match=text):
            open_authenticator(settings, "actor")
    for end in ("actor", "daemon"):
        assert open_authenticator(Settings(munge_socket=munge_socket), end).name == "munge"  # type: ignore[arg-type]
    key = str(authority.folder / "n1.key")
    assert open_authenticator(Settings(auth="tls", key=key, **files), "actor").name == "tls"


def test_the_daemon_trusts_root_and_actors_the_daemons_user() -> None:
    assert munge_for("daemon", "ignored").peers == {0}
    nobody = munge_for("actor", "nobody")
    assert nobody.peers == {nobody.open_by}
    assert nobody.open_by != 0


def test_logs_of_refusals_do_not_grow_with_refusals(
    serve: Callable[..., NodeServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(Anyone())
    with caplog.at_level(logging.WARNING, logger="asad.api.node_server"):
        for k in range(20):
            with socket.create_connection(server.address, timeout=300) as connection:
                connection.sendall(b"\xff" * 4)
                assert receive(connection) == b""
            until(lambda k=k: server.refused == k + 1, "it counts")
    assert len(caplog.records) == 5  # the 1st, 2nd, 4th, 8th and 16th
