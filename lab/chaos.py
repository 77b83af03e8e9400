"""`python -m lab.chaos`: faults at random moments on a real Slurm that is busy, one or two at a time.

Jobs come all the time, and asad lends to them. At each moment something breaks for some seconds: a daemon is killed or
hangs, answers are slow, the disk is full, the clock is a day off, the network is cut. Then all is whole again, and what
should not be there is looked for. What each moment breaks follows from the seed and its number; `--at` repeats one.
"""

# Programs are named as PATH has them, and nothing here comes from others.
# ruff: noqa: S603, S607

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
from asad_slurm.undo import open_offers
from rich.console import Console
from rich.table import Table

from asad.api.control import ask
from asad.errors import AsadError
from lab import LabError
from lab.live import LiveAsad
from lab.slurm import CGROUP, RealSlurm, free_ports, why_not

LEASE_S = 6.0
PATIENCE_S = 10.0
"""Of an offer."""
WHOLE_S = 120.0
"""So long after a fault all must be whole again."""
WAITING = 4
"""So many jobs wait at least."""
EVERY = 10
"""After so many moments the daemon is stopped, and what it leaves is looked at."""
CLOCK = """
import time
real = time.time

def set_clock():
    try:
        with open({path!r}) as file:
            return real() + float(file.read())
    except (OSError, ValueError):
        return real()

time.time = set_clock
"""
"""What Python of asad's processes runs first: the file says by how much their wall clock is off (s)."""
KINDS = (
    "kill daemon",
    "kill actor",
    "kill slurmctld",
    "kill slurmd",
    "kill slurmdbd",
    "stop daemon",
    "stop actor",
    "stop slurmctld",
    "slow answers",
    "full disk",
    "clock",
    "network cut",
)


@dataclass
class Moment:
    """What is broken, for how long, and what was found afterwards."""

    number: int
    kinds: tuple[str, ...]
    after_s: float
    for_s: float
    whole_s: float = 0.0
    found: list[str] = field(default_factory=list)


def plan(seed: int, number: int) -> Moment:
    """What the seed has for this moment."""
    chance = random.Random(f"{seed}/{number}")  # noqa: S311
    kinds = tuple(chance.sample(KINDS, chance.choice((1, 1, 2))))
    if len({kind.rpartition(" ")[2] for kind in kinds}) < len(kinds):
        kinds = kinds[:1]  # what is killed cannot be stopped as well
    return Moment(number, kinds, chance.uniform(0.0, 6.0), chance.choice((1.0, 3.0, 8.0, 15.0)))


class Relay:
    """Between actors and daemon: what it is given goes on, unless it is cut."""

    def __init__(self, listen: int, onward: int) -> None:
        self.cut = False
        self._onward = onward
        self._listener = socket.create_server(("127.0.0.1", listen))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            actor, _ = self._listener.accept()
            threading.Thread(target=self._pass_on, args=(actor,), daemon=True).start()

    def _pass_on(self, actor: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            actor,
            socket.create_connection(("127.0.0.1", self._onward)) as daemon,
        ):
            other = {actor: daemon, daemon: actor}
            while True:
                ready, _, _ = select.select([actor, daemon], [], [], 0.5)
                for end in [] if self.cut else ready:
                    data = end.recv(65536)
                    if not data:
                        return
                    other[end].sendall(data)
                if self.cut and ready:
                    time.sleep(0.1)


