"""`asactl replay --config`: what a configuration names is replayed as the daemon would run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from asad.cli.asactl import asactl
from asad.errors import UsageError


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Jobs that use half of their cores, more of them than the machine holds at once."""
    path = tmp_path_factory.mktemp("log") / "log.swf"
    lines = ["; MaxNodes: 2", "; MaxProcs: 8"]
    for k in range(60):
        run_s = 600 + 40 * (k % 7)
        lines.append(
            f"{k + 1} {k * 60} -1 {run_s} 4 {run_s // 2} -1 4 3600 -1 1 {k % 3} 1 {k % 4} -1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def replay(log: Path, *words: str) -> Any:
    given = ["replay", str(log), "--json", "--store", "none", "--no-vary-demand", *words]
    result = CliRunner().invoke(asactl, given, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def configured(tmp_path: Path, text: str) -> tuple[str, str]:
    path = tmp_path / "asad.toml"
    path.write_text(text, encoding="utf-8")
    return "--config", str(path)


def figures(document: Any, name: str) -> dict[str, Any]:
    return {key: value for key, value in document["policies"][name].items() if key != "wall_s"}


def test_the_same_share_policy_by_name_and_by_configuration_is_the_same_replay(
    log: Path, tmp_path: Path
) -> None:
    by_name = replay(log, "--policy", "slurm,measured")
    words = configured(tmp_path, '[policies]\nshare = "measured"\n')
    by_file = replay(log, *words)
    assert list(by_file["policies"]) == ["slurm", "configured"]
    assert figures(by_file, "configured") == figures(by_name, "measured")
    assert figures(by_file, "configured")["guests"] > 0


def test_options_guard_and_interval_of_the_configuration_hold(log: Path, tmp_path: Path) -> None:
    policy = '[policies]\nshare = "measured"\n'
    free = figures(replay(log, *configured(tmp_path, policy)), "configured")
    options = replay(
        log, *configured(tmp_path, f"{policy}[share.measured]\nleast_rate = 1.0\nheadroom = 0.9\n")
    )
    assert figures(options, "configured")["guests"] < free["guests"]
    closed = replay(log, *configured(tmp_path, f"{policy}[guard]\nnode_share_cap = 0.0\nguests_cap = 1\n"))
    assert figures(closed, "configured")["guests"] < free["guests"]
    slow = replay(log, *configured(tmp_path, f"[daemon]\ninterval_s = 600\n{policy}"))
    assert slow["settings"]["poll_s"] == 600.0
    assert figures(slow, "configured")["guests"] < free["guests"]


def test_all_stages_of_a_configuration_work_together(log: Path, tmp_path: Path) -> None:
    lending = '[policies]\nshare = "measured"\n'
    words = ("--deferrable", "share=0.5,window=4h", "--policy", "slurm,measured,configured,edf-defer")
    both = replay(log, *configured(tmp_path, lending + 'defer = "edf"\n'), *words)
    alone = replay(log, *configured(tmp_path, lending), *words)
    # what is named besides is put into its stage of the configuration, so the two mean the same here
    assert figures(both, "configured") == figures(both, "edf-defer") == figures(alone, "edf-defer")
    assert figures(both, "configured")["guests"] > 0
    assert figures(both, "configured") != figures(alone, "configured") == figures(alone, "measured")


def test_configured_without_a_configuration_is_refused(log: Path) -> None:
    with pytest.raises(UsageError, match="configured is what a configuration names: give one with --config"):
        replay(log, "--policy", "slurm,configured")


def test_two_stages_that_lend_in_different_ways_are_refused(log: Path, tmp_path: Path) -> None:
    words = configured(tmp_path, '[policies]\nshare = "static"\nplace = "oga"\n')
    with pytest.raises(UsageError, match='from the pools of nodes, and share = "static" otherwise'):
        replay(log, *words)


def test_what_if_shows_what_differs_and_what_users_feel_first(log: Path, tmp_path: Path) -> None:
    files = []
    for name, text in (("a", 'share = "exclusive"'), ("b", 'share = "measured"')):
        files += ["--config", str(tmp_path / f"{name}.toml")]
        (tmp_path / f"{name}.toml").write_text(f"[policies]\n{text}\n[guard]\nguests_cap = {len(files)}\n")
    words = ["whatif", str(log), *files]
    result = CliRunner().invoke(asactl, [*words, "--json"], catch_exceptions=False)
    document = json.loads(result.output)
    assert document["settings"] == [
        {"setting": "[policies] share", "A": "exclusive", "B": "measured"},
        {"setting": "[guard] guests_cap", "A": 2, "B": 4},
    ]
    rows = {row["figure"]: row for row in document["figures"]}
    assert rows["response_mean_s"]["slurm"] == rows["response_mean_s"]["A"] > rows["response_mean_s"]["B"]
    assert rows["response_mean_s"]["better"] == "B" and rows["guests"]["better"] == ""
    assert "wall_s" not in rows and all(row["A"] != row["B"] for row in rows.values())
    assert list(rows).index("response_mean_s") < list(rows).index("makespan_s") < list(rows).index("guests")
    shown = CliRunner().invoke(asactl, words, catch_exceptions=False).output
    assert '[policies] share: "exclusive" in A, "measured" in B' in shown and "Response, mean" in shown

    same = (
        CliRunner()
        .invoke(asactl, ["whatif", str(log), *files[:2], *files[:2]], catch_exceptions=False)
        .output
    )
    assert "Their settings are the same." in same and "No figure differs." in same
    with pytest.raises(UsageError, match="1 configurations; give --config twice"):
        CliRunner().invoke(asactl, ["whatif", str(log), *files[:2]], catch_exceptions=False)
