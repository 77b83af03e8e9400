"""What slurm.conf and lists of nodes say of scheduling: partitions, gres, features, weights, priority and backfill."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.gres_counts import gres_counts
from asad.replay.machine_files import read_machine
from asad.replay.site import BackfillRules, PartitionRules, PriorityRules, Reservation, Site, site_of

CONF = """\
ClusterName=physics
SlurmctldHost=head
SchedulerType=sched/backfill
SchedulerParameters=bf_window=4320,bf_max_job_test=1000,bf_interval=60,bf_resolution=300,\\
bf_max_job_user=20,bf_max_job_part=200,bf_max_job_start=50,bf_continue,defer
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=100000
PriorityWeightJobSize=500
PriorityWeightPartition=2000
PriorityWeightQOS=3000
PriorityWeightTRES=CPU=100,Mem=-2.5,GRES/gpu=3000
PriorityMaxAge=14-0
PriorityDecayHalfLife=30-00:00:00
PriorityCalcPeriod=10
PriorityFavorSmall=YES
PriorityFlags=SMALL_RELATIVE_TO_TIME,NO_FAIR_TREE
GresTypes=gpu,nvme
NodeName=DEFAULT Sockets=2 CoresPerSocket=8 RealMemory=64000 Feature=ib
NodeName=c[1-4] Weight=10
NodeName=g[1-2] Gres=gpu:a100:4(S:0-1),nvme:2T Features=ib,a100 Weight=50
NodeName=login1 Gres=gpu:t4:1
NodeSet=fast Feature=a100
PartitionName=DEFAULT MaxTime=2-00:00:00 PriorityTier=3 DefaultTime=60
PartitionName=batch Nodes=c[1-4] Default=YES MaxNodes=2 MinNodes=1 QOS=normal
PartitionName=gpu Nodes=fast,c4 OverSubscribe=EXCLUSIVE PriorityJobFactor=10 MaxTime=UNLIMITED
PartitionName=all Nodes=ALL PriorityTier=1 State=DOWN ExclusiveUser=YES DefaultTime=NONE
"""


def machine_of(folder: Path, content: str | dict[str, Any], *others: str) -> Machine:
    """The machine of files with these contents."""
    paths = []
    for number, one in enumerate((content, *others)):
        path = folder / f"file{number}"
        path.write_text(one if isinstance(one, str) else json.dumps(one))
        paths.append(path)
    return read_machine(*paths)


def site_in(folder: Path, content: str | dict[str, Any], *others: str) -> Site:
    site = site_of(machine_of(folder, content, *others))
    assert site is not None
    return site


def nodes_of(site: Site) -> dict[str, list[int]]:
    return {name: rules.nodes.tolist() for name, rules in site.partitions.items()}


# -------------------------------------------------------------------------------------------------------- slurm.conf


def test_partitions_of_a_slurm_conf(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, CONF)
    # a partition of all nodes has the login node as well, so it counts
    assert machine.node_names == ("c1", "c2", "c3", "c4", "g1", "g2", "login1")
    site = site_of(machine)
    assert site is not None
    assert nodes_of(site) == {"batch": [0, 1, 2, 3], "gpu": [3, 4, 5], "all": list(range(7))}
    batch, gpu, everywhere = site.partitions.values()
    assert (batch.max_time_s, batch.default_time_s, batch.max_nodes, batch.min_nodes) == (172800, 3600, 2, 1)
    assert (batch.tier, batch.job_factor, batch.exclusive, batch.default, batch.up) == (
        3,
        1,
        False,
        True,
        True,
    )
    assert batch.qos == "normal"
    assert (gpu.max_time_s, gpu.max_nodes, gpu.job_factor, gpu.exclusive) == (math.inf, math.inf, 10, True)
    assert (everywhere.tier, everywhere.up, everywhere.exclusive, everywhere.default) == (
        1,
        False,
        True,
        False,
    )
    assert math.isnan(everywhere.default_time_s)
    assert all(rules.nodes.dtype == np.int32 for rules in site.partitions.values())


def test_nodes_that_are_left_out_have_no_number(tmp_path: Path) -> None:
    text = CONF.replace("Nodes=ALL", "Nodes=c1,login[2-3]").replace(
        "NodeName=c[1-4]", "NodeName=c[1-2],c[3-4]"
    )
    machine = machine_of(tmp_path, text)
    site = site_of(machine)
    assert "login1" not in machine.node_names
    assert site is not None
    assert nodes_of(site)["all"] == [0]
    assert len(site.gres) == len(site.features) == len(site.weight) == len(machine.node_names) == 6


def test_gres_features_and_weights_of_a_slurm_conf(tmp_path: Path) -> None:
    site = site_in(tmp_path, CONF)
    assert site.gres[0] == {}
    assert site.gres[4] == {"gpu:a100": 4, "gpu": 4, "nvme": 2 * 2**40}
    assert site.gres[6] == {"gpu:t4": 1, "gpu": 1}
    assert site.features[0] == {"ib"}
    assert site.features[5] == {"ib", "a100"}
    assert site.weight.tolist() == [10, 10, 10, 10, 50, 50, 1]
    assert site.notes == ()


def test_priority_and_backfill_of_a_slurm_conf(tmp_path: Path) -> None:
    site = site_in(tmp_path, CONF)
    assert site.priority == PriorityRules(
        multifactor=True,
        age=1000,
        fair_share=100000,
        job_size=500,
        partition=2000,
        qos=3000,
        max_age_s=14 * 86400,
        half_life_s=30 * 86400,
        calc_period_s=600,
        favor_small=True,
        fair_tree=False,
        small_relative_to_time=True,
        tres={"cpu": 100, "mem": -2.5, "gres/gpu": 3000},
    )
    assert site.backfill == BackfillRules(
        enabled=True,
        depth=1000,
        window_s=3 * 86400,
        interval_s=60,
        resolution_s=300,
        per_user=20,
        per_partition=200,
        user_start=50,
    )


def test_what_a_whole_slurm_conf_does_not_say_is_slurms_default(tmp_path: Path) -> None:
    site = site_in(tmp_path, "ClusterName=c\nNodeName=n1 CPUs=4\nPartitionName=p Nodes=n1\n")
    assert site.backfill == BackfillRules()
    assert site.priority == PriorityRules(multifactor=False)
    (rules,) = site.partitions.values()
    assert (rules.tier, rules.job_factor, rules.max_nodes, rules.min_nodes) == (1, 1, math.inf, 0)
    assert (rules.up, rules.default, rules.exclusive, rules.qos) == (True, False, False, "")
    assert (rules.max_time_s, site.weight.tolist()) == (math.inf, [1])


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("SchedulerType=sched/builtin", BackfillRules(enabled=False)),
        ("SchedulerParameters=bf_interval=-1", BackfillRules(enabled=False)),
        ("SchedulerParameters=max_job_bf=70", BackfillRules(depth=70)),
        ("SchedulerParameters=(null)", BackfillRules()),
    ],
)
def test_backfill_may_be_off_or_of_old_versions(tmp_path: Path, line: str, rules: BackfillRules) -> None:
    site = site_in(tmp_path, f"{line}\nNodeName=n1 CPUs=4\n")
    assert site.backfill == rules
    assert site.notes == ()


@pytest.mark.parametrize(
    ("lines", "multifactor"),
    [
        ("PriorityType=priority/basic\nPriorityWeightAge=9", False),
        ("PriorityType=priority/multifactor", True),
        ("PriorityWeightAge=9", True),
        ("PriorityDecayHalfLife=0", False),
    ],
)
def test_priorities_count_where_they_are_asked_for(tmp_path: Path, lines: str, multifactor: bool) -> None:
    site = site_in(tmp_path, f"{lines}\nNodeName=n1 CPUs=4\n")
    assert site.priority is not None
    assert site.priority.multifactor is multifactor
    if "HalfLife" in lines:
        assert site.priority.half_life_s == 0


def test_lines_of_nodes_alone_say_nothing_of_priorities(tmp_path: Path) -> None:
    site = site_in(tmp_path, "NodeName=n[1-2] CPUs=4\n")
    assert (site.priority, site.backfill, site.partitions, site.reservations) == (None, None, {}, ())
    assert site.gres == ({}, {})


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (
            "SchedulerParameters=bf_window=week",
            "bf_window='week' of SchedulerParameters is not from 1 to 43200",
        ),
        ("SchedulerParameters=bf_max_job_test=0", "bf_max_job_test='0' of SchedulerParameters is not from 1"),
        ("SchedulerType=sched/wiki2", "SchedulerType='sched/wiki2' is not known here"),
        ("PriorityType=priority/site", "PriorityType='priority/site' is not known here"),
        ("PriorityWeightAge=-5", "priorityweightage='-5' is no weight"),
        ("PriorityWeightTRES=cpu=many", "PriorityWeightTRES has 'cpu=many'"),
        ("PriorityMaxAge=soon", "prioritymaxage='soon' cannot be used"),
        ("PriorityCalcPeriod=0", "prioritycalcperiod='0' cannot be used"),
        ("PriorityType=priority/multifactor PriorityWeightAssoc=5", "priorityweightassoc='5' counts in"),
        ("PriorityType=priority/multifactor PriorityUsageResetPeriod=MONTHLY", "counts in priorities there"),
        ("PriorityWeightQOS=7", "weights of priorities without PriorityType"),
        (
            "PartitionName=p Nodes=n1 PriorityTier=70000",
            "prioritytier='70000' of partition 'p' cannot be used",
        ),
        (
            "PartitionName=p Nodes=n1 MaxNodes=\x1b[31m",
            "maxnodes='\\x1b[31m' of partition 'p' cannot be used",
        ),
        ("PartitionName=p Nodes=n1 DefaultTime=soon", "it is taken for that of MaxTime"),
        ("NodeName=n2 CPUs=4 Weight=heavy", "Weight='heavy' is no number: it is taken for 1"),
        ("NodeName=n2 CPUs=4 Gres=gpu:<type>:4,nvme:2", "'gpu:<type>:4' of Gres is no generic resource"),
        (
            "NodeName=n2 CPUs=4 Gres=gpu:a:no_consume:4",
            "'gpu:a' is never used up there (no_consume): here it counts",
        ),
    ],
)
def test_what_cannot_be_read_is_noted_and_taken_for_the_default(tmp_path: Path, line: str, note: str) -> None:
    site = site_in(tmp_path, f"ClusterName=c\nNodeName=n1 CPUs=4\n{line}\n")
    assert any(note in one for one in site.notes), site.notes
    assert all(one.isprintable() for one in site.notes)
    assert site.backfill == BackfillRules()
    assert site.priority is not None
    assert (site.priority.age, site.priority.max_age_s, site.priority.calc_period_s) == (0, 7 * 86400, 300)
    for rules in site.partitions.values():
        assert (rules.tier, rules.max_nodes, rules.max_time_s) == (1, math.inf, math.inf)
    assert set(site.weight) == {1}


def test_the_same_fault_of_many_partitions_is_one_note(tmp_path: Path) -> None:
    lines = "".join(f"PartitionName=p{number} Nodes=n1 MinNodes=x\n" for number in range(500))
    site = site_in(tmp_path, f"NodeName=n1 CPUs=4\n{lines}")
    (note,) = site.notes
    assert "minnodes='x' of partition 'p0'" in note
    assert "and 499 more of its kind" in note


# ------------------------------------------------------------------------------------------------------------- gres


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu:a100:4(S:0-1)", {"gpu:a100": 4, "gpu": 4}),
        ("gpu:4", {"gpu": 4}),
        ("gpu", {"gpu": 1}),
        ("gpu:a100", {"gpu:a100": 1, "gpu": 1}),
        ("gpu:4090:2", {"gpu:4090": 2, "gpu": 2}),
        ("gpu:a100:no_consume:2", {"gpu:a100": 2, "gpu": 2}),
        ("craynetwork:4", {"craynetwork": 4}),
        ("gpu:tesla:1,gpu:kepler:3,mps:400", {"gpu:tesla": 1, "gpu:kepler": 3, "gpu": 4, "mps": 400}),
        ("gpu:h100_1g.5gb:7(S:0,2),shard:16(S:0,2)", {"gpu:h100_1g.5gb": 7, "gpu": 7, "shard": 16}),
        ("nvme:3K", {"nvme": 3072}),
        ("(null)", {}),
        ("N/A", {}),
        ("", {}),
    ],
)
def test_gres_of_a_node(text: str, counts: dict[str, int]) -> None:
    read = gres_counts(text)
    assert read.counts == counts
    assert read.strange == ()
    assert bool(read.not_consumed) == ("no_consume" in text)


@pytest.mark.parametrize(
    "text", [":::", "<gpu>:2", "gpu:-1", "gpu:a:b:c:2", "gpu:" + "9" * 40, "gpu a:1", "(S:0)"]
)
def test_what_is_no_gres_is_passed_over(text: str) -> None:
    read = gres_counts(text)
    assert (read.counts, read.strange) == ({}, (text,))


def test_a_hostile_gres_takes_no_time() -> None:
    for text in ("," * 10**6, "(" * 10**6, "gpu:" * 250_000, "a:1(," * 200_000):
        gres_counts(text)


# ------------------------------------------------------------------------------------------------- records and JSON


def record(name: str, gres: str = "(null)", partitions: str = "batch", features: str = "(null)") -> str:
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=16 \n"
        "   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.00\n"
        f"   AvailableFeatures={features},more\n   ActiveFeatures={features}\n   Gres={gres}\n"
        "   RealMemory=515317 AllocMem=0 Sockets=2 Boards=1\n"
        "   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=7 Owner=N/A MCS_label=N/A\n"
        f"   Partitions={partitions} \n   CfgTRES=cpu=64,mem=515317M,billing=64\n\n"
    )


def test_records_of_nodes(tmp_path: Path) -> None:
    text = (
        record("n1", "gpu:a100:4(S:0-1)", "batch,gpu", "ib,skylake")
        + record("out", partitions="(null)")
        + record("n2", "gpu:a100:no_consume:2")
        + record("n3", "gpu:no:thing:here:1")
    )
    machine = machine_of(tmp_path, text)
    assert machine.node_names == ("n1", "n2", "n3")
    site = site_of(machine)
    assert site is not None
    assert nodes_of(site) == {"batch": [0, 1, 2], "gpu": [0]}
    assert site.gres == ({"gpu:a100": 4, "gpu": 4}, {"gpu:a100": 2, "gpu": 2}, {})
    assert list(map(set, site.features)) == [{"ib", "skylake"}, set(), set()]
    assert site.weight.tolist() == [7, 7, 7]
    assert (site.priority, site.backfill) == (None, None)
    notes = "\n".join(site.notes)
    assert "names partitions without their limits of time and size" in notes
    assert "'gpu:no:thing:here:1' of Gres is no generic resource" in notes
    assert "no_consume" in notes


def test_json_of_nodes_in_the_shapes_of_versions(tmp_path: Path) -> None:
    old = {
        "name": "n1",
        "cpus": 4,
        "real_memory": 8000,
        "gres": "gpu:2",
        "active_features": "a,b",
        "weight": 5,
    }
    new = {
        "name": "n2",
        "cpus": 4,
        "real_memory": 8000,
        "gres": "gpu:a100:2(S:0)",
        "active_features": ["a", "c"],
        "weight": {"set": True, "infinite": False, "number": 9},
        "partitions": ["p", "p", "q"],
    }
    site = site_in(tmp_path, {"nodes": [old | {"partitions": ["p"]}, new]})
    assert site.gres == ({"gpu": 2}, {"gpu:a100": 2, "gpu": 2})
    assert list(map(set, site.features)) == [{"a", "b"}, {"a", "c"}]
    assert site.weight.tolist() == [5, 9]
    assert nodes_of(site) == {"p": [0, 1], "q": [1]}


@pytest.mark.parametrize(
    "odd",
    [
        {"gres": 7},
        {"gres": [None]},
        {"active_features": {"a": 1}},
        {"weight": "x"},
        {"weight": -1},
        {"weight": {"number": None}},
        {"weight": 1e300},
        {"partitions": "p"},
        {"partitions": {"p": 1}},
    ],
)
def test_odd_values_in_json_are_passed_over(tmp_path: Path, odd: dict[str, Any]) -> None:
    node = {"name": "n1", "cpus": 4, "real_memory": 8000, "partitions": ["p"]}
    site = site_in(tmp_path, {"nodes": [node | odd]})
    assert site.weight.tolist() == [1]
    assert site.features == (frozenset(),)
    assert all(note.isprintable() for note in site.notes)


def test_sinfo_says_what_its_partitions_demand(tmp_path: Path) -> None:
    golden = Path(__file__).parent.parent / "golden" / "slurm"
    document = json.loads((golden / "26.05" / "sinfo.json").read_text())
    partition = document["sinfo"][0]["partition"]
    partition["maximums"]["time"] = {"set": True, "infinite": False, "number": 120}
    partition["maximums"]["nodes"] = {"set": True, "infinite": False, "number": 3}
    partition["partition"]["oversubscribe"] = "EXCLUSIVE"
    for group in document["sinfo"]:
        group["gres"]["total"] = "gpu:a100:2"
    machine = machine_of(tmp_path, document)
    site = site_of(machine)
    assert site is not None
    rules = site.partitions[partition["name"]]
    assert (rules.max_time_s, rules.max_nodes, rules.exclusive, rules.default) == (7200, 3, True, True)
    assert machine.time_limits_s[partition["name"]] == 7200
    assert sorted(site.partitions) == ["batch", "guest", "secret"]
    assert site.partitions["guest"].tier == 2
    assert site.gres[0] == {"gpu:a100": 2, "gpu": 2}
    assert site.features[0] == {"fast"}


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_golden_sinfo_leaves_no_note(version: str) -> None:
    path = Path(__file__).parent.parent / "golden" / "slurm" / version / "sinfo.json"
    site = site_of(read_machine(path))
    assert site is not None
    assert site.notes == ()
    assert nodes_of(site)["batch"] == [0, 1, 2, 3, 4]


# ------------------------------------------------------------------------------------------------------------- of nodes


def made_site() -> Site:
    return Site(
        partitions={
            "a": PartitionRules("a", np.array([0, 1, 3], np.int32)),
            "b": PartitionRules("b", np.array([2], np.int32)),
        },
        gres=({"gpu": 1}, {}, {"gpu": 2}, {}),
        features=(frozenset("x"), frozenset(), frozenset("y"), frozenset()),
        weight=np.array([1.0, 2.0, 3.0, 4.0]),
        reservations=(Reservation("r", 0.0, 9.0, np.array([1, 2], np.int32), 8),),
    )


def test_a_site_follows_the_order_of_nodes() -> None:
    site = made_site().of_nodes(np.array([3, 2, 1, 0]))
    assert nodes_of(site) == {"a": [0, 2, 3], "b": [1]}
    assert site.gres == ({}, {"gpu": 2}, {}, {"gpu": 1})
    assert site.features[1] == {"y"}
    assert site.weight.tolist() == [4, 3, 2, 1]
    assert site.reservations[0].nodes.tolist() == [1, 2]


def test_a_site_of_some_nodes_has_only_these() -> None:
    site = made_site().of_nodes(np.array([2, 0]))
    assert nodes_of(site) == {"a": [1], "b": [0]}
    assert site.reservations[0].nodes.tolist() == [0]
    assert (len(site.gres), len(site.features), len(site.weight)) == (2, 2, 2)


def test_cores_of_reservations_follow_the_parts_of_a_core() -> None:
    assert made_site().in_parts(20).reservations[0].cores == 160


def test_two_machines_of_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"file1: it would describe nodes, as .*file0 does; give one"):
        machine_of(tmp_path, CONF, CONF)
