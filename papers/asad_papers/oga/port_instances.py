"""Instances of OgaSched's simulation (section 4): read from files, or drawn from its distributions.

A file is a numpy archive (`.npz`) with

| key | shape | what |
|---|---|---|
| `A` | (L, K) | requests of ports, 0 or more |
| `C` | (R, K) | capacities of instances, 0 or more |
| `adj` | (L, R) | bool: who is connected |
| `X` | (T, L) | arrivals: how many jobs (0 or 1, or counts) |
| `alphas` | (K, R) | α of the utilities, above 0 |
| `betas` | (K,) | β of the overhead, 0 or more |
| `utils` | (R,) or (K, R) | `linear`, `log`, `reciprocal` or `poly` |
| `eta0`, `decay` | () | step of the strict mode; may be left out |

Drawn are (Table II, and where it is silent, the authors' published program): capacities whole numbers from 1 to 127
cores, 2 to 511 GB, 0 to 63 GPUs, 0 to 7 of two more accelerators, 0 to 3 of a last; requests real numbers of the same
ranges, times the contention level; 1 to 4 ports an instance; α from 1 to 1.5, β from 0.3 to 0.5; arrivals with
probability 0.7.
A utility an instance: all four, or one for all. With utilities other than linear, capacities and requests are divided
by `scale` (64), so that they differ in steepness where the y are: with y of hundreds, α/(1 + y) is flat.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asad.errors import ConfigError, UsageError
from asad.model import Floats
from asad.place.ports import Copies, Ports
from asad.place.utilities import FORMS, effective
from asad_papers.instance_files import read_archive

RANGES = ((1, 128), (2, 512), (0, 64), (0, 8), (0, 8), (0, 4))
"""Of capacities, the upper end excluded: CPU cores, memory (GB), GPUs, NPUs, TPUs, FPGAs."""
RECIPROCAL_SCALE = 3.0
"""What the authors' program multiplies α with in `reciprocal`; the paper prints 1."""
ETA, DECAY, SCALE = 25.0, 0.9999, 64.0
MOST_COPIES = 64


@dataclass(frozen=True, slots=True, eq=False)
class PortInstance:
    """Ports and what arrives at them."""

    name: str
    ports: Ports
    arrivals: Floats
    """(T, L) 0 or 1."""
    eta: float | None
    """η_0 of the strict mode, if the instance has one."""
    decay: float


# ------------------------------------------------------------------------------------------------------- reading


def read_port_instance(path: Path, reciprocal_scale: float = RECIPROCAL_SCALE) -> PortInstance:
    """One instance. Ports with more than one arrival in a slot become several (section 3.4).

    Raises ConfigError that names the file, the key and the remedy.
    """
    table = read_archive(path, KEYS, "docs/reference/bench-oga.md")
    return _Reader(str(path), table).instance(path.stem, reciprocal_scale)


KEYS = ("A", "C", "adj", "X", "alphas", "betas", "utils", "eta0", "decay")


class _Reader:
    """Reads arrays by key, and says where one is wrong."""

    def __init__(self, path: str, table: dict[str, Any]) -> None:
        self.path, self.table = path, table

    def instance(self, name: str, reciprocal_scale: float) -> PortInstance:
        a = self.numbers("A", (None, None))
        (many, resources) = a.shape
        c = self.numbers("C", (None, resources))
        held = len(c)
        adjacent = self.get("adj")
        if adjacent.shape != (many, held) or adjacent.dtype.kind not in "bui":
            raise self.wrong(
                "adj", f"is {adjacent.dtype} {_text(adjacent.shape)}", f"write bool {_text((many, held))}"
            )
        x = self.numbers("X", (None, many))
        if not len(x) or not (x == np.floor(x)).all() or x.max(initial=0) > MOST_COPIES:
            raise self.wrong(
                "X",
                "holds no slots" if not len(x) else "holds what is no number of jobs",
                f"write whole numbers of jobs, 0 to {MOST_COPIES}, one row a slot",
            )
        alpha = self.numbers("alphas", (resources, held)).T
        if not (alpha > 0).all():
            raise self.wrong("alphas", "holds 0", "write numbers above 0")
        beta = self.numbers("betas", (resources,))
        words = self.get("utils")
        if words.dtype.kind not in "US" or words.shape not in ((held,), (resources, held)):
            raise self.wrong(
                "utils",
                f"is {words.dtype} {_text(words.shape)}",
                f"write words {_text((held,))} or {_text((resources, held))}",
            )
        words = words.astype(str)
        unknown = sorted(set(words.ravel()) - set(FORMS))
        if unknown:
            raise self.wrong("utils", f"holds {str(unknown[0])!r}", f"there are {', '.join(FORMS)}")
        codes = np.vectorize(FORMS.index, otypes=[np.int8])(words)
        form = np.broadcast_to(codes, (resources, held)).T
        ports = Ports.of(
            a,
            c,
            adjacent.astype(np.bool_),
            alpha=effective(alpha, form, reciprocal_scale),
            form=form,
            beta=beta,
        )
        most = x.max(axis=0).astype(np.int32)
        if most.max(initial=0) > 1:
            copies = Copies.make(ports, np.maximum(most, 1))
            ports, x = copies.ports, np.array([copies.arrivals(row) for row in x])
        eta, decay = self.one("eta0"), self.one("decay")
        return PortInstance(name, ports, x, eta, DECAY if decay is None else decay)

    def wrong(self, key: str, problem: str, remedy: str) -> ConfigError:
        return ConfigError(f"{self.path}: {key} {problem}; {remedy}")

    def get(self, key: str) -> Any:
        if key not in self.table:
            raise self.wrong(key, "is missing", f"add it (the keys are {', '.join(KEYS)})")
        return self.table[key]

    def numbers(self, key: str, shape: Sequence[int | None]) -> Floats:
        found = self.get(key)
        fits = found.ndim == len(shape) and all(
            want in (None, is_) for want, is_ in zip(shape, found.shape, strict=True)
        )
        if not fits or found.dtype.kind not in "biuf":
            raise self.wrong(key, f"is {found.dtype} {_text(found.shape)}", f"write numbers {_text(shape)}")
        if not found.size and key != "X":
            raise self.wrong(key, "is empty", "write at least one of each: port, instance, resource")
        values: Floats = found.astype(np.float64)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise self.wrong(key, "holds what is below 0, infinite or no number", "write numbers, 0 or more")
        return values

    def one(self, key: str) -> float | None:
        if key not in self.table:
            return None
        value = float(self.numbers(key, ()))
        if value <= 0:
            raise self.wrong(key, "is 0", "write a number above 0, or leave it out")
        return value


