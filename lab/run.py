"""Runs a mix on a real Slurm and reads back what came of it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ClusterShell.NodeSet import NodeSet

from lab import LabError, workloads
from lab.measure import ArrayLook, JobRun
from lab.mix import Mix, MixJob
from lab.slurm import GONE, RealSlurm, duration_s

FIELDS = "JobID,JobIDRaw,Partition,State,Submit,Start,End,AllocCPUS,NodeList,TotalCPU"
SAMPLE_FIELDS = (
    "JobID,JobName,User,Partition,State,Submit,Start,End,Elapsed,Timelimit,AllocCPUS,NNodes,ReqMem,MaxRSS,TotalCPU,"
    "NodeList,ExitCode"
)
"""What a sample log holds: the columns that `asactl replay` reads of `sacct -P`."""
POLL_S = 0.5
ACCOUNTING_S = 60.0
"""How long accounting may take to report a job that has ended."""


class MixRunner:
    """Submits mixes to one cluster."""

    def __init__(self, slurm: RealSlurm, show: Callable[[str], None]) -> None:
        self.slurm, self.show = slurm, show
        self.python = interpreter()
        # jobs of ordinary users must be able to read it, wherever the checkout lies
        self.program = slurm.folder / "workloads.py"
        shutil.copyfile(workloads.__file__, self.program)
        self.program.chmod(0o644)
        self.units_per_s: Mapping[str, float] = {}
        self.trace: list[ArrayLook] = []
        """How the arrays of the last run were seen, look after look."""

    def calibrate(self) -> None:
        """Measure how much work a CPU second is, on all cores of the cluster at once, as jobs will load them."""
        cores = sorted(os.sched_getaffinity(0))[: len(self.slurm.node_names) * self.slurm.cpus]
        with contextlib.ExitStack() as stack:
            running = [
                stack.enter_context(
                    subprocess.Popen(  # noqa: S603
                        ["/usr/bin/taskset", "-c", str(core), self.python, str(self.program), "calibrate"],
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                for core in cores
            ]
            answers = [json.loads(process.communicate(timeout=60)[0]) for process in running]
        self.units_per_s = {
            sort: sum(answer[sort] for answer in answers) / len(answers) for sort in answers[0]
        }

    def script(self, job: MixJob) -> str:
        """The batch script of a job."""
        rate = self.units_per_s["memory" if job.kind == "memory" else "plain"]
        options = {
            "cpu-s": job.cpu_s / job.nodes,
            "busy": job.busy,
            "units-per-s": rate,
            "memory-mb": job.memory_mb / 2,
            "cores": job.cores,
            "stages": job.stages,
        }
        argv = [self.python, "-I", str(self.program), job.kind]
        argv += [
            f"--{key}={value:g}" if key != "units-per-s" else f"--{key}={value!r}"
            for key, value in options.items()
        ]
        if job.nodes > 1:
            argv = ["srun", "--ntasks-per-node=1", f"--cpus-per-task={job.cores}", *argv]
        return f"exec {shlex.join(argv)}"

    def submit(self, mix: Mix) -> dict[str, int]:
        """Queue the jobs of a mix at their times; job id → number in it. A refused one is left out, and reported."""
        begin_s, jobs = time.monotonic(), {}
        for number, job in enumerate(mix.jobs):
            time.sleep(max(0.0, begin_s + job.submit_s - time.monotonic()))
            options = (
                f"--job-name={job.name}",
                f"--nodes={job.nodes}",
                "--ntasks-per-node=1",
                f"--cpus-per-task={job.cores}",
                f"--mem={job.memory_mb}",
                f"--time={max(1, math.ceil(job.time_limit_s / 60))}",
                *((f"--array=0-{job.tasks - 1}",) if job.tasks > 1 else ()),
                *((f"--comment={job.comment}",) if job.comment else ()),
            )
            try:
                jobs[self.slurm.submit(self.script(job), *options, user=job.user)] = number
            except LabError as error:
                self.show(f"job {number + 1} ({job.name}) was refused and is left out: {error}")
        if not jobs:
            raise LabError(f"{mix.name}: no job was taken; see above")
        return jobs

    def run(
        self,
        mix: Mix,
        progress: Callable[[int, int], None],
        check: Callable[[], None] | None = None,
    ) -> list[JobRun]:
        """Submit a mix, wait for its end, and read what accounting and the jobs say.

        `progress` is given how many jobs have ended, of how many; `check` is called as often, and what it raises ends
        the run. Raises LabError if the jobs do not end: within all time limits one after the other, and a minute each
        for starting.
        """
        self.trace = []
        jobs = self.submit(mix)
        patience_s = sum((max(60.0, job.time_limit_s) + 60) * job.tasks for job in mix.jobs)
        deadline = time.monotonic() + patience_s
        while True:
            if check is not None:
                check()
            seen = self._queue()
            left = {line.partition("|")[0] for line in seen}
            arrays = {job_id: number for job_id, number in jobs.items() if mix.jobs[number].tasks > 1}
            self.trace += look_at_arrays(seen, arrays, time.time())
            progress(len(jobs) - len(left & jobs.keys()), len(jobs))
            if not left & jobs.keys():
                break
            if time.monotonic() > deadline:
                self.slurm.run("scancel", *jobs, check=False)
                raise LabError(
                    f"{mix.name}: jobs {sorted(left)} did not end in {patience_s:.0f} s; cancelled"
                )
            time.sleep(POLL_S)
        ran = self._accounted(jobs, mix)
        for job in ran:
            if not job.completed:
                output = self.slurm.output(job.job_id).strip().splitlines()[-1:]
                self.show(f"job {job.job_id} ({job.name}) ended as {job.state}: {' '.join(output)}")
        return ran

    def _queue(self) -> list[str]:
        # a controller that is busy for a moment is no reason to give up a run
        for patience in (1, 1, 0):
            try:
                return self.slurm.run("squeue", "-h", "--all", "-o", "%F|%K|%T|%r").splitlines()
            except (LabError, subprocess.TimeoutExpired):
                if not patience:
                    raise
                time.sleep(patience)
        raise AssertionError("not reached")

    def _accounted(self, jobs: Mapping[str, int], mix: Mix) -> list[JobRun]:
        """The jobs as accounting has them, once it knows the end of all, and of their batch steps for the CPU time.

        The tasks of an array are a job each.
        """
        deadline = time.monotonic() + ACCOUNTING_S
        while True:
            rows = {
                row["JobIDRaw"]: row
                for row in self.slurm.sacct("-j", ",".join(jobs), fields=FIELDS)
                if ended(row)
            }
            whole: dict[str, list[Mapping[str, str]]] = {job_id: [] for job_id in jobs}
            for raw, row in rows.items():
                if raw.isdigit() and (not row["Start"].isdigit() or f"{raw}.batch" in rows):
                    whole.setdefault(row["JobID"].partition("_")[0], []).append(row)
            missing = [
                job_id for job_id, number in jobs.items() if len(whole[job_id]) < mix.jobs[number].tasks
            ]
            if not missing:
                return [
                    self._read(row, number, mix.jobs[number].name)
                    for job_id, number in jobs.items()
                    for row in whole[job_id]
                ]
            if time.monotonic() > deadline:
                raise LabError(
                    f"accounting does not know the end of {', '.join(missing)} after {ACCOUNTING_S:.0f} s; "
                    f"look into {self.slurm.folder}/log/slurmdbd.log"
                )
            time.sleep(POLL_S)

    def _read(self, row: Mapping[str, str], number: int, name: str) -> JobRun:
        started = row["Start"].isdigit()
        return JobRun(
            number=number,
            job_id=row["JobIDRaw"],
            name=name,
            state=row["State"].split()[0],
            partition=row["Partition"],
            submit_s=float(row["Submit"]),
            start_s=float(row["Start"]) if started else math.nan,
            end_s=float(row["End"]),
            cores=int(row["AllocCPUS"] or 0),
            cpu_s=duration_s(row["TotalCPU"]),
            nodes=tuple(NodeSet(row["NodeList"])) if started else (),
            own_elapsed_s=own_elapsed_s(self.slurm.output(row["JobIDRaw"])),
        )

    def sample(self, runs: Sequence[Sequence[JobRun]]) -> str:
        """`sacct -P` of the jobs of some runs, with steps, nodes named n1, n2, …"""
        jobs = ",".join(job.job_id for run in runs for job in run)
        text = self.slurm.run("sacct", "-a", "-P", "-S", "now-7days", "-j", jobs, "-o", SAMPLE_FIELDS)
        return text.replace(f"{self.slurm.name}n", "n")


def look_at_arrays(lines: Sequence[str], arrays: Mapping[str, int], now_s: float) -> list[ArrayLook]:
    """What squeue shows (`%F|%K|%T|%r`) of the arrays by job id, which have these numbers in the mix."""
    looks = []
    for job_id, number in arrays.items():
        mine = [line.split("|") for line in lines if line.startswith(f"{job_id}|")]
        waits = [(tasks, reason) for _, tasks, state, reason in mine if state == "PENDING"]
        if not mine:
            continue
        throttle = max((int(tasks.rpartition("%")[2]) for tasks, _ in waits if "%" in tasks), default=0)
        looks.append(
            ArrayLook(
                number=number,
                time_s=now_s,
                throttle=throttle,
                running=sum(state == "RUNNING" for _, _, state, _ in mine),
                waits=bool(waits),
                deferred=any(reason == "BeginTime" for _, reason in waits),
            )
        )
    return looks


def ended(row: Mapping[str, str]) -> bool:
    """Does accounting know the end of this job or step?"""
    words = row["State"].split()  # `CANCELLED by 0`
    return bool(words) and words[0] in GONE and row["End"].isdigit()


def own_elapsed_s(output: str) -> float:
    """Run time that a job reported by itself: the longest of its tasks; NaN if it reported none."""
    longest = math.nan
    for line in output.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            document = float(json.loads(line)["elapsed_s"])
            longest = document if math.isnan(longest) else max(longest, document)
    return longest


def interpreter() -> str:
    """A Python that ordinary users can run: ours if they may, else the system's. Raises LabError if there is none."""
    for path in candidates():
        folders = [path, *path.parents]
        if all(folder.stat().st_mode & 0o001 for folder in folders):
            return str(path)
    raise LabError("no python3 that ordinary users can run; install Debian's python3")


def candidates() -> Iterator[Path]:
    yield Path(sys.executable).resolve()
    for folder in ("/usr/bin", "/usr/local/bin"):
        if (path := Path(folder, "python3")).exists():
            yield path.resolve()
