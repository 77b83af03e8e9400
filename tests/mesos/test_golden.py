"""The double says what a real master said: every recorded exchange is played to it again."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from master import Master

IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def form(value: Any) -> Any:
    """The shape of an event: its keys, and of texts that name a state, a source or a reason the text itself."""
    if isinstance(value, dict):
        return {key: form(part) for key, part in sorted(value.items())}
    if isinstance(value, list):
        return [form(part) for part in value]
    if isinstance(value, str):
        return value if re.fullmatch(r"[A-Z_]+", value) else "text"
    return type(value).__name__ if not isinstance(value, int) or isinstance(value, bool) else "float"


def key(event: dict[str, Any]) -> tuple[Any, ...]:
    """What an event is about."""
    kind = event["type"]
    if kind == "UPDATE":
        status = event["update"]["status"]
        return kind, status["task_id"]["value"], status["state"], status.get("reason", ""), "uuid" in status
    if kind == "ERROR":
        return kind, event["error"]["message"]
    if kind == "OFFERS":
        return kind, "ports" in json.dumps(event)
    return (kind,)


def parse_stream(raw: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The events in chunked RecordIO, and whether the stream has ended."""
    body, ended = b"", False
    while (found := re.match(rb"([0-9a-f]+)\r\n", raw)) is not None:
        size = int(found[1], 16)
        if len(raw) < found.end() + size + 2:
            break
        ended = size == 0
        body += raw[found.end() : found.end() + size]
        raw = raw[found.end() + size + 2 :]
    events = []
    while (found := re.match(rb"(\d+)\n", body)) is not None:
        size = int(found[1])
        if len(body) < found.end() + size:
            break
        events.append(json.loads(body[found.end() : found.end() + size]))
        body = body[found.end() + size :]
    return events, ended