class Victim(LiveAsad):
    """asad with a slow Slurm, a small disk, a clock that can be set, and a network that can be cut."""

    def __init__(self, slurm: RealSlurm) -> None:
        super().__init__(slurm, "measured")
        self.switches = slurm.folder / "chaos"
        self.switches.mkdir()
        self.delay, self.clock = self.switches / "delay", self.switches / "clock"
        (self.switches / "sitecustomize.py").write_text(CLOCK.format(path=str(self.clock)))
        self.env = {
            **slurm.env,
            "PATH": f"{self.switches}/bin{os.pathsep}{slurm.env['PATH']}",
            "CHAOS_DELAY": str(self.delay),
            "PYTHONPATH": str(self.switches),
        }
        (self.switches / "bin").mkdir()
        for program in ("squeue", "scontrol", "sinfo", "sacct"):
            real = shutil.which(program, path=slurm.env["PATH"])
            wrapper = self.switches / "bin" / program
            wrapper.write_text(
                '#!/bin/sh\nif [ -e "$CHAOS_DELAY" ]; then sleep "$(cat "$CHAOS_DELAY")"; fi\n'
                f'exec {real} "$@"\n'
            )
            wrapper.chmod(0o755)

    def configuration(self, ports: list[int]) -> str:
        """Quick leases and offers; actors come by way of the relay."""
        (between,) = free_ports(1)
        self.relay = Relay(between, ports[0])
        text = super().configuration(ports)
        text = text.replace(f'daemon = "127.0.0.1:{ports[0]}"', f'daemon = "127.0.0.1:{between}"')
        text = text.replace("[nodes]\n", f"[nodes]\nlease_s = {LEASE_S}\n")
        text = text.replace("[slurm]\n", f"[slurm]\noffer_patience_s = {PATIENCE_S}\ntimeout_s = 5.0\n")
        quick = "[share.measured]\npatience_s = 20\nagain_s = 6\n\n[guard]\npressure = 1.0\nhappiness_floor = 0.0\n\n"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "asad-chaos", str(self.folder / "state")],
            check=True,
        )
        return quick + text

    def stop(self) -> None:
        """Stop all, and let go of the disk."""
        super().stop()
        if os.path.ismount(self.folder / "state"):
            subprocess.run(["umount", "--lazy", str(self.folder / "state")], check=False)

    def end(self, name: str, number: signal.Signals) -> None:
        """End a process and wait until it has gone."""
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(60.0)

    def repair(self) -> None:
        """Bring back whatever is killed, stopped, slow, full, set or cut."""
        self.delay.unlink(missing_ok=True)
        self.clock.unlink(missing_ok=True)
        self.relay.cut = False
        (self.folder / "state" / "filler").unlink(missing_ok=True)
        for name, daemon in self.slurm.daemons.items():
            if daemon.alive:
                self.slurm.cont(name)
            else:
                self.slurm.start(name)
        for name in ("asad", *self.slurm.node_names):
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
            else:
                self.start(name)

    def is_whole(self) -> bool:
        """Does Slurm answer, and does the daemon complete cycles and hear all actors?"""
        if "UP" not in self.slurm.run("scontrol", "ping", check=False):
            return False
        try:
            status = ask(self.socket, "status", timeout_s=5.0)
            return self._ready(status) and not status["cycles"]["failing"]
        except AsadError:
            return False


