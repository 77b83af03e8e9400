"""The jobs of `lab.queue`: who submits what and when, drawn by a seed, and the cluster that they are made for.

Nothing here needs a cluster. The same number, seed and scale give the same jobs at the same times, so that two clusters
can be given them, one with a limit and one without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lab import LabError

NODES, CPUS, MEMORY_MB = 6, 4, 8000
"""The cluster: nodes, and CPUs and MiB of each."""
FEATURES: Mapping[int, str] = {1: "fast", 2: "fast,ssd", 3: "ssd", 5: "fast", 6: "fast,ssd"}
"""Number of a node → what jobs can ask for by `--constraint`; the fourth has nothing."""
GPUS: Mapping[int, int] = {5: 2, 6: 2}
"""Number of a node → its GPUs."""


class Partition(NamedTuple):
    """A partition: numbers of its nodes, MaxTime in minutes, PriorityJobFactor and PriorityTier."""

    nodes: tuple[int, ...]
    most_minutes: int
    priority: int
    tier: int = 1


PARTITIONS: Mapping[str, Partition] = {
    "batch": Partition((1, 2, 3, 4), 10, 10),
    "gpu": Partition((5, 6), 15, 30),
    "short": Partition((4, 5), 1, 50, 2),
}
"""By name, the default first; `short` shares a node with each of the others, and goes first there."""
LIMIT_CPUS = 5
"""Most CPUs of one user at a time in the QOS `normal`."""
ACCOUNTS: Mapping[str, tuple[str, int]] = {
    "physics": ("root", 50),
    "biology": ("root", 30),
    "chemistry": ("root", 20),
    "theory": ("physics", 2),
    "optics": ("physics", 1),
}
"""Account → the one above it, and its share among its siblings."""


class User(NamedTuple):
    """One of Debian's own accounts."""

    name: str
    account: str
    share: int
    """Of its association, among those of its account."""
    part: float
    """Of all jobs."""
    burst: int
    """About so many jobs of one application are submitted at once."""
    partitions: tuple[str, ...]
    """Of each of its applications."""


USERS = (
    User("nobody", "theory", 2, 0.31, 22, ("batch", "batch", "batch", "short")),
    User("games", "biology", 2, 0.27, 20, ("batch", "gpu", "batch")),
    User("mail", "optics", 1, 0.12, 5, ("gpu", "batch", "short")),
    User("news", "theory", 1, 0.10, 4, ("batch", "short")),
    User("man", "biology", 1, 0.08, 3, ("batch", "gpu")),
    User("list", "chemistry", 2, 0.07, 3, ("short", "batch")),
    User("irc", "chemistry", 1, 0.05, 2, ("gpu", "batch")),
)
STEMS = ("align", "fft", "fit", "lu", "md", "mesh", "post", "qc", "render", "sort", "sweep", "train")
MEDIAN_RUN_S, SHORTEST_S, LONGEST_S = 24.0, 3.0, 90.0
BETWEEN_S = 0.3
"""From one job of a burst to the next, as a loop in a shell submits them."""
LATEST = 0.93
"""No burst begins in the last part of the time in which jobs are submitted."""
USE = 0.7
"""Part of the CPUs of `batch` that would be busy if its jobs ran in the time in which they are submitted."""
PARTS_OF_BATCH: Mapping[str, float] = {
    "exclusive": 0.05,
    "two nodes": 0.07,
    "constraint": 0.12,
    "much memory": 0.07,
}
"""Part of the jobs of `batch` that ask for something; a job asks for one of these at the most."""
PARTS: Mapping[str, float] = {"after": 0.05, "begin": 0.03, "cancelled": 0.02, "urgent": 0.06}
"""Part of all jobs, likewise."""
TOO_LONG = 0.012
"""Part of all jobs that reach their time limit; of few jobs none, as it takes minutes."""
FEWEST = 10


@dataclass(frozen=True, slots=True)
class Application:
    """What the runs of one application of one user have in common."""

    name: str
    user: User
    partition: str
    run_s: float
    """Median of its run times."""
    cpus: int
    memory_mb: int
    """For each CPU."""
    gpus: int
    padding: float
    """How many times the median its user asks for as a limit."""


