"""Generate `generated-cluster.sacct.gz`: six days of a made-up cluster, as `sacct -P` would tell of it.

Run `python profiles/samples/generate.py`: the same bytes come out each time. With `--seed` another cluster is made up,
with applications, habits and submissions of its own: what a replay finds on one is worth little if it does not find it
on the next. Nothing in them was measured; they are there so that a replay can be tried without a log at hand. Jobs come
from recurring applications whose runs resemble each other; start times are those of a plain first-come first-served
scheduler with EASY backfill on 16 nodes of 32 cores.
"""

from __future__ import annotations

import argparse
import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

SAMPLE = Path(__file__).with_name("generated-cluster.sacct.gz")
SEED = 20240304
NODES, NODE_CORES, NODE_MEMORY_MIB = 16, 32, 128 * 1024
FIRST_DAY = datetime(2024, 3, 4, tzinfo=UTC)  # a Monday
DAYS = 6
JOBS = 3000
UTILIZATION = 0.88
USERS = (
    "amara",
    "birgit",
    "chen",
    "deniz",
    "elif",
    "farid",
    "greta",
    "hiro",
    "ines",
    "jonas",
    "kofi",
    "lena",
)
STEMS = ("relax", "md", "assemble", "align", "cfd", "fit", "sweep", "train", "render", "qc", "mesh", "blast")
WIDTHS = {1: 4, 2: 2, 4: 4, 8: 4, 16: 4, 32: 9, 64: 6, 96: 2, 128: 4, 256: 1}
"""Cores of an application → how many applications have them."""
STATES = {"COMPLETED": 0.93, "FAILED": 0.035, "TIMEOUT": 0.015, "CANCELLED by 1007": 0.02}
COLUMNS = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|State|Submit|Start|End|Elapsed|Timelimit|NNodes|AllocCPUS|ReqMem|"
    "AllocTRES|TotalCPU|NodeList|ExitCode"
)


@dataclass(slots=True)
class Application:
    """What the runs of one application of one user have in common."""

    name: str
    user: str
    account: str
    cores: int
    run_s: float
    """Median of its run times."""
    spread: float
    """Sigma of their logarithm."""
    cpu_fraction: float
    memory_mib_per_core: int
    padding: float
    """How many times the median its user asks for as a limit."""
    array: bool
    weight: float


@dataclass(slots=True)
class Job:
    """One run."""

    number: int
    task: int | None
    array: int | None
    application: Application
    submit_s: int
    run_s: int
    limit_s: int
    cpu_fraction: float
    state: str
    start_s: int = -1
    held: list[tuple[int, int]] = field(default_factory=list)
    """(node, cores) it ran on."""


def applications(random: np.random.Generator) -> list[Application]:
    """Forty applications; those of 32 cores and more take whole nodes."""
    made = []
    for number, cores in enumerate(cores for cores, count in WIDTHS.items() for _ in range(count)):
        user = USERS[number % len(USERS)]
        array = cores <= 8 and number % 2 == 0
        made.append(
            Application(
                name=f"{STEMS[number % len(STEMS)]}_{number:02d}",
                user=user,
                account=f"group{1 + USERS.index(user) % 4}",
                cores=cores,
                run_s=float(np.exp(random.normal(math.log(2400.0), 0.9))),
                spread=float(random.uniform(0.05, 0.35)),
                cpu_fraction=float(0.15 + 0.85 * random.beta(1.7, 1.5)),
                memory_mib_per_core=int(random.choice([512, 1000, 2000, 3000, 3900])),
                padding=float(random.uniform(1.2, 5.0)),
                array=array,
                weight=float(random.uniform(0.3, 1.7)) * (0.15 if array else 1.0) / cores**0.2,
            )
        )
    return made


