"""No stage takes back what another gave: all stages at once over drawn mixes of jobs of all kinds.

That means: a job is held back by one policy alone, ever; a guest is made, and its quota and limit set, by one alone,
the place policy if it is a gang and the share policy if not, and no offer is made of what another has; in no cycle is a
job both held and let go; who was let go because his latest start came is held by nobody again; nobody is made a guest
while he is held; nobody is evicted but whose statement says so, and by who planned it; and every job is run to an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asad.config import Config, load
from asad.decisions import CoAllocate, Defer, Evict, ExtendLimit, Outcome, SetMemory, SetQuota, Start
from asad.errors import ConfigError
from asad.replay.cpu_demand import assign
from asad.replay.machine import from_flags
from asad.replay.playing import beside
from asad.replay.policies import CONFIGURED
from asad.replay.readers import read_log
from asad.replay.replay_settings import Settings
from asad.replay.stated import Stated
from asad.replay.workbench import prepare
from asad.stages import stages_of
from asad.two_lenders import is_gang
from asad_papers.together.mixed_kinds import mixed

SHARES = {"statement": 0.2, "deferrable": 0.2, "elastic": 0.2, "gang": 0.2}


class Watch:
    """A run that keeps what was done, by cycle."""

    def __init__(self) -> None:
        self.cycles: list[tuple[float, list[Outcome]]] = []

    def record(self, number: int, time_s: float, outcomes: Sequence[Outcome], *_: Any, **__: Any) -> None:
        self.cycles.append((time_s, [one for one in outcomes if one.done]))
        twice = [one.reason for one in outcomes if one.veto in ("pool", "memory", "one guest a core")]
        assert not twice


def configured(path: Path, admit: str, defer: str, place: str = "native") -> Config:
    file = path / "asad.toml"
    file.write_text(
        f'[policies]\nadmit = "{admit}"\ndefer = "{defer}"\nplace = "{place}"\nshare = "measured"\n'
    )
    return load(file)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10_000),
    st.sampled_from(("sow+oasis", "oasis+sow")),
    st.sampled_from(("edf", "lookahead")),
    st.sampled_from(("oga", "drf", "native")),
)
def test_no_stage_takes_back_what_another_gave(
    tmp_path: Path, seed: int, admit: str, defer: str, place: str
) -> None:
    chance = np.random.default_rng(seed)
    lines, at = ["; MaxNodes: 4", "; MaxProcs: 16"], 0
    for number in range(1, 81):
        at += int(chance.exponential(400)) + 1
        run, cores = int(chance.exponential(2500)) + 60, int(chance.choice([1, 2, 4, 8]))
        name, user, limit = int(chance.integers(4)), int(chance.integers(3)), int(run * chance.uniform(1, 3))
        cpu = int(run * chance.uniform(0.2, 1))
        lines.append(
            f"{number} {at} -1 {run} {cores} {cpu} -1 {cores} {limit} -1 1 {user} 1 {name} -1 -1 -1 -1"
        )
    log = tmp_path / "log.swf"
    log.write_text("\n".join(lines) + "\n")
    recorded = read_log(str(log))
    drawn = mixed(recorded.jobs, seed, SHARES)
    fingerprint, names = drawn.jobs.fingerprints()
    asked = Settings((CONFIGURED,), seed, config=configured(tmp_path, admit, defer, place))
    demand = assign(drawn.jobs, fingerprint, names, asked.demand, seed)
    stated = Stated(drawn.made, drawn.jobs, asked.slot_s, inferred=False)
    mix = replace(recorded, jobs=drawn.jobs)
    bench = prepare(mix, from_flags(4, 4, None), asked, demand, [], stated=stated)
    watch = Watch()
    played = beside(bench, CONFIGURED, watch)  # type: ignore[arg-type]

    array = played.cluster.workload.array
    assert array is not None

    def key(row: int) -> int:
        return row if array[row] < 0 else -1 - int(array[row])

    hint, hints = drawn.jobs.hint, drawn.jobs.hints
    assert hint is not None
    row_is_gang = [code >= 0 and is_gang(hints[code]) for code in hint.tolist()]
    lent_by: dict[int, str] = {}
    held_by: dict[int, str] = {}
    until: dict[int, float] = {}
    urgent: set[int] = set()
    announced = {row for _, row in stated.pairs}
    for time_s, outcomes in watch.cycles:
        held, let_go = set(), set()
        for outcome in outcomes:
            decision = outcome.decision
            if isinstance(decision, Defer):
                job = key(decision.job)
                assert held_by.setdefault(job, decision.cause.policy) == decision.cause.policy
                assert job not in urgent
                held.add(job)
                until[job] = decision.until_s
            elif isinstance(decision, Start):
                job = key(decision.job)
                let_go.add(job)
                until.pop(job, None)
                if decision.cause.detail.get("urgent") is True:
                    urgent.add(job)
            elif isinstance(decision, SetQuota | SetMemory | ExtendLimit):
                row = decision.guest if isinstance(decision, SetQuota) else decision.job
                if row in lent_by:  # else a batch job
                    assert decision.cause.policy == lent_by[row]
            elif isinstance(decision, CoAllocate):
                lender = place if place != "native" and row_is_gang[decision.guest] else "measured"
                assert decision.cause.policy == lent_by.setdefault(decision.guest, lender)
                assert until.get(key(decision.guest), 0.0) <= time_s
            elif isinstance(decision, Evict):
                assert decision.job in announced and decision.cause.policy == "sow"
        assert not held & let_go
    assert held_by
    assert np.isfinite(played.column("end").astype(float)).all()


def test_what_stands_side_by_side_is_named_and_known(tmp_path: Path) -> None:
    stages = stages_of(configured(tmp_path, "sow+oasis", "edf"), [])
    assert [part.name for part in stages.admit.parts] == ["sow", "oasis"]
    with pytest.raises(ConfigError, match="none of the choices"):
        configured(tmp_path, "sow+nothing", "edf")
