"""A slice of `python -m lab.fuzz`: mutated inputs end in the errors that asad has, in every reader."""

from __future__ import annotations

import os
import signal
import time
from random import Random

import pytest

from lab.fuzz.__main__ import all_readers, check_samples, named, shares
from lab.fuzz.mutations import JSON_VALUES, hostile, mutated
from lab.fuzz.run import BLOCK, Reader, input_of, run_block, run_blocks, unfit

READERS = all_readers()
SLICE = 60
"""Inputs of each reader."""


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_mutated_inputs_are_read_or_refused(reader: Reader) -> None:
    assert not check_samples([reader])
    tally = run_block(reader, 7, range(SLICE))
    assert [(failure.number, failure.why, failure.story) for failure in tally.failures] == []
    assert tally.read + tally.refused == tally.inputs == SLICE


def test_seed_and_number_make_the_same_input_again() -> None:
    reader = READERS[0]
    first = [input_of(reader, 3, number)[0] for number in range(50)]
    assert first == [input_of(reader, 3, number)[0] for number in range(50)]
    assert first != [input_of(reader, 4, number)[0] for number in range(50)]


def test_a_number_is_repeated_with_what_the_reader_had_read_before() -> None:
    heard: list[bytes] = []

    def read(data: bytes, chance: Random) -> bool:
        heard.append(data)
        raise ZeroDivisionError("seven") if len(heard) == 8 else ValueError("others")

    reader = Reader("remembers", "text", [b"a word or two"], lambda folder: read)
    tally = run_block(reader, 1, range(BLOCK + 7, BLOCK + 8))
    assert len(heard) == 8
    assert tally.inputs == 1
    assert [failure.number for failure in tally.failures] == [BLOCK + 7]
    assert "ZeroDivisionError" in tally.failures[0].why


def test_blocks_end_the_same_however_many_are_read_at_a_time() -> None:
    def read(data: bytes, chance: Random) -> bool:
        if chance.random() < 0.05:
            os.kill(os.getpid(), signal.SIGKILL)
        if chance.random() < 0.1:
            raise ZeroDivisionError("a fault")
        time.sleep(
            0.02 * (chance.random() < 0.2)
        )  # so that blocks do not end in the order in which they began
        return chance.random() < 0.5

    readers = [Reader(name, "text", [b"a word or two"], lambda folder: read) for name in ("one", "two")]
    blocks = [
        (reader, range(first, first + 20)) for reader in readers for first in range(0, 3 * BLOCK, BLOCK)
    ]

    def ends(workers: int) -> list[tuple[object, ...]]:
        return [
            (tally.reader, tally.inputs, tally.read, tally.refused, tally.failures)
            for tally in run_blocks(blocks, 4, 256, workers)
        ]

    alone = ends(1)
    assert [end[:2] for end in alone] == [(name, 20) for name in ("one",) * 3 + ("two",) * 3]
    kinds = {failure.why[:20] for end in alone for failure in end[4]}  # type: ignore[attr-defined]
    assert {"the process ended: s", "ZeroDivisionError (u"} <= kinds
    assert ends(3) == alone


def test_what_would_control_a_terminal_or_cannot_be_written_is_reported() -> None:
    assert unfit("a plain line\nand another") == ""
    assert "terminal" in unfit("\x1b[2J")
    assert "half a character" in unfit("\ud800")
    assert "more than" in unfit("x" * 100_000)


@pytest.mark.parametrize("form", ["json", "lines", "toml", "text"])
def test_mutations_are_bounded_and_seldom_nothing(form: str) -> None:
    sample = b'{"a": [1, "two", null], "b": {"c": true}}\nname = 7 # word\n'
    made = [mutated([sample], form, Random(number)) for number in range(300)]  # type: ignore[arg-type]
    assert all(len(data) <= 2 << 20 for data in made)
    assert sum(data == sample for data in made) < 100
    assert len(set(made)) > 150


def test_hostile_values_are_made_of_every_kind() -> None:
    chance = Random(1)
    made = {hostile("json", chance)[:12] for _ in range(2000)}
    assert {"1e400", "NaN", "null", '"\\ud800"'} <= made
    assert len(made) > len(JSON_VALUES) / 2


def test_each_reader_can_be_named() -> None:
    assert [[reader] for reader in READERS] == [named(READERS, reader.name.upper()) for reader in READERS]
    assert len(named(READERS, "squeue")) == 2
    assert named(READERS, "") == READERS


def test_every_reader_has_its_share() -> None:
    assert sum(shares(READERS, 1_000_000)) == pytest.approx(1_000_000, rel=0.001)
    assert min(shares(READERS, 10)) == 1
