"""Jobs count together as limits say, and a limit that one would exceed has a name."""

from __future__ import annotations

from typing import Any

import numpy as np
from log_of_jobs import log_of

from asad.replay.limits.broken_starts import broken_starts
from asad.replay.limits.limit_table import LimitTable, limit_table
from asad.replay.limits.sacctmgr_output import limits_of

ASSOC = "Cluster|Account|User|Partition|GrpJobs|GrpTRES|MaxJobs|MaxTRES|MaxTRESPerNode|QOS|Def QOS"
QOS = "Name|GrpTRES|GrpJobs|MaxTRES|MaxTRESPU|MaxJobsPU|MaxTRESPA|MaxJobsPA|LimitFactor"
ACCOUNTS = (
    "c|root|||||||||",
    "c| top||||cpu=8|||||",
    "c|  a||||mem=4G|||||",
    "c|   a|ann||||2|||normal,high|",
    "c|   a|bob||||||||",
    "c|  b|||||||||",
    "c|   b|ann|gpus||gres/gpu=2|||||",
    "c|   b|ann|||||cpu=4|mem=1G||",
)


def table_of(
    qos: tuple[str, ...], rows: list[dict[str, object]], accounts: tuple[str, ...] = ACCOUNTS
) -> LimitTable:
    return limit_table(limits_of("given", "\n".join((ASSOC, *accounts, QOS, *qos))), log_of(rows))


def beside(table: LimitTable, running: list[int], row: int) -> str:
    usage = table.usage(np.array(running, np.int32))
    limit = table.exceeded(usage, row)
    assert table.over(usage, np.array([row], np.int32))[0] == bool(limit)
    return limit


def job(user: str, account: str, qos: str = "normal", cores: int = 1, **more: object) -> dict[str, object]:
    return {"user": user, "account": account, "qos": qos, "cores": cores, **more}


def test_users_count_within_a_qos_over_all_accounts() -> None:
    table = table_of(
        ("normal||||cpu=4|3|||",),
        [job("ann", "b", cores=3), job("ann", "a", cores=2), job("bob", "a", cores=4)],
    )
    assert beside(table, [0], 1) == "QOS normal: MaxTRESPU cpu=4 of user ann"
    assert beside(table, [0], 2) == ""
    assert beside(table, [0, 1, 0], 1) == "QOS normal: MaxJobsPU=3 of user ann"


def test_accounts_limit_all_below_them() -> None:
    table = table_of((), [job("ann", "b", cores=4), job("bob", "a", cores=5), job("bob", "a", cores=4)])
    assert beside(table, [0], 1) == "account top: GrpTRES cpu=8"
    assert beside(table, [0], 2) == ""


def test_memory_is_counted_to_the_byte() -> None:
    rows = [
        job("bob", "a", memory=2.0**31),
        job("ann", "a", memory=2.0**31),
        job("ann", "a", memory=2.0**31 + 512),
    ]
    table = table_of((), rows)
    assert beside(table, [0], 1) == ""
    assert beside(table, [0], 2) == "account a: GrpTRES mem=4G"


def test_limits_of_a_qos_take_the_place_of_those_of_associations() -> None:
    rows = [
        job("ann", "b", cores=4),
        job("bob", "a", "high", cores=5),
        job("ann", "a", "high"),
        job("ann", "a"),
    ]
    table = table_of(("high|cpu=20|||||||", "normal||||||||"), rows)
    assert beside(table, [0], 1) == ""  # 9 of the account's 8, and 5 of the QOS's 20
    assert beside(table, [2, 3], 3) == "user ann of account a: MaxJobs=2"
    assert beside(table, [2, 3], 2) == "user ann of account a: MaxJobs=2"
    per_user = table_of(("high||||||||", "normal|||||9|||"), rows)
    assert beside(per_user, [2, 3], 3) == ""  # the QOS has a number of jobs
    assert beside(per_user, [2, 3], 2) == "user ann of account a: MaxJobs=2"


def test_accounts_count_within_a_qos() -> None:
    table = table_of(
        ("normal||||||cpu=4|2|",), [job("ann", "a", cores=2), job("bob", "a", cores=3), job("bob", "a")]
    )
    assert beside(table, [0], 1) == "QOS normal: MaxTRESPA cpu=4 of account a"
    assert beside(table, [0, 2], 2) == "QOS normal: MaxJobsPA=2 of account a"


def test_an_association_of_a_partition_holds_there_alone() -> None:
    gpus: dict[str, Any] = {"gres": "gpu:a100:1,gpu:1", "partition": "gpus"}
    table = table_of((), [job("ann", "b", **gpus), job("ann", "b", **gpus | {"partition": "batch"})])
    assert table.resources[4:] == ("gres/gpu", "gres/gpu:a100")
    assert beside(table, [0], 0) == "user ann of account b in partition gpus: GrpTRES gres/gpu=2"
    assert beside(table, [1], 0) == ""
    assert beside(table, [0], 1) == ""


