"""Applications of Slurm's jobs (`asad.applications`), and what their ended runs took."""

from __future__ import annotations

import math

from asad import model

FEW_RUNS = 3


class Applications(model.Applications):
    """Codes of applications, with what their runs took; learned anew by each process."""

    def __init__(self) -> None:
        super().__init__()
        self._runs: dict[int, int] = {}
        self._cpu: dict[int, float] = {}
        self._work_core_s: dict[int, float] = {}

    def ended(self, code: int, cpu_fraction: float, core_s: float) -> None:
        """A run has ended that used this fraction of its CPU and held so many core-seconds; NaN says nothing."""
        work_core_s = cpu_fraction * core_s
        if not math.isnan(work_core_s):
            self._runs[code] = self._runs.get(code, 0) + 1
            self._cpu[code] = self._cpu.get(code, 0.0) + cpu_fraction
            self._work_core_s[code] = self._work_core_s.get(code, 0.0) + work_core_s

    def cpu_fraction(self, code: int) -> float:
        """Mean CPU use of its runs, NaN if none was measured."""
        runs = self._runs.get(code, 0)
        return self._cpu[code] / runs if runs else math.nan

    def work_core_s(self, code: int) -> float:
        """Mean CPU time of its runs (core-seconds), NaN while they are few."""
        runs = self._runs.get(code, 0)
        return self._work_core_s[code] / runs if runs >= FEW_RUNS else math.nan

    def _mean_anew(self, code: int) -> None:
        super()._mean_anew(code)
        for column in (self._runs, self._cpu, self._work_core_s):
            column.pop(code, None)
