"""What `asactl doctor` looks for in the partitions: does each guest partition mirror its source? Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from asad.cluster.findings import Finding, State, first_finding, judged
from asad_slurm.slurm_conf import DEFAULTS, NOTHING, Slurm, minutes

ACCESS = ("AllowGroups", "AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos", "QoS")
LIMITS = ("MaxTime", "MaxNodes", "MinNodes", "MaxCPUsPerNode", "MaxMemPerNode", "MaxMemPerCPU")
ONCE = "FORCE:1"
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
    unknown = sorted(set(guests) - set(known))
    names = ", ".join(f'"{name}"' for name in guests)
    return judged(
        "actors",
        not unknown,
        "node actors know the guest partitions",
        "fail",
        f"node actors that start anew would not know guests in {', '.join(unknown)}",
        f"asad.toml, [node]: guest_partitions = [{names}]",
    )


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


def _preempt(slurm: Slurm, partition: str) -> str:
    """Its PreemptMode, or the cluster's."""
    return (slurm.of(partition, "PreemptMode") or slurm.get("PreemptMode") or "OFF").upper()


def _source(slurm: Slurm, name: str) -> Iterator[Finding]:
    check, sharing = f"partition {name}", slurm.of(name, "OverSubscribe")
    exclusive = slurm.of(name, "Exclusive").upper()  # since 26.05: NO, NODE, USER or TOPO
    line = f"in the line PartitionName={name}: OverSubscribe=FORCE:1"
    several = sharing.upper().startswith(("FORCE", "YES"))
    what = "Slurm itself puts several jobs on one core" if several else "guests never start beside its jobs"
    yield first_finding(
        (
            sharing.upper() == "EXCLUSIVE",
            Finding(check, "fail", f"{name} gives whole nodes (OverSubscribe=EXCLUSIVE)", line),
        ),
        (
            exclusive == "NODE",
            Finding(check, "fail", f"{name} gives whole nodes (Exclusive=NODE)", f"{line} Exclusive=NO"),
        ),
        (
            sharing.upper() != ONCE,
            Finding(check, "fail", f"{name} has OverSubscribe={sharing}: {what}", line),
        ),
        (True, Finding(check, "ok", f"{name} has OverSubscribe=FORCE:1")),
    )
    preempt = _preempt(slurm, name)
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
    here, there = partial(slurm.of, guest), partial(slurm.of, source)
    tier, wanted, preempt = _tier(slurm, guest), _tier(slurm, source) + 1, _preempt(slurm, guest)
    weights, sharing, state = there("TRESBillingWeights"), here("OverSubscribe"), here("State")
    faults: list[tuple[object, State, str, str]] = [
        (sharing.upper() != ONCE, "fail", f"OverSubscribe={sharing}", f"OverSubscribe={ONCE}"),
        (
            tier < wanted,
            "fail",
            f"PriorityTier={tier} is not above that of {source}, so guests wait behind hosts",
            f"PriorityTier={wanted}",
        ),
        (preempt != "OFF", "fail", f"PreemptMode={preempt}", "PreemptMode=OFF"),
        (
            here("Default").upper() == "YES",
            "fail",
            "it is the default partition: every job would be a guest",
            "Default=NO",
        ),
        (state.upper() != "UP", "fail", f"State={state}: no guest starts", "State=UP"),
        *(
            (here(key).upper() == "YES", "fail", f"{key}=YES: jobs cannot be moved there", f"{key}=NO")
            for key in ("RootOnly", "ReqResv")
        ),
        (
            here("AllocNodes").upper() != "ALL",
            "fail",
            "AllocNodes keeps jobs from being moved there",
            "AllocNodes=ALL",
        ),
        *(
            (
                not _same(key, here(key), there(key)),
                "fail",
                f"{key} is {here(key) or 'not set'} here and {there(key) or 'not set'} in {source}",
                f"{key}={value}"
                if (value := there(key) or DEFAULTS.get(key.lower(), ""))
                else f"remove {key}",
            )
            for key in (*ACCESS, *LIMITS)
        ),
        (
            not _same("Nodes", here("Nodes"), there("Nodes")),
            "warn",
            f"its nodes are not those of {source}: nothing is lent on the others",
            f"Nodes={there('Nodes')}",
        ),
        (
            weights and not here("TRESBillingWeights"),
            "warn",
            f"guests are billed by CPU alone, jobs of {source} by TRESBillingWeights",
            f'TRESBillingWeights="{weights}"',
        ),
    ]
    found = [(level, why, remedy) for holds, level, why, remedy in faults if holds]
    line = guest_line(slurm, source, guest)  # corrects all of them, so it is shown once
    for number, (level, why, remedy) in enumerate(found):
        yield Finding(check, level, f"{guest}: {why}", before + remedy, () if number else (line,))
    if not found:
        yield Finding(check, "ok", f"{guest} mirrors {source} one tier above it")


def _same(key: str, one: str, other: str) -> bool:
    if {one.lower(), other.lower()} <= NOTHING:
        return True
    read = _members if key in OF_SET else minutes if key == "MaxTime" else str.lower
    return bool(read(one) == read(other))


def _members(text: str) -> set[str]:
    """Names between commas, those within brackets kept together."""
    return {word.lower() for word in re.findall(r"(?:[^,\[]+|\[[^\]]*\]?)+", text)}
