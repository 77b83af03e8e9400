"""The guard: named safety properties. It looks at every decision before it is done and vetoes, with the reason.

A policy is expected to keep these by itself; the guard is written apart from the policies, looks at the plain
snapshot, and has the last word. Each property is a function (look, decision) → why not, or the empty string. Those of
`ALWAYS` bind every policy, the others those that name them. `relieve` is the guard's own: what it takes back by itself.
"""

from __future__ import annotations

from asad.guard.guard import ALWAYS, PROPERTIES, REPLAY, Guard, guard_for
from asad.guard.look import Look

__all__ = ["ALWAYS", "PROPERTIES", "REPLAY", "Guard", "Look", "guard_for"]
