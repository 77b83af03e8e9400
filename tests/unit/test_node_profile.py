"""Samples of jobs: what is counted, and what is NaN until it is known."""

from __future__ import annotations

import math
import os
import shutil
from collections import deque
from pathlib import Path

import pytest
from node_tree import Tree, write

from asad.node.cgroups import Cgroups
from asad.node.profile import (
    PEAK_S,
    WINDOW,
    Profile,
    add_rate,
    busy,
    delayed_part,
    io_bytes,
    key_value,
    only_waits,
    percentile,
    thread_turns,
)
from asad.node.quotas import Quotas
from asad.port import JobSample


class Node:
    def __init__(self, folder: Path, version: int) -> None:
        self.tree = Tree(folder / "tree", version)
        self.progress = folder / "progress"
        self.cgroups = Cgroups(self.tree.root, "n1", self.tree.proc)
        self.quotas = Quotas(self.cgroups, folder, lambda: 5.0)
        self.profile = Profile(self.cgroups, self.quotas, lambda: 5.0, self.progress)

    def look(self, now_s: float) -> dict[str, JobSample]:
        self.profile.follow(self.cgroups.jobs(now_s))
        return self.profile.look(now_s, {"7"})

    def use(self, cpu_s: float) -> None:
        if self.tree.version == 2:
            write(self.tree.root / self.tree.home / "job_7/cpu.stat", f"usage_usec {round(cpu_s * 1e6)}\n")
        else:
            write(
                self.tree.root / "cpuacct" / self.tree.home / "uid_1000/job_7/cpuacct.usage",
                f"{round(cpu_s * 1e9)}\n",
            )


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(params=[1, 2])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    return Node(tmp_path, request.param)


def test_means_are_nan_until_the_window_is_full_and_right_after(node: Node) -> None:
    node.tree.job("7", (100, 101))
    for look in range(WINDOW):
        node.use(look * 5.0)  # one core of two
        assert math.isnan(node.look(look * 5.0)["7"].cpu_fraction)
    node.use(WINDOW * 5.0 + 2.0)
    sample = node.look(WINDOW * 5.0)["7"]
    assert sample.cpu_fraction == pytest.approx((WINDOW * 5.0 + 2.0) / (WINDOW * 5.0) / 2)
    assert sample.cpu_peak == pytest.approx(7.0 / 5.0 / 2)
    assert sample.cpu_time_s == pytest.approx(WINDOW * 5.0 + 2.0)
    assert (sample.cores, sample.core_ids, sample.guest, sample.parallel) == (2, (0, 1), True, True)
    assert (sample.memory_bytes, sample.threads, sample.since_s) == (1048576.0, 1, 5.0)
    assert math.isnan(sample.quota)
    assert math.isnan(sample.throttled)
    node.profile.close()


def test_files_that_a_job_has_read_are_not_memory_that_it_needs(node: Node) -> None:
    base, v1 = node.tree.job("7", (100, 101)), node.tree.version == 1
    place = node.tree.root / "memory" / base.relative_to(node.tree.root / "freezer") if v1 else base
    total = "total_" if v1 else ""
    mapped, dirty = ("mapped_file", "dirty") if v1 else ("file_mapped", "file_dirty")
    stat = {"active_file": 300_000, "inactive_file": 500_000, mapped: 100_000, dirty: 50_000}
    lines = [f"{total}{name} {value}\n" for name, value in stat.items()]
    write(place / "memory.stat", "anon 1\n" + "".join(lines) + "inactive_file_of_another_kernel x\n")
    assert node.look(0.0)["7"].memory_bytes == 1_048_576 - 650_000
    write(place / "memory.stat", f"{total}inactive_file 9999999\n")
    assert node.look(5.0)["7"].memory_bytes == 0.0, "both are counted, but not at one time"
    node.profile.close()


def test_other_cores_begin_another_window(node: Node) -> None:
    node.tree.job("7", (100, 101))
    for look in range(WINDOW + 1):
        node.use(look)
        before = node.look(float(look))["7"]
    assert before.cpu_fraction == pytest.approx(0.5)
    folder = node.tree.root / (
        node.tree.home if node.tree.version == 2 else f"cpuset/{node.tree.home}/uid_1000"
    )
    write(folder / "job_7" / ("cpuset.cpus.effective" if node.tree.version == 2 else "cpuset.cpus"), "0-3\n")
    after = node.look(9.0)["7"]
    assert after.cores == 4
    assert math.isnan(after.cpu_fraction)
    node.profile.close()


