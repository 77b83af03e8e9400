"""A dashboard held to Grafana's own models (the Grafana Foundation SDK, which is made from Grafana's schemas)."""

from __future__ import annotations

import json
import re
import warnings
from enum import Enum
from importlib import import_module
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

SDK = "grafana_foundation_sdk"


def unknown_to_grafana(board: dict[str, Any]) -> list[str]:
    """What the models do not carry, panels and data sources of no known type, wrong values, and units that there are
    not."""
    pytest.importorskip(SDK, reason="no grafana-foundation-sdk (pip install '.[test]')")
    with warnings.catch_warnings():  # they would rather have the schema that older versions do not read
        warnings.simplefilter("ignore", DeprecationWarning)
        names = ("models.dashboard", "models.units", "cog.encoder", "cog.plugins", "cog.runtime")
        models, units, encoder, plugins, runtime = (import_module(f"{SDK}.{name}") for name in names)
        plugins.register_default_plugins()
    read = models.Dashboard.from_json(board)
    wrong = sorted(leaves(board) - leaves(json.loads(encoder.JSONEncoder().encode(read))))
    wrong += misfits(read, models.Dashboard, "dashboard")
    for panel in (panel for panel in read.panels if panel.type_val != "row"):
        # what is of no known type stays plain JSON
        plain = [
            part
            for part in (panel.options, *panel.targets)
            if isinstance(part, dict | runtime.UnknownDataquery)
        ]
        wrong += [panel.title] * len(plain)
    used = re.findall(r'"unit": "([^"]*)"', json.dumps(board))
    return wrong + sorted({*used} - {*map(str, vars(units).values())})


def leaves(value: Any, place: str = "") -> set[str]:
    """All that is neither object nor list, with its place."""
    if not isinstance(value, dict | list):
        return {f"{place} = {value!r}"}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {leaf for key, part in parts for leaf in leaves(part, f"{place}/{key}")}


def misfits(value: Any, hint: Any, place: str) -> list[str]:
    """Places of values that are not of the type that the models declare: they read what they are given unseen."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return min((misfits(value, part, place) for part in parts), key=len)
    if kind is Literal:
        return [] if value in parts else [place]
    if kind in (list, dict) and isinstance(value, kind):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [one for key, item in items for one in misfits(item, parts[-1], f"{place}/{key}")]
    if isinstance(value, dict) and hasattr(hint, "from_json"):
        value = hint.from_json(value)  # some parts the models leave as they are
    if type(value).__module__.startswith(f"{SDK}.models") and not isinstance(value, Enum):
        found = [] if not isinstance(hint, type) or isinstance(value, hint) else [place]
        for name, declared in get_type_hints(type(value)).items():
            found += misfits(getattr(value, name), declared, f"{place}/{name}")
        return found
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [] if value in [member.value for member in hint] else [place]
    if hint is float:
        return [] if isinstance(value, int | float) else [place]
    return [] if not isinstance(hint, type) or hint is object or isinstance(value, hint) else [place]
