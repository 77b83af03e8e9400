"""Who may lend, and who may be a guest: what of a single job can be told from its record alone.

What depends on other jobs, on nodes or on measurements (shared nodes, nodes without guests, users who may not share) is
added by `asad_slurm.assembly`, which sees them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Codes
from asad.port import NodeReport
from asad_slurm.records import JobRecord, NodeRecord
from asad_slurm.settings import Settings


def guest_partition(partition: str, settings: Settings) -> str:
    """Where a job that waits in `partition` (Slurm allows `a,b`) runs as a guest; the empty string for nowhere.

    A job that waits in several partitions needs the same guest partition for each.
    """
    known = settings.guest_partitions
    if "," not in partition:
        return known.get(partition, "")
    found = {known.get(name, "") for name in partition.split(",")}
    return found.pop() if len(found) == 1 else ""


def host_bar(job: JobRecord, settings: Settings) -> Ineligible:
    """Why a running job may not lend: `Ineligible.NO` for nothing."""
    lend = settings.lend
    return opted_out(job, settings, "asad:no-host") or _first(
        (Ineligible.NO_GUEST_PARTITION, guest_partition(job.partition, settings) == ""),
        (Ineligible.HETEROGENEOUS, job.het and "multi-node" not in lend),
        (Ineligible.SEVERAL_NODES, job.nodes > 1 and "multi-node" not in lend),
        (Ineligible.GRES, job.gres and "gres" not in lend),
        (Ineligible.ALL_MEMORY, job.whole_memory and "whole-memory" not in lend),
        (Ineligible.EXCLUSIVE, job.exclusive and "exclusive" not in lend),
        (Ineligible.RESERVATION, job.reservation),
        (Ineligible.NOT_ITS_TURN, job.suspended),
    )


def guest_bar(job: JobRecord, settings: Settings) -> Ineligible:
    """Why a waiting job may not be a guest: `Ineligible.NO` for nothing."""
    return opted_out(job, settings, "asad:no-guest") or _first(
        (Ineligible.NO_GUEST_PARTITION, guest_partition(job.partition, settings) == ""),
        (Ineligible.GRES, job.gres),
        (Ineligible.ALL_MEMORY, job.whole_memory),
        (Ineligible.EXCLUSIVE, job.exclusive),
        (Ineligible.LICENCES, job.licences),
        (Ineligible.RESERVATION, job.reservation),
        (Ineligible.DEPENDENCY, job.dependency),
        (Ineligible.NO_TIME_LIMIT, not math.isfinite(job.time_limit_s)),
        (Ineligible.HETEROGENEOUS, job.het),
        (Ineligible.NOT_ITS_TURN, not job.waits_turn),
        (Ineligible.NO_ESTIMATE, math.isnan(job.estimate_s)),
    )


def opted_out(job: JobRecord, settings: Settings, word: str) -> Ineligible:
    """Did the job, or the operators for it, opt out? `word` in its comment does for one role, `asad:no` for both."""
    out = settings.opt_out
    names = (job.text, str(job.raw), job.text.split("_")[0])
    return _first(
        (Ineligible.JOB_OPTED_OUT, not {"asad:no", word}.isdisjoint(_words(job.comment))),
        (Ineligible.JOB_OPTED_OUT, not out.jobs.isdisjoint(names)),
        (Ineligible.USER_OPTED_OUT, job.user in out.users),
        (Ineligible.ACCOUNT_OPTED_OUT, job.account in out.accounts),
        (Ineligible.PARTITION_OPTED_OUT, not out.partitions.isdisjoint(job.partition.split(","))),
        (Ineligible.QOS_OPTED_OUT, job.qos in out.qos),
    )


def _first(*reasons: tuple[Ineligible, object]) -> Ineligible:
    """The first reason that holds."""
    return next((reason for reason, holds in reasons if holds), Ineligible.NO)


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


def node_bar(node: NodeRecord, settings: Settings, report: NodeReport | None) -> NodeIneligible:
    """Why nothing is lent on a node: `NodeIneligible.NO` for nothing. `report` is its actor's, if it answers.

    Whole cores are lent. A Slurm that knows of hyper-threads gives all of a core to one job, under CR_CPU too; one that
    was told of CPUs alone gives them one by one.
    """
    if not node.usable:
        return NodeIneligible.DOWN
    if node.name in settings.opt_out.nodes:
        return NodeIneligible.OPTED_OUT
    if report is None:
        return NodeIneligible.NO_ACTOR
    alone = 0 < report.hyperthreaded_cores < node.cpus / node.threads
    return NodeIneligible.HYPERTHREADS if alone else NodeIneligible.NO


def widened(node_bar: Codes, reports: Sequence[NodeReport | None]) -> bool:
    """Do the actors of all nodes that lend let guests run on every core of theirs?"""
    lend = [
        report for barred, report in zip(node_bar.tolist(), reports, strict=True) if not barred and report
    ]
    return bool(lend) and all(report.widens for report in lend)
