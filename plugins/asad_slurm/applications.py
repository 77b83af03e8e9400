"""Fingerprints of applications (user, name, size class), and what their ended runs took."""

from __future__ import annotations

import math

FEW_RUNS = 3


class Applications:
    """Codes of applications, in the order in which they were met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """By code: `user/name/size`, with `-` for what is not known."""
        self._code: dict[tuple[str, str, int], int] = {}
        self._runs: list[int] = []
        self._cpu: list[float] = []
        self._work_core_s: list[float] = []

    def code(self, user: str, name: str, cores: float) -> int:
        """The code of a job's application."""
        size = max(0, math.ceil(math.log2(cores)))
        key = (user, name, size)
        code = self._code.get(key)
        if code is None:
            code = self._code[key] = len(self.names)
            self.names.append(f"{user or '-'}/{name or '-'}/{2**size}")
            self._runs.append(0)
            self._cpu.append(0.0)
            self._work_core_s.append(0.0)
        return code

    def ended(self, code: int, cpu_fraction: float, core_s: float) -> None:
        """A run has ended that used this fraction of its CPU and held so many core-seconds; NaN says nothing."""
        if not math.isnan(cpu_fraction):
            self._runs[code] += 1
            self._cpu[code] += cpu_fraction
            self._work_core_s[code] += cpu_fraction * core_s

    def cpu_fraction(self, code: int) -> float:
        """Mean CPU use of its runs, NaN if none was measured."""
        return self._cpu[code] / self._runs[code] if self._runs[code] else math.nan

    def work_core_s(self, code: int) -> float:
        """Mean CPU time of its runs (core-seconds), NaN while they are few."""
        runs = self._runs[code]
        return self._work_core_s[code] / runs if runs >= FEW_RUNS else math.nan
