"""Inputs that are right, from which hostile ones are made: what is recorded in the repository, cut short, and a few
written here. Short ones are mutated and read sooner, and every field of them is hit more often."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "tests" / "golden" / "logs"
SLURM = ROOT / "tests" / "golden" / "slurm" / "22.05"
DOCTOR = ROOT / "tests" / "golden" / "doctor"
PROFILES = ROOT / "profiles"
RECORDED = ROOT.parent / "shared" / "data"
"""More recordings, where they are (`tests/conftest.py`)."""
NOW_S = 1_800_000_000.0


def head(path: Path, lines: int) -> bytes:
    """The first lines of a file."""
    return b"".join(path.read_bytes().splitlines(keepends=True)[:lines])


def pieces(documents: Iterator[Path], key: str, each: int = 2, most: int = 12) -> list[bytes]:
    """Of JSON documents with a list under `key`, short ones with a few of its entries."""
    found = []
    for path in documents:
        document = json.loads(path.read_bytes())
        rows = document[key][:most]
        found += [
            json.dumps(document | {key: rows[at : at + each]}, indent=1).encode()
            for at in range(0, len(rows), each)
        ]
    return found


def _there(*paths: Path) -> Iterator[Path]:
    return (path for path in paths if path.exists())


def swf() -> list[bytes]:
    return [head(LOGS / "small.swf", 40), (LOGS / "small.swf").read_bytes()[-1500:]]


def sacct() -> list[bytes]:
    odd = (LOGS / "oddities.sacct").read_bytes().splitlines(keepends=True)
    lab = head(PROFILES / "samples" / "lab-cluster.sacct", 8)
    some = [b"".join([odd[0], *odd[at : at + 6]]) for at in range(1, len(odd), 6)]
    return [*some, lab, (LOGS / "extract.csv").read_bytes()[:1500], gzip.compress(lab, mtime=0)]


def sacct_json() -> list[bytes]:
    return pieces(_there(LOGS / "slurm-22.05.json", LOGS / "slurm-24.11.json"), "jobs", each=1, most=8)


def squeue() -> list[bytes]:
    recorded = (RECORDED / name / "squeue.json" for name in ("slurm-24.11", "slurm-26.05"))
    return [*pieces(_there(SLURM / "squeue.json", *recorded), "jobs"), b'{"jobs": []}']


def sinfo() -> list[bytes]:
    recorded = (RECORDED / name / "sinfo.json" for name in ("slurm-24.11", "slurm-26.05"))
    return [
        *pieces(_there(SLURM / "sinfo.json"), "nodes", each=1),
        *pieces(_there(*recorded), "sinfo", each=1),
    ]


LIMITS = b"""Cluster|Account|User|Partition|GrpJobs|GrpTRES|GrpWall|MaxJobs|MaxTRES|MaxTRESPerNode|QOS|Def QOS
c|root||||||||||
c| physics|||100|cpu=500,mem=3000G|69-10:39:00|7|||normal,big|
c|  theory|ann|gpus|||||cpu=3|mem=1.50T|normal|big
Name|Flags|GrpTRES|MaxTRESPU|MaxJobsPU|MaxTRESPA|LimitFactor|MaxWall
normal|DenyOnLimit|gres/gpu:a100=8|cpu=4,mem=2G|3|cpu=9|2.0|1-00:00:00
big|Relative|cpu=50|||||
"""
NODE_RECORDS = b"""NodeName=n1 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=60 CPUTot=64 CPULoad=0.00
   RealMemory=515317 AllocMem=0 FreeMem=511456 Sockets=2 Boards=1
   CoreSpecCount=2 CPUSpecList=60-63 MemSpecLimit=4096
   AvailableFeatures=ib,fast ActiveFeatures=ib Gres=gpu:a100:4(S:0-1),nvme:no_consume:2T
   State=IDLE+CLOUD ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=batch,guest

