"""What a simulated Slurm goes by beside cores, memory and time, as far as machine, limits and log say it.

    nodes        of the partition: as the machine describes it, else those that the log used for it, or for this user,
                 if his jobs are many; with the features that the job asked for, or, where features are not described,
                 those that such jobs used
    gres         of each node: as described, else the most that the log held of it at one time
    limits       of --limits, else those that the log lets infer (asad.replay.waits)
    priority     by the weights of slurm.conf (age, fair share, size, partition, QOS), else as the log has it, else in
                 the order in which jobs became eligible, or by fair share of accounts and users (`by_fair_share`);
                 tiers of partitions before that
    closed       nodes while a reservation holds them that is described

Parts of a job over several nodes are even. Jobs whose like would never find room so take whatever cores there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from asad.bounded import printable
from asad.model import Floats, Ints, JobLog, Machine, name_of
from asad.replay import engine
from asad.replay.closed_nodes import Gone
from asad.replay.fair_share_tree import charged_to, share_tree
from asad.replay.gres_in_log import gres_of, most_held
from asad.replay.limits.sacctmgr_output import Limits
from asad.replay.recorded_starts import RecordedStarts
from asad.replay.site import WEEK_S, PriorityRules, Site, site_of
from asad.replay.waits.wait_sweep import Ceilings
from asad.replay.workload_columns import Workload

DEPTH, WINDOW_S = 500, 86400.0
"""Slurm's own bf_max_job_test and bf_window, where nobody says what they are."""
MANY = 10
"""A user who ran so many times as many jobs in a partition as it has nodes, and none on some of them, cannot run there:
by chance one in 20 000 would be left out. Only where nobody says what the nodes of the partition are."""
TIER = 1e12
"""More than any priority within a tier."""
_FEATURES = re.compile(r"[\w.\-]+(?:[&,][\w.\-]+)*|[\w.\-]+(?:\|[\w.\-]+)*", re.ASCII)


@dataclass(slots=True)
class SiteRules:
    """The tables, and what is to be known of them."""

    rules: engine.Rules
    simulated: tuple[str, ...]
    """What the simulated Slurm goes by: `partitions`, `gres`, …"""
    ordered: bool = False
    """Are priorities known, of slurm.conf or of the log?"""
    not_simulated: dict[str, int] = field(default_factory=dict)
    """What it does not go by, in words → how many jobs that concerns."""


def site_rules(
    jobs: JobLog,
    machine: Machine,
    workload: Workload,
    starts: RecordedStarts,
    ceilings: Ceilings,
    limits: Limits | None,
    gone: Gone | None,
) -> SiteRules | None:
    """What a simulated Slurm goes by for the jobs of a log; None where neither log nor machine says anything of it.

    `starts` say where jobs ran, `ceilings` what groups of them may hold together, `limits` what accounts and QOS there
    are, `gone` which nodes could not be used from when to when (`asad.replay.gone_nodes`); None where the log does not
    name the nodes of jobs, and then they are not taken to be those of `starts`.
    """
    made = _Made(jobs, machine, workload, starts, ceilings, limits, gone)
    return made.rules() if made.simulated else None


