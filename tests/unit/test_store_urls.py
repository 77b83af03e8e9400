"""URLs of state stores: nothing that is secret in them is ever shown."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy.exc import OperationalError
from test_daemon import Life, live

from asad.cli import live as live_file
from asad.cli.asactl import asactl
from asad.cli.doctor import _store
from asad.config import Config, ConfigError, DaemonSettings
from asad.config import parse as parse_config
from asad.errors import StoreError, UsageError
from asad.store.database import Database
from asad.store.store import Store
from asad.store.urls import UNREADABLE, parse, shown_text, shown_words

__all__ = ["live"]  # the fixture

SECRETS = {
    "postgresql://asad:hunter2@db/asad": "postgresql://asad:***@db/asad",
    "postgresql+psycopg://asad:hunter2@db:5433/asad": "postgresql+psycopg://asad:***@db:5433/asad",
    "postgresql://db/asad?user=asad&password=hunter2&sslmode=require": "postgresql://db/asad?sslmode=require",
    "postgresql://asad@db/asad?password=hun@ter2": "postgresql://asad@db/asad",
    "postgresql://asad@db/asad?sslpassword=hunter2&sslkey=pkcs11:pin=hunter2": "postgresql://asad@db/asad",
    "postgresql://asad@db/asad?hunter2=hunter2": "postgresql://asad@db/asad",
    "postgresql://asad%40site:hunt%40er2@db/asad": "postgresql://asad%40site:***@db/asad",
    "postgresql://asad:hun?ter2@db/asad": "postgresql://asad:***@db/asad",
    "mysql://asad:hunter2@db/asad": "mysql://asad:***@db/asad",
    # an @ that is not written %40: where the password ends is not known
    "postgresql://asad:hun@ter2@db/asad": UNREADABLE,
    "postgresql://asad:hun@t/er2@db/asad": UNREADABLE,
    "postgresql://asad:hun@t?er2@db/asad": UNREADABLE,
    "postgresql://asad:hun@t?er=2@db/asad": UNREADABLE,
    "postgresql://asad:hun@t:er2@db/asad": UNREADABLE,
    "postgresql://as/ad:hunter2@db/asad": UNREADABLE,
    "postgresql://asad:hunter2@db:port/asad": UNREADABLE,
    "sqlite://asad:hunter2@db/asad": UNREADABLE,
    # no URLs at all
    "postgresql:/asad:hunter2@db/asad": UNREADABLE,
    "asad:hunter2@db/asad": UNREADABLE,
    "host=db password=hunter2": UNREADABLE,
}
"""URL → how it is shown."""
HARMLESS = (
    "/var/lib/asad/asad.db",
    "~/asad.db",
    "./a:b@c.db",
    "postgresql://asad@db/asad?connect_timeout=3&sslmode=verify-full",
    "postgresql://asad@[::1]:5432/asad",
)


def leaks(text: object) -> bool:
    return any(part in str(text) for part in ("hunter2", "ter2", "er2", "hunt"))


@pytest.mark.parametrize(("url", "expected"), SECRETS.items())
def test_a_password_is_never_shown(url: str, expected: str) -> None:
    assert shown_text(url) == expected
    assert not leaks(expected)


@pytest.mark.parametrize("url", HARMLESS)
def test_what_is_harmless_is_shown_as_it_was_written(url: str) -> None:
    assert shown_text(url) == url
    parse(url)


@pytest.mark.parametrize("url", [url for url, seen in SECRETS.items() if seen == UNREADABLE])
def test_a_url_that_cannot_be_read_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be read; .*its @ is written %40") as caught:
        Store.open(url)
    assert not leaks(caught.value)
    assert not leaks(caught.value.__cause__)


def test_what_a_driver_repeats_of_a_secret_is_struck_out() -> None:
    store = Database(parse("postgresql://asad:hunter2@db/asad?sslpassword=hunter22"))
    with pytest.raises(StoreError) as caught, store._reported("opening"):
        raise OperationalError("", {}, Exception('cannot use "hunter2" and "hunter22" at db'))
    store.close()
    assert not leaks(caught.value) and 'cannot use "***" and "***" at db' in str(caught.value)
    assert str(store) == "postgresql+psycopg://asad:***@db/asad"


@pytest.mark.parametrize("url", [*list(SECRETS)[:3], "postgresql://asad:hun@ter2@db/asad"])
def test_neither_daemon_nor_its_store_show_a_password(
    live: Callable[..., Life], tmp_path: Path, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    caplog.set_level("DEBUG")
    opened: list[Any] = []

    class Noted(Store):
        @classmethod
        def open(cls, url: str | None = None, *, create: bool = True) -> Any:
            opened.append(url)
            return super().open(str(tmp_path / "noted.db"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("asad.daemon.daemon.Writer", writer_to(Noted))
        life = live(first_cycle=False, more=f"store = {json.dumps(url)}")
        assert not leaks(life.ask("config")) and not leaks(life.ask("status"))
        life.daemon.writer.wait_until_written(60.0)
        life.daemon.stop()
        life.thread.join(300)
    assert opened[0] == url, "the store itself is opened with it"
    with Store.open(str(tmp_path / "noted.db")) as store:
        (run,) = store.runs()
        assert not leaks(run.to_json())
    assert not leaks(caplog.text)


def writer_to(store: type[Store]) -> Callable[..., Any]:
    """The daemon's writer, with another way to open the store."""
    from asad.store.writer import Writer

    return lambda url, start: Writer(url, start, open_store=store.open)


