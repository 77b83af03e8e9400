"""The machine of a slurm.conf, as slurmctld reads it: what each line becomes was seen on Slurm 22.05."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from asad.errors import MachineError
from asad.model import Machine
from asad.replay.machine_files import read_machine

MIB, GIB = 2.0**20, 2.0**30


def written(folder: Path, text: str | bytes, name: str = "slurm.conf") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def machine_of(folder: Path, text: str | bytes) -> Machine:
    return read_machine(written(folder, text))


def cores_of(machine: Machine) -> dict[str, int]:
    return dict(zip(machine.node_names, machine.cores.tolist(), strict=True))


def memory_of(machine: Machine) -> dict[str, float]:
    return dict(zip(machine.node_names, machine.memory_bytes.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------- lines


def test_slurm_conf_as_slurm_reads_it(tmp_path: Path) -> None:
    written(tmp_path, "nodename=gpu1 cpus=16 realmemory=2048 State=UNKNOWN\n", "more.conf")
    path = written(
        tmp_path,
        "# NodeName=no CPUs=1\n"
        "ClusterName=c\n"
        "NodeName=DEFAULT RealMemory=1024 ThreadsPerCore=2 # a comment\n"
        "NodeName=n[1-3,05] NodeAddr=x Sockets=2 \\\n"
        "    CoresPerSocket=8\n"
        'NodeName=one,two Boards=2 SocketsPerBoard=1 CoresPerSocket=4 RealMemory=4096 Reason="don\'t"\n'
        "NodeName=later[1-9] CPUs=4 State=FUTURE\n"
        "Include more.conf\n"
        "PartitionName=batch Nodes=n[1-3],n05,one,two,gpu1\n",
    )
    machine = read_machine(path)
    assert cores_of(machine) == {"n1": 32, "n2": 32, "n3": 32, "n05": 32, "one": 16, "two": 16, "gpu1": 16}
    memory = memory_of(machine)
    assert (memory["n1"], memory["one"], memory["gpu1"]) == (GIB, 4 * GIB, 2 * GIB)
    assert "9 nodes with State=FUTURE left out" in machine.origin


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("NodeName = n[1-2]   CPUs = 16   RealMemory = 64000\n", {"n1": 16, "n2": 16}),
        ("NodeName\t=\tn1\tCPUs\t=\t2\n", {"n1": 2}),
        ('NodeName="a,b" CPUs = "4" Feature="x y"\n', {"a": 4, "b": 4}),
        ("  NodeName=a CPUs=4\n", {"a": 4}),
        ("NODENAME=a cpus=4\n", {"a": 4}),
        ("NodeName=a CPUs=4 CPUs=6\n", {"a": 6}),
        ("NodeName=a CPUs+=4\n", {"a": 4}),
        ("NodeName=\\\na,\\\nb CPUs=4 \\\n   RealMemory=100\n", {"a": 4, "b": 4}),
        ("NodeName=a CPUs=1\\\n6\n", {"a": 16}),
        ("NodeName=a CPUs=4 \\  \nRealMemory=5\n", {"a": 4}),
        ("NodeName=a CPUs=4 \\", {"a": 4}),
        ("NodeName=a Reason=x\\#y CPUs=4 # CPUs=8\n", {"a": 4}),
        ("NodeName=a Reason=x\\\\#y CPUs=8\n", {"a": 1}),  # an escaped backslash escapes no #
        ("NodeName=a CPUs=4 \\\n# ends it\nClusterName=c\n", {"a": 4}),
        ("ClusterName=c\r\nNodeName=a CPUs=4 \\\r\n RealMemory=5\r\n", {"a": 4}),
        ("# CPUTot=64 of scontrol show node\nNodeName=a CPUs=4\n", {"a": 4}),
        ("PartitionName=b \\\n  AllowGroups=ALL Nodes=a\nNodeName=a CPUs=4\n", {"a": 4}),
        ("NodeNameX=1\nNodeName=a CPUs=4\nSome text that is no setting\n", {"a": 4}),
        ("NodeName=r[1-2]y[3-4] CPUs=2\n", {"r1y3": 2, "r1y4": 2, "r2y3": 2, "r2y4": 2}),
        ("NodeName=n[1-2]-ib,login-1.site.org CPUs=2\n", {"n1-ib": 2, "n2-ib": 2, "login-1.site.org": 2}),
        (
            "NodeName=n_1 NodeHostname=h NodeAddr=10.0.0.1 Port=[1-2] CPUs=3 Gres=gpu:2 TmpDisk=1\n",
            {"n_1": 3},
        ),
        ("NodeName=c1 CPUs=4 State=CLOUD\nNodeName=n1 CPUs=4 NewKeyOfALaterSlurm=7\n", {"c1": 4, "n1": 4}),
    ],
)
def test_lines(tmp_path: Path, text: str, cores: dict[str, int]) -> None:
    assert cores_of(machine_of(tmp_path, text)) == cores


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be"])
def test_files_of_other_systems(tmp_path: Path, encoding: str) -> None:
    text = "ClusterName=ü\r\nNodeName=a CPUs=4\r\n"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    assert cores_of(machine_of(tmp_path, mark + text.encode(encoding))) == {"a": 4}


def test_bytes_that_are_no_utf_8_are_a_comment(tmp_path: Path) -> None:
    assert cores_of(machine_of(tmp_path, b"# caf\xe9\nNodeName=a CPUs=4\n")) == {"a": 4}


def test_defaults_add_up_and_hold_for_what_follows(tmp_path: Path) -> None:
    machine = machine_of(
        tmp_path,
        "NodeName=a CPUs=4\n"
        "NodeName=DEFAULT CPUs=8 RealMemory=1000\n"
        "NodeName=b\n"
        "NodeName=default realmemory=2000 ThreadsPerCore=2\n"
        "NodeName=c\n"
        "NodeName=d CPUs=2 RealMemory=500\n"
        "NodeName=e Procs=4\n",
    )
    assert cores_of(machine) == {"a": 4, "b": 8, "c": 8, "d": 2, "e": 8}  # CPUs of a default win over Procs
    memory = memory_of(machine)
    assert np.isnan(memory["a"])
    assert (memory["b"], memory["c"], memory["d"]) == (1000 * MIB, 2000 * MIB, 500 * MIB)


def test_thousands_of_nodes(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, "NodeName=nid[00001-09408] CPUs=128 RealMemory=257000\n")
    assert len(machine.node_names) == 9408
    assert machine.node_names[-1] == "nid09408"


# -------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty"),
        ("\n# a comment\n", "it has nothing but comments"),
        ("ClusterName=c\n", "no NodeName line"),
        ("NodeName=n[1- CPUs=2\n", "slurm.conf:1"),
        ("NodeName=n[1-2]]x CPUs=2\n", "slurm.conf:1"),
        ("\nNodeName=n1 CPUs=two\n", "slurm.conf:2: cpus='two' is not a number"),
        ("NodeName=n1 RealMemory=4G\n", "realmemory='4G' is not a number"),
        ("NodeName=n1 CPUs=2\nNodeName=n[1-2] CPUs=2\n", "slurm.conf:2: node 'n1' is also described at"),
        ("NodeName=n1 State=FUTURE\nNodeName=n1 CPUs=2\n", "also described"),
        ("NodeName=n[1-99999] CPUs=65535\n", "too many"),
        (
            "NodeName=n1 CPUs=1 CoreSpecCount=1\n",
            "no node is left: 1 nodes keep all of their CPUs for the system (n1)",
        ),
        ('NodeName=n1 Reason="open CPUs=2 x\n', "close quotes"),
        ("NodeName=n1,\\\n  n2 CPUs=2\n", "slurm.conf:1: 'n2 CPUs=2' is no Key=value"),
        ("NodeName=n1 CPUs=\n", "is no Key=value"),
        (
            "NodeName=n1 Gres= RealMemory=64000\n",
            "Gres= has no value, so Slurm takes 'RealMemory=64000' for it",
        ),
        ("NodeName=n1 CPUs=2\nRealMemory=64000\n", "slurm.conf:2: 'RealMemory=64000' is of a node"),
        ("SlurmctldPort=6817 NodeName=n1 CPUs=2\n", "NodeName stands behind another setting"),
        ("NodeName=n1 CPUs=2 NodeName=n2 CPUs=2\n", "NodeName= stands behind another setting"),
        ("NodeName=n1 CPUs=2 SelectTypeParameters=CR_Core\n", "SelectTypeParameters= stands behind"),
        ("NodeName=ALL CPUs=2\n", "NodeName=ALL is refused"),
        ("NodeName=later[1-9] CPUs=4 State=FUTURE\n", "all of its 9 nodes have State=FUTURE"),
        ("\nNodeName=n/a\n", "slurm.conf:2: no NodeName line describes a node but 'n/a'"),
        ("MaxNodeCount=10\nNodeSet=ns1 Feature=f\n", "its nodes are dynamic"),
        ("NodeName=n1 Arch=x86_64 CoresPerSocket=16\n", "arch is of `scontrol show node`"),
        ("NodeName=n[1-4] Name=gpu File=/dev/nvidia0\n", "gres.conf"),
        ("AutoDetect=nvml\n", "gres.conf"),
        ("Name=gpu NodeName=n1 File=/dev/nvidia0\n", "gres.conf"),
        ("SwitchName=s1 Nodes=n[1-4]\n", "topology.conf"),
        ("CgroupAutomount=yes\nConstrainCores=yes\n", "cgroup.conf"),
        ("DbdHost=h\nStorageType=accounting_storage/mysql\n", "slurmdbd.conf"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_of(tmp_path, text)
    assert problem in str(caught.value)
    assert str(tmp_path / "slurm.conf") in str(caught.value)


# ------------------------------------------------------------------------------------------------------ includes


def test_includes_begin_at_the_folder_of_the_main_file(tmp_path: Path) -> None:
    written(tmp_path, "NodeName=n[1-2] CPUs=16\nInclude conf.d/gpu.conf\n", "conf.d/nodes.conf")
    written(tmp_path, "NodeName=g[1-2] CPUs=64\n", "conf.d/gpu.conf")
    machine = machine_of(tmp_path, "INCLUDE conf.d/nodes.conf  # all\n")
    assert machine.total_cores == 160
    # as versions up to 22.05 have it: from the folder of the file that includes
    written(tmp_path, "NodeName=n[1-2] CPUs=16\nInclude gpu.conf\n", "conf.d/nodes.conf")
    assert machine_of(tmp_path, "Include conf.d/nodes.conf\n").total_cores == 160


def test_includes_by_the_name_of_the_cluster(tmp_path: Path) -> None:
    written(tmp_path, "NodeName=n1 CPUs=16\n", "conf/mycluster/nodes.conf")
    text = "ClusterName = MyCluster\nInclude conf/%c/nodes.conf\n"
    assert machine_of(tmp_path, text).total_cores == 16
    with pytest.raises(MachineError, match=r"slurm\.conf:1: Include .* needs ClusterName"):
        machine_of(tmp_path, "Include conf/%c/nodes.conf\nClusterName=MyCluster\n")


def test_an_absolute_include_is_looked_for_beside_a_copy(tmp_path: Path) -> None:
    written(tmp_path, "NodeName=n1 CPUs=16\n", "conf.d/nodes.conf")
    machine = machine_of(tmp_path, "Include /no/such/etc/slurm/conf.d/nodes.conf\n")
    assert machine.total_cores == 16
    assert any("conf.d/nodes.conf (read from" in note for note in machine.notes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Include nowhere.conf\n", r"slurm\.conf:1: there is no file"),
        (
            "NodeName=n1 CPUs=1\nInclude nodes.conf\n",
            r"slurm\.conf:2: there is no file .* may describe nodes",
        ),
        (
            "NodeName=n1 CPUs=1\nInclude gone.conf\nPartitionName=p Nodes=n[1-4]\n",
            r"slurm\.conf:2: there is no file .* n2, n3, n4 of a partition are not described",
        ),
        ("\nInclude slurm.conf\n", r"slurm\.conf:2: Include 'slurm\.conf' includes itself"),
        ("Include folder\n", "no file that can be included"),
    ],
)
def test_an_include_that_may_hold_nodes_must_be_there(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(MachineError, match=problem):
        machine_of(tmp_path, text)


def test_a_missing_include_that_concerns_others_is_noted(tmp_path: Path) -> None:
    machine = machine_of(
        tmp_path, "NodeName=n[1-4] CPUs=2\nInclude plugins.conf\nPartitionName=p Nodes=n[1-2],n3,n4\n"
    )
    assert machine.total_cores == 8
    assert any("plugins.conf" in note and "left out" in note for note in machine.notes)


def test_includes_of_includes_are_bounded(tmp_path: Path) -> None:
    for number in range(9):
        written(tmp_path, f"Include i{number + 1}.conf\n" * 4, f"i{number}.conf")
    written(tmp_path, "NodeName=n1 CPUs=1\n", "i9.conf")
    with pytest.raises(MachineError, match=r"deeper than 8|more than 1000"):
        machine_of(tmp_path, "Include i0.conf\n")


# --------------------------------------------------------------------------------------------------- placeholders


@pytest.mark.parametrize(
    "name", ["n/a", "none", "NONE", "0", "unknown", "(null)", "nonesuch", "NA", "<none>"]
)
def test_placeholders_are_no_nodes(tmp_path: Path, name: str) -> None:
    machine = machine_of(
        tmp_path,
        f"NodeName=DEFAULT CPUs=2\nNodeName=n[1-2] CPUs=16\nNodeName={name}\nNodeName={name} State=DOWN\n",
    )
    assert cores_of(machine) == {"n1": 16, "n2": 16}
    assert any("stands for no node" in note for note in machine.notes)


def test_a_node_of_such_a_name_with_sizes_is_a_node(tmp_path: Path) -> None:
    assert cores_of(machine_of(tmp_path, "NodeName=none CPUs=4\nNodeName=0 CPUs=3\n")) == {"none": 4, "0": 3}


def test_a_node_without_sizes_has_one_cpu(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, "NodeName=n[1-9] RealMemory=1000\n")
    assert machine.total_cores == 9
    assert any("no CPUs are given" in note and "n1, n2, n3 and 6 more" in note for note in machine.notes)


def test_nodes_that_are_down_count_and_are_noted(tmp_path: Path) -> None:
    machine = machine_of(
        tmp_path,
        "NodeName=n[1-9] CPUs=2\nDownNodes=n[1-2] State=DOWN Reason=x\nNodeName=m CPUs=2 State=DRAIN\n",
    )
    assert machine.total_cores == 20
    assert any(note.startswith("3 nodes are down") for note in machine.notes)


# ------------------------------------------------------------------------------------------------- sizes of nodes


@pytest.mark.parametrize(
    ("sizes", "cores"),
    [
        ("Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", 32),
        ("CPUs=64 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", 32),  # reset
        ("CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", 16),  # the cores
        ("CPUs=2 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", 2),  # the sockets
        (
            "CPUs=20 CoresPerSocket=16 ThreadsPerCore=2",
            32,
        ),  # of one socket, since no number of sockets gives 20
        ("CPUs=64 CoresPerSocket=16 ThreadsPerCore=2", 64),  # of two
        ("CPUs=48 ThreadsPerCore=2", 48),
        ("CPUs=3 ThreadsPerCore=2", 2),
        ("CPUs=0 Boards=2 SocketsPerBoard=2 CoresPerSocket=4", 16),
        ("CPUs=0 Sockets=0 CoresPerSocket=0", 1),
        ("Boards=2 SocketsPerBoard=2 Sockets=3 CoresPerSocket=4", 16),  # SocketsPerBoard wins
        ("Boards=4 Sockets=2 CoresPerSocket=4", 8),
        ("Boards=2 CoresPerSocket=4", 8),
        ("Procs=4", 4),
        # kept for the system
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CoreSpecCount=2", 60),
        ("CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CoreSpecCount=2", 30),
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CpuSpecList=0,1,5", 60),
        ("CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CpuSpecList=0,1,5", 29),
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CpuSpecList=0-3,6", 58),
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CpuSpecList=0,64", 64),  # there is no CPU 64
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CpuSpecList=x", 64),
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CoreSpecCount=32", 62),  # would leave none
        ("Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CoreSpecCount=4 CpuSpecList=0", 62),  # the list wins
        ("CPUs=2 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2 CoreSpecCount=1", 1),
    ],
)
def test_cpus_are_what_slurm_makes_of_them(tmp_path: Path, sizes: str, cores: int) -> None:
    assert machine_of(tmp_path, f"NodeName=n1 {sizes}\n").cores.tolist() == [cores]


def test_what_is_reset_and_kept_is_noted(tmp_path: Path) -> None:
    machine = machine_of(
        tmp_path,
        "NodeName=a[1-2] CPUs=64 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2\n"
        "NodeName=b[1-3] Sockets=2 CoresPerSocket=16 CoreSpecCount=2 RealMemory=257000 MemSpecLimit=1024\n"
        "NodeName=c CPUs=8 CpuSpecList=9\n",
    )
    notes = "\n".join(machine.notes)
    assert "slurm.conf:1: CPUs=64 are neither the sockets, nor the cores, nor the threads" in notes
    assert "so Slurm counts 32 (a1, a2)" in notes
    assert "3 nodes keep 6 CPUs and 3 GiB for the system" in notes
    assert "CpuSpecList names CPUs that are not there" in notes


def test_memory_of_nodes(tmp_path: Path) -> None:
    memory = memory_of(
        machine_of(
            tmp_path,
            "NodeName=a CPUs=1 RealMemory=257000 MemSpecLimit=4096\n"
            "NodeName=b CPUs=1 RealMemory=100 MemSpecLimit=200\n"
            "NodeName=c CPUs=1\n"
            "NodeName=d CPUs=1 RealMemory=1\n"
            "NodeName=e CPUs=1 MemSpecLimit=4096\n",
        )
    )
    assert memory["a"] == (257000 - 4096) * MIB
    assert memory["b"] == 100 * MIB  # a limit that leaves nothing is none
    assert all(np.isnan(memory[name]) for name in "cde")  # Slurm takes 1 MiB for what nobody gave


# ------------------------------------------------------------------------------------------- is memory scheduled?


@pytest.mark.parametrize(
    ("settings", "counts"),
    [
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core", False),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory", True),
        ("SelectType=select/cons_res\nSelectTypeParameters=CR_CPU", False),
        ("SelectType=select/cons_res\nselecttypeparameters=cr_cpu_memory", True),
        ("SelectTypeParameters=CR_Socket_Memory,CR_ONE_TASK_PER_CORE", True),
        ("SelectTypeParameters=CR_ONE_TASK_PER_CORE,CR_Core", False),
        ("SelectTypeParameters = CR_Core,CR_CORE_DEFAULT_DIST_BLOCK", False),
        ("SelectType=select/cons_tres", True),  # CR_Core_Memory is its default
        ("SelectType=select/cons_tres\nSelectTypeParameters=NONE", True),
        ("SelectType=select/linear", False),
        ("SelectType=select/linear\nSelectTypeParameters=CR_Memory", True),
        ("SelectTypeParameters=CR_Core\nSelectTypeParameters=CR_Core_Memory", True),  # the last
        ("SelectTypeParameters=CR_Core_Memory # CR_Core", True),
        ("# SelectTypeParameters=CR_Core", True),
        ("", True),
    ],
)
def test_memory_counts_where_slurm_counts_it(tmp_path: Path, settings: str, counts: bool) -> None:
    machine = machine_of(tmp_path, f"{settings}\nNodeName=n1 CPUs=16 RealMemory=58000\n")
    assert machine.memory_counts is counts
    assert any("memory is not scheduled there" in note for note in machine.notes) is not counts


def test_a_partition_may_have_memory_otherwise(tmp_path: Path) -> None:
    def read(partitions: str, parameters: str = "CR_Core") -> Machine:
        text = f"SelectTypeParameters={parameters}\nNodeName=n[1-2] CPUs=4 RealMemory=1000\n{partitions}"
        return machine_of(tmp_path, text)

    both = "PartitionName=a Nodes=n1 SelectTypeParameters=CR_Core_Memory\nPartitionName=b Nodes=n2"
    assert read(both + " SelectTypeParameters=CR_Socket_Memory\n").memory_counts
    mixed = read(both + "\n")
    assert not mixed.memory_counts
    assert any("partitions differ" in note and "(a)" in note for note in mixed.notes)
    # Slurm looks at it where it allocates cores, and takes none from a DEFAULT
    assert not read(both, "CR_CPU").memory_counts
    assert not read(
        "PartitionName=DEFAULT SelectTypeParameters=CR_Core_Memory\nPartitionName=a Nodes=n1\n"
    ).memory_counts


def test_what_a_file_does_not_say_of_memory_is_noted(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, "NodeName=n1 CPUs=4 RealMemory=1000\n")
    assert any("does not say whether memory is scheduled" in note for note in machine.notes)
    assert machine_of(tmp_path, "NodeName=n1 CPUs=4\n").notes == ()
    dynamic = machine_of(tmp_path, "MaxNodeCount=100\nNodeName=n1 CPUs=4\n")
    assert any("dynamic nodes" in note for note in dynamic.notes)


def test_notes_have_no_control_characters(tmp_path: Path) -> None:
    machine = machine_of(
        tmp_path,
        "SelectTypeParameters=CR_\x1b[31mCore\nNodeName=n1 CPUs=4 RealMemory=1000 CpuSpecList=\x1b]0;x\n",
    )
    assert machine.notes
    assert all(note.isprintable() for note in (*machine.notes, machine.origin))


# ------------------------------------------------------------------------------------------------------ numbers


@pytest.mark.parametrize(
    ("sizes", "cores", "mib"),
    [
        ("CPUs=0x10 RealMemory=64000", 16, 64000),
        ("CPUs=010 RealMemory=064000", 8, 26624),
        ("CPUs=0X1F RealMemory=0100k", 31, 65536),
        ("CPUs=+4 RealMemory=0x40K", 4, 65536),
        ("Sockets=0x2 CoresPerSocket=010 RealMemory=64k MemSpecLimit=1k", 16, 64 * 1024 - 1024),
        ("CPUs=65535 RealMemory=2", 65535, 2),
    ],
)
def test_numbers_are_read_as_slurm_reads_them(tmp_path: Path, sizes: str, cores: int, mib: int) -> None:
    machine = machine_of(tmp_path, f"NodeName=n1 {sizes}\n")
    assert (machine.cores.tolist(), machine.memory_bytes.tolist()) == ([cores], [mib * MIB])


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        ("CPUs=08", "cpus='08' is not a number: what begins with 0 is octal"),
        ("RealMemory=09000", "octal"),
        *(
            (text, "is not a number")
            for text in ("CPUs=4k", "CPUs=-4", "CPUs=0x", "CPUs=4,", "RealMemory=64M")
        ),
        ("CPUs=70000", "cpus='70000' is refused by Slurm; write a number of at most 65535"),
        ("CoresPerSocket=0x10000", "refused by Slurm"),
    ],
)
def test_numbers_that_slurm_refuses(tmp_path: Path, size: str, problem: str) -> None:
    with pytest.raises(MachineError) as caught:
        machine_of(tmp_path, f"# a comment\nNodeName=n1 {size}\n")
    assert "slurm.conf:2: " in str(caught.value)
    assert problem in str(caught.value)


# ---------------------------------------------------------------------------------------------------- templates


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=${cname}_[1-10] CPUs=4",
        "NodeName={{prefix}}-[0-9] CPUs=4",
        "NodeName={{ prefix }}-[0-9] CPUs=4",
        "NodeName=<name>[1-4] CPUs=4",
        "NodeName=node-%d CPUs=4",
        "NodeName=@NODES@ CPUs=4",
        "NodeName=vm[0-$(( ${N} - 1 ))] CPUs=4",
        "NodeName=n2 CPUs={{ cpus }}",
        "NodeName=n2 CPUs=${NPROC}",
        "NodeName=n2 RealMemory=<memory>",
        "PartitionName=a Nodes={{nodes}},n1",
        "{% for node in nodes %}",
        "{{ ansible_managed | comment }}",
        "<% nodes.each do |node| %>",
        "%if gpu",
    ],
)
def test_a_template_is_no_machine(tmp_path: Path, line: str) -> None:
    for before in ("", "# made by a tool\nNodeName=n1 CPUs=4\n"):
        with pytest.raises(MachineError) as caught:
            machine_of(tmp_path, f"{before}{line}\nNodeName=n9 CPUs=4\n")
        assert f"slurm.conf:{before.count(chr(10)) + 1}: " in str(caught.value)
        assert "is of a template that is not filled in" in str(caught.value)


@pytest.mark.parametrize("name", ["a/b", "'n1'", "n1;", "n1|n2", "knoten-ü", "n!"])
def test_what_no_node_can_be_called_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MachineError, match=r"slurm\.conf:2: .* is no name of a node"):
        machine_of(tmp_path, f"NodeName=n1 CPUs=4\nNodeName={name} CPUs=4\n")


# --------------------------------------------------------------------------------------------------- partitions


FIVE = (
    "NodeName=n1 CPUs=1 Feature=x,y\nNodeName=n2 CPUs=2 Features=x\nNodeName=n3 CPUs=3\nNodeName=n4 CPUs=4\n"
    "NodeName=DEFAULT Feature=w\nNodeName=n5 CPUs=5\n"
)


@pytest.mark.parametrize(
    ("partitions", "nodes"),
    [
        ("", "12345"),
        ('PartitionName=a\nPartitionName=b Nodes=""\nPartitionName=c Nodes=n/a', "12345"),
        ("PartitionName=a Nodes=n[1-2]", "12"),
        ("PartitionName=a Nodes=n1\nPartitionName=b Nodes=n3,n[2,4]", "1234"),
        ("PartitionName=a Nodes=n1\nPartitionName=b Nodes=all", "12345"),
        ("PartitionName=DEFAULT Nodes=n[4-5]\nPartitionName=a\nPartitionName=b Nodes=n1", "145"),
        ("PartitionName=DEFAULT Nodes=ALL\nPartitionName=b Nodes=n1", "1"),
        ('PartitionName=DEFAULT Nodes=n5\nPartitionName=a Nodes=n1\nPartitionName=b Nodes=""', "1"),
        ("NodeSet=s Nodes=n[2-3]\nPartitionName=a Nodes=s,n5", "235"),
        ("PartitionName=a Nodes=s\nNodeSet=s Feature=x", "12"),
        ("NodeSet=s Feature=y Nodes=n4\nPartitionName=a Nodes=s", "14"),
        ("NodeSet=s Feature=w\nPartitionName=a Nodes=s", "5"),
        ("NodeSet=n1 Nodes=n2\nPartitionName=a Nodes=n1", "2"),  # a set wins over a node
        ("NodeSet=s Nodes=t,n4\nNodeSet=t Nodes=s,n5\nPartitionName=a Nodes=s", "45"),
        ("NodeSet=s Nodes=ALL\nPartitionName=a Nodes=s", "12345"),
        ("NodeSet=s Feature=gone\nPartitionName=a Nodes=s", "12345"),
        ("NodeSet=s Feature=gone\nPartitionName=a Nodes=s\nPartitionName=b Nodes=n3", "3"),
        ("PartitionName=a Nodes=other[1-2]", "12345"),
    ],
)
def test_nodes_in_no_partition_are_left_out(tmp_path: Path, partitions: str, nodes: str) -> None:
    machine = machine_of(tmp_path, FIVE + partitions + "\n")
    assert cores_of(machine) == {f"n{one}": int(one) for one in nodes}
    assert any("are in no partition" in note for note in machine.notes) is (nodes != "12345")
    assert any("no node that is described has the feature" in note for note in machine.notes) is (
        "gone" in partitions
    )


def test_nodes_that_are_left_out_are_named_and_not_counted(tmp_path: Path) -> None:
    machine = machine_of(
        tmp_path,
        "NodeName=n[1-2] CPUs=4 CoreSpecCount=1\nNodeName=login[1-8] CPUs=64 CoreSpecCount=4 State=DOWN\n"
        "NodeName=one CPUs=1 CoreSpecCount=1\nPartitionName=b Nodes=n[1-2],one\n",
    )
    notes = "\n".join(machine.notes)
    assert cores_of(machine) == {"n1": 3, "n2": 3}
    assert (
        "8 nodes are in no partition, so no job runs there: left out (login1, login2, login3 and 5 more)"
        in notes
    )
    assert "1 nodes keep all of their CPUs for the system, so no job runs there: left out (one)" in notes
    assert "2 nodes keep 2 CPUs for the system" in notes
    assert "are down" not in notes


@pytest.mark.parametrize(
    ("partitions", "always", "asked"),
    [
        ("PartitionName=a OverSubscribe=FORCE:4", "(a)", None),
        ("PartitionName=a OverSubscribe=force", "(a)", None),
        ("PartitionName=a Shared=FORCE:2", "(a)", None),
        ("PartitionName=a Shared=YES:2\nPartitionName=b OverSubscribe=YES", None, "(a, b)"),
        (
            "PartitionName=DEFAULT OverSubscribe=FORCE:3\nPartitionName=a\nPartitionName=b Shared=NO",
            "(a, b)",
            None,
        ),
        ("PartitionName=DEFAULT Shared=FORCE\nPartitionName=a OverSubscribe=NO", None, None),
        ("PartitionName=a OverSubscribe=FORCE:1", None, None),
        ("PartitionName=a OverSubscribe=EXCLUSIVE\nPartitionName=b OverSubscribe=YES:1", None, None),
        ("PartitionName=a OverSubscribe=NO Shared=FORCE:2", None, None),
    ],
)
def test_shared_cores_are_noted(
    tmp_path: Path, partitions: str, always: str | None, asked: str | None
) -> None:
    notes = machine_of(tmp_path, f"NodeName=n1 CPUs=4\n{partitions}\n").notes
    for setting, names in (("FORCE", always), ("YES", asked)):
        found = [note for note in notes if f"OverSubscribe={setting}" in note]
        assert len(found) == (names is not None)
        assert not found or (names is not None and names in found[0])


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("settings", "counts", "problem"),
    [
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_LLN", True, "without CR_CPU"),
        ("SelectType=select/cons_res\nSelectTypeParameters=CR_Pack_Nodes,CR_LLN", True, "without CR_CPU"),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Memory", True, "without CR_CPU"),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Sandwich", True, "this is not known here"),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core,CR_Socket_Memory", True, "two of these"),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory|CR_LLN", True, "commas"),
        ("SelectType=select/linear\nSelectTypeParameters=CR_Core_Memory", True, "with select/linear"),
        ("SelectType=select/linear\nSelectTypeParameters=CR_Core", False, "with select/linear"),
        ("SelectType=select/linear\nSelectTypeParameters=CR_LLN", False, None),
        ("SelectTypeParameters=CR_LLN", True, None),
    ],
)
def test_parameters_that_slurm_refuses_claim_nothing(
    tmp_path: Path, settings: str, counts: bool, problem: str | None
) -> None:
    machine = machine_of(tmp_path, f"{settings}\nNodeName=n1 CPUs=4 RealMemory=1000\n")
    assert machine.memory_counts is counts
    unknown = [note for note in machine.notes if "it is not known whether memory is scheduled" in note]
    assert len(unknown) == (problem is not None)
    assert problem is None or problem in unknown[0]
    assert not unknown or not any("memory is not scheduled there" in note for note in machine.notes)


def test_sizes_that_nodes_report_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"slurm\.conf:2: node 'n1' has no CPUs .* `scontrol show node`"):
        machine_of(tmp_path, "FastSchedule=0\nNodeName=n1 NodeAddr=10.1.1.1\nNodeName=n2\n")
    machine = machine_of(tmp_path, "NodeName=n1 CPUs=4\nFastSchedule = 0\n")
    assert cores_of(machine) == {"n1": 4}
    assert any("FastSchedule=0" in note for note in machine.notes)
    assert cores_of(machine_of(tmp_path, "FastSchedule=1\nNodeName=n1\n")) == {"n1": 1}


def test_memory_that_slurm_does_not_keep_is_noted(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, "NodeName=n[1-2] CPUs=4 RealMemory=100 MemSpecLimit=100\n")
    assert set(memory_of(machine).values()) == {100 * MIB}
    assert any("MemSpecLimit is RealMemory or more" in note and "(n1, n2)" in note for note in machine.notes)


@pytest.mark.parametrize("cluster", ["(null)", "c"])
def test_what_an_old_slurmd_prints_of_its_node(tmp_path: Path, cluster: str) -> None:
    text = (
        f"ClusterName={cluster} NodeName=n1 CPUs=8 Procs=8 Boards=1 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 "
        "RealMemory=64000 TmpDisk=100\nUpTime=1-00:00:00\n"
    )
    assert cores_of(machine_of(tmp_path, text)) == {"n1": 8}


@pytest.mark.parametrize(("down", "number"), [('""', 0), ("n1", 1), ("ALL", 2), ("other", 0)])
def test_nodes_that_a_line_takes_down(tmp_path: Path, down: str, number: int) -> None:
    notes = machine_of(tmp_path, f"NodeName=n[1-2] CPUs=4\nDownNodes={down} State=DOWN\n").notes
    assert [note[:16] for note in notes if "are down" in note] == [f"{number} nodes are down"[:16]] * (
        number > 0
    )


# ------------------------------------------------------------------------------------------------ of hostile length


@pytest.mark.parametrize(
    "text",
    [
        "NodeName=n1 CPUs=4\n" + " " * 100_000 + "x",
        "NodeName=n1 CPUs=4\nPartitionName=a" + " " * 100_000 + "x",
        "NodeName=n1 CPUs=4\n" + "".join(f"NodeSet=s{n} Nodes=s{n + 1},s{n + 2}\n" for n in range(2000)),
        "NodeName=n1 CPUTot=4 Reason=x " + "NodeName=a  Arch=b  " * 50_000,
        "NodeName=n1 CPUTot=4 " + "OS=" * 100_000,
    ],
    ids=["blanks", "blanks in a line", "sets of sets", "records in a reason", "systems"],
)
def test_long_lines_take_no_long_time(tmp_path: Path, text: str) -> None:
    started = time.process_time()
    sets = "\nPartitionName=a Nodes=s0\n" if "NodeSet" in text else "\n"
    assert cores_of(machine_of(tmp_path, text + sets)) == {"n1": 4}
    assert time.process_time() - started < 5


# -------------------------------------------------------------------------------------------------- time limits


@pytest.mark.parametrize(
    ("settings", "limit_s"),
    [
        ("MaxTime=30", 1800.0),
        ("MaxTime=30:30", 1830.0),
        ("MaxTime=1:00:00", 3600.0),
        ("MaxTime=2-0", 172_800.0),
        ("MaxTime=2-00:30", 174_600.0),
        ("MaxTime=1-00:00:10 DefaultTime=10", 86_410.0),
        ("MaxTime=UNLIMITED", np.inf),
        ("DefaultTime=10", 600.0),
        ("DefaultTime=NONE", None),
        ("MaxTime=soon", None),
        ("", None),
    ],
)
def test_the_longest_that_jobs_of_a_partition_may_run(
    tmp_path: Path, settings: str, limit_s: float | None
) -> None:
    machine = machine_of(tmp_path, f"NodeName=n1 CPUs=4\nPartitionName=batch Nodes=n1 {settings}\n")
    assert machine.time_limits_s.get("batch") == limit_s
