"""Warming up meets what a live cycle meets: after it nothing is left to compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from asad.config import parse
from asad.share.asax import _draw
from asad.share.pool.pool_policy import _decide, _learn
from asad.stages import Circumstances, policy_of
from asad.warm_up import warm_up


@pytest.mark.parametrize("name", ["asax", "measured", "asax-paper", "static", "exclusive"])
def test_every_policy_can_be_warmed_up(name: str) -> None:
    policy = policy_of(
        parse(f"[policies]\nshare = '{name}'", Path("asad.toml")), "share", Circumstances(["a/b/1"], 0)
    )
    decided = warm_up(policy)
    assert (decided > 0) == (name != "exclusive")


def test_warming_up_compiles_what_decides() -> None:
    warm_up(policy_of(parse("", Path("asad.toml")), "share", Circumstances(["a/b/1"], 0)))
    for function in (_learn, _draw, _decide):  # all the others are compiled into these
        assert function.signatures, function
