"""The control socket: who may ask what, and what neither side can do to the other."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import select
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from persistent_clients import persistent_clients

from asad.api import control
from asad.api.control import (
    VERBS,
    ControlServer,
    DaemonDown,
    NotAllowed,
    Peer,
    Refused,
    Request,
    ask,
    may_change,
    read_request,
)
from asad.errors import AsadError, LogError, UsageError
from asad.model import Json

NOBODY = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")


def echo(request: Request, peer: Peer) -> Json:
    return {"verb": request.verb, "arguments": dict(request.arguments), "uid": peer.uid, "pid": peer.pid}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    servers = []

    def start(handle: Callable[[Request, Peer], Json] = echo, operators: str = "", **more: Any) -> Path:
        servers.append(ControlServer(tmp_path / "run" / "asad.sock", handle, operators, **more))
        servers[-1].start()
        return servers[-1].path

    yield start
    for server in servers:
        server.stop()


def raw(path: Path, sent: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(300)
        connection.connect(str(path))
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            return connection.makefile("rb").read()
    return b""


@pytest.mark.slow
def test_a_server_that_stops_amid_requests_leaves_none_open(tmp_path: Path) -> None:
    # what it leaves open raises a ResourceWarning when it is collected, and that fails the test
    for _ in range(8):
        server = ControlServer(tmp_path / "asad.sock", echo)
        server.start()
        answers: list[bytes] = []

        def ask_once(answers: list[bytes] = answers) -> None:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(300)
                connection.connect(str(tmp_path / "asad.sock"))
                connection.sendall(b'{"verb": "status"}\n')
                answers.append(connection.recv(100))

        with persistent_clients(ask_once, answers.__len__):
            server.stop()


def test_a_request_is_answered_and_the_kernel_says_who_asked(serve: Callable[..., Path]) -> None:
    path = serve()
    assert ask(path, "jobs", user="ann\n") == {
        "verb": "jobs",
        "arguments": {"user": "ann\n"},
        "uid": os.geteuid(),
        "pid": os.getpid(),
    }
    for verb in VERBS:
        assert ask(path, verb)["verb"] == verb, "root and the daemon's own user may do everything"


def test_the_socket_is_open_to_all_and_gone_afterwards(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "run" / "asad.sock", echo)
    server.start()
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o666
    assert stat.S_IMODE(server.path.parent.stat().st_mode) == 0o755
    server.stop()
    assert not server.path.exists()
    server.stop()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"junk\n",
        b"[]\n",
        b"{}\n",
        b'{"verb":3}\n',
        b'{"verb":"rm"}\n',
        b"[" * 60_000 + b"\n",
        b"\xff\n",
    ],
)
def test_nonsense_gets_a_usage_error(serve: Callable[..., Path], line: bytes) -> None:
    answer = json.loads(raw(serve(), line))
    assert answer["ok"] is False
    assert answer["code"] == 2
    assert answer["error"]


@pytest.mark.slow
def test_a_line_without_end_is_cut_off(serve: Callable[..., Path]) -> None:
    path = serve()
    with contextlib.suppress(BrokenPipeError):
        assert raw(path, b"x" * 1_000_000) == b""
    assert ask(path, "status")["verb"] == "status"


def test_errors_come_with_their_words_and_status(serve: Callable[..., Path]) -> None:
    errors = {
        "status": AsadError("broken"),
        "jobs": UsageError("wrong"),
        "explain": LogError("f", 1, None, "bad", "correct it"),
        "nodes": ValueError("inner secret"),
    }

    def fail(request: Request, peer: Peer) -> Json:
        raise errors[request.verb]

    path = serve(fail)
    for verb, text, status in (
        ("status", "^broken$", 1),
        ("jobs", "^wrong$", 2),
        ("explain", "correct it$", 2),
        ("nodes", "^the daemon failed to answer; see its log", 1),
    ):
        with pytest.raises(Refused, match=text) as error:
            ask(path, verb)
        assert error.value.exit_status == status


def test_text_arguments_are_checked() -> None:
    request = read_request(b'{"verb":"mode","mode":"advise","n":3}')
    assert request.text("mode") == "advise"
    assert request.text("other", "x") == "x"
    for name in ("n", "other"):
        with pytest.raises(UsageError, match=f"mode: {name} is missing or is not a text"):
            request.text(name)


# ------------------------------------------------------------------------------------------------------ who may


def test_who_may_change() -> None:
    assert may_change(Peer(0, 0, 1), "")
    assert may_change(Peer(os.geteuid(), 0, 1), "")
    assert not may_change(Peer(NOBODY, NOBODY, 1), "")
    assert not may_change(Peer(NOBODY, NOBODY, 1), "no-such-group")
    assert not may_change(Peer(987_654, 987_654, 1), "root"), "a user without a name"
    name = grp.getgrgid(pwd.getpwuid(NOBODY).pw_gid).gr_name
    assert may_change(Peer(NOBODY, NOBODY, 1), name)
    assert may_change(Peer(NOBODY, 0, 1), "root"), "by the group that it runs under"


def test_members_by_the_group_file_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgrouplist", lambda user, gid: [gid, grp.getgrnam("daemon").gr_gid])
    assert may_change(Peer(NOBODY, NOBODY, 1), "daemon")


ASK_AS_NOBODY = """
import os, sys
from asad.api.control import ask
from asad.errors import AsadError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    print(ask(sys.argv[1], sys.argv[2])["uid"])
except AsadError as error:
    print(error.exit_status, error)
