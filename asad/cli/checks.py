"""What `asactl doctor` looks for: pure functions from texts (what Slurm, the kernel and files say) to findings.

Nothing is read and nobody is asked here, so every shape of answer can be tested.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from asad.model import Json

State = Literal["ok", "warn", "fail"]
GUARD_MARK = "asad_user"
"""The variable by which the shipped job_submit.lua is known."""
CLOCK_WARN_S, CLOCK_FAIL_S = 5.0, 60.0
"""munge takes credentials up to 300 s old; estimates of starts are compared with our own clock long before."""
ACCESS = ("AllowGroups", "AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos", "QoS")
LIMITS = ("MaxTime", "MaxNodes", "MinNodes", "MaxCPUsPerNode", "MaxMemPerNode", "MaxMemPerCPU")
OF_SET = {*ACCESS, "Nodes"} - {"QoS"}
DEFAULTS = {
    "allowgroups": "ALL",
    "allowaccounts": "ALL",
    "allowqos": "ALL",
    "allocnodes": "ALL",
    "maxtime": "UNLIMITED",
    "maxnodes": "UNLIMITED",
    "maxcpuspernode": "UNLIMITED",
    "maxmempernode": "UNLIMITED",
    "maxmempercpu": "UNLIMITED",
    "minnodes": "0",
    "oversubscribe": "NO",
    "prioritytier": "1",
    "state": "UP",
}
NOTHING = {"", "(null)", "n/a", "none", "unlimited", "infinite", "-1"}
KILLS_BY_USER = re.compile(
    r"\b(?:pkill|killall|skill)\b[^\n]*\s-\w*[uU]\b|\bloginctl\s+(?:terminate|kill)-user\b"
    r"|\bps\b[^\n]*\s-[uU]\b[^\n]*\bkill\b|\bkill\b[^\n]*\b(?:ps|pgrep)\b[^\n]*\s-[uU]\b"
)
WIPES_TMP = re.compile(
    r"\brm\s+-[a-zA-Z]*[rR][a-zA-Z]*\s+[^\n]*(?:/tmp|/var/tmp|/dev/shm|\$\{?TMPDIR)"
    r"|\bfind\s+[^\n]*(?:/tmp|/var/tmp|/dev/shm)[^\n]*(?:-delete|\brm\b)|\btmp(?:watch|reaper)\b"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    state: State
    why: str
    mend: str = ""
    lines: tuple[str, ...] = ()
    """Whole lines for slurm.conf that mend it."""

    def to_json(self) -> dict[str, Json]:
        """`{"check", "state", "why", "mend"}`"""
        return {"check": self.check, "state": self.state, "why": self.why, "mend": self.mend}


@dataclass(frozen=True, slots=True)
class Slurm:
    """What is configured; keys in lower case."""

    settings: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]

    def get(self, key: str) -> str:
        """A setting of the cluster; empty if it is not set."""
        return _plain(self.settings.get(key.lower(), ""))

    def words(self, key: str) -> set[str]:
        """The same as a list of words, in lower case."""
        return {word.strip().lower() for word in self.get(key).split(",") if word.strip()}

    def of(self, partition: str, key: str) -> str:
        """A setting of a partition, or Slurm's default where there is one."""
        return _setting(self.partitions[partition], key)


def _setting(partition: Mapping[str, str], key: str) -> str:
    value = _plain(partition.get(key.lower(), ""))
    return value or DEFAULTS.get(key.lower(), "")


def _plain(value: str) -> str:
    return "" if value in ("(null)", "N/A") else value


# --------------------------------------------------------------------------------------------------- reading