def call(*words: str) -> Result:
    return CliRunner().invoke(asactl, words)


@pytest.mark.parametrize("url", SECRETS)
def test_no_command_shows_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    place = tmp_path / "asad.toml"
    place.write_text(f"[daemon]\nstore = {json.dumps(url)}\nsocket = '{tmp_path}/none.sock'\n")
    monkeypatch.setenv("ASAD_CONFIG", str(place))
    monkeypatch.setattr(live_file, "DEFAULT_PATH", place)
    monkeypatch.delenv("ASAD_SOCKET", raising=False)
    commands = [
        ("config", "show"),
        ("config", "show", "--json"),
        ("config", "check"),
        ("explain", "5"),
    ]
    if shown_text(url) == UNREADABLE:  # the others would look for a server
        commands += [("runs", "--store", url), ("ledger",), ("explain", "5", "--store", url)]
    for words in commands:
        done = call(*words)
        assert not leaks(done.output) and not leaks(done.stderr), words
        assert not leaks(done.exception), words
    document = json.loads(call("config", "show", "--json").output)
    assert document["daemon"]["store"] == shown_text(url)


def test_a_configuration_is_refused_without_repeating_the_url() -> None:
    for wrong in ('"postgresql://asad:hunter2@db\\u0007/asad"', '["postgresql://asad:hunter2@db/asad"]'):
        with pytest.raises(ConfigError, match=r"daemon\.store: what is written there") as caught:
            parse_config(f"[daemon]\nstore = {wrong}\n", Path("asad.toml"))
        assert not leaks(caught.value)


def test_a_configuration_is_checked_for_a_url_that_can_be_read(tmp_path: Path) -> None:
    place = tmp_path / "asad.toml"
    place.write_text("[daemon]\nmode = 'observe'\nstore = 'postgresql://asad:hun@ter2@db/asad'\n")
    error = call("config", "check", str(place)).exception
    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"{place}:3: [daemon] store: the store's URL cannot be read")
    assert not leaks(error)


@pytest.mark.parametrize("url", SECRETS)
def test_the_doctor_looks_at_a_server_and_not_at_a_folder_of_its_url(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    asked: list[str] = []

    def refuse(given: str, *, create: bool) -> Store:
        asked.append(given)
        parse(given)
        raise StoreError(f"{shown_text(given)}: no answer")

    monkeypatch.setattr(Store, "open", refuse)
    finding = _store(Config(daemon=DaemonSettings(store=url)))
    assert asked == [url]
    assert finding.state == "fail" and not leaks(finding)


def test_a_report_repeats_its_command_without_the_password() -> None:
    words = [
        "replay",
        "log.txt",
        "--store",
        "postgresql://u:hunter2@db/a",
        "--store=postgresql://u:hun@ter2@db",
    ]
    assert shown_words(words) == [
        *("replay", "log.txt", "--store", "postgresql://u:***@db/a", f"--store={UNREADABLE}"),
    ]


def test_a_replay_keeps_no_password_in_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from asad.cli import replay

    seen: list[Any] = []
    monkeypatch.setattr(sys, "argv", ["asactl", "replay", "--store", "postgresql://u:hunter2@db/a"])
    monkeypatch.setattr("asad.report.page.write_page", lambda result, path: seen.append(result.settings))
    monkeypatch.setattr("asad.report.table.print_first_screen", lambda result, console: None)
    result = dataclasses.make_dataclass("Result", [("settings", dict)])({})
    monkeypatch.setattr(replay, "_run", lambda *_: result)
    log = Path(__file__).resolve().parents[2] / "profiles/samples/lab-cluster.sacct"
    words = [
        "replay",
        str(log),
        "--store",
        "postgresql://u:hunter2@db/a",
        "--report",
        str(tmp_path / "x.html"),
    ]
    done = CliRunner().invoke(asactl, words)
    assert done.exit_code == 0, repr(done.exception)
    assert seen[0]["command"] == ["asactl", "replay", "--store", "postgresql://u:***@db/a"]
