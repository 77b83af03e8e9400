"""Progress lines: what is understood, who is believed."""

from __future__ import annotations

import math
import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from asad.errors import ClusterError, UsageError
from asad.node.progress_files import (
    ENDED,
    FOLDER,
    MOST_HELD,
    offer_file,
    parse,
    read_progress,
    remove_file,
    tidy,
    write_progress,
)

ME = os.getuid()
UNIT = Path(__file__).resolve().parents[2] / "systemd" / "run-asad\\x2dprogress.mount"
KIB = 1024


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


def test_a_job_shows_and_the_actor_reads(tmp_path: Path) -> None:
    folder = tmp_path / "progress"
    assert offer_file("12", ME, folder)
    assert math.isnan(read_progress("12", ME, folder))
    for text, fraction in (("99.5%", 0.995), ("40/100", 0.4), ("1", 1.0)):
        write_progress(text, inside(folder))
        assert read_progress("12", ME, folder) == pytest.approx(fraction)
    assert offer_file("12", ME, folder)  # an actor that started again keeps what was sent
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


def test_a_task_of_mesos_shows_by_the_name_that_its_executor_gives_it(tmp_path: Path) -> None:
    folder = tmp_path / "progress"
    assert offer_file("m7.1000", ME, folder)
    write_progress("40/100", {"ASAD_JOB_KEY": "m7.1000", "ASAD_PROGRESS_DIR": str(folder)})
    assert read_progress("m7.1000", ME, folder) == pytest.approx(0.4)
    with pytest.raises(UsageError):
        write_progress("1", {"ASAD_JOB_KEY": "../m7", "ASAD_PROGRESS_DIR": str(folder)})


# ------------------------------------------------------------------------------------------- a file system that is full


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system as the unit mounts it, but of 256 KiB and 16 inodes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    (options,) = (line for line in UNIT.read_text().splitlines() if line.startswith("Options="))
    options = (
        options.partition("=")[2].replace("size=16M", "size=256k").replace("nr_inodes=4k", "nr_inodes=16")
    )
    assert "size=256k,nr_inodes=16" in options
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "asad-progress", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(descriptor: int) -> int:
    """Write until nothing more is taken; how many bytes that were."""
    written = 0
    while True:
        try:
            written += os.pwrite(descriptor, b"x" * 4096, written)
        except OSError:
            return written


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def test_who_fills_the_file_system_keeps_nobody_from_reporting(small: Path) -> None:
    assert all(offer_file(job, ME, small) for job in ("1", "2"))
    with (small / "1").open("r+b") as greedy:
        assert fill(greedy.fileno()) > 200 * KIB
        assert free_bytes(small) == 0
        write_progress("40%", inside(small, "2"))  # its page was there before
        assert read_progress("2", ME, small) == pytest.approx(0.4)
        assert not offer_file("3", ME, small), "for now; nothing fails"
        assert not (small / "3").exists()
        tidy({"1", "2", "3"}, small)
        assert (small / "1").stat().st_size == 0
        assert offer_file("3", ME, small)
        assert fill(greedy.fileno()) > 200 * KIB
        write_progress("50%", inside(small, "3"))
        assert read_progress("3", ME, small) == pytest.approx(0.5)
    assert read_progress("2", ME, small) == pytest.approx(0.4)


def test_space_taken_beyond_the_end_of_a_file_is_returned(small: Path) -> None:
    assert offer_file("1", ME, small)
    subprocess.run(["fallocate", "--keep-size", "--length=200K", str(small / "1")], check=True)
    assert (small / "1").stat().st_size <= 64 and free_bytes(small) < 60 * KIB
    tidy({"1"}, small)
    assert free_bytes(small) > 200 * KIB


def test_a_file_held_open_after_its_job_takes_nothing_from_others(small: Path) -> None:
    assert offer_file("1", ME, small)
    with (small / "1").open("r+b") as held:
        fill(held.fileno())
        remove_file("1", small)
        assert not (small / "1").exists() and free_bytes(small) > 200 * KIB
        assert fill(held.fileno()) > 200 * KIB
        tidy(set(), small)
        assert free_bytes(small) > 200 * KIB, "it can still be reached"
        (rest,) = small.iterdir()
        assert rest.name.startswith(ENDED) and (rest.stat().st_uid, rest.stat().st_mode & 0o777) == (0, 0o600)
    tidy(set(), small)
    assert list(small.iterdir()) == [], "and is removed when it is let go"


def test_a_file_mapped_into_memory_counts_as_held(small: Path) -> None:
    assert offer_file("1", ME, small)
    with (small / "1").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 1)
    remove_file("1", small)
    assert len(list(small.iterdir())) == 1
    mapped.close()
    tidy(set(), small)
    assert list(small.iterdir()) == []


def test_without_inodes_no_file_is_made_and_nothing_fails(small: Path) -> None:
    made = [job for job in map(str, range(30)) if offer_file(job, ME, small)]
    assert 8 < len(made) < 16
    tidy(set(made), small)
    remove_file(made[0], small)
    assert offer_file("99", ME, small)


def test_who_holds_files_of_ended_jobs_gets_no_others(tmp_path: Path) -> None:
    held = []
    for job in map(str, range(MOST_HELD)):
        assert offer_file(job, ME, tmp_path)
        held.append((tmp_path / job).open("r+b"))
        remove_file(job, tmp_path)
    assert not offer_file("99", ME, tmp_path)
    assert offer_file("100", ME + 1, tmp_path) or ME != 0, "others do"
    for file in held:
        file.close()
    tidy(set(), tmp_path)
    assert offer_file("99", ME, tmp_path)


def test_files_of_another_actors_jobs_are_let_be(tmp_path: Path) -> None:
    (tmp_path / "77").write_text("x" * 100)
    tidy({"12"}, tmp_path)
    assert (tmp_path / "77").stat().st_size == 100


def test_tidying_is_not_led_astray(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x" * 100)
    (tmp_path / "12").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "13")
    tidy({"12", "13"}, tmp_path)
    remove_file("12", tmp_path)
    remove_file("13", tmp_path)
    tidy(set(), tmp_path / "none")
    assert (tmp_path / "elsewhere").stat().st_size == 100
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def test_the_unit_mounts_the_folder_that_jobs_write_to() -> None:
    text = UNIT.read_text()
    assert f"Where={FOLDER}\n" in text
    assert UNIT.stem == str(FOLDER).strip("/").replace("-", "\\x2d").replace("/", "-")
    assert {"nosuid", "nodev", "noexec", "mode=0755"} <= set(text.split("Options=")[1].split()[0].split(","))
