"""What the jobs of a log are worth."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from asad.errors import UsageError
from asad.model import JobLog
from asad.replay.readers import read_log
from asad.replay.worth import Rule, arrays_of, hints_of, read_rule, value

HEADER = "JobID|User|Partition|Submit|Start|ElapsedRaw|NCPUS|Comment\n"


def log(folder: Path, *lines: str) -> JobLog:
    """Jobs of `id|user|partition|second|comment`, all of 60 s and one core."""
    text = [HEADER]
    for line in lines:
        job, user, partition, second, comment = line.split("|")
        text.append(
            f"{job}|{user}|{partition}|2024-01-01T00:00:{second}|2024-01-01T01:00:00|60|1|{comment}\n"
        )
    path = folder / "log"
    path.write_text("".join(text))
    return read_log(path).jobs


def test_tasks_of_one_number_and_user_are_one_array(tmp_path: Path) -> None:
    jobs = log(
        tmp_path, "5_1|a|p|00|", "7|a|p|01|", "6_1|a|p|02|", "5_2|a|p|03|", "5_9|b|p|04|", "8+0|a|p|05|"
    )
    assert arrays_of(jobs.job_id, jobs.user).tolist() == [0, -1, 1, 0, 2, -1]
    assert arrays_of(np.arange(3), np.zeros(3, np.int32)).tolist() == [-1, -1, -1]


def test_a_users_own_word_comes_before_rules_and_the_narrower_rule_before_the_wider(tmp_path: Path) -> None:
    jobs = log(
        tmp_path,
        "1|a|long|00|asad:utility=constant(9)",
        "2|a|long|01|asad:workers=2",
        "3|b|long|02|",
        "4|b|short|03|",
    )
    rules = [Rule("constant(1)"), Rule("constant(2)", "partition", "long"), Rule("constant(3)", "user", "a")]
    assert hints_of(jobs, rules) == {
        0: "utility=constant(9)",
        1: "workers=2;utility=constant(3)",
        2: "utility=constant(2)",
        3: "utility=constant(1)",
    }
    assert hints_of(jobs, [Rule("constant(1)", "user", "nobody")]) == {
        0: "utility=constant(9)",
        1: "workers=2",
    }


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("constant(2)", Rule("constant(2)")),
        (" user=ann: sigmoid(10,0.5,2h)", Rule("sigmoid(10,0.5,2h)", "user", "ann")),
        ("partition=big-mem:deadline(1,90)", Rule("deadline(1,90)", "partition", "big-mem")),
        ("linear(1,1:00,2:00)", Rule("linear(1,1:00,2:00)")),
    ],
)
def test_rules(text: str, rule: Rule) -> None:
    assert read_rule(text, 600.0, 100.0) == rule


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "is empty"),
        ("sigmoid(10)", "sigmoid takes 3 arguments"),
        ("qos=high:constant(1)", "--utility"),
        ("constant(101)", "more than 100"),
        ("user=ann:", "--utility"),
    ],
)
def test_wrong_rules_say_what_to_write(text: str, shown: str) -> None:
    with pytest.raises(UsageError, match="--utility") as raised:
        read_rule(text, 600.0, 100.0)
    assert shown in str(raised.value)


def test_an_array_is_worth_once_by_its_last_end(tmp_path: Path) -> None:
    jobs = log(tmp_path, "5_1|a|p|00|asad:utility=deadline(4,20m)", "5_2|a|p|00|", "7|b|p|00|", "8|b|p|00|x")
    array = arrays_of(jobs.job_id, jobs.user)
    hints = {**hints_of(jobs, []), 2: "utility=linear(6,10m,30m)", 3: "workers=1"}
    valued = value(jobs, hints, array, 600.0, 100.0)
    assert valued.group.tolist() == [0, 0, 1, -1]
    assert valued.wrong == ()
    begin = float(jobs.submit_s[0])
    in_time = valued.figures(begin + np.array([60.0, 1200.0, 1200.0, 9e9]))
    assert in_time == {"utility": 4.0 + 3.0, "valued": 2, "timeliness_mean_s": 300.0, "in_time": 1}
    late = valued.figures(begin + np.array([60.0, 1201.0, 60.0, 60.0]))
    assert late == {"utility": 6.0, "valued": 2, "timeliness_mean_s": (1.0 - 540.0) / 2, "in_time": 1}


def test_nothing_is_worth_more_than_the_most_and_constants_have_no_target(tmp_path: Path) -> None:
    jobs = log(tmp_path, "1|a|p|00|asad:utility=constant(500)")
    array = arrays_of(jobs.job_id, jobs.user)
    figures = value(jobs, hints_of(jobs, []), array, 600.0, 100.0).figures(jobs.submit_s + 60.0)
    assert figures == {"utility": 100.0, "valued": 1, "timeliness_mean_s": None, "in_time": 0}


def test_hints_that_cannot_be_read_are_reported_and_worth_nothing(tmp_path: Path) -> None:
    jobs = log(tmp_path, "1|a|p|00|asad:utility=constant", "2_1|a|p|01|asad:utility=", "3|a|p|02|asad:no")
    valued = value(jobs, hints_of(jobs, []), arrays_of(jobs.job_id, jobs.user), 600.0, 100.0)
    assert len(valued) == 0
    assert [one.partition(":")[0] for one in valued.wrong] == ["job 1", "job 2_1"]
    assert valued.figures(jobs.submit_s)["utility"] == 0.0
    assert not math.isnan(valued.figures(jobs.submit_s)["utility"] or 0.0)
