"""All or nothing (section 3.5 of OgaSched): a gang that falls short has nothing, and others share in what it leaves.

The bench deals y to the components of the paper's gangs, a cluster to jobs that wait for several nodes at once; what
they have in common is this.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asad.model import Floats


def whole_gangs(
    y: Floats,
    present: Floats,
    deal: Callable[[Floats, Floats], tuple[Floats, Floats]],
    among: Callable[[Floats], Floats],
) -> Floats:
    """What `deal` makes of y once no gang in `present` (L,) falls short.

    `deal` gives an allocation and by which share of its least number each port's gang falls short (L,). The one
    furthest from it is dropped from `present`, where it stands, and the rest share anew: `among` gives y for those who
    are left. At most L rounds.
    """
    while True:
        dealt, short = deal(y, present)
        if not short.any():
            return dealt
        present[int(np.argmax(short))] = 0.0
        y = among(present)