def break_it(asad: Victim, kind: str, chance: random.Random) -> None:
    """Break one thing. What is broken stays so until `repair`."""
    what, _, whom = kind.partition(" ")
    node = chance.choice(asad.slurm.node_names)
    if kind == "slow answers":
        asad.delay.write_text(f"{chance.choice((1, 2, 5, 20, 60))}\n")
    elif kind == "full disk":
        with (asad.folder / "state" / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
    elif kind == "clock":
        asad.clock.write_text(f"{chance.choice((86_400.0, -86_400.0))}")
    elif kind == "network cut":
        asad.relay.cut = True
    elif whom in ("daemon", "actor"):
        name = "asad" if whom == "daemon" else node
        if what == "kill":
            asad.end(name, signal.SIGKILL)
        else:
            asad.processes[name].send_signal(signal.SIGSTOP)
    else:
        name = node if whom == "slurmd" else whom
        if what == "stop":
            asad.slurm.stop(name)
            return
        if name == "slurmctld":
            asad.slurm.wait_until_saved()  # what it forgets of users' submissions is its own loss
        asad.slurm.kill(name)


class Feed:
    """Jobs of ordinary users, all the time: half of them idle for most of it."""

    def __init__(self, slurm: RealSlurm, seed: int) -> None:
        self.slurm, self.jobs = slurm, list[str]()
        self._chance = random.Random(seed)  # noqa: S311

    def top_up(self) -> None:
        """Submit until enough wait. What the controller does not take now is not submitted."""
        with contextlib.suppress(LabError, subprocess.TimeoutExpired):
            waiting = self.slurm.run(
                "squeue", "-h", "--all", "-t", "PENDING", "-o", "%A", timeout_s=10
            ).split()
            for _ in range(WAITING - len(waiting)):
                seconds = self._chance.randint(4, 15)
                wanted = [f"--nodelist={self._chance.choice(self.slurm.node_names)}"]
                self.jobs.append(
                    self.slurm.submit(
                        f"sleep {seconds}",
                        "--mem=100",
                        "--time=10",
                        *(wanted if self._chance.random() < 0.3 else []),
                        user=self._chance.choice(self.slurm.users),
                    )
                )


def quotas(slurm: RealSlurm) -> list[str]:
    """Every quota that is held on the nodes, and every wide cpuset of ours."""
    found = []
    for node in slurm.node_names:
        for parent in (f"asad_{node}", f"asad-hosts_{node}"):
            for path in (CGROUP / "cpu" / parent).glob("job_*/cpu.cfs_quota_us"):
                with contextlib.suppress(OSError):
                    if int(path.read_text()) >= 0:
                        found.append(str(path.parent.relative_to(CGROUP)))
        found += [
            str(path.relative_to(CGROUP)) for path in (CGROUP / "cpuset" / f"asad_{node}").glob("job_*")
        ]
    return found


def stranded(asad: Victim) -> list[str]:
    """Jobs that wait where they should not, while asad lives or after it: pinned without an offer, or held."""
    found = []
    offers = open_offers(asad.folder / "state" / "offers.journal")
    for job in asad.slurm.squeue():
        if "PENDING" not in job["job_state"]:
            continue
        number = str(job["job_id"])
        if job["partition"] == "guest" and number not in offers:
            found.append(f"job {number} is pinned in the guest partition, and no offer is why")
        priority = job["priority"]
        if (priority["number"] if isinstance(priority, dict) else priority) == 0:
            found.append(f"job {number} is held")
    return found


def await_none(look: Callable[[], list[str]], timeout_s: float) -> list[str]:
    """What is found again and again, until nothing is or the time is over."""
    end_s = time.monotonic() + timeout_s
    while (found := look()) and time.monotonic() < end_s:
        time.sleep(0.5)
    return found


def live_through(asad: Victim, feed: Feed, moment: Moment, seed: int) -> None:
    """One moment: break, repair, look."""
    chance = random.Random(f"{seed}/{moment.number}/how")  # noqa: S311
    feed.top_up()
    time.sleep(moment.after_s)
    for kind in moment.kinds:
        try:
            break_it(asad, kind, chance)
        except LabError as error:
            moment.found.append(f"{kind} could not be done: {error}")
    time.sleep(moment.for_s)
    begin_s = time.monotonic()
    asad.repair()
    while not asad.is_whole():
        if time.monotonic() - begin_s > WHOLE_S:
            moment.found.append(f"not whole within {WHOLE_S:.0f} s: {asad.last_words(lines=5)}")
            break
        time.sleep(0.2)
    moment.whole_s = round(time.monotonic() - begin_s, 1)
    feed.top_up()
    moment.found += await_none(lambda: stranded(asad), 3 * PATIENCE_S)


def stop_and_look(asad: Victim) -> list[str]:
    """The daemon stops: all that waits is as its user had it, and quotas run out."""
    slurm = asad.slurm
    asad.end("asad", signal.SIGTERM)
    found = []
    for job in slurm.squeue():
        if "PENDING" in job["job_state"]:
            facts = slurm.job(str(job["job_id"]))
            if facts["Partition"] != "batch" or facts.get("Nice", "0") != "0":
                found.append(f"job {job['job_id']} waits in {facts['Partition']}, nice {facts.get('Nice')}")
    found += [f"{what} is left" for what in await_none(lambda: quotas(slurm), LEASE_S + 10.0)]
    asad.start("asad")
    end_s = time.monotonic() + WHOLE_S
    while not asad.is_whole() and time.monotonic() < end_s:
        time.sleep(0.2)
    return found


def at_the_end(asad: Victim, feed: Feed) -> list[str]:
    """Every job that was ever submitted has completed."""
    slurm = asad.slurm
    end_s = time.monotonic() + 300.0
    while slurm.run("squeue", "-h", "--all") and time.monotonic() < end_s:
        time.sleep(0.5)
    states = {row["JobID"]: row["State"] for row in slurm.sacct("-X", "-D", fields="JobID,State")}
    return [
        f"job {job} is {states.get(job, 'not known to accounting')}"
        for job in feed.jobs
        if states.get(job) not in ("COMPLETED",)
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--moments", "count", type=click.IntRange(1), default=100, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--at", type=click.IntRange(1), help="Live through this moment alone.")
@click.option("--out", type=click.Path(path_type=Path), help="Write what was found as JSON.")
@click.option("--minutes", type=float, help="Begin no further moment after so long.")
def main(count: int, seed: int, at: int | None, out: Path | None, minutes: float | None) -> None:
    """Break asad, Slurm and the machine at random moments; exit status 1 if anything is lost or left."""
    if obstacle := why_not():
        raise click.ClickException(obstacle)
    begin_s, lived, ends = time.monotonic(), list[Moment](), list[str]()
    with RealSlurm(nodes=2, cpus=1) as slurm, Victim(slurm) as asad:
        feed = Feed(slurm, seed)
        for number in range(1, count + 1) if at is None else [at]:
            moment = plan(seed, number)
            if minutes is not None and time.monotonic() - begin_s > 60.0 * minutes:
                break
            live_through(asad, feed, moment, seed)
            if moment.number % EVERY == 0 or at is not None:
                moment.found += stop_and_look(asad)
            lived.append(moment)
            state = "; ".join(moment.found) or "well"
            click.echo(
                f"{moment.number:4} {' and '.join(moment.kinds)}, {moment.for_s:g} s: "
                f"whole after {moment.whole_s:g} s, {state}"
            )
        ends += stop_and_look(asad) + at_the_end(asad, feed)
        jobs, guests = len(feed.jobs), _guests(slurm)
    _print(lived, ends, jobs, guests, time.monotonic() - begin_s)
    failed = [moment for moment in lived if moment.found]
    if out is not None:
        plain = {"seed": seed, "moments": [asdict(one) for one in lived], "at_the_end": ends, "jobs": jobs}
        out.write_text(json.dumps(plain | {"guests": guests}, indent=2) + "\n")
    sys.exit(1 if failed or ends else 0)


def _guests(slurm: RealSlurm) -> int:
    return sum(row["Partition"] == "guest" for row in slurm.sacct("-X", fields="JobID,Partition"))


def _print(lived: list[Moment], ends: list[str], jobs: int, guests: int, took_s: float) -> None:
    table = Table(
        "fault",
        "moments",
        "with something lost or left",
        title=f"{len(lived)} moments, {took_s / 60:.0f} min",
    )
    times = Counter(kind for moment in lived for kind in moment.kinds)
    bad = Counter(kind for moment in lived if moment.found for kind in moment.kinds)
    for kind in KINDS:
        table.add_row(kind, str(times[kind]), str(bad[kind]))
    Console().print(table)
    click.echo(
        f"{jobs} jobs, {guests} of them ran as guests; at the end: {'; '.join(ends) or 'nothing lost or left'}"
    )
    for moment in lived:
        for found in moment.found:
            click.echo(f"moment {moment.number} ({' and '.join(moment.kinds)}): {found}")


if __name__ == "__main__":
    main()
