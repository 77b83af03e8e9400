"""Why a job or a node takes no part in lending: reasons with numbers for columns and texts for operators.

Snapshots carry the numbers, in small columns that compiled code reads. A number keeps its meaning, since recorded
cycles hold it: a new reason comes last.
"""

from __future__ import annotations

from enum import IntEnum


class _Reason(IntEnum):
    """A number that a column can hold, with a sentence about the job or node."""

    text: str

    def __new__(cls, number: int, text: str = "") -> _Reason:
        member = int.__new__(cls, number)
        member._value_, member.text = number, text
        return member


class Ineligible(_Reason):
    """Why a job may not lend, or may not be a guest."""

    NO = 0, ""
    JOB_OPTED_OUT = 1, "it opted out"
    USER_OPTED_OUT = 2, "its user opted out"
    ACCOUNT_OPTED_OUT = 3, "its account opted out"
    PARTITION_OPTED_OUT = 4, "its partition opted out"
    QOS_OPTED_OUT = 5, "its QOS opted out"
    SEVERAL_NODES = 6, "it runs on several nodes, and a host slowed on one is slowed on all"
    GRES = 7, "it holds or wants gres"
    ALL_MEMORY = 8, "it holds all memory of its nodes"
    EXCLUSIVE = 9, "it has its nodes for itself (--exclusive)"
    SHARED_NODE = 10, "it shares its node with other batch jobs"
    LICENCES = 11, "it wants licences"
    RESERVATION = 12, "it runs in a reservation"
    DEPENDENCY = 13, "it depends on a job that has not ended"
    NO_TIME_LIMIT = 14, "it has no time limit"
    NO_ESTIMATE = 15, "Slurm has not estimated its start"
    NOT_ITS_TURN = 16, "it is held, or waits for something other than its turn"
    NO_GUEST_PARTITION = 17, "its partition has no guest partition"
    OTHER_USERS = 18, "its user's jobs may share with that user's alone"
    NODE_TAKES_NO_GUESTS = 19, "its node takes no guests"
    HETEROGENEOUS = 20, "it is a part of a heterogeneous job, whose parts wait for each other"
    OTHER_POLICY = 21, "another policy lends to it"
    NOT_A_JOB = 22, "it holds what the log has held: a vacated slot, or an earlier run of a requeued job"
    LIMIT = 23, "a limit of its user, account or QOS keeps it from starting"


class NodeIneligible(_Reason):
    """Why nothing is lent on a node."""

    NO = 0, ""
    DOWN = 1, "it is drained, down or not answering"
    OPTED_OUT = 2, "it opted out"
    NO_ACTOR = 3, "its node actor does not answer"
    HYPERTHREADS = 4, "Slurm takes each of its hyper-threads for a core"
    JOB_MAY_NOT_LEND = 5, "a job there may not lend"
    OVERFULL = 6, "the log held more of it at some time than it has"
    GONE = (
        7,
        "it stands empty beside jobs that wait and would fit: it is down, or holds jobs that the log does not have",
    )


OPTED_OUT = frozenset(
    {
        Ineligible.JOB_OPTED_OUT,
        Ineligible.USER_OPTED_OUT,
        Ineligible.ACCOUNT_OPTED_OUT,
        Ineligible.PARTITION_OPTED_OUT,
        Ineligible.QOS_OPTED_OUT,
    }
)
"""Whoever opted out is left alone by every stage, not by lending only."""
NEVER_HELD = OPTED_OUT | {Ineligible.DEPENDENCY, Ineligible.HETEROGENEOUS}
"""Whoever waits for other jobs, or other parts, is not held back for a reason of ours, either."""