class _Made:
    """The tables while they are made."""

    def __init__(
        self,
        jobs: JobLog,
        machine: Machine,
        workload: Workload,
        starts: RecordedStarts,
        ceilings: Ceilings,
        limits: Limits | None,
        gone: Gone | None,
    ) -> None:
        self.gone = gone
        self.jobs, self.workload, self.starts, self.limits = jobs, workload, starts, limits
        self.machine = machine
        self.site = site_of(self.machine) or Site()
        self.not_simulated: dict[str, int] = {}
        self.simulated: list[str] = []
        self.count = len(jobs)
        self.rule = np.zeros(self.count, engine.RULE)
        self.reach_at, self.reach_node = self._reach()
        kind, amount, kinds = gres_of(jobs)
        self.node_gres = self._gres(kind, amount, kinds)
        self._shapes(kind, amount)
        binding = np.where(ceilings.binds, ceilings.most, np.inf)
        self.need, self.groups, self.ceiling = ceilings.need, ceilings.groups, binding
        self.rule["limits"] = ceilings.class_of if np.isfinite(binding).any() else -1
        if np.isfinite(binding).any():
            self.simulated.append("limits")
        self.terms = np.zeros(1, engine.TERMS)
        self.account = np.zeros(0, engine.ACCOUNT)
        self.rule["leaf"] = -1
        self._priority()
        self.closure, self.wake = self._closures()
        self._leave_out()

    def rules(self) -> SiteRules:
        groups = 1 + int(self.groups.max(initial=-1))
        return SiteRules(
            engine.Rules(
                rule=self.rule,
                reach_at=self.reach_at,
                reach_node=self.reach_node,
                terms=self.terms,
                node_gres=self.node_gres,
                need=np.ascontiguousarray(self.need),
                groups=np.ascontiguousarray(self.groups, np.int32),
                ceiling=np.ascontiguousarray(self.ceiling),
                closure=self.closure,
                wake=self.wake,
                account=self.account,
                used=np.zeros((groups, self.need.shape[1])),
                gres=self.node_gres.copy(),
                room=np.zeros(1 + int(self.rule["shape"].max(initial=0)), np.int8),
            ),
            tuple(self.simulated),
            self.ordered,
            self.not_simulated,
        )

    # --------------------------------------------------------------------------------------------------------- nodes

    def _reach(self) -> tuple[NDArray[np.int64], Ints]:
        """The nodes that jobs of each partition and constraint may have; the first reach is all nodes."""
        jobs, nodes = self.jobs, len(self.machine.cores)
        weight = self.site.weight if len(self.site.weight) else np.zeros(nodes)
        # of equal weight the small ones first: sites keep large nodes for those who need them
        order = np.lexsort((np.arange(nodes), self.machine.cores, self.machine.memory_bound_bytes, weight))
        constraint = np.full(self.count, -1, np.int32) if jobs.constraint is None else jobs.constraint
        keys = np.column_stack((jobs.partition, constraint, jobs.user))
        pairs, of_job, runs = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        of_job = of_job.reshape(-1)
        used = self._used(of_job, len(pairs))
        reaches: dict[bytes, int] = {np.ones(nodes, np.bool_).tobytes(): 0}
        masks = [np.ones(nodes, np.bool_)]
        number = np.zeros(len(pairs), np.int32)
        for k, (partition, code, _) in enumerate(pairs.tolist()):
            rules = self.site.partitions.get(name_of(jobs.partitions, partition))
            mask = used[pairs[:, 0] == partition].any(axis=0)
            if runs[k] >= MANY * mask.sum():
                mask = used[k]
            if rules is not None and len(rules.nodes):
                mask = np.zeros(nodes, np.bool_)
                mask[rules.nodes] = True
            if code >= 0:
                featured = self._featured(jobs.constraints[code])
                if featured is None:
                    self._leave(
                        f"the constraint {printable(jobs.constraints[code])[:60]}", int((of_job == k).sum())
                    )
                mask = mask & (used[k] if featured is None else featured)
            if not mask.any():
                continue
            if mask.tobytes() not in reaches:
                reaches[mask.tobytes()] = len(masks)
                masks.append(mask)
            number[k] = reaches[mask.tobytes()]
        self.rule["reach"] = number[of_job]
        if len({*number.tolist()}) > 1 or (number > 0).any():
            self.simulated.append("partitions")
        if (constraint >= 0).any():
            self.simulated.append("constraints")
        lists = [order[mask[order]].astype(np.int32) for mask in masks]
        return np.concatenate(([0], np.cumsum([len(one) for one in lists]))).astype(np.int64), np.concatenate(
            lists
        )

    def _used(self, of_job: NDArray[np.intp], kinds: int) -> NDArray[np.bool_]:
        """(kinds, nodes) which nodes jobs of each kind ran on; all, where the log does not name them."""
        used = np.zeros((kinds, len(self.machine.cores)), np.bool_)
        if self.gone is None:
            return ~used
        slots = self.starts.slots
        width = np.diff(slots.at)[: self.count]
        used[np.repeat(of_job, width), slots.node[: slots.at[self.count]]] = True
        return used

    def _featured(self, text: str) -> NDArray[np.bool_] | None:
        """The nodes with the features of a constraint; None where they are not described, or it is more than a list."""
        if not any(self.site.features) or not _FEATURES.fullmatch(text):
            return None
        wanted = re.split(r"[&,|]", text)
        has = np.array([[one in features for features in self.site.features] for one in wanted])
        return np.asarray(has.any(axis=0) if "|" in text else has.all(axis=0))

    def _gres(self, kind: Ints, amount: Floats, kinds: tuple[str, ...]) -> Ints:
        """(nodes, kinds) what each node has, no less than what the log held of it."""
        slots, earlier = self.starts.slots, len(self.starts.earlier)
        stop = slots.start.copy()
        stop[: self.count] += self.jobs.run_s
        stop[self.count :] += self.starts.earlier.work_s
        none = np.full(earlier, -1, np.int32)
        held = most_held(
            np.concatenate((kind, none)),
            np.concatenate((amount, np.zeros(earlier))),
            slots.start,
            stop,
            slots.at,
            slots.node,
            len(self.machine.cores),
            len(kinds),
        )
        if kinds:
            self.simulated.append("gres")
        found = np.ceil(held).astype(np.int32)
        for node, described in enumerate(self.site.gres):
            for place, name in enumerate(kinds):
                found[node, place] = max(found[node, place], described.get(name, 0))
        return found

    def _shapes(self, kind: Ints, amount: Floats) -> None:
        """Parts and shapes of jobs; who would never have room by even parts takes whatever there is."""
        rule, jobs, memory = self.rule, self.jobs, self.workload.memory_bytes_per_core
        rule["wide"], rule["gres"] = jobs.nodes, kind
        each = np.ceil(amount / np.maximum(jobs.nodes, 1)).astype(np.int32)
        rule["gres_each"] = np.where(kind >= 0, each, 0)
        shapes, first, back = np.unique(
            np.column_stack((rule["reach"], rule["wide"], jobs.cores, memory, kind, rule["gres_each"])),
            axis=0,
            return_index=True,
            return_inverse=True,
        )
        back = back.reshape(-1)
        rule["shape"] = back
        anywhere = np.zeros(len(shapes), np.bool_)
        lost = np.zeros(len(shapes), np.bool_)
        for k, row in enumerate(first.tolist()):
            if not self._has_room(row, int(rule["wide"][row]), int(rule["reach"][row])):
                anywhere[k] = True
                lost[k] = not self._has_room(row, 0, int(rule["reach"][row]))
        rule["wide"][anywhere[back]] = 0
        for column, value in (("reach", 0), ("gres", -1), ("gres_each", 0)):
            rule[column][lost[back]] = value
        self._leave("partition, gres and constraints together, which leave no node", int(lost[back].sum()))

    def _has_room(self, row: int, wide: int, reach: int) -> bool:
        """Would a job start on the empty nodes of its reach, with even parts on so many (0: with any)?"""
        nodes = self.reach_node[self.reach_at[reach] : self.reach_at[reach + 1]]
        cores, need = int(self.jobs.cores[row]), float(self.workload.memory_bytes_per_core[row])
        free = self.machine.cores[nodes].astype(np.int64)
        if need > 0:
            memory = self.machine.memory_bytes[nodes]
            free = np.where(np.isnan(memory), free, np.minimum(free, np.nan_to_num(memory) // need))
        if self.rule["gres"][row] >= 0:
            free = np.where(
                self.node_gres[nodes, self.rule["gres"][row]] >= self.rule["gres_each"][row], free, 0
            )
        if wide == 0:
            return int(free.sum()) >= cores
        return int((free >= -(-cores // wide)).sum()) >= wide

    # ------------------------------------------------------------------------------------------------------- priority

    def _priority(self) -> None:
        """Who is tried first."""
        jobs, site, terms = self.jobs, self.site, self.terms
        backfill = site.backfill
        terms["depth"] = DEPTH if backfill is None else max(1, backfill.depth)
        terms["window"] = WINDOW_S if backfill is None else backfill.window_s
        terms["max_age"] = terms["half_life"] = terms["period"] = 1.0
        terms["shared"] = -np.inf
        partitions = [site.partitions.get(name) for name in jobs.partitions]
        tier = np.array([1.0 if one is None else one.tier for one in partitions] + [1.0])
        self.rule["base"] = tier[jobs.partition] * TIER if len(set(tier.tolist())) > 1 else 0.0
        rules = site.priority
        self.ordered = rules is not None
        if rules is not None and rules.multifactor:
            self._multifactor(rules)
        elif rules is None and jobs.priority is not None and not np.isnan(jobs.priority).all():
            self.rule["base"] += np.where(np.isnan(jobs.priority), 0.0, jobs.priority)
            self.simulated.append("the log's own priorities")
            self.ordered = True

    def _multifactor(self, rules: PriorityRules) -> None:
        jobs, site, terms, base = self.jobs, self.site, self.terms, self.rule["base"]
        terms["age"], terms["max_age"] = rules.age, max(1.0, rules.max_age_s)
        terms["half_life"] = rules.half_life_s or np.inf
        terms["period"] = max(1.0, rules.calc_period_s)
        terms["tree"] = rules.fair_tree
        factors = [
            1 if (one := site.partitions.get(name)) is None else one.job_factor for name in jobs.partitions
        ]
        of_partition = np.array([*factors, 1.0])
        base += rules.partition * (of_partition / max(1.0, of_partition.max()))[jobs.partition]
        size = (jobs.nodes / len(self.machine.cores) + jobs.cores / self.machine.total_cores) / 2.0
        base += rules.job_size * (1.0 - size if rules.favor_small else size)
        if rules.qos > 0 and jobs.qos is not None:
            priorities = {
                one.name: getattr(one, "priority", 0.0) for one in (self.limits.qos if self.limits else ())
            }
            of_qos = np.array([*(priorities.get(name, 0.0) for name in jobs.qos_names), 0.0])
            base += rules.qos * (of_qos / max(1.0, of_qos.max()))[jobs.qos]
        if rules.fair_share > 0:
            terms["fair_share"] = rules.fair_share
            associations = () if self.limits is None else self.limits.associations
            self.account, leaves = share_tree(associations, charged_to(jobs))
            self.rule["leaf"] = leaves
        if rules.tres:
            self._leave("weights of priority by resource (PriorityWeightTRES)", self.count)
        self.simulated.append("priorities")

    # ------------------------------------------------------------------------------------------------- what is closed

    def _closures(self) -> tuple[NDArray[np.void], Floats]:
        """What reservations keep from all jobs that do not run in them."""
        rows: list[tuple[float, float, int, bool]] = []
        for one in self.site.reservations:
            if one.cores is None and np.isfinite(one.end_s):
                rows += [(one.start_s, one.end_s, node, True) for node in one.nodes.tolist()]
        if rows:
            self.simulated.append("reservations")
        if self.gone is not None and len(self.gone.node):
            columns = self.gone.node.tolist(), self.gone.begin_s.tolist(), self.gone.end_s.tolist()
            rows += [(begin, end, node, False) for node, begin, end in zip(*columns, strict=True)]
            self.simulated.append("nodes that were gone")
        closure = np.array(sorted(rows), engine.CLOSURE)
        return closure, np.unique(closure["end"])

    def _leave_out(self) -> None:
        """What is not simulated of what the log shows."""
        jobs = self.jobs
        if jobs.reservation is not None:
            self._leave("that jobs ran in a reservation", int((jobs.reservation >= 0).sum()))
        if jobs.gres is not None:
            several = np.array(
                [len({one.split(":")[0] for one in text.split(",")}) > 1 for text in jobs.gres_texts]
                + [False]
            )
            self._leave("gres of a second kind of a job", int(several[jobs.gres].sum()))
        if partial := [one for one in self.site.reservations if one.cores is not None]:
            self._leave(f"{len(partial)} reservations of some cores of their nodes", self.count)
        exclusive = [name for name, one in self.site.partitions.items() if one.qos]
        named = np.array([name in exclusive for name in jobs.partitions] + [False])
        self._leave("limits of the QOS of a partition", int(named[jobs.partition].sum()))

    def _leave(self, what: str, count: int) -> None:
        if count:
            self.not_simulated[what] = self.not_simulated.get(what, 0) + count


def by_fair_share(site: SiteRules, jobs: JobLog, limits: Limits | None) -> SiteRules:
    """The same where whose account and user have used least of their share comes first, and then who came first: what
    Slurm does with no other weight than that of fair share, by its own half-life of a week."""
    account, leaves = share_tree(() if limits is None else limits.associations, charged_to(jobs))
    rule, terms = site.rules.rule.copy(), site.rules.terms.copy()
    rule["leaf"] = leaves
    terms["fair_share"], terms["tree"], terms["half_life"], terms["period"] = 1.0, True, WEEK_S, 300.0
    rules = site.rules._replace(rule=rule, terms=terms, account=account)
    return replace(site, rules=rules, simulated=(*site.simulated, "fair share"))


def as_sentences(left_out: dict[str, int]) -> Iterable[str]:
    """What is not simulated, a sentence each."""
    for what, count in left_out.items():
        yield f"not simulated: {what} ({count} jobs)"
