"""Reading sacct's text and JSON, and comma-separated extracts."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import runpy
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slurm_golden import check_logs

from asad.errors import LogError
from asad.replay.inferred_machine import infer
from asad.replay.readers import Recorded, fields, read_log
from asad.replay.readers.accounting_log import BadValue
from asad.replay.readers.node_sets import runs_of

LOGS = Path(__file__).resolve().parent.parent / "golden" / "logs"
SAMPLES = Path(__file__).resolve().parents[2] / "profiles" / "samples"
HEADER = "JobID|JobName|Submit|Start|End|ElapsedRaw|NCPUS\n"
LINE = "1|a|2024-01-01T00:00:00|2024-01-01T00:00:10|2024-01-01T00:01:10|60|4\n"
MIB = 2.0**20


def balanced(recorded: Recorded) -> bool:
    """Whether every line is a row or is counted under some reason."""
    left_out = sum(number for reason, number in recorded.counts.items() if reason != "lines")
    return recorded.counts["lines"] == len(recorded.jobs) + left_out


def written(folder: Path, text: str) -> Path:
    path = folder / "log"
    path.write_text(text)
    return path


def row(recorded: Recorded, job_id: str) -> dict[str, Any]:
    """The values of one job, names in place of codes."""
    jobs = recorded.jobs
    (at,) = np.flatnonzero(jobs.job_id.astype(str) == job_id)
    columns = ("submit_s", "start_s", "run_s", "cores", "nodes", "time_limit_s", "memory_bytes", "cpu_time_s")
    values: dict[str, Any] = {name: getattr(jobs, name)[at].item() for name in columns}
    for name, names in (
        ("user", jobs.users),
        ("application", jobs.applications),
        ("partition", jobs.partitions),
    ):
        code = getattr(jobs, name)[at]
        values[name] = names[code] if code >= 0 else None
    return values


def test_oddities_of_sacct() -> None:
    recorded = read_log(LOGS / "oddities.sacct")
    assert recorded.format == "sacct"
    assert recorded.jobs.job_id.tolist() == ["100", "101", "102_4", "103", "108", "106"]
    assert row(recorded, "100") == {
        "submit_s": 1704067200,
        "start_s": 1704067210,
        "run_s": 600,
        "cores": 4,
        "nodes": 1,
        "time_limit_s": 1800,
        "memory_bytes": 4000 * MIB,
        "cpu_time_s": 1200,
        "user": "ann",
        "application": "plain",
        "partition": "batch",
    }
    named = row(recorded, "101")  # a name with the delimiter in it, CPU time only on its steps
    assert (named["application"], named["user"]) == ("a|b", "ann")
    assert named["run_s"] == 86400
    assert named["time_limit_s"] == math.inf
    assert named["memory_bytes"] == 2000 * MIB * 8
    assert named["cpu_time_s"] == 90.5 + 86400
    task = row(recorded, "102_4")
    assert task["time_limit_s"] == 7200  # the largest limit seen in its partition
    assert task["memory_bytes"] == 8 * 1024 * MIB
    assert math.isnan(task["cpu_time_s"])
    whole = row(recorded, "103")
    assert (whole["cores"], whole["nodes"], whole["run_s"], whole["cpu_time_s"]) == (18, 3, 3600, 7200)
    assert whole["memory_bytes"] == 3 * 1024 * MIB
    assert row(recorded, "106")["start_s"] == 1704088800
    flagged = row(recorded, "108")
    assert flagged["memory_bytes"] == 2800 * MIB * 8
    assert flagged["cpu_time_s"] == 1.5
    assert math.isnan(flagged["time_limit_s"])  # nobody in `debug` shows its limit


def test_every_line_of_sacct_is_accounted_for() -> None:
    recorded = read_log(LOGS / "oddities.sacct")
    assert recorded.counts == {
        "lines": 17,
        "header": 1,
        "step": 3,
        "never started": 2,
        "still running": 1,
        "ran 0 s": 1,
        "repeated": 1,
        "earlier run of a requeued job": 1,
        "component of a heterogeneous job": 1,
    }
    assert balanced(recorded)
    for words in ("UTC", "per-core flag", "heterogeneous", "requeued", "largest limit", "does not show"):
        assert any(words in note for note in recorded.notes), words


def test_inferred_nodes_hold_the_greatest_use_at_one_time(tmp_path: Path) -> None:
    header = "JobID|Submit|Start|ElapsedRaw|NCPUS|NNodes|NodeList|ReqMem\n"
    overlapping = "1|10|10|100|4|1|n1|1Gn\n2|10|50|100|8|2|n[1-2]|1Gn\n3|10|110|10|2|1|n1|1Gn\n"
    machine = infer(read_log(written(tmp_path, header + overlapping)))
    assert machine.node_names == ("n1", "n2")
    assert machine.cores.tolist() == [8, 4]
    assert machine.memory_bytes[0] == 2 * 1024 * MIB


@pytest.mark.parametrize("name", ["slurm-22.05.json", "slurm-24.11.json"])
def test_json_of_both_shapes(name: str) -> None:
    recorded = read_log(LOGS / name)
    assert recorded.format == "sacct-json"
    assert row(recorded, "7") == {
        "submit_s": 1704067200,
        "start_s": 1704067210,
        "run_s": 600,
        "cores": 8,
        "nodes": 2,
        "time_limit_s": 1800,
        "memory_bytes": 2000 * MIB * 8,
        "cpu_time_s": 1200.5,
        "user": "ann",
        "application": "relax",
        "partition": "batch",
    }
    task = row(recorded, "8_4")
    assert task["time_limit_s"] == math.inf
    assert task["memory_bytes"] == 4000 * MIB
    assert math.isnan(task["cpu_time_s"])
    assert recorded.counts["never started"] == 1
    assert recorded.counts["step"] == 1
    assert balanced(recorded)
    if name == "slurm-24.11.json":
        whole = row(recorded, "20")
        assert (whole["cores"], whole["cpu_time_s"], whole["nodes"]) == (6, 400, 2)


@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_text_and_json_of_a_real_slurm_show_the_same(version: str) -> None:
    folder = LOGS.parent / "slurm" / version
    check_logs(folder / "log.sacct", folder / "log.json")


def test_bad_json_record_is_named(tmp_path: Path) -> None:
    whole = json.loads((LOGS / "slurm-22.05.json").read_text())
    whole["jobs"][2]["time"]["limit"] = "soon"
    path = written(tmp_path, json.dumps(whole))
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert caught.value.column == "jobs[2].time.limit"
    recorded = read_log(path, skip_bad=True)
    assert len(recorded.jobs) == 1
    assert balanced(recorded)


@pytest.mark.parametrize(
    "text", ["{", '{"jobs": 3}', "[1]", '{"jobs": [' + "[" * 100000, '{"jobs": [NaN]}', '{"jobs": []}']
)
def test_json_that_is_no_log(tmp_path: Path, text: str) -> None:
    with pytest.raises(LogError):
        read_log(written(tmp_path, text))


def test_comma_separated_extract() -> None:
    recorded = read_log(LOGS / "extract.csv")
    assert recorded.format == "csv"
    assert recorded.jobs.job_id.tolist() == [4, 1, 2]
    assert row(recorded, "1")["application"] == "a, b"
    assert row(recorded, "2")["nodes"] == 2
    assert infer(recorded).node_names == ("n1", "n2", "n3")
    assert row(recorded, "4")["submit_s"] == 1703685600
    assert balanced(recorded)
    assert "time_limit_s" in recorded.absent


def test_columns_are_named_where_there_is_no_header(tmp_path: Path) -> None:
    path = written(tmp_path, LINE)
    with pytest.raises(LogError, match="--columns"):
        read_log(path)
    columns = HEADER.strip().lower().split("|")
    assert read_log(path, columns=columns).jobs.cores.tolist() == [4]
    with pytest.raises(LogError, match="nonsense"):
        read_log(path, columns=[*columns[:-1], "nonsense"])


@pytest.mark.parametrize("delimiter", [";", "\t", "@@"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    path = written(tmp_path, (HEADER + LINE).replace("|", delimiter))
    chosen = delimiter if delimiter == "@@" else None
    assert read_log(path, delimiter=chosen).jobs.run_s.tolist() == [60]


def test_trailing_delimiter_carriage_returns_and_repeated_headers(tmp_path: Path) -> None:
    text = (HEADER + LINE + HEADER + LINE.replace("1|a", "2|a")).replace("\n", "|\r\n")
    recorded = read_log(written(tmp_path, text))
    assert recorded.jobs.job_id.tolist() == [1, 2]
    assert recorded.counts["header"] == 2
    assert balanced(recorded)


def test_missing_column_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER.replace("Start|", "") + LINE)
    with pytest.raises(LogError, match="column Start"):
        read_log(path)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        (LINE.replace("|60|", "|sixty|"), "elapsedraw"),
        (LINE.replace("|4\n", "|-4\n"), "ncpus"),
        (LINE.replace("2024-01-01T00:00:10", "yesterday"), "start"),
        (LINE.replace("1|a", "x|a"), "jobid"),
        (LINE.replace("2024-01-01T00:00:00", "Unknown"), "Submit"),
        ("1|a\n", None),
    ],
)
def test_bad_line_of_text_is_named(tmp_path: Path, line: str, column: str | None) -> None:
    path = written(tmp_path, HEADER + LINE.replace("1|", "9|", 1) + line)
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert (caught.value.line, caught.value.column) == (3, column)
    recorded = read_log(path, skip_bad=True)
    assert [error.line for error in recorded.bad] == [3]
    assert balanced(recorded)


def test_the_first_bad_line_is_raised_whatever_its_column(tmp_path: Path) -> None:
    text = HEADER + LINE + LINE.replace("|4\n", "|x\n") + LINE.replace("1|a", "x|a")
    with pytest.raises(LogError) as caught:
        read_log(written(tmp_path, text))
    assert caught.value.line == 3


def test_ambiguous_names_are_bad_lines(tmp_path: Path) -> None:
    header = "JobID|JobName|Comment|Submit|Start|ElapsedRaw|NCPUS\n"
    path = written(tmp_path, header + "1|a|b|c|10|20|30|4\n" + "2|a|b|10|20|30|4\n")
    with pytest.raises(LogError, match="more than one way"):
        read_log(path)
    many = "1|" + "|" * 3000 + "|10|20|30|4\n"
    recorded = read_log(written(tmp_path, header + many + "2|a|b|10|20|30|4\n"), skip_bad=True)
    assert recorded.jobs.job_id.tolist() == [2]


def test_error_messages_hold_no_control_characters(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + LINE.replace("|60|", "|\x1b[31m|"))
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert "\x1b" not in str(caught.value)


def test_fixed_width_output_gets_its_own_advice(tmp_path: Path) -> None:
    text = "JobID    JobName      State   NCPUS\n------ -------- ------\n1  a  COMPLETED 4\n"
    with pytest.raises(LogError, match="sacct -P"):
        read_log(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:01:00", 60),
        ("1-00:00:01", 86401),
        ("01:30.500", 90.5),
        ("125-00:00:00", 125 * 86400),
        ("1-02:03:04.005", 93784.005),
        ("90", 90),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert fields.duration(text) == seconds


@pytest.mark.parametrize("text", ["1-30:00", "x", "1:2:3:4", "-1:00", "١٢:٠٠"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(BadValue):
        fields.duration(text)


def test_a_bare_number_is_no_time_limit() -> None:
    with pytest.raises(BadValue, match="minutes or seconds"):
        fields.time_limit("120")
    assert fields.time_limit_minutes("120") == 7200


@pytest.mark.parametrize(
    ("text", "amount", "per"),
    [
        ("4000Mn", 4000 * MIB, "node"),
        ("2Gc", 2048 * MIB, "core"),
        ("62.50Gn", 62.495 * 1024 * MIB, "node"),  # rounded to two digits: the least that is printed so
        ("62.0Gn", 62 * 1024 * MIB, "node"),
        ("8G", 8192 * MIB, "job"),
        ("2147486448Mn", 2800 * MIB, "core"),
        ("9223372036854778608", 2800 * MIB, "core"),
        ("1T", 2.0**40, "job"),
        ("1P", 2.0**50, "job"),
    ],
)
def test_requested_memory(text: str, amount: float, per: str) -> None:
    asked = fields.requested_memory(text)
    assert (asked.amount_bytes, asked.per) == (amount, per)


def test_node_lists_never_blow_up() -> None:
    assert runs_of("n[1-3],login") == [(("n", "", 0), 1, 3), (("login", "", -1), 0, 0)]
    for hostile in ("n[1-999999999]", "a[1-9999]b[1-9999]", "@all", "n[3-", "n[1-2", "$(reboot)"):
        with pytest.raises(BadValue):
            runs_of(hostile)


def test_the_shipped_sample_is_a_feasible_schedule() -> None:
    recorded = read_log(SAMPLES / "generated-cluster.sacct.gz")
    assert 2800 <= len(recorded.jobs) <= 3000
    assert balanced(recorded)
    assert recorded.absent == ("depends_on", "think_s")
    assert (recorded.jobs.cpu_time_s <= recorded.jobs.run_s * recorded.jobs.cores * 1.001).all()
    assert infer(recorded).cores.tolist() == [32] * 16  # never more: a feasible schedule


def test_the_shipped_sample_can_be_generated_again() -> None:
    made = gzip.decompress(runpy.run_path(str(SAMPLES / "generate.py"))["generate"]())
    assert made == gzip.decompress((SAMPLES / "generated-cluster.sacct.gz").read_bytes())


@pytest.mark.slow
def test_the_generator_writes_the_sample_by_default_and_another_cluster_by_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(SAMPLES / "generate.py"))
    main = script["main"]
    shipped = (SAMPLES / "generated-cluster.sacct.gz").read_bytes()
    assert script["SAMPLE"] == SAMPLES / "generated-cluster.sacct.gz"
    assert hashlib.sha256(gzip.decompress(shipped)).hexdigest() == (
        "47ae0ffa1261977fdbe8dc31f4b02bd27afeb7c9263ee256fd4b1f2b5ce81a54"
    )
    main(["--out", "again.sacct.gz"])
    again = Path("again.sacct.gz").read_bytes()
    assert gzip.decompress(again) == gzip.decompress(shipped)
    # what is shipped was compressed by this version; others may do it otherwise
    assert again == shipped or zlib.ZLIB_RUNTIME_VERSION != "1.2.13"
    main(["--seed", "7"])
    other = read_log("generated-cluster-7.sacct.gz")
    assert capsys.readouterr().out.split() == ["again.sacct.gz", "generated-cluster-7.sacct.gz"]
    assert gzip.decompress(Path("generated-cluster-7.sacct.gz").read_bytes()) != gzip.decompress(shipped)
    assert len(infer(other).cores) == 16
    assert balanced(other)
    for words in (["--seed", "-1"], ["--seed", "x"], ["--out", "/nowhere/at/all"]):
        with pytest.raises(SystemExit):
            main(words)


@pytest.mark.traces
def test_pozidriv(traces: Path) -> None:
    columns = (
        "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,"
        "state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
    )
    recorded = read_log(traces / "pozidriv.sacct.gz", columns=columns.split(","))
    assert balanced(recorded)
    assert len(recorded.jobs) == 10673
    assert recorded.counts["never started"] + recorded.counts["ran 0 s"] == 11704 - 10673
    at = recorded.jobs.job_id.tolist().index(977669)
    assert recorded.jobs.memory_bytes[at] == 48000 * MIB
    assert recorded.jobs.time_limit_s[at] == 125 * 86400


@pytest.mark.traces
def test_cirrus(traces: Path) -> None:
    recorded = read_log(traces / "cirrus-2024Q1-sacct-subset.csv")
    assert recorded.format == "csv"
    assert len(recorded.jobs) == 11434
    assert balanced(recorded)


def test_the_recorded_sample_holds_what_slurm_measured() -> None:
    recorded = read_log(SAMPLES / "lab-cluster.sacct")
    jobs = recorded.jobs
    assert balanced(recorded)
    assert len(jobs) == 40
    used = jobs.cpu_time_s / (jobs.run_s * jobs.cores)
    # times are given in whole seconds
    assert (used > 0).all() and (jobs.cpu_time_s <= (jobs.run_s + 1.0) * jobs.cores).all()
    light = np.array([name in ("coupled", "post", "stream", "wait") for name in jobs.applications])
    assert (used[light[jobs.application]] < 0.5).all()
    assert (used[~light[jobs.application]] > 0.5).all()
    assert (jobs.time_limit_s == 60).all()
    assert (jobs.memory_bytes > 0).all()


COMMENTED = "JobID|Submit|Start|ElapsedRaw|NCPUS|Comment|AdminComment\n"


def test_hints_are_what_comments_show_after_their_prefix(tmp_path: Path) -> None:
    lines = (
        "1|2024-01-01T00:00:00|2024-01-01T00:00:10|60|4|asad:utility=constant(3);workers=2|asad:utility=no\n"
        "2_1|2024-01-01T00:00:01|2024-01-01T00:00:10|60|4|see asad:no|\n"
        "2_2|2024-01-01T00:00:02|2024-01-01T00:00:10|60|4||asad:utility=no\n"
        f"3|2024-01-01T00:00:03|2024-01-01T00:00:10|60|4|asad:{'x' * 5000}|\n"
    )
    jobs = read_log(written(tmp_path, COMMENTED + lines)).jobs
    assert jobs.hint is not None
    listed = [jobs.hints[code] if code >= 0 else "" for code in jobs.hint.tolist()]
    assert listed[:3] == ["utility=constant(3);workers=2", "", ""]
    assert len(listed[3]) == 1001
    assert jobs.take(np.array([3, 0])).hint is not None
    assert read_log(written(tmp_path, HEADER + LINE)).jobs.hint is None


@pytest.mark.parametrize("comment", [{"job": "asad:no", "administrator": None}, "asad:no"])
def test_hints_of_json(tmp_path: Path, comment: Any) -> None:
    text = json.loads((LOGS / "slurm-22.05.json").read_text())
    text["jobs"][0]["comment"] = comment
    jobs = read_log(written(tmp_path, json.dumps(text))).jobs
    assert jobs.hints == ("no",)
