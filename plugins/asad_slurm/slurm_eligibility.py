"""What Slurm alone adds to who may lend and who may be a guest (`asad.cluster.eligibility`), and why an offer is not
made after all: looked at once more, right before Slurm is asked.

What of a single job follows from its record alone comes first. What depends on other jobs, on nodes or on measurements
(shared nodes, nodes without guests, users who may not share) is added by `asad_slurm.assembly`, which sees them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from asad.cluster import eligibility
from asad.cluster.eligibility import JobFacts
from asad.cluster.lending_rules import first_reason, nodes_refused
from asad.cluster.reason_words import LIMIT, name_of, word_of
from asad.decisions import CoAllocate
from asad.ineligible import Ineligible, NodeIneligible
from asad.model import Codes, Snapshot
from asad.port import NodeReport
from asad_slurm.nodesets import expand, expanded
from asad_slurm.offers import nodes_asked
from asad_slurm.records import MIB, WAITS, JobRecord, NodeRecord
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


def host_ineligible(job: JobRecord, settings: Settings) -> Ineligible:
    """Why a running job may not lend: `Ineligible.NO` for nothing."""
    return _before(job, settings, "asad:no-host") or eligibility.host_ineligible(facts(job), settings.lend)


def guest_ineligible(job: JobRecord, settings: Settings) -> Ineligible:
    """Why a waiting job may not be a guest: `Ineligible.NO` for nothing."""
    return _before(job, settings, "asad:no-guest") or eligibility.guest_ineligible(facts(job))


def facts(job: JobRecord) -> JobFacts:
    """What a record says of what the common rules ask."""
    return JobFacts(
        nodes=2 if job.nodes > 1 else 1,
        gres=job.gres,
        whole_memory=job.whole_memory,
        exclusive=job.exclusive,
        heterogeneous=job.het,
        licences=job.licences != "",
        reservation=job.reservation != "",
        dependency=job.dependency != "",
        suspended=job.suspended,
        time_limit=math.isfinite(job.time_limit_s),
        waits_turn=job.waits_turn,
        estimate=not math.isnan(job.estimate_s),
        limit=job.phase == WAITS and word_of(name_of(job.reason)) == LIMIT,
    )


def _before(job: JobRecord, settings: Settings, word: str) -> Ineligible:
    """What only Slurm and its operators know comes before the common rules."""
    why = opted_out(job, settings, word)
    if not why and guest_partition(job.partition, settings) == "":
        return Ineligible.NO_GUEST_PARTITION
    return why


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
    """Does its comment (`asad:memory-bound`) or the operators' rule call it bound by memory bandwidth?"""
    rule = settings.memory_bound
    return bool(
        ("asad:memory-bound" in job.comment and "asad:memory-bound" in _words(job.comment))
        or any(fnmatchcase(job.name, pattern) for pattern in rule.names)
        or (rule.partitions and not rule.partitions.isdisjoint(job.partition.split(",")))
    )


def _words(comment: str) -> list[str]:
    return comment.replace(",", " ").replace(";", " ").split()


def node_ineligible(node: NodeRecord, settings: Settings, report: NodeReport | None) -> NodeIneligible:
    """Why nothing is lent on a node: `NodeIneligible.NO` for nothing. `report` is its actor's, if it answers.

    Whole cores are lent. A Slurm that knows of hyper-threads gives all of a core to one job, under CR_CPU too; one that
    is configured with CPUs alone gives them one by one.
    """
    reasons = (
        (NodeIneligible.DOWN, not node.usable),
        (NodeIneligible.OPTED_OUT, node.name in settings.opt_out.nodes),
        (NodeIneligible.NO_ACTOR, report is None),
        (NodeIneligible.HYPERTHREADS, report and 0 < report.hyperthreaded_cores < node.cpus / node.threads),
    )
    return next((reason for reason, holds in reasons if holds), NodeIneligible.NO)


def widened(node_bar: Codes, reports: Sequence[NodeReport | None]) -> bool:
    """Do the actors of all nodes that lend let guests run on every core of theirs?"""
    lend = [report for why, report in zip(node_bar.tolist(), reports, strict=True) if not why and report]
    return bool(lend) and all(report.widens for report in lend)


