"""`asactl ledger`, as an operator sees it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from plain_answers import plain_of

from asad.cli.asactl import asactl
from asad.errors import UsageError
from asad.store import lending_ledger as stored
from asad.store.records import LedgerEntry
from asad.store.store import Store

pytestmark = pytest.mark.usefixtures("published_schemas")

NOW_S = time.time()
ENTRIES = [
    LedgerEntry("10", "host", NOW_S - 60.0, "physics", 1800.0, 90.0),
    LedgerEntry("12", "host", NOW_S - 5 * 86_400.0, "physics", 1800.0, 0.0),
    LedgerEntry("11", "guest", NOW_S - 60.0, "evil\x1b[2J[red]", 3600.0, 0.0),
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "asad.db")
    with Store.open(path) as store:
        stored.add(store, ENTRIES)
    return path


def ledger(*words: str) -> str:
    result = CliRunner().invoke(asactl, ["ledger", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_line_for_each_account_and_role(place: str) -> None:
    lines = [line.split() for line in ledger("--store", place).splitlines()]
    assert lines[1:] == [
        ["evil\\x1b[2J[red]", "guest", "1", "1.00", "0:00:00"],
        ["physics", "host", "2", "1.00", "0:01:30"],
    ]


def test_days_and_json(place: str) -> None:
    totals = plain_of(ledger("--store", place, "--days", "2", "--json"))["accounts"]
    assert totals[1] == {
        "account": "physics",
        "role": "host",
        "jobs": 1,
        "lent_core_s": 1800.0,
        "extended_s": 90.0,
    }


def test_the_daemons_store_without_being_named(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "asad.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\n')
    monkeypatch.setenv("ASAD_CONFIG", str(config))
    assert "physics" in ledger()


def test_nothing_and_no_store(tmp_path: Path) -> None:
    path = str(tmp_path / "asad.db")
    with Store.open(path):
        pass
    assert "holds no entry" in ledger("--store", path)
    assert plain_of(ledger("--store", path, "--json")) == {"accounts": []}
    with pytest.raises(UsageError, match="there is no store"):
        CliRunner().invoke(asactl, ["ledger", "--store", str(tmp_path / "none.db")], catch_exceptions=False)
