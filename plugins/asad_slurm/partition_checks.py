"""What `asactl doctor` looks for in the partitions: does each guest partition mirror its source? Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from asad.cluster.findings import Finding, State
from asad_slurm.slurm_conf import DEFAULTS, NOTHING, Slurm, minutes

ACCESS = ("AllowGroups", "AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos", "QoS")
LIMITS = ("MaxTime", "MaxNodes", "MinNodes", "MaxCPUsPerNode", "MaxMemPerNode", "MaxMemPerCPU")
OF_SET = {*ACCESS, "Nodes"} - {"QoS"}


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
    for number, (state, why, remedy) in enumerate(faults):
        line = guest_line(slurm, source, guest)  # corrects all of them, so it is told once
        yield Finding(check, state, f"{guest}: {why}", before + remedy, () if number else (line,))
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
