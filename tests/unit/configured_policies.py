"""A policy of a test in the place of a configured one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from asad import stages

configured = stages.policy_of


def put_policy(monkeypatch: pytest.MonkeyPatch, stage: str, make: Callable[[Sequence[str]], Any]) -> None:
    """Whatever the configuration names for that stage, `make` gives it, for those applications."""

    def policy_of(config: Any, of: str, made_in: Any = None) -> Any:
        return make(made_in.applications) if of == stage else configured(config, of, made_in)

    monkeypatch.setattr(stages, "policy_of", policy_of)
