"""Tables as they come: headers, delimiters, quotes and line breaks wherever programs and users put them."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from test_odd_logs import COLUMNS, DAY, balanced, line, log

from asad.errors import LogError
from asad.replay.readers import raw_bytes, read_log
from asad.replay.readers.sacct_columns import FIELDS

# ------------------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize(
    "second",
    [
        COLUMNS.replace("Submit|Start", "Start|Submit"),
        COLUMNS.replace("|JobName", ""),
        f"{COLUMNS}|Eligible",
        "Submit|Start|jobid",
        COLUMNS.replace("|", ","),
        '"JobID";"Submit";"Start"',
    ],
)
def test_a_header_of_other_columns_is_refused(tmp_path: Path, second: str, skip_bad: bool) -> None:
    by = next(one for one in "|,;" if one in second)
    path = log(tmp_path, line(), second, f"{line('2')}|".replace("|", by))
    with pytest.raises(
        LogError, match=r"another header, with other \w+, at line 3; give the logs one by one"
    ):
        read_log(path, skip_bad=skip_bad)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (COLUMNS, COLUMNS.lower()),
        (COLUMNS, COLUMNS.upper()),
        (COLUMNS, f"{COLUMNS}|"),
        (f"{COLUMNS}|", COLUMNS),
        (COLUMNS, COLUMNS.replace("JobName", "JobName%20")),
        (COLUMNS, "|".join(f'"{name}"' for name in COLUMNS.split("|"))),
    ],
)
def test_the_same_columns_in_other_letters_are_the_same(tmp_path: Path, first: str, second: str) -> None:
    ends = ["|" if header.endswith("|") else "" for header in (first, second)]
    rows = [
        line() + ends[0],
        line("2", nodes="") + ends[0],
        second,
        line("3", nodes="") + ends[1],
        line("4") + ends[1],
    ]
    recorded = read_log(log(tmp_path, *rows, columns=first))
    assert recorded.jobs.job_id.tolist() == [1, 2, 3, 4]
    assert recorded.counts["header"] == 2
    assert balanced(recorded)


def test_columns_that_a_user_names_are_no_header(tmp_path: Path) -> None:
    texts = [
        "sacct -o JobID,JobName,Submit,Start",
        "echo $SLURM_JOBID|sort",
        "JobID,Submit: see Start, State",
        "sacct <<E\nJobID,JobName,Submit\nE",
    ]
    rows = [f"{line(str(number))}|{text}" for number, text in enumerate(texts)]
    assert len(read_log(log(tmp_path, *rows, columns=f"{COLUMNS}|SubmitLine")).jobs) == 4
    assert len(read_log(log(tmp_path, line(name="JobID", user="Submit"))).jobs) == 1


def test_a_header_of_few_known_names_may_stand_again(tmp_path: Path) -> None:
    columns = f"{COLUMNS}|{'|'.join(f'Own{number}' for number in range(20))}"
    rows = [line("1") + "|" * 20, columns, line("2") + "|" * 20]
    assert len(read_log(log(tmp_path, *rows, columns=columns)).jobs) == 2


@pytest.mark.parametrize(
    "before",
    [
        ["Welcome to the cluster", "*** maintenance | on Tuesday ***"],
        ["# sacct -aP -S 2024-01-01"],
        ["sep=|"],
        ["", "sacct: warning: no time", ""],
        [f"# banner {number}" for number in range(19)],
    ],
)
def test_what_stands_before_the_header_is_left_out(
    tmp_path: Path, before: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log(tmp_path, COLUMNS, line(), line("2")[:9], columns="\n".join(before))
    for size in (1, 1 << 18):
        monkeypatch.setattr(raw_bytes, "BLOCK_BYTES", size)
        recorded = read_log(path, skip_bad=True)
        assert recorded.jobs.job_id.tolist() == [1]
        assert recorded.counts["before the header"] == sum(text != "" for text in before)
        assert [error.line for error in recorded.bad] == [len(before) + 3]
        assert balanced(recorded)


def test_records_before_the_header_are_records(tmp_path: Path) -> None:
    recorded = read_log(log(tmp_path, line("1"), COLUMNS, line("2"), columns="a banner"))
    assert recorded.jobs.job_id.tolist() == [1, 2]
    assert balanced(recorded)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("\n \n", "it is empty"),
        (
            "job_id,Submit,Start,Elapsed,NCPUS\n1,2,3,4,5\n",
            "1: column JobID: the log does not have this column",
        ),
        ("hello\nworld\n", "no log that asad knows.*begins with 'hello'"),
        ("hello\nJobID  JobName  Submit\n", "2: columns are aligned by spaces"),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(LogError, match=words):
        read_log(path)


def test_a_header_and_columns_that_disagree(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        "JobID|Start|Submit|Elapsed|NCPUS|Own\n1|2024-01-01T05:00:00|2024-01-01T00:00:00|60|4|x\n"
    )
    with pytest.raises(
        LogError, match=r"calls column 2 'start', and --columns 'submit'; leave --columns away"
    ):
        read_log(path, columns=["JobID", "Submit", "Start", "Elapsed", "NCPUS", "Comment"])
    with pytest.raises(LogError, match="names 6 columns, and --columns 5"):
        read_log(path, columns=["JobID", "Start", "Submit", "Elapsed", "NCPUS"])
    assert len(read_log(path, columns=["jobid", "Start", "submit", "Elapsed", "NCPU", "Comment"]).jobs) == 1


@pytest.mark.parametrize(("between", "rows_between"), [(", ", ","), (", ", ", "), (" ; ", ";"), (" | ", "|")])
def test_blanks_behind_the_names_of_columns(tmp_path: Path, between: str, rows_between: str) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join([COLUMNS.replace("|", between), line().replace("|", rows_between)]))
    assert read_log(path).jobs.cores.tolist() == [4]
    mixed = COLUMNS.replace("|", ",").replace(",", ", ", 2)
    path.write_text("\n".join([mixed, line().replace("|", ",")]))
    assert read_log(path).jobs.cores.tolist() == [4]


# -------------------------------------------------------------------------------------------------------- quotes


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("numbers", ['"{}"', "{}"], ids=["all", "texts"])
@pytest.mark.parametrize("delimiter", [";", "\t", "|", ","])
def test_quoted_tables_of_any_delimiter(tmp_path: Path, delimiter: str, numbers: str, end: str) -> None:
    def quoted(row: str) -> str:
        return delimiter.join(
            numbers.format(one) if one.isdecimal() else f'"{one}"' for one in row.split("|")
        )

    rows = [quoted(line(name='say ""x""')), quoted(line("2", name=f"a{delimiter}b\nc"))]
    path = tmp_path / "log"
    path.write_text(end.join([quoted(COLUMNS), *rows, ""]), newline="")
    names = ('say "x"', f"a{delimiter}b\nc")
    for given in (None, "csv"):
        recorded = read_log(path, format=given)
        assert recorded.jobs.applications == names
        assert balanced(recorded)
    path.write_text(
        path.read_text().replace(end + '"1"', end + '"r1"' + delimiter + '"1"', 1).split(rows[1][:5])[0]
    )
    if numbers != "{}":  # R gives rows names of their own, and their column none
        assert read_log(path).jobs.cores.tolist() == [4]


@pytest.mark.parametrize("delimiter", [";", "\t", ","])
def test_the_delimiter_of_csv_is_found_out(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join([COLUMNS, line()]).replace("|", delimiter))
    assert read_log(path, format="csv").jobs.cores.tolist() == [4]
    path.write_text(line().replace("|", ","))
    assert read_log(path, format="csv", columns=COLUMNS.split("|")).jobs.cores.tolist() == [4]


@pytest.mark.parametrize(
    "names",
    [
        ('"a', "y", 'b"'),
        ('"a', 'b"', "y"),
        ('5" disk', '6" disk', "x"),
        ('"', '"', '"'),
        ('a"', "b", "c"),
        ('"a', '"b', '"c'),
        ('"a"b', 'c"d"', '"e'),
    ],
)
def test_a_stray_quote_swallows_no_record(tmp_path: Path, names: tuple[str, ...]) -> None:
    rows = [line(str(at), name=name).replace("|", ",") for at, name in enumerate(names, 1)]
    recorded = read_log(log(tmp_path, *rows, columns=COLUMNS.replace("|", ",")))
    assert recorded.jobs.job_id.tolist() == [1, 2, 3]
    assert balanced(recorded)


def test_quotes_that_cannot_be_read_are_named_in_asads_own_words(tmp_path: Path) -> None:
    path = log(
        tmp_path, '1,5" disk', '6" disk', line("2").replace("|", ","), columns=COLUMNS.replace("|", ",")
    )
    with pytest.raises(LogError, match="2 fields where there are 13 columns; a line break in a name"):
        read_log(path)


def test_quoted_names_in_the_first_column_may_have_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "log"
    rows = [f'"a\nb{job}",{job},2024-01-01T00:00:00,2024-01-01T00:00:00,60,4' for job in range(1, 4)]
    path.write_text("\n".join(["JobName,JobID,Submit,Start,Elapsed,NCPUS", *rows]))
    assert read_log(path).jobs.applications == ("a\nb1", "a\nb2", "a\nb3")


# --------------------------------------------------------------------------------------------------- line breaks


@pytest.mark.parametrize("lines", [2, 3, 9, 99])
def test_records_of_several_lines_each_cross_the_ends_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    columns = COLUMNS.replace("User", "SubmitLine")
    script = "\n".join(["sbatch --wrap module load gcc", *["srun ./a"] * (lines - 1)])
    rows = [line(str(job), user=script) for job in range(1, 40)]
    path = log(tmp_path, *rows, columns=columns)
    for size in (50, 999, 5000, 1 << 18):
        monkeypatch.setattr(raw_bytes, "BLOCK_BYTES", size)
        recorded = read_log(path)
        assert recorded.jobs.job_id.tolist() == list(range(1, 40))
        assert recorded.counts["rest of a line before"] == 39 * (lines - 1)
    last = [f"{line(str(job))}|{script}" for job in range(1, 40)]
    for size in (50, 999, 1 << 18):
        monkeypatch.setattr(raw_bytes, "BLOCK_BYTES", size)
        recorded = read_log(log(tmp_path, *last, columns=f"{COLUMNS}|SubmitLine"))
        assert recorded.jobs.job_id.tolist() == list(range(1, 40))
        assert balanced(recorded)


# ---------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize("delimiter", ["\x1f", "\x1e", "@", "; ", "||", "\t", "::", " | "])
def test_delimiter_is_what_stands_between_the_names(tmp_path: Path, delimiter: str) -> None:
    text = "\n".join([COLUMNS, line(), line("2")]).replace("|", delimiter)
    path = tmp_path / "log"
    path.write_text(text)
    assert read_log(path).jobs.job_id.tolist() == [1, 2]


def test_every_column_of_sacct_with_delimiters_in_what_is_not_used(tmp_path: Path) -> None:
    given = {
        "jobid": "5",
        "jobname": "a|b",
        "submit": f"{DAY}T09:00:00",
        "eligible": f"{DAY}T09:00:00",
        "start": f"{DAY}T10:00:00",
        "end": f"{DAY}T10:10:00",
        "elapsed": "00:10:00",
        "alloccpus": "4",
        "submitline": "sbatch --wrap 'cat x | sort | uniq'",
        "workdir": "/home/a|b",
        "suspended": "00:00:00",
        "systemcpu": "00:01.500",
        "cputimeraw": "2400",
        "exitcode": "0:0",
        "state": "COMPLETED",
    }
    text = "|".join(given.get(name, "") for name in FIELDS)
    recorded = read_log(log(tmp_path, text, columns="|".join(FIELDS)))
    assert recorded.jobs.applications == ("a|b",)
    assert (recorded.jobs.run_s[0], recorded.jobs.cores[0]) == (600, 4)
    assert len(read_log(log(tmp_path, text, columns="|".join(FIELDS)), columns=FIELDS).jobs) == 1


def test_line_breaks_in_names(tmp_path: Path) -> None:
    broken = line("2", name="a\nb\n\nc")
    recorded = read_log(log(tmp_path, line(), broken, line("3")))
    assert recorded.jobs.job_id.tolist() == [1, 2, 3]
    assert recorded.jobs.applications == ("fold", "a\nb\n\nc")
    assert recorded.counts["rest of a line before"] == 3
    assert balanced(recorded)


def test_line_breaks_in_the_last_column(tmp_path: Path) -> None:
    rows = [f"{line()}|bash -c 'a &&\n b | c\n1'", f"{line('2')}|x", f"{line('3')}|cat <<E\nb|c|d\nE"]
    recorded = read_log(log(tmp_path, *rows, columns=f"{COLUMNS}|SubmitLine"))
    assert recorded.jobs.job_id.tolist() == [1, 2, 3]
    assert balanced(recorded)


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    path = log(tmp_path, line(), line("2")[:20], line("3"), line("4")[:9])
    with pytest.raises(LogError, match="fields where there are 13 columns") as caught:
        read_log(path)
    assert caught.value.line == 3
    recorded = read_log(path, skip_bad=True)
    assert recorded.jobs.job_id.tolist() == [1, 3]
    assert recorded.counts["bad"] == 2
    assert balanced(recorded)


def test_records_are_the_same_wherever_blocks_of_lines_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [line(str(job), name=f"a\n|b{job}" if job % 3 else "c") for job in range(1, 40)]
    path = log(tmp_path, *rows)
    whole = read_log(path)
    for size in (1, 50, 99, 1000):
        monkeypatch.setattr(raw_bytes, "BLOCK_BYTES", size)
        parts = read_log(path)
        assert parts.jobs.applications == whole.jobs.applications
        assert parts.jobs.job_id.tolist() == list(range(1, 40))
        assert parts.counts == whole.counts


# ---------------------------------------------------------------------------------------------------- what is missing


@pytest.mark.parametrize(
    "nothing",
    [
        "1970-01-01 00:00:00",
        "1970-01-01T00:00:00",
        "1969-12-31T19:00:00",
        "1970-01-02T01:00:00+11:00",
        "0001-01-01T00:00:00",
    ],
)
def test_a_date_of_epoch_0_is_no_time(tmp_path: Path, nothing: str) -> None:
    rows = [line(), line("2", start=nothing, end=nothing, elapsed="00:00:00", state="CANCELLED")]
    recorded = read_log(log(tmp_path, *rows, line("3", end=nothing, state="")))
    assert recorded.jobs.job_id.tolist() == [1]
    assert (recorded.counts["never started"], recorded.counts["still running"]) == (1, 1)
    small = "JobID|Submit|Start|Elapsed|NCPUS\n1|10|1000|60|4\n"
    path = log(tmp_path, small, columns="")
    assert read_log(path).jobs.start_s.tolist() == [1000]


@pytest.mark.parametrize("name", ["na", "NA", "nan", "null", "none", "None", "nat", "invalid"])
def test_users_and_clusters_may_be_called_as_others_write_nothing(tmp_path: Path, name: str) -> None:
    path = log(tmp_path, f"{line(user=name)}|{name}", columns=f"{COLUMNS}|Cluster")
    assert read_log(path, cluster=name).jobs.users == (name,)


@pytest.mark.parametrize("name", ["", "Unknown", "N/A", "(null)", "<NA>", " ", "NaN", "nan"])
def test_missing_names(tmp_path: Path, name: str) -> None:
    delimiter = "," if name in ("NaN", "nan") else "|"
    text = "\n".join([f"{COLUMNS}|UID", f"{line(user=name)}|1000"]).replace("|", delimiter)
    path = tmp_path / "log"
    path.write_text(text)
    assert read_log(path).jobs.users == ("1000",)


# -------------------------------------------------------------------------------------------------------- ids, paths


@pytest.mark.parametrize("tasks", ["1,3,5,...", "1-9,...%4", "..."])
def test_tasks_that_slurm_prints_shortened_are_no_step(tmp_path: Path, tasks: str) -> None:
    waits = line(
        f"20_[{tasks}]", start="Unknown", end="Unknown", elapsed="00:00:00", state="PENDING", nodes=""
    )
    recorded = read_log(log(tmp_path, line("20_1"), waits, line("20_1.batch", cpu="00:30:00")))
    assert (recorded.counts["never started"], recorded.counts["step"]) == (1, 1)
    assert balanced(recorded)


@pytest.mark.parametrize("number", ["1.23457E+11", "1,23457E+11", "1E+11", "1.2e11"])
def test_ids_that_a_spreadsheet_has_rounded_are_named(tmp_path: Path, number: str) -> None:
    path = log(tmp_path, line(), line(number))
    with pytest.raises(LogError, match=r"3: column jobid: .* is no job id: a spreadsheet has rounded it"):
        read_log(path)
    assert read_log(path, skip_bad=True).counts["bad"] == 1


@pytest.mark.parametrize("column", ["WorkDir", "StdOut", "StdErr", "StdIn"])
def test_paths_begin_at_the_root(tmp_path: Path, column: str) -> None:
    columns = COLUMNS.replace("User", column)
    for name, path in (("a|b", "/home/eva"), ("a|b|c", ""), ("a", "/home/a|b"), ("a|b", "slurm-%j.out")):
        jobs = read_log(log(tmp_path, line(name=name, user=path), columns=columns)).jobs
        assert jobs.applications == (name,)
    # other text stands there where there is no other way
    rows = [line(name="a", user="out.txt"), line("2", name="a", user="here").replace("fold", "x")]
    assert len(read_log(log(tmp_path, *rows, columns=columns)).jobs) == 2
    odd = line(user="out|txt", name="x", state="COMPLETED")
    columns = columns.replace("JobName", "Account")
    assert len(read_log(log(tmp_path, odd, columns=columns)).jobs) == 1


def test_names_with_many_delimiters_among_many_columns(tmp_path: Path) -> None:
    """Which takes a search that is narrow wherever the other columns leave no choice."""
    given = dict(zip(COLUMNS.split("|"), line().split("|"), strict=True))
    columns = sorted(
        {*COLUMNS.split("|"), "Comment", "Constraints", "Container", "SubmitLine", "WorkDir", "UID", "QOS"}
    )
    given |= {
        "SubmitLine": "sbatch --wrap " + "|".join("abcdefgh" * 12),
        "WorkDir": "/home/eva",
        "QOS": "normal",
    }
    rows = [
        "|".join(str(job) if name == "JobID" else given.get(name, "") for name in columns)
        for job in range(1, 99)
    ]
    recorded = read_log(log(tmp_path, *rows, columns="|".join(columns)))
    assert recorded.jobs.job_id.tolist() == list(range(1, 99))


# ------------------------------------------------------------------------------------------------------- compression


def _skippable(raw: bytes) -> bytes:
    compressed = bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(raw))
    return b"\x50\x2a\x4d\x18\x04\0\0\0" + len(compressed).to_bytes(4, "little") + compressed


@pytest.mark.parametrize(
    "pack",
    [_skippable, lambda raw: lzma.compress(raw, format=lzma.FORMAT_ALONE), zlib.compress],
    ids=["pzstd", "lzma", "zlib"],
)
def test_rarer_compression(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(pack(f"{COLUMNS}\n{line()}\n".encode()))
    assert len(read_log(path).jobs) == 1
