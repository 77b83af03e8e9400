"""What the live page costs: its first paint, what goes over the line, and what ten viewers are to a cycle.

- first paint: a browser that has nothing yet, over a tunnel to the page's unix socket, as `ssh -L` makes one; when
  Chromium says that it painted first, and when map and jobs of the first answer are drawn; the median of five;
- over the line: the page and a minute of cycles every 30 s in which the use of every node has changed;
- a cycle with ten viewers: a daemon over an in-memory Slurm of 3 kB a job, whose answers it parses, in mode advise; the
  page and its viewers are processes of their own. Cycles without and with viewers in turns; each viewer is a stream,
  and the page asks the daemon every second, five times as often as by default. Wall time of a cycle, and CPU time of
  the daemon's main thread in it, medians, with the quartiles of single cycles.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pytest
from asad_slurm.answers import JobReader
from asad_slurm.command import Look
from chromium import PROGRAMS, Chromium, program
from large_slurm import answer_of, machine
from live_page_large import large
from live_page_samples import story
from live_server import serving
from slurm_samples import Lab
from stated import beside

from asad.config import parse
from asad.daemon import Daemon

SIZE, SMALLEST = (1_000, 10_000), (20, 100)
"""Nodes and jobs."""
VIEWERS = 10
VIEWER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as stream:
    stream.connect(sys.argv[1])
    stream.sendall(b"GET /events HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    while block := stream.recv(65536):
        print(len(block), flush=True)
"""


class Made:
    """A daemon that answers with the cluster of one cycle."""

    def __init__(self, nodes: int, jobs: int) -> None:
        self.nodes, self.jobs, self.cycle = nodes, jobs, 0
        self.answer = large(nodes, jobs, 0)

    def turn(self) -> None:
        """Another cycle."""
        self.cycle += 1
        self.answer = large(self.nodes, self.jobs, self.cycle)

    def __call__(self, path: Path, verb: str, *, timeout_s: float = 1.0, **arguments: Any) -> Any:
        return story(arguments["job"]) if verb == "explain" else self.answer


@pytest.fixture
def browser() -> Iterator[Chromium]:
    found = program()
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)} exists (Debian: apt-get install chromium)")
    with Chromium(found) as running:
        yield running


def test_first_paint_and_bytes(browser: Chromium, tmp_path: Path, smallest: bool) -> None:
    nodes, jobs = SMALLEST if smallest else SIZE
    made, painted, drawn = Made(nodes, jobs), [], []
    with serving(made, tmp_path, 0.2) as server:
        for _ in range(1 if smallest else 5):
            context = browser.browser.new_context(viewport={"width": 1200, "height": 900})
            page = context.new_page()
            before = server.sent
            page.goto(server.url)
            page.wait_for_selector("#jobs tr")
            page.wait_for_timeout(500)
            found = "performance.getEntriesByName({})[0].startTime"
            painted.append(page.evaluate(found.format('"first-contentful-paint"')))
            drawn.append(page.evaluate(found.format('"drawn"')))
            whole = server.sent - before
            if len(painted) < (1 if smallest else 5):
                context.close()
        before = server.sent
        for cycle in (2, 3):
            made.turn()
            page.wait_for_timeout(300)
            # what is sent is paced, so that one change waits for the one before it
            until = time.monotonic() + 120
            while page.text_content("#cycle").find(f"cycle {cycle}:") < 0 and time.monotonic() < until:
                page.wait_for_timeout(100)
        changes = server.sent - before
        assert f"cycle {made.cycle + 1}:" in (page.text_content("#cycle") or "")
        assert page.locator("#jobs tr").count() == 50
        context.close()
    print(f"\nThe live page of {nodes} nodes and {jobs} jobs")
    print(beside("  first contentful paint, the median", median(painted) / 1000, 1.0, "s"))
    print(beside("  map and jobs drawn, the median", median(drawn) / 1000, 1.0, "s"))
    print(beside("  the page and a first view", whole / 1e6, 1.0, "MB"))
    print(beside("  a minute of cycles that change every node", changes / 1e6, 1.0, "MB"))


# ------------------------------------------------------------------------------------------------------ ten viewers