NodeName=n2 Arch=x86_64 CoresPerSocket=16 CPUAlloc=0 CPUTot=32 RealMemory=1000 Sockets=2 State=FUTURE
"""
SLURM_CONF = b"""ClusterName=x # of the lab
NodeName=DEFAULT CPUs=4 RealMemory=4000 State=UNKNOWN
NodeName=n[1-3],m1 Sockets=1 CoresPerSocket=2 ThreadsPerCore=2 \\
  Gres=gpu:1
NodeName=f1 State=FUTURE
NodeName=g1 CPUs=4 Gres=gpu:a100:2(S:0,1),nvme:1G Feature=ib,fast Weight=9
NodeSet=fast Feature=fast
PartitionName=batch Nodes=ALL Default=YES MaxTime=1-00:00:00
PartitionName=guest Nodes=fast,n1 MaxNodes=4 MinNodes=1 PriorityTier=2 OverSubscribe=EXCLUSIVE QOS=low State=DRAIN
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightTRES=CPU=100,GRES/gpu=-2.5
PriorityMaxAge=7-0
PriorityFlags=NO_FAIR_TREE
SchedulerParameters=bf_window=4320,bf_interval=-1,bf_max_job_test=100
"""
BESIDE_NODES = [
    b"""PartitionName=batch
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=N/A
   MaxNodes=UNLIMITED MaxTime=04:00:00 MinNodes=0 LLN=NO
   Nodes=n[1-2],g1
   PriorityJobFactor=1 PriorityTier=20 OverSubscribe=FORCE:4 State=UP

PartitionName=GPU nodes AllowGroups=ALL Nodes=ALL DefaultTime=NONE ExclusiveUser=YES State=INACTIVE
""",
    b"""Configuration data as of 2026-07-30T14:17:55
PriorityDecayHalfLife   = 30-00:00:00
PriorityType            = priority/multifactor
PriorityWeightFairShare = 20000
SchedulerParameters     = (null)
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 18.08.4
""",
    b"""ReservationName=two words StartTime=2023-10-13T20:00:00 EndTime=2023-10-16T09:00:00 Duration=2-13:00:00
   Nodes=n[1-3] NodeCnt=3 CoreCnt=96 Features=(null) PartitionName=(null) Flags=MAINT,WEEKLY
     NodeName=n1 CoreIDs=0-3
   TRES=cpu=8
   Users=root,-ann Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE
