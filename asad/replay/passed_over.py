"""What of a description cannot be read and is passed over: one sentence for each kind, however often it occurs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PassedOver:
    """The first sentence of each kind, and how many more there are."""

    first: dict[str, str] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)

    def say(self, kind: str, sentence: str) -> None:
        """Something was passed over, which the sentence says with its place."""
        if kind in self.first:
            self.more[kind] = self.more.get(kind, 0) + 1
        else:
            self.first[kind] = sentence

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{sentence} (and {self.more[kind]} more of its kind)" if kind in self.more else sentence
            for kind, sentence in self.first.items()
        )
