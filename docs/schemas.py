"""JSON Schema of what `--json` prints, made of the types in `asad.cli.json_answers`: one file a command."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from asad.cli.json_answers import ANSWERS, KEYS
from asad.cli.output import schema_name
from asad.cli.times import MOMENTS
from docs import generate

FOLDER = generate.DOCS / "reference" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
NAMES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def schema_of(command: str) -> dict[str, Any]:
    """The schema of one command's answer."""
    definitions: dict[str, Any] = {}
    whole = _object(ANSWERS[command], definitions)
    return {
        "$schema": DRAFT,
        "title": _typed(command),
        "type": "object",
        "properties": {"schema": {"const": schema_name(command)}, **whole["properties"]},
        "required": ["schema", *whole.get("required", [])],
        **({"$defs": dict(sorted(definitions.items()))} if definitions else {}),
    }


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """An object with the fields of a class; more than those may be there."""
    texts = generate.meanings(kind)
    hidden = set(getattr(kind, "HIDDEN", ()))
    properties, required = {}, []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name in hidden or get_origin(hint) is typing.ClassVar:
            continue
        text, name = texts.get(name), KEYS.get(name, name)
        optional = get_origin(hint) is NotRequired
        properties[name] = _of(get_args(hint)[0] if optional else hint, definitions)
        if text:
            properties[name]["description"] = text
        if not optional:
            required.append(name)
        if name in MOMENTS:
            properties[f"{name.removesuffix('_s')}_iso"] = {"type": "string", "format": "date-time"}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in NAMES:
        return {"type": NAMES[hint]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_of(one, definitions) for one in inner]}
    if origin is list:
        return {"type": "array", "items": _of(inner[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(inner[1], definitions)}
    if is_typeddict(hint) or dataclasses.is_dataclass(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # it may hold itself
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(f"no schema for {hint!r}")


def _typed(command: str) -> str:
    return "asad-node --once" if command == "asad-node" else f"asactl {command} --json"


def files() -> Iterator[tuple[Path, str]]:
    """Path and text of every schema."""
    for command in ANSWERS:
        name = f"{command.replace(' ', '-')}.json"
        yield FOLDER / name, json.dumps(schema_of(command), indent=1, ensure_ascii=False) + "\n"


def table() -> str:
    """The commands with their schemas, for the page about them."""
    rows = []
    for command in ANSWERS:
        file = f"{command.replace(' ', '-')}.json"
        rows.append((f"`{_typed(command)}`", f"`{schema_name(command)}`", f"[{file}](schemas/{file})"))
    return generate.table(("command", "`schema`", "file"), rows)
