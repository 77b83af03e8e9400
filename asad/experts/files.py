"""Experts as files: TOML that operators edit. The format is described in docs/reference/experts.md."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from asad.bounded import printable, toml_of
from asad.errors import ConfigError
from asad.experts.state import ACTIONS
from asad.experts.tree import (
    MAX_NAME,
    MAX_NODES,
    Expert,
    Fault,
    Leaf,
    Node,
    faults,
    faults_of_actions,
    nearest,
)
from asad.model import Json
from asad.tables import key_lines, line_of

MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 256
"""Files of one folder of experts."""

EXPERT_KEYS = ("version", "name", "about", "actions", "root", "unknown", "nodes", "leaves")
NODE_KEYS = ("feature", "above", "yes", "no", "unknown")
LEAF_KEYS = ("lend", "around", "spread")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file of an expert. `str()` is `file:line: place: problem; remedy`, safe for a
    terminal.
    """

    path: str
    line: int | None
    """From 1; None where it is not known."""
    place: str
    """`node 'busy?'`, `leaf 'little'`, a key, or the empty string for the file as a whole."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        parts = [printable(self.path) + (f":{self.line}" if self.line else ""), self.place, self.problem]
        return f"{': '.join(part for part in parts if part)}; {self.remedy}"

    def to_json(self) -> dict[str, Json]:
        return {
            "path": self.path,
            "line": self.line,
            "place": self.place,
            "problem": self.problem,
            "mend": self.remedy,
        }


def default_folder() -> Path:
    """The experts that asad ships."""
    return Path(str(files("asad_profiles.experts")))


def load_expert(path: str | Path) -> Expert:
    """The expert in a file.

    Raises ConfigError with file, line, node and remedy if the file cannot be read or is not a sound expert.
    """
    expert, problems = _read(Path(path))
    if expert is None:
        raise _error(problems)
    return expert


def load_experts(folder: str | Path | None = None) -> tuple[Expert, ...]:
    """The experts of a folder (default: those that asad ships), in the order of their file names.

    All have the same actions and names of their own. Raises ConfigError as `load_expert` does, and if the
    folder has no `*.toml`.
    """
    experts, problems = _read_folder(Path(folder) if folder is not None else default_folder())
    if problems:
        raise _error(problems)
    return tuple(experts.values())


def check_experts(paths: Iterable[str | Path]) -> list[Problem]:
    """Everything that is wrong in files and folders of experts; empty if nothing is.

    The files of a folder belong together (same actions, names of their own), and so do the files named one
    by one.
    """
    problems: list[Problem] = []
    single: dict[str, Expert] = {}
    for path in map(Path, paths):
        if path.is_dir():
            problems += _read_folder(path)[1]
            continue
        expert, found = _read(path)
        problems += found
        if expert is not None:
            single[str(path)] = expert
    return problems + _misfits(single)


def parse_expert(text: str, path: str) -> tuple[Expert | None, list[Problem]]:
    """The expert that `text` holds, or None and what is wrong with it; `path` is only named in the
    problems.
    """
    try:
        document = toml_of(text)
    except ValueError as error:  # of TOML, and of numbers that Python refuses to read
        where = re.search(r"at line (\d+)", str(error))
        line = int(where[1]) if where else None
        return None, [
            Problem(path, line, "", f"not TOML: {printable(str(error)[:200])}", "correct what it names")
        ]
    expert, found = _build(document)
    if not found:
        return expert, []
    lines = key_lines(text)
    return None, [
        Problem(path, line_of(lines, fault.key), _place(fault.key), fault.problem, fault.remedy)
        for fault in found
    ]


def bell(actions: Sequence[float], around: float, spread: float) -> tuple[float, ...]:
    """(m,) probabilities that fall off from `around` as a bell of width `spread` and end two spreads away.

    The action nearest to `around` always has some, so a spread of 0 means just that action.
    """
    distance = np.abs(np.asarray(actions, dtype=np.float64) - around)
    close = distance <= max(2 * spread, distance.min()) + 1e-9
    width = max(spread, 1e-6)
    weight = np.where(close, np.exp(np.minimum(0, (distance.min() ** 2 - distance**2) / (2 * width**2))), 0.0)
    return tuple((weight / weight.sum()).tolist())


# ------------------------------------------------------------------------------------------------------ files


def _read(path: Path) -> tuple[Expert | None, list[Problem]]:
    place = str(path)
    try:
        if path.exists() and not path.is_file():
            return None, [Problem(place, None, "", "not a regular file", "name a file of an expert")]
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return None, [Problem(place, None, "", reason, "name a file that can be read")]
    except UnicodeDecodeError as error:
        return None, [Problem(place, None, "", f"byte {error.start} is not UTF-8", "save the file as UTF-8")]
    except ValueError as error:  # a path that no file can have
        return None, [Problem(place, None, "", printable(str(error)), "name a file that can be read")]
    if len(content) > MAX_FILE_BYTES:
        return None, [Problem(place, None, "", f"over {MAX_FILE_BYTES // 1024} KiB", "make the tree smaller")]
    return parse_expert(text, place)


def _read_folder(folder: Path) -> tuple[dict[str, Expert], list[Problem]]:
    paths = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    if not paths:
        remedy = "name a folder with files of experts"
        return {}, [Problem(str(folder), None, "", "no *.toml here", remedy)]
    if len(paths) > MAX_FILES:
        return {}, [Problem(str(folder), None, "", f"{len(paths)} files", f"keep to {MAX_FILES} experts")]
    experts: dict[str, Expert] = {}
    problems: list[Problem] = []
    for path in paths:
        expert, found = _read(path)
        problems += found
        if expert is not None:
            experts[str(path)] = expert
    return experts, problems + _misfits(experts)


def _misfits(experts: Mapping[str, Expert]) -> list[Problem]:
    """What keeps experts from being used together."""
    problems: list[Problem] = []
    by_name: dict[str, str] = {}
    first = next(iter(experts), "")
    for path, expert in experts.items():
        if expert.name in by_name:
            other = printable(by_name[expert.name])
            problems.append(
                Problem(
                    path, None, "name", f"{expert.name!r} is also the expert of {other}", "rename one of them"
                )
            )
        by_name.setdefault(expert.name, path)
        if expert.actions != experts[first].actions:
            remedy = "give all experts the same actions"
            problems.append(
                Problem(path, None, "actions", f"they differ from those of {printable(first)}", remedy)
            )
    return problems


def _error(problems: list[Problem]) -> ConfigError:
    more = len(problems) - 1
    hint = f" ({more} more: `asactl experts check` lists them all)" if more else ""
    return ConfigError(f"{problems[0]}{hint}")


# --------------------------------------------------------------------------------------------------- contents


def _build(document: dict[str, Any]) -> tuple[Expert | None, list[Fault]]:
    """The expert of a TOML document. Only if its form is right is its meaning checked."""
    found = _unknown_keys((), document, EXPERT_KEYS)
    if document.get("version") != 1 or isinstance(document["version"], bool):
        found.append(
            Fault(("version",), "the version of the format is missing or not known", "write version = 1")
        )
    name = _string(document, (), "name", found)
    root = _string(document, (), "root", found)
    about = _string(document, (), "about", found) if "about" in document else ""
    unknown = _string(document, (), "unknown", found) if "unknown" in document else None
    actions = _numbers(document["actions"], ("actions",), found) if "actions" in document else ACTIONS

    if actions:
        found += faults_of_actions(actions)

    tables: dict[str, dict[str, Any]] = {}
    for section in ("nodes", "leaves"):
        table = document.get(section, {})
        if not isinstance(table, dict):
            found.append(Fault((section,), "not a table", f"write [{section}] and name = {{ … }} below it"))
            table = {}
        tables[section] = table
    if sum(map(len, tables.values())) > MAX_NODES:
        found.append(Fault((), f"more than {MAX_NODES} nodes and leaves", f"keep to {MAX_NODES}"))
        return None, found

    nodes = [_node(key, table, unknown, found) for key, table in tables["nodes"].items()]
    if any(fault.key == ("actions",) for fault in found):
        return None, found  # the leaves would be wrong one and all
    leaves = [_leaf(key, table, actions, found) for key, table in tables["leaves"].items()]
    if found:
        return None, found
    expert = Expert(name, about, tuple(actions), root, tuple(nodes), tuple(leaves))
    return expert, faults(expert)


def _node(name: str, table: Any, unknown: str | None, found: list[Fault]) -> Node:
    place = ("nodes", name)
    if not isinstance(table, dict):
        found.append(Fault(place, "not a table", "write { feature = …, above = …, yes = …, no = … }"))
        return Node(name, "", 0.0, "", "", "")
    found += _unknown_keys(place, table, NODE_KEYS)
    yes, no = _string(table, place, "yes", found), _string(table, place, "no", found)
    where = _string(table, place, "unknown", found) if "unknown" in table else unknown or "no"
    feature = _string(table, place, "feature", found)
    above = _number(table.get("above"), (*place, "above"), found, infinite=True)
    return Node(name, feature, above, yes, no, {"yes": yes, "no": no}.get(where, where))


def _leaf(name: str, table: Any, actions: Sequence[float], found: list[Fault]) -> Leaf:
    place = ("leaves", name)
    nothing = Leaf(name, ())
    if not isinstance(table, dict):
        found.append(Fault(place, "not a table", "write { lend = … } or { around = …, spread = … }"))
        return nothing
    found += _unknown_keys(place, table, LEAF_KEYS)
    if ("lend" in table) == ("around" in table) or ("around" in table) != ("spread" in table):
        found.append(
            Fault(place, "it needs one distribution", "give either `lend`, or `around` and `spread`")
        )
        return nothing
    if "around" in table:
        around = _number(table["around"], (*place, "around"), found)
        spread = _number(table["spread"], (*place, "spread"), found)
        if not min(actions) <= around <= max(actions):
            remedy = f"give a share from {min(actions):g} to {max(actions):g}"
            found.append(Fault((*place, "around"), f"{around:g} is not among the actions", remedy))
        elif not 0 <= spread <= 1:
            found.append(Fault((*place, "spread"), f"{spread:g} is no spread", "give a share from 0 to 1"))
        else:
            return Leaf(name, bell(actions, around, spread))
        return nothing
    if isinstance(table["lend"], dict):
        return Leaf(name, _by_action(table["lend"], (*place, "lend"), actions, found))
    return Leaf(name, _numbers(table["lend"], (*place, "lend"), found))


def _by_action(
    table: dict[str, Any], place: tuple[str, ...], actions: Sequence[float], found: list[Fault]
) -> tuple[float, ...]:
    """(m,) probabilities of a table `{ "0.1" = 0.9, … }`; actions that it leaves out have none."""
    chances = [0.0] * len(actions)
    given: set[int] = set()
    for key, value in table.items():
        try:
            action = float(key)
        except ValueError:
            action = math.nan
        j = next((j for j, known in enumerate(actions) if abs(known - action) < 1e-9), None)
        if j is None:
            listed = ", ".join(f"{known:g}" for known in actions)
            remedy = f'write shares in quotes ("0.1" = …), of these: {listed}'
            found.append(Fault(place, f"{key[:MAX_NAME]!r} is not among the actions", remedy))
        elif j in given:
            found.append(Fault(place, f"two probabilities for {actions[j]:g}", "keep one"))
        else:
            given.add(j)
            chances[j] = _number(value, place, found)
    return tuple(chances)


def _unknown_keys(place: tuple[str, ...], table: Mapping[str, Any], keys: tuple[str, ...]) -> list[Fault]:
    return [
        Fault(
            (*place, key),
            f"unknown key {key[:MAX_NAME]!r}",
            f"{nearest(key, list(keys))}use {', '.join(keys)}",
        )
        for key in table
        if key not in keys
    ]


def _string(table: Mapping[str, Any], place: tuple[str, ...], key: str, found: list[Fault]) -> str:
    value = table.get(key)
    if isinstance(value, str):
        return value
    problem = f"`{key}` is not text" if key in table else f"`{key}` is missing"
    found.append(Fault((*place, key) if key in table else place, problem, f'write {key} = "…"'))
    return ""


def _number(value: Any, place: tuple[str, ...], found: list[Fault], *, infinite: bool = False) -> float:
    """A number that a float32 can hold; infinite only where a threshold may be."""
    key = place[-1]
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond any float
            number, infinite = math.inf, False
        with np.errstate(over="ignore"):
            fits = bool(np.isfinite(np.float32(number)))
        if fits or (infinite and math.isinf(number)):
            return number
        problem = f"`{key}` is NaN" if math.isnan(number) else f"`{key}` is too large"
    else:
        problem = f"`{key}` is missing" if value is None else f"`{key}` is not a number"
    found.append(Fault(place, problem, "give a number, without quotes"))
    return 0.0


def _numbers(value: Any, place: tuple[str, ...], found: list[Fault]) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        found.append(Fault(place, "not a list of numbers", "write [0.0, 0.1, …]"))
        return ()
    return tuple(_number(number, place, found) for number in value)


# ----------------------------------------------------------------------------------------------------- places


def _place(key: tuple[str, ...]) -> str:
    """Where a fault is, in an operator's words."""
    if not key:
        return ""
    if key[0] in ("nodes", "leaves") and len(key) > 1:
        return f"{'node' if key[0] == 'nodes' else 'leaf'} {key[1][:MAX_NAME]!r}"
    return key[0] if key[0] in EXPERT_KEYS else ""
