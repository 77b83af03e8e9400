"""The rehearsal meets what a live cycle meets: after it nothing is left to compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from asad.config import parse
from asad.policies import share_policy
from asad.share.asax import _draw
from asad.share.pool.policy import _decide, _learn
from asad.share.rehearsal import rehearse


@pytest.mark.parametrize("name", ["asax", "measured", "asax-paper", "static", "exclusive"])
def test_every_policy_can_be_rehearsed(name: str) -> None:
    policy = share_policy(parse(f"[policies]\nshare = '{name}'", Path("asad.toml")), ["a/b/1"], 0)
    decided = rehearse(policy)
    assert (decided > 0) == (name != "exclusive")


def test_a_rehearsal_compiles_what_decides() -> None:
    rehearse(share_policy(parse("", Path("asad.toml")), ["a/b/1"], 0))
    for function in (_learn, _draw, _decide):  # all the others are compiled into these
        assert function.signatures, function
