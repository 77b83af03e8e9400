"""The job model of admission: slots, servers, and jobs whose number of workers may change from slot to slot.

All policies of this stage but `everyone` work on it, on generated instances as on real clusters. Time is cut into slots
of equal length, numbered from 0; a job that arrives in slot `a` and completes in slot `t` has run for `t - a + 1` slots
at most. Workers sit on worker servers, parameter servers (where a job has them) on parameter servers.

Source: Bao, Peng, Wu, Li: Online Job Scheduling in Distributed Machine Learning Clusters (INFOCOM 2018), section III.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from asad.admit import AdmitPolicy
from asad.admit.admission_options import Options
from asad.model import Floats, Ints
from asad.policy import Given, Policy, parameters, parted


class Utility(Protocol):
    """What a job is worth by the time it took."""

    def __call__(self, slots: float) -> float:
        """Worth if it completes in the `slots`-th slot after (and with) its arrival; never rises with `slots`."""
        ...


@dataclass(frozen=True, slots=True)
class Servers:
    """Physical servers. R resources, H worker servers, K parameter servers."""

    resources: tuple[str, ...]
    workers: Floats
    """(H, R) capacity of each worker server."""
    parameter_servers: Floats
    """(K, R) capacity of each parameter server."""
    shared: tuple[str, ...] = ()
    """Resources that are on no server (licences): each row of `workers` shows all there is, and whoever takes some
    takes it of every row. Parameter servers have and take none."""

    @property
    def is_shared(self) -> NDArray[np.bool_]:
        """(R,) which resources those are."""
        return np.array([name in self.shared for name in self.resources], np.bool_)

    def total(self, capacity: Floats) -> Floats:
        """(R,) what one kind of servers, `workers` or `parameter_servers`, holds in all."""
        if not len(capacity):
            return np.zeros(len(self.resources))
        total: Floats = np.where(self.is_shared, capacity[0], capacity.sum(axis=0, dtype=np.float64))
        return total


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """One job: `work` worker-slots to do, by at most `most_workers` at one time."""

    name: str
    arrival: int
    """Slot."""
    worker: Floats
    """(R,) what one worker takes."""
    server: Floats
    """(R,) what one parameter server takes."""
    worker_bandwidth: float
    server_bandwidth: float
    """b and B of the paper, in one unit: y workers need ceil(y·b / B) parameter servers, at least one and at most y.
    B = 0: the job has no parameter servers."""
    most_workers: int
    """N."""
    work: int
    """W: worker-slots, rounded up."""
    utility: Utility
    target_slots: float
    """γ3 of a sigmoid: by when it is to be done; for other utilities the time at which the worth begins to fall."""
    fixed_workers: int = 1
    """How many workers schemes give it that cannot change their number (FIFO, RRH)."""
    rigid: bool = False
    """It can neither pause nor move nor change its number of workers: `fixed_width` of them, on the same servers in
    consecutive slots, until it is done. The paper's jobs are not."""

    @property
    def fixed_width(self) -> int:
        """Workers of a job whose number never changes."""
        return min(self.fixed_workers, self.most_workers)

    @property
    def servers_per_worker(self) -> float:
        """b / B; 0 for a job without parameter servers."""
        return self.worker_bandwidth / self.server_bandwidth if self.server_bandwidth > 0 else 0.0

    def servers_for(self, workers: int) -> int:
        """Parameter servers that `workers` workers need (constraints 7 and 8); more than workers are never needed."""
        if workers == 0 or self.server_bandwidth <= 0:
            return 0
        return max(1, int(np.ceil(workers * self.worker_bandwidth / self.server_bandwidth - 1e-9)))


@dataclass(frozen=True, slots=True)
class Allotment:
    """What one job has in one slot: which servers, and how many there. Only servers with at least one are named."""

    worker_server: Ints
    workers: Ints
    parameter_server: Ints
    servers: Ints

    @property
    def width(self) -> int:
        """Workers in all."""
        return int(self.workers.sum())


Schedule = Mapping[int, Allotment]
"""By slot, in rising order; slots without workers are not named."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a scheme says of a job that arrived."""

    admitted: bool
    reason: str
    """One sentence for its user."""
    schedule: Schedule | None = None
    """What is planned for it, of schemes that plan ahead."""
    payoff: float = float("nan")
    """Utility less the price of what it takes; NaN of schemes without prices."""
    cost: float = float("nan")
    utility: float = float("nan")
    """At its planned completion."""


class Scheme(Policy):
    """A policy on the job model: asked at each arrival, and at each slot for who gets what.

    A class of its own is made with the servers, with `horizon` if it plans so many slots ahead, and with its options.
    """

    stage = "admit"
    option_type = Options

    def arrive(self, number: int, job: ElasticJob) -> Verdict:
        """Job `number` has arrived, in slot `job.arrival`; jobs of one slot in the order of their arrival."""
        raise NotImplementedError

    def allot(self, slot: int, left: Mapping[int, int]) -> Mapping[int, Allotment]:
        """Who gets what in `slot`; `left` holds the worker-slots still to do of every admitted job not yet done."""
        raise NotImplementedError

    @classmethod
    def own_options(cls) -> dict[str, Any]:
        """What can be set of this scheme, wherever it is used."""
        return {name: value for name, value in parameters(cls).items() if name != "horizon"}

    @classmethod
    def maker(cls, **options: Any) -> Callable[[Servers, int], Self]:
        """How to make it over servers, planning so many slots ahead if it plans at all."""
        plans = "horizon" in inspect.signature(cls).parameters
        make: Callable[..., Self] = cls
        if plans:
            return lambda servers, horizon: make(servers, horizon=horizon, **options)
        return lambda servers, _: make(servers, **options)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Those of every scheme on a cluster, too."""
        return super().defaults() | cls.own_options()

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> AdmitPolicy:
        """The policy that drives it on a cluster."""
        from asad.admit.admission_policy import Admission  # works on the job model of this file

        common, own = parted(options, Options)
        return Admission(
            given.called or cls.name,
            cls.maker(**own),
            given.applications,
            common,
            given.rules,
            own_utilities=given.utilities,
            most_defer_s=given.most_defer_s,
        )


@runtime_checkable
class PlansAhead(Protocol):
    """What a scheme can do besides that fixes its schedules when a job arrives."""

    def leave(self, number: int, slot: int) -> None:
        """Job `number` is done or gone: what it holds from `slot` on is free."""
        ...

    def extend(self, number: int, slot: int, work: int) -> Schedule:
        """Plan `work` more worker-slots from `slot` on at present prices; its schedule from then on."""
        ...

    def resume(self, number: int, job: ElasticJob, schedule: Schedule) -> None:
        """Hold what was planned in an earlier life."""
        ...

    def occupy(self, slot: int, workers: Floats, servers: Floats | None = None) -> None:
        """(T, H, R) what others hold of the worker servers from `slot` on; replaces what was given before.

        (T, K, R) of the parameter servers, if there are any.
        """
        ...
