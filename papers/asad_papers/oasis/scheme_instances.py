"""Instances of the OASiS paper's simulation (§V): read from files, or drawn from its distributions.

A file is a JSON object: `slots`, `resources` (names), `worker_servers` and `parameter_servers` (one row of capacities
each, in the order of `resources`) and `jobs`: `arrival` (slot, from 0), `worker` and `ps` (rows of demands of one
worker and one parameter server), `worker_bandwidth` b and `ps_bandwidth` B, `max_workers` N, `worker_slots` W,
`gamma` [γ1, γ2, γ3] of the sigmoid utility γ1/(1 + exp(γ2·(d - γ3))) with d slots from arrival to completion, the
first counting 1, and `fixed_workers`. Keys beside these are left alone.

What the paper leaves open in its distributions, and how it is filled:

- Mini-batch times of 0.001 to 0.1 slots make a median job of 10 975 worker-slots and most jobs infeasible: τ/100.
- Slots are 1 h; gradients of e MB there and back over b Mbit/s take 2·8·e/b seconds of it.
- The text gives workers C4 machines and parameter servers P2 and G3, but only the latter have GPUs: swapped.
- One job in ten has γ2 = 0, 55 % are time-sensitive (γ2 from 0.01 to 1), 35 % time-critical (4 to 6).
- Arrivals are uniform over the first nine tenths of the time; the trace the paper used is not part of it. In bursts,
  they come together: the times of bursts are uniform, their sizes geometric.
- GPUs are all alike, as in the paper. With types, those of P2 machines are K80s and those of G3 machines M60s, as
  Amazon has them; one job in three wants either type, the third any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from asad.admit.elastic import ElasticJob, Servers
from asad.admit.utility import Sigmoid
from asad.errors import ConfigError
from asad.model import Floats, Json
from asad_papers.instance_files import JsonTable, is_number, short

RESOURCES = ("gpu", "cpu", "memory_gb", "disk_gb", "bandwidth_gbps")
GPU_TYPES = ("gpu:k80", "gpu:m60")

GPU_MACHINES = (
    (1, 4, 61, 500),
    (8, 32, 488, 1000),
    (16, 64, 732, 2000),
    (1, 16, 122, 500),
    (2, 32, 244, 1000),
    (4, 64, 488, 2000),
)
"""Amazon EC2 p2.xlarge, p2.8xlarge, p2.16xlarge, g3.4xlarge, g3.8xlarge, g3.16xlarge: GPUs, vCPUs, memory (GB); the
disks are ours."""
CPU_MACHINES = ((0, 8, 15, 500), (0, 16, 30, 1000), (0, 36, 60, 2000))
"""c4.2xlarge, c4.4xlarge, c4.8xlarge, likewise."""

BURST = 10.0
"""Jobs of a burst, in the mean."""
TAU_SCALE = 100.0
SLOT_S = 3600.0
KINDS = (("insensitive", 0.10), ("sensitive", 0.55), ("critical", 0.35))
"""Kinds of jobs by how their utility falls, with their shares."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Servers, and the jobs that come to them over `slots` slots."""

    name: str
    slots: int
    servers: Servers
    jobs: tuple[ElasticJob, ...]
    reference: Mapping[str, float]
    """Utilities that the file gives by scheme, if any."""


# ------------------------------------------------------------------------------------------------------- reading