@dataclass(slots=True)
class QueuedJob:
    """What a job asks for, and how long it sleeps. Times of waiting count from its submission."""

    application: Application
    submit_s: float
    """After the first."""
    run_s: float
    limit_min: int
    cpus: int
    """On each of its nodes."""
    memory_mb: int
    """On each of its nodes."""
    nodes: int = 1
    exclusive: bool = False
    constraint: str = ""
    urgent: bool = False
    """In the QOS `urgent`, which has a priority and no limit."""
    after: int | None = None
    """Place in the list of the job whose end it waits for."""
    begin_s: float = 0.0
    """It asks not to start before that time."""
    cancel_s: float = 0.0
    """Its user cancels it then if it still waits; 0 for never."""

    @property
    def qos(self) -> str:
        return "urgent" if self.urgent else "normal"

    @property
    def held_cpus(self) -> int:
        """CPUs that it holds while it runs."""
        return self.nodes * (CPUS if self.exclusive else self.cpus)

    @property
    def script(self) -> str:
        """Its batch script, without the first line."""
        return f"exec sleep {self.run_s:.1f}"

    def options(self, ids: Mapping[int, str]) -> tuple[str, ...]:
        """Options of sbatch; `ids` are those of the jobs submitted before it, by their place.

        A dependency on one that is not there (it was refused) is left out.
        """
        application = self.application
        parent = None if self.after is None else ids.get(self.after)
        return (
            f"--job-name={application.name}",
            f"--account={application.user.account}",
            f"--partition={application.partition}",
            f"--qos={self.qos}",
            f"--nodes={self.nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={self.cpus}",
            f"--mem={self.memory_mb}",
            f"--time={self.limit_min}",
            *((f"--gres=gpu:{application.gpus}",) if application.gpus else ()),
            *(("--exclusive",) if self.exclusive else ()),
            *((f"--constraint={self.constraint}",) if self.constraint else ()),
            # afterany: one that depends on a cancelled job would else wait for ever
            *((f"--dependency=afterany:{parent}",) if parent else ()),
            *((f"--begin=now+{math.ceil(self.begin_s)}",) if self.begin_s else ()),
        )


def draw(number: int, seed: int, scale: float = 1.0) -> list[QueuedJob]:
    """So many jobs in the order of submission. `scale` multiplies all times but limits, which are whole minutes.

    Of everything that a job can ask for there is one at least, except that of few jobs none is too long.
    Raises LabError for fewer jobs than FEWEST.
    """
    if number < FEWEST:
        raise LabError(f"{number} jobs are too few to have all sorts of them; ask for at least {FEWEST}")
    random = np.random.Generator(np.random.PCG64(seed))
    begins: list[float] = []
    jobs: list[QueuedJob] = []
    for user, count in zip(USERS, counts([user.part for user in USERS], number), strict=True):
        for begin, burst in bursts_of(random, user, count):
            begins += [begin] * len(burst)
            jobs += burst
    vary_batch(random, jobs)
    held_cpu_s = sum(job.run_s * job.held_cpus for job in jobs if job.application.partition != "gpu")
    window_s = held_cpu_s / (USE * CPUS * len(PARTITIONS["batch"].nodes))
    for begin, job in zip(begins, jobs, strict=True):
        job.submit_s += begin * window_s  # it had its time within the burst
    jobs.sort(key=lambda job: job.submit_s)
    first_s = jobs[0].submit_s
    for job in jobs:
        job.submit_s -= first_s
    vary_all(random, jobs)
    for job in jobs:
        job.submit_s *= scale
        job.begin_s *= scale
        job.cancel_s *= scale
        job.run_s = max(1.0, job.run_s * scale)
    vary_limits(random, jobs)
    return jobs


def counts(parts: Sequence[float], number: int) -> list[int]:
    """`number` divided by parts that sum to 1, each at least 1: rounded down, what is left to the largest rests."""
    whole = [max(1, int(part * number)) for part in parts]
    rests = sorted(range(len(parts)), key=lambda place: whole[place] - parts[place] * number)
    for place in (rests * number)[: max(0, number - sum(whole))]:
        whole[place] += 1
    while sum(whole) > number:
        whole[whole.index(max(whole))] -= 1
    return whole


def applications_of(random: np.random.Generator, user: User) -> list[Application]:
    """The applications of a user, one for each of its partitions."""
    stems = random.choice(STEMS, size=len(user.partitions), replace=False)
    made = []
    for stem, partition in zip(stems.tolist(), user.partitions, strict=True):
        run_s = min(60.0, MEDIAN_RUN_S * math.exp(random.normal(0.0, 0.35)))
        cpus = int(random.choice([1, 2, 3, 4], p=[0.3, 0.4, 0.15, 0.15]))
        gpus = int(random.choice([1, 2], p=[0.7, 0.3]))
        made.append(
            Application(
                name=stem,
                user=user,
                partition=partition,
                run_s=run_s / 2 if partition == "short" else run_s,
                cpus={"batch": cpus, "gpu": min(2, cpus), "short": 1}[partition],
                memory_mb=int(random.choice([400, 800, 1200, 1600])),
                gpus=gpus if partition == "gpu" else 0,
                padding=float(random.uniform(1.8, 4.0)),
            )
        )
    return made


