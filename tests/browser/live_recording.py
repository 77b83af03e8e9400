"""What a daemon answered to the live page. `python tests/browser/live_recording.py SOCKET FILE COUNT SECONDS` records.

The file that the tests play is of a recorded cluster: `asad --cluster recorded --log
profiles/samples/generated-cluster.sacct.gz --nodes 16 --cores 32 --memory 128G --speed 1000`.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

from asad.api.control import ask

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "live-page.jsonl.gz"


MOST_DECISIONS = 40


def short(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what names the machine on which it was made, and with few decisions."""
    cluster = answer["status"]["cluster"]
    cluster["sentence"] = cluster["sentence"].rpartition("/")[2]
    answer["status"]["store"]["url"] = ""
    answer["decisions"] = answer["decisions"][-MOST_DECISIONS:]
    return answer


def record(socket: str, path: Path, count: int, every_s: float) -> None:
    """Ask so often, and write the answers."""
    lines = []
    for _ in range(count):
        lines.append(json.dumps(short(ask(socket, "page")), sort_keys=True))
        time.sleep(every_s)
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


class Played:
    """Stands in for the daemon: gives one answer after the other, and stays at the last."""

    def __init__(self, path: Path = RECORDED) -> None:
        self.answers = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        self.at = -1

    def __call__(self, path: Path, verb: str, *, timeout_s: float = 1.0, **arguments: Any) -> Any:
        if verb != "page":
            return {"error": "a recording knows no stories"}
        self.at = min(self.at + 1, len(self.answers) - 1)
        return self.answers[self.at]


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
