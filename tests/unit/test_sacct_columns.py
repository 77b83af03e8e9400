"""Which columns sacct has, and what stands in them."""

from __future__ import annotations

import pytest

from asad.replay.readers.sacct_columns import (
    ALIASES,
    FIELDS,
    FREE_TEXT,
    KNOWN,
    LISTS,
    SHAPES,
    column_name,
)

READ = """
alloccpus allocnodes alloctres cluster comment elapsed elapsedraw end jobid jobidraw jobname ncpus nnodes nodelist
partition reqcpus reqmem reqnodes reqtres start state submit timelimit timelimitraw totalcpu uid user
"""

# `sacct --helpformat` of 18.08 and 22.05, where they have what 26.05 has not
REMOVED = "AllocGRES ReqGRES Reserved ResvCPU ResvCPURAW"
NEW = """
OriginalSLUID ReqReservation SegmentSize SLUID TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask Exclusive
OverSubscribe StdErr StdIn StdOut QOSREQ Restarts Licenses FailedNode Extra Container SubmitLine Planned PlannedCPURAW
"""

PRINTED = {
    "suspended": ["00:00:00", "1-02:03:04", "INVALID"],
    "systemcpu": ["00:00.002", "01:02:03", "12-00:00:00", "00:00:00"],
    "cputime": ["49710-06:28:15", "00:10:00"],
    "planned": ["INVALID", "00:00:02"],
    "cputimeraw": ["0", "128000", "18446744073709551615"],
    "gid": ["0", "4294967294"],
    "priority": ["4294901758", "0", "1.0"],
    "restarts": ["0", "3"],
    "maxrss": ["1234K", "0", "1.50G", "2048000", "512.25M", "1.2e+03K"],
    "avediskread": ["0.01M", "12"],
    "averss": ["18014398509481983.50K"],
    "consumedenergy": ["1.23K", "0"],
    "avecpufreq": ["2.70G", "0", "1500K", "Unknown"],
    "reqcpufreqgov": ["0", "Performance", "OnDemand", "Unknown"],
    "reqcpufreq": ["Low-High:Conservative", "2400000"],
    "exitcode": ["0:0", "1:9", "-3:0", "127:0"],
    "derivedexitcode": ["0:15"],
    "eligible": [
        "2024-01-31T12:00:00",
        "Unknown",
        "1704067200",
        "Ystday 16:28",
        "21 Jan 15:00",
        "31/01-12:00:00",
    ],
    "tresusageinave": ["cpu=00:00:00,energy=0,fs/disk=204,mem=1028K,pages=0,vmem=7420K"],
    "tresusageinmaxnode": ["cpu=n1,energy=n-a.b.c,fs/disk=n1"],
    "tresusageouttot": ["energy=0,fs/disk=3.50M", "gres/gpumem=5G,gres/gpuutil=80"],
    "allocgres": ["gpu:2", "gpu:tesla:2(S:0-1),craynetwork:1", "7696487:1"],
    "maxrssnode": ["n1", "nid00012", "node-1.site.org", "(null)"],
    "failednode": ["n[1-2,7]"],
    "flags": ["SchedMain,StartReceived", "NONE"],
    "layout": ["Block", "Cyclic", "CycBlk", "Unknown", "Block,NoPack"],
    "reason": ["None", "ReqNodeNotAvail, May be reserved for other job", "AssocGrpCPUMinutesLimit"],
    "sluid": ["sGXX1FX7WMPV00"],
    "segmentsize": ["0", "16"],
    "exclusive": ["NO", "user"],
    "account": ["physics", "a.b-c_d", "Project 7"],
    "group": ["domain users", "DOM\\users"],
    "qos": ["normal", "Unknown"],
}


def test_every_column_is_known_by_its_name_in_any_case() -> None:
    for name in (*NEW.split(), *REMOVED.split(), *READ.split()):
        assert column_name(name) in KNOWN, name
        assert column_name(name.upper()) == column_name(name.lower()) == column_name(name)
    assert len(FIELDS) == len(set(FIELDS)) == 123


def test_each_column_is_read_or_free_text_or_has_a_shape() -> None:
    assert set(SHAPES) | FREE_TEXT | set(READ.split()) == KNOWN
    assert not set(SHAPES) & FREE_TEXT
    assert LISTS | FREE_TEXT | set(ALIASES) <= KNOWN
    assert set(ALIASES.values()) <= set(FIELDS)


@pytest.mark.parametrize("name", sorted(PRINTED))
def test_shapes_take_what_sacct_prints(name: str) -> None:
    for text in PRINTED[name]:
        assert SHAPES[name].fullmatch(text), text


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_every_shape_takes_what_is_missing_and_no_line_break(name: str) -> None:
    for text in ("", "Unknown", "None", "nan", "N/A"):
        assert SHAPES[name].fullmatch(text), text
    assert not SHAPES[name].fullmatch("1\n2")
    assert not SHAPES[name].fullmatch("wc -l | sort")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("suspended", "uniq -c"),
        ("suspended", "/home/ann"),
        ("maxrss", "sort"),
        ("exitcode", "00:00:00"),
        ("tresusageinave", "1:0"),
        ("eligible", "tee log"),
        ("uid", "ann"),
        ("maxrssnode", "a b"),
    ],
)
def test_shapes_refuse_what_stands_in_other_columns(name: str, text: str) -> None:
    assert name not in SHAPES or not SHAPES[name].fullmatch(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("JobName%20", "jobname"),
        (" JobName%-30 ", "jobname"),
        ('"Submit"', "submit"),
        ("'Start '", "start"),
        ("Reserved", "planned"),
        ("resvcpuRAW", "plannedcpuraw"),
        ("ReqGRES", "reqgres"),
        ("Time", None),
        ("Node", None),
        ("ALL", None),
        ("", None),
        ("%20", None),
        ("job id", None),
    ],
)
def test_names_in_headers(text: str, name: str | None) -> None:
    assert column_name(text) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("jobi", "jobid"),
        ("Job%20", "jobid"),
        ("time", "timelimit"),
        ("tresusageinmaxn", "tresusageinmaxnode"),
        ("p", "partition"),
        ("req", "reqcpufreq"),
        ("res", "reservation"),
        ("reserve", "planned"),
        ("allocg", "allocgres"),
        ("ac", "account"),
        ("a", None),
        ("all", None),
        ("JobIDs", None),
        ("", None),
    ],
)
def test_abbreviations_mean_the_first_column_of_the_table(text: str, name: str | None) -> None:
    assert column_name(text, abbreviated=True) == name