""",
]
CONFIGURATION = b"""[daemon]
mode = "enforce"
cluster = "slurm"
interval_s = 30
retention_days = 9
[policies]
admit = "oasis"
defer = "edf"
place = "native"
share = "asax"
[guard]
host_floor = 0.2
guests_cap = 3
[nodes]
listen = "0.0.0.0:6820"
[node]
guest_partitions = ["guest"]
[share.asax]
again_s = 45
importance = false
[admit.oasis]
slot_s = 300
horizon = 12
[[admit.rules]]
utility = "constant(1)"
users = ["a*"]
[defer.edf]
reserve = 0.1
[[defer.rules]]
window_s = 7200
[slurm]
guest_partition = "guest"
share_users = "any"
depth = 50
"""
"""Every kind of table; the shipped one is nearly all comments."""
STATEMENTS = b"""version = 1
[[statement]]
name = "nightly"
cores = 8
due = 2027-01-15T02:00:00Z
every = "24h"
runs = [["0m", "1h", 0.7], ["10m", "90m", 0.3]]
value = 12.0
shape = "linear"
deadline = "4h"
eviction = "cancel"
[[statement]]
cores = 1
due = "+2h"
runs = [["-5m", "1.5h", 1]]
value = 1
deadline = "1d"
"""
DEMAND = b'[applications]\n"ann/*" = 0.5\n[assume]\nmean = 0.6\nconcentration = 5\nuse_measured = true\n'
HINTS = [
    b"asad:utility=sigmoid(10,0.5,20m);workers=8;ps=servers:4",
    b"asad:utility=linear(3,1h,1-12:00:00)",
    b"asad:utility=deadline(100,90s);sow=12;by=2h;no",
    b"asad:utility=constant(1.5);memory-bound",
    b"asad:steps=100 asad:progress",
    b"40/100",
]
COMMANDS = [
    b"PartitionName=batch AllowGroups=ALL Nodes=n[1-4] MaxTime=1-00:00:00 PriorityTier=1 QoS=N/A ExclusiveUser=NO\n"
    b"PartitionName=guest Nodes=n[1-4] MaxTime=UNLIMITED PriorityTier=2 QoS=guests ExclusiveUser=YES\n",
    b"ReservationName=maint StartTime=1800000000 EndTime=1800003600 Nodes=n[2-3] NodeCnt=2 Flags=MAINT\n",
    b"physics|ann||1-00:00:00\nphysics|||02:00:00\nroot||batch|\n",
    b"normal|\nguests|04:00:00\n",
    b"7|1800000000|1800000100|00:03.205|COMPLETED\n8|1800000000|Unknown|1-02:00:00|CANCELLED by 0\n8.batch|1|2||\n",
    b"17|17|PENDING|1000|mesos|PartitionDown\n18|18|RUNNING|0|mesos|None\n",
    b"PENDING|guest|n1\n",
    b"17 PENDING 1800000000 100 4294901757 N/A\n18 PENDING Unknown 0 0 [1-4%2]\n",
]
"""What scontrol, sacctmgr, sacct and squeue print for us, besides JSON."""


def journal() -> list[bytes]:
    """Of offers and changes (`offers.journal`)."""
    offer = {
        "what": "offer", "time_s": NOW_S, "job": "14", "raw": 14, "partition": "batch", "required_nodes": "",
        "num_nodes": "1-2", "guest_partition": "guest", "nodes": "an[1-2]", "host": "", "estimate_s": NOW_S + 600,
        "share": 0.5, "capped": False, "demands": {"an1": 0.5, "an2": 0.7}, "demand": 0.3, "restarts": 0,
        "started": False,
    }  # fmt: skip
    pair = offer | {"job": "15_3", "raw": 16, "host": "10", "demands": {}, "demand": None, "estimate_s": None}
    changed = {"what": "changed", "time_s": NOW_S, "job": "9", "key": "StartTime", "was": 0, "ours": [1, 2]}
    lines: list[dict[str, Any]] = [
        offer,
        pair,
        changed,
        changed | {"key": "Nice", "was": -5, "ours": [7]},
        changed | {"key": "ArrayTaskThrottle", "job": "20", "ours": [4]},
        {"what": "started", "time_s": NOW_S, "job": "15_3"},
        {"what": "given-back", "time_s": NOW_S, "job": "9", "key": "Nice"},
        {"what": "withdrawn", "time_s": NOW_S, "job": "14", "by": "asad-undo"},
        {"what": "evict", "time_s": NOW_S, "job": "3", "how": "cancel"},
    ]
    return [_lines(lines), _lines(lines[:5]), _lines(lines[2:5])]


def queue_journal() -> list[bytes]:
    """Of jobs that are in hand for Mesos (`slurm-queue.journal`)."""
    entry: dict[str, Any] = {
        "job": 17, "submit_s": 1000.0, "restarts": 0, "take": 1, "state": "holding", "since_s": NOW_S, "mesos": "",
        "comment": "", "admin_comment": "of the site", "said": "", "why": "", "status": 0,
        "facts": {"wrote": "AdminComment"}, "array": 0, "task": -1,
    }  # fmt: skip
    lines = [
        entry,
        entry | {"job": 18, "take": 2, "state": "served", "mesos": "m1", "array": 18, "task": 3},
        entry | {"job": 19, "take": 3, "state": "returning"},
        entry | {"job": 20, "take": 4, "state": "ending", "status": 256, "why": "it failed"},
        entry | {"job": 21, "take": 5, "state": "over"},
        entry | {"job": 17, "state": ""},
    ]
    return [_lines(lines), _lines(lines[1:4])]


def _lines(lines: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def statements_of_data(pattern: str, key: str) -> list[bytes]:
    """Recorded instances of a benchmark, short ones."""
    return [
        json.dumps(json.loads(path.read_bytes()) | {key: json.loads(path.read_bytes())[key][:4]}).encode()
        for path in sorted(RECORDED.glob(pattern))[:3]
    ]