def _text(shape: Sequence[int | None]) -> str:
    words = ["any" if one is None else str(one) for one in shape]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


# ------------------------------------------------------------------------------------------------------- drawing


def draw_port_instance(
    seed: int,
    *,
    parameters: int | None = 0,
    ports: int = 10,
    instances: int = 128,
    slots: int = 2000,
    probability: float = 0.7,
    contention: float = 10.0,
    density: float = 2.5,
    beta: tuple[float, float] = (0.3, 0.5),
    utility: str = "mixed",
    scale: float | None = None,
    name: str | None = None,
) -> PortInstance:
    """An instance of the paper's distributions. The same arguments give the same one.

    Capacities, requests, edges and arrivals are drawn by `seed`; α, β and utilities, which the authors' program holds
    as parameters, by `parameters` (None: by `seed` as well). Seed 0 gives the recorded instances bit for bit.
    `density` is the mean number of ports an instance, about: from 1 to 2 · density - 1 of them, evenly. `utility` is a
    form or `mixed`. η_0 is 25 / scale; the scale is 64, of instances that are all linear 1.
    """
    if utility != "mixed" and utility not in FORMS:
        raise UsageError(f"utility {utility!r}: there are mixed, {', '.join(FORMS)}")
    if not 1 <= density <= (ports + 1) / 2:
        raise UsageError(f"density {density}: give a mean number of ports, 1 to {(ports + 1) / 2}")
    unit = scale if scale is not None else 1.0 if utility == "linear" else SCALE
    resources = len(RANGES)

    def drawn_parameters(rng: np.random.RandomState) -> tuple[Floats, Floats]:
        alpha = rng.uniform(1.0, 1.5, instances * resources).reshape(resources, instances)
        return alpha.T, rng.uniform(*beta, resources)

    # the generators of the authors' program: the recorded instances can be drawn again
    rng = np.random.RandomState(seed)
    coin = random.Random(seed)  # noqa: S311
    alpha, betas = drawn_parameters(rng)
    world = seed if parameters is None else parameters
    if world != seed:
        alpha, betas = drawn_parameters(np.random.RandomState(world))
    x = np.array([[coin.random() <= probability for _ in range(ports)] for _ in range(slots)], np.float64)
    c = np.column_stack([rng.randint(low, high, instances) for low, high in RANGES]) / unit
    a = np.column_stack([rng.uniform(low, high, ports) for low, high in RANGES]) * contention / unit
    whole = int(2 * density - 1)
    degrees = rng.randint(1, whole + 1, instances)
    # a mean between two whole ranges: some instances have a port more
    short = density - (whole + 1) / 2
    more = rng.random_sample(instances) < short if short > 0 else 0
    adjacent = np.zeros((ports, instances), np.bool_)
    for r, degree in enumerate(degrees + more):
        adjacent[coin.sample(range(ports), int(degree)), r] = True
    if utility == "mixed":
        # in the order in which that program lists them
        words = ("linear", "log", "poly", "reciprocal")
        picks = np.random.RandomState(world).randint(0, len(words), instances)
        codes = np.array([FORMS.index(words[pick]) for pick in picks], np.int8)
    else:
        codes = np.full(instances, FORMS.index(utility), np.int8)
    form = np.repeat(codes[:, None], resources, axis=1)
    made = Ports.of(a, c, adjacent, alpha=effective(alpha, form, RECIPROCAL_SCALE), form=form, beta=betas)
    return PortInstance(name or f"seed{seed}", made, x, ETA / unit, DECAY)
