"""Answers of squeue and sinfo, one after another: only what has changed in between is parsed.

The answer of squeue is large (about 3 kB a job) and mostly what it was a cycle ago. So it is cut into the text of each
job, and only a text that was not there last time is parsed. A cut in the wrong place cannot go unseen, since each
piece must be a JSON object with a job in it; then the whole answer is parsed instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from asad.cluster.slurm_json import loads
from asad.errors import ClusterError
from asad_slurm.records import NONSENSE, JobRecord, NodeRecord, clean, read_job, read_nodes, short

OLDEST = 37
"""Of `openapi/v0.0.37`: the first JSON with all that is needed."""


class Version(NamedTuple):
    """Who wrote an answer."""

    parser: int
    """38 for openapi/v0.0.38, 41 for data_parser/v0.0.41; 0 if it does not say."""
    release: str


_STARTS = re.compile(rb'"jobs"\s*:\s*\[(\s*\{\s*"(?:[^"\\]|\\.)*")')


@dataclass(slots=True)
class JobReader:
    """Reads one answer of squeue after another, and parses only what has changed in between."""

    version: Version = field(default_factory=lambda: Version(0, ""))
    parsed: int = 0
    """Jobs whose text was new in the last answer."""
    _cache: dict[int, JobRecord] = field(default_factory=dict)

    def read(self, answer: bytes) -> list[JobRecord]:
        """All jobs of an answer. A job that has not changed is the very same object as the last time.

        Raises ClusterError when it is no answer of squeue, or the answer of a Slurm that is too old.
        """
        start = _STARTS.search(answer)
        if start is None:
            return self._read_whole(answer)
        opening = start.group(1)
        between = b"}," + opening
        last = answer.rfind(between, start.end())
        frame = self._last(opening + answer[start.end() if last < 0 else last + len(between) :])
        if frame is None:
            return self._read_whole(answer)
        last_text, tail = frame
        self._read_meta(answer[: start.start()] + b'"jobs": []' + tail)
        cache, fresh, records = self._cache, {}, []
        parsed, begin = 0, start.end()
        while True:  # one text at a time: all of them would be as large as the answer
            end = answer.find(between, begin)
            text = last_text if end < 0 else answer[begin:end]
            key = hash(text)  # 64 bits with a secret of this process: nobody can aim at a collision
            record = cache.get(key)
            if record is None:
                parsed += 1
                try:
                    record = read_job(loads(opening + text + b"}"))
                except NONSENSE:
                    return self._read_whole(answer)
            fresh[key] = record
            records.append(record)
            if end < 0:
                break
            begin = end + len(between)
        self._cache, self.parsed = fresh, parsed
        return records

    def _last(self, text: bytes) -> tuple[bytes, bytes] | None:
        """The text of the last job without its brace, and what follows the list."""
        depth, quoted = 0, False
        for match in re.finditer(rb'\\.|["{}]', text, re.DOTALL):
            mark = match.group()
            if mark == b'"':
                quoted = not quoted
            elif not quoted and mark == b"{":
                depth += 1
            elif not quoted and mark == b"}":
                depth -= 1
                if depth == 0:
                    tail = text[match.end() :].lstrip()
                    if not tail.startswith(b"]"):
                        return None
                    opening = text[: match.start()]
                    first = _STARTS.match(b'"jobs":[' + opening)
                    return (opening[len(first.group(1)) :], tail[1:]) if first else None
        return None

    def _read_whole(self, answer: bytes) -> list[JobRecord]:
        def jobs_of(document: Any) -> list[JobRecord]:
            self._note_meta(document)
            return [read_job(job) for job in document["jobs"]]

        records = _read("squeue", answer, jobs_of)
        self._cache, self.parsed = {}, len(records)
        return records

    def _read_meta(self, frame: bytes) -> None:
        try:
            self._note_meta(loads(frame))
        except NONSENSE:
            self.version = Version(0, "")

    def _note_meta(self, document: Mapping[str, Any]) -> None:
        self.version = read_version(document)
        if 0 < self.version.parser < OLDEST:
            raise ClusterError(
                f"Slurm {self.version.release} writes JSON of v0.0.{self.version.parser}, which is too old; "
                "asad needs Slurm 21.08 or newer"
            )


Row = TypeVar("Row")


def _read(command: str, answer: bytes, rows_of: Callable[[Any], list[Row]]) -> list[Row]:
    """The rows of a whole answer. Raises ClusterError if it is none, or shows nothing and complains of an error: it is
    not that there is nothing."""
    try:
        document = loads(answer)
        rows = rows_of(document)
        for error in document.get("errors") or () if not rows else ():
            why = (error.get("description") or error.get("error")) if isinstance(error, Mapping) else error
            raise ClusterError(
                f"{command} --json: {clean(str(why))[:120]}; is slurmctld well? try `scontrol ping`"
            )
    except NONSENSE as error:
        raise ClusterError(
            f"{command} --json: the answer cannot be read ({short(error)}); "
            "try the command by hand as the daemon's user"
        ) from None
    return rows


def read_version(document: Mapping[str, Any]) -> Version:
    """What `meta` says of the writer."""
    meta = document.get("meta") or {}
    plugin = meta.get("plugin") or meta.get("plugins") or {}
    text = str(plugin.get("data_parser") or plugin.get("type") or "")
    found = re.search(r"v0\.0\.(\d{1,9})", text, re.ASCII)
    slurm = meta.get("slurm") or meta.get("Slurm") or {}
    return Version(int(found.group(1)) if found else 0, clean(str(slurm.get("release", "")))[:40])


@dataclass(slots=True)
class NodeReader:
    """Reads one answer of sinfo after another."""

    _last: bytes | None = None
    _records: list[NodeRecord] = field(default_factory=list)

    def read(self, answer: bytes) -> list[NodeRecord]:
        """All nodes of an answer, each once; the very same list while the answer is the same.

        Raises ClusterError when it is no answer of sinfo.
        """
        if answer != self._last:
            self._records = _read("sinfo", answer, read_nodes)
            self._last = answer
        return self._records
