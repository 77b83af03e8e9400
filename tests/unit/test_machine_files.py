"""The machine of what Slurm prints: records of `scontrol show node`, `slurmd -C`, JSON; and of what is none of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.machine_files import read_machine

MIB, GIB = 2.0**20, 2.0**30


def machine_of(folder: Path, content: str | bytes | dict[str, Any] | list[Any]) -> Machine:
    if isinstance(content, dict | list):
        content = json.dumps(content)
    path = folder / "machine"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_machine(path)


def cores_of(machine: Machine) -> dict[str, int]:
    return dict(zip(machine.node_names, machine.cores.tolist(), strict=True))


# ----------------------------------------------------------------------------------------------- scontrol show node


def record(name: str, cpus: str = "CPUEfctv=64 CPUTot=64", more: str = "", state: str = "IDLE") -> str:
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=16 \n"
        f"   CPUAlloc=0 {cpus} CPULoad=0.00\n"
        "   AvailableFeatures=CPUTot=1\n"
        f"   NodeAddr={name} NodeHostName={name} Version=24.05.6\n"
        "   OS=Linux 6.1 #1 SMP RealMemory=5 Fri May 24 13:05:10 UTC 2024 \n"
        "   RealMemory=515317 AllocMem=0 FreeMem=511456 Sockets=2 Boards=1\n"
        f"{more}"
        f"   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n"
        "   CfgTRES=cpu=64,mem=515317M,billing=64\n"
        "   Comment=CPUTot=3 Sockets=9\n\n"
    )


def one_line(text: str) -> str:
    """What `-o` makes of it."""
    return "\n".join(" ".join(part.split()) for part in text.strip().split("\n\n")) + "\n"


@pytest.mark.parametrize("shape", [str, one_line, lambda text: text.replace("\n", "\r\n")])
def test_records_of_nodes(tmp_path: Path, shape: Any) -> None:
    text = (
        record("n1").replace("RealMemory=5 ", "")
        + record("n2", "CPUEfctv=60 CPUTot=64", "   CoreSpecCount=2 MemSpecLimit=4096\n").replace(
            "RealMemory=5 ", ""
        )
        + record("n3", "CPUErr=0 CPUTot=64", "   CoreSpecCount=2 CPUSpecList=0-3 \n").replace(
            "RealMemory=5 ", ""
        )
        + record("f1", state="FUTURE")
        + record("c1", "CPUEfctv=8 CPUTot=8", state="IDLE+CLOUD+POWERED_DOWN").replace("RealMemory=5 ", "")
    )
    machine = machine_of(tmp_path, shape(text))
    assert cores_of(machine) == {"n1": 64, "n2": 60, "n3": 60, "c1": 8}
    memory = (machine.memory_bytes / MIB).tolist()
    assert memory == [515317, 515317 - 4096, 515317, 515317]
    assert "1 nodes with State=FUTURE left out" in machine.origin
    assert any("does not say whether memory is scheduled" in note for note in machine.notes)
    assert any(note.startswith("2 nodes keep 8 CPUs and 4 GiB") for note in machine.notes)


def test_a_prompt_before_the_records_and_blank_lines(tmp_path: Path) -> None:
    text = "$ scontrol show node\n\n" + record("n1") + "\n" + record("n2")
    assert cores_of(machine_of(tmp_path, text)) == {"n1": 64, "n2": 64}


def test_memory_that_nobody_configured_is_not_known(tmp_path: Path) -> None:
    text = record("n1").replace("RealMemory=5 ", "").replace("RealMemory=515317", "RealMemory=1")
    assert np.isnan(machine_of(tmp_path, text).memory_bytes).all()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (record("n1") + record("n1"), "machine:11: node 'n1' is also described at"),
        (
            record("n1") + record("n2").replace("CPUTot=64", "CPUTot=x"),
            "cputot of node 'n2' 'x' is not a number",
        ),
        (record("n1") + "NodeName=n2 Arch=x86_64\n", "cputot of node 'n2' is missing"),
        (record("n1", state="FUTURE"), "all of its 1 nodes have State=FUTURE"),
        (record("n/a"), "no record describes a node"),
        (
            "NodeName=n1 Arch=x86_64 CoresPerSocket=16\nNodeName=n2 Arch=x86_64 CoresPerSocket=16\n",
            "arch is of",
        ),
    ],
)
def test_records_that_cannot_be_read(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_of(tmp_path, text)
    assert problem in str(caught.value)


TEXT = (
    "   Reason=broken, set MemSpecLimit=60000 CPUEfctv=2 later, see NodeName=n7 CPUTot=9 [root@2024-01-01T00:00:00]\n"
    "   Comment=CoreSpecCount=4 Partitions=x State=FUTURE MemSpecLimit=60000\n"
    "NodeName=n8 was there before\n"
    "   Extra=NodeName=n9 CPUTot=7\n"
)


@pytest.mark.parametrize("shape", [str, one_line, lambda text: " ".join(text.split())])
def test_text_of_anybody_is_no_field(tmp_path: Path, shape: Any) -> None:
    records = [
        record(name).replace("   Comment=CPUTot=3 Sockets=9\n\n", TEXT + "\n") for name in ("n1", "n2")
    ]
    machine = machine_of(tmp_path, shape("".join(records)))
    assert cores_of(machine) == {"n1": 64, "n2": 64}
    assert machine.memory_bytes.tolist() == [515317 * MIB] * 2


def test_fields_may_stand_behind_the_name_of_the_system(tmp_path: Path) -> None:
    text = (
        "NodeName=n1 Arch=x86_64 CoresPerSocket=8\n   CPUAlloc=0 CPUErr=0 CPUTot=16 CPULoad=0.01 Features=(null)\n"
        "   OS=Linux RealMemory=64000 AllocMem=0 FreeMem=100 Sockets=2 Boards=1\n"
        "   CoreSpecCount=2 MemSpecLimit=4000\n   State=DOWN* ThreadsPerCore=1\n"
        "   Reason=CPUTot=4 NodeName=x\n"
    )
    machine = machine_of(tmp_path, text)
    assert cores_of(machine) == {"n1": 14}
    assert machine.memory_bytes.tolist() == [60000 * MIB]


def test_records_in_one_line_are_all_read(tmp_path: Path) -> None:
    text = "NodeName=n1 CPUAlloc=0 CPUTot=16 RealMemory=64000 NodeName=n2 CPUTot=8 RealMemory=32000\n"
    assert cores_of(machine_of(tmp_path, text)) == {"n1": 16, "n2": 8}
    with pytest.raises(MachineError, match="node 'n1' is also described"):
        machine_of(tmp_path, text.replace("n2", "n1"))


def test_records_of_nodes_that_are_down_or_in_no_partition(tmp_path: Path) -> None:
    states = ("DOWN*", "IDLE+DRAIN", "IDLE+CLOUD+POWERED_DOWN", "IDLE~", "MIXED+FAIL")
    text = "".join(
        record(f"n{number}", more="   Partitions=b \n", state=state) for number, state in enumerate(states)
    )
    machine = machine_of(tmp_path, text + record("login1") + record("login2"))
    assert sorted(machine.node_names) == ["n0", "n1", "n2", "n3", "n4"]
    assert any(note.startswith("3 nodes are down") for note in machine.notes)
    assert any("2 nodes are in no partition" in note and "(login1, login2)" in note for note in machine.notes)
    assert cores_of(machine_of(tmp_path, record("login1") + record("login2"))) == {"login1": 64, "login2": 64}


def test_what_slurmd_prints_of_its_node(tmp_path: Path) -> None:
    text = (
        "NodeName=n1 CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000 "
        "Gres=gpu:2\n"
        "Found gpu:tesla:2 with Autodetect=nvml (Substring of gpu name may be used instead)\n"
        "UpTime=0-00:10:00\n"
    )
    machine = machine_of(tmp_path, text)
    assert cores_of(machine) == {"n1": 32}
    assert machine.memory_bytes.tolist() == [64000 * MIB]


# ------------------------------------------------------------------------------------------------------------- JSON


def test_json_that_lists_nodes(tmp_path: Path) -> None:
    nodes = [
        {"name": "n2", "cpus": 4, "real_memory": 2048, "state": "idle"},
        {"name": "n1", "cpus": 2, "real_memory": 1024, "state": "mixed"},
    ]
    machine = machine_of(tmp_path, {"meta": {}, "nodes": nodes})
    assert cores_of(machine) == {"n1": 2, "n2": 4}
    assert machine.memory_bytes.tolist() == [GIB, 2 * GIB]


@pytest.mark.parametrize(
    ("fields", "cores", "memory_mib"),
    [
        ({"effective_cpus": 60, "specialized_cores": 2, "specialized_memory": 4096}, 60, 253096),
        ({"effective_cpus": 64, "specialized_memory": 0}, 64, 257192),
        ({"specialized_cores": 2, "sockets": 2, "cores": 16, "threads": 2}, 60, 257192),
        ({"specialized_cores": 2, "sockets": 2, "cores": 32, "threads": 2}, 62, 257192),  # CPUs are cores
        ({"tres": "cpu=60,mem=257192M,billing=60"}, 60, 257192),
        ({"real_memory": 1}, 64, None),
        ({"real_memory": {"set": False, "infinite": False, "number": 0}}, 64, None),
        ({"real_memory": {"set": True, "infinite": False, "number": 1000}, "mem_spec_limit": 100}, 64, 900),
        ({"cpus": {"set": True, "infinite": False, "number": 8}}, 8, 257192),
        ({"state": ["DOWN", "NOT_RESPONDING"]}, 64, 257192),
    ],
)
def test_json_knows_what_is_kept_for_the_system(
    tmp_path: Path, fields: dict[str, Any], cores: int, memory_mib: float | None
) -> None:
    node = {"name": "n1", "cpus": 64, "real_memory": 257192, "state": ["IDLE"], **fields}
    machine = machine_of(tmp_path, {"nodes": [node]})
    assert machine.cores.tolist() == [cores]
    found = machine.memory_bytes[0] / MIB
    assert np.isnan(found) if memory_mib is None else found == memory_mib


def test_json_of_nodes_that_are_down_or_in_no_partition(tmp_path: Path) -> None:
    states: list[Any] = [
        ["DOWN", "NOT_RESPONDING"],
        "drained",
        ["IDLE", "DRAIN"],
        ["IDLE", "POWERED_DOWN"],
        "idle",
    ]
    nodes = [
        {"name": f"n{number}", "cpus": 4, "state": state, "partitions": ["b"]}
        for number, state in enumerate(states)
    ]
    login = {"name": "login1", "cpus": 64, "state": ["IDLE"], "partitions": []}
    machine = machine_of(tmp_path, {"nodes": [*nodes, login]})
    assert machine.node_names == ("n0", "n1", "n2", "n3", "n4")
    assert any(note.startswith("3 nodes are down") for note in machine.notes)
    assert any("1 nodes are in no partition" in note and "(login1)" in note for note in machine.notes)
    assert cores_of(machine_of(tmp_path, {"nodes": [login]})) == {"login1": 64}


@pytest.mark.parametrize(
    "text",
    [
        '{"nodes": [NODE1]}\n{"nodes": [NODE2]}\n',
        '{"nodes": [NODE1]}{"nodes": [NODE2]}',
        "NODE1\nNODE2\n",
        "[NODE1, NODE2]",
        'slurm_load_node: warning: retry\n{"nodes": [NODE1, NODE2]}',
    ],
)
def test_documents_that_are_joined_or_taken_apart(tmp_path: Path, text: str) -> None:
    for number in (1, 2):
        text = text.replace(f"NODE{number}", json.dumps({"name": f"n{number}", "cpus": number}))
    machine = machine_of(tmp_path, text)
    assert cores_of(machine) == {"n1": 1, "n2": 2}
    assert any("1 lines before its JSON are passed over" in note for note in machine.notes) is (
        "warning" in text
    )


def test_nodes_of_the_future_are_left_out_of_json(tmp_path: Path) -> None:
    nodes = [
        {"name": f"n{number}", "cpus": 4, "real_memory": 2048, "state": state}
        for number, state in enumerate((["IDLE"], ["FUTURE"], "future", "idle"))
    ]
    machine = machine_of(tmp_path, {"nodes": nodes})
    assert machine.node_names == ("n0", "n3")
    assert "2 nodes with State=FUTURE left out" in machine.origin


def group(names: list[str], low: int, high: int, **more: Any) -> dict[str, Any]:
    return {
        "nodes": {"total": len(names), "nodes": names},
        "cpus": {"minimum": low, "maximum": high},
        "memory": {"minimum": 1024, "maximum": 1024},
        **more,
    }


def test_json_that_lists_groups_of_nodes(tmp_path: Path) -> None:
    groups = [group(["n1", "n2"], 8, 8), group(["n1"], 8, 8), group(["m[1-2]"], 4, 16)]
    machine = machine_of(tmp_path, {"sinfo": groups})
    assert cores_of(machine) == {"m1": 4, "m2": 4, "n1": 8, "n2": 8}
    assert any("taken as their smallest" in note and "(m1, m2)" in note for note in machine.notes)


def test_groups_of_nodes_with_parts_for_the_system_and_the_future(tmp_path: Path) -> None:
    groups = [
        group(["n1", "n2"], 8, 8, resource_spec={"cpus": "0-1", "memory": 24}, node={"state": ["IDLE"]}),
        group(["f1"], 8, 8, node={"state": ["FUTURE"]}),
    ]
    machine = machine_of(tmp_path, {"sinfo": groups})
    assert cores_of(machine) == {"n1": 6, "n2": 6}
    assert machine.memory_bytes.tolist() == [1000 * MIB] * 2
    assert "1 nodes with State=FUTURE" in machine.origin


def test_a_placeholder_among_groups_of_nodes(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, {"sinfo": [group(["n/a"], 1, 1), group(["n1"], 8, 8)]})
    assert cores_of(machine) == {"n1": 8}
    assert any("'n/a'" in note and "stands for no node" in note for note in machine.notes)


def test_what_groups_of_nodes_do_not_say_is_noted(tmp_path: Path) -> None:
    force = {"name": "b", "maximums": {"oversubscribe": {"jobs": 4, "flags": ["force"]}}}
    plain = machine_of(tmp_path, {"sinfo": [group(["n1"], 8, 8, partition=force, node={"state": ["DOWN"]})]})
    assert any("does not say what nodes keep for the system" in note for note in plain.notes)
    assert any("OverSubscribe=FORCE (b)" in note for note in plain.notes)
    assert any(note.startswith("1 nodes are down") for note in plain.notes)
    spec = machine_of(tmp_path, {"sinfo": [group(["n1"], 8, 8, resource_spec={"cpus": "0", "memory": 24})]})
    assert not any("does not say what nodes keep" in note for note in spec.notes)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "machine:1: column"),
        ('{"nodes": [{"name": "a", "cpus": NaN}]}', "is not JSON"),
        ('{"nodes": [{}]}', "nodes[0] lacks 'name'"),
        ('{"nodes": [{"name": "a"}]}', "nodes[0]: node 'a' lacks 'cpus'"),
        ('{"nodes": [null]}', "nodes[0] is garbled"),
        (
            '{"nodes": [{"name": "a", "cpus": 1}, {"name": "a", "cpus": 1}]}',
            "nodes[1]: node 'a' is also described",
        ),
        ('{"sinfo": [{"nodes": {"total": 2}}]}', "sinfo[0] lacks 'cpus'"),
        ('{"nodes": []} {"nodes": [{"name": "a"}]}', "document 2, nodes[0]: node 'a' lacks 'cpus'"),
        ('{"nodes": []}\n{"nodes":', "is not JSON"),
        ("[null]", "no list `nodes` or `sinfo`"),
        ('{"nodes": []}', "lists no nodes"),
        ('{"a": 1}', "no list `nodes` or `sinfo`"),
        ("[1, 2]", "no list `nodes` or `sinfo`"),
        ('{"sinfo": [3]}', "sinfo[0] is garbled"),
        ('{"nodes": [{"name": 1, "cpus": "x"}]}', "nodes[0] is garbled ('cpus is x')"),
        ('{"nodes": [{"name": "a", "cpus": -4, "real_memory": 5}]}', "node 'a' is garbled ('cpus is -4')"),
        ('{"nodes": [{"name": "a", "cpus": 0, "real_memory": 5}]}', "has no CPUs"),
        ('{"partitions": []}', "it lists partitions"),
        ('{"jobs": []}', "it lists jobs (squeue or sacct): that is a log"),
        ('{"reservations": []}', "it lists reservations"),
    ],
)
def test_json_that_describes_no_machine(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_of(tmp_path, content)
    assert problem in str(caught.value)


# ---------------------------------------------------------------------------------------------------- something else


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (
            "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nbatch* up infinite 2 idle n[1-2]\n",
            "a table of sinfo",
        ),
        ("NODELIST   NODES PARTITION STATE\nn1 1 batch* idle\n", "a table of sinfo"),
        ("HOSTNAMES CPUS\nn1 4\n", "a table of sinfo"),
        (
            "Configuration data as of 2024-01-01T00:00:00\nSelectType = select/cons_tres\n",
            "scontrol show config",
        ),
        (
            "PartitionName=b\n   AllowGroups=ALL AllowAccounts=ALL\n   Nodes=n[1-2]\n",
            "scontrol show partition",
        ),
        ("JobId=12 JobName=x\n   UserId=a(1)\n", "a list of jobs"),
        ("JOBID PARTITION NAME USER\n", "a list of jobs"),
        ("JobID|User|State\n1|a|COMPLETED\n", "a list of jobs"),
        ("n1\n     Mom = n1.site.org\n     state = free\n     pcpus = 4\n", "pbsnodes"),
        ("HOST_NAME STATUS JL/U MAX\nh ok - 4\n", "LSF"),
        ("HOSTNAME                ARCH         NCPU\n", "Grid Engine"),
        ("nodes:\n- name: n1\n  cpus: 4\n", "YAML"),
        ("- name: n1\n  cpus: 4\n", "YAML"),
        ("slurm_nodes:\n  - name: n1\n", "YAML"),
        (
            "Tue Jan  2 10:00:00 2024\nNODELIST   NODES PARTITION STATE CPUS S:C:T MEMORY\n",
            "a table of sinfo",
        ),
        ("Di 02 Jan 2024 10:00:00 CET\nPARTITION AVAIL TIMELIMIT\n", "a table of sinfo"),
        ("CPUS,MEMORY,NODELIST\n16,64000,n1\n", "a table of sinfo"),
        ("STATE CPUS HOSTNAMES\nidle 16 n1\n", "a table of sinfo"),
        ("USER JOBID NODELIST(REASON)\na 1 n1\n", "a list of jobs"),
        ("# cgroups\nConstrainDevices=yes\n", "cgroup.conf"),
        ("AllowedRAMSpace=90\n", "cgroup.conf"),
        ("; Version: 2.2\n; MaxNodes: 2\n", "SWF"),
        (" 1 0 0 10 1 -1 -1 1 -1 -1 1 1 1 1 1 -1 -1 -1\n", "SWF"),
        ("ReservationName=r StartTime=2024-01-01T00:00:00\n   Nodes=n1\n", "scontrol show reservation"),
        ("[compute]\nn1 ansible_host=10.0.0.1\n", "machine:1: this is INI or TOML"),
        ("# hosts\n[[nodes]]\nname = 1\n", "machine:2: this is TOML"),
        ('<?xml version="1.0"?><Data/>\n', "XML"),
        ("node,cpus,memory\nn1,4,8000\n", "CSV"),
        ("", "it is empty"),
        (" \n\n", "it is empty"),
        (b"\x1f\x8b\x08\x00", "its gzip data are broken"),
        (b"\xfd7zXZ\x00", "its xz data are broken"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x7fELF\x00\x00", "no text"),
        ("hello\n", "no NodeName line describes a node"),
    ],
)
def test_what_is_no_machine_is_refused_by_name(tmp_path: Path, content: str | bytes, what: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_of(tmp_path, content)
    assert what in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="No such file"):
        read_machine(tmp_path / "nothing")


def test_a_compressed_machine_is_read(tmp_path: Path) -> None:
    assert machine_of(tmp_path, gzip.compress(b"NodeName=n[1-3] CPUs=4\n")).total_cores == 12
