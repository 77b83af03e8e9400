"""Runs inside the virtual machine: takes a JSON line, does what it says, answers with a JSON line.

    {"id": 1, "argv": ["true"], "timeout_s": 60}            →  {"id": 1, "status": 0, "out": "", "err": "", …}
    {"id": 2, "argv": […], "until": "regex", "timeout_s": …}   run again and again until it succeeds and `regex` is
                                                               found in its output: {…, "met": true, "tries": 3, …}
    {"id": 3, "argv": ["tee", "/etc/x"], "stdin": "text"}

`status` is the exit status, negative for a signal, null for a program that is not there or has run out of time; `err`
then says which. `wall_s` is how long it took by this machine's clock. Standard library only: it runs before anything of
ours is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any, BinaryIO

LEAST_S = 0.2
"""Pause between two looks: an emulated machine has little time to give."""
LONGEST = 200_000
"""Characters of output that are reported; of more, the end."""


def execute(argv: list[str], stdin: str, timeout_s: float) -> dict[str, Any]:
    """Run one command without a shell."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode(errors="replace")
        return {"status": None, "out": out[-LONGEST:], "err": f"not done after {timeout_s:.1f} s"}
    except OSError as error:
        return {"status": None, "out": "", "err": str(error)}
    return {"status": done.returncode, "out": done.stdout[-LONGEST:], "err": done.stderr[-LONGEST:]}


def do(step: dict[str, Any]) -> dict[str, Any]:
    """The answer to one step."""
    start_s = time.monotonic()
    timeout_s, until = float(step.get("timeout_s", 60.0)), step.get("until")
    answer: dict[str, Any] = {}
    tries = 0
    while True:
        left_s = start_s + timeout_s - time.monotonic()
        if tries and left_s <= 0.0:
            break
        tries += 1
        answer = execute(step["argv"], step.get("stdin", ""), max(left_s, LEAST_S))
        if until is None:
            break
        answer["met"] = answer["status"] == 0 and re.search(until, answer["out"]) is not None
        if answer["met"]:
            break
        time.sleep(LEAST_S)
    return {"id": step["id"], **answer, "tries": tries, "wall_s": round(time.monotonic() - start_s, 3)}


def serve(line: BinaryIO) -> None:
    """Answer until the other end closes. A line that is no step is answered too: nobody waits in vain."""

    def say(answer: dict[str, Any]) -> None:
        line.write(json.dumps(answer).encode() + b"\n")
        line.flush()

    say({"id": 0, "ready": True})
    for text in iter(line.readline, b""):
        try:
            step = json.loads(text)
            answer = do(step)
        except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
            answer = {
                "id": -1,
                "status": None,
                "out": "",
                "err": f"no step: {error!r}",
                "tries": 0,
                "wall_s": 0.0,
            }
        say(answer)


if __name__ == "__main__":
    with open(sys.argv[1], "r+b", buffering=0) as port:  # noqa: PTH123 - a device, unbuffered in both directions
        serve(port)
