"""Who may lend, and who may be a guest: what of a single job can be told from its record alone.

What depends on other jobs, on nodes or on measurements (shared nodes, nodes without guests, users who may not share) is
added by `asad_slurm.assembly`, which sees them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

from asad.model import BARS, NODE_BARS, Codes, NodeReport
from asad_slurm.records import JobRecord, NodeRecord
from asad_slurm.settings import Settings


def _bar(sentence: str) -> int:
    return BARS.index(sentence)


JOB_OUT = _bar("it opted out")
USER_OUT = _bar("its user opted out")
ACCOUNT_OUT = _bar("its account opted out")
PARTITION_OUT = _bar("its partition opted out")
QOS_OUT = _bar("its QOS opted out")
MULTI_NODE = _bar("it runs on several nodes, and a host slowed on one is slowed on all")
GRES = _bar("it holds or wants gres")
WHOLE_MEMORY = _bar("it holds all memory of its nodes")
EXCLUSIVE = _bar("it has its nodes for itself (--exclusive)")
LICENCES = _bar("it wants licences")
RESERVATION = _bar("it runs in a reservation")
DEPENDENCY = _bar("it depends on a job that has not ended")
NO_LIMIT = _bar("it has no time limit")
NO_ESTIMATE = _bar("Slurm has not estimated its start")
NOT_ITS_TURN = _bar("it is held, or waits for something other than its turn")
NO_GUEST_PARTITION = _bar("its partition has no guest partition")
OTHER_USERS = _bar("its user's jobs may share with that user's alone")
NODE_TAKES_NONE = _bar("its node takes no guests")
HET = _bar("it is a part of a heterogeneous job, whose parts wait for each other")

NODE_DOWN = NODE_BARS.index("it is drained, down or not answering")
NODE_OUT = NODE_BARS.index("it opted out")
NODE_SILENT = NODE_BARS.index("its node actor does not answer")
NODE_HAS_SHY = NODE_BARS.index("a job there may not lend")
NODE_THREADS = NODE_BARS.index("Slurm takes each of its hyper-threads for a core")


def guest_partition(partition: str, settings: Settings) -> str:
    """Where a job that waits in `partition` (Slurm allows `a,b`) runs as a guest; the empty string for nowhere.

    A job that waits in several partitions needs the same guest partition for each.
    """
    known = settings.guest_partitions
    if "," not in partition:
        return known.get(partition, "")
    found = {known.get(name, "") for name in partition.split(",")}
    return found.pop() if len(found) == 1 else ""


def host_bar(job: JobRecord, settings: Settings) -> int:
    """Why a running job may not lend: an index into `BARS`, 0 for nothing."""
    out = opted_out(job, settings, "asad:no-host")
    if out:
        return out
    lend = settings.lend
    if guest_partition(job.partition, settings) == "":
        return NO_GUEST_PARTITION
    if (job.nodes > 1 or job.het) and "multi-node" not in lend:
        return HET if job.het else MULTI_NODE
    if job.gres and "gres" not in lend:
        return GRES
    if job.whole_memory and "whole-memory" not in lend:
        return WHOLE_MEMORY
    if job.exclusive and "exclusive" not in lend:
        return EXCLUSIVE
    if job.reservation:
        return RESERVATION
    if job.suspended:
        return NOT_ITS_TURN
    return 0


def guest_bar(job: JobRecord, settings: Settings) -> int:
    """Why a waiting job may not be a guest: an index into `BARS`, 0 for nothing."""
    out = opted_out(job, settings, "asad:no-guest")
    if out:
        return out
    if guest_partition(job.partition, settings) == "":
        return NO_GUEST_PARTITION
    if job.gres:
        return GRES
    if job.whole_memory:
        return WHOLE_MEMORY
    if job.exclusive:
        return EXCLUSIVE
    if job.licences:
        return LICENCES
    if job.reservation:
        return RESERVATION
    if job.dependency:
        return DEPENDENCY
    if not math.isfinite(job.time_limit_s):
        return NO_LIMIT
    if job.het:
        return HET
    if not job.waits_turn:
        return NOT_ITS_TURN
    if math.isnan(job.estimate_s):
        return NO_ESTIMATE
    return 0


def opted_out(job: JobRecord, settings: Settings, word: str) -> int:
    """Did the job, or the operators for it, opt out? `word` in its comment does for one role, `asad:no` for both."""
    out = settings.opt_out
    if "asad:no" in job.comment:
        words = _words(job.comment)
        if "asad:no" in words or word in words:
            return JOB_OUT
    if out.jobs and (job.text in out.jobs or str(job.raw) in out.jobs or job.text.split("_")[0] in out.jobs):
        return JOB_OUT
    if job.user in out.users:
        return USER_OUT
    if job.account in out.accounts:
        return ACCOUNT_OUT
    if out.partitions and not out.partitions.isdisjoint(job.partition.split(",")):
        return PARTITION_OUT
    if job.qos in out.qos:
        return QOS_OUT
    return 0


def memory_bound(job: JobRecord, settings: Settings) -> bool:
    """Is it said to be bound by memory bandwidth? By the operators' rule, or by `asad:memory-bound` in its comment."""
    rule = settings.memory_bound
    if "asad:memory-bound" in job.comment and "asad:memory-bound" in _words(job.comment):
        return True
    if rule.names and any(fnmatchcase(job.name, pattern) for pattern in rule.names):
        return True
    return bool(rule.partitions) and not rule.partitions.isdisjoint(job.partition.split(","))


def _words(comment: str) -> list[str]:
    return comment.replace(",", " ").replace(";", " ").split()


def node_bar(node: NodeRecord, settings: Settings, report: NodeReport | None) -> int:
    """Why nothing is lent on a node: an index into `NODE_BARS`, 0 for nothing. `report` is its actor's, if it answers.

    Whole cores are lent. A Slurm that knows of hyper-threads gives all of a core to one job, under CR_CPU too; one that
    was told of CPUs alone gives them one by one.
    """
    if not node.usable:
        return NODE_DOWN
    if node.name in settings.opt_out.nodes:
        return NODE_OUT
    if report is None:
        return NODE_SILENT
    return NODE_THREADS if 0 < report.hyperthreaded_cores < node.cpus / node.threads else 0


def widened(node_bar: Codes, reports: Sequence[NodeReport | None]) -> bool:
    """Do the actors of all nodes that lend let guests run on every core of theirs?"""
    lend = [
        report for barred, report in zip(node_bar.tolist(), reports, strict=True) if not barred and report
    ]
    return bool(lend) and all(report.widens for report in lend)
