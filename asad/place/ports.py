"""The port model of OgaSched: ports (job types), instances (nodes) and K resources, joined by edges.

Source: Zhao et al., *Scheduling Multi-Server Jobs with Sublinear Regrets via Online Learning*, section 2. A port l asks
for at most a_l^k of resource k on each instance it is connected to (5); instance r has c_r^k of it (6). An allocation y
is an array of one row an edge (l, r) and one column a resource. Edges stand in the order of their instances, and within
one of their ports (compressed rows by instance), since everything but a port's overhead is settled instance by
instance; nothing is kept for pairs that are not connected. The reward of a slot is (7) and (8) with separable
utilities (12): the gains f_r^k(y) of all edges of ports with an arrival, less each such port's dominant overhead
max_k β_k Σ_r y. In the loops of this room p is the number of a port (l in the paper), r of an instance, k of a
resource and e of an edge.

Several arrivals a port (section 3.4) are several ports: see `Copies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Codes, Floats, Ints
from asad.place import PlacePolicy
from asad.place.utilities import FORMS, gain
from asad.policy import Given, Policy, parted
from asad.tables import Is


class Options(NamedTuple):
    """Of all port policies on a cluster (`[place.drf]` and so on); shares in [0, 1]."""

    ports: Annotated[int, Is(least=0, most=1000)] = 16
    """Application classes with a port of their own, the first that are met (a port is free again when its application
    is forgotten); the rest has one together."""
    headroom: Annotated[float, Is(least=0.0, below=1.0)] = 0.1
    """Share of its cores that a host keeps beyond what it uses."""
    least_share: Annotated[float, Is(above=0.0, most=1.0)] = 0.05
    """A guest may use at least so much of its nodes' cores (or all of its own), as long as they lend it; with less
    none is placed, unless it runs at a fifth of its pace."""
    step: Annotated[float, Is(above=0.0, most=1.0)] = 0.05
    """A quota changes by no less than this part of the guest's cores, but falls by less where batch jobs need it."""
    memory: bool = True
    """Set memory limits of guests."""


class OgaOptions(NamedTuple):
    """Of `oga` besides."""

    mode: str = "reclaim"
    """`strict`, `reactive` or `reclaim`."""
    eta: float = 1.0
    """First step η₀, in quarters of a node; with much more, quotas swing from cycle to cycle; 0: in proportion to the
    mean capacity, as in the bench."""
    decay: float = 0.9999
    """Factor of η from cycle to cycle."""
    eta_least: float = 0.1
    """η falls no further than to this part of η₀, so that a daemon that never stops never stops learning."""
    reach: float = 8.0
    """In mode `reclaim` the step among the classes present is so many times η."""
    utility: str = "log"
    """What an amount is worth: `linear`, `log`, `reciprocal`, `poly`."""
    alpha: float = 1.0
    """α of the utility."""
    beta: float = 0.0
    """Overhead a unit of the resource of which a class has most; above 0, shares swing where two resources nearly
    tie. With `measured`, that of CPU is no less than what guests on several nodes lose of their pace."""
    measured: bool = True
    """Weigh the utility of each class by what its guests make of the CPU that they may use, and charge overheads as
    measured."""


class PortPolicy(Policy):
    """What divides capacities among ports, slot by slot; `PortPlacing` drives it on a cluster."""

    stage = "place"
    option_type = Options
    removed = PlacePolicy.removed
    held = "idle"
    pooled = True

    def allot(self, x: Floats) -> Floats:
        """y (E, K) of the slot in which x (L,) arrives: 1 where a port has a job, else 0."""
        raise NotImplementedError

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> PlacePolicy:
        """The policy that drives it."""
        from asad.place.port_placing import PortPlacing  # knows Oga, which is one of these

        common, own = parted(options, Options)
        learning = OgaOptions(**own) if own else None
        return PortPlacing(
            cls.name, given.applications, common, learning, poll_s=given.poll_s, pressure=given.pressure
        )