class Timed(Daemon):
    """A daemon whose cycles are timed: wall and CPU of its main thread (s)."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.spent: list[tuple[float, float]] = []

    def _one_cycle(self) -> float:
        wall, cpu = time.perf_counter(), time.thread_time()
        wake_s = super()._one_cycle()
        self.spent.append((time.perf_counter() - wall, time.thread_time() - cpu))
        return wake_s


@contextlib.contextmanager
def running(folder: Path, nodes: int, jobs: int, interval_s: float) -> Iterator[Timed]:
    """A daemon in a thread, over a Slurm in memory whose answer is parsed in every cycle."""
    slurm = machine(jobs, nodes)
    text, reader, listed = answer_of(slurm), JobReader(), slurm.look().nodes
    slurm.look = lambda: Look(reader.read(text), listed)  # type: ignore[method-assign]
    (folder / "lab").mkdir()
    lab = Lab(folder / "lab", slurm)
    settings = f"""
        [daemon]
        mode = "advise"
        interval_s = {interval_s}
        state_dir = "{folder}"
        socket = "{folder}/asad.sock"
        [metrics]
        listen = ""
        """
    daemon = Timed(parse(settings, folder / "asad.toml"), cluster=lab.cluster, clock=lambda: lab.now_s)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        thread.join(300)


def listens(path: Path) -> bool:
    """Does somebody listen there?"""
    with socket.socket(socket.AF_UNIX) as probe:
        return path.exists() and probe.connect_ex(str(path)) == 0


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The page as a process of its own, and viewers."""
    page, daemon = folder / "page.sock", folder / "asad.sock"
    code = "from asad.web.asad_web import main; main()"
    options = ("--socket", str(daemon), "--listen", str(page), "--interval", "1")
    processes = [
        subprocess.Popen([sys.executable, "-c", code, *options], stderr=subprocess.DEVNULL, text=True)
    ]
    try:
        until = time.monotonic() + 300
        while not listens(page) and time.monotonic() < until:
            time.sleep(0.05)
        viewer = [sys.executable, "-c", VIEWER, str(page)]
        processes += [subprocess.Popen(viewer, stdout=subprocess.PIPE, text=True) for _ in range(VIEWERS)]
        yield processes[1:]
    finally:
        for process in reversed(processes):
            process.terminate()
            process.communicate(timeout=300)


def test_ten_viewers_beside_a_cycle(tmp_path: Path, smallest: bool) -> None:
    nodes, jobs = SMALLEST if smallest else SIZE
    turns, cycles = (1, 2) if smallest else (5, 8)
    spent: dict[bool, list[tuple[float, float]]] = {False: [], True: []}

    def more(daemon: Timed, count: int) -> list[tuple[float, float]]:
        already, until = len(daemon.spent), time.monotonic() + 580
        while len(daemon.spent) < already + count and time.monotonic() < until:
            time.sleep(0.05)
        return daemon.spent[already : already + count]

    with running(tmp_path, nodes, jobs, 0.2 if smallest else 2.0) as daemon:
        more(daemon, 2)  # compiled, and everything seen once
        for _ in range(turns):
            spent[False] += more(daemon, cycles)
            with watched(tmp_path) as viewers:
                heard = [int(viewer.stdout.readline()) for viewer in viewers if viewer.stdout is not None]
                more(daemon, 1)
                spent[True] += more(daemon, cycles)
            assert len(heard) == VIEWERS and min(heard) > 0, "each of them was sent something"
    print(
        f"\nA cycle over {nodes} nodes and {jobs} jobs, {turns * cycles} without and with {VIEWERS} viewers in turns"
    )
    for at, what in enumerate(("wall", "CPU of the main thread")):
        alone, seen = ([one[at] for one in spent[with_viewers]] for with_viewers in (False, True))
        for name, found in (("without", alone), ("with", seen)):
            low, _, high = quantiles(found, n=4)
            print(f"  {what}, {name}: median {median(found):.3f} s, quartiles {low:.3f} to {high:.3f} s")
        print(beside(f"  {what}, with over without", median(seen) / median(alone), 1.05, "times"))
