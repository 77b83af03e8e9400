"""Baselines on the recorded instances: total utilities as an implementation that is not ours found them."""

from __future__ import annotations

from pathlib import Path

import pytest

from asad.admit.schemes import scheme_maker
from asad_papers.oasis.scheme_instances import read_instance
from asad_papers.oasis.slots import simulate

NAMES = [f"jobs{jobs}_seed{seed}" for jobs in (50, 100, 200) for seed in range(5)]


@pytest.mark.traces
@pytest.mark.parametrize("scheme", ["fifo", "drf"])
@pytest.mark.parametrize("name", NAMES)
def test_utility_is_the_reference(data: Path, name: str, scheme: str) -> None:
    instance = read_instance(data / "oasis" / f"{name}.json")
    outcome = simulate(
        instance.servers,
        instance.jobs,
        scheme_maker(scheme, {})(instance.servers, instance.slots),
        instance.slots,
    )
    assert outcome.utility == pytest.approx(instance.reference[scheme], rel=1e-6)
