"""The real asad on the lab's cluster: one daemon and a node actor for every node, from a generated asad.toml."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from asad.api.control import ask
from asad.errors import AsadError
from lab import LabError
from lab.slurm import RealSlurm, free_ports

INTERVAL_S = 1.0
WINDOW_S = 6.0
"""A job is known when it has been watched for so long: its jobs are short."""
OPTIONS = """
[share.asax]
patience_s = 20
again_s = 6
redraw_s = 20
soonest_redraw_s = 2
"""
"""Times for jobs of half a minute and a cycle a second: the defaults are for cycles of half a minute."""
HORIZON = 60
"""Slots that are planned ahead."""
READY_S = 180.0
"""How long the daemon may take until it has completed a cycle with all actors (it compiles at its first start)."""
STOP_S = 15.0


def asad_toml(
    slurm: RealSlurm,
    folder: Path,
    share: str,
    ports: list[int],
    admit: str = "everyone",
    slot_s: float = 10.0,
    place: str = "native",
    more: str = "",
) -> str:
    """A configuration that lends between all users' jobs, acts, and decides every second; with admission in slots
    of so many seconds every second.
    """
    slots = ""
    if admit != "everyone":  # the users of a mix are honest, and none has a budget
        slots = f"[admit.{admit}]\nslot_s = {slot_s}\nhorizon = {HORIZON}\nbudget = 0.0\n{more}\n"
    return f"""[daemon]
mode = "enforce"
cluster = "slurm"
interval_s = {INTERVAL_S / 2 if slots else INTERVAL_S}
state_dir = "{folder}/state"
socket = "{folder}/asad.sock"

[policies]
share = "{share}"
admit = "{admit}"
place = "{place}"

{slots}{OPTIONS if share == "asax" else ""}

[nodes]
listen = "127.0.0.1:{ports[0]}"
auth = "munge"
user = "root"
munge_socket = "{slurm.munge_socket}"

[node]
daemon = "127.0.0.1:{ports[0]}"
state_dir = "{folder}/node"
sample_s = 1.0

[metrics]
listen = "127.0.0.1:{ports[1]}"

[slurm]
transport = "command"
guest_partitions = {{ batch = "guest" }}
share_users = "as-slurm"
window_s = {WINDOW_S}
"""


class LiveAsad:
    """A context manager: on entry the daemon cycles and hears all node actors, on exit they have been stopped.

    `share`, `admit` and `place` are policies of the stages of that name, `more` lines for the table of the admit
    policy; `name` is of the folder, that which decides by default. One that is not `fresh` goes on with what the one
    before it in that folder had learned.

    Raises LabError if asad does not come up; the message holds what it said.
    """

    def __init__(
        self,
        slurm: RealSlurm,
        share: str,
        admit: str = "everyone",
        slot_s: float = 10.0,
        place: str = "native",
        *,
        fresh: bool = True,
        more: str = "",
        name: str = "",
    ) -> None:
        self.fresh, self.more = fresh, more
        self.slurm, self.share, self.admit, self.slot_s, self.place = slurm, share, admit, slot_s, place
        decides = place if place != "native" else share if admit == "everyone" else admit
        self.folder = slurm.folder / f"asad-{name or decides}"
        self.socket = self.folder / "asad.sock"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.env = slurm.env

    def __enter__(self) -> Self:
        if self.fresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("state", "node"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.config.write_text(self.configuration(free_ports(2)))
        try:
            for name in ("asad", *self.slurm.node_names):
                self.start(name)
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def config(self) -> Path:
        """The configuration of daemon and actors."""
        return self.folder / "asad.toml"

    def configuration(self, ports: list[int]) -> str:
        """What stands there; the ports are of the daemon and of its metrics."""
        return asad_toml(
            self.slurm, self.folder, self.share, ports, self.admit, self.slot_s, self.place, self.more
        )

    def start(self, name: str) -> None:
        """Start the daemon (`asad`) or the actor of a node."""
        if name == "asad":
            self._start("asad", "asad", "--config", str(self.config))
        else:
            self._start(name, "asad-node", "--config", str(self.config), "--node", name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, name: str, program: str, *options: str) -> None:
        path = Path(sys.executable).parent / program
        if not path.exists():
            raise LabError(f"{path}: not there; install asad in place (`make lab` does)")
        with (self.folder / f"{name}.log").open("ab") as log:
            # as nice as asad.service makes it, since here head node and nodes have the same cores
            nice = ["/usr/bin/nice", "-n", "5"] if program == "asad" else []
            # as for Slurm's daemons: they end when we die, however we die
            self.processes[name] = subprocess.Popen(  # noqa: S603
                [*nice, "/usr/bin/setpriv", "--pdeathsig", "TERM", str(path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            self.check()
            with contextlib.suppress(AsadError):
                status = ask(self.socket, "status")
                if self._ready(status):
                    return
            if time.monotonic() > deadline:
                raise LabError(f"asad was not ready in {READY_S:.0f} s; it said:\n{self.last_words()}")
            time.sleep(0.2)

    def _ready(self, status: object) -> bool:
        """Has the daemon completed a cycle, and do all actors speak to it?"""
        if not isinstance(status, dict):
            return False
        cycle, actors = status.get("cycle") or {}, status.get("actors") or {}
        return bool(cycle.get("number")) and actors.get("connected") == len(self.slurm.node_names)

    def check(self) -> None:
        """Raises LabError if one of the processes has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise LabError(
                    f"{name} ended with status {process.returncode}; it said:\n{self.last_words(name)}"
                )

    def faults(self) -> int:
        """How often the daemon reported a fault of its own."""
        return (self.folder / "asad.log").read_text(errors="replace").count("a fault of asad's in cycle")

    def last_words(self, name: str = "asad", lines: int = 20) -> str:
        """The end of a process's log."""
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """Stop them as an operator would, the daemon first: it takes back its offers."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self.processes.clear()
