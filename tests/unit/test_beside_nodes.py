"""What `scontrol show partition`, `config` and `reservation` print, beside a description of nodes."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.beside_nodes import in_times_of
from asad.replay.machine_files import read_machine
from asad.replay.site import BackfillRules, Reservation, Site, site_of

NODES = "".join(
    f"NodeName=n{number} Arch=x86_64 CoresPerSocket=16 \n"
    "   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.00\n"
    "   RealMemory=515317 AllocMem=0 Sockets=2 Boards=1\n"
    "   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1\n"
    "   Partitions=standard,short \n\n"
    for number in (1, 2, 3)
)
PARTITIONS = """\
PartitionName=standard
   AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,high
   AllocNodes=ALL Default=YES QoS=normal
   DefaultTime=2-00:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=2 MaxTime=14-00:00:00 MinNodes=1 LLN=NO MaxCPUsPerNode=64
   Nodes=n[1-3]
   PriorityJobFactor=100 PriorityTier=90 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=0 PreemptMode=OFF
   State=UP TotalCPUs=192 TotalNodes=3 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerCPU=3072 MaxMemPerCPU=6144
   TRES=cpu=192,mem=1545951M,node=3,billing=192

PartitionName=short
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=NO QoS=N/A
   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=04:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n3,g[1-2]
   PriorityJobFactor=1 PriorityTier=20 RootOnly=NO ReqResv=NO OverSubscribe=EXCLUSIVE
   OverTimeLimit=NONE PreemptMode=GANG,SUSPEND
   State=INACTIVE TotalCPUs=288 TotalNodes=24 SelectTypeParameters=NONE
   JobDefaults=(null)
   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
"""
RESERVATIONS = """\
ReservationName=maintenance weekend 2023-10-14 StartTime=2023-10-13T20:00:00 EndTime=2023-10-16T09:00:00 \
Duration=2-13:00:00
   Nodes=n[1-3] NodeCnt=3 CoreCnt=96 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES
   TRES=cpu=192
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)

ReservationName=course StartTime=2023-10-13T20:00:00 EndTime=2023-10-13T22:00:00 Duration=02:00:00
   Nodes=n2 NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=standard Flags=
     NodeName=n2 CoreIDs=0-3
   TRES=cpu=8
   Users=-bob,alice Groups=(null) Accounts=a,b Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a
   MaxStartDelay=(null)
   Comment=StartTime=1 ReservationName=other Nodes=n3

"""
CONFIG = """\
Configuration data as of 2026-07-30T14:17:55
AccountingStorageTRES   = cpu,mem,energy,node,billing,gres/gpu
ClusterName             = rockfish
PriorityParameters      = (null)
PriorityDecayHalfLife   = 30-00:00:00
PriorityCalcPeriod      = 00:05:00
PriorityFavorSmall      = No
PriorityFlags           = CALCULATE_RUNNING,MAX_TRES
PriorityMaxAge          = 7-00:00:00
PriorityUsageResetPeriod = NONE
PriorityType            = priority/multifactor
PriorityWeightAge       = 5000
PriorityWeightAssoc     = 0
PriorityWeightFairShare = 20000
PriorityWeightJobSize   = 5000
PriorityWeightTRES      = (null)
SchedulerParameters     = bf_window=10080,bf_resolution=180,bf_continue
SchedulerType           = sched/backfill
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 23.11.4

Cgroup Support Configuration:
AllowedRAMSpace         = 100.0%

Slurmctld(primary) at head is UP
"""


def machine_of(folder: Path, *contents: str) -> Machine:
    paths = []
    for number, content in enumerate(contents):
        path = folder / f"file{number}"
        path.write_text(content)
        paths.append(path)
    return read_machine(*paths)


def site_in(folder: Path, *contents: str) -> Site:
    site = site_of(machine_of(folder, *contents))
    assert site is not None
    return site


def one_line(text: str) -> str:
    """What `-o` makes of it."""
    return "\n".join(" ".join(part.split()) for part in text.strip().split("\n\n")) + "\n"


def time_s(text: str) -> float:
    """A local time as the readers of logs take it."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


# --------------------------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("shape", [str, one_line, lambda text: "$ scontrol show partition\n" + text])
def test_partitions_beside_nodes(tmp_path: Path, shape: object) -> None:
    assert callable(shape)
    machine = machine_of(tmp_path, NODES, shape(PARTITIONS))
    site = site_of(machine)
    assert site is not None
    standard, short = site.partitions["standard"], site.partitions["short"]
    assert (standard.nodes.tolist(), short.nodes.tolist()) == ([0, 1, 2], [2])
    assert (standard.max_time_s, standard.default_time_s) == (14 * 86400, 2 * 86400)
    assert (standard.max_nodes, standard.min_nodes, standard.tier, standard.job_factor) == (2, 1, 90, 100)
    assert (standard.default, standard.up, standard.exclusive, standard.qos) == (True, True, False, "normal")
    assert (short.max_time_s, short.max_nodes, short.exclusive, short.up) == (4 * 3600, math.inf, True, False)
    assert math.isnan(short.default_time_s)
    assert (short.qos, short.default) == ("", False)
    assert machine.time_limits_s == {"standard": 14 * 86400, "short": 4 * 3600}
    (note,) = site.notes
    assert note == "2 nodes of partitions are not on the machine, and are left out of them (g1, g2)"


