"""What goes into the store comes out of it, whatever the names and the numbers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asad.bounded import printable
from asad.cli.screen import duration
from asad.decisions import Cause, CoAllocate, Decision, ExtendLimit, Outcome, SetShare
from asad.model import Json
from asad.store.encoding import to_text
from asad.store.store import Store

storable = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
plain: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
causes = st.builds(Cause, storable, storable, st.dictionaries(st.text(max_size=5), plain, max_size=4))
shares = st.floats(0.0, 1.0)


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[str], list[tuple[Decision, str, str]], int]:
    """Names of jobs, decisions about them with what became of each, and how many rows are gathered."""
    names = draw(st.lists(storable, min_size=1, max_size=5, unique=True))
    rows = st.integers(0, len(names) - 1)
    decisions = st.one_of(
        st.builds(
            CoAllocate,
            cause=causes,
            guest=rows,
            host=rows,
            nodes=st.lists(st.integers(0, 99), max_size=3).map(tuple),
            share=shares,
            capped=st.booleans(),
        ),
        st.builds(SetShare, cause=causes, guest=rows, share=shares, capped=st.booleans()),
        st.builds(ExtendLimit, cause=causes, job=rows, by_s=st.floats(0.0, 1e9)),
    )
    words = st.sampled_from(["done", "refused", "vetoed"])
    listed = [
        (decision, word, {"done": "", "refused": f"as {reason}", "vetoed": f"vetoed ({reason})"}[word])
        for decision, word, reason in draw(st.lists(st.tuples(decisions, words, storable), max_size=12))
    ]
    return names, listed, draw(st.integers(1, 15))


@pytest.mark.slow
@given(recordings())
@settings(max_examples=40, deadline=None)
def test_decisions_come_back_equal_and_in_order(
    recording: tuple[list[str], list[tuple[Decision, str, str]], int],
) -> None:
    names, seen, flush_every = recording
    with tempfile.TemporaryDirectory() as folder, Store.open(str(Path(folder) / "asad.db")) as store:
        run = store.begin_run("replay", "asax", None, {}, {}, flush_every=flush_every)
        for cycle, (decision, word, reason) in enumerate(seen):
            run.record(
                cycle,
                float(cycle),
                [Outcome(decision, word == "done", reason, veto=reason if word == "vetoed" else "")],
                names,
            )
        run.finish({})
        records = list(store.decisions(run.id))
        assert [record.decision() for record in records] == [decision for decision, _, _ in seen]
        assert [(record.outcome, record.outcome_reason) for record in records] == [kept[1:] for kept in seen]
        assert store.run(run.id).decisions == len(seen)
        for name in names:
            mine = [record for record in records if name in (record.job, record.host)]
            assert list(store.decisions(run.id, name)) == mine


@given(plain)
def test_plain_data_survives_json(value: Json) -> None:
    assert json.loads(to_text(value)) == value
    assert json.loads(to_text(value, canonical=True)) == value


@given(st.recursive(st.floats(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_never_holds_what_json_has_not(value: Json) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(to_text(value), parse_constant=refuse)


@given(st.text(st.characters()))
def test_nothing_printed_reaches_a_terminal_as_control(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    assert not text.isprintable() or shown == text


@given(st.floats(-1e9, 1e9))
def test_durations_read_back(seconds: float) -> None:
    text = duration(seconds)
    days, _, clock = text.removeprefix("-").rpartition("-")
    hours, minutes, rest = map(int, clock.split(":"))
    whole = int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + rest
    assert whole == round(abs(seconds))
    assert text.startswith("-") == (seconds < 0 and whole > 0)
