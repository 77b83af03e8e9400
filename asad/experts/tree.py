"""An expert: a decision tree whose leaves are distributions over the shares that may be lent."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from asad.experts.state import FEATURES, INDEX, State
from asad.model import Json

MAX_NODES = 1000
"""Nodes and leaves of one expert, together."""
MAX_DEPTH = 64
"""Tests on the longest way from the root to a leaf."""
MAX_ACTIONS = 101
MAX_NAME = 80
SUM_TOLERANCE = 1e-6
"""How far the probabilities of a leaf may sum from 1; what is further than 1e-9 is scaled to 1."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What an expert may be called: it ends up in file names, tables and plots."""


class Fault(NamedTuple):
    """What is wrong in a tree: where (keys of the TOML: `("nodes", "busy?", "yes")`), what, and the remedy."""

    key: tuple[str, ...]
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Node:
    """One test: `feature > above` in float32 goes to `yes`, `≤` to `no`, NaN to `unknown`.

    `yes`, `no` and `unknown` name nodes or leaves. `above` is rounded to the nearest float32.
    """

    name: str
    feature: str
    above: float
    yes: str
    no: str
    unknown: str

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):
            object.__setattr__(self, "above", float(np.float32(self.above)))

    @property
    def test(self) -> str:
        """`cpu > 0.75`."""
        return f"{self.feature} > {_float32(self.above)}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A distribution: `lend[j]` in [0, 1] is the probability of the j-th of m actions; they sum to 1."""

    name: str
    lend: tuple[float, ...]

    def __post_init__(self) -> None:
        total = sum(self.lend)
        if 1e-9 < abs(total - 1) <= SUM_TOLERANCE:
            object.__setattr__(self, "lend", tuple(chance / total for chance in self.lend))


class Step(NamedTuple):
    """One node on the way to a leaf."""

    node: Node
    value: float
    """What the state holds for the node's feature, NaN if unknown."""
    answer: str
    """`yes`, `no` or `unknown`."""

    def __str__(self) -> str:
        if self.answer == "unknown":
            return f"{self.node.feature} unknown"
        sign = ">" if self.answer == "yes" else "≤"
        return f"{self.node.feature} {_float32(self.value)} {sign} {_float32(self.node.above)}"


class Reached(NamedTuple):
    """The leaf that a state reaches, and the way there."""

    leaf: Leaf
    steps: tuple[Step, ...]

    @property
    def why(self) -> str:
        """`busy?: cpu 0.81 > 0.75 → yes; late?: happiness unknown → unknown`; of a tree without tests,
        `always`.
        """
        return "; ".join(f"{step.node.name}: {step} → {step.answer}" for step in self.steps) or "always"


