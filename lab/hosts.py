"""`python -m lab.hosts`: what jobs over several nodes, and a data loader, lose beside guests that asad lends to.

A job of two processes on two nodes (`lab.rounds`) meets after every round, so that what slows it on one node slows it
on both. It runs on a real Slurm under asad in `enforce`, and while it runs it is by turns alone and beside guests: two
jobs are submitted, asad makes guests of them as it would of any, they are measured, and are cancelled. The host goes on
meanwhile and writes down how far it is, so that what is compared lies seconds apart.

What is lent follows from measurement (`measured`), and a guest may be as slow as the pool makes it: more is lent than
`asax` would lend, whose experts withhold some of it.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich import box
from rich.console import Console
from rich.table import Table

from lab import LabError, rounds
from lab.live import LiveAsad
from lab.run import interpreter
from lab.slurm import RealSlurm

NODES = 2
LENDING = """
[share.measured]
least_rate = 0.05
again_s = 2
patience_s = 5

[slurm.lend]
multi_node = true
"""
"""Jobs over several nodes lend, and a guest may be slow: whatever is spare is lent."""
SEGMENT_S, QUICK_SEGMENT_S = 10.0, 3.0
SETTLE_S = 1.0
"""After a change, before it counts."""
LENT_S = 25.0
"""How long asad may take to make guests of those that wait; after that the host is measured all the same."""
HOST_LIMIT, GUEST_LIMIT = "--time=120", "--time=2"
HOST_USER, GUEST_USER = "nobody", "games"
MEMORY = "--mem=300"


class Case(NamedTuple):
    """A host."""

    kind: str
    round_ms: float
    duty: float
    """Part of a round in which it works."""

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.round_ms:g} ms, {self.duty:.0%}"


CASES = (
    # each at whose duty anything is lent beside its control: the same rounds on one node, which show what meeting adds
    *(
        Case(kind, round_ms, duty)
        for round_ms in (0.5, 5.0)
        for duty in (0.4, 0.7, 1.0)
        for kind in ("barrier", "lone")
        if kind == "barrier" or duty < 1
    ),
    Case("loader", 5.0, 0.2),
)


# ------------------------------------------------------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Track:
    """How far a program was: rows of (seconds since the epoch, done, CPU seconds), in order of time."""

    rows: tuple[tuple[float, float, float], ...]

    def at(self, time_s: float) -> tuple[float, float]:
        """What was done, and the CPU time, between two rows in proportion; before the first and after the last as
        there."""
        times = [row[0] for row in self.rows]
        right = bisect_right(times, time_s)
        if not self.rows or right == 0 or right == len(self.rows):
            row = self.rows[-1 if right else 0] if self.rows else (0.0, 0.0, 0.0)
            return row[1:]
        (from_s, done, cpu_s), (to_s, then_done, then_cpu_s) = self.rows[right - 1 : right + 1]
        part = (time_s - from_s) / (to_s - from_s)
        return done + part * (then_done - done), cpu_s + part * (then_cpu_s - cpu_s)

    def between(self, window: Window) -> tuple[float, float]:
        """What was done and the CPU time in a window."""
        (done, cpu_s), (then_done, then_cpu_s) = self.at(window.begin_s), self.at(window.end_s)
        return then_done - done, then_cpu_s - cpu_s


class Window(NamedTuple):
    """A time in which something was measured (seconds since the epoch)."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


def read_track(output: str) -> Track:
    """The lines `time done cpu` of what a job wrote; others are passed over."""
    rows: list[tuple[float, float, float]] = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError):
            time_s, done, cpu_s = map(float, line.split())
            if not rows or time_s > rows[-1][0]:
                rows.append((time_s, done, cpu_s))
    return Track(tuple(rows))


def round_ms(tracks: Sequence[Track], window: Window) -> float:
    """Length of a round in a window, mean of the hosts. Raises LabError where one of them did none."""
    done = [track.between(window)[0] for track in tracks]
    if not done or min(done) <= 0:
        raise LabError(
            "a host did no round while it was measured; look at its output, and take longer segments"
        )
    return 1000 * statistics.fmean(window.length_s / rounds_done for rounds_done in done)


@dataclass(frozen=True, slots=True)
class Pair:
    """A host alone, beside guests, and alone again."""

    before_ms: float
    """Length of its rounds."""
    beside_ms: float
    after_ms: float
    guests: int
    """Those that asad had lent to when it was measured."""
    gained_core_s: float
    """Core-seconds of work that they did meanwhile, by the pace of a core that they have alone."""
    window_s: float
    cpu_use: float
    """Part of its core that the host used alone."""

    @property
    def stretch(self) -> float:
        """Beside guests over alone, before and after."""
        return self.beside_ms / statistics.fmean((self.before_ms, self.after_ms))

    @property
    def again(self) -> float:
        """Alone over alone: what it would differ by anyhow."""
        return self.after_ms / self.before_ms


