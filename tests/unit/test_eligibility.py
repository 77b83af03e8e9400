"""Who may lend and who may be a guest: one table of rules, the same answers live and in a replay."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from asad.cluster.eligibility import (
    JobFacts,
    Lend,
    guest_ineligible,
    guests_ineligible,
    host_ineligible,
    hosts_ineligible,
    lend_of,
)
from asad.errors import ConfigError
from asad.ineligible import Ineligible

SWITCHED_OFF = Lend(multi_node=False)
EVERYBODY = Lend(multi_node=True, gres=True, whole_memory=True, exclusive=True)


@pytest.mark.parametrize(
    ("facts", "host", "switched_off", "guest"),
    [
        ({}, "NO", "NO", "NO"),
        ({"nodes": 4}, "NO", "SEVERAL_NODES", "NO"),
        ({"heterogeneous": True}, "NO", "HETEROGENEOUS", "HETEROGENEOUS"),
        ({"gres": True}, "GRES", "GRES", "GRES"),
        ({"gres": True, "nodes": 2}, "GRES", "SEVERAL_NODES", "GRES"),
        ({"whole_memory": True}, "ALL_MEMORY", "ALL_MEMORY", "ALL_MEMORY"),
        ({"exclusive": True}, "EXCLUSIVE", "EXCLUSIVE", "EXCLUSIVE"),
        ({"reservation": True}, "RESERVATION", "RESERVATION", "RESERVATION"),
        ({"suspended": True}, "NOT_ITS_TURN", "NOT_ITS_TURN", "NO"),
        ({"licences": True}, "NO", "NO", "LICENCES"),
        ({"dependency": True}, "NO", "NO", "DEPENDENCY"),
        ({"time_limit": False}, "NO", "NO", "NO_TIME_LIMIT"),
        ({"waits_turn": False}, "NO", "NO", "NOT_ITS_TURN"),
        ({"limit": True, "waits_turn": False}, "NO", "NO", "LIMIT"),
        ({"estimate": False}, "NO", "NO", "NO_ESTIMATE"),
    ],
)
def test_rules(facts: dict[str, bool | int], host: str, switched_off: str, guest: str) -> None:
    job = JobFacts(**facts)  # type: ignore[arg-type]
    assert host_ineligible(job, Lend()).name == host
    assert host_ineligible(job, SWITCHED_OFF).name == switched_off
    assert guest_ineligible(job).name == guest


def test_each_kind_of_host_has_its_switch() -> None:
    kinds = {"gres": "gres", "whole_memory": "whole_memory", "exclusive": "exclusive"}
    for fact, switch in kinds.items():
        assert host_ineligible(JobFacts(**{fact: True}), Lend())  # type: ignore[arg-type]
        assert not host_ineligible(JobFacts(**{fact: True}), replace(Lend(), **{switch: True}))  # type: ignore[arg-type]
    assert not host_ineligible(JobFacts(nodes=9, gres=True, exclusive=True, whole_memory=True), EVERYBODY)


@pytest.mark.parametrize("lend", [Lend(), SWITCHED_OFF, EVERYBODY])
def test_columns_get_the_answers_that_single_jobs_get(lend: Lend) -> None:
    names = JobFacts._fields
    rows = [(1, *truths) for truths in product((False, True), repeat=len(names) - 1)]
    rows += [(nodes, *truths[1:]) for truths in rows[:64] for nodes in (0, 2, 3, 500)]
    columns = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    jobs = [JobFacts(*row) for row in rows]
    hosts, guests = hosts_ineligible(columns, lend), guests_ineligible(columns)
    assert hosts is not None and hosts.tolist() == [host_ineligible(job, lend) for job in jobs]
    assert guests is not None and guests.tolist() == [guest_ineligible(job) for job in jobs]


def test_columns_of_whom_all_take_part_are_none() -> None:
    columns = {"nodes": np.array([1, 0, 7]), "gres": np.zeros(3, np.bool_)}
    assert hosts_ineligible(columns, Lend()) is None and guests_ineligible(columns) is None
    few = hosts_ineligible(columns, SWITCHED_OFF)
    assert few is not None and few.tolist() == [0, 0, Ineligible.SEVERAL_NODES]
    assert guests_ineligible({"gres": np.zeros(0, np.bool_)}) is None


def test_the_table_of_a_plugin_is_read() -> None:
    assert lend_of({}) == lend_of({"lend": {}, "depth": 3}) == Lend()
    assert lend_of({"lend": {"multi_node": False}}) == SWITCHED_OFF
    for wrong in (["gres"], "gres", True):
        with pytest.raises(
            ConfigError, match=r"\[slurm\] lend: .* is no table; write \[slurm.lend\] and below"
        ):
            lend_of({"lend": wrong})
    with pytest.raises(
        ConfigError, match=r"\[slurm.lend\] gpu: there is no such setting; known are multi_node"
    ):
        lend_of({"lend": {"gpu": True}})
