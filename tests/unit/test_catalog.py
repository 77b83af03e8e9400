"""Policies by stage and name, asad's own and those of a package that is installed from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from asad import catalog
from asad.catalog import BASELINES, STAGES, help_of, policy_class, policy_names, run_names
from asad.config import parse
from asad.errors import ConfigError, UsageError
from asad.policy import Policy
from asad.stages import policy_of, stages_of

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = (ROOT / "docs" / "how-to" / "write-a-policy.md").read_text(encoding="utf-8")
ALL = [(stage, name) for stage in STAGES for name in policy_names(stage, yardsticks=True)]


@pytest.mark.parametrize(("stage", "name"), ALL)
def test_every_policy_declares_what_the_catalogue_wants(stage: str, name: str) -> None:
    kind = policy_class(stage, name, yardsticks=True)
    assert issubclass(kind, Policy) and (kind.stage, kind.name) == (stage, name)
    assert len(help_of(kind)) > 10 and kind.held in (None, "idle", "static")
    opening = (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0]
    assert opening.startswith(f"`{name}`: "), "a policy's file opens with its name and one line of help"
    for option, default in kind.defaults().items():
        assert isinstance(default, bool | int | float | str | tuple), option
    assert set(kind.signed) <= set(kind.defaults())


def test_every_stage_has_its_baseline_and_no_two_policies_share_a_name_in_replays() -> None:
    for stage, baseline in BASELINES.items():
        assert baseline in policy_names(stage)
        assert policy_class(stage, baseline).held is None and not policy_class(stage, baseline).defaults()
    assert len(run_names()) == len(ALL) - len(STAGES)
    assert run_names()["edf-defer"] == ("defer", "edf") and run_names()["oasis"] == ("admit", "oasis")


def test_an_unknown_name_is_an_error_everywhere() -> None:
    with pytest.raises(
        UsageError, match=r"no policy of the share stage is called 'asx'; did you mean 'asax'\?"
    ):
        policy_class("share", "asx")
    with pytest.raises(ConfigError, match=r"asad.toml:2: policies.share: 'asx' is none of the choices"):
        parse('[policies]\nshare = "asx"\n', Path("asad.toml"))


def test_yardsticks_are_for_replays_alone() -> None:
    assert "pool-oracle" not in policy_names("share")
    with pytest.raises(ConfigError, match="none of the choices"):
        parse('[policies]\nshare = "pool-oracle"\n', Path("asad.toml"))


class Offered:
    """A package that offers something."""

    stage, name = "share", "mine"


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make the installed packages offer exactly these: (name of the entry point, its value)."""

    def offer(*points: tuple[str, str]) -> None:
        found = [EntryPoint(name, value, catalog.POLICIES) for name, value in points]
        monkeypatch.setattr(catalog, "entry_points", lambda group: found if group == catalog.POLICIES else [])
        for cached in (catalog._offered, catalog._loaded, catalog.run_names):
            cached.cache_clear()

    yield offer
    monkeypatch.undo()
    for cached in (catalog._offered, catalog._loaded, catalog.run_names):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("point", "value", "why"),
    [
        (
            "share.broken",
            "no_such_module:Policy",
            r"policy 'broken' \(no_such_module:Policy\) cannot be loaded: ",
        ),
        ("share.broken", "json:NoSuch", "cannot be loaded: AttributeError"),
        ("share.other", "test_catalog:Offered", r"declares stage 'share' and name 'mine'; its entry point"),
        ("defer.mine", "test_catalog:Offered", r"declares stage 'share' and name 'mine'; its entry point"),
    ],
)
def test_a_class_that_is_not_what_it_is_offered_as_is_refused_when_it_is_asked_for(
    offers: Any, monkeypatch: pytest.MonkeyPatch, point: str, value: str, why: str
) -> None:
    monkeypatch.setitem(sys.modules, "test_catalog", sys.modules[__name__])
    offers((point, value), ("share.mine", "test_catalog:Offered"))
    assert policy_class("share", "mine") is Offered, "others are not in its way"
    with pytest.raises(ConfigError, match=r"mine .* is no class that derives from asad.policy.Policy"):
        policy_of(parse('[policies]\nshare = "mine"\n', Path("asad.toml")), "share")
    stage, _, name = point.partition(".")
    with pytest.raises(ConfigError, match=why):
        policy_class(stage, name)