class Spread(NamedTuple):
    """Of several ratios."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    @property
    def text(self) -> str:
        return f"×{self.median:.3f} ({self.lowest:.3f} to {self.highest:.3f})"


@dataclass(slots=True)
class Result:
    """All pairs of a host."""

    case: Case
    pairs: list[Pair] = field(default_factory=list)

    @property
    def stretch(self) -> Spread:
        return Spread.of([pair.stretch for pair in self.pairs])

    @property
    def again(self) -> Spread:
        return Spread.of([pair.again for pair in self.pairs])

    @property
    def gain_cores(self) -> float:
        """Cores' worth of work that its guests did, mean over all pairs."""
        return sum(pair.gained_core_s for pair in self.pairs) / sum(pair.window_s for pair in self.pairs)

    @property
    def guests(self) -> float:
        return statistics.fmean(pair.guests for pair in self.pairs)

    @property
    def cpu_use(self) -> float:
        return statistics.fmean(pair.cpu_use for pair in self.pairs)

    @property
    def alone_ms(self) -> float:
        return statistics.median(pair.before_ms for pair in self.pairs)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.case._asdict(),
            "cpu_use": self.cpu_use,
            "alone_ms": self.alone_ms,
            "stretch": self.stretch._asdict(),
            "alone_again": self.again._asdict(),
            "guests": self.guests,
            "gain_cores": self.gain_cores,
            "pairs": [asdict(pair) | {"stretch": pair.stretch} for pair in self.pairs],
        }


def pairs_of(
    hosts: Sequence[Track],
    alone: Sequence[Window],
    beside: Sequence[Window],
    guests: Sequence[Sequence[Track]],
) -> list[Pair]:
    """Windows alone before, between and after those beside guests (so one more), the tracks of hosts and of the guests
    of each window."""
    pairs = []
    for (before, after), window, its_guests in zip(pairwise(alone), beside, guests, strict=True):
        used = [track.between(before)[1] / before.length_s for track in hosts]
        pairs.append(
            Pair(
                before_ms=round_ms(hosts, before),
                beside_ms=round_ms(hosts, window),
                after_ms=round_ms(hosts, after),
                guests=sum(bool(track.rows) for track in its_guests),
                gained_core_s=sum(track.between(window)[0] for track in its_guests),
                window_s=window.length_s,
                cpu_use=statistics.fmean(used),
            )
        )
    return pairs


def table(results: Sequence[Result]) -> Table:
    """A row a host."""
    made = Table(box=box.SIMPLE_HEAD)
    for column in (
        "host",
        "round alone",
        "CPU use",
        "round, beside guests / alone",
        "alone again / alone",
        "guests",
        "their gain",
    ):
        made.add_column(column, justify="left" if column == "host" else "right", no_wrap=True)
    for result in results:
        made.add_row(
            result.case.name,
            f"{result.alone_ms:.2f} ms",
            f"{result.cpu_use:.0%}",
            result.stretch.text,
            result.again.text,
            f"{result.guests:.1f} of {NODES}",
            f"{result.gain_cores:.2f} cores",
        )
    return made


# ------------------------------------------------------------------------------------------------------------- running


class LendingAsad(LiveAsad):
    """asad that lends all that is measured to be spare, also of jobs over several nodes."""

    def configuration(self, ports: list[int]) -> str:
        return super().configuration(ports) + LENDING