def test_limits_on_one_job_and_one_node() -> None:
    rows = [
        job("ann", "b", cores=5),
        job("ann", "b", memory=2.0**31, nodes=1),
        job("ann", "b", memory=2.0**31, nodes=2),
    ]
    table = table_of((), rows)
    assert beside(table, [], 0) == "user ann of account b: MaxTRESPerJob cpu=4"
    assert beside(table, [], 1) == "user ann of account b: MaxTRESPerNode mem=1G"
    assert beside(table, [], 2) == ""
    wider = table_of(("normal|||cpu=6|||||",), rows)
    assert beside(wider, [], 0) == ""  # the QOS allows more


def test_a_resource_that_a_job_does_not_want_does_not_hold_it() -> None:
    rows = [job("ann", "b", gres="gpu:2", partition="gpus"), job("ann", "b", partition="gpus")]
    table = table_of((), rows)
    assert beside(table, [0, 0], 1) == ""


def test_limit_factor_scales_resources_and_no_jobs() -> None:
    rows = [job("ann", "b", cores=4), job("bob", "a", cores=5), job("ann", "a")]
    table = table_of(("normal||||||||2.0",), rows)
    assert beside(table, [0], 1) == ""
    assert beside(table, [0, 0, 1], 1) == "account top: GrpTRES cpu=16"
    assert beside(table, [2, 2], 2) == "user ann of account a: MaxJobs=2"


def test_where_the_log_has_no_qos_the_default_counts() -> None:
    accounts = (
        "c|root|||||||||",
        "c| a|||||||||",
        "c|  a|ann|||||||high,normal|high",
        "c|  a|bob|||||||low|",
    )
    qos = ("normal||1||||||", "high||2||||||", "low||3||||||")
    table = table_of(qos, [{"user": "ann"}, {"user": "bob"}, {"user": "eve"}], accounts)
    assert beside(table, [0, 0], 0) == "QOS high: GrpJobs=2"
    assert beside(table, [1, 1, 1], 1) == "QOS low: GrpJobs=3"
    assert beside(table, [2], 2) == "QOS normal: GrpJobs=1"
    assert table.facts["jobs_without_association"] == 1


def test_users_and_accounts_that_left_stay_below_their_account() -> None:
    accounts = ("c|root|||||||||", "c| a|||3||7||||")
    table = table_of((), [job("gone", "A"), job("ann", "other")], accounts)
    assert beside(table, [0, 0, 0], 0) == "account a: GrpJobs=3"
    assert beside(table, [0, 0, 0], 1) == ""


def test_without_a_tree_the_direct_account_and_root_count() -> None:
    accounts = ("c|root|||9||||||", "c|top||||cpu=8|||||", "c|a|||2||||||", "c|a|ann||||||||")
    table = table_of((), [job("ann", "a", cores=9)], accounts)
    assert beside(table, [], 0) == ""
    assert beside(table, [0, 0], 0) == "account a: GrpJobs=2"
    assert any("assoc tree" in sentence for sentence in table.not_applied)
    assert [group.owner for group in table.groups] == ["account a", "account root"]


def test_resources_that_no_log_has_are_named() -> None:
    table = table_of(("normal|billing=5,gres/gpu=0|||||||",), [job("ann", "a", cores=9)])
    assert "billing, gres/gpu" in table.not_applied[0]


def test_control_characters_of_names_are_spelt_out() -> None:
    table = table_of(("e\x1b[2Jvil||1||||||",), [job("ann", "a", "e\x1b[2Jvil")])
    assert beside(table, [0], 0) == "QOS e\\x1b[2Jvil: GrpJobs=1"


def test_broken_starts_are_those_that_lift_a_group_above_its_ceiling() -> None:
    rows = [job("ann", "a", cores=cores) for cores in (3, 2, 1, 4, 4, 9)]
    table = table_of(("normal||||cpu=4||||",), rows, ())
    start = np.array([0.0, 5.0, 10.0, 10.0, np.nan, 50.0])
    end = np.array([10.0, 8.0, 20.0, 20.0, np.nan, 60.0])
    # 3+2 at 5; at 10 the first has ended, and of two that start then the second is too many
    assert broken_starts(table, start, end).tolist() == [1, 3, 5]


def test_broken_starts_agree_with_a_plain_sweep() -> None:
    rng = np.random.default_rng(7)
    users, accounts = ("ann", "bob"), ("a", "b")
    rows = [
        job(
            users[rng.integers(2)],
            accounts[rng.integers(2)],
            ("normal", "high")[rng.integers(2)],
            int(rng.integers(1, 5)),
            memory=float(rng.integers(1, 2**31)),
        )
        for _ in range(300)
    ]
    table = table_of(("normal|cpu=9|||cpu=5||||", "high|||||3|||"), rows)
    start = rng.integers(0, 2000, 300).astype(float)
    end = start + rng.integers(1, 30, 300).astype(float)
    found = set(broken_starts(table, start, end).tolist())
    order = sorted(range(300), key=lambda row: (start[row], row))
    for place, row in enumerate(order):
        runs = [other for other in order[:place] if end[other] > start[row]]
        assert (row in found) == bool(beside(table, runs, row)), row
    assert 10 < len(found) < 290
