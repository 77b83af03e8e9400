"""Workers and parameter servers, two groups of one elastic job, are scaled together. Pure.

In OASiS (IEEE INFOCOM 2018, constraints 6 and 7) the parameter servers of a slot follow from its workers: each serves
so many. Here that is the ratio of the two groups as they were submitted, so that a job at its full width has all of
both.
"""

from __future__ import annotations

import math

from asad_mesos.job_spec import Spec


def scaled(spec: Spec, group: int, tasks: int) -> dict[str, int]:
    """Tasks by group when at most `tasks` of one of them run (0: no bound).

    `group` is its number. The first group takes the others along, in proportion, rounded up: none without workers, and
    never fewer than one with some. Another group, or a first one whose job names its parameter servers itself (`ps=…`
    in its hint; admission sizes both then), is changed alone.
    """
    most = spec.groups[group].tasks
    wanted = most if tasks <= 0 else min(tasks, most)
    found = {spec.groups[group].name: wanted}
    if group == 0 and not any(word.strip().startswith("ps=") for word in spec.hint.split(";")):
        for other in spec.groups[1:]:
            found[other.name] = math.ceil(other.tasks * wanted / most)
    return found
