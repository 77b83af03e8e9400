"""Progress lines: what is understood, who is believed."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from asad.errors import ClusterError, UsageError
from asad.node.progress import offer_file, parse, read_progress, remove_file, write_progress

ME = os.getuid()


@pytest.mark.parametrize(
    ("text", "fraction"),
    [("40/100", 0.4), ("0.4", 0.4), ("40%", 0.4), (" 3 / 4 \n", 0.75), ("0", 0.0), ("1", 1.0), ("100%", 1.0),
     ("0/7", 0.0), ("2.5/10", 0.25), ("40 %", 0.4)],
)  # fmt: skip
def test_what_is_understood(text: str, fraction: float) -> None:
    assert parse(text) == pytest.approx(fraction)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nan",
        "inf",
        "-1",
        "40",
        "101%",
        "5/4",
        "1/0",
        "0/0",
        "1e-1",
        "four",
        "0.4;rm",
        "٤/٥",
        "1/2/3",
        "0x1",
        "9" * 400,
    ],
)
def test_what_is_not(text: str) -> None:
    assert math.isnan(parse(text))


def inside(folder: Path, job_id: str = "12") -> dict[str, str]:
    return {"SLURM_JOB_ID": job_id, "ASAD_PROGRESS_DIR": str(folder)}


def test_a_job_tells_and_the_actor_reads(tmp_path: Path) -> None:
    folder = tmp_path / "progress"
    assert offer_file("12", ME, folder)
    assert math.isnan(read_progress("12", ME, folder))
    for text, fraction in (("99.5%", 0.995), ("40/100", 0.4), ("1", 1.0)):
        write_progress(text, inside(folder))
        assert read_progress("12", ME, folder) == pytest.approx(fraction)
    assert offer_file("12", ME, folder)  # an actor that started again keeps what was told
    assert read_progress("12", ME, folder) == 1.0
    remove_file("12", folder)
    assert list(folder.iterdir()) == []


def test_nonsense_is_refused_where_it_is_typed(tmp_path: Path) -> None:
    offer_file("12", ME, tmp_path)
    with pytest.raises(UsageError, match=r"40/100, 0\.4 or 40%") as found:
        write_progress("\x1b[31mhalf", inside(tmp_path))
    assert "\x1b" not in str(found.value)


@pytest.mark.parametrize("job_id", ["", "../12", "12/13", "x"])
def test_only_inside_a_job(tmp_path: Path, job_id: str) -> None:
    with pytest.raises(UsageError, match="SLURM_JOB_ID"):
        write_progress("1/2", inside(tmp_path, job_id))


def test_without_an_actor_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="asad-node does not run"):
        write_progress("1/2", inside(tmp_path))


def test_a_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    offer_file("12", ME, tmp_path)
    write_progress("1/2", inside(tmp_path))
    assert math.isnan(read_progress("12", ME + 1, tmp_path))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0.5")
    (tmp_path / "12").symlink_to(tmp_path / "elsewhere")
    assert math.isnan(read_progress("12", ME, tmp_path))
    with pytest.raises(ClusterError):
        write_progress("0.7", inside(tmp_path))
    assert (tmp_path / "elsewhere").read_text() == "0.5"


def test_a_pipe_does_not_hang_the_actor(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "12")
    assert math.isnan(read_progress("12", ME, tmp_path))


def test_a_file_that_grows_is_emptied(tmp_path: Path) -> None:
    offer_file("12", ME, tmp_path)
    (tmp_path / "12").write_text("0.5" + " " * 100_000)
    assert math.isnan(read_progress("12", ME, tmp_path))
    assert (tmp_path / "12").stat().st_size == 0


def test_what_another_left_under_the_number_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "12")
    assert not offer_file("12", ME, tmp_path)
    assert offer_file("12", ME, tmp_path)
    write_progress("1/2", inside(tmp_path))
    assert read_progress("12", ME, tmp_path) == 0.5


def test_a_task_of_mesos_tells_by_the_name_that_its_executor_gives_it(tmp_path: Path) -> None:
    folder = tmp_path / "progress"
    assert offer_file("m7.1000", ME, folder)
    write_progress("40/100", {"ASAD_JOB_KEY": "m7.1000", "ASAD_PROGRESS_DIR": str(folder)})
    assert read_progress("m7.1000", ME, folder) == pytest.approx(0.4)
    with pytest.raises(UsageError):
        write_progress("1", {"ASAD_JOB_KEY": "../m7", "ASAD_PROGRESS_DIR": str(folder)})