class Bench:
    """Hosts and guests on one cluster."""

    def __init__(self, slurm: RealSlurm, console: Console) -> None:
        self.slurm, self.console = slurm, console
        self.python = interpreter()
        # jobs of ordinary users must be able to read it, wherever the checkout lies
        self.program = slurm.folder / "rounds.py"
        shutil.copyfile(rounds.__file__, self.program)
        self.program.chmod(0o644)
        answer = subprocess.run(  # noqa: S603
            [self.python, str(self.program), "calibrate"],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        self.rates: dict[str, float] = json.loads(answer.stdout)

    def show(self, text: str) -> None:
        self.console.print(
            f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False, soft_wrap=True
        )

    def argv(self, kind: str, *options: str) -> list[str]:
        """How one of the programs is called."""
        rate = self.rates["copies" if kind == "copies" else "arithmetic"]
        return [self.python, "-I", str(self.program), kind, f"--rate={rate!r}", *options]

    def start(self, case: Case) -> list[str]:
        """Start the jobs of a host; one that meets nobody is a job on each node."""
        options = [f"--round-ms={case.round_ms:g}", f"--duty={case.duty:g}"]
        common = ("--job-name=host", HOST_LIMIT, MEMORY)
        if case.kind == "barrier":
            meet = f'--meet={self.slurm.folder}/jobs/"$SLURM_JOB_ID".socket'
            words = ["srun", "--ntasks-per-node=1", *self.argv(case.kind, *options)]
            script = f"exec {shlex.join(words)} {meet}"
            return [
                self.slurm.submit(script, f"--nodes={NODES}", "--ntasks-per-node=1", *common, user=HOST_USER)
            ]
        script = f"exec {shlex.join(self.argv(case.kind, *options))}"
        return [
            self.slurm.submit(script, f"--nodelist={node}", *common, user=HOST_USER)
            for node in self.slurm.node_names
        ]

    def track(self, job: str) -> Track:
        return read_track(self.slurm.output(job))

    def alone(self, segment_s: float) -> Window:
        """Nothing but the hosts for so long."""
        time.sleep(SETTLE_S)
        begin_s = time.time()
        time.sleep(segment_s)
        return Window(begin_s, time.time())

    def beside(self, segment_s: float) -> tuple[Window, list[str]]:
        """Guests beside the hosts for so long, or jobs that wait where asad lends nothing."""
        jobs = []
        for kind in rounds.GUESTS:
            script = f"exec {shlex.join(self.argv(kind))}"
            jobs.append(self.slurm.submit(script, f"--job-name={kind}", GUEST_LIMIT, MEMORY, user=GUEST_USER))
        try:
            deadline = time.monotonic() + LENT_S
            while not all(self.lent(job) for job in jobs) and time.monotonic() < deadline:
                time.sleep(0.5)
            window = self.alone(segment_s)
        finally:
            self.slurm.run("scancel", *jobs, check=False)
            self.slurm.wait(*jobs)
        return window, jobs

    def lent(self, job: str) -> bool:
        """Does it run as a guest, and has it begun to work?"""
        facts = self.slurm.job(job)
        return facts["Partition"] == "guest" and bool(self.track(job).rows)

    def run(self, case: Case, pairs: int, segment_s: float) -> Result:
        """Measure a host, under an asad that has learned nothing of it."""
        with LendingAsad(self.slurm, "measured") as live, self._hosts(case) as hosts:
            alone, beside, guests = [self.alone(segment_s)], [], []
            for number in range(pairs):
                window, jobs = self.beside(segment_s)
                beside.append(window)
                guests.append(jobs)
                alone.append(self.alone(segment_s))
                live.check()
                lent = sum(bool(self.track(job).rows) for job in jobs)
                self.show(f"{case.name}: pair {number + 1} of {pairs}, {lent} guests")
            if live.faults():
                raise LabError(f"asad had faults of its own; its log ends:\n{live.last_words()}")
            tracks = [self.track(host) for host in hosts]
        return Result(
            case, pairs_of(tracks, alone, beside, [[self.track(job) for job in jobs] for jobs in guests])
        )

    @contextlib.contextmanager
    def _hosts(self, case: Case) -> Iterator[list[str]]:
        """The jobs of a host, running; gone at the end."""
        hosts = self.start(case)
        try:
            self.slurm.wait(*hosts, state="RUNNING")
            deadline = time.monotonic() + rounds.MEET_S
            while not all(self.track(host).rows for host in hosts):
                if time.monotonic() > deadline:
                    output = "\n".join(self.slurm.output(host) for host in hosts)
                    raise LabError(f"{case.name}: no round in {rounds.MEET_S:.0f} s; its output:\n{output}")
                time.sleep(0.1)
            yield hosts
        finally:
            self.slurm.clear()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rounds", "pairs", type=click.IntRange(1, 100), default=5, show_default=True, help="Pairs of each host."
)
@click.option("--quick", is_flag=True, help="One pair of the first host, and short: does it run at all?")
@click.option(
    "--case",
    "chosen",
    multiple=True,
    metavar="TEXT",
    help="Only hosts whose name holds this (repeat it): barrier, 0.5 ms, loader.",
)
@click.option(
    "--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here."
)
def main(pairs: int, quick: bool, chosen: tuple[str, ...], out: Path | None) -> None:
    """Measure what hosts lose beside guests that asad lends to, on a real Slurm of two nodes on this machine.

    Hosts are a job of two processes on two nodes that meet after rounds of 0.5 and 5 ms, at a duty of 40, 70 and
    100 %, the same rounds of jobs on one node that meet nobody, and a data loader that wakes 200 times a second. The
    machine must be idle otherwise. Needs root.
    """
    console = Console(stderr=True)
    cases = [case for case in CASES if not chosen or any(text in case.name for text in chosen)]
    if not cases:
        raise click.UsageError(f"--case: none of {'; '.join(case.name for case in CASES)} holds it")
    if quick:
        cases, pairs = cases[:1], 1
    results: list[Result] = []
    try:
        with RealSlurm(nodes=NODES, cpus=1) as slurm:
            bench = Bench(slurm, console)
            for case in cases:
                results.append(bench.run(case, pairs, QUICK_SEGMENT_S if quick else SEGMENT_S))
                if out is not None:  # after each, so that what has been measured is not lost
                    text = json.dumps({"hosts": [result.to_json() for result in results]}, indent=1)
                    out.write_text(text + "\n", encoding="utf-8")
    except (LabError, OSError) as error:
        console.print(f"lab: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    finally:
        if results:
            Console(width=140).print(table(results))


if __name__ == "__main__":
    main()
