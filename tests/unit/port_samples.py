"""Ports for tests: random ones of any form, with caps that bind, capacities that are slack, and zeros."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from asad.model import Floats
from asad.place.ports import Ports
from asad.place.utilities import FORMS


def random_ports(
    seed: int,
    *,
    ports: int = 5,
    instances: int = 6,
    resources: int = 3,
    tight: float = 1.0,
    form: str | None = None,
    zeros: bool = True,
) -> Ports:
    """`tight` is the usual ratio of requests to capacities."""
    rng = np.random.default_rng(seed)
    capacities = rng.uniform(0.1, 5.0, (instances, resources))
    requests = tight * rng.uniform(0.05, 5.0, (ports, resources))
    if zeros:
        capacities[rng.random(capacities.shape) < 0.1] = 0.0
        requests[rng.random(requests.shape) < 0.1] = 0.0
    codes = rng.integers(0, len(FORMS), (instances, resources)).astype(np.int8)
    if form is not None:
        codes[:] = FORMS.index(form)
    return Ports.of(
        requests,
        capacities,
        rng.random((ports, instances)) < 0.6,
        alpha=rng.uniform(1.0, 1.5, (instances, resources)),
        form=codes,
        beta=rng.uniform(0.0, 0.6, resources),
    )


def arrivals(seed: int, ports: int, slots: int, probability: float = 0.7) -> Floats:
    return (np.random.default_rng(seed).random((slots, ports)) < probability).astype(np.float64)


many_ports = st.builds(
    random_ports,
    st.integers(0, 2**32),
    ports=st.integers(1, 9),
    instances=st.integers(1, 8),
    resources=st.integers(1, 4),
    tight=st.sampled_from([0.05, 0.3, 1.0, 4.0]),
)