def test_partitions_that_scontrol_does_not_show_keep_what_is_known(tmp_path: Path) -> None:
    site = site_in(tmp_path, NODES, PARTITIONS.split("\n\n")[0])
    assert site.partitions["short"].nodes.tolist() == [0, 1, 2]
    assert any("names partitions without their limits" in note for note in site.notes)


def test_a_partition_may_have_blanks_in_its_name(tmp_path: Path) -> None:
    site = site_in(tmp_path, NODES, PARTITIONS.replace("=short", "=GPU nodes (nvidia)"))
    assert site.partitions["GPU nodes (nvidia)"].nodes.tolist() == [2]


def test_what_runs_now_wins_over_slurm_conf(tmp_path: Path) -> None:
    conf = (
        "ClusterName=c\nNodeName=n[1-3] CPUs=64 Gres=gpu:2\nPartitionName=standard Nodes=n1 MaxTime=60\n"
        "PartitionName=own Nodes=n2\n"
    )
    machine = machine_of(tmp_path, PARTITIONS, conf)
    site = site_of(machine)
    assert site is not None
    assert machine.node_names == ("n1", "n2"), "which nodes there are, slurm.conf says"
    assert site.partitions["standard"].nodes.tolist() == [0, 1]
    assert site.partitions["own"].nodes.tolist() == [1]
    assert machine.time_limits_s["standard"] == 14 * 86400
    assert site.gres == ({"gpu": 2}, {"gpu": 2})
    assert site.backfill == BackfillRules()


# -------------------------------------------------------------------------------------------------------------- config


def test_the_configuration_beside_nodes(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, NODES, CONFIG)
    site = site_of(machine)
    assert site is not None
    assert site.priority is not None
    assert (site.priority.multifactor, site.priority.age, site.priority.fair_share) == (True, 5000, 20000)
    assert (site.priority.half_life_s, site.priority.calc_period_s) == (30 * 86400, 300)
    assert (site.priority.fair_tree, site.priority.favor_small, site.priority.tres) == (True, False, {})
    assert site.backfill == BackfillRules(window_s=7 * 86400, resolution_s=180)
    assert machine.memory_counts
    assert not any("whether memory is scheduled" in note for note in machine.notes)
    without = machine_of(tmp_path, NODES, CONFIG.replace("CR_CORE_MEMORY", "CR_CORE"))
    assert not without.memory_counts


@pytest.mark.parametrize(
    ("version", "flags", "fair_tree"),
    [
        ("23.11.4", "MAX_TRES", True),
        ("18.08.9", "MAX_TRES", False),
        ("18.08.9", "FAIR_TREE", True),
        ("22.05.8", "NO_FAIR_TREE", False),
        ("22.05.8", "DEPTH_OBLIVIOUS", False),
    ],
)
def test_fair_tree_is_the_default_since_19_05(
    tmp_path: Path, version: str, flags: str, fair_tree: bool
) -> None:
    text = CONFIG.replace("23.11.4", version).replace("CALCULATE_RUNNING,MAX_TRES", flags)
    site = site_in(tmp_path, NODES, text)
    assert site.priority is not None
    assert site.priority.fair_tree is fair_tree


def test_a_golden_configuration(tmp_path: Path) -> None:
    golden = Path(__file__).parent.parent / "golden" / "doctor" / "config-22.05.txt"
    site = site_in(tmp_path, NODES, golden.read_text())
    assert site.priority is not None
    assert not site.priority.multifactor
    assert site.backfill == BackfillRules()


# -------------------------------------------------------------------------------------------------------- reservations


@pytest.mark.parametrize("shape", [str, lambda text: "# kept by hand\n\n$ scontrol show res\n" + text])
def test_reservations_beside_nodes(tmp_path: Path, shape: object) -> None:
    assert callable(shape)
    site = site_in(tmp_path, shape(RESERVATIONS), NODES)
    weekend, course = site.reservations
    assert weekend.name == "maintenance weekend 2023-10-14"
    assert (weekend.start_s, weekend.end_s) == (time_s("2023-10-13T20:00:00"), time_s("2023-10-16T09:00:00"))
    assert (weekend.nodes.tolist(), weekend.cores) == ([0, 1, 2], None)
    assert weekend.flags == ("MAINT", "IGNORE_JOBS", "SPEC_NODES", "ALL_NODES")
    assert (weekend.users, weekend.accounts) == (("root",), ())
    assert (course.nodes.tolist(), course.cores, course.flags) == ([1], 8, ())
    assert (course.users, course.accounts) == (("-bob", "alice"), ("a", "b"))