@dataclass(frozen=True, slots=True, eq=False)
class Ports:
    """L ports, R instances, K resources, E edges. Made by `Ports.of`, which checks."""

    requests: Floats
    """(L, K) a: the most that a port may have of a resource on one instance; 0 or more."""
    capacities: Floats
    """(R, K) c: what an instance has; 0 or more."""
    first: Ints
    """(R + 1,) Edges of instance r are rows first[r] to first[r + 1] - 1."""
    port: Ints
    """(E,) The port of an edge; rising within an instance."""
    instance: Ints
    """(E,) Its instance; never falling."""
    alpha: Floats
    """(R, K) α of the utilities (60), above 0; of `reciprocal` with its scale already in it."""
    form: Codes
    """(R, K) Codes into `utilities.FORMS`."""
    beta: Floats
    """(K,) β, in [0, 1]: overhead a unit of the dominant resource."""
    names: tuple[str, ...]
    """(L,) Of ports; each once. Hostile text where users choose it."""
    instances: tuple[str, ...]
    """(R,) Of instances; each once."""

    @classmethod
    def of(
        cls,
        requests: Floats,
        capacities: Floats,
        adjacent: NDArray[np.bool_],
        *,
        alpha: Floats | float = 1.0,
        form: Codes | str = "linear",
        beta: Floats | float = 0.0,
        names: Sequence[str] | None = None,
        instances: Sequence[str] | None = None,
    ) -> Ports:
        """Ports from dense tables: `requests` (L, K), `capacities` (R, K), `adjacent` (L, R).

        `alpha` and `form` are for all or (R, K); `beta` for all or (K,). Raises UsageError that names what is wrong.
        """
        a, c = _table("requests", requests), _table("capacities", capacities)
        (count, resources), held = a.shape, len(c)
        if c.shape[1] != resources:
            raise UsageError(
                f"capacities: {c.shape[1]} resources, requests {resources}; give both for the same ones"
            )
        joined = np.asarray(adjacent)
        if joined.shape != (count, held) or joined.dtype != np.bool_:
            raise UsageError(f"adjacent: {joined.dtype} {joined.shape}; give bool ({count}, {held})")
        if isinstance(form, str):
            if form not in FORMS:
                raise UsageError(f"form: {form!r}; there are {', '.join(FORMS)}")
            codes = np.full((held, resources), FORMS.index(form), np.int8)
        else:
            codes = np.ascontiguousarray(form, np.int8)
            if codes.shape != (held, resources) or not ((codes >= 0) & (codes < len(FORMS))).all():
                raise UsageError(
                    f"form: {codes.shape}; give codes 0 to {len(FORMS) - 1}, ({held}, {resources})"
                )
        alphas = _spread("alpha", alpha, (held, resources))
        betas = _spread("beta", beta, (resources,))
        if not (alphas > 0).all():
            raise UsageError("alpha: some are not above 0; utilities need α > 0")
        if not (betas >= 0).all():
            raise UsageError("beta: some are below 0; an overhead is 0 or more")
        instance, port = np.nonzero(joined.T)
        first = np.zeros(held + 1, np.int32)
        np.cumsum(joined.sum(axis=0), out=first[1:])
        return cls(
            a,
            c,
            first,
            port.astype(np.int32),
            instance.astype(np.int32),
            alphas,
            codes,
            betas,
            _names("names", names, count),
            _names("instances", instances, held),
        )

    @property
    def edges(self) -> int:
        """E."""
        return len(self.port)

    @property
    def caps(self) -> Floats:
        """(E, K) The request of each edge's port."""
        return self.requests[self.port]

    def empty(self) -> Floats:
        """An allocation (E, K) of nothing."""
        return np.zeros((self.edges, self.requests.shape[1]))

    def reward(self, y: Floats, x: Floats) -> float:
        """q(x, y) of (8)."""
        found, overhead = self.gain_and_overhead(y, x)
        return found - overhead

    def gain_and_overhead(self, y: Floats, x: Floats) -> tuple[float, float]:
        """The two parts of (7), summed over the ports with an arrival (weighed by x)."""
        found: tuple[float, float] = _gain_and_overhead(
            self.first, self.port, self.alpha, self.form, self.beta, y, x
        )
        return found

    def violation(self, y: Floats) -> float:
        """By how much y breaks (5) or (6) at the worst, in units of what is broken where that is above 1."""
        return float(_violation(self.first, self.port, self.requests, self.capacities, y))

    def dense(self, y: Floats) -> Floats:
        """y as (L, R, K), 0 where there is no edge."""
        found = np.zeros((len(self.requests), len(self.capacities), self.requests.shape[1]))
        found[self.port, self.instance] = y
        return found


