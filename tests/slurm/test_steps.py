"""Steps of a real job, as the node actor counts them."""

from __future__ import annotations

import time
from pathlib import Path

from asad.node.cgroups import Cgroups
from asad.node.profile import Profile
from asad.node.quotas import Quotas
from lab.slurm import CGROUP, RealSlurm

SCRIPT = """#!/bin/sh
srun -n1 sleep 1
srun -n1 true
srun -n1 sleep 1
sleep 60
"""


def test_steps_that_have_ended_are_counted(slurm: RealSlurm, tmp_path: Path) -> None:
    job = slurm.run("sbatch", "--parsable", "-n1", "-t5", "-o/dev/null", script=SCRIPT).strip()
    cgroups, deadline = {}, time.monotonic() + 300.0
    for node in slurm.node_names:
        found = Cgroups(CGROUP, node)
        profile = Profile(found, Quotas(found, tmp_path, time.time), time.time, tmp_path / node)
        cgroups[node] = found, profile
    seen: list[int] = []
    while not seen or seen[-1] < 3:
        assert time.monotonic() < deadline, f"steps that had ended: {seen}"
        for found, profile in cgroups.values():
            now_s = time.monotonic()
            profile.follow(found.jobs(now_s))
            sample = profile.look(now_s, ()).get(job)
            if sample is not None:
                seen.append(sample.steps_done)
        time.sleep(0.2)
    assert seen == sorted(seen) and set(seen) <= {0, 1, 2, 3} and seen[0] == 0
    for _, profile in cgroups.values():
        profile.close()
