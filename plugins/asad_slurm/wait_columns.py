"""Why the jobs of Slurm's queue wait: codes that are set when a record changes, so that counting costs no loop."""

from __future__ import annotations

from operator import attrgetter

from asad.cluster.reason_words import name_of
from asad.model import Ints, Waits
from asad_slurm.records import JobRecord
from asad_slurm.rows import Rows, Texts

MOST = 4096
"""Names that have codes of their own; jobs may be sent to any list of partitions (`a,b`), and those are many."""
REST = "others"


class Names:
    """Codes of texts, in the order in which they came. The first is that of whatever comes after `MOST`."""

    def __init__(self) -> None:
        self.known = [REST]
        self._code: dict[str, int] = {}

    def code(self, text: str) -> int:
        """The same for the same text."""
        code = self._code.get(text)
        if code is None:
            if len(self.known) > MOST:
                return 0
            code = self._code[text] = len(self.known)
            self.known.append(text)
        return code


class WaitReasons:
    """Reason and partition of every job that waits, in two columns of the rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._reasons, self._partitions = Names(), Names()
        self._accounts, self._qos = Texts(rows, attrgetter("account")), Texts(rows, attrgetter("qos"))

    def describe(self, row: int, record: JobRecord) -> None:
        """A record of a job that waits is new, or has changed."""
        self._rows.extra.reason[row] = self._reasons.code(name_of(record.reason))
        self._rows.extra.partition[row] = self._partitions.code(record.partition)

    def shown(self, waiting: Ints) -> Waits:
        """For a snapshot in which the jobs in these rows wait."""
        extra = self._rows.extra
        return Waits(
            row=waiting,
            tasks=extra.tasks[waiting],
            reason=extra.reason[waiting],
            partition=extra.partition[waiting],
            reasons=self._reasons.known,
            partitions=self._partitions.known,
            accounts=self._accounts,
            qos=self._qos,
        )