def test_files_of_ended_jobs_are_closed_and_their_progress_removed(node: Node) -> None:
    folder = node.tree.job("7", (100, 101), uid=os.getuid())
    before = open_files()
    node.look(0.0)
    assert open_files() > before
    assert (node.progress / "7").exists()
    shutil.rmtree(folder)
    assert node.look(1.0) == {}
    assert open_files() == before
    assert not (node.progress / "7").exists()


def test_a_job_that_ends_between_listing_and_looking_is_no_error(node: Node) -> None:
    folder = node.tree.job("7", (100, 101))
    node.profile.follow(node.cgroups.jobs(0.0))
    shutil.rmtree(folder)
    assert node.profile.look(0.0, set())["7"].threads == 0
    node.profile.close()


def test_throttling_is_a_fraction_of_periods(tmp_path: Path) -> None:
    node = Node(tmp_path, 2)
    folder = node.tree.job("7", (100, 101))
    node.quotas.set_quota(node.cgroups.jobs(0.0)["7"], 0.5, "leased")
    found = []
    for look, (periods, throttled) in enumerate([(10, 0), (60, 25), (60, 25)]):
        write(folder / "cpu.stat", f"usage_usec 0\nnr_periods {periods}\nnr_throttled {throttled}\n")
        sample = node.look(look * 5.0)["7"]
        found.append(sample.throttled)
    assert found == [0.0, 0.5, 0.0]
    assert sample.quota == pytest.approx(0.25)
    node.profile.close()


def test_pressure_is_the_time_that_some_waited(tmp_path: Path) -> None:
    node = Node(tmp_path, 2)
    folder = node.tree.job("7", (100, 101))
    assert math.isnan(node.look(0.0)["7"].pressure)
    write(
        folder / "cpu.pressure",
        "some avg10=9.99 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=7\n",
    )
    assert node.look(5.0)["7"].pressure == pytest.approx(0.3)
    (folder / "cpu.pressure").unlink()
    node.profile.close()
    assert math.isnan(node.look(10.0)["7"].pressure)
    node.profile.close()


def test_waiting_of_threads_in_v1(tmp_path: Path) -> None:
    node = Node(tmp_path, 1)
    node.tree.job("7", (100, 101, 102))
    node.look(0.0)
    write(node.tree.proc / "102/schedstat", "9000000000 2000000000 17\n")
    assert node.profile.waits("7") == {101: 0.0, 102: 2.0}
    assert node.look(5.0)["7"].pressure == pytest.approx(0.4)
    shutil.rmtree(node.tree.proc / "101")
    assert only_waits(thread_turns([101, 102], node.tree.proc)) == {102: 2.0}
    write(node.tree.proc / "102/schedstat", "")
    assert thread_turns([101, 102], node.tree.proc) is only_waits(None) is None
    node.profile.close()


def test_what_waiting_for_a_core_can_have_cost() -> None:
    nan = math.nan
    for before, now, part in (
        (None, {1: (5.0, 5.0)}, nan),
        ({1: (0.0, 0.0)}, None, nan),
        ({1: (10.0, 1.0)}, {1: (12.5, 3.5)}, 0.5),  # it ran or waited all the time
        ({1: (10.0, 1.0)}, {1: (10.01, 1.02)}, 0.02 / 5.0),  # it slept
        ({1: (10.0, 1.0)}, {1: (10.0, 1.0)}, 0.0),
        (
            {1: (0.0, 0.0), 2: (0.0, 0.0)},
            {1: (2.5, 2.5), 2: (2.5, 2.5)},
            0.5,
        ),  # each of them waited half of it
        ({1: (0.0, 0.0)}, {2: (4.0, 1.0)}, 0.2),  # a thread that has come since
        ({1: (0.0, 0.0)}, {2: (400.0, 100.0)}, 0.0),  # one that was there before, and not looked at
        ({1: (9.0, 9.0)}, {1: (1.0, 1.0)}, 0.0),  # another thread by this number
    ):
        assert delayed_part(before, now, 5.0) == pytest.approx(part, nan_ok=True)
    assert math.isnan(delayed_part({1: (0.0, 0.0)}, {1: (1.0, 1.0)}, 0.0))


@pytest.mark.parametrize("version", [1, 2])
def test_how_long_a_guest_waited_is_reported(tmp_path: Path, version: int) -> None:
    node = Node(tmp_path, version)
    node.tree.job("7", (100, 101))
    write(node.tree.proc / "101/schedstat", "1000000000 1000000000 17\n")
    assert math.isnan(node.look(0.0)["7"].delayed)
    write(node.tree.proc / "101/schedstat", "4000000000 3000000000 18\n")
    assert node.look(5.0)["7"].delayed == pytest.approx(0.4)
    node.profile.close()