def read_folder(folder: Path) -> list[Instance]:
    """Every `*.json` of a folder, by name. Raises ConfigError where there is none or one is wrong."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; name one that holds instances (*.json)")
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ConfigError(f"{folder}: holds no instances; they are files named *.json")
    return [read_instance(path) for path in paths]


def read_instance(path: Path) -> Instance:
    """One instance. Raises ConfigError that names the file, the key and the remedy."""
    file = JsonTable.of_file(path, "docs/reference/bench-oasis.md")
    slots, names = file.count("slots", 1), file.get("resources")
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        raise file.wrong("resources", "is not a list of names", 'write ["gpu", "cpu", …]')
    capacities = []
    for key in ("worker_servers", "parameter_servers"):
        rows = file.rows(key, "is not a list of rows", "write [[…], …]")
        read = [file.numbers(f"{key}[{number}]", row, len(names)) for number, row in enumerate(rows)]
        capacities.append(np.array(read, np.float64).reshape(len(read), len(names)))
    jobs = file.tables("jobs", "is not a list", "write [{…}, …]")
    reference = file.plain.get("reference", {})
    if not isinstance(reference, dict):
        raise file.wrong("reference", "is not a table", 'write {"drf": 443.8, …}, or leave it out')
    return Instance(
        path.stem,
        slots,
        Servers(tuple(names), capacities[0], capacities[1]),
        tuple(_job(job, number, len(names)) for number, job in enumerate(jobs)),
        {key: value for key, value in reference.items() if isinstance(value, float)},
    )


def read_testbed(path: Path) -> dict[str, Any]:
    """What schemes reached on a testbed: `utility` by scheme, `runs` (the utility of each run) and `timeliness` by
    scheme and kind of job as the bench has it. Raises ConfigError that names the file, the key and the remedy."""
    file = JsonTable.of_file(path, "docs/reference/bench-oasis.md")
    utility = JsonTable(path, file.get("utility"), "utility.")
    runs = JsonTable(path, file.get("runs"), "runs.")
    timeliness: dict[str, Any] = {}
    for name, kinds in JsonTable(path, file.get("timeliness"), "timeliness.").plain.items():
        rows = JsonTable(path, kinds, f"timeliness.{name}.").plain
        timeliness[name] = {
            kind: _lateness(JsonTable(path, row, f"timeliness.{name}.{kind}.")) for kind, row in rows.items()
        }
    each = {}
    for name in utility.plain:
        rows = runs.rows(name, "is not a list of numbers", "write [57.1, …], one for each run")
        each[name] = runs.numbers(name, rows, max(1, len(rows))).tolist()
    return {
        "utility": {name: utility.number(name) for name in utility.plain},
        "runs": each,
        "timeliness": timeliness,
    }


LATENESS = ("p10", "p25", "median", "p75", "p90", "mean", "sd")
"""Of completion less target: percentiles, mean and standard deviation, in slots."""


def lateness(late: Sequence[float], jobs: int) -> dict[str, Json]:
    """`jobs`, `done` and `LATENESS` of so many jobs of which those that were done completed so `late` (slots); None
    where none was."""
    values = np.percentile(late, [10, 25, 50, 75, 90]).tolist() if late else [None] * 5
    values += [float(np.mean(late)), float(np.std(late))] if late else [None] * 2
    return {"jobs": jobs, "done": len(late), **dict(zip(LATENESS, values, strict=True))}


def _lateness(row: JsonTable) -> dict[str, float | None]:
    found: dict[str, float | None] = {key: row.count(key, 0) for key in ("jobs", "done")}
    for key in LATENESS:
        value = row.get(key)
        if value is not None and not is_number(abs(value) if isinstance(value, int | float) else value):
            raise row.wrong(key, f"is {short(value)}", "write slots, or null where no job was done")
        found[key] = value
    return found


def _job(row: JsonTable, number: int, resources: int) -> ElasticJob:
    gamma = row.numbers("gamma", row.get("gamma"), 3)
    return ElasticJob(
        name=str(number),
        arrival=row.count("arrival", 0),
        worker=row.numbers("worker", row.get("worker"), resources),
        server=row.numbers("ps", row.get("ps"), resources),
        worker_bandwidth=row.number("worker_bandwidth"),
        server_bandwidth=row.number("ps_bandwidth"),
        most_workers=row.count("max_workers", 1),
        work=row.count("worker_slots", 1),
        utility=Sigmoid(*gamma.tolist()),
        target_slots=float(gamma[2]),
        fixed_workers=row.count("fixed_workers", 1),
    )


# ------------------------------------------------------------------------------------------------------- drawing


def draw_instance(
    jobs: int,
    seed: int,
    *,
    slots: int = 100,
    servers: int = 50,
    parameter_servers: int | None = None,
    worth: tuple[float, float] = (1.0, 100.0),
    kinds: Sequence[tuple[str, float]] = KINDS,
    most_chunks: int = 100,
    gpu_types: bool = False,
    bursts: bool = False,
    name: str | None = None,
) -> Instance:
    """`jobs` jobs, `servers` worker servers and as many parameter servers, of the paper's ranges.

    `worth` is the range of γ1, `kinds` the shares of the kinds of jobs, `most_chunks` the upper end of N's range. The
    same arguments give the same instance; `gpu_types` and `bursts` (see above) change nothing else of it.
    """
    rng = np.random.default_rng(np.random.SeedSequence((seed, jobs, slots, servers)))

    def machines(kinds_of_machine: Sequence[Sequence[int]], count: int) -> Floats:
        rows = np.array(kinds_of_machine, np.float64)[rng.integers(0, len(kinds_of_machine), count)]
        return np.column_stack([rows, rng.uniform(20, 50, count)])

    park = Servers(
        RESOURCES,
        machines(GPU_MACHINES, servers),
        machines(CPU_MACHINES, servers if parameter_servers is None else parameter_servers),
    )
    shares = np.array([share for _, share in kinds], np.float64)
    drawn = []
    last = max(1, round(0.9 * slots))
    arrivals = rng.integers(0, last, jobs).tolist()
    if bursts:
        arrivals = _bursts(np.random.default_rng((seed, jobs, slots, servers, 1)), jobs, last)
    for number, arrival in enumerate(sorted(arrivals)):
        chunks = int(rng.integers(5, most_chunks + 1))
        b, beside = rng.uniform(0.1, 5.0), rng.uniform(5.0, 20.0)
        tau = rng.uniform(0.001, 0.1) / TAU_SCALE
        exchange = 2 * 8 * rng.uniform(30, 575) / (b * 1000.0) / SLOT_S
        epochs, batches = int(rng.integers(50, 201)), int(rng.integers(10, 101))
        kind = kinds[int(rng.choice(len(kinds), p=shares / shares.sum()))][0]
        decay = {"insensitive": 0.0, "sensitive": rng.uniform(0.01, 1.0), "critical": rng.uniform(4.0, 6.0)}[
            kind
        ]
        target = rng.uniform(1, 15)
        drawn.append(
            ElasticJob(
                name=str(number),
                arrival=arrival,
                worker=np.array(
                    [rng.integers(0, 5), rng.integers(1, 11), rng.integers(2, 33), rng.integers(5, 11), b]
                ),
                server=np.array([0, rng.integers(1, 11), rng.integers(2, 33), rng.integers(5, 11), beside]),
                worker_bandwidth=float(b),
                server_bandwidth=float(beside),
                most_workers=chunks,
                work=max(1, math.ceil(epochs * chunks * batches * (tau + exchange))),
                utility=Sigmoid(float(rng.uniform(*worth)), float(decay), float(target)),
                target_slots=float(target),
                fixed_workers=min(int(rng.integers(1, 31)), chunks),
            )
        )
    instance = Instance(name or f"jobs{jobs}_seed{seed}", slots, park, tuple(drawn), {})
    if not gpu_types:
        return instance
    return _with_types(instance, np.random.default_rng((seed, jobs, slots, servers, 2)))


def _bursts(rng: np.random.Generator, jobs: int, last: int) -> list[int]:
    """Slots before `last` in which so many jobs arrive."""
    arrivals: list[int] = []
    while len(arrivals) < jobs:
        arrivals += [int(rng.integers(0, last))] * int(rng.geometric(1.0 / BURST))
    return arrivals[:jobs]


def _with_types(instance: Instance, rng: np.random.Generator) -> Instance:
    """The same with a resource for each type of GPU, beside that of all GPUs: who wants a type takes of both."""
    servers = instance.servers
    p2 = {machine[:3] for machine in GPU_MACHINES[:3]}
    is_p2 = np.array([tuple(row[:3]) in p2 for row in servers.workers.tolist()])[:, None]
    gpus = servers.workers[:, :1]
    none = np.zeros((len(servers.parameter_servers), len(GPU_TYPES)))
    park = Servers(
        (*servers.resources, *GPU_TYPES),
        np.column_stack((servers.workers, np.where(is_p2, gpus, 0.0), np.where(is_p2, 0.0, gpus))),
        np.column_stack((servers.parameter_servers, none)),
    )
    jobs = []
    for job, kind in zip(instance.jobs, rng.integers(0, 1 + len(GPU_TYPES), len(instance.jobs)), strict=True):
        typed = [float(job.worker[0]) if kind == number else 0.0 for number in range(len(GPU_TYPES))]
        jobs.append(
            replace(job, worker=np.append(job.worker, typed), server=np.append(job.server, [0.0, 0.0]))
        )
    return replace(instance, servers=park, jobs=tuple(jobs))


def kind_of(job: ElasticJob) -> str:
    """insensitive, sensitive or critical, by how its utility falls; `other` of a utility that is no sigmoid."""
    if not isinstance(job.utility, Sigmoid):
        return "other"
    decay = job.utility.decay
    return "insensitive" if decay == 0 else "sensitive" if decay <= 1 else "critical"
