"""Why a job waits: what the names of Slurm's reasons mean in the few words that a replay has for it.

A name that is not known here is `other`: Slurm gets new reasons with its releases, and none of them is guessed at.
"""

from __future__ import annotations

from functools import lru_cache

LIMIT, NO_ROOM, ORDER, NOT_ELIGIBLE, OTHER = WORDS = (
    "limit",
    "no room",
    "order",
    "not eligible",
    "other",
)
"""A limit of user, account or QOS; too little is free; others stand before it; it may not start yet; the rest."""
_WORD_OF = {
    **dict.fromkeys(("AccountingPolicy", "AssociationJobLimit", "AssociationResourceLimit"), LIMIT),
    **dict.fromkeys(
        ("Resources", "Licenses", "ReqNodeNotAvail", "NodeDown", "BurstBufferResources"), NO_ROOM
    ),
    **dict.fromkeys(("PowerNotAvail", "PowerReserved"), NO_ROOM),
    **dict.fromkeys(("None", "Priority", "Reservation", "SchedDefer"), ORDER),
    **dict.fromkeys(
        ("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobArrayTaskLimit"), NOT_ELIGIBLE
    ),
    **dict.fromkeys(("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "ReservationDeleted"), NOT_ELIGIBLE),
    # what its partition, account or QOS does not allow at all would not start on an empty cluster either
    **dict.fromkeys(("PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints"), NOT_ELIGIBLE),
    **dict.fromkeys(("QOSNotAllowed", "AccountNotAllowed", "InvalidQOS", "InvalidAccount"), NOT_ELIGIBLE),
}
MOST_NAME = 60
"""Characters of a reason that are kept; all names of Slurm's are shorter."""


@lru_cache(maxsize=1024)
def word_of(name: str) -> str:
    """Which of `WORDS` a name of Slurm's means, as squeue (`%r`) and its JSON (`state_reason`) have it."""
    known = _WORD_OF.get(name)
    if known is not None:
        return known
    if name.startswith(("Assoc", "QOS")) or (name.startswith("Max") and "Per" in name):
        return LIMIT  # QOSMaxCpuPerUserLimit, AssocGrpMemLimit, MaxJobsPerAccount: there are some two hundred
    return OTHER


def name_of(reason: str) -> str:
    """The name alone: some versions of Slurm add nodes in brackets (`ReqNodeNotAvail, UnavailableNodes:n[1-4]`)."""
    return reason.partition("(")[0].partition(",")[0].strip()[:MOST_NAME] or "None"
