"""What sacctmgr prints of associations and QOS is read, or refused with place and remedy."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from asad.errors import LogError
from asad.replay.limits.sacctmgr_output import limits_of, read_limits

GOLDEN = Path(__file__).parent.parent / "golden" / "slurm" / "22.05"
ASSOC = "Cluster|Account|User|Partition|GrpJobs|GrpTRES|MaxJobs|QOS|Def QOS"
QOS = "Name|Priority|Flags|GrpTRES|MaxTRESPU|MaxJobsPU"


def text_of(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def test_golden_tree_says_who_is_below_whom() -> None:
    limits = read_limits([GOLDEN / "associations_tree.txt", GOLDEN / "qos.txt"])
    accounts = {one.account: one for one in limits.associations if not one.user}
    assert {name: one.parent for name, one in accounts.items()} == {
        "root": "",
        "lab": "root",
        "physics": "root",
        "theory": "physics",
        "optics": "physics",
    }
    assert accounts["physics"].limits["Grp"] == {"cpu": 5, "jobs": 100}
    assert accounts["theory"].limits["Grp"] == {"mem": 3000 * 2**20}
    (partition,) = (one for one in limits.associations if one.partition)
    assert (partition.user, partition.partition) == ("games", "guest")
    assert partition.limits["MaxJobs"] == {"jobs": 1}
    qos = {one.name: one.limits for one in limits.qos}
    assert qos["normal"] == {"PU": {"cpu": 4, "mem": 2 * 2**30, "jobs": 3}}
    assert qos["big"] == {"Grp": {"cpu": 9}, "Max": {"cpu": 6}, "PA": {"cpu": 5}}


def test_golden_limits_on_minutes_are_noted_once() -> None:
    limits = read_limits([GOLDEN / "associations_tree.txt", GOLDEN / "qos.txt"])
    (note,) = limits.not_applied
    assert "GrpTRESRunMins (1)" in note
    assert "MaxWall (1)" in note


def test_golden_files_joined_in_any_order_are_the_same() -> None:
    tree, qos = (GOLDEN / name for name in ("associations_tree.txt", "qos.txt"))
    apart = read_limits([tree, qos])
    joined = limits_of("joined", qos.read_text() + tree.read_text())
    assert [one.key for one in joined.associations] == [one.key for one in apart.associations]
    assert [one.limits for one in joined.qos] == [one.limits for one in apart.qos]
    # without indentation nobody knows what is below what; with both given the tree counts
    both = read_limits([GOLDEN / "associations.txt", tree])
    assert {
        one.parent for one in read_limits([GOLDEN / "associations.txt"]).associations if not one.user
    } == {
        "",
        None,
    }
    assert [one.parent for one in both.associations] == [one.parent for one in apart.associations]


def test_parent_names_and_older_columns_are_read() -> None:
    limits = limits_of(
        "given",
        text_of(
            "Account|ParentName|User|GrpCPUs|GrpMem|MaxNodes|", "a||ann|2|1G|4|", "a|root||||3|", "root||||||"
        ),
    )
    ann, account, root = limits.associations
    assert (ann.parent, account.parent, root.parent) == ("a", "root", "")
    assert ann.limits == {"Grp": {"cpu": 2, "mem": 2**30}, "Max": {"node": 4}}


def test_banners_and_carriage_returns_do_not_matter() -> None:
    limits = limits_of("given", f"sacctmgr: note\r\n\r\n{QOS}\r\nnormal|0||cpu=8||\r\n")
    assert limits.qos[0].limits == {"Grp": {"cpu": 8}}


def test_percentages_are_not_applied() -> None:
    limits = limits_of("given", text_of(QOS, "normal|0|DenyOnLimit,Relative|cpu=50||"))
    assert limits.qos[0].limits == {}
    assert "Relative" in limits.not_applied[0]


@pytest.mark.parametrize("column", ["Share", "Fairshare"])
def test_shares_of_associations(column: str) -> None:
    rows = [
        f"Account|User|{column}|GrpTRES",
        "root|||",
        "a||40|cpu=1",
        "a|ann|parent|",
        "a|bob|2147483647|",
        "a|cy|3|",
    ]
    shares = {one.user or one.account: one.share for one in limits_of("given", text_of(*rows)).associations}
    assert (shares["root"], shares["a"], shares["cy"]) == (1.0, 40.0, 3.0)
    assert math.isnan(shares["ann"]) and math.isnan(shares["bob"])


def test_shares_priorities_and_flags_stand_where_one_list_of_several_has_them() -> None:
    text = text_of("Account|User|Share|GrpTRES", "a|ann|7|") + text_of(ASSOC, "c|a|bob||||||", "|a|ann||||||")
    text += text_of(QOS, "low|100|DenyOnLimit,NoDecay|||") + text_of("Name|MaxJobsPU", "low|")
    limits = limits_of("given", text)
    assert [(one.user, one.share) for one in limits.associations] == [("ann", 7.0), ("bob", 1.0)]
    (low,) = limits.qos
    assert (low.priority, low.flags) == (100.0, ("DenyOnLimit", "NoDecay"))


def test_golden_shares_and_priorities() -> None:
    limits = read_limits([GOLDEN / "associations_tree.txt", GOLDEN / "qos.txt"])
    assert {one.share for one in limits.associations} == {1.0}
    assert {one.priority for one in limits.qos} == {0.0}
    assert {one.flags for one in limits.qos} == {()}


def test_associations_of_several_clusters_need_a_choice() -> None:
    text = text_of(ASSOC, "a|root|||||||", "b|root|||||||")
    with pytest.raises(LogError, match=r"2 clusters .*--cluster"):
        limits_of("given", text)
    assert len(limits_of("given", text, "b").associations) == 1
    with pytest.raises(LogError, match="no association of 'c'"):
        limits_of("given", text, "c")


@pytest.mark.parametrize(
    ("lines", "place", "problem"),
    [
        ((), "given", "no line names columns"),
        (("{}",), "given", "no line names columns"),
        (("a|b|c", "1|2|3"), "given", "no line names columns"),
        (("Name Priority", "normal 0"), "given:1", "aligned by spaces"),
        ((QOS, "normal|0"), "given:2", "2 fields, and its header names 6 columns"),
        ((QOS, "normal|0||cpu=8|||"), "given:2", "7 fields"),
        ((QOS, "|0||cpu=8||"), "given:2: column Name", "a QOS without a name"),
        ((QOS, "normal|high||cpu=8||"), "given:2: column Priority", "'high' is not a number"),
        (("Account|User|Share", "a|ann|-1"), "given:2: column Share", "'-1' is not a number"),
        (("Account|User|Fairshare", "a|ann|much"), "given:2: column Fairshare", "'much' is not a number"),
        ((QOS, "normal|0||cpu||"), "given:2: column grptres", "'cpu' is not a list of resources"),
        ((QOS, "normal|0||cpu=x||"), "given:2: column grptres", "'x' is not an amount of 'cpu'"),
        ((QOS, "normal|0||mem=lots||"), "given:2: column grptres", "'lots' is not an amount of memory"),
        ((QOS, "normal|0||||-1"), "given:2: column maxjobspu", "'-1' is not an amount"),
        ((QOS, "normal|0||||1", "Normal|0||||2"), "given:3: column Name", "given:2 with other limits"),
        ((ASSOC, "c||ann||||||"), "given:2: column Account", "without an account"),
        (
            (ASSOC, "c|a|ann||1||||", "c|A|ann||2||||"),
            "given:3: column Account",
            "given:2 with other limits",
        ),
        (("Account|GrpTRES", "a|cpu=1"), "given:1: column User", "do not name their users"),
        (("Name|Name|GrpTRES", "a|b|cpu=1"), "given:1: column 'name'", "twice"),
        (
            ("Account|ParentName|User|GrpTRES", "a|b||", "b|a||"),
            "given: column Par Name",
            "more than 100 accounts above it, or itself",
        ),
    ],
)
def test_what_cannot_be_read_names_its_place(lines: tuple[str, ...], place: str, problem: str) -> None:
    with pytest.raises(LogError, match=re.escape(problem)) as raised:
        limits_of("given", "\n".join(lines))
    assert str(raised.value).startswith(place + ": ")
    assert raised.value.remedy


def test_endless_trees_and_amounts_are_refused() -> None:
    rows = [f"c|{' ' * depth}a{depth}|||||||" for depth in range(200)]
    with pytest.raises(LogError, match="more than 100 accounts"):
        limits_of("given", text_of(ASSOC, *rows))
    with pytest.raises(LogError, match="not an amount"):
        limits_of("given", text_of(QOS, f"normal|0||cpu={'9' * 5000}||"))


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    path.write_bytes(b"Name|GrpTRES\n\0\0")
    with pytest.raises(LogError, match="no text"):
        read_limits([path])
    with pytest.raises(LogError, match="No such file"):
        read_limits([tmp_path / "none"])