@dataclass(frozen=True)
class Expert:
    """A decision tree over the state. Names are those of the file that an operator edits.

    Branches may join again (it need not be a tree in the strict sense) but must not form a cycle. What is
    read from a file is sound; one made by hand is so when `faults` finds nothing.
    """

    name: str
    about: str
    actions: tuple[float, ...]
    """The m shares that may be lent: from 0, rising, below 1."""
    root: str
    nodes: tuple[Node, ...]
    leaves: tuple[Leaf, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Node | Leaf]:
        """Every node and leaf."""
        entries: tuple[Node | Leaf, ...] = (*self.nodes, *self.leaves)
        return {entry.name: entry for entry in entries}

    @cached_property
    def depth(self) -> int:
        """Tests on the longest way from the root to a leaf."""
        return _depth(self)

    def evaluate(self, x: State) -> Reached:
        """The leaf that the state `x` (len(FEATURES),) reaches, and why. For explanations;
        `evaluate_all` is fast.
        """
        x = np.asarray(x, dtype=np.float32)
        if x.shape != (len(FEATURES),):
            raise ValueError(f"a state has {len(FEATURES)} numbers, this one has shape {x.shape}")
        steps = []
        entry = self.by_name[self.root]
        while isinstance(entry, Node):
            value = float(x[INDEX[entry.feature]])
            answer = "yes" if value > entry.above else "no" if value <= entry.above else "unknown"
            steps.append(Step(entry, value, answer))
            entry = self.by_name[{"yes": entry.yes, "no": entry.no, "unknown": entry.unknown}[answer]]
        return Reached(entry, tuple(steps))

    def branches(self, node: Node) -> list[tuple[str, str]]:
        """Where a node leads: (`yes`, name), (`no`, name) and, where that is neither of them,
        (`unknown`, name).
        """
        ways = [("yes", node.yes), ("no", node.no), ("unknown", node.unknown)]
        joined: dict[str, str] = {}
        for answer, target in ways:
            joined[target] = f"{joined[target]} or {answer}" if target in joined else answer
        return [(answer, target) for target, answer in joined.items()]

    def describe(self, entry: Node | Leaf) -> str:
        """One line: `busy?  [cpu > 0.75]`, or `lend little  0 %: 0.90, 10 %: 0.10`."""
        if isinstance(entry, Node):
            return f"{entry.name}  [{entry.test}]"
        shares = (
            f"{100 * a:.4g} %: {p:.2f}" for a, p in zip(self.actions, entry.lend, strict=True) if p >= 0.005
        )
        return f"{entry.name}  {', '.join(shares)}"

    def to_json(self) -> dict[str, Json]:
        """As plain data; what a test compares with is float32, and reported by its fewest digits."""
        plain: dict[str, Json] = asdict(self)
        plain["nodes"] = [asdict(node) | {"above": float(_float32(node.above))} for node in self.nodes]
        return plain

    def draw(self) -> str:
        """The tree as text for a terminal. What can be reached in several ways is drawn once."""
        lines: list[str] = []
        drawn: set[str] = set()

        def add(name: str, answer: str, first: str, rest: str) -> None:
            entry = self.by_name[name]
            again = isinstance(entry, Node) and name in drawn
            lines.append(f"{first}{answer}{f'{name}  (as above)' if again else self.describe(entry)}")
            if isinstance(entry, Leaf) or again:
                return
            drawn.add(name)
            ways = self.branches(entry)
            for number, (label, target) in enumerate(ways, 1):
                last = number == len(ways)
                add(
                    target, f"{label}: ", rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
                )

        add(self.root, "", "", "")
        return "\n".join(lines)

    def to_toml(self) -> str:
        """The file that `load_expert` reads as an equal expert."""
        lines = ["version = 1", f"name = {_text(self.name)}"]
        if self.about:
            lines.append(f"about = {_text(self.about)}")
        lines.append(f"actions = [{', '.join(repr(float(action)) for action in self.actions)}]")
        lines.append(f"root = {_text(self.root)}")
        if self.nodes:
            lines += ["", "[nodes]"]
        for node in self.nodes:
            unknown = "" if node.unknown == node.no else f", unknown = {_text(node.unknown)}"
            lines.append(
                f"{_text(node.name)} = {{ feature = {_text(node.feature)}, above = {_float32(node.above)}, "
                f"yes = {_text(node.yes)}, no = {_text(node.no)}{unknown} }}"
            )
        lines += ["", "[leaves]"]
        for leaf in self.leaves:
            chances = ", ".join(
                f'"{float(action)!r}" = {float(chance)!r}'
                for action, chance in zip(self.actions, leaf.lend, strict=True)
                if chance > 0
            )
            lines.append(f"{_text(leaf.name)} = {{ lend = {{ {chances} }} }}")
        return "\n".join(lines) + "\n"


def faults(expert: Expert) -> list[Fault]:
    """Everything that is wrong with a tree, in the order of its file; empty for a sound one."""
    found = list(_faults_of_names(expert))
    found += faults_of_actions(expert.actions)
    for node in expert.nodes:
        found += _faults_of_node(node, expert)
    for leaf in expert.leaves:
        found += _faults_of_leaf(leaf, len(expert.actions))
    found += _faults_of_shape(expert)
    return found


def faults_of_actions(actions: Sequence[float]) -> Iterator[Fault]:
    """What is wrong with a list of shares that may be lent."""
    remedy = "list shares from 0, rising, below 1, such as [0.0, 0.1, 0.2]"
    if not 1 <= len(actions) <= MAX_ACTIONS:
        yield Fault(("actions",), f"{len(actions)} actions", f"give 1 to {MAX_ACTIONS}")
    elif not all(0 <= action < 1 for action in actions):
        yield Fault(("actions",), "a share is not in [0, 1)", remedy)
    elif actions[0] != 0:
        yield Fault(("actions",), "lending nothing is missing", remedy)
    elif any(b - a < 1e-6 for a, b in pairwise(actions)):
        yield Fault(("actions",), "the shares do not rise", remedy)


