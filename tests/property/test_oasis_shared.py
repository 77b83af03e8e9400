"""Resources that are on no server (licences): every scheme keeps to what there is, and OASiS to the optimum of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from asad.admit.elastic import Servers
from asad.admit.prices import bounds_of
from asad.admit.schemes import scheme_names
from asad_papers.oasis.constraints import violation
from asad_papers.oasis.offline_schedule import optimum
from asad_papers.oasis.scheme_figures import informed, make
from asad_papers.oasis.scheme_instances import Instance, draw_instance
from asad_papers.oasis.slots import simulate


def licensed(instance: Instance, there: float, seed: int = 0, shared: bool = True) -> Instance:
    """Two jobs of three want one to three licences a worker; the cluster has so many of them."""
    rng = np.random.default_rng(seed)
    servers = instance.servers
    columns = [
        np.column_stack((capacity, np.full(len(capacity), amount)))
        for capacity, amount in ((servers.workers, there), (servers.parameter_servers, 0.0))
    ]
    jobs = [
        replace(
            job,
            worker=np.append(job.worker, float(rng.integers(1, 4)) if number % 3 else 0.0),
            server=np.append(job.server, 0.0),
        )
        for number, job in enumerate(instance.jobs)
    ]
    name = "license/x"
    made = Servers((*servers.resources, name), columns[0], columns[1], (name,) if shared else ())
    return replace(instance, servers=made, jobs=tuple(jobs))


@pytest.mark.parametrize("name", scheme_names())
@pytest.mark.parametrize("seed", range(3))
def test_no_scheme_gives_out_more_licences_than_there_are(name: str, seed: int) -> None:
    instance = licensed(draw_instance(40, seed, slots=30, servers=8, most_chunks=15), 12.0, seed)
    jobs = list(instance.jobs)
    jobs[::5] = [replace(job, rigid=True, server_bandwidth=0.0, fixed_workers=2) for job in jobs[::5]]
    instance = replace(instance, jobs=tuple(jobs))
    outcome = simulate(instance.servers, jobs, make(name, instance), instance.slots)
    taken = [
        sum(given.width * jobs[number].worker[-1] for number, given in slot.items())
        for slot in outcome.allotted
    ]
    assert max(taken) <= 12.0 and outcome.utility > 0
    assert max(taken) >= 9.0, "they are what is short"
    assert violation(instance.servers, jobs, outcome.schedules(), instance.slots) is None


@pytest.mark.parametrize("name", scheme_names())
def test_on_one_server_it_is_a_resource_like_any_other(name: str) -> None:
    drawn = draw_instance(30, 5, slots=30, servers=1, parameter_servers=4, most_chunks=10)
    found = []
    for shared in (True, False):
        instance = licensed(drawn, 6.0, shared=shared)
        outcome = simulate(instance.servers, instance.jobs, make(name, instance), instance.slots)
        found.append([(ran.finished, ran.verdict.admitted) for ran in outcome.jobs])
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(4))
def test_one_job_gets_what_the_solver_gives_it(seed: int) -> None:
    drawn = draw_instance(1, seed, slots=8, servers=5, most_chunks=8)
    job = replace(drawn.jobs[0], arrival=0, work=12)
    instance = licensed(replace(drawn, jobs=(job,)), 5.0, seed)
    instance = replace(
        instance, jobs=tuple(replace(one, worker=np.append(one.worker[:-1], 2.0)) for one in instance.jobs)
    )
    best = optimum(instance.servers, instance.jobs, instance.slots)
    assert best.proven and best.utility > 0
    free = bounds_of(instance.jobs, instance.servers, instance.slots)
    low = free._replace(worker_low=free.worker_low * 1e-9, server_low=free.server_low * 1e-9)
    scheme = informed(instance, low)
    assert simulate(instance.servers, instance.jobs, scheme, instance.slots).utility == pytest.approx(
        best.utility, rel=1e-6
    )


def test_a_scarce_licence_costs_more_than_cores_that_are_free() -> None:
    instance = licensed(draw_instance(40, 1, slots=30, servers=8, most_chunks=15), 4.0)
    scheme = make("oasis", instance)
    for number, job in enumerate(instance.jobs):
        scheme.arrive(number, job)
    plain = np.append(instance.jobs[1].worker[:-1], 0.0)
    wants = np.append(plain[:-1], 1.0)
    last = instance.jobs[-1].arrival
    free, dear = (min(scheme.worker_prices(last, one)) for one in (plain, wants))  # type: ignore[attr-defined]
    assert dear > free > 0