def test_there_may_be_no_reservation(tmp_path: Path) -> None:
    assert site_in(tmp_path, NODES, "No reservations in the system\n").reservations == ()


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        (
            "Nodes=n[1-3] NodeCnt",
            "Nodes=n[2-4],x1 NodeCnt",
            "2 of its nodes are not on the machine, and are left out",
        ),
        ("EndTime=2023-10-16", "EndTime=2023-10-12", "has no start before an end: it is left out"),
        (
            "StartTime=2023-10-13T20:00:00 EndTime=2023-10-16",
            "StartTime=Unknown EndTime=2023-10-16",
            "left out",
        ),
        ("Flags=MAINT,", "Flags=WEEKLY,", "comes again ('WEEKLY"),
        ("Flags=MAINT,", "Flags=DAILY,\x1b[2J,", "comes again ('DAILY,\\x1b[2J"),
        ("Flags=MAINT,", "Flags=TIME_FLOAT,", "begins later and later"),
    ],
)
def test_what_is_not_known_of_reservations_is_noted(tmp_path: Path, old: str, new: str, note: str) -> None:
    site = site_in(tmp_path, NODES, RESERVATIONS.replace(old, new, 1))
    assert any("reservation 'maintenance weekend 2023-10-14'" in one and note in one for one in site.notes)
    assert all(one.isprintable() for one in site.notes)
    assert len(site.reservations) == (1 if "left out" in note and "nodes" not in note else 2)


def test_a_reservation_without_all_its_nodes_keeps_those_that_are_there_wholly(tmp_path: Path) -> None:
    text = RESERVATIONS.replace("Nodes=n2 NodeCnt=1", "Nodes=n2,x[1-2] NodeCnt=3")
    _, course = site_in(tmp_path, NODES, text).reservations
    assert (course.nodes.tolist(), course.cores) == ([1], None)


@pytest.mark.parametrize("nodes", ["(null)", "ALL", ""])
def test_reservations_of_all_nodes_and_of_none(tmp_path: Path, nodes: str) -> None:
    weekend, _ = site_in(tmp_path, NODES, RESERVATIONS.replace("n[1-3]", nodes, 1)).reservations
    assert weekend.nodes.tolist() == ([0, 1, 2] if nodes == "ALL" else [])


def test_times_of_reservations_beside_a_log_without_local_ones(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, NODES, RESERVATIONS)
    site, same = (site_of(in_times_of(machine, local_times=local)) for local in (False, True))
    assert site is not None
    assert same is site_of(machine)
    assert "off by the zone" in site.notes[-1]
    plain = machine_of(tmp_path, NODES)
    assert in_times_of(plain, local_times=False) is plain


# ------------------------------------------------------------------------------------------------------------ together


def test_all_together_in_any_order(tmp_path: Path) -> None:
    sites = [
        site_in(tmp_path, *order)
        for order in itertools.permutations((NODES, PARTITIONS, CONFIG, RESERVATIONS))
    ]
    assert len({repr((one.partitions, one.priority, one.backfill, one.reservations)) for one in sites}) == 1
    assert all(isinstance(reservation, Reservation) for one in sites for reservation in one.reservations)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (PARTITIONS, "scontrol show partition"),
        (CONFIG, "scontrol show config"),
        (RESERVATIONS, "scontrol show reservation"),
    ],
)
def test_alone_none_of_them_is_a_machine(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_of(tmp_path, text)
    assert what in str(caught.value)
    assert str(caught.value).endswith("it may stand beside one, as another --machine")
    with pytest.raises(MachineError, match=r"names no nodes|show partition|show reservation"):
        machine_of(tmp_path, text, text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PARTITIONS.replace("n[1-3]", "n[1-"), "file1:1: 'n[1-' is not a list of nodes"),
        (PARTITIONS.replace("n[1-3]", "n<x>"), "file1:1: 'n<x>' is of a template"),
        (
            PARTITIONS.replace("PartitionName=short\n", "PartitionName= \n"),
            "file1:14: PartitionName has no name",
        ),
        (RESERVATIONS.replace("n2 Node", "n[2 Node"), "file1:7: 'n[2' is not a list of nodes"),
        (
            RESERVATIONS.replace("StartTime=2023-10-13T20", "StartTime=soon", 1),
            "starttime: 'soon:00:00' is not a time",
        ),
        ("Configuration data as of today\nnothing\n", "file1: no line is a setting"),
        ("NodeName=n9 CPUs=4\n", "file1: it would describe nodes"),
        ("JOBID PARTITION NAME USER\n", "file1: this is a list of jobs"),
        ("", "file1: it is empty"),
    ],
)
def test_what_cannot_be_read_beside_nodes(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_of(tmp_path, NODES, text)
    assert problem in str(caught.value)
    assert str(caught.value).isprintable()


def test_hostile_texts_are_read_in_time_that_grows_as_their_length(tmp_path: Path) -> None:
    blanks, words = " " * 300_000, "a" * 300_000
    for begin in ("ReservationName=", "PartitionName=p AllowGroups=", "Configuration data as of "):
        for text in (
            blanks,
            words,
            f"{words} {words}=",
            "x= " * 100_000,
            "NodeName=" + words,
            f"{blanks}\n" * 3,
        ):
            try:
                machine_of(tmp_path, NODES, begin + text)
            except MachineError as error:
                assert str(error).isprintable()