def test_bytes_of_real_processes_where_no_controller_counts_them(tmp_path: Path) -> None:
    node = Node(tmp_path, 1)
    node.tree.job("7", (100, os.getpid()), uid=os.getuid())
    first = node.look(0.0)["7"]
    (tmp_path / "big").write_bytes(b"x" * (1 << 20))
    os.sync()
    second = node.look(5.0)["7"]
    assert second.written_bytes >= first.written_bytes
    assert second.read_bytes >= first.read_bytes >= 0
    node.profile.close()


def test_cpu_of_real_processes_where_no_cgroup_counts_it(tmp_path: Path) -> None:
    node = Node(tmp_path, 1)
    node.tree.job("7", (100, os.getpid()))
    shutil.rmtree(node.tree.root / "cpuacct")
    first = node.look(0.0)["7"].cpu_time_s
    assert first > 0
    until = sum(os.times()[:2]) + 0.1
    while sum(os.times()[:2]) < until:
        pass
    assert node.look(1.0)["7"].cpu_time_s >= first + 0.05
    node.profile.close()


def test_io_of_v2(tmp_path: Path) -> None:
    assert io_bytes("8:0 rbytes=1 wbytes=2 rios=0\n8:16 rbytes=10 wbytes=20\n") == (11.0, 22.0)
    assert io_bytes("") is None
    node = Node(tmp_path, 2)
    node.tree.job("7", (100, 101))
    sample = node.look(0.0)["7"]
    assert (sample.read_bytes, sample.written_bytes) == (4096.0, 8192.0)
    node.profile.close()


def test_a_progress_file_that_grows_is_emptied_at_every_scan(node: Node) -> None:
    node.tree.job("7", (100, 101), uid=os.getuid())
    node.profile.follow(node.cgroups.jobs(0.0))
    (node.progress / "7").write_text("x" * 10_000)
    node.profile.follow(node.cgroups.jobs(1.0))
    assert (node.progress / "7").stat().st_size == 0
    node.profile.close()


def test_the_last_progress_is_kept(node: Node) -> None:
    node.tree.job("7", (100, 101), uid=os.getuid())
    assert math.isnan(node.look(0.0)["7"].progress)
    (node.progress / "7").write_text("0.25")
    assert node.look(1.0)["7"].progress == 0.25
    (node.progress / "7").write_text("nonsense")
    assert node.look(2.0)["7"].progress == 0.25
    node.profile.close()


def test_steps_that_have_ended_are_reported_by_their_numbers(node: Node) -> None:
    folder = node.tree.job("7", (100, 101))
    for name in ("step_batch", "step_extern", "step_x", "step_"):
        (folder / name).mkdir()
    assert node.look(0.0)["7"].steps_done == 0  # step 0 runs
    shutil.rmtree(folder / "step_0")
    assert node.look(5.0)["7"].steps_done == 1
    for name in ("step_4", "step_5"):  # steps 1 to 3 have come and gone between two looks
        (folder / name).mkdir()
    assert node.look(10.0)["7"].steps_done == 4
    shutil.rmtree(folder / "step_4")
    assert node.look(15.0)["7"].steps_done == 5
    node.profile.close()


def test_numbers_by_key() -> None:
    assert key_value("a 1\nusage_usec 7\nnr_periods x\n", "usage_usec") == 7.0
    assert math.isnan(key_value("usage_usecs 7\n", "usage_usec"))
    assert math.isnan(key_value("nr_periods x\n", "nr_periods"))


def test_a_counter_that_falls_is_no_negative_use() -> None:
    looks = deque([(float(t), 10.0 - t) for t in range(WINDOW + 1)])
    assert busy(looks) == (0.0, 0.0)


def test_the_peak_is_of_the_last_ten_minutes() -> None:
    rates: deque[tuple[float, float]] = deque()
    looks: deque[tuple[float, float]] = deque(maxlen=WINDOW + 1)
    add_rate(rates, looks)
    used = 0.0
    for k in range(200):  # every 5 s: three cores at first, then one, and two cores in every twentieth look
        used += 5.0 * (3.0 if k < 10 else 2.0 if k % 20 == 0 else 1.0)
        looks.append((5.0 * k, used))
        add_rate(rates, looks)
    assert len(rates) == PEAK_S / 5.0 and rates[0][0] == 995.0 - PEAK_S + 5.0
    assert percentile(rate for _, rate in rates) == 1.0
    assert percentile((rate for _, rate in rates), 1.0) == 2.0
    assert math.isnan(percentile([]))