"""


@root
def test_an_ordinary_user_may_read_and_not_change(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"asad-control-{os.getpid()}"  # pytest's own folders are closed to others
    server = ControlServer(folder / "asad.sock", echo, "no-such-group")
    server.start()
    try:
        output = {
            verb: subprocess.run(
                [sys.executable, "-c", ASK_AS_NOBODY, str(server.path), verb],
                capture_output=True,
                text=True,
                check=True,
                cwd="/",
            ).stdout.strip()
            for verb in ("status", "pause")
        }
    finally:
        server.stop()
        folder.rmdir()
    assert output["status"] == str(NOBODY)
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert output["pause"] == (
        f"4 {pwd.getpwuid(NOBODY).pw_name} may not pause; "
        f"only {'root' if me == 'root' else f'root, {me}'} and members of the group no-such-group may"
    )


def test_not_allowed_is_its_own_error(serve: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = serve()
    monkeypatch.setattr(control, "may_change", lambda peer, operators: False)
    with pytest.raises(NotAllowed, match="may not mode; only") as error:
        ask(path, "mode", mode="enforce")
    assert error.value.exit_status == 4
    assert ask(path, "status")["verb"] == "status"


# ----------------------------------------------------------------------------------------------- down, hung, many


def test_no_daemon_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        DaemonDown, match=r"no daemon answers at .*No such file.*systemctl start asad"
    ) as error:
        ask(tmp_path / "none.sock", "status")
    assert error.value.exit_status == 3
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    with pytest.raises(DaemonDown, match="Connection refused"):
        ask(tmp_path / "dead.sock", "status")
    with pytest.raises(DaemonDown, match="path too long"):
        ask(tmp_path / ("x" * 200), "status")


def test_a_daemon_that_hangs_is_reported(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(tmp_path / "hung.sock"))
        hung.listen()
        with pytest.raises(DaemonDown, match=r"did not answer within 0 s"):
            ask(tmp_path / "hung.sock", "status", timeout_s=0.2)


@pytest.mark.parametrize("answer", [b"", b"{", b"hello\n", b"{}\n", b"[]\n", b'{"ok":false}\n'])
def test_what_is_not_our_daemon_is_reported(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "other.sock"))
        other.listen()

        def serve_one() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve_one)
        thread.start()
        with pytest.raises(DaemonDown):
            ask(tmp_path / "other.sock", "status")
        thread.join()


def test_a_client_that_asks_nothing_is_let_go_and_hinders_nobody(serve: Callable[..., Path]) -> None:
    path = serve(request_s=0.3)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.settimeout(300)
        hung.connect(str(path))
        assert ask(path, "status")["verb"] == "status"
        assert hung.recv(1) == b""


def test_a_client_that_takes_nothing_is_let_go(serve: Callable[..., Path]) -> None:
    path = serve(lambda request, peer: "x" * 20_000_000, answer_s=0.5)
    with socket.socket(socket.AF_UNIX) as hung:
        hung.settimeout(300)
        hung.connect(str(path))
        hung.sendall(b'{"verb":"status"}\n')
        end, closed = time.monotonic() + 300, select.poll()
        closed.register(hung, select.POLLHUP)
        while not closed.poll(100):
            assert time.monotonic() < end, "it was not cut off"
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while more := hung.recv(1 << 20):
                taken += len(more)
        assert taken < 20_000_000, "it was cut off"


def test_an_answer_that_takes_too_long_is_an_answer(serve: Callable[..., Path]) -> None:
    held = threading.Event()
    path = serve(lambda request, peer: held.wait(300), answer_s=0.3)
    with pytest.raises(Refused, match="no answer within 0 s"):
        ask(path, "status")
    held.set()


def test_one_user_cannot_take_all_connections(
    serve: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = serve()
    asker = Peer(NOBODY, NOBODY, 1)
    monkeypatch.setattr(control, "_peer", lambda connection: asker)
    with contextlib.ExitStack() as held:
        for _ in range(control.PER_USER):
            held.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        with pytest.raises(Refused, match="too many requests"):
            ask(path, "status")
        for _ in range(control.PER_USER):
            held.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
        with pytest.raises(DaemonDown):
            ask(path, "status")
        asker = Peer(0, 0, 1)
        assert ask(path, "status")["uid"] == 0, "root is answered all the same"


def test_two_daemons_do_not_share_a_socket(serve: Callable[..., Path]) -> None:
    path = serve()
    with pytest.raises(AsadError, match="another daemon answers at"):
        ControlServer(path, echo).start()
    assert ask(path, "status")["verb"] == "status"


def test_the_socket_of_a_killed_daemon_is_taken_over(tmp_path: Path, serve: Callable[..., Path]) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "run" / "asad.sock"))
    assert ask(serve(), "status")["verb"] == "status"


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "asad.sock"
    place.write_text("precious")
    with pytest.raises(AsadError, match="is no socket; remove it"):
        ControlServer(place, echo).start()
    assert place.read_text() == "precious"
    with pytest.raises(AsadError, match=r"\[daemon\] socket: .* cannot be had"):
        ControlServer(tmp_path / ("x" * 200), echo).start()


def test_large_answers_arrive_whole(serve: Callable[..., Path]) -> None:
    path = serve(lambda request, peer: [{"job_id": str(k)} for k in range(200_000)])
    assert len(ask(path, "jobs")) == 200_000


def test_one_user_cannot_keep_all_workers_busy(
    serve: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Semaphore(0), threading.Event()
    askers = iter([NOBODY] * 12)

    def handle(request: Request, peer: Peer) -> Json:
        if peer.uid == NOBODY:
            begun.release()
            gate.wait(300)
        return peer.uid

    monkeypatch.setattr(control, "_peer", lambda connection: Peer(next(askers, 0), 0, 1))
    path = serve(handle)
    answers: list[Json] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(path, "jobs"))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for _ in range(control.AT_ONCE):
        assert begun.acquire(timeout=300)
    while next(askers, None) is not None:  # all twelve have come, or those that have not are root's
        pass
    assert ask(path, "jobs") == 0, "somebody else is answered meanwhile"
    assert not begun.acquire(blocking=False)
    gate.set()
    for thread in threads:
        thread.join()
    assert len(answers) == 12


def test_one_user_has_but_a_part_of_a_core(
    serve: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def handle(request: Request, peer: Peer) -> Json:
        end_s = time.thread_time() + 0.02
        while time.thread_time() < end_s:
            pass
        return peer.uid

    monkeypatch.setattr(control, "_peer", lambda connection: Peer(NOBODY, 0, 1))
    path = serve(handle)
    begin_s = time.monotonic()
    for _ in range(4):
        ask(path, "jobs")
    assert time.monotonic() - begin_s >= 3 * 0.02 / control.PART


def test_whoever_has_used_his_part_is_informed(
    serve: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = NOBODY
    monkeypatch.setattr(control, "_peer", lambda connection: Peer(uid, 0, 1))
    monkeypatch.setattr(control, "PART", 1e-9)
    path = serve(lambda request, peer: peer.uid, answer_s=0.3)
    assert ask(path, "jobs") == NOBODY
    with pytest.raises(Refused, match=r"taken up by earlier requests of .*; ask less often"):
        ask(path, "jobs")
    uid = 0
    assert [ask(path, "jobs") for _ in range(3)] == [0, 0, 0], "root does not wait"
