"""Why jobs wait, by the cluster's own reasons: how many now, and for how long they did."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asad.cluster.reason_words import WORDS, word_of
from asad.model import Floats, Ints, Json, Snapshot, Waits
from asad.status import user_of
from asad.store.wait_hours import Waited

LOOK_S = 60.0
"""The queue is looked at so often for what is kept."""
MOST_LOOK_S = 300.0
"""A look stands for the time since the one before it, but for no longer: nobody knows how a long pause was."""
LOOKS = 10
"""So many looks are handed to the store at a time."""
MOST_PARTITIONS = 100
REST = "others"
"""Of more partitions, and lists of them (`a,b`), those where most jobs wait are kept by name, and the rest together."""
MOST_NAMES = 8
"""Of the cluster's own names of a reason so many are shown, those of most jobs."""


def now_by_reason(snapshot: Snapshot) -> list[dict[str, Json]]:
    """A row for each of `WORDS`, in that order: jobs, their cores, the longest wait since it was submitted (s, None
    where no job waits), and the cluster's own names with their jobs. Empty where the cluster does not say why."""
    waits = snapshot.waits
    if waits is None:
        return []
    count = len(waits.reasons)
    jobs = np.bincount(waits.reason, waits.tasks, count)
    cores = np.bincount(waits.reason, _cores(snapshot, waits), count)
    longest_s = np.full(count, np.nan)
    np.fmax.at(longest_s, waits.reason, _waited_s(snapshot, waits))
    codes: dict[str, list[int]] = {word: [] for word in WORDS}
    for code in np.flatnonzero(jobs).tolist():
        codes[word_of(waits.reasons[code])].append(code)
    rows: list[dict[str, Json]] = []
    for word, of_word in codes.items():
        most = sorted(of_word, key=lambda code: -jobs[code])[:MOST_NAMES]
        names: dict[str, Json] = {str(waits.reasons[code]): int(jobs[code]) for code in most}
        rows.append(
            {
                "reason": word,
                "jobs": int(jobs[of_word].sum()),
                "cores": int(cores[of_word].sum()),
                "longest_s": _longest(longest_s[of_word]),
                "names": names,
            }
        )
    return rows


def now_by(snapshot: Snapshot, applications: Sequence[str]) -> dict[str, list[dict[str, Json]]]:
    """For partition, account, QOS and user a row each: jobs, cores, the longest wait (s), and jobs by reason; most jobs
    first. One loop over all that wait, for whoever asks."""
    waits = snapshot.waits
    if waits is None:
        return {}
    of: dict[str, Callable[[int], str]] = {
        "account": lambda row: waits.accounts.get(row) or "-",
        "qos": lambda row: waits.qos.get(row) or "-",
        "user": lambda row: user_of(snapshot, applications, row),
    }
    found = {"partition": _grouped(snapshot, waits, waits.partition, waits.partitions)}
    for name, text_of in of.items():
        codes: dict[str, int] = {}
        column = [codes.setdefault(text_of(row), len(codes)) for row in waits.row.tolist()]
        found[name] = _grouped(snapshot, waits, np.array(column, np.int32), list(codes))
    return found


def _grouped(snapshot: Snapshot, waits: Waits, codes: Ints, names: Sequence[str]) -> list[dict[str, Json]]:
    words, waited_s, cores = _words(waits), _waited_s(snapshot, waits), _cores(snapshot, waits)
    count = max(1, len(names))
    jobs = np.bincount(codes * len(WORDS) + words, waits.tasks, count * len(WORDS)).reshape(count, -1)
    held = np.bincount(codes, cores, count)
    longest_s = np.full(count, np.nan)
    np.fmax.at(longest_s, codes, waited_s)
    order = np.argsort(-jobs.sum(axis=1), kind="stable").tolist()
    return [
        {
            "name": str(names[code]),
            "jobs": int(jobs[code].sum()),
            "cores": int(held[code]),
            "longest_s": _longest(longest_s[code : code + 1]),
            "reasons": {word: int(jobs[code, k]) for k, word in enumerate(WORDS)},
        }
        for code in order
        if jobs[code].any()
    ]


def _words(waits: Waits) -> Ints:
    """(w,) places in `WORDS`."""
    of_name = np.array([WORDS.index(word_of(name)) for name in waits.reasons], np.int32)
    found: Ints = of_name[waits.reason]
    return found


def _cores(snapshot: Snapshot, waits: Waits) -> Floats:
    """(w,) cores of all jobs that a row stands for."""
    return snapshot.jobs.cores[waits.row].astype(np.float64) * waits.tasks


def _waited_s(snapshot: Snapshot, waits: Waits) -> Floats:
    """(w,) since they were submitted; NaN where that is not known."""
    return np.maximum(snapshot.time_s - snapshot.jobs.submit_s[waits.row], 0.0)


def _longest(waited_s: Floats) -> float | None:
    known = waited_s[np.isfinite(waited_s)]
    return float(known.max()) if len(known) else None


class WaitHistory:
    """Adds up how long jobs wait and why, from looks a minute apart, for the store."""

    def __init__(self, keep: Callable[[Sequence[Waited]], Any]) -> None:
        """`keep` is given what a few looks came to."""
        self._keep = keep
        self._looked_s = -math.inf
        self._found: list[Waited] = []
        self._looks = 0

    def look(self, snapshot: Snapshot) -> None:
        """Once a cycle; does nothing within a minute of the last look, or where the cluster gives no reasons."""
        waits, passed_s = snapshot.waits, snapshot.time_s - self._looked_s
        if waits is None or 0.0 <= passed_s < LOOK_S:
            return
        first = not math.isfinite(passed_s) or passed_s < 0.0  # a clock that was set back begins anew
        self._looked_s = snapshot.time_s
        if first:
            return
        passed_s = min(passed_s, MOST_LOOK_S)
        count, width = len(waits.partitions), len(WORDS)
        cells = waits.partition * width + _words(waits)
        jobs = np.bincount(cells, waits.tasks, count * width).reshape(count, width)
        cores = np.bincount(cells, _cores(snapshot, waits), count * width).reshape(count, width)
        rest = np.argsort(-jobs.sum(axis=1), kind="stable")[MOST_PARTITIONS:]
        named = np.ones(count, np.bool_)
        named[rest] = False
        sums: dict[tuple[str, str], tuple[float, float]] = {}
        for partition, word in zip(*(part.tolist() for part in np.nonzero(jobs)), strict=True):
            key = (waits.partitions[partition] if named[partition] else REST), WORDS[word]
            so_far = sums.get(key, (0.0, 0.0))
            sums[key] = so_far[0] + float(jobs[partition, word]), so_far[1] + float(cores[partition, word])
        self._found += [
            Waited(snapshot.time_s, partition, word, held[0] * passed_s, held[1] * passed_s)
            for (partition, word), held in sums.items()
        ]
        self._looks += 1
        if self._looks >= LOOKS:
            self.hand_over()

    def hand_over(self) -> None:
        """Give what is not yet kept to the store; at the end, too."""
        found, self._found, self._looks = self._found, [], 0
        if found:
            self._keep(found)
