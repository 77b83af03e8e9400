"""Shares of guests that run: what one is given, the next one does not find."""

from __future__ import annotations

import numpy as np
import pytest
from small_cluster import GUEST, cluster

from asad.share.asax.revision import _take
from asad.share.openings import new_openings, view_of


def test_what_a_guest_is_given_is_counted_once_on_each_of_its_nodes() -> None:
    snapshot = cluster()
    snapshot.core_guest[:] = [
        GUEST,
        -1,
        GUEST,
        -1,
        -1,
        -1,
        -1,
        -1,
    ]  # its cores on the node are not side by side
    openings = new_openings(2, len(snapshot.jobs.cores))
    openings.room[:] = 0.7
    _take(view_of(snapshot, np.array([0, 4, 8])), openings, GUEST, 0.2)
    assert openings.room == pytest.approx([0.5, 0.7])
