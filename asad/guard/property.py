"""How a property of the guard says which decisions it looks at, and which policies it binds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from asad.decisions import Decision
from asad.guard.look import Look

D = TypeVar("D", bound=Decision)


@dataclass(frozen=True, slots=True)
class Property:
    """A property of decisions of some `kinds`."""

    kinds: tuple[type[Decision], ...]
    why_not: Callable[[Look, Any], str]
    binds_all: bool
    """Does it bind every policy, or those alone that name it?"""

    @property
    def name(self) -> str:
        """By which policies, vetoes and metrics call it."""
        return self.why_not.__name__.replace("_", " ")


def of(*kinds: type[Decision], binds_all: bool = True) -> Callable[[Callable[[Look, D], str]], Property]:
    """A decorator: the function is a property that decisions of these kinds have to keep, and no others."""
    return lambda function: Property(kinds, function, binds_all)