def refusal(
    snapshot: Snapshot,
    decision: CoAllocate,
    guest: JobRecord,
    nodes: list[NodeRecord],
    guest_nodes: Mapping[str, NDArray[np.bool_]],
    settings: Settings,
) -> str:
    """Why `guest` (waits) cannot be offered these nodes; the empty string if it can.

    Of a pair the host must hold all of each node. `guest_nodes` says for each guest partition which nodes are in it.
    """
    jobs, first, names = snapshot.jobs, snapshot.machine.first_core, snapshot.machine.node_names
    if why := nodes_refused(decision, len(names)):
        return why
    if ineligible := guest_ineligible(guest, settings) or int(jobs.guest_bar[decision.guest]):
        return Ineligible(ineligible).text
    partition = guest_partition(guest.partition, settings)
    free, widest = 0, -(-int(guest.cores) // len(decision.nodes))
    for node in decision.nodes:
        here, name = slice(first[node], first[node + 1]), names[node]
        owner, there = snapshot.core_owner[here], snapshot.core_guest[here]
        hosts = set(owner.tolist()) - {-1}
        for host in hosts:
            if jobs.host_bar[host]:
                return f"{jobs.job_id[host]} on {name} may not lend: {Ineligible(jobs.host_bar[host]).text}"
        others = list(hosts | (set(there.tolist()) - {-1, decision.guest}))
        open_cores = int((there < 0).sum())
        free += open_cores
        if why := first_reason(
            (
                Ineligible.OTHER_USERS.text,
                (jobs.share_group[others] != jobs.share_group[decision.guest]).any(),
            ),
            (f"{name}: {NodeIneligible(snapshot.node_bar[node]).text}", snapshot.node_bar[node]),
            (f"{name} is not in the partition {partition}", not guest_nodes[partition][node]),
            (
                "a node is no longer wholly held by its host",
                not decision.pooled and (owner != decision.host).any(),
            ),
            (f"{name} lacks a feature that it wants", not has_features(guest.features, nodes[node].features)),
            (f"other guests are on the cores of {name}", decision.pooled and open_cores < widest),
        ):
            return why
    wide, chosen = len(decision.nodes), frozenset(names[node] for node in decision.nodes)
    try:
        required, excluded = expand(guest.required_nodes), expand(guest.excluded_nodes)
    except ValueError as error:
        return str(error)
    return first_reason(
        ("another guest is on these cores", free < guest.cores),
        (f"it wants {guest.nodes:.0f} nodes", guest.nodes > wide),
        (f"it wants at most {guest.most_nodes} nodes", 0 < guest.most_nodes < wide),
        ("how many nodes its user asked for could not be restored", nodes_asked(guest, wide) is None),
        ("its user asked for other nodes", not chosen.issuperset(required)),
        ("its user excluded a node", not chosen.isdisjoint(excluded)),
    ) or _in_the_way(snapshot, decision, guest)


def _in_the_way(snapshot: Snapshot, decision: CoAllocate, guest: JobRecord) -> str:
    """Batch does not count a guest's cores, but it counts its memory.

    A guest that outlasts its host keeps its memory: what waits now and would fit on the node without it must fit beside
    it as well.
    """
    jobs, machine, first = snapshot.jobs, snapshot.machine, snapshot.machine.first_core
    need = guest.memory_bytes_per_core * guest.cores / len(decision.nodes)
    if math.isnan(need):
        return "its memory is not known"
    waits = snapshot.queue[(snapshot.queue != decision.guest) & np.isnan(jobs.offered_s[snapshot.queue])]
    wants = jobs.memory_bytes_per_core[waits] * jobs.cores[waits] / np.maximum(1, jobs.nodes[waits])
    for node in decision.nodes:
        memory = float(machine.memory_bytes[node])
        if math.isnan(memory):
            continue
        others = snapshot.core_guest[first[node] : first[node + 1]]
        most = memory - float(np.nansum(jobs.memory_bytes_per_core[others[others >= 0]]))
        hindered = np.flatnonzero((wants > most - need + MIB) & (wants <= most))
        if len(hindered):
            return f"its memory would be in the way of {jobs.job_id[waits[hindered[0]]]}"
    return ""


def group(job: JobRecord, settings: Settings, exclusive_user: bool = False) -> str:
    """Whom it may share with, as `share_users` says: those of the same group, which the empty string is too.

    `exclusive_user`: Slurm gives the nodes of its partition to one user at a time.
    """
    whose = settings.share_users
    if whose == "as-slurm" and not exclusive_user:
        return f"label {job.mcs_label}" if job.mcs_label else ""
    return {"any": "", "account": f"account {job.account}"}.get(whose, f"user {job.user}")


def may_be_guest_on(
    job: JobRecord,
    nodes: Sequence[NodeRecord],
    guest_nodes: Mapping[str, NDArray[np.bool_]],
    settings: Settings,
) -> NDArray[np.bool_]:
    """(nodes,) On which a job that waits, or a guest, may be one: guest partition, features, nodes not excluded.

    What is not understood excludes nothing: `refusal` and Slurm have the last word. `guest_nodes` as there.
    """
    partition = job.partition if job.partition in guest_nodes else guest_partition(job.partition, settings)
    found = np.array(guest_nodes.get(partition, np.ones(len(nodes), np.bool_)))
    if job.features:
        found &= np.array([has_features(job.features, node.features) for node in nodes], np.bool_)
    if excluded := frozenset(expanded(job.excluded_nodes)):
        found &= np.array([node.name not in excluded for node in nodes], np.bool_)
    return found


def has_features(wanted: str, there: frozenset[str]) -> bool:
    """Does a node have what a job wants? Only `a&b` and `a,b` are understood; anything else is left to Slurm."""
    words = wanted.replace(",", "&").split("&")
    if not wanted or any(not word.replace("_", "").replace("-", "").isalnum() for word in words):
        return True
    return there.issuperset(words)