def bursts_of(random: np.random.Generator, user: User, count: int) -> list[tuple[float, list[QueuedJob]]]:
    """`count` jobs of a user in bursts, each with its begin as a part of the time in which jobs are submitted.

    Bursts are of the user's applications in turn, and spread over the time.
    """
    number = max(1, round(count / user.burst))
    applications = applications_of(random, user)
    made = []
    for turn, size in enumerate(counts([1 / number] * number, count)):
        begin = LATEST * (turn + float(random.uniform(0.0, 1.0))) / number
        application = applications[turn % len(applications)]
        made.append((begin, [job_of(random, application, place * BETWEEN_S) for place in range(size)]))
    return made


def job_of(random: np.random.Generator, application: Application, submit_s: float) -> QueuedJob:
    """One run of an application; its limit comes later."""
    run_s = application.run_s * math.exp(random.normal(0.0, 0.4))
    return QueuedJob(
        application=application,
        submit_s=submit_s,
        run_s=min(LONGEST_S if application.partition != "short" else 45.0, max(SHORTEST_S, run_s)),
        limit_min=0,
        cpus=application.cpus,
        memory_mb=application.cpus * application.memory_mb,
    )


def chosen(
    random: np.random.Generator, places: Sequence[int], parts: Mapping[str, float]
) -> dict[str, list[int]]:
    """For each name so large a part of the places, one at least; no place for two names.

    Raises LabError if there are fewer places than names.
    """
    if len(places) < len(parts):
        raise LabError(f"{len(places)} jobs are too few for {', '.join(parts)}; ask for more jobs")
    mixed = random.permutation(np.asarray(places)).tolist()
    found: dict[str, list[int]] = {}
    for name, part in parts.items():
        size = max(1, round(part * len(places)))
        found[name], mixed = mixed[:size], mixed[size:]
    return found


def vary_batch(random: np.random.Generator, jobs: Sequence[QueuedJob]) -> None:
    """Some jobs of `batch` ask for a whole node, two nodes, a feature, or much memory."""
    batch = [place for place, job in enumerate(jobs) if job.application.partition == "batch"]
    asks = chosen(random, batch, PARTS_OF_BATCH)
    for place in asks["exclusive"]:
        jobs[place].exclusive = True
    for place in asks["two nodes"]:
        job = jobs[place]
        job.nodes, job.cpus = 2, min(LIMIT_CPUS // 2, job.cpus)
    for place in asks["constraint"]:
        jobs[place].constraint = str(random.choice(["fast", "ssd", "fast&ssd"], p=[0.5, 0.3, 0.2]))
    for place in asks["much memory"]:
        jobs[place].memory_mb = int(random.integers(4200, 6500))


def vary_all(random: np.random.Generator, jobs: Sequence[QueuedJob]) -> None:
    """Some jobs wait for another or for a time, are cancelled, or are urgent. `jobs` are in order of submission."""
    asks = chosen(random, range(1, len(jobs)), PARTS)  # nobody is before the first
    for place in asks["after"]:
        before = range(max(0, place - 12), place)
        own = [one for one in before if jobs[one].application.user is jobs[place].application.user]
        jobs[place].after = int(random.choice(own or before))
    for place in asks["begin"]:
        jobs[place].begin_s = float(random.uniform(20.0, 120.0))
    for place in asks["cancelled"]:
        jobs[place].cancel_s = float(random.uniform(5.0, 60.0))
    for place in asks["urgent"]:
        jobs[place].urgent = True


def vary_limits(random: np.random.Generator, jobs: Sequence[QueuedJob]) -> None:
    """Time limits in whole minutes, at least 1.2 times what a job runs; some run longer than theirs."""
    for job in jobs:
        asked_s = max(1.2 * job.run_s, job.application.padding * job.run_s)
        most = PARTITIONS[job.application.partition].most_minutes
        job.limit_min = min(most, max(1, math.ceil(asked_s / 60)))
    places = [place for place, job in enumerate(jobs) if not job.begin_s and not job.cancel_s]
    for place in random.permutation(np.asarray(places)).tolist()[: round(TOO_LONG * len(jobs))]:
        jobs[place].limit_min = 1
        jobs[place].run_s = 200.0
