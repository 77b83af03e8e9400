"""What `lab.hosts` and `lab.replayed` compute and print, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))  # the lab is run from the checkout, never installed

from lab import LabError, rounds  # noqa: E402
from lab.hosts import CASES, LENDING, NODES, Case, Pair, Result, Spread, Track, Window, pairs_of, read_track  # noqa: E402
from lab.hosts import table as hosts_table  # noqa: E402
from lab.replayed import Outcome, Run, replayed, spread, table  # noqa: E402


def text_of(table: Table) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


# --------------------------------------------------------------------------------------------------------------- hosts


def even(begin_s: float, end_s: float, per_s: float, cpu: float = 0.5) -> Track:
    """So many rounds a second, a row every quarter of a second."""
    times = [begin_s + k / 4 for k in range(int((end_s - begin_s) * 4) + 1)]
    return Track(tuple((at, (at - begin_s) * per_s, (at - begin_s) * cpu) for at in times))


def test_a_track_is_read_among_other_lines() -> None:
    track = read_track("srun: hello\n1.0 2.0 0.5\n3 4\nx y z\n2.0 6.0 1.0\n2.0 7.0 1.0\n")
    assert track == Track(((1.0, 2.0, 0.5), (2.0, 6.0, 1.0)))
    assert track.at(1.25) == (3.0, 0.625)
    assert track.at(0.0) == (2.0, 0.5) and track.at(9.0) == (6.0, 1.0)
    assert track.between(Window(1.5, 9.0)) == (2.0, 0.25)
    assert Track(()).between(Window(0.0, 1.0)) == (0.0, 0.0)


def test_a_pair_compares_with_before_and_after() -> None:
    # 100 rounds a second for ten seconds, 80 for ten, 100 again: 10, 12.5 and 10 ms
    rows = [(0.0, 0.0, 0.0), (10.0, 1000.0, 4.0), (20.0, 1800.0, 8.0), (30.0, 2800.0, 12.0)]
    alone, beside = [Window(1.0, 9.0), Window(21.0, 29.0)], [Window(11.0, 19.0)]
    guests = [[even(10.5, 19.5, 0.4), Track(())]]
    (pair,) = pairs_of([Track(tuple(rows))], alone, beside, guests)
    assert (pair.before_ms, pair.beside_ms, pair.after_ms) == pytest.approx((10.0, 12.5, 10.0))
    assert pair.stretch == pytest.approx(1.25) and pair.again == pytest.approx(1.0)
    assert (
        pair.guests == 1 and pair.gained_core_s == pytest.approx(3.2) and pair.cpu_use == pytest.approx(0.4)
    )


def test_rounds_of_several_hosts_are_averaged_and_none_at_all_is_an_error() -> None:
    alone, beside = [Window(0.0, 4.0), Window(8.0, 12.0)], [Window(4.0, 8.0)]
    (pair,) = pairs_of([even(0, 12, 100), even(0, 12, 50)], alone, beside, [[]])
    assert pair.before_ms == pytest.approx(15.0) and pair.stretch == pytest.approx(1.0)
    with pytest.raises(LabError, match="did no round"):
        pairs_of([even(0, 6, 100)], alone, beside, [[]])


def pair_of(beside_ms: float, after_ms: float = 1.0) -> Pair:
    return Pair(1.0, beside_ms, after_ms, guests=2, gained_core_s=5.0, window_s=10.0, cpu_use=0.4)


def test_a_result_is_printed_and_written_as_median_lowest_and_highest() -> None:
    result = Result(Case("barrier", 0.5, 0.4), [pair_of(1.0), pair_of(1.04), pair_of(0.98, after_ms=1.1)])
    assert result.stretch == Spread(1.0, pytest.approx(0.98 / 1.05), 1.04)
    assert result.again == Spread(1.0, 1.0, 1.1)
    assert result.gain_cores == 0.5
    (row,) = [line for line in text_of(hosts_table([result])).splitlines() if "barrier" in line]
    for cell in (
        "barrier, 0.5 ms, 40%",
        "×1.000 (0.933 to 1.040)",
        "×1.000 (1.000 to 1.100)",
        "2.0 of 2",
        "0.50 cores",
    ):
        assert cell in row
    written = json.loads(json.dumps(result.to_json()))
    assert written["stretch"]["highest"] == 1.04 and len(written["pairs"]) == 3
    assert written["pairs"][0]["stretch"] == 1.0


def test_the_hosts_are_those_that_the_page_names() -> None:
    page = (REPOSITORY / "docs/explanation/hosts.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[1].strip()
        for line in page.splitlines()
        if line.startswith(("| barrier", "| lone", "| loader"))
    ]
    assert rows == [case.name.replace("%", " %") for case in CASES]
    assert "multi_node = true" in LENDING and NODES == 2


@pytest.mark.parametrize(
    "argv", [["barrier", "--rate=1"], ["loader"], ["loader", "--rate=1", "--duty=0"], ["sleep"]]
)
def test_a_program_refuses_what_it_cannot_do(argv: list[str]) -> None:
    done = subprocess.run([sys.executable, rounds.__file__, *argv], capture_output=True, timeout=300)
    assert done.returncode == 2


@pytest.mark.parametrize("duty", [0.4, 1.0])
def test_two_ranks_meet_until_one_of_them_ends(tmp_path: Path, duty: float) -> None:
    argv = [sys.executable, rounds.__file__, "barrier", "--rate=1e6", "--round-ms=5", f"--duty={duty}"]
    argv += [f"--meet={tmp_path}/meet"]
    ranks = [
        subprocess.Popen(
            argv, env={"SLURM_PROCID": rank}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    assert ranks[0].stdout is not None
    lines = "".join(ranks[0].stdout.readline() for _ in range(2))
    ranks[0].kill()
    assert ranks[1].wait(300) != 0, "alone it does not go on"
    assert ranks[1].communicate()[0] == "", "one of them writes"
    ranks[0].communicate()
    track = read_track(lines)
    assert [row[1] for row in track.rows] == [50.0, 100.0]
    assert all(after[2] > before[2] for before, after in pairwise(track.rows))


# ------------------------------------------------------------------------------------------------------------ replayed


def test_errors_are_points_of_the_change_and_a_ratio_of_responses() -> None:
    run = Run(
        Outcome(100.0, 80.0, 4), {"recorded": Outcome(100.0, 72.0, 5), "simulated": Outcome(90.0, 81.0, 3)}
    )
    assert run.real.change == pytest.approx(-0.2)
    assert run.error_points("recorded") == pytest.approx(-8.0) and run.error_ratio(
        "recorded"
    ) == pytest.approx(0.9)
    assert run.error_points("simulated") == pytest.approx(10.0)
    assert run.error_ratio("simulated") == pytest.approx(1.125)
    written = json.loads(json.dumps(run.to_json()))
    assert written["real"]["change"] == pytest.approx(-0.2)
    assert written["simulated"]["error_points"] == pytest.approx(10.0)
    shown = text_of(table([run, run], "gangs"))
    (row,) = [line for line in shown.splitlines() if "replay, recorded" in line]
    assert "-28.0% (-28.0% to -28.0%)" in row and "-8.0 (-8.0 to -8.0)" in row and "×0.900" in row


def test_one_run_has_no_range() -> None:
    assert spread([2.0], "{:.1f}") == "2.0"
    assert spread([2.0, 5.0, 1.0], "{:.1f}") == "2.0 (1.0 to 5.0)"


CONF = """ClusterName=lab
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
NodeName=n1 CPUs=1 RealMemory=4000
NodeName=n2 CPUs=1 RealMemory=4000
PartitionName=batch Nodes=n1,n2 Default=YES MaxTime=INFINITE
"""
TOML = '[daemon]\nmode = "enforce"\ncluster = "slurm"\ninterval_s = 1.0\n[policies]\nshare = "asax"\n'


def sacct_log(first_id: int, day: int, light: float) -> list[str]:
    """Two jobs that hold both nodes for 40 s at that use, and four that wait for them and run for 20 s each."""

    def clock(at_s: int) -> str:
        return f"2024-05-{day:02}T10:{at_s // 60:02}:{at_s % 60:02}"

    rows = []
    for number in range(6):
        host = number < 2
        at_s, run_s = (0, 40) if host else (40 + 20 * ((number - 2) // 2), 20)
        cpu_s = run_s * light if host else run_s
        row = (
            first_id + number,
            "light" if host else "heavy",
            "nobody",
            "batch",
            "COMPLETED",
            clock(0),
            clock(at_s),
        )
        row += (
            clock(at_s + run_s),
            f"00:00:{run_s}",
            "00:02:00",
            1,
            1,
            "200M",
            "10M",
            f"00:00:{cpu_s:06.3f}",
        )
        rows.append("|".join(map(str, (*row, f"n{number % 2 + 1}", "0:0"))))
    return rows


@pytest.mark.parametrize("baseline", ["recorded", "simulated"])
def test_a_replay_is_asked_about_the_jobs_that_count(tmp_path: Path, baseline: str) -> None:
    from lab.run import SAMPLE_FIELDS

    log, conf, toml = tmp_path / "log.txt", tmp_path / "slurm.conf", tmp_path / "asad.toml"
    rows = [*sacct_log(1, 1, 0.1), *sacct_log(11, 2, 0.1)]
    log.write_text("\n".join([SAMPLE_FIELDS.replace(",", "|"), *rows]) + "\n")
    conf.write_text(CONF)
    toml.write_text(TOML)
    counts = frozenset(str(number) for number in range(11, 17))
    outcome = replayed(log, conf, toml, baseline, counts, seed=0)  # type: ignore[arg-type]
    assert outcome.alone_s == pytest.approx((2 * 40 + 2 * 60 + 2 * 80) / 6, abs=2.5)
    assert outcome.asad_s <= outcome.alone_s and 0 <= outcome.guests <= 4
    with pytest.raises(LabError, match="0 of 1 jobs"):
        replayed(log, conf, toml, baseline, frozenset(["99"]), seed=0)  # type: ignore[arg-type]
