"""Made-up statements through a mechanism, so that what it compiles is compiled before real ones come."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asad.admit.sow import Mechanism
from asad.admit.sow.announcements import Announcement, Run
from asad.admit.sow.promises import statement_of
from asad.admit.sow.statement import Bounds


def warm_up_mechanism(make: Callable[[Bounds], Mechanism]) -> None:
    """Made-up jobs through a mechanism that is thrown away, so that what it compiles is compiled before real ones come.

    Raises UsageError if its options cannot be.
    """
    mechanism = make(Bounds(8, 2, 4, 10.0, 8))
    made_up = Announcement(
        "made up", 1, 0.0, (Run(0.0, 5.0, 0.5), Run(5.0, 12.0, 0.5)), 5.0, "deadline", 60.0, ""
    )
    for number, present in enumerate((1, 2)):
        mechanism.step(present)
        mechanism.occupy(present, np.ones(12, np.int32))
        mechanism.submit(number, statement_of(made_up, present, 5.0, 1, mechanism.bounds))
        mechanism.tables(1)
        mechanism.arrive(number, present)
        mechanism.evict(present)
        mechanism.complete(number, present + 1)
    mechanism.restore(mechanism.state())
