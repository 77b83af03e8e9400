"""`python -m lab.fuzz`: mutated inputs for every reader, and a table of what became of them. `make fuzz` calls it."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from lab.fuzz import daemon, files, mesos, slurm
from lab.fuzz.run import BLOCK, SLOW_S, Reader, Tally, attempt, input_of, run_block, run_blocks
from lab.fuzz.run import _Log as Log

OUT = Path("build") / "fuzz"


def all_readers() -> list[Reader]:
    """Every reader, in the order of the table."""
    return [*files.readers(), *slurm.readers(), *daemon.readers(), *mesos.readers()]


def named(readers: Sequence[Reader], wanted: str) -> list[Reader]:
    """The one that is called so, else those whose name holds it."""
    found = [reader for reader in readers if wanted.lower() in reader.name.lower()]
    return [reader for reader in found if reader.name.lower() == wanted.lower()] or found


def shares(readers: Sequence[Reader], inputs: int) -> list[int]:
    """How many inputs each reader gets, by weight, at least one."""
    whole = sum(reader.weight for reader in readers)
    return [max(1, round(inputs * reader.weight / whole)) for reader in readers]


def check_samples(readers: Sequence[Reader]) -> list[str]:
    """Sentences about samples that are at fault, and readers that read none: then what is made of them says little."""
    found = []
    for reader in readers:
        some = False
        with tempfile.TemporaryDirectory(prefix="asad-fuzz-") as folder:
            read = reader.open(Path(folder))
            for number, sample in enumerate(reader.samples):
                taken, why, story = attempt(read, sample, Random(number), Log())  # noqa: S311
                some = some or taken
                if why:
                    found.append(f"{reader.name}: sample {number}: {why}\n{story}")
        if not some:
            found.append(f"{reader.name}: none of its samples is read")
    return found


@click.command()
@click.option("--inputs", "-n", default=1_000_000, show_default=True, help="So many in all.")
@click.option("--seed", default=1, show_default=True, help="Another seed makes other inputs.")
@click.option("--reader", "wanted", default="", help="The one of this name, or those whose name holds it.")
@click.option("--number", type=int, help="One input of one reader again, with its story.")
@click.option("--memory", default=1024, show_default=True, help="MiB that reading may take beyond the start.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="So many processes read at a time.",
)
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True)
def main(
    inputs: int, seed: int, wanted: str, number: int | None, memory: int, workers: int, out: Path
) -> None:
    """Put mutated inputs to every reader of what others have written. None may raise anything but asad's own errors,
    take more than a second of CPU, more memory than allowed, or say what steers a terminal."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    readers = named(all_readers(), wanted)
    if not readers:
        raise click.UsageError(f"no reader is called {wanted!r}")
    if number is not None:
        again(console, readers, seed, number)
        return
    out.mkdir(parents=True, exist_ok=True)
    with console.status("reading the samples"):  # and so compiling what is to be compiled
        broken = check_samples(readers)
    for sentence in broken:
        console.print(sentence, markup=False)
    begin_s = time.monotonic()
    tallies = run_all(console, readers, seed, inputs, memory, workers, out)
    took_s = time.monotonic() - begin_s
    show(console, tallies)
    failures = sum(len(tally.failures) for tally in tallies)
    total = sum(tally.inputs for tally in tallies)
    result = {
        "seed": seed,
        "inputs": total,
        "failures": failures,
        "wall_s": round(took_s, 1),
        "readers": [plain(tally) for tally in tallies],
    }
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"{total} inputs, {failures} failures, seed {seed}, {took_s:.0f} s; {out}/result.json")
    sys.exit(1 if failures or broken else 0)


def run_all(
    console: Console,
    readers: Sequence[Reader],
    seed: int,
    inputs: int,
    memory: int,
    workers: int,
    out: Path,
) -> list[Tally]:
    """All blocks of all readers, so many at a time."""
    blocks = [
        (reader, range(first, min(count, first + BLOCK)))
        for reader, count in zip(readers, shares(readers, inputs), strict=True)
        for first in range(0, count, BLOCK)
    ]
    tallies: list[Tally] = []
    kinds: set[tuple[str, str]] = set()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=sum(shares(readers, inputs)))
        for block in run_blocks(blocks, seed, memory, workers):
            if not tallies or tallies[-1].reader != block.reader:
                tallies.append(Tally(block.reader))
                progress.update(task, description=block.reader)
                if not console.is_terminal:
                    console.print(block.reader, markup=False)
            for failure in block.failures:
                if (block.reader, failure.why) in kinds:
                    continue
                kinds.add((block.reader, failure.why))
                file = out / f"{block.reader.replace(' ', '-').replace('/', '-')}-{failure.number}"
                file.write_bytes(failure.data)
                sentence = f"{block.reader} {failure.number}: {failure.why}; {file}"
                progress.console.print(sentence, markup=False, highlight=False)
            tallies[-1].add(block)
            progress.advance(task, block.inputs)
    return tallies


def show(console: Console, tallies: Sequence[Tally]) -> None:
    """The table."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in (
        "reader",
        "inputs",
        "read",
        "refused",
        "failures",
        "mean ms",
        "slowest ms",
        "its number",
        "MiB",
    ):
        table.add_column(name, justify="left" if name == "reader" else "right")
    for tally in tallies:
        table.add_row(
            tally.reader,
            *(str(count) for count in (tally.inputs, tally.read, tally.refused, len(tally.failures))),
            f"{1000 * tally.cpu_s / max(1, tally.inputs):.2f}",
            f"{1000 * tally.slowest_s:.0f}",
            str(tally.slowest),
            f"{tally.rise_mib:.0f}",
        )
    console.print(table)
    console.print(
        f"Slowest: CPU of one input; more than {SLOW_S:.0f} s is a failure. MiB: by how much one input raised the peak."
    )


def plain(tally: Tally) -> dict[str, Any]:
    """Of one reader, failures of one kind together."""
    kinds: dict[str, dict[str, Any]] = {}
    for failure in tally.failures:
        kind = kinds.setdefault(
            failure.why, {"why": failure.why, "count": 0, "numbers": [], "story": failure.story}
        )
        kind["count"] += 1
        kind["numbers"] = [*kind["numbers"], failure.number][:10]
    found = dataclasses.asdict(tally)
    return found | {"failures": len(tally.failures), "kinds": list(kinds.values())}


def again(console: Console, readers: Sequence[Reader], seed: int, number: int) -> None:
    """One input once more, after those that its reader had read before it."""
    if len(readers) != 1:
        raise click.UsageError(f"--reader must name one: {', '.join(reader.name for reader in readers)}")
    data, _ = input_of(readers[0], seed, number)
    shown = data if len(data) < 3000 else data[:3000] + b"..."
    console.print(f"{len(data)} bytes: {shown!r}", markup=False, highlight=False)
    tally = run_block(readers[0], seed, range(number, number + 1), alarms=True)
    outcome = "read" if tally.read else "refused"
    console.print(
        tally.failures[0].story if tally.failures else f"{outcome} in {1000 * tally.slowest_s:.1f} ms",
        markup=False,
    )
    sys.exit(1 if tally.failures else 0)


if __name__ == "__main__":
    main()
