"""Made-up /proc and cgroup trees, as Slurm and the kernel would have them; every file a plain one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("freezer", "cpuacct", "memory", "cpuset")


@dataclass
class Tree:
    """A node `n1`. Processes are added with their job; nothing runs."""

    folder: Path
    version: int
    home: str = ""
    """Folder of jobs below the hierarchy's root."""

    def __post_init__(self) -> None:
        self.root, self.proc = self.folder / "cgroup", self.folder / "proc"
        self.proc.mkdir(parents=True)
        if self.version == 2:
            self.home = self.home or "system.slice/n1_slurmstepd.scope"
            write(self.root / "cgroup.controllers", "cpuset cpu io memory pids\n")
        else:
            self.home = self.home or "slurm_n1"
            for controller in ("cpu", *CONTROLLERS):
                (self.root / controller).mkdir(parents=True)
            write(self.root / "cpu/cgroup.procs", "")

    def process(
        self,
        pid: int,
        group: str,
        *,
        comm: str = "sleep",
        uid: int = 0,
        cmdline: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """A process; `group` is its path in every hierarchy that Slurm uses."""
        folder = self.proc / str(pid)
        write(folder / "comm", comm + "\n")
        write(folder / "cmdline", cmdline or comm)
        write(folder / "status", f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        write(folder / "environ", "".join(f"{key}={value}\0" for key, value in (environ or {}).items()))
        write(folder / "schedstat", "0 0 0\n")
        if self.version == 2:
            text = f"0::/{group}\n"
        else:
            text = (
                "".join(f"{n}:{name}:/{group}\n" for n, name in enumerate(CONTROLLERS, 2)) + "1:cpu:/\n0::/\n"
            )
        write(folder / "cgroup", text)

    def job(
        self,
        job_id: str,
        pids: tuple[int, ...],
        *,
        uid: int = 1000,
        partition: str = "batch",
        cores: str = "0-1",
        name: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> Path:
        """A job with one step; `pids` are its slurmstepd and its processes. The folder that the step's job has
        (v1: in freezer)."""
        stepd, *processes = pids
        record = {"SLURM_JOB_ID": job_id, "SLURM_JOB_PARTITION": partition} if environ is None else environ
        if self.version == 2:
            path = f"{self.home}/{name or f'job_{job_id}'}"
            base = self.root / path
            files = {
                "cpu.max": "max 100000\n",
                "cpu.max.burst": "0\n",
                "cpu.idle": "0\n",
                "cpu.weight": "100\n",
                "cpu.stat": "usage_usec 0\nnr_periods 0\nnr_throttled 0\n",
                "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 total=0\n",
                "cpuset.cpus.effective": cores + "\n",
                "memory.current": "1048576\n",
                "memory.high": "max\n",
                "io.stat": "8:0 rbytes=4096 wbytes=8192 rios=1 wios=1 dbytes=0 dios=0\n",
            }
            for file, text in files.items():
                write(base / file, text)
            write(base / "step_0/slurm/cgroup.procs", f"{stepd}\n")
            for file in ("cgroup.procs", "cgroup.threads"):
                write(base / "step_0/user/task_0" / file, "".join(f"{pid}\n" for pid in processes))
            self.process(
                stepd, f"{path}/step_0/slurm", comm="slurmstepd", cmdline=f"slurmstepd: [{job_id}.0]"
            )
            step = f"{path}/step_0/user/task_0"
        else:
            path = f"{self.home}/uid_{uid}/job_{job_id}"
            base = self.root / "freezer" / path
            write(base / "cgroup.procs", f"{stepd}\n")
            for file in ("cgroup.procs", "tasks"):
                write(base / "step_0" / file, "".join(f"{pid}\n" for pid in processes))
            write(self.root / "cpuacct" / path / "cpuacct.usage", "0\n")
            write(self.root / "cpuset" / path / "cpuset.cpus", cores + "\n")
            write(self.root / "memory" / path / "memory.usage_in_bytes", "1048576\n")
            write(self.root / "memory" / path / "memory.soft_limit_in_bytes", "9223372036854771712\n")
            self.process(stepd, path, comm="slurmstepd", cmdline=f"slurmstepd: [{job_id}.0]")
            step = f"{path}/step_0"
        for pid in processes:
            self.process(pid, step, uid=uid, environ=record)
        return base


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
