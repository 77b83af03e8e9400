"""Several seeds of one recipe, side by side in processes, and the files that each leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from asad.defer.network import written
from asad_papers.osdec.rl.recipes import Data, Recipe
from asad_papers.osdec.rl.training import Training


def train_seeds(
    recipe: Recipe,
    data: Data,
    name: str,
    seeds: Iterable[int],
    folder: Path,
    *,
    resume: bool,
    minutes: float | None,
    processes: int,
    show: bool,
) -> list[dict[str, Any]]:
    """Train, and write FOLDER/NAME-sSEED.json and .npz; the states before, checkpoints and logs go to
    FOLDER/NAME-sSEED/.

    Returns {"model", "seed", "minutes", "cpu_minutes", "steps", "figures"} of each. `show`: progress on standard error.
    """
    numbers = list(seeds)
    one = partial(_train, recipe, data, name, folder, resume, minutes)
    if processes == 1 or len(numbers) == 1:
        return [one(seed, show) for seed in numbers]
    # a process of torch cannot be forked
    with ProcessPoolExecutor(min(processes, len(numbers)), get_context("spawn")) as pool:
        running = [pool.submit(one, seed, show) for seed in numbers]
        return [each.result() for each in running]


def _train(
    recipe: Recipe,
    data: Data,
    name: str,
    folder: Path,
    resume: bool,
    minutes: float | None,
    seed: int,
    show: bool,
) -> dict[str, Any]:
    import torch

    # one core a seed: the same sums in the same order, whatever the machine
    torch.set_num_threads(1)
    begun, cpu = time.monotonic(), time.process_time()
    called = f"{name}-s{seed}"
    training = Training(
        recipe,
        data,
        seed,
        folder / called,
        called,
        resume=resume,
        report=partial(_say, called, begun) if show else None,
    )
    training.run(minutes if minutes is not None else float("inf"))
    took, cpu = (time.monotonic() - begun) / 60.0, (time.process_time() - cpu) / 60.0
    for state in training.states:
        described, weights = written(training.model(state))
        # the best is the model; the others show what each stage added (asactl bench osdec --models)
        file = called if state == "best" else f"{called}/{state}"
        for ending, content in (("npz", weights), ("json", described.encode())):
            partly = folder / f"{file}.{ending}.part"
            partly.write_bytes(content)
            partly.replace(folder / f"{file}.{ending}")
    return {
        "model": str(folder / f"{called}.json"), "seed": seed, "minutes": took, "cpu_minutes": cpu,
        "steps": training.progress.steps, "figures": dict(training.progress.figures),
    }  # fmt: skip


def _say(name: str, begun: float, stage: str, step: int, steps: int, mean: float, best: float) -> None:
    """One line a step; they come from several processes, so none is overwritten."""
    if stage == "teacher" and step % 10 and step != steps:
        return
    kept = f", best on what is kept aside {best:,.1f}" if best == best and best > -1e300 else ""
    took = time.monotonic() - begun
    line = f"{name} {stage} {step}/{steps}: {mean:,.1f}{kept} ({took:.0f} s)\n"
    os.write(2, line.encode())
