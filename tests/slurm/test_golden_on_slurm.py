"""What squeue, sinfo and sacct write is read alike, whatever version of Slurm wrote it.

With `ASAD_GOLDEN=FOLDER` in the environment it is recorded there, as that of 24.11 and 26.05 in tests/golden/slurm was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.command import Squeue
from asad_under_test import MINUTES, until
from slurm_golden import check_jobs, check_logs, check_nodes, check_queued

from asad.errors import ClusterError
from lab import LabError
from lab.slurm import RealSlurm, why_not

LONG = "sleep 600"
EVIL = 'evil\nname;rm -rf "$HOME"\\'


def record(name: str, text: str) -> None:
    if folder := os.environ.get("ASAD_GOLDEN"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_text(text)


class Zoo(RealSlurm):
    """Five nodes, of which the last has a gpu, and licences; job numbers begin at 1, as in what is recorded."""

    def _write_configuration(self, ports: Sequence[int]) -> None:
        super()._write_configuration(ports)
        last = self.node_names[-1]
        text = self.conf.read_text().replace(f"NodeName={last} ", f"NodeName={last} Gres=gpu:1 ")
        self.conf.write_text(f"{text}GresTypes=gpu\nLicenses=abaqus:4\nFirstJobId=1\n")
        (self.folder / "gres.conf").write_text(f"NodeName={last} Name=gpu File=/dev/null\n")

    def written(self, *argv: str) -> str:
        """What a command writes, with short names for the nodes."""
        return self.run(*argv, env={"SLURM_BITSTR_LEN": "4096"}).replace(self.name, "a")


@pytest.fixture
def zoo() -> Iterator[Zoo]:
    """The cluster with all of its jobs, as they are once Slurm has looked at each."""
    obstacle = why_not(accounting=False)
    if obstacle:
        pytest.skip(obstacle)
    with Zoo(nodes=5, cpus=2, memory_mb=3000, accounting=False, pin=False) as zoo:
        n1, _, n3, n4, n5 = zoo.node_names
        ours = ",".join(zoo.node_names[:4])
        zoo.run("scontrol", "update", "PartitionName=guest", f"Nodes={ours}")
        hidden = ("OverSubscribe=FORCE:1", "PriorityTier=1", "MaxTime=INFINITE", "Hidden=YES")
        zoo.run("scontrol", "create", "PartitionName=secret", f"Nodes={ours}", *hidden)
        zoo.run("scontrol", "update", f"NodeName={ours}", "AvailableFeatures=fast", "ActiveFeatures=fast")
        zoo.run("scontrol", "update", f"NodeName={n3}", "State=DRAIN", "Reason=bad disk <b>")
        limit = "--time=10"

        def submit(name: str, *options: str) -> str:
            return zoo.submit(LONG, limit, f"--job-name={name}", *options)

        whole = ("--cpus-per-task=2", "--mem=500")
        hosts = [
            submit(f"host{k}", *whole, f"--nodelist={node}") for k, node in enumerate(zoo.node_names[:3], 1)
        ]
        wide = submit("wide", "--nodes=2", "--ntasks=2", *whole, f"--nodelist={n4},{n5}")
        zoo.wait(*hosts[:2], wide, state="RUNNING")
        submit(EVIL, *whole, "--comment=asad:no-host <script>")
        submit("arr", "--array=1-10%2", "--mem=100", "--time=5")
        submit("gang", "--nodes=2", "--ntasks=2", "--mem=500")
        submit("gpu", "--gres=gpu:1")
        submit("lic", "--licenses=abaqus:2")
        submit("dep", f"--dependency=afterok:{hosts[0]}")
        submit("held", "--hold")
        submit("allmem", "--mem=0")
        submit("excl", "--exclusive")
        submit("excluser", "--exclusive=user")
        submit("nolimit", "--partition=guest", f"--nodelist={n3}", "--time=UNLIMITED")
        submit(
            "hidden",
            "--partition=secret",
            "--mem=5",
            "--constraint=fast",
            f"--nodelist={n1}",
            f"--exclude={n4}",
        )
        submit("later", "--begin=now+1hour")
        submit("percpu", "--mem-per-cpu=100")
        part = (f"--chdir={zoo.folder}/jobs", "--mem=100", limit)
        zoo.run("sbatch", *part, f"--wrap={LONG}", ":", *part)
        yield zoo


def test_every_kind_of_job_and_node_is_read(zoo: Zoo) -> None:
    reader = JobReader()

    def answer_to(argv: list[str]) -> bytes:
        try:
            return zoo.written(*argv).encode()
        except LabError as error:  # 22.05 cannot list the forms of its JSON
            raise ClusterError(str(error)) from None

    queue = Squeue(answer_to)

    def looked_at() -> bool:
        jobs = reader.read(queue.jobs())
        return len(jobs) == 20 and all(
            job.reason != "None" for job in jobs if job.name not in ("host1", "host2", "wide")
        )

    until(looked_at, "Slurm has looked at every job")
    squeue = queue.jobs().decode()
    sinfo = zoo.written("sinfo", "--all", "--Node", "--json")
    record("squeue.json", squeue)
    record("sinfo.json", sinfo)
    check_jobs(reader.read(squeue.encode()))
    check_queued(squeue.encode())
    check_nodes(NodeReader().read(sinfo.encode()))
    release = zoo.run("squeue", "--version").split()[1]
    assert reader.version.release == release


FIELDS = (
    "JobID,JobName,User,Partition,State,Submit,Start,End,Elapsed,"
    "TimelimitRaw,NNodes,AllocCPUS,ReqMem,AllocTRES,TotalCPU,NodeList"
)
"""As the tutorial asks for."""


def test_both_forms_of_the_log_are_read_alike(slurm: RealSlurm, tmp_path: Path) -> None:
    # a second of CPU, however long that takes beside others
    busy = "sh -c 'ulimit -t 1; while :; do :; done'; srun sleep 1"
    jobs = [
        slurm.submit("sleep 1", MINUTES, "--job-name=plain"),
        slurm.submit(busy, MINUTES, "--job-name=busy", user="games"),
        slurm.submit("sleep 2; exit 3", MINUTES, "--job-name=failed"),
        slurm.submit("sleep 1", MINUTES, "--job-name=tasks", "--array=0-1"),
        slurm.submit("sleep 1", MINUTES, "--job-name=wide", "--nodes=2"),
    ]
    slurm.wait(*jobs)
    only = ("sacct", "-a", f"--jobs={','.join(jobs)}")
    text, plain = tmp_path / "log.sacct", tmp_path / "log.json"

    def accounted() -> bool:
        text.write_text(slurm.run(*only, "-P", "-o", FIELDS, env={"TZ": "UTC"}))
        rows = [line.split("|") for line in text.read_text().splitlines()[1:]]
        states = [row[4] for row in rows if "." not in row[0]]
        return len(states) == 6 and set(states) <= {"COMPLETED", "FAILED"}

    until(accounted, "accounting has them all")
    plain.write_text(json.dumps(json.loads(slurm.run(*only, "--json"))))
    for path in (text, plain):
        path.write_text(path.read_text().replace(slurm.name, "a"))
        record(path.name, path.read_text())
    check_logs(text, plain)
