"""What a policy of any stage declares, and what it is made with.

A policy is one class in one file, offered to `asad.catalog` by an entry point. The rooms of the stages say what the
cycle asks of theirs (`asad.share.SharePolicy` and so on); docs/how-to/write-a-policy.md shows one from begin to end.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from asad.errors import UsageError
from asad.experts import Expert
from asad.model import Floats, Json

Memory = Mapping[str, Mapping[str, Json]]
Changes = Mapping[str, Mapping[str, Json] | None]
"""What is known otherwise; None of what is forgotten."""


POOL_PROPERTIES = frozenset({"waits", "one guest a core", "memory", "pool", "better off", "time to extend"})
"""Properties of the guard that bind whoever lends from pools."""


RENAMED = {
    "heed": "on_outcomes",
    "relax": "decide_while_paused",
    "given_back": "on_withdrawn",
    "steers": "decides_start",
}
"""Methods of policies of the admit and defer stages, by their names of the release before. A site's class that still
has one is asked by it, and warned."""


class NoOptions(NamedTuple):
    """Of a policy of which nothing can be set."""


class Truth(NamedTuple):
    """What only a replay knows, for yardsticks. n jobs of the log, by row."""

    demand: Floats
    """(n,) CPU that a job uses, as a fraction of its cores."""
    run_s: Floats
    """(n,) Its run time with all the CPU that it can use."""
    mu_guest: float
    """Rate of a guest on a core that it shares, over its rate on one of its own."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a policy is made with, besides its options."""

    applications: Sequence[str]
    """Names of the codes of `Jobs.application`; a list that may grow."""
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    experts: Callable[[], Sequence[Expert]] = tuple
    """Reads the expert trees that the configuration names. Raises ConfigError."""
    called: str = ""
    """Its name in decisions, where that is not its own."""
    poll_s: float = 30.0
    """From the beginning of one cycle to that of the next."""
    headroom: float = 0.1
    """Share of its cores that a host keeps beyond what it uses."""
    pressure: float = 0.2
    """Beside a host that waits for CPU for more than this part of the time, the guard decides."""
    most_defer_s: float = 86_400.0
    """No job is deferred further ahead than this,"""
    most_lease_s: float = 3600.0
    """and no deferrable job for longer without a further look."""
    rules: Sequence[Any] = ()
    """The rules of the configuration for this stage (`[[admit.rules]]`), read."""
    utilities: Mapping[str, Any] = field(default_factory=dict)
    """Kinds of utilities that the site has added (`asad.admit.utility.Maker` by name)."""
    shares: bool = False
    """Does a policy of the share stage lend beside it?"""
    truth: Truth | None = None


class Policy:
    """What every class in the catalogue declares. Those who derive from it say what is not as here."""

    stage: ClassVar[str]
    name: str
    option_type: ClassVar[Callable[[], Any]] = NoOptions
    """A NamedTuple of what can be set in `[stage.name]`: numbers, truth values, texts and tuples of names, each with
    its default and, where it is `Annotated` with an `Is` (`asad.tables`), its range. An option called
    `headroom` that is not given is the guard's `host_floor`."""
    signed: ClassVar[frozenset[str]] = frozenset()
    """Options that may be negative."""
    removed: ClassVar[Mapping[str, str]] = {}
    """Options of earlier versions, and what to do about them."""
    held: ClassVar[str | None] = None
    """How its guests are held, which decides what sharing costs: `idle` (in the idle class of the CPU scheduler),
    `static` (by quotas that bind the host as well), or None of a policy that does not lend."""
    pooled: ClassVar[bool] = False
    """Do its guests draw from the pools of nodes, and not from one host?"""
    properties: frozenset[str] = frozenset()
    """Names of the properties of the guard that bind it, besides those that bind every policy."""
    extends_limits: bool = False
    """Does the cycle extend limits of jobs that its lending slows?"""
    poll_s: float = 30.0
    """From the beginning of one cycle to that of the next."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        for old, new in RENAMED.items():
            if old in own and hasattr(cls, new):
                warnings.warn(
                    f"{cls.__module__}.{cls.__qualname__}.{old} is called {new} now; rename it",
                    DeprecationWarning,
                    stacklevel=2,
                )
                setattr(cls, new, own[old])
            elif new in own:  # such an override calls `super()` by the old name
                setattr(cls, old, own[new])

    def wake_s(self) -> float:
        """When it wants to look again even if nothing that can be seen has changed; inf for never."""
        return math.inf

    def warm_up(self) -> None:
        """Have compiled what it compiles."""

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """What can be set, with the defaults."""
        return dict(cls.option_type()._asdict())

    @classmethod
    def of(cls, given: Given, options: Mapping[str, Any]) -> Any:
        """A new policy of its stage; one that is made with nothing, unless its class says otherwise.

        `options` holds all of `defaults()`, each of the type of its default. Raises UsageError that begins with the
        option at fault.
        """
        return cls()


def parameters(kind: Callable[..., Any]) -> dict[str, Any]:
    """What can be set of a class by its parameters: those whose default is a number, a truth value or a text."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(kind).parameters.items()
        if isinstance(parameter.default, bool | int | float | str)
    }


def check_options(*options: tuple[str, object, bool, str]) -> None:
    """Raises UsageError for the first of these options that is wrong: its name, its value, whether that is right, and
    what to give instead."""
    for name, value, right, hint in options:
        if not right:
            shown = f"{value:g}" if isinstance(value, float) else f"{value!r:.40}"
            raise UsageError(f"{name} = {shown}; {hint}")


def parted(options: Mapping[str, Any], kind: Any) -> tuple[Any, dict[str, Any]]:
    """The options of a whole family as its NamedTuple `kind`, and what is left, of one member alone."""
    common = {name: options[name] for name in kind._fields if name in options}
    return kind(**common), {name: value for name, value in options.items() if name not in common}


@runtime_checkable
class Stateful(Protocol):
    """A policy whose knowledge outlives the process."""

    def state(self) -> Memory:
        """What it knows, by application, as plain data."""
        ...

    def restore(self, memory: Memory) -> None:
        """Know again what `state` returned."""
        ...


@runtime_checkable
class StatefulByChanges(Stateful, Protocol):
    """One that keeps so much that only what has changed is worth writing."""

    def changes(self) -> Changes:
        """What `state` returns otherwise than when this was asked last, or when it was restored."""
        ...