def nearest(name: str, names: Mapping[str, object] | list[str]) -> str:
    """A hint: `did you mean 'cpu'? `, or nothing."""
    close = difflib.get_close_matches(name[:MAX_NAME], list(names), n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def _faults_of_names(expert: Expert) -> Iterator[Fault]:
    if not NAME.fullmatch(expert.name):
        yield Fault(
            ("name",),
            f"{expert.name[:MAX_NAME]!r} cannot name an expert",
            "use letters, digits, _ . -, at most 64",
        )
    if not all(character.isprintable() or character == "\n" for character in expert.about):
        yield Fault(("about",), "it holds control characters", "remove them")
    entries = [("nodes", node.name) for node in expert.nodes] + [
        ("leaves", leaf.name) for leaf in expert.leaves
    ]
    if len(entries) > MAX_NODES:
        yield Fault((), f"{len(entries)} nodes and leaves", f"keep to {MAX_NODES}")
    seen: set[str] = set()
    for section, name in entries:
        if not name or len(name) > MAX_NAME or not name.isprintable() or name in ("yes", "no"):
            remedy = f"use 1 to {MAX_NAME} printable characters, not `yes` or `no`"
            yield Fault((section, name), "it cannot be called so", remedy)
        if name in seen:
            yield Fault((section, name), "there are two of that name", "rename one and what points to it")
        seen.add(name)
    if not expert.leaves:
        yield Fault(("leaves",), "no leaves", "add at least one")
    if expert.root not in seen:
        yield Fault(
            ("root",),
            f"nothing is called {expert.root[:MAX_NAME]!r}",
            f"{nearest(expert.root, sorted(seen))}name a node or a leaf",
        )


def _faults_of_node(node: Node, expert: Expert) -> Iterator[Fault]:
    place = ("nodes", node.name)
    if node.feature not in INDEX:
        remedy = f"{nearest(node.feature, INDEX)}the features are {', '.join(INDEX)}"
        yield Fault((*place, "feature"), f"no feature is called {node.feature[:MAX_NAME]!r}", remedy)
    if math.isnan(node.above):
        yield Fault((*place, "above"), "the threshold is not a number", "give one; NaN compares with nothing")
    for answer, target in (("yes", node.yes), ("no", node.no), ("unknown", node.unknown)):
        if target not in expert.by_name:
            remedy = f"{nearest(target, expert.by_name)}name a node or a leaf"
            yield Fault((*place, answer), f"nothing is called {target[:MAX_NAME]!r}", remedy)


def _faults_of_leaf(leaf: Leaf, actions: int) -> Iterator[Fault]:
    place = ("leaves", leaf.name, "lend")
    if len(leaf.lend) != actions:
        yield Fault(
            place, f"{len(leaf.lend)} probabilities for {actions} actions", "give one for each action"
        )
    elif not all(0 <= chance <= 1 + SUM_TOLERANCE for chance in leaf.lend):
        wrong = next(chance for chance in leaf.lend if not 0 <= chance <= 1 + SUM_TOLERANCE)
        yield Fault(place, f"{wrong:g} is no probability", "give numbers from 0 to 1")
    elif abs(sum(leaf.lend) - 1) > SUM_TOLERANCE:
        yield Fault(place, f"the probabilities sum to {sum(leaf.lend):.7g}", "make them sum to 1")


def _faults_of_shape(expert: Expert) -> Iterator[Fault]:
    """Cycles, depth and what cannot be reached; only where every name leads somewhere."""
    entries = expert.by_name
    if expert.root not in entries:
        return
    if any(target not in entries for node in expert.nodes for target in (node.yes, node.no, node.unknown)):
        return
    finished: set[str] = set()
    way: dict[str, None] = {}  # names from the root to where we are, in order
    todo: list[tuple[str, bool]] = [(expert.root, False)]
    while todo:
        name, leaving = todo.pop()
        if leaving:
            del way[name]
            finished.add(name)
            continue
        if name in way:
            names = list(way)
            cycle = [repr(step) for step in names[names.index(name) :]]
            cycle[4:-1] = ["…"] if len(cycle) > 5 else cycle[4:-1]
            remedy = "let one of them lead to a leaf"
            yield Fault(("nodes", names[-1]), f"a cycle: {' → '.join(cycle)} → {name!r}", remedy)
            return
        if name in finished:
            continue
        way[name] = None
        todo.append((name, True))
        entry = entries[name]
        if isinstance(entry, Node):
            todo += [(target, False) for target in (entry.unknown, entry.no, entry.yes)]
    depth = _depth(expert)
    if depth > MAX_DEPTH:
        yield Fault((), f"{depth} tests from the root to the deepest leaf", f"keep to {MAX_DEPTH}")
    for section, group in (("nodes", expert.nodes), ("leaves", expert.leaves)):
        for one in group:
            if one.name not in finished:
                yield Fault((section, one.name), "nothing leads here", "point a node to it or remove it")


def _depth(expert: Expert) -> int:
    """Longest way from the root to a leaf, in tests; the tree has no cycle."""
    known: dict[str, int] = {leaf.name: 0 for leaf in expert.leaves}
    todo = [expert.root]
    while todo:
        entry = expert.by_name[todo[-1]]
        if isinstance(entry, Leaf) or entry.name in known:
            todo.pop()
            continue
        below = (entry.yes, entry.no, entry.unknown)
        missing = [name for name in below if name not in known]
        if missing:
            todo += missing
        else:
            known[entry.name] = 1 + max(known[name] for name in below)
            todo.pop()
    return known[expert.root]


def _text(text: str) -> str:
    """A TOML string: printable text and line feeds escape as in JSON."""
    return json.dumps(text, ensure_ascii=False)


def _float32(value: float) -> str:
    """The shortest decimal that a reader turns back into the same float32."""
    short = str(np.float32(value))
    return short if np.float32(float(short)) == np.float32(value) else repr(value)
