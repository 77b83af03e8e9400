"""What the jobs of a log are worth: the utilities that users or rules state, and what a schedule makes of them.

A job array is one job here: it is worth what its utility says of the time from its submission to its last end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.admit.elastic import Utility
from asad.admit.hints import read_hint
from asad.admit.utility import Maker, parse_utility
from asad.errors import UsageError
from asad.model import Floats, Ints, JobLog

RULE = re.compile(r"(?:(user|partition)=([^:]{1,200}):)?\s*(\S.*)", re.DOTALL)
TASK = re.compile(r"(\d{1,18})_\d{1,10}", re.ASCII)


class Rule(NamedTuple):
    """A utility for jobs that state none: all, or those of one user or partition."""

    utility: str
    column: str = ""
    """`user`, `partition` or empty: all jobs."""
    name: str = ""


def read_rule(text: str, slot_s: float, most_worth: float, own: Mapping[str, Maker] | None = None) -> Rule:
    """A rule from `[user=NAME:|partition=NAME:]UTILITY`. Raises UsageError if it cannot be read.

    Its utility may not be worth more than `most_worth`, the most that a hint is worth.
    """
    found = RULE.fullmatch(text.strip())
    if found is None:
        raise UsageError("--utility is empty; write for example --utility 'sigmoid(10,0.5,2h)'")
    column, name, utility = found[1] or "", found[2] or "", found[3]
    try:
        worth = parse_utility(utility, slot_s, own)(0.0)
    except UsageError as error:
        raise UsageError(f"--utility: {error}") from None
    if worth > most_worth:
        raise UsageError(
            f"--utility {utility}: it is worth {worth:g}, and no job is worth more than {most_worth:g} here; "
            "write less, on one scale for all jobs"
        )
    return Rule(utility, column, name)


def arrays_of(job_id: NDArray[np.generic], user: Ints) -> Ints:
    """(n,) number of the array of which each job is a task (`12_3` of `12`), in order of appearance; -1 for none."""
    numbers = np.full(len(job_id), -1, np.int32)
    if job_id.dtype.kind != "U":
        return numbers
    code: dict[tuple[str, int], int] = {}
    for row in np.flatnonzero(np.char.find(job_id.astype(str), "_") > 0).tolist():
        found = TASK.fullmatch(str(job_id[row]))
        if found is not None:  # in a log of several clusters one number may be two arrays
            numbers[row] = code.setdefault((found[1], int(user[row])), len(code))
    return numbers


def rows_of(jobs: JobLog, column: str, name: str) -> NDArray[np.bool_]:
    """(n,) The jobs of the `user` or `partition` of that name; all where `column` is empty."""
    if not column:
        return np.ones(len(jobs), np.bool_)
    names: tuple[str, ...] = getattr(jobs, f"{column}s")
    found: NDArray[np.bool_] = getattr(jobs, column) == (names.index(name) if name in names else -2)
    return found


def hints_of(jobs: JobLog, rules: Sequence[Rule]) -> dict[int, str]:
    """By row, what its user states of its utility, else what the first rule that fits does.

    Rules for one user come before those for a partition, and those before the ones for all.
    """
    hints: dict[int, str] = {}
    if jobs.hint is not None:
        hints = {row: jobs.hints[jobs.hint[row]] for row in np.flatnonzero(jobs.hint >= 0).tolist()}
    open_rows = np.ones(len(jobs), np.bool_)
    for row, text in hints.items():
        open_rows[row] = "utility=" not in text
    for rule in sorted(rules, key=lambda rule: ("user", "partition", "").index(rule.column)):
        fits = open_rows & rows_of(jobs, rule.column, rule.name)
        for row in np.flatnonzero(fits).tolist():
            before = hints.get(row, "")
            hints[row] = f"{before};utility={rule.utility}" if before else f"utility={rule.utility}"
        open_rows = open_rows & ~fits
    return hints


@dataclass(frozen=True, slots=True)
class Valued:
    """The jobs of a log that have a utility; G of them, an array counting as one."""

    group: Ints
    """(n,) which of them each row belongs to, -1 for none."""
    submit_s: Floats
    """(G,)"""
    target_s: Floats
    """(G,) how long after its submission each is to be done; inf where its worth never falls."""
    utilities: tuple[Utility, ...]
    slot_s: float
    most_worth: float
    wrong: tuple[str, ...]
    """What is wrong with hints that cannot be read, one sentence for each job or array."""

    def __len__(self) -> int:
        return len(self.utilities)

    def ends(self, end_s: Floats) -> Floats:
        """(G,) when the last row of each has ended."""
        ends: Floats = np.full(len(self), -np.inf)
        rows = np.flatnonzero(self.group >= 0)
        np.maximum.at(ends, self.group[rows], end_s[rows])
        return ends

    def figures(self, end_s: Floats) -> dict[str, float | int | None]:
        """The figures of one schedule; `end_s` is (n,).

        `utility` is the sum of all worths, `valued` how many they are; `timeliness_mean_s` the mean of completion less
        target over those that have one (below 0: early), `in_time` how many were done by it.
        """
        took_s = self.ends(end_s) - self.submit_s
        worth = sum(
            min(self.most_worth, utility(slots))
            for utility, slots in zip(self.utilities, (took_s / self.slot_s).tolist(), strict=True)
        )
        due = np.isfinite(self.target_s)
        late_s = took_s[due] - self.target_s[due]
        return {
            "utility": float(worth),
            "valued": len(self),
            "timeliness_mean_s": float(late_s.mean()) if len(late_s) else None,
            "in_time": int((late_s <= 0).sum()),
        }


def value(
    jobs: JobLog,
    hints: Mapping[int, str],
    array: Ints,
    slot_s: float,
    most_worth: float,
    own: Mapping[str, Maker] | None = None,
) -> Valued:
    """Who of the log has a utility: what the first row of an array states holds for all of its tasks."""
    group = np.full(len(jobs), -1, np.int32)
    first: dict[int, int] = {}
    leads: list[int] = []
    utilities: list[Utility] = []
    wrong: list[str] = []
    known: dict[str, Utility | str] = {}
    for row, number in enumerate(array.tolist()):
        if number >= 0 and number in first:
            group[row] = group[first[number]]
            continue
        if number >= 0:
            first[number] = row
        text = hints.get(row, "")
        if not text:
            continue
        if text not in known:
            known[text] = _read(text, slot_s, own)
        utility = known[text]
        if isinstance(utility, str):
            if utility:
                wrong.append(f"job {jobs.job_id[row]}: {utility}")
            continue
        group[row] = len(utilities)
        utilities.append(utility)
        leads.append(row)
    targets = [float(getattr(utility, "target", math.inf)) for utility in utilities]
    return Valued(
        group=group,
        submit_s=jobs.submit_s[leads],
        target_s=np.array(targets, np.float64) * slot_s,
        utilities=tuple(utilities),
        slot_s=slot_s,
        most_worth=most_worth,
        wrong=tuple(wrong),
    )


def _read(text: str, slot_s: float, own: Mapping[str, Maker] | None) -> Utility | str:
    """The utility of a hint; what is wrong with it as a text, which is empty if it states none."""
    try:
        utility = read_hint(text).utility
        return parse_utility(utility, slot_s, own) if utility else ""
    except (ValueError, UsageError) as error:
        return str(error)