def test_entry_points_that_say_nothing_or_contradict_each_other_are_refused(offers: Any) -> None:
    for point in ("mine", "lend.mine", "share."):
        offers((point, "test_catalog:Offered"))
        with pytest.raises(ConfigError, match=r"call it STAGE\.NAME"):
            policy_names("share")
    offers(("share.mine", "a:A"), ("share.mine", "b:B"))
    with pytest.raises(
        ConfigError, match="two packages offer a share policy 'mine': a:A and b:B; remove one"
    ):
        policy_names("share")


@pytest.mark.parametrize("stage", STAGES)
def test_a_table_of_a_policy_without_options_is_refused(stage: str) -> None:
    baseline = BASELINES[stage]
    text = f'[policies]\n{stage} = "{baseline}"\n[{stage}.{baseline}]\nx = 1\n'
    with pytest.raises(
        ConfigError, match=rf"\[{stage}\.{baseline}\]: {baseline} has no options; remove the table"
    ):
        stages_of(parse(text, Path("asad.toml")), [])


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy of CONTRIBUTING.md, packaged as the how-to says, and installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    (block,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M | re.S
    )
    (project,) = re.findall(r"^    ```toml\n(    \[build-system\].*?)^    ```$", HOW_TO, re.M | re.S)
    (folder / "site_policies.py").write_text(block, encoding="utf-8")
    (folder / "pyproject.toml").write_text(re.sub(r"^    ", "", project, flags=re.M), encoding="utf-8")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    )
    words = (
        "--disable-pip-version-check",
        "--root-user-action=ignore",
        "--target",
        str(folder / "installed"),
    )
    subprocess.run([*pip, *words, str(folder)], check=True, timeout=300)
    return folder / "installed"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs that use half of their cores, more of them than the machine holds at once."""
    path = tmp_path_factory.mktemp("log") / "log.swf"
    lines = ["; MaxNodes: 2", "; MaxProcs: 8"]
    for k in range(40):
        lines.append(
            f"{k + 1} {k * 60} -1 {600 + 40 * (k % 7)} 4 300 -1 4 3600 -1 1 {k % 3} 1 {k % 4} -1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(outside: Path, *words: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(outside), "XDG_STATE_HOME": str(folder)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_policy_from_outside_is_replayed_and_runs_live(outside: Path, log: Path, tmp_path: Path) -> None:
    asactl, asad = (str(Path(sys.executable).parent / name) for name in ("asactl", "asad"))
    replayed = run(
        outside,
        asactl,
        "replay",
        str(log),
        "--json",
        "--store",
        "none",
        "--policy",
        "slurm,one-tenth",
        folder=tmp_path,
    )
    assert json.loads(replayed)["policies"]["one-tenth"]["guests"] > 0

    config = tmp_path / "asad.toml"
    config.write_text(
        f'[daemon]\nmode = "enforce"\nstate_dir = "{tmp_path}/state"\nsocket = "{tmp_path}/s"\n'
        '[policies]\nshare = "one-tenth"\n[metrics]\nlisten = ""\n'
    )
    assert "and one-tenth" in run(outside, asactl, "config", "check", str(config), folder=tmp_path)
    recorded = ("--cluster", "recorded", "--log", str(log), "--speed", "1e9")
    run(outside, asad, "--config", str(config), *recorded, folder=tmp_path)
    store = f"{tmp_path}/state/asad.db"
    (live,) = json.loads(run(outside, asactl, "runs", "--store", store, "--json", folder=tmp_path))["runs"]
    assert live["policy"] == "one-tenth" and live["decisions"] > 0
