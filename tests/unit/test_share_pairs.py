"""Pairs that no policy proposes."""

from __future__ import annotations

import pytest
from small_cluster import OTHER_HOST, WAITING, cluster

from asad.share.static import Static


@pytest.mark.parametrize(
    ("columns", "hosts"),
    [
        ({}, {OTHER_HOST}),  # the other one has a guest
        ({"memory_bound": {OTHER_HOST: 1}}, {OTHER_HOST}),
        ({"memory_bound": {WAITING: 1}}, {OTHER_HOST}),
        ({"memory_bound": {OTHER_HOST: 1, WAITING: 1}}, set()),
        ({"share_group": {WAITING: 1, OTHER_HOST: 1}}, {OTHER_HOST}),
        ({"share_group": {WAITING: 1}}, set()),
    ],
)
def test_neither_of_two_groups_nor_both_memory_bound(
    columns: dict[str, dict[int, float]], hosts: set[int]
) -> None:
    snapshot = cluster(offered_s={}, **columns)
    decisions = Static(0.5).decide(snapshot)
    assert {getattr(one, "host", -1) for one in decisions if getattr(one, "guest", -1) == WAITING} == hosts
