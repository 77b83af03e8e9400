"""The probe answers whatever is asked; tried here, without a machine around it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from probe import do, serve


class Line(io.RawIOBase):
    """A port: what is read from it was asked, what is written to it was answered."""

    def __init__(self, asked: bytes) -> None:
        self.asked, self.answered = io.BytesIO(asked), io.BytesIO()

    def readline(self, size: int | None = -1) -> bytes:
        return self.asked.readline()

    def write(self, text: Any) -> int:
        return self.answered.write(text)


def test_a_command_is_run_and_reported() -> None:
    answer = do({"id": 7, "argv": ["sh", "-c", "cat; echo oh >&2; exit 3"], "stdin": "in"})
    assert (answer["id"], answer["status"], answer["out"], answer["err"]) == (7, 3, "in", "oh\n")
    assert answer["wall_s"] >= 0.0


def test_a_program_that_is_not_there_is_reported() -> None:
    answer = do({"id": 1, "argv": ["/nowhere/at-all"]})
    assert answer["status"] is None
    assert "No such file" in answer["err"]


def test_a_command_that_hangs_is_ended() -> None:
    answer = do({"id": 1, "argv": ["sh", "-c", "echo begun; exec sleep 600"], "timeout_s": 0.5})
    assert (answer["status"], answer["out"], answer["err"]) == (None, "begun\n", "not done after 0.5 s")
    assert answer["wall_s"] < 60.0


def test_looks_are_repeated_until_it_is_so(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    count = f"echo x >> {seen}; wc -l < {seen}"
    answer = do({"id": 1, "argv": ["sh", "-c", count], "until": "^3$", "timeout_s": 60.0})
    assert (answer["met"], answer["tries"], answer["out"].strip()) == (True, 3, "3")


def test_what_never_comes_is_reported_with_the_last_look() -> None:
    answer = do({"id": 1, "argv": ["echo", "no"], "until": "yes", "timeout_s": 0.3})
    assert (answer["met"], answer["out"]) == (False, "no\n")
    assert answer["tries"] >= 1


def test_what_is_no_step_is_answered_and_the_line_stays() -> None:
    asked = (
        b'not json\n{"id": 1}\n[]\n' + json.dumps({"id": 2, "argv": ["echo", "still here"]}).encode() + b"\n"
    )
    line = Line(asked)
    serve(line)  # type: ignore[arg-type]
    ready, *refused, last = map(json.loads, line.answered.getvalue().splitlines())
    assert ready == {"id": 0, "ready": True}
    assert [answer["id"] for answer in refused] == [-1, -1, -1]
    assert (last["id"], last["out"]) == (2, "still here\n")
