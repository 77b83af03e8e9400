"""Node lists are expanded once for each text, and no more of them is kept than memory allows."""

from __future__ import annotations

import pytest
from asad_slurm import nodesets
from asad_slurm.nodesets import expand, fold


def test_node_lists_are_kept_up_to_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodesets, "MOST_BYTES", 10_000)
    calls: list[str] = []

    def listed(text: str) -> tuple[str, ...]:
        calls.append(text)
        return expand.__wrapped__(text)  # type: ignore[attr-defined, no-any-return]

    ask = nodesets.cached(listed)
    assert ask("n[1-3]") == ask("n[1-3]") == ("n1", "n2", "n3") and calls == ["n[1-3]"]
    for count in range(50, 60):  # about 4 kB each
        ask(f"m[1-{count}]")
    ask("m[1-59]")
    assert calls.count("m[1-59]") == 1
    ask("n[1-3]")
    assert calls.count("n[1-3]") == 2, "the oldest is forgotten"
    for _ in range(2):
        assert len(ask("x[1-1000]")) == 1000
    assert calls.count("x[1-1000]") == 2, "what is larger than all of the room is not kept"
    ask("n[1-3]")
    assert calls.count("n[1-3]") == 2
    assert fold(("n2", "n1", "n3")) == "n[1-3]"