def read_config(text: str) -> dict[str, str]:
    """`scontrol show config` → settings."""
    pairs = (line.partition(" = ") for line in text.splitlines() if " = " in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def read_partitions(text: str) -> dict[str, dict[str, str]]:
    """`scontrol show partition`, with `--oneliner` or without → settings of each."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals:
            continue
        if key == "PartitionName":
            current = found.setdefault(value, {})
        current[key.lower()] = value
    return found


def read_slurm_conf(text: str) -> Slurm:
    """slurm.conf, its included files already in place: keys in any case, continued lines, comments, DEFAULT lines."""
    settings: dict[str, str] = {}
    partitions: dict[str, dict[str, str]] = {}
    defaults: dict[str, str] = {}
    joined = re.sub(r"(?<!\\)#.*", "", text)
    joined = re.sub(r"\\[ \t]*\n", " ", joined)
    for line in joined.splitlines():
        pairs = {
            match[1].lower(): match[2].strip('"')
            for match in re.finditer(r'\b(\w+)\s*=\s*("[^"]*"|\S+)', line)
        }
        if "partitionname" not in pairs:
            settings |= pairs
            continue
        if "shared" in pairs:  # what OverSubscribe was called before
            pairs.setdefault("oversubscribe", pairs.pop("shared"))
        if "priority" in pairs:
            pairs.setdefault("prioritytier", pairs["priority"])
        name = pairs["partitionname"]
        if name.upper() == "DEFAULT":
            defaults |= pairs
        else:
            for each in name.split(","):
                partitions[each] = {**defaults, **pairs, "partitionname": each}
    return Slurm(settings, partitions)


# ---------------------------------------------------------------------------------------------------- the cluster

NETWORKED = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "ceph",
    "fuse.ceph",
    "beegfs",
    "glusterfs",
    "ocfs2",
    "gfs2",
    "cifs",
)
"""File systems that several machines see."""


def head_finding(slurm: Slurm, controllers: int, journal_dir: Path, mounts: str) -> Finding | None:
    """Would another head node find the journal of offers? None where Slurm has one controller.

    `mounts` is /proc/mounts.
    """
    if controllers < 2:
        return None
    places = [line.split()[1:3] for line in mounts.splitlines() if len(line.split()) > 2]
    folder = str(journal_dir)
    around = [
        (len(place), kind) for place, kind in places if f"{folder}/".startswith(place.rstrip("/") + "/")
    ]
    kind = max(around, default=(0, ""))[1]
    if kind in NETWORKED:
        return Finding(
            "head nodes", "ok", f"{folder} is on {kind}: the other head node finds the journal there"
        )
    return Finding(
        "head nodes",
        "warn",
        f"Slurm has {controllers} controllers, and {folder} is on a local disk: without this head node, offered jobs "
        "that asked for certain nodes are given any",
        f"[slurm] journal_dir: a folder that both see, as {slurm.get('StateSaveLocation') or 'StateSaveLocation'} is; "
        "see docs/how-to/two-head-nodes.md",
    )


def cluster_findings(slurm: Slurm) -> Iterator[Finding]:
    """What of the whole cluster's settings lets a job be lent to, safely."""
    select, parameters = slurm.get("SelectType").lower(), slurm.words("SelectTypeParameters")
    if select in ("select/cons_tres", "select/cons_res"):
        yield Finding("select", "ok", f"SelectType is {select}")
    else:
        yield Finding(
            "select",
            "fail",
            f"SelectType is {select or 'not set'}: whole nodes are given, and nothing is lent beside them",
            "SelectType=select/cons_tres",
            ("SelectType=select/cons_tres",),
        )
    if any(word.endswith("_memory") for word in parameters):
        yield Finding("memory", "ok", "memory is consumable, so a guest waits until its memory fits")
    else:
        units = next((word for word in parameters if word in ("cr_core", "cr_cpu", "cr_socket")), "cr_core")
        name = {"cr_core": "CR_Core_Memory", "cr_cpu": "CR_CPU_Memory", "cr_socket": "CR_Socket_Memory"}[
            units
        ]
        yield Finding(
            "memory",
            "fail",
            "memory is not consumable: a guest could take the memory that its host needs",
            f"SelectTypeParameters={name}",
            (f"SelectTypeParameters={name}",),
        )
    yield from _preemption(slurm)
    if slurm.get("SchedulerType").lower() in ("sched/backfill", ""):
        yield Finding("backfill", "ok", "backfill estimates when waiting jobs will start")
    else:
        yield Finding(
            "backfill",
            "warn",
            f"SchedulerType is {slurm.get('SchedulerType')}: starts are not estimated, so no job becomes a guest",
            "SchedulerType=sched/backfill",
            ("SchedulerType=sched/backfill",),
        )
    if slurm.get("ProctrackType").lower() == "proctrack/cgroup":
        yield Finding("proctrack", "ok", "jobs have cgroups, in which the node actor finds them")
    else:
        yield Finding(
            "proctrack",
            "fail",
            f"ProctrackType is {slurm.get('ProctrackType') or 'not set'}: the node actor finds jobs by their cgroups",
            "ProctrackType=proctrack/cgroup",
            ("ProctrackType=proctrack/cgroup",),
        )
    if {"task/cgroup"} <= slurm.words("TaskPlugin") and slurm.get("ConstrainCores").lower() == "yes":
        yield Finding("cores", "ok", "jobs are held to their cores")
    else:
        yield Finding(
            "cores",
            "warn",
            "jobs are not held to their cores, so a guest may run beside others than its host",
            "slurm.conf: TaskPlugin=task/affinity,task/cgroup; cgroup.conf: ConstrainCores=yes",
        )
    age = re.match(r"\d{1,9}", slurm.get("MinJobAge") or "300", re.ASCII)
    if age and int(age[0]) < 60:
        yield Finding(
            "finished jobs",
            "warn",
            f"MinJobAge is {age[0]} s: finished jobs are forgotten before a cycle has seen them",
            "MinJobAge=300",
            ("MinJobAge=300",),
        )
    if "jobs" in slurm.words("PrivateData"):
        yield Finding(
            "private data",
            "warn",
            "users do not see each other's jobs in Slurm, and asactl shows them to everybody who comes to its socket",
            "RuntimeDirectoryMode=0750 in asad.service: then only root and the group asad come to it",
        )
    if "associations" in slurm.words("AccountingStorageEnforce"):
        yield Finding(
            "associations",
            "warn",
            "associations are enforced: users who have one for the batch partition alone cannot be guests",
            "sacctmgr add user NAME account=ACCOUNT partition=guest, for all in `sacctmgr show assoc` with a partition",
        )


def threads_finding(slurm: Slurm, threads: Collection[int]) -> Finding:
    """Are whole cores lent? `threads` are the ThreadsPerCore of the nodes, as Slurm has them; empty if not known."""
    counted = any(word.startswith("cr_cpu") for word in slurm.words("SelectTypeParameters"))
    if not threads:
        return Finding(
            "threads", "warn", "ThreadsPerCore of the nodes is not known", "see `sinfo -o '%N %Z'`"
        )
    if max(threads) == 1:
        why = "Slurm knows of no hyper-threads; on a machine that has some, nothing is lent (`asactl nodes` says so)"
        return Finding("threads", "ok", why)
    if counted:
        name = re.sub("cr_cpu", "CR_Core", slurm.get("SelectTypeParameters"), flags=re.IGNORECASE)
        return Finding(
            "threads",
            "fail",
            "under CR_CPU a job has whole cores and is counted by hyper-threads, so its quota is reckoned too small",
            f"SelectTypeParameters={name}",
            (f"SelectTypeParameters={name}",),
        )
    return Finding("threads", "ok", "hyper-threads of one core go to one job")


def read_threads(text: str) -> set[int]:
    """The numbers that `sinfo --format=%Z` prints, or those of the `NodeName` lines of a slurm.conf."""
    named = re.findall(r"^[ \t]*NodeName[ \t]*=.*", text, re.MULTILINE | re.IGNORECASE)
    if not named:
        return {int(word) for word in text.split() if word.isascii() and word.isdecimal() and len(word) < 10}
    found = (re.search(r"\bThreadsPerCore\s*=\s*(\d{1,4})", line, re.IGNORECASE) for line in named)
    return {int(match[1]) if match else 1 for match in found}


def _preemption(slurm: Slurm) -> Iterator[Finding]:
    kind, modes = slurm.get("PreemptType").lower(), slurm.words("PreemptMode")
    if "gang" in modes:
        yield Finding(
            "preemption",
            "fail",
            "PreemptMode has GANG: Slurm would stop hosts and guests in turns",
            "PreemptMode=OFF (and no PreemptType)",
            ("PreemptMode=OFF",),
        )
    elif kind == "preempt/partition_prio":
        yield Finding(
            "preemption",
            "warn",
            "partitions preempt each other by PriorityTier, and guest partitions have the higher one: "
            "every partition that lends needs PreemptMode=OFF (checked below)",
        )
    elif kind not in ("", "preempt/none"):
        yield Finding(
            "preemption",
            "warn",
            f"{kind}: a job of a higher QOS can end hosts and guests, as it can end any job",
            "leave the guests' QOS without Preempt, and expect requeued guests to be restored",
        )
    else:
        yield Finding("preemption", "ok", "no job preempts another")


# --------------------------------------------------------------------------------------------------- partitions


def partition_findings(slurm: Slurm, guest_of: Mapping[str, str]) -> Iterator[Finding]:
    """Each source partition and its guest partition, `guest_of` by the configuration."""
    for source, guest in guest_of.items():
        if source not in slurm.partitions:
            yield Finding(
                f"partition {source}",
                "fail",
                f"there is no partition {source}; there are {', '.join(slurm.partitions) or 'none'}",
                'asad.toml, [slurm]: guest_partitions = { YOUR_PARTITION = "guest" }',
            )
            continue
        yield from _source(slurm, source)
        if guest not in slurm.partitions:
            yield Finding(
                f"partition {guest}",
                "fail",
                f"there is no partition {guest} for the guests of {source}",
                "add its line, below",
                (guest_line(slurm, source, guest),),
            )
        else:
            yield from _guest(slurm, source, guest)
    shared = sorted({guest for guest in guest_of.values() if list(guest_of.values()).count(guest) > 1})
    for guest in shared:
        sources = [source for source, other in guest_of.items() if other == guest]
        yield Finding(
            f"partition {guest}",
            "fail",
            f"{' and '.join(sources)} share the guest partition {guest}, which can mirror only one",
            "give every source partition a guest partition of its own",
        )


def actor_finding(guest_of: Mapping[str, str], known: Sequence[str]) -> Finding:
    """Do node actors know all guest partitions? `known` is `[node] guest_partitions`."""
    guests = list(dict.fromkeys(guest_of.values()))
    if unknown := sorted(set(guests) - set(known)):
        why = f"node actors that start anew would not know guests in {', '.join(unknown)}"
        names = ", ".join(f'"{name}"' for name in guests)
        return Finding("actors", "fail", why, f"asad.toml, [node]: guest_partitions = [{names}]")
    return Finding("actors", "ok", "node actors know the guest partitions")


def guest_line(slurm: Slurm, source: str, guest: str) -> str:
    """The line of slurm.conf for a guest partition that mirrors `source`."""
    words = [f"PartitionName={guest}", f"Nodes={slurm.of(source, 'Nodes') or 'ALL'}"]
    words += ["OverSubscribe=FORCE:1", f"PriorityTier={_tier(slurm, source) + 1}", "PreemptMode=OFF"]
    for key in (*ACCESS, *LIMITS, "DefaultTime", "DefMemPerCPU", "DefMemPerNode", "TRESBillingWeights"):
        value = slurm.of(source, key)
        if value.lower() not in NOTHING and value != DEFAULTS.get(key.lower()):
            words.append(f'{key}="{value}"' if "=" in value else f"{key}={value}")
    return " ".join(words)


def lending_findings(
    slurm: Slurm, sources: Collection[str], lend: Collection[str], share_users: str
) -> Iterator[Finding]:
    """Who lends, who borrows, and with whom: `[slurm] lend` and `share_users`, and what Slurm says of `sources`."""
    for kind, (whose, why) in NOT_BY_DEFAULT.items():
        if kind in lend:
            yield Finding("lend", "warn", f"{whose} lend here: {why}", f'[slurm] lend, without "{kind}"')
    if not set(lend) & set(NOT_BY_DEFAULT):
        others = ", ".join(whose for whose, _ in NOT_BY_DEFAULT.values())
        yield Finding("lend", "ok", f"these do not lend: {others}")
    if share_users == "any":
        why = "jobs meet whom Slurm would keep apart: other MCS labels, other users under ExclusiveUser"
        yield Finding("share_users", "warn", why, '[slurm] share_users = "as-slurm"')
    elif share_users == "as-slurm":
        yield Finding("share_users", "ok", "on a node meets whom Slurm would put there")
    else:
        yield Finding("share_users", "ok", f"host and guest are of one {ONE_OF.get(share_users, 'user')}")
    for source in (name for name in sources if name in slurm.partitions):
        if {slurm.of(source, key).lower() for key in ("MaxTime", "DefaultTime")} <= NOTHING:
            why = f"jobs of {source} that name no --time have no limit, and are never guests"
            yield Finding(
                "time limits", "warn", why, f"in the line PartitionName={source}: DefaultTime=1-00:00:00"
            )
        else:
            yield Finding("time limits", "ok", f"every job of {source} has a time limit")
    if slurm.get("AccountingStorageType").lower() != "accounting_storage/slurmdbd":
        why = "without slurmdbd no limit of an association or a QOS is known, and no extension stops at one"
        yield Finding("accounting", "warn", why, "AccountingStorageType=accounting_storage/slurmdbd")
    else:
        yield Finding("accounting", "ok", "extensions stop at limits of associations and QOS")


ONE_OF = {"same": "user", "account": "account"}
NOT_BY_DEFAULT = {
    "multi-node": ("jobs on several nodes", "one that is slowed on one node is slowed on all"),
    "gres": ("jobs with gres", "what slows one keeps its GPUs waiting too"),
    "whole-memory": ("jobs with --mem=0", "Slurm finds no memory for a guest beside them"),
    "exclusive": ("jobs with --exclusive", "Slurm starts no guest beside them"),
}
"""Kinds of hosts that lend only by `[slurm] lend`: who they are, and what comes of it."""


def calibration_finding(path: str) -> Finding:
    """Is it known what sharing costs on these nodes? `path` is `[guard] calibration`."""
    if path:
        return Finding("calibration", "ok", f"what sharing costs is told by {path}")
    why = "what two memory-bound jobs cost each other was measured on another machine, and vetoes their pairs here"
    return Finding(
        "calibration", "warn", why, "asactl calibrate on a node; its file into [guard] calibration"
    )


def _tier(slurm: Slurm, partition: str) -> int:
    value = slurm.of(partition, "PriorityTier")
    return int(value) if value.isdecimal() and len(value) < 19 else 1


def _forced_once(value: str) -> bool:
    return value.upper() == "FORCE:1"


def _source(slurm: Slurm, name: str) -> Iterator[Finding]:
    check, sharing = f"partition {name}", slurm.of(name, "OverSubscribe")
    exclusive = slurm.of(name, "Exclusive").upper()  # since 26.05: NO, NODE, USER or TOPO
    line = f"in the line PartitionName={name}: OverSubscribe=FORCE:1"
    if sharing.upper() == "EXCLUSIVE":
        yield Finding(check, "fail", f"{name} gives whole nodes (OverSubscribe=EXCLUSIVE)", line)
    elif exclusive == "NODE":
        yield Finding(check, "fail", f"{name} gives whole nodes (Exclusive=NODE)", f"{line} Exclusive=NO")
    elif not _forced_once(sharing):
        what = "guests never start beside its jobs"
        if sharing.upper().startswith(("FORCE", "YES")):
            what = "Slurm itself puts several jobs on one core"
        yield Finding(check, "fail", f"{name} has OverSubscribe={sharing}: {what}", line)
    else:
        yield Finding(check, "ok", f"{name} has OverSubscribe=FORCE:1")
    preempt = slurm.of(name, "PreemptMode").upper() or slurm.get("PreemptMode").upper() or "OFF"
    if preempt != "OFF" and slurm.get("PreemptType").lower() == "preempt/partition_prio":
        yield Finding(
            check,
            "fail",
            f"a guest would {preempt.lower()} its host: {name} has PreemptMode={preempt}, and guests the higher tier",
            f"in the line PartitionName={name}: PreemptMode=OFF",
        )
    if slurm.of(name, "ExclusiveUser").upper() in ("YES", "1", "TRUE") or exclusive == "USER":
        yield Finding(
            check,
            "warn",
            f"{name} has {'Exclusive=USER' if exclusive == 'USER' else 'ExclusiveUser=YES'}: "
            "only jobs of one user share a node",
            'asad.toml, [slurm]: share_users = "as-slurm", its default, or "same"',
        )


def _guest(slurm: Slurm, source: str, guest: str) -> Iterator[Finding]:
    check, before = f"partition {guest}", f"in the line PartitionName={guest}: "
    faults: list[tuple[State, str, str]] = []
    if not _forced_once(slurm.of(guest, "OverSubscribe")):
        faults.append(("fail", f"OverSubscribe={slurm.of(guest, 'OverSubscribe')}", "OverSubscribe=FORCE:1"))
    if _tier(slurm, guest) <= _tier(slurm, source):
        why = f"PriorityTier={_tier(slurm, guest)} is not above that of {source}, so guests wait behind hosts"
        faults.append(("fail", why, f"PriorityTier={_tier(slurm, source) + 1}"))
    preempt = slurm.of(guest, "PreemptMode").upper() or slurm.get("PreemptMode").upper() or "OFF"
    if preempt != "OFF":
        faults.append(("fail", f"PreemptMode={preempt}", "PreemptMode=OFF"))
    if slurm.of(guest, "Default").upper() == "YES":
        faults.append(("fail", "it is the default partition: every job would be a guest", "Default=NO"))
    if slurm.of(guest, "State").upper() != "UP":
        faults.append(("fail", f"State={slurm.of(guest, 'State')}: no guest starts", "State=UP"))
    faults += [
        ("fail", f"{key}=YES: jobs cannot be moved there", f"{key}=NO")
        for key in ("RootOnly", "ReqResv")
        if slurm.of(guest, key).upper() == "YES"
    ]
    if slurm.of(guest, "AllocNodes").upper() != "ALL":
        faults.append(("fail", "AllocNodes keeps jobs from being moved there", "AllocNodes=ALL"))
    for key in (*ACCESS, *LIMITS):
        ours, theirs = slurm.of(guest, key), slurm.of(source, key)
        if not _same(key, ours, theirs):
            wanted = theirs or DEFAULTS.get(key.lower(), "")
            why = f"{key} is {ours or 'not set'} here and {theirs or 'not set'} in {source}"
            faults.append(("fail", why, f"{key}={wanted}" if wanted else f"remove {key}"))
    if not _same("Nodes", slurm.of(guest, "Nodes"), slurm.of(source, "Nodes")):
        why = f"its nodes are not those of {source}: nothing is lent on the others"
        faults.append(("warn", why, f"Nodes={slurm.of(source, 'Nodes')}"))
    theirs = slurm.of(source, "TRESBillingWeights")
    if theirs and not slurm.of(guest, "TRESBillingWeights"):
        why = f"guests are billed by CPU alone, jobs of {source} by TRESBillingWeights"
        faults.append(("warn", why, f'TRESBillingWeights="{theirs}"'))
    for number, (state, why, mend) in enumerate(faults):
        line = guest_line(slurm, source, guest)  # mends all of them, so it is told once
        yield Finding(check, state, f"{guest}: {why}", before + mend, () if number else (line,))
    if not faults:
        yield Finding(check, "ok", f"{guest} mirrors {source} one tier above it")


def _same(key: str, one: str, other: str) -> bool:
    if one.lower() in NOTHING and other.lower() in NOTHING:
        return True
    if key in OF_SET:
        return _members(one) == _members(other)
    if key == "MaxTime":
        return minutes(one) == minutes(other)
    return one.lower() == other.lower()


def _members(text: str) -> set[str]:
    """Names between commas, those within brackets kept together."""
    return {word.lower() for word in re.findall(r"(?:[^,\[]+|\[[^\]]*\]?)+", text)}


def minutes(text: str) -> float:
    """Slurm's way of writing a time limit: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s; inf for none or nonsense."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text, re.ASCII)
    if not match:
        return float("inf")
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:
        return days * 1440.0 + first * 60.0 + (second or 0) + (third or 0) / 60.0  # type: ignore[operator]
    if third is not None:
        return first * 60.0 + second + third / 60.0  # type: ignore[operator]
    return first + (second or 0) / 60.0  # type: ignore[operator]


# ------------------------------------------------------------------------------------------------------- scripts


def script_findings(
    slurm: Slurm, scripts: Mapping[str, Sequence[tuple[str, str | None]]]
) -> Iterator[Finding]:
    """Prologs and epilogs, by setting: path and text of each, None where it could not be read here."""
    for key, files in scripts.items():
        for path, text in files:
            if text is None:
                yield Finding(
                    key,
                    "warn",
                    f"{path} cannot be read here",
                    "see on a node that it neither kills by user nor wipes /tmp: host and guest may be of one user",
                )
                continue
            code = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
            what = []
            if KILLS_BY_USER.search(code):
                what.append("kills processes by their user")
            if WIPES_TMP.search(code):
                what.append("wipes temporary files")
            if what:
                yield Finding(
                    key,
                    "warn",
                    f"{path} {' and '.join(what)}: when a host or guest ends, that hits the other if of the same user",
                    "let it touch only what is of its own job ($SLURM_JOB_ID)",
                )
            else:
                yield Finding(key, "ok", f"{path} touches nothing of other jobs, as far as can be seen")


def job_submit_finding(slurm: Slurm, lua: str | None, user: str, guests: Collection[str]) -> Finding:
    """Who may send jobs into the partitions `guests`. `lua` is job_submit.lua, None where none can be read."""
    mend = "JobSubmitPlugins=lua, and asad's job_submit.lua beside slurm.conf (profiles/slurm/job_submit.lua)"
    if not slurm.words("JobSubmitPlugins") & {"lua", "job_submit/lua"}:
        why = "users could send their own jobs into the guest partitions"
        return Finding("job_submit", "fail", why, mend, ("JobSubmitPlugins=lua",))
    if lua is None:
        return Finding("job_submit", "warn", "job_submit.lua cannot be read here", mend)
    code = re.sub(r"--.*", "", lua)
    match = re.search(GUARD_MARK + r'\s*=\s*"([^"]*)"', code)
    if not match:
        return Finding("job_submit", "fail", "job_submit.lua does not guard the guest partitions", mend)
    if user not in (match[1], "root"):
        why = f"job_submit.lua lets {match[1]} into the guest partitions, and the daemon's user is {user}"
        return Finding("job_submit", "fail", why, f'job_submit.lua: {GUARD_MARK} = "{user}"')
    table = re.search(r"guest_partitions\s*=\s*\{([^}]*)\}", code)
    named = set(re.findall(r"[\w-]+", table[1])) if table else set()
    if open_to_all := sorted(set(guests) - named):
        names = ", ".join(f'["{name}"] = true' for name in guests)
        why = f"job_submit.lua does not guard {', '.join(open_to_all)}"
        return Finding("job_submit", "fail", why, f"job_submit.lua: guest_partitions = {{ {names} }}")
    return Finding("job_submit", "ok", f"only {user}, root and SlurmUser send jobs into the guest partitions")


# -------------------------------------------------------------------------------------------- rights, clocks, kernel


def rights_finding(slurm: Slurm, users: str, user: str) -> Finding:
    """May the daemon's user change jobs? `users` is `sacctmgr -Pn show user name=NAME format=User,AdminLevel`."""
    slurm_user = slurm.get("SlurmUser").partition("(")[0]
    if user in ("root", slurm_user):
        return Finding("rights", "ok", f"{user} may change every job")
    if slurm.get("AccountingStorageType").lower() != "accounting_storage/slurmdbd":
        return Finding(
            "rights",
            "fail",
            f"without slurmdbd nobody but root and {slurm_user or 'SlurmUser'} may change other users' jobs",
            f'asad.toml, [nodes]: user = "{slurm_user or "slurm"}", and User={slurm_user or "slurm"} in asad.service',
        )
    rows = dict(line.split("|")[:2] for line in users.splitlines() if line.count("|") >= 1)
    level = rows.get(user, "")
    if level in ("Operator", "Administrator"):
        return Finding("rights", "ok", f"{user} has AdminLevel {level}")
    change = (
        "modify user {0} set adminlevel=Operator"
        if user in rows
        else "add user {0} account=root adminlevel=Operator"
    )
    why = (
        f"{user} has AdminLevel {level or 'None'}"
        if user in rows
        else f"the accounting database knows no user {user}"
    )
    return Finding("rights", "fail", why, f"sacctmgr -i {change.format(user)}")


def clock_finding(config: str, now: datetime) -> Finding:
    """The controller's clock, as `scontrol show config` begins with it, against ours (`now`, local time)."""
    match = re.search(r"as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", config)
    if not match:
        return Finding(
            "clocks", "warn", "the controller did not tell its time", "compare `date` on both machines"
        )
    apart_s = abs((datetime.fromisoformat(match[1]) - now).total_seconds())
    if apart_s > CLOCK_WARN_S:
        state: State = "fail" if apart_s > CLOCK_FAIL_S else "warn"
        why = f"this machine's clock and the controller's are {apart_s:.0f} s apart"
        return Finding("clocks", state, why, "run chrony or another NTP service on both")
    return Finding("clocks", "ok", "this machine's clock agrees with the controller's")


def cgroup_finding(mounts: str, controllers: str, cpu_idle: bool) -> Finding:
    """The kernel's cgroups here. `mounts` is /proc/mounts, `controllers` the v2 root's cgroup.controllers, or empty."""
    rows = [line.split() for line in mounts.splitlines()]
    v1 = {name for row in rows if len(row) > 3 and row[2] == "cgroup" for name in row[3].split(",")} & {
        "cpu",
        "cpuacct",
        "freezer",
        "cpuset",
        "memory",
    }
    v2 = any(len(row) > 2 and row[2] == "cgroup2" for row in rows)
    least = "" if cpu_idle else "; it has no cpu.idle, so guests get the least weight"
    if v2 and not v1:
        lacking = {"cpu", "cpuset", "memory"} - set(controllers.split())
        if not lacking:
            return Finding("cgroup", "ok", f"cgroup v2 with cpu, cpuset and memory{least}")
        return Finding(
            "cgroup",
            "fail",
            f"cgroup v2 lacks {', '.join(sorted(lacking))}",
            "remove cgroup_disable= from the kernel's command line",
        )
    if {"cpu", "freezer"} <= v1:
        return Finding("cgroup", "ok", f"cgroup v1 with {', '.join(sorted(v1))}{least}")
    return Finding(
        "cgroup",
        "fail",
        f"the controller cpu is not mounted (v1 has {', '.join(sorted(v1)) or 'none'})",
        "boot with systemd.unified_cgroup_hierarchy=1, or mount cpu and freezer under /sys/fs/cgroup",
    )
