"""A booted virtual machine, and the line to the probe in it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from debian import Image

BOOT_S = 900.0
BOOTED = "root=/dev/vda rw console=ttyS0 panic=-1 psi=1 systemd.show_status=yes"
SLACK_S = 120.0
"""What an answer may take beyond the time given to its step: the machine is emulated, the line is slow."""


class MachineError(Exception):
    """The machine does not boot, does not answer, or a step that had to succeed did not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a command in the machine."""

    argv: tuple[str, ...]
    status: int | None
    out: str
    err: str
    wall_s: float
    met: bool = True
    tries: int = 1

    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)

    def __str__(self) -> str:
        words = " ".join(self.argv)
        return f"$ {words}\n[{self.status}, {self.wall_s:.1f} s, tries: {self.tries}]\n{self.out}{self.err}"


@dataclass
class Machine:
    """A context manager: boots at the start and is gone, with all that it wrote on its disks, at the end.

    `folder` keeps `console.log` and `steps.txt`, for whoever wants to know what happened.
    """

    image: Image
    payload: Path
    """Disk that stands at /mnt/payload; it holds probe.py."""
    folder: Path
    memory: str = "3G"
    cpus: int = 2
    boot_s: float = field(default=0.0, init=False)
    _steps: int = field(default=0, init=False)

    def __enter__(self) -> Machine:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = (self.folder / "steps.txt").open("w", encoding="utf-8")
        self._runtime = tempfile.TemporaryDirectory(
            prefix="vm"
        )  # short: a socket's path has 107 bytes at most
        path = Path(self._runtime.name) / "line"
        start_s = time.monotonic()
        try:
            self._qemu = subprocess.Popen(self.command(path), stdin=subprocess.DEVNULL)
            try:
                self._line = self._connect(path, start_s + BOOT_S)
                self._receive(0, start_s + BOOT_S)
            except BaseException:
                self._end()
                raise
        except BaseException:
            self._runtime.cleanup()
            self._log.close()
            raise
        self.boot_s = time.monotonic() - start_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.close()
        self._end()
        self._runtime.cleanup()
        self._log.close()

    def _end(self) -> None:
        """Pull the plug: nothing in there is worth an orderly end."""
        self._qemu.kill()
        self._qemu.wait()

    def command(self, line: Path) -> list[str]:
        """qemu's. Emulation (TCG) everywhere, so that it behaves the same with and without hardware support."""
        return [
            *("qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"),
            *("-m", self.memory, "-smp", str(self.cpus), "-display", "none", "-nodefaults", "-no-reboot"),
            *("-kernel", str(self.image.kernel), "-initrd", str(self.image.initrd)),
            # on a busy machine devices and units take longer than systemd waits by itself
            *(
                "-append",
                f"{BOOTED} systemd.default_device_timeout_sec=900 systemd.default_timeout_start_sec=900",
            ),
            # what is written goes to a file without a name: the cached disk stays as it was made
            *("-drive", f"file={self.image.disk},format=raw,if=virtio,snapshot=on,cache=unsafe"),
            *("-drive", f"file={self.payload},format=raw,if=virtio,readonly=on"),
            *(
                "-serial",
                f"file:{self.folder / 'console.log'}",
            ),  # the getty's; the probe has a port of its own
            *("-device", "virtio-serial-pci", "-chardev", f"socket,id=line,path={line},server=on,wait=off"),
            *("-device", "virtserialport,chardev=line,name=probe", "-device", "virtio-rng-pci"),
        ]

    def _connect(self, path: Path, deadline_s: float) -> socket.socket:
        while time.monotonic() < deadline_s:
            if self._qemu.poll() is not None:
                raise MachineError(f"qemu ended with status {self._qemu.returncode}: {self.command(path)}")
            line = socket.socket(socket.AF_UNIX)
            try:
                line.connect(os.fspath(path))
            except OSError:
                line.close()
                time.sleep(0.1)
            else:
                self._lines = line.makefile("rb")
                return line
        raise MachineError(f"qemu made no line at {path}")

    def _receive(self, number: int, deadline_s: float) -> dict[str, Any]:
        text = b""
        try:
            self._line.settimeout(max(deadline_s - time.monotonic(), 0.1))
            text = self._lines.readline()
        except TimeoutError:
            raise MachineError(f"no answer to step {number} in time; {self.console()}") from None
        if not text:
            raise MachineError(f"the machine has gone at step {number}; {self.console()}")
        answer: dict[str, Any] = json.loads(text)
        if answer["id"] != number:
            raise MachineError(f"an answer to step {number} was due, and this came: {answer}")
        return answer

    def console(self) -> str:
        """The last lines of the console."""
        log = self.folder / "console.log"
        text = log.read_text(errors="replace") if log.exists() else ""
        return f"its console ({log}) ends so:\n" + "\n".join(text.splitlines()[-25:])

    def _ask(self, step: dict[str, Any], timeout_s: float) -> Answer:
        self._steps += 1
        step |= {"id": self._steps, "timeout_s": timeout_s}
        self._line.settimeout(SLACK_S)
        self._line.sendall(json.dumps(step).encode() + b"\n")
        plain = self._receive(self._steps, time.monotonic() + timeout_s + SLACK_S)
        del plain["id"]
        answer = Answer(argv=tuple(step["argv"]), **plain)
        self._log.write(f"{answer}\n")
        self._log.flush()
        return answer

    def run(self, *argv: str, stdin: str = "", timeout_s: float = 300.0) -> Answer:
        """Run a command as root; whatever becomes of it is in the answer. Raises MachineError for no answer."""
        return self._ask({"argv": argv, "stdin": stdin}, timeout_s)

    def do(self, *argv: str, stdin: str = "", timeout_s: float = 300.0) -> str:
        """What a command printed that had to succeed. Raises MachineError if it did not."""
        answer = self.run(*argv, stdin=stdin, timeout_s=timeout_s)
        if answer.status != 0:
            raise MachineError(str(answer))
        return answer.out

    def until(self, *argv: str, shows: str = "", timeout_s: float = 300.0) -> Answer:
        """Look until the command succeeds and the regular expression `shows` is found in what it prints.

        `met` of the answer says whether it came to that within `timeout_s`.
        """
        return self._ask({"argv": argv, "until": shows}, timeout_s)

    def await_(self, *argv: str, shows: str = "", timeout_s: float = 300.0) -> Answer:
        """The same where nothing can go on without it. Raises MachineError with the last look."""
        answer = self.until(*argv, shows=shows, timeout_s=timeout_s)
        if not answer.met:
            raise MachineError(f"{shows!r} never came in {timeout_s:g} s:\n{answer}")
        return answer


__all__ = ["Answer", "Machine", "MachineError"]
