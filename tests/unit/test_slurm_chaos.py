"""Random faults, two at a time, at random moments of the Slurm plugin's life: nothing is lost, held or pinned.

`make chaos` lives through more of them (CHAOS_LIVES, CHAOS_SEED); a failure names the seed that repeats it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chaos_on_paper import live, table

LIVES, SEED = int(os.environ.get("CHAOS_LIVES", "60")), int(os.environ.get("CHAOS_SEED", "1"))


@pytest.mark.slow
def test_nothing_is_lost_held_or_pinned_whatever_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives, failed = [], []
    for seed in range(SEED, SEED + LIVES):
        complaints, life = live(tmp_path / str(seed), seed, monkeypatch)
        monkeypatch.undo()
        lives.append(life)
        if complaints:
            failed.append(f"CHAOS_SEED={seed} CHAOS_LIVES=1: {'; '.join(complaints)} ({'; '.join(life.log)})")
    print(f"{len(lives)} lives, {len(failed)} with something left\n{table(lives)}")
    assert not failed, "\n".join(failed)
