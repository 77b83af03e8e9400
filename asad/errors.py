"""One tree of errors. A message names the place and the remedy, so that it can be shown as it is."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ExitStatus(IntEnum):
    """What every program of asad ends with; a script may rely on the numbers."""

    about: str
    """The meaning, for documentation."""

    def __new__(cls, number: int, about: str) -> Self:
        status = int.__new__(cls, number)
        status._value_ = number
        status.about = about
        return status

    DONE = 0, "Done, and nothing is wrong."
    FAILED = (
        1,
        "It failed, or something that was checked is not as it should be (`asactl doctor`, `asad-undo`).",
    )
    USAGE = 2, "Wrong usage, or wrong input: options, a configuration, a log, a job that nobody knows."
    NO_DAEMON = 3, "No daemon answers at the control socket."
    NOT_ALLOWED = 4, "The daemon is there, and you may not do that."
    SUPERSEDED = (
        7,
        "`asad` alone: the nodes obey a daemon of this cluster that was started later.",
    )
    INTERRUPTED = 130, "Interrupted from the keyboard, or a question was answered with no."


class AsadError(Exception):
    """Anything that asad itself has to say. `asactl` prints it and leaves with `exit_status`."""

    exit_status: int = ExitStatus.FAILED


class UsageError(AsadError):
    """The caller asked for something that cannot be: wrong options, an unknown policy."""

    exit_status = ExitStatus.USAGE


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


def how_to_install(extra: str) -> str:
    """The remedy where a package of the optional part `extra` is missing.

    From a checkout, never by name: what Python's package index calls `asad` is a stranger's, and `asad-hpc` is
    not published there.
    """
    return f"pip install '/path/to/asad[{extra}]', with the path of a checkout of asad"
