"""asad.toml: what is read, what is refused and in which words."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from asad.cli.config import toml_lines
from asad.config import TABLES, Config, load, parse, split_address
from asad.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("asad.toml")


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(text, HERE)
    assert error.value.exit_status == 2
    return str(error.value).split("\n")


def test_an_empty_file_is_the_defaults() -> None:
    config = parse("", HERE)
    assert config == Config(path=HERE)
    assert config.daemon.mode == "observe"
    assert config.store_url == "/var/lib/asad/asad.db"
    assert config.node.guest_partitions == ("guest",)


def test_values_are_read_as_written() -> None:
    config = parse(
        """
        [daemon]
        mode = "enforce"
        interval_s = 2
        state_dir = "/tmp/x"
        [policies]
        share = "static"
        [share.asax]
        headroom = 0.2
        [guard]
        guests_cap = 3
        [node]
        guest_partitions = ["night", "day"]
        [slurm]
        share_users = "any"
        opt_out = { users = ["eve"] }
        """,
        HERE,
    )
    assert (config.daemon.mode, config.daemon.interval_s) == ("enforce", 2.0)
    assert isinstance(config.daemon.interval_s, float)
    assert config.policies.share == "static"
    assert config.share == {"asax": {"headroom": 0.2}}
    assert config.guard.guests_cap == 3
    assert config.node.guest_partitions == ("night", "day")
    assert config.slurm == {"share_users": "any", "opt_out": {"users": ["eve"]}}
    assert config.store_url == "/tmp/x/asad.db"


def test_options_and_rules_of_admission_are_kept_as_plain_data() -> None:
    text = """
        [policies]
        admit = "fifo"
        [admit.fifo]
        slot_s = 60
        [[admit.rules]]
        utility = "constant(1)"
        users = ["ann"]
        [[admit.rules]]
        utility = "constant(2)"
    """
    config = parse(text, HERE)
    assert config.admit["fifo"] == {"slot_s": 60}
    assert [rule["utility"] for rule in config.admit["rules"]] == ["constant(1)", "constant(2)"]
    shown = tomllib.loads("\n".join(toml_lines(config.to_json())))
    assert shown["admit"] == config.admit


def test_a_lease_is_three_cycles_and_at_least_fifteen_seconds() -> None:
    assert parse("[daemon]\ninterval_s = 2", HERE).lease_s == 15.0
    assert parse("[daemon]\ninterval_s = 30", HERE).lease_s == 90.0
    assert parse("[nodes]\nlease_s = 40", HERE).lease_s == 40.0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[daemon]\n\ninterval = 5", "asad.toml:3: daemon.interval: unknown key; did you mean 'interval_s'?"),
        ("[deamon]\nmode = 'observe'", "asad.toml:1: deamon: unknown table; did you mean 'daemon'?"),
        (
            "[daemon]\nmode = 'enforced'",
            "asad.toml:2: daemon.mode: 'enforced' is none of the choices; choose one of observe, advise, enforce",
        ),
        (
            "[daemon]\ninterval_s = '30'",
            "asad.toml:2: daemon.interval_s: '30' is no number; write a number, no quotes",
        ),
        ("[daemon]\ninterval_s = true", "asad.toml:2: daemon.interval_s: True is no number"),
        ("[daemon]\ninterval_s = nan", "asad.toml:2: daemon.interval_s: nan is out of range"),
        (
            "[daemon]\ninterval_s = 0",
            "asad.toml:2: daemon.interval_s: 0 is out of range; give above 0 and at most 3600",
        ),
        ("[guard]\nguests_cap = 1.5", "asad.toml:2: guard.guests_cap: 1.5 is no whole number"),
        ("[guard]\npressure = 1.5", "asad.toml:2: guard.pressure: 1.5 is out of range"),
        ("[daemon]\nstate_dir = 'state'", "asad.toml:2: daemon.state_dir: 'state' is no absolute path"),
        (
            "[nodes]\nlisten = 'head'",
            "asad.toml:2: nodes.listen: 'head' is no address; write host:port, or [address]:port for IPv6",
        ),
        ("[nodes]\nlisten = 'head:99999'", "asad.toml:2: nodes.listen: 'head:99999' has no such port"),
        (
            "[node]\nguest_partitions = 'guest'",
            "asad.toml:2: node.guest_partitions: 'guest' is no list of names",
        ),
        ("[recorded]\nstay = 1", "asad.toml:2: recorded.stay: 1 is no truth value"),
        (
            "[nodes]\nauth = 'tls'\ncert = '/c'\nca = '/a'",
            'asad.toml:1: nodes.key: is not given; auth = "tls"',
        ),
        ("[nodes]\nlease_s = 10", "asad.toml:2: nodes.lease_s: 10 is less than a cycle"),
        ("[recorded]\nnodes = 4", "asad.toml:1: recorded.cores: nodes and cores go together"),
        ("daemon = 3", "asad.toml:1: daemon: not a table; write [daemon]"),
        ("[share]\nheadroom = 0.1", "asad.toml:1: share: not a table of tables"),
        (
            "[share.asaks]\nheadroom = 0.1",
            "asad.toml:1: share.asaks: no policy of the share stage; did you mean 'asax'?",
        ),
        ("[admit]\nslot_s = 5", "asad.toml:1: admit: not a table of tables; write [admit.oasis]"),
        (
            "[policies]\nadmit = 'oasis'\n[admit.oasys]\nslot_s = 5",
            "asad.toml:3: admit.oasys: no policy of the admit stage; did you mean 'oasis'?",
        ),
        (
            "[admit.rules]\nutility = 'constant(1)'",
            "asad.toml:1: admit.rules: not a list of tables; write [[admit.rules]]",
        ),
        ("slurm = 'yes'", "asad.toml:1: slurm: not a table"),
        ("[daemon", "asad.toml: not TOML: Expected ']'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_remedy(text: str, line: str) -> None:
    assert refused(text)[0].startswith(line)


def test_everything_wrong_is_reported_at_once() -> None:
    refusals = refused("[daemon]\nmode = 1\nsocket = 'x'\n[guard]\nfloor = 1")
    assert [line.split(": ")[1] for line in refusals] == ["daemon.mode", "daemon.socket", "guard.floor"]


def test_hostile_text_reaches_no_terminal() -> None:
    refusals = refused('[daemon]\nmode = "\\u001b[2J"\n"\\u001b]0;x" = 1')
    assert all(line.isprintable() for line in refusals)
    assert "holds control characters" in refused('[daemon]\nstore = "a\\u0007"')[0]


def test_a_table_is_allowed_for_the_cluster_that_is_named() -> None:
    text = "[daemon]\ncluster = 'ours'\n[ours]\nspeed = 3"
    assert parse(text, HERE).clusters == {"ours": {"speed": 3}}
    assert "unknown table" in refused("[ours]\nspeed = 3")[0]


def test_files_that_cannot_be_read_say_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory; name a configuration with --config"):
        load(tmp_path / "none.toml")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[daemon]\nstore = '\xe4'")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 18"):
        load(latin)
    huge = tmp_path / "huge.toml"
    huge.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than 1024 KiB"):
        load(huge)


@pytest.mark.parametrize(
    "text", ["", ":80", "host", "host:", "host:-1", "a b:80", "::1:80", "[::1]", "u@h:80"]
)
def test_what_is_no_address_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        split_address(text)


def test_addresses_come_apart() -> None:
    assert split_address("head.example:6820") == ("head.example", 6820)
    assert split_address("[fe80::1]:80") == ("fe80::1", 80)


def test_the_effective_configuration_is_plain_data() -> None:
    plain = parse("[slurm]\ndepth = 5", HERE).to_json()
    assert plain["daemon"]["state_dir"] == "/var/lib/asad"
    assert plain["node"]["guest_partitions"] == ["guest"]
    assert plain["slurm"] == {"depth": 5}
    again = {name: table for name, table in plain.items() if name in TABLES}
    assert set(again) == set(TABLES)


def test_the_reference_lists_every_key_with_its_default_and_no_other() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    for name, table in TABLES.items():
        section = page.split(f"## `[{name}]`")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \| `([^|]*)` \|", section, re.M)
        assert [key for key, _ in rows] == [column.name for column in fields(table)]
        for key, default in rows:
            value = Config().to_json()[name][key]
            written = {True: "true", False: "false"}[value] if isinstance(value, bool) else None
            shown = written or re.sub(r"'", '"', repr(value))
            assert default == re.sub(r"\.0$", "", shown), f"[{name}] {key}"
