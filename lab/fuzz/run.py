"""Puts inputs to readers, and keeps account of what became of each.

An input is known by its reader and a number: the seed and these two make it again, and with it whatever the reader had
read since the last multiple of `BLOCK` (some keep state). Blocks are run in processes of their own, which may not have
more memory than they are given, so that one that ends by a signal is one failure and not the end.
"""

from __future__ import annotations

import contextlib
import gc
import linecache
import logging
import mmap
import os
import pickle
import re
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from asad.errors import AsadError
from lab.fuzz.mutations import Form, mutated

BLOCK = 500
"""So many inputs are read by one object; then there is a new one, that keeps nothing."""
SLOW_S = 1.0
"""An input that takes more CPU than this is a failure."""
HANGS_S = 30.0
"""An input that takes more CPU than this is given up."""
MIB = 2.0**20
CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but the end of a line, and what turns the direction of text."""
MOST_MESSAGE = 64 << 10
"""A longer message is no message."""

Read = Callable[[bytes, Random], bool]
"""Reads an input: True if it was taken, False or AsadError if it was refused. What is left of the chance is its own."""


class Reader(NamedTuple):
    """Something that reads what others have written."""

    name: str
    form: Form
    samples: Sequence[bytes]
    open: Callable[[Path], Read]
    """A new one; the folder is its own."""
    weight: int = 4
    """Its part of all inputs."""


class Failure(NamedTuple):
    """An input that had another end than to be read or refused."""

    number: int
    why: str
    """In one line; equal ones are of one kind."""
    story: str
    """The traceback, or whatever else there is to say."""
    data: bytes = b""


@dataclass
class Tally:
    """What became of the inputs of one reader."""

    reader: str
    inputs: int = 0
    read: int = 0
    refused: int = 0
    cpu_s: float = 0.0
    slowest_s: float = 0.0
    slowest: int = -1
    """Number of the input that took the most CPU."""
    rise_mib: float = 0.0
    """By how much one input raised the most memory that a block ever had."""
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count another block."""
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.rise_mib = max(self.rise_mib, other.rise_mib)
        for name in ("inputs", "read", "refused", "cpu_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures


class TooLongError(BaseException):
    """No reader may catch it."""


class FaultError(Exception):
    """What a reader said is not fit to be shown, or it is at fault by its own word."""


class _Log(logging.Handler):
    """What is logged while an input is read: a traceback is a failure, and so is a line that steers a terminal."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.found.append(_described(record.exc_info[1]))
        elif why := unfit(text):
            self.found.append((f"log: {why}", repr(text[:2000])))


def unfit(text: str) -> str:
    """Why a message must not be shown to an operator; empty if it may."""
    if len(text) > MOST_MESSAGE:
        return f"a message of more than {MOST_MESSAGE} characters"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a message that cannot be written: it holds half a character"
    if CONTROLS.search(text):
        return "a message that steers a terminal"
    return ""


def _described(error: BaseException) -> tuple[str, str]:
    """An error in one line that names its place, and its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/lab/fuzz/" not in frame.filename] or list(frames)
    inside = [frame for frame in ours if "/asad" in frame.filename] or ours
    where = f" ({'/'.join(Path(inside[-1].filename).parts[-2:])}:{inside[-1].lineno})" if inside else ""
    linecache.checkcache()
    story = "".join(traceback.format_exception(error))
    return f"{type(error).__name__}{where}: {str(error)[:100]!r}", story[-6000:]


def attempt(read: Read, data: bytes, chance: Random, log: _Log) -> tuple[bool, str, str]:
    """Read an input: was it taken, and what was wrong with how it was dealt with."""
    log.found.clear()
    taken = False
    try:
        taken = read(data, chance)
    except AsadError as error:
        if why := unfit(str(error)):
            return False, f"{type(error).__name__}: {why}", repr(str(error)[:2000])
    except TooLongError:
        return False, f"it took more than {HANGS_S:.0f} s", traceback.format_exc()[-6000:]
    except Exception as error:
        if isinstance(error, FaultError) and log.found:  # which shows more
            return False, *log.found[0]
        return False, *_described(error)
    return (taken, *log.found[0]) if log.found else (taken, "", "")


def input_of(reader: Reader, seed: int, number: int) -> tuple[bytes, Random]:
    """The input of that number, and the chance that is left for the reader."""
    chance = Random(f"{seed}/{reader.name}/{number}")  # noqa: S311 (it is to be the same again)
    return mutated(reader.samples, reader.form, chance), chance


def run_block(
    reader: Reader,
    seed: int,
    numbers: range,
    *,
    alarms: bool = False,
    skip: frozenset[int] = frozenset(),
    at: mmap.mmap | None = None,
) -> Tally:
    """The inputs of these numbers, from the beginning of their block on; in this process.

    `alarms` gives up what hangs (in the main thread alone); `at` is given the number that is being read, and `skip` are
    left out.
    """
    tally, log = Tally(reader.name), _Log()
    with tempfile.TemporaryDirectory(prefix="asad-fuzz-", dir=_memory()) as folder, _watching(log, alarms):
        read = reader.open(Path(folder))
        gc.collect()
        most = _most_memory()
        for number in range(numbers.start - numbers.start % BLOCK, numbers.stop):
            if number in skip:
                continue
            data, chance = input_of(reader, seed, number)
            if at is not None:
                at[:] = number.to_bytes(8, "big")
            if alarms:
                signal.setitimer(signal.ITIMER_PROF, HANGS_S)
            begin_s = time.thread_time()
            taken, why, story = attempt(read, data, chance, log)
            took_s = time.thread_time() - begin_s
            if alarms:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
            before, most = most, _most_memory()
            if number not in numbers:
                continue  # what the reader had read before
            if alarms and not why and took_s > SLOW_S:
                why, story = "it took more than a second of CPU", f"{took_s:.2f} s"
            tally.inputs += 1
            tally.read += taken and not why
            tally.refused += not taken and not why
            tally.cpu_s += took_s
            tally.rise_mib = max(tally.rise_mib, (most - before) / MIB)
            if took_s > tally.slowest_s:
                tally.slowest_s, tally.slowest = took_s, number
            if why:
                tally.failures.append(Failure(number, why, story, data))
    return tally


def run_blocks(
    blocks: Iterable[tuple[Reader, range]], seed: int, memory_mib: int, workers: int
) -> Iterator[Tally]:
    """Each block in processes of its own, so many at a time; what became of each, in order, whichever ended first.

    A process that is killed is a failure of the input that it was at. There is one thread here: a process that is
    forked beside others may find their locks taken for ever.
    """
    waiting: deque[_Apart] = deque()
    """In order; those at its head may be over while others are not."""
    with selectors.DefaultSelector() as ended:
        more = iter(blocks)
        try:
            while True:
                room = workers - len(ended.get_map())
                for reader, numbers in islice(more, room):
                    apart = _Apart(reader, seed, numbers, memory_mib)
                    waiting.append(apart)
                    ended.register(apart.start(), selectors.EVENT_READ, apart)
                if not waiting:
                    return
                for key, _ in ended.select():
                    apart = key.data
                    if apart.hear():
                        continue
                    ended.unregister(key.fd)
                    apart.end()
                    if apart.tally is None:
                        ended.register(apart.start(), selectors.EVENT_READ, apart)
                while waiting and waiting[0].tally is not None:
                    yield waiting.popleft().tally  # type: ignore[misc]
        finally:
            for apart in waiting:
                apart.stop()


class _Apart:
    """A block in a process of its own, and in another if that is killed."""

    def __init__(self, reader: Reader, seed: int, numbers: range, memory_mib: int) -> None:
        self.reader, self.seed, self.numbers, self.memory_mib = reader, seed, numbers, memory_mib
        self.tally: Tally | None = None
        """What became of the block, once it is over."""
        self._killed: list[Failure] = []
        self._child = self._reading = -1

    def start(self) -> int:
        """Fork; what becomes readable when there is something to hear."""
        self._at = mmap.mmap(-1, 8)
        self._heard = bytearray()
        skip = frozenset(failure.number for failure in self._killed)
        self._reading, writing = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            _be_child(self.reader, self.seed, self.numbers, self.memory_mib, skip, self._at, writing)
        os.close(writing)
        return self._reading

    def hear(self) -> bool:
        """Take what the child has written; False if that was all."""
        data = os.read(self._reading, 1 << 20)
        self._heard += data
        return bool(data)

    def end(self) -> None:
        """The child has written all, or is dead: then there must be another, which leaves out what killed it."""
        status = self._reap()
        if self._heard and status == 0:
            tally: Tally = pickle.loads(self._heard)  # noqa: S301 (of our own child)
            tally.inputs += len(self._killed)
            tally.failures += self._killed
            self.tally = tally
            return
        number = int.from_bytes(self._at[:], "big")
        how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit status {status >> 8}"
        data = input_of(self.reader, self.seed, number)[0]
        self._killed.append(Failure(number, f"the process ended: {how}", how, data))

    def stop(self) -> None:
        """Whoever asked does not want the rest."""
        if self._child > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self._reap()

    def _reap(self) -> int:
        os.close(self._reading)
        _, status = os.waitpid(self._child, 0)
        self._child = self._reading = -1
        return status


def _be_child(
    reader: Reader,
    seed: int,
    numbers: range,
    memory_mib: int,
    skip: frozenset[int],
    at: mmap.mmap,
    writing: int,
) -> None:
    status = 1
    try:
        has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = has + memory_mib * int(MIB)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        tally = run_block(reader, seed, numbers, alarms=True, skip=skip, at=at)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(tally, pipe)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


@contextlib.contextmanager
def _watching(log: _Log, alarms: bool) -> Iterator[None]:
    """Everything that is logged goes to `log`, arithmetic that warns is an error, and what hangs is given up."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [log]
    root.setLevel(logging.INFO)

    def alarm(*_: object) -> None:
        raise TooLongError

    old = signal.signal(signal.SIGPROF, alarm) if alarms else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", RuntimeWarning)
            yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        if old is not None:
            signal.signal(signal.SIGPROF, old)


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _memory() -> str | None:
    """A folder in memory, if there is one with room."""
    folder = Path("/dev/shm")  # noqa: S108
    fits = folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 64 * MIB
    return str(folder) if fits else None
