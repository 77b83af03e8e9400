"""What a command printed as JSON, without what every answer has: the name of its schema, and dates beside times."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from docs.schemas import schema_of


def plain_of(text: str) -> Any:
    """The answer as the command made it."""
    found = json.loads(text)
    assert isinstance(found, dict) and found.pop("schema")
    return _without_dates(found)


def validate(found: Any) -> None:
    """Is an answer as its published schema says? Raises jsonschema.ValidationError with the place."""
    name = str(found["schema"]).rpartition("/")[0]
    Draft202012Validator(schema_of(name), format_checker=FormatChecker()).validate(found)


def _without_dates(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_without_dates(one) for one in plain]
    if isinstance(plain, dict):
        return {key: _without_dates(one) for key, one in plain.items() if not key.endswith("_iso")}
    return plain
