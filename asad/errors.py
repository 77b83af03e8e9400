"""One tree of errors. A message names the place and the remedy, so that it can be shown as it is."""

from __future__ import annotations


class AsadError(Exception):
    """Anything that asad itself has to say. `asactl` prints it and leaves with `exit_status`."""

    exit_status = 1


class UsageError(AsadError):
    """The caller asked for something that cannot be: wrong options, an unknown policy."""

    exit_status = 2


class ConfigError(UsageError):
    """A configuration file, expert tree or workload profile is wrong; the message names file, key and remedy."""


class LogError(UsageError):
    """An accounting log cannot be read as it stands.

    `path`, `line` (from 1) and `column` (its name, or its number from 1) say where; `remedy` says what to do.
    """

    def __init__(self, path: str, line: int | None, column: str | None, problem: str, remedy: str) -> None:
        self.path, self.line, self.column, self.problem, self.remedy = path, line, column, problem, remedy
        place = path
        if line is not None:
            place += f":{line}"
        if column is not None:
            place += f": column {column}"
        super().__init__(f"{place}: {problem}; {remedy}")


class MachineError(UsageError):
    """A machine description cannot be read, or does not hold the jobs of the log."""


class ClusterError(AsadError):
    """The cluster did not do what it was asked for, or could not be asked."""


class StoreError(AsadError):
    """The state store cannot be opened, read or written."""
