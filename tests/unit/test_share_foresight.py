"""When `asax` plays the queue ahead: few jobs, well known, and a search that is done in time."""

from __future__ import annotations

import numpy as np
import pytest
from small_cluster import GUEST, HOST, OFFERED, OTHER_HOST, WAITING, cluster

from asad.share.asax.options import Options
from asad.share.asax.outlook import foreseeable, outlook
from asad.share.history import History, new_history
from asad.share.openings import View, find, new_openings, view_of

FIRST_CORE = np.array([0, 4, 8])


def seen() -> View:
    return view_of(cluster(), FIRST_CORE)


def known(runs_s: tuple[float, ...] = (1200.0, 1300.0)) -> History:
    """History of application 0, whose runs took so long."""
    history = new_history(1)
    for row in (0, 1):
        history.runs[row] = len(runs_s)
        history.run[row] = sum(runs_s)
        history.run_squares[row] = sum(run * run for run in runs_s)
        history.cpu[row], history.measured[row] = 0.5 * len(runs_s), len(runs_s)
    return history


def test_few_jobs_that_are_well_known_are_foreseen() -> None:
    assert foreseeable(seen(), known(), Options())


@pytest.mark.parametrize(
    ("history", "options"),
    [
        (new_history(1), Options()),  # nothing is known
        (known((300.0, 3000.0)), Options()),  # runs differ too much
        (known(), Options(look_ahead=1)),
        (known(), Options(scenarios=1_000_000)),  # it would take too long
    ],
)
def test_other_queues_are_judged_pair_by_pair(history: History, options: Options) -> None:
    assert not foreseeable(seen(), history, options)


def test_an_outlook_tells_cores_nodes_and_shares_as_they_are() -> None:
    view, openings = seen(), new_openings(2, 5)
    find(view, np.array([0.6, 0.7, 0.0, 0.0, 0.0]), 0.1, openings)
    a = outlook(view, openings, known(), Options())
    assert a.rows.tolist() == [HOST, OTHER_HOST, WAITING]  # the one that has an offer waits no more
    assert view.queue.tolist() == [WAITING, OFFERED] and view.guests.tolist() == [GUEST]
    assert a.held.tolist() == [[4, 0], [0, 4], [0, 0]]
    assert a.taken.tolist() == [[2, 0], [0, 0]]
    assert a.guest_share.tolist() == [0.3]
    assert a.lends.tolist() == [True, True, True]
    assert a.joins.tolist() == [True]
