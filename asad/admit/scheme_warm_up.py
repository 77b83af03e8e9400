"""Made-up jobs through a scheme, so that what it compiles is compiled before real ones come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from asad.admit.elastic import ElasticJob, Scheme, Servers
from asad.admit.utility import Constant


def warm_up_scheme(make: Callable[[Servers, int], Scheme]) -> int:
    """Made-up jobs through a scheme that is thrown away, so that what it compiles is compiled before real ones come.

    Compiling takes up to a minute where nothing is cached. Returns the workers of the job's first slot.
    """
    servers = Servers(("cores", "memory"), np.full((2, 2), 8.0), np.zeros((0, 2)))
    scheme = make(servers, 8)
    none = np.zeros(2)
    job = ElasticJob("made up", 5, np.array([1.0, 2.0]), none, 0.0, 0.0, 4, 6, Constant(10.0), 8.0, 4)
    occupy, extend = getattr(scheme, "occupy", None), getattr(scheme, "extend", None)
    if occupy is not None:
        occupy(5, np.ones((8, 2, 2)))
    scheme.arrive(1, job)
    scheme.arrive(2, job)
    scheme.arrive(3, replace(job, rigid=True, most_workers=1, fixed_workers=1))
    if extend is not None:
        extend(1, 5, 2)
        extend(2, 5, 10_000)  # which fits nowhere: it is given all the room there is
    width = sum(there.width for there in scheme.allot(5, {1: 6, 2: 6, 3: 6}).values())
    leave = getattr(scheme, "leave", None)
    if leave is not None:
        leave(2, 5)
        leave(3, 5)
    return width