class Copies(NamedTuple):
    """Section 3.4: up to J_l arrivals of port l in a slot, as J_l ports that ask for the same."""

    ports: Ports
    of: Ints
    """(L',) The port that each is a copy of."""
    number: Ints
    """(L',) Which copy, from 1."""

    @classmethod
    def make(cls, ports: Ports, most: Ints) -> Copies:
        """`most` (L,) is J_l, 1 or more. Raises UsageError if not."""
        if len(most) != len(ports.requests) or (len(most) and int(np.min(most)) < 1):
            raise UsageError(f"most: {most}; give {len(ports.requests)} whole numbers, each 1 or more")
        of = np.repeat(np.arange(len(most)), most)
        number = np.concatenate([np.arange(1, many + 1) for many in most]) if len(most) else of
        adjacent = np.zeros((len(ports.requests), len(ports.capacities)), np.bool_)
        adjacent[ports.port, ports.instance] = True
        made = Ports.of(
            ports.requests[of],
            ports.capacities,
            adjacent[of],
            alpha=ports.alpha,
            form=ports.form,
            beta=ports.beta,
            names=[f"{ports.names[one]}#{n}" for one, n in zip(of, number, strict=True)],
            instances=ports.instances,
        )
        return cls(made, of.astype(np.int32), number.astype(np.int32))

    def arrivals(self, counts: Floats) -> Floats:
        """(L',) 1{j <= x_l} of counts x (L,)."""
        return (self.number <= counts[self.of]).astype(np.float64)


@compiled
def _gain_and_overhead(
    first: Ints, port: Ints, alpha: Floats, form: Codes, beta: Floats, y: Floats, x: Floats
) -> tuple[float, float]:
    resources = len(beta)
    totals = np.zeros((len(x), resources))
    found = 0.0
    for r in range(len(first) - 1):
        for e in range(first[r], first[r + 1]):
            there = x[port[e]]
            if there > 0.0:
                for k in range(resources):
                    found += there * gain(form[r, k], alpha[r, k], y[e, k])
                    totals[port[e], k] += y[e, k]
    overhead = 0.0
    for p in range(len(x)):
        worst = 0.0
        for k in range(resources):
            worst = max(worst, beta[k] * totals[p, k])
        overhead += x[p] * worst
    return found, overhead


@compiled
def _violation(first: Ints, port: Ints, requests: Floats, capacities: Floats, y: Floats) -> float:
    worst = 0.0
    for r in range(len(first) - 1):
        for k in range(capacities.shape[1]):
            total = 0.0
            for e in range(first[r], first[r + 1]):
                value, most = y[e, k], requests[port[e], k]
                if not value >= 0.0:  # nan is no allocation either
                    worst = max(worst, -value) if value < 0.0 else np.inf
                worst = max(worst, (value - most) / max(1.0, most))
                total += value
            worst = max(worst, (total - capacities[r, k]) / max(1.0, capacities[r, k]))
    return worst


def _table(name: str, values: Floats) -> Floats:
    found = np.ascontiguousarray(values, np.float64)
    if found.ndim != 2:
        raise UsageError(f"{name}: {found.ndim} dimensions; give a table of two")
    if not (np.isfinite(found) & (found >= 0)).all():
        raise UsageError(f"{name}: some are below 0, infinite or no numbers; give finite numbers, 0 or more")
    return found


def _spread(name: str, values: Floats | float, shape: tuple[int, ...]) -> Floats:
    given = np.asarray(values, np.float64)
    if given.shape not in ((), shape):
        raise UsageError(f"{name}: {given.shape}; give one number or {shape}")
    if not np.isfinite(given).all():
        raise UsageError(f"{name}: some are infinite or no numbers; give finite ones")
    return np.array(np.broadcast_to(given, shape))


def _names(what: str, given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    names = tuple(str(number) for number in range(count)) if given is None else tuple(given)
    if len(names) != count or len(set(names)) != count:
        raise UsageError(f"{what}: {len(names)} given, {len(set(names))} of them different; give {count}")
    return names
