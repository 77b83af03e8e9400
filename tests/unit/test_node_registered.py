"""The socket at which jobs register with the node actor: open to everybody on the node, and stopped by nobody."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from asad.node.registered import REQUEST_S, Registered


@pytest.fixture
def sock(tmp_path: Path) -> Iterator[Path]:
    """Where one listens that no agent has started anything for."""
    registered = Registered(tmp_path, 2, "n0", tmp_path, started_by_agent=lambda pid: False)
    registered.listen(tmp_path / "sock")
    yield tmp_path / "sock"
    registered.close()


def ask(sock: Path, line: bytes) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(300.0)
        connection.connect(str(sock))
        connection.sendall(line)
        return str(json.loads(connection.recv(4096))["error"])


@pytest.mark.parametrize(
    "line", [b"[" * 4000 + b"\n", b"\xff\n", b"1\n", b"null\n", b'{"job": [1]}\n', b"x" * 9000]
)
def test_nonsense_is_answered_and_the_next_one_too(sock: Path, line: bytes) -> None:
    assert ask(sock, line)
    assert ask(sock, b'{"job": "m7.0"}\n') == "no Mesos agent has started it"


def test_nobody_waits_for_those_who_connect_and_say_nothing(sock: Path) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(socket.socket(socket.AF_UNIX)).connect(str(sock))
        last = opened.enter_context(socket.socket(socket.AF_UNIX))
        last.settimeout(0.8 * REQUEST_S)  # the first of them has not been given up by then
        last.connect(str(sock))
        last.sendall(b'{"job": "m7.0"}\n')
        assert b"no Mesos agent" in last.recv(4096)