class Connection:
    """A raw client's end."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300.0)
        self.received = b""

    def read(self) -> None:
        """What has come."""
        self.socket.settimeout(0.02)
        try:
            while piece := self.socket.recv(1 << 16):
                self.received += piece
        except TimeoutError:
            pass
        except ConnectionError:
            return

    @property
    def head(self) -> str:
        return self.received.partition(b"\r\n\r\n")[0].decode()

    @property
    def body(self) -> bytes:
        return self.received.partition(b"\r\n\r\n")[2]


def header_names(head: str) -> list[str]:
    return [line.partition(":")[0] for line in head.split("\r\n")[1:]]


@pytest.mark.parametrize("name", ["basic", "badrole", "agentlost"])
def test_the_double_answers_as_the_real_master_did(name: str, data: Path) -> None:
    path = data / "mesos" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"no recorded exchange at {path}")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    golden: dict[str, str] = {}
    for row in rows:
        if row["dir"] == "master":
            golden[row["conn"]] = golden.get(row["conn"], "") + row["text"]
    text = path.read_text()
    frameworks = re.findall(r"framework_id[^}]*?value[\\\": ]*([0-9a-f-]{36}-\d{4})", text)
    master_id = frameworks[0][:36] if frameworks else ""
    master = Master(2, 2.0, 1024.0, master_id=master_id, resend_s=0.3, task_s=lambda info: 3.0)
    agents = sorted(set(re.findall(r"([0-9a-f-]{36}-S\d)", text)))
    for agent, agent_id in zip(master.agents, agents, strict=False):
        agent.agent_id, agent.host = agent_id, "127.0.0.1"
    master.by_id = {agent.agent_id: agent for agent in master.agents}
    numbers = [int(number) for number in re.findall(r"-O(\d+)", text)]
    master._next_offer = min(numbers, default=0)
    if frameworks:
        master._next_framework = int(frameworks[0][-4:])
    streams: dict[str, str] = {}
    uuids: dict[tuple[str, str], str] = {}
    golden_uuids = {
        event["update"]["status"]["uuid"]: (
            event["update"]["status"]["task_id"]["value"],
            event["update"]["status"]["state"],
        )
        for raw in golden.values()
        if "chunked" in raw
        for event in parse_stream(raw.partition("\r\n\r\n")[2].encode())[0]
        if event["type"] == "UPDATE" and "uuid" in event["update"]["status"]
    }
    connections: dict[str, Connection] = {}

    def events(conn: str) -> list[dict[str, Any]]:
        connections[conn].read()
        return parse_stream(connections[conn].body)[0]

    def seen(conn: str, wanted: tuple[Any, ...]) -> dict[str, Any] | None:
        end = time.monotonic() + 300.0
        while time.monotonic() < end:
            for event in events(conn):
                if event["type"] == "UPDATE" and "uuid" in event["update"]["status"]:
                    status = event["update"]["status"]
                    uuids[status["task_id"]["value"], status["state"]] = status["uuid"]
                if key(event) == wanted:
                    return event
        return None

    compared = 0
    with contextlib.ExitStack() as opened, master.running():
        for row in rows:
            conn = row["conn"]
            if row["dir"] == "client":
                if conn == "old-stream-id" or conn not in connections or conn == "ack":
                    connections[conn] = Connection(master.port)
                    opened.callback(connections[conn].socket.close)
                sent = row["text"]
                for theirs, ours in streams.items():
                    sent = sent.replace(theirs, ours)
                for theirs, what in golden_uuids.items():
                    if theirs in sent:
                        sent = sent.replace(theirs, uuids[what])
                head, _, body = sent.partition("\r\n\r\n")
                head = re.sub(r"Content-Length: \d+", f"Content-Length: {len(body.encode())}", head)
                connections[conn].received = b""
                connections[conn].socket.sendall(f"{head}\r\n\r\n{body}".encode())
                if "kill-unreachable" in conn:
                    continue
            elif row["dir"] == "master":
                raw = row["text"]
                if raw.startswith("HTTP/"):
                    end = time.monotonic() + 300.0
                    while b"\r\n\r\n" not in connections[conn].received and time.monotonic() < end:
                        connections[conn].read()
                    theirs, _, their_body = raw.partition("\r\n\r\n")
                    ours = connections[conn].head
                    assert ours.split("\r\n")[0] == theirs.split("\r\n")[0], conn
                    assert header_names(ours) == header_names(theirs), conn
                    compared += 1
                    if "Mesos-Stream-Id" in theirs:
                        found = (
                            re.search(r"Mesos-Stream-Id: (\S+)", theirs),
                            re.search(r"Mesos-Stream-Id: (\S+)", ours),
                        )
                        assert found[0] is not None and found[1] is not None
                        streams[found[0][1]] = found[1][1]
                    elif their_body:
                        their_text = their_body
                        for old, new in streams.items():
                            their_text = their_text.replace(old, new)
                        connections[conn].read()
                        assert connections[conn].body.decode() == their_text, conn
                    continue
                their_events, their_end = parse_stream(raw.encode())
                for event in their_events:
                    if key(event) == ("RESCIND",):
                        first = master.agents[0]
                        for framework in master.frameworks.values():
                            framework.filters.clear()
                        assert master.until(lambda first=first: first.offered["mem"] > 0)
                        master.lose_agent(first)
                    if event["type"] == "UPDATE" and "Agent 127.0.0.1 disconnected" in json.dumps(event):
                        continue  # only a framework without checkpoints is informed at once; ours has them
                    mine = seen(conn, key(event))
                    assert mine is not None, f"{conn}: the double never said {key(event)}"
                    if event["type"] == "OFFERS":
                        assert form(mine["offers"]["offers"][0]) == form(event["offers"]["offers"][0])
                    elif event["type"] != "HEARTBEAT":
                        assert form(mine) == form(event), key(event)
                    compared += 1
                if their_end:
                    end = time.monotonic() + 300.0
                    while not parse_stream(connections[conn].body)[1] and time.monotonic() < end:
                        connections[conn].read()
                    assert parse_stream(connections[conn].body)[1], f"{conn}: the stream did not end"
                    compared += 1
    assert compared >= {"basic": 40, "badrole": 3, "agentlost": 10}[name]
