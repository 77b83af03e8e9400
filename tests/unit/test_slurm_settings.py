"""The table [slurm] is checked, and a mistake is answered with its remedy."""

from __future__ import annotations

import math
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from asad_slurm import open_cluster
from asad_slurm.nodesets import expand, fold
from asad_slurm.settings import Settings, read_settings
from hypothesis import given
from hypothesis import strategies as st
from slurm_samples import Actors

from asad.cluster.eligibility import Lend
from asad.errors import ConfigError


def test_defaults() -> None:
    assert read_settings({}) == Settings()
    assert Settings().share_users == "as-slurm" and Settings().lend == Lend()
    assert Lend() == Lend(multi_node=True, gres=False, whole_memory=False, exclusive=False)


def test_everything_can_be_set() -> None:
    settings = read_settings(
        {
            "transport": "command",
            "timeout_s": 3,
            "guest_partitions": {"batch": "guest", "long": "guest-long"},
            "share_users": "account",
            "lend": {"multi_node": False, "gres": True, "whole_memory": True, "exclusive": True},
            "opt_out": {"users": ["bob"], "nodes": "n[1-3],gpu1"},
            "offer_patience_s": 30,
            "depth": 10,
            "window_s": 5,
        }
    )
    assert settings.timeout_s == 3.0 and settings.depth == 10
    assert settings.lend == Lend(multi_node=False, gres=True, whole_memory=True, exclusive=True)
    assert settings.opt_out.nodes == {"n1", "n2", "n3", "gpu1"} and settings.opt_out.users == {"bob"}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"time_out_s": 3}, r"\[slurm\] time_out_s: there is no such setting; did you mean 'timeout_s'\?"),
        ({"zzz": 3}, r"\[slurm\] zzz: there is no such setting; known are transport"),
        ({"opt_out": {"user": ["bob"]}}, r"\[slurm.opt_out\] user: .* did you mean 'users'\?"),
        (
            {"transport": "rest"},
            r"\[slurm\] transport: 'rest' is unknown; choose from auto, command, pyslurm",
        ),
        ({"timeout_s": 0}, r"timeout_s: 0 is no number from 0.1 to 600"),
        ({"timeout_s": True}, r"timeout_s: True is no number"),
        ({"timeout_s": math.nan}, r"timeout_s: nan is no number"),
        (
            {"lend": ["multi-node"]},
            r"\[slurm\] lend: \['multi-node'\] is no table; write \[slurm.lend\] and below it "
            "multi_node = true or false, gres = true or false",
        ),
        ({"lend": {"multi-node": True}}, r"\[slurm.lend\] multi-node: .* did you mean 'multi_node'\?"),
        ({"lend": {"gres": "yes"}}, r"\[slurm.lend\] gres: 'yes' is no truth value; write true or false"),
        ({"share_users": "all"}, r"share_users: 'all' is unknown"),
        ({"guest_partitions": {"batch": "batch"}}, r"a guest partition cannot be a source"),
        ({"guest_partitions": {"batch": 3}}, r"guest_partitions.batch: 3 is no partition"),
        ({"guest_partitions": "guest"}, r"guest_partitions: 'guest' is no table"),
        ({"opt_out": {"nodes": "n[1-"}}, r"\[slurm.opt_out\] nodes: 'n\[1-' is no node set"),
        ({"opt_out": {"nodes": ["n1"]}}, r"nodes: \['n1'\] is no node set"),
    ],
)
def test_mistakes_are_answered(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_settings(table)


def test_the_plugin_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (found,) = entry_points(group="asad.clusters", name="slurm")
    assert found.load() is open_cluster
    cluster = open_cluster({"transport": "command"}, nodes=Actors(), state_dir=tmp_path, clock=lambda: 0.0)
    assert cluster.sentence() == "Slurm over squeue and scontrol: 0 nodes, 0 cores, 0 jobs"
    cluster.close()


def test_node_sets() -> None:
    assert sorted(expand("n[1-3,7],gpu1")) == ["gpu1", "n1", "n2", "n3", "n7"]
    assert expand("n[1-3]")[2] is expand("n[3-5]")[0]  # thousands of large sets share their names
    assert expand("") == expand("(null)") == () and expand("@all") == ("@all",)
    assert expand("n[08-10]") == ("n08", "n09", "n10")


@given(st.sets(st.integers(0, 999).map("rack1-n{}".format), min_size=1, max_size=30))
def test_folding_and_expanding_are_inverse(names: set[str]) -> None:
    assert set(expand(fold(tuple(sorted(names))))) == names