def submissions(random: np.random.Generator) -> list[int]:
    """Seconds since the first day at which somebody submits: mostly in working hours, less at the weekend."""
    hour = np.arange(DAYS * 24)
    busy = 0.25 + np.exp(-(((hour % 24) - 13.5) ** 2) / 14.0) * 2.2
    busy[hour // 24 >= 5] *= 0.5
    chosen = random.choice(hour, size=JOBS, p=busy / busy.sum())
    return sorted((chosen * 3600 + random.integers(0, 3600, size=JOBS)).tolist())


def jobs(random: np.random.Generator) -> list[Job]:
    """All runs in the order of submission, not yet started; their work is UTILIZATION of the machine."""
    known = applications(random)
    weights = np.array([application.weight for application in known])
    made: list[Job] = []
    number = 41000
    times = submissions(random)
    while len(made) < JOBS:
        application = known[int(random.choice(len(known), p=weights / weights.sum()))]
        tasks = int(random.integers(4, 25)) if application.array else 1
        tasks = min(tasks, JOBS - len(made))
        submit_s = times[len(made)]
        array = number if application.array else None
        for task in range(tasks):
            own = task if application.array else None
            made.append(run_of(random, application, number, own, array, submit_s))
            number += 1
    made.sort(key=lambda job: (job.submit_s, job.number))
    work = sum(job.run_s * job.application.cores for job in made)
    scale = UTILIZATION * NODES * NODE_CORES * DAYS * 86400 / work
    for job in made:
        job.run_s = max(5, round(job.run_s * scale))
        if job.state == "TIMEOUT":
            job.limit_s = max(60, math.ceil(job.run_s / 60) * 60)
            job.run_s = job.limit_s + int(random.integers(1, 30))
        else:
            wanted = max(job.application.run_s * scale * job.application.padding, 1.2 * job.run_s)
            step = 300 if wanted > 3600 else 60
            job.limit_s = math.ceil(min(wanted, 5 * job.run_s) / step) * step
    return made


def run_of(
    random: np.random.Generator,
    application: Application,
    number: int,
    task: int | None,
    array: int | None,
    submit_s: int,
) -> Job:
    """One run of an application: like the others, except for the few that fail early or never start."""
    run_s = application.run_s * float(np.exp(random.normal(0.0, application.spread)))
    state = str(random.choice(list(STATES), p=list(STATES.values())))
    if state == "FAILED":
        run_s *= float(random.uniform(0.02, 0.9))
    cpu_fraction = min(1.0, max(0.02, application.cpu_fraction + float(random.normal(0.0, 0.03))))
    return Job(number, task, array, application, submit_s, round(run_s), 0, cpu_fraction, state)


def schedule(queue: list[Job]) -> None:
    """Give every job a start and cores: FCFS with EASY backfill by the time limits."""
    free = [NODE_CORES] * NODES
    waiting: list[Job] = []
    running: list[Job] = []
    arrivals = [job for job in queue if not job.state.startswith("CANCELLED")]
    position = 0
    while position < len(arrivals) or waiting or running:
        next_arrival = arrivals[position].submit_s if position < len(arrivals) else math.inf
        next_end = min((job.start_s + job.run_s for job in running), default=math.inf)
        now = int(min(next_arrival, next_end))
        for job in [job for job in running if job.start_s + job.run_s <= now]:
            running.remove(job)
            for node, cores in job.held:
                free[node] += cores
        while position < len(arrivals) and arrivals[position].submit_s <= now:
            waiting.append(arrivals[position])
            position += 1
        while waiting and start(waiting[0], free, running, now):
            waiting.pop(0)
        if waiting:
            shadow_s, spare = reservation(waiting[0], free, running)
            for job in waiting[1:]:
                ends_in_time = now + job.limit_s <= shadow_s
                if (ends_in_time or job.application.cores <= spare) and start(job, free, running, now):
                    waiting.remove(job)
                    spare -= 0 if ends_in_time else job.application.cores


def start(job: Job, free: list[int], running: list[Job], now: int) -> bool:
    """Start the job if it fits now: whole nodes for multiples of 32 cores, else the fullest with room."""
    cores = job.application.cores
    if cores % NODE_CORES == 0:
        idle = [node for node in range(NODES) if free[node] == NODE_CORES][: cores // NODE_CORES]
        held = [(node, NODE_CORES) for node in idle]
    else:
        room = [node for node in range(NODES) if free[node] >= cores]
        held = [(min(room, key=lambda node: (free[node], node)), cores)] if room else []
    if sum(size for _, size in held) < cores:
        return False
    for node, size in held:
        free[node] -= size
    job.held, job.start_s = held, now
    running.append(job)
    return True


def reservation(head: Job, free: list[int], running: list[Job]) -> tuple[float, int]:
    """When the head of the queue will have its cores at the latest, and the cores left over then."""
    later = list(free)
    for job in sorted(running, key=lambda job: job.start_s + max(job.limit_s, job.run_s)):
        for node, size in job.held:
            later[node] += size
        cores = head.application.cores
        whole = sum(NODE_CORES for size in later if size == NODE_CORES)
        if whole >= cores if cores % NODE_CORES == 0 else max(later) >= cores:
            return job.start_s + max(job.limit_s, job.run_s), sum(later) - cores
    return math.inf, 0


def when(seconds: int) -> str:
    """A time as sacct writes it."""
    return datetime.fromtimestamp(FIRST_DAY.timestamp() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def duration(seconds: int) -> str:
    """`[D-]HH:MM:SS`."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def node_list(job: Job) -> str:
    """`c[03-05,09]`."""
    numbers = sorted(node + 1 for node, _ in job.held)
    if len(numbers) == 1:
        return f"c{numbers[0]:02d}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return (
        "c["
        + ",".join(f"{run[0]:02d}-{run[-1]:02d}" if len(run) > 1 else f"{run[0]:02d}" for run in runs)
        + "]"
    )


def cpu_time(milliseconds: int) -> str:
    """As sacct writes TotalCPU: without milliseconds from an hour on."""
    seconds, rest = divmod(milliseconds, 1000)
    return duration(seconds) if seconds >= 3600 else f"{seconds // 60:02d}:{seconds % 60:02d}.{rest:03d}"


def line(record: dict[str, str]) -> str:
    """The record in the order of the columns; what it does not have stays empty."""
    return "|".join(record.get(column, "") for column in COLUMNS.split("|"))


def lines(job: Job) -> list[str]:
    """The job's line, and those of its steps where it has any."""
    application = job.application
    cores = application.cores
    memory_mib = application.memory_mib_per_core * cores
    name = f"{job.array}_{job.task}" if job.task is not None else str(job.number)
    record = {
        "JobID": name,
        "JobIDRaw": str(job.number),
        "JobName": application.name,
        "User": application.user,
        "Account": application.account,
        "Partition": "batch",
        "State": job.state,
        "Submit": when(job.submit_s),
        "Timelimit": duration(job.limit_s),
        "ReqMem": f"{memory_mib}M",
        "ExitCode": "1:0" if job.state == "FAILED" else "0:0",
    }
    if not job.held:
        never = {"Start": "None", "End": when(job.submit_s + 240), "Elapsed": "00:00:00"}
        return [line({**record, **never, "NNodes": "1", "AllocCPUS": "0", "NodeList": "None assigned"})]
    cpu_ms = round(1000 * job.cpu_fraction * cores * job.run_s)
    record |= {
        "Start": when(job.start_s),
        "End": when(job.start_s + job.run_s),
        "Elapsed": duration(job.run_s),
        "NNodes": str(len(job.held)),
        "AllocCPUS": str(cores),
        "AllocTRES": f"billing={cores},cpu={cores},mem={memory_mib}M,node={len(job.held)}",
        "TotalCPU": cpu_time(cpu_ms),
        "NodeList": node_list(job),
    }
    written = [line(record)]
    if job.number % 5 == 0:
        in_batch = cpu_ms // 50 if job.number % 10 == 0 else cpu_ms
        steps = {"batch": in_batch, "extern": 0} | ({"0": cpu_ms - in_batch} if in_batch < cpu_ms else {})
        for step, milliseconds in steps.items():
            own = {
                "JobID": f"{name}.{step}",
                "JobIDRaw": f"{job.number}.{step}",
                "JobName": application.name if step == "0" else step,
                "User": "",
                "Partition": "",
                "State": job.state.split()[0],
                "Timelimit": "",
                "ReqMem": "",
                "TotalCPU": cpu_time(milliseconds),
            }
            written.append(line({**record, **own}))
    return written


def generate(seed: int = SEED) -> bytes:
    """The log of a seed, compressed; that of SEED is the sample."""
    queue = jobs(np.random.Generator(np.random.PCG64(seed)))
    schedule(queue)
    text = "\n".join([COLUMNS, *(line for job in queue for line in lines(job))]) + "\n"
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def main(words: Sequence[str] | None = None) -> None:
    """Write the log that the command line asks for: the sample in its place, that of another seed in this folder."""
    parser = argparse.ArgumentParser(
        description="Generate six days of a made-up cluster, as sacct -P would tell of it."
    )
    parser.add_argument(
        "--seed", type=seed_of, default=SEED, help="another cluster for another seed; default: %(default)s"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"default: {SAMPLE.name} beside this script; of another seed generated-cluster-SEED.sacct.gz here",
    )
    given = parser.parse_args(words)
    out: Path | None = given.out
    if out is None:
        out = SAMPLE if given.seed == SEED else Path(f"generated-cluster-{given.seed}.sacct.gz")
    made = generate(given.seed)
    try:
        out.write_bytes(made)
    except OSError as error:
        parser.error(f"{out}: {error.strerror}; name another file by --out")
    print(out)


def seed_of(text: str) -> int:
    """A seed: a whole number from 0 on. Raises ValueError otherwise."""
    seed = int(text)
    if seed < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0; give a whole number from 0 on")
    return seed


if __name__ == "__main__":
    main()
