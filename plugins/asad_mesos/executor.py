"""The executor: runs the tasks of one job on one agent, reports to the agent how they fare, and registers them with the
node actor.

Mesos starts it under the job's user. It speaks the executor API v1 with the standard library alone, so an agent needs
this file and Python 3.9 or newer and nothing else. It outlives a restart of its agent: what was not acknowledged is
sent again when it is back. Where no node actor answers, tasks run all the same, only unwatched.

A task may be a guest's, which has no executor of its own here. Its process is the guest's user, whom only an executor
of root can choose, and has the node actor move it to the guest's group before it becomes the task. Where the actor does
not take note of it, or the host has ended, it is refused: a guest never runs unwatched, and the framework queues it
again.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import math
import os
import pwd
import queue
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

REGISTER = "/run/asad-progress/register.sock"
VARIABLE = "ASAD_NODE_SOCKET"
"""Names another socket of the node actor."""
REGISTER_S = 5.0
CALL_S = 10.0
POLL_S = 0.1
AGAIN_S = 2.0
"""An update that nobody has acknowledged is sent again after this."""
PATIENCE_S = 2.0
PATIENCE = "MESOS_SUBSCRIPTION_BACKOFF_MAX"
"""An agent that has come back waits so long for its executors, and ends those that have not subscribed by then."""
TRIES = 4
"""So often within this an executor tries."""
LATER = (404, 503)
"""What an agent answers that is still coming up."""
LINGER_S = 30.0
"""So long it waits for more tasks, or for the last acknowledgement, before it ends."""
RECOVERY_S = 900.0
BEGUN = b"+"
"""What the process of a task reports once what fails is the task's own fault."""
UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "secs": 1.0,
    "mins": 60.0,
    "hrs": 3600.0,
    "days": 86400.0,
    "weeks": 604800.0,
}
UNREACHABLE = (OSError, http.client.HTTPException)
"""What comes of asking an agent that is away."""
HIDDEN = ("MESOS_EXECUTOR_AUTHENTICATION_TOKEN",)
"""Not for tasks."""


def seconds(text: str, default: float) -> float:
    """A duration as Mesos writes it (`15mins`)."""
    found = re.fullmatch(rf"\s*(\d+(?:\.\d+)?)({'|'.join(UNITS)})\s*", text)
    return float(found[1]) * UNITS[found[2]] if found else default


def decoded(text: str) -> dict[str, Any]:
    """What the framework has packed into a description; empty for anything else."""
    try:
        plain = json.loads(base64.b64decode(text))
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) else {}


def say(text: str) -> None:
    """Into the sandbox's stderr."""
    print(f"asad: {text}", file=sys.stderr, flush=True)


class Refused(Exception):
    """The task is not begun here, through no fault of its own; the message says why."""


def register(path: str, message: dict[str, Any]) -> str:
    """Have the node actor take note of this process; why it does not, or the empty string."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(REGISTER_S)
            connection.connect(path)
            connection.sendall(json.dumps(message).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline(4096))
    except (OSError, ValueError) as error:
        return str(error)
    return "" if answer.get("ok") else str(answer.get("error"))


class Forgotten(Exception):
    """The agent does not know this executor, or not any more; the message says what it answered."""


class Agent:
    """The agent's executor API. `inbox` is given every event, and None when the connection has ended."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.endpoint = environ["MESOS_AGENT_ENDPOINT"]
        self.framework_id = {"value": environ["MESOS_FRAMEWORK_ID"]}
        self.executor_id = {"value": environ["MESOS_EXECUTOR_ID"]}
        self.token = environ.get("MESOS_EXECUTOR_AUTHENTICATION_TOKEN", "")
        self.inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._trouble = ""

    def _connect(self) -> http.client.HTTPConnection:
        host, _, port = self.endpoint.rpartition(":")
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=CALL_S)

    def _post(self, connection: http.client.HTTPConnection, body: dict[str, Any]) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        body = {"framework_id": self.framework_id, "executor_id": self.executor_id, **body}
        connection.request("POST", "/api/v1/executor", json.dumps(body).encode(), headers)
        return connection.getresponse()

    def subscribe(self, tasks: list[dict[str, Any]], updates: list[dict[str, Any]]) -> bool:
        """Subscribe, and read events in a thread; False if the agent does not take us now.

        Raises Forgotten if it never will: its resources are others' by now, and a successor may run elsewhere.
        """
        body = {
            "type": "SUBSCRIBE",
            "subscribe": {"unacknowledged_tasks": tasks, "unacknowledged_updates": updates},
        }
        connection = self._connect()
        trouble, status = "", 200
        try:
            response = self._post(connection, body)
            status = response.status
            if status != 200:
                trouble = f"the agent answered {status}: {response.read(300)!r}"
        except UNREACHABLE as error:
            trouble = f"the agent does not answer: {error}"
        if 400 <= status < 500 and status not in LATER:
            connection.close()
            raise Forgotten(trouble)
        if trouble and trouble != self._trouble:  # while it is away it is asked a thousand times
            say(trouble)
        self._trouble = trouble
        if trouble:
            connection.close()
            return False
        if connection.sock is not None:
            connection.sock.settimeout(None)
        threading.Thread(target=self._read, args=(connection, response), daemon=True).start()
        return True

    def _read(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        buffer = b""
        try:
            while piece := response.read1(1 << 16):
                buffer += piece
                while (found := re.match(rb"(\d{1,12})\n", buffer)) is not None:
                    end = found.end() + int(found[1])
                    if len(buffer) < end:
                        break
                    self.inbox.put(json.loads(buffer[found.end() : end]))
                    buffer = buffer[end:]
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
            say(f"the agent's events have ended: {error}")
        finally:
            connection.close()
            self.inbox.put(None)

    def update(self, update: dict[str, Any]) -> None:
        """Send a status update. Whether the agent took it is not asked: what it does not acknowledge is sent again."""
        with contextlib.closing(self._connect()) as connection, contextlib.suppress(*UNREACHABLE):
            self._post(connection, {"type": "UPDATE", "update": update}).read()


class Task:
    """A task of the executor's own job, or of a guest that runs beside it."""

    def __init__(self, info: dict[str, Any], own: dict[str, Any]) -> None:
        self.info, self.place = info, decoded(info.get("data", ""))
        self.task_id = str(info["task_id"]["value"])
        job = self.place.get("job")
        self.guest = isinstance(job, dict)
        """Is it one of another job, beside ours?"""
        self.job: dict[str, Any] = job if isinstance(job, dict) else own
        self.process: subprocess.Popen[bytes] | None = None
        self.kill_at = 0.0
        """When it is killed for good; 0 if nobody wants it to end."""
        self.over = False

    def signal(self, number: signal.Signals) -> None:
        """To it and whatever it has started."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, number)

    def start(self, environ: dict[str, str], sandbox: Path, register_at: str) -> None:
        """Begin it. Raises OSError or ValueError where it cannot be started, Refused where it may not."""
        account = self._account()
        if self.guest or account is not None:
            self.process = self._become(environ, sandbox, register_at, account)
            return
        argv = self._argv(sandbox)
        self._write_script(sandbox)
        with contextlib.ExitStack() as opened:
            output = (
                opened.enter_context(self._output(sandbox).open("ab")) if self.job.get("output") else None
            )
            self.process = subprocess.Popen(  # noqa: S603 (the user's own command, under the user's own name)
                argv,
                cwd=self.job.get("directory") or sandbox,
                env=self._environment(environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, environ: dict[str, str], **more: str) -> dict[str, str]:
        """What the agent gave, `more` that holds where the user gave nothing, what the user gave, and what is ours."""
        job, place = self.job, self.place
        given = {str(name): str(value) for name, value in job.get("environment", {}).items()}
        return {
            **{name: value for name, value in environ.items() if name not in HIDDEN},
            **more,
            **given,
            "ASAD_JOB_ID": str(job.get("job", "")),
            "ASAD_JOB_KEY": str(job.get("key", "")),
            "ASAD_TASK_ID": self.task_id,
            "ASAD_GROUP": str(place.get("group", "")),
            "ASAD_TASK_INDEX": str(place.get("index", 0)),
            "ASAD_GROUP_TASKS": str(place.get("of", 1)),
            "ASAD_RANK": str(place.get("rank", 0)),
            "ASAD_TASKS": str(place.get("tasks", 1)),
            "ASAD_NODES": str(place.get("nodes", "")),
            "ASAD_ATTEMPT": str(place.get("attempt", 1)),
        }

    def _argv(self, folder: Path) -> list[str]:
        """What it runs. Raises ValueError."""
        command = str(self.place.get("command", ""))
        if not self.job.get("script"):
            return ["/bin/sh", "-c", command]
        return [str(self._script(folder)), *shlex.split(command)]

    def _script(self, folder: Path) -> Path:
        return folder / f"script-{self.task_id}"

    def _write_script(self, folder: Path) -> None:
        """Its script, if it has one, into the folder. Raises OSError."""
        if self.job.get("script"):
            descriptor = os.open(self._script(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(str(self.job["script"]))

    def _output(self, folder: Path) -> Path:
        """The file that its user named for what it prints."""
        name = str(self.job["output"]).replace("%j", str(self.job.get("job", ""))).replace("%t", self.task_id)
        return Path(self.job.get("directory") or folder) / name

    def _account(self) -> pwd.struct_passwd | None:
        """As whom it runs, if that is another user than ours. Raises Refused."""
        uid, name = self.job.get("uid"), str(self.job.get("user", ""))
        if not isinstance(uid, int) or uid == os.geteuid():
            return None
        if os.geteuid() != 0:
            if not self.guest:
                return None  # the agent does not switch users: it runs as everything there does
            raise Refused(
                f"its user is {name}, and this executor runs as user {os.geteuid()}; executors of root can switch "
                'users ([mesos] executor_user = "root", and an agent with --switch_user)'
            )
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            raise Refused(f"there is no user {name!r:.40} on this agent") from None
        if account.pw_uid != uid:
            raise Refused(
                f"user {name} is number {account.pw_uid} on this agent, and {uid} on the daemon's host"
            )
        return account

    def _become(
        self, environ: dict[str, str], sandbox: Path, register_at: str, account: pwd.struct_passwd | None
    ) -> subprocess.Popen[bytes]:
        """Start it in a folder of its own, as its user. Raises OSError, ValueError and Refused.

        A process that the node actor has not taken note of must never become the task, and only that process itself can
        register: so it does before it executes what it is to run, and reports by a pipe whether it came that far.
        """
        job, folder = self.job, sandbox / f"asad-{self.task_id}"
        files = [folder / "stdout", folder / "stderr"] if self.guest else []
        if job.get("output"):
            files = [self._output(folder)] * 2
        message = {"job": job.get("key"), **{key: self.place.get(key) for key in ("inside", "memory_bytes")}}
        argv = self._argv(folder)
        switch: dict[str, Any] = {}
        own: dict[str, str] = {}
        folder.mkdir(mode=0o700)
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
            sandbox.chmod(sandbox.stat().st_mode | 0o011)  # or he could not come to it
            groups = os.getgrouplist(account.pw_name, account.pw_gid)
            switch = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
            own = {"USER": account.pw_name, "LOGNAME": account.pw_name, "HOME": account.pw_dir}
        places = {"MESOS_SANDBOX": str(folder), "MESOS_DIRECTORY": str(folder)}
        environment = {**self._environment(environ, **own), **places}
        reading, writing = os.pipe()

        def prepare() -> None:
            """In the new process, which is the task's user by now, before it becomes the task."""
            try:
                why = register(register_at, message) if self.guest else ""
                if why:
                    os.write(writing, f"the node actor does not take note of it: {why}".encode()[:500])
                    raise Refused(why)
                os.write(writing, BEGUN)
                os.chdir(folder)
                self._write_script(folder)
                for number, path in enumerate(files, 1):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
                os.chdir(job.get("directory") or folder)
            except OSError as error:
                os.write(writing, str(error).encode()[:500])
                raise

        with os.fdopen(reading, "rb") as reported:
            try:
                return subprocess.Popen(  # noqa: S603 (the user's own command, under the user's own name)
                    argv,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    preexec_fn=prepare,
                    **switch,
                )
            except (OSError, subprocess.SubprocessError) as error:
                failed = error
            finally:
                os.close(writing)
            why = reported.read().decode(errors="replace")
        if why.startswith(BEGUN.decode()):
            raise OSError(why[len(BEGUN) :] or str(failed)) from None
        raise Refused(why or f"no process could be started ({failed})") from None


class Updates:
    """What the agent has not acknowledged yet, and so is sent again: now and then, and when it has come back."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.tasks: dict[str, dict[str, Any]] = {}
        """Tasks that it has not acknowledged anything of."""
        self.waiting: dict[str, tuple[dict[str, Any], float]] = {}
        """By uuid: updates, and when each was sent."""

    def send(
        self, task: Task, state: str, message: str = "", status: int | None = None, *, refused: bool = False
    ) -> None:
        """Something has become of a task; with `status` if that is known."""
        key = base64.b64encode(uuid.uuid4().bytes).decode("ascii")
        reported: dict[str, Any] = {
            "task_id": {"value": task.task_id},
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "executor_id": self._agent.executor_id,
            "timestamp": time.time(),
            "uuid": key,
        }
        if message:
            reported["message"] = message
        marks = {
            "exit": "" if status is None else str(status),
            "refused": "yes" if refused else "",
            # where it is missing, an earlier version would run a guest as a task of ours
            "guests": "yes" if state == "TASK_RUNNING" and not task.guest else "",
        }
        if labels := [{"key": name, "value": value} for name, value in marks.items() if value]:
            reported["labels"] = {"labels": labels}
        self.waiting[key] = ({"status": reported}, time.monotonic())
        self._agent.update({"status": reported})

    def acknowledged(self, event: dict[str, Any]) -> None:
        """The agent has this one."""
        self.waiting.pop(event["uuid"], None)
        self.tasks.pop(event["task_id"]["value"], None)

    def repeat(self) -> None:
        """Send again what was sent a while ago."""
        now = time.monotonic()
        for key, (update, sent_s) in list(self.waiting.items()):
            if now - sent_s > AGAIN_S:
                self.waiting[key] = (update, now)
                self._agent.update(update)


class Executor:
    """Tasks of one job on this agent."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.agent = Agent(environ)
        self.updates = Updates(self.agent)
        sandbox = environ.get("MESOS_SANDBOX") or environ.get("MESOS_DIRECTORY") or "."
        self.sandbox = Path(sandbox).resolve()
        self.recovery_s = seconds(environ.get("MESOS_RECOVERY_TIMEOUT", ""), RECOVERY_S)
        self.retry_s = seconds(environ.get(PATIENCE, ""), PATIENCE_S) / TRIES
        self.checkpoint = environ.get("MESOS_CHECKPOINT") == "1"
        self.grace_s = seconds(environ.get("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", ""), 5.0)
        self.socket = environ.get(VARIABLE) or REGISTER
        self.data: dict[str, Any] = {}
        self.tasks: dict[str, Task] = {}
        self.registered = self.stopping = False

    # ------------------------------------------------------------------------------------------------------- life

    def run(self) -> int:
        """Until all tasks are over and the agent knows it."""
        connected, next_try_s = False, 0.0
        idle_s = heard_s = time.monotonic()
        while True:
            now = time.monotonic()
            if not connected and now >= next_try_s:
                next_try_s = now + self.retry_s
                try:
                    updates = [update for update, _ in self.updates.waiting.values()]
                    connected = self.agent.subscribe(list(self.updates.tasks.values()), updates)
                except Forgotten as error:
                    say(f"{error}; its tasks end")
                    next_try_s = math.inf
                    self._stop_all()
                if connected:
                    idle_s = now
            connected = self._take_next() and connected
            self._look()
            if connected:
                heard_s = now
                self.updates.repeat()
            elif now - heard_s > self.recovery_s and not self.stopping:
                say(f"the agent did not come back within {self.recovery_s:.0f} s; its tasks end")
                self._stop_all()
            if any(not task.over for task in self.tasks.values()):
                idle_s = now
                continue
            own = sum(not task.guest for task in self.tasks.values())
            complete = bool(self.tasks) and own >= int(self.data.get("tasks", 1)) and not self.updates.waiting
            # an agent that is away must hear how its tasks ended, or they are taken for lost and run again
            lingered = now - idle_s > LINGER_S and (connected or not self.updates.waiting)
            if complete or self.stopping or lingered:
                self._linger()
                return 0

    def _take_next(self) -> bool:
        """Wait a little for an event of the agent; False if its connection has ended."""
        try:
            event = self.agent.inbox.get(timeout=POLL_S)
        except queue.Empty:
            return True
        if event is not None:
            self._take(event)
        elif not self.checkpoint:
            self._stop_all()
        return event is not None

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        try:
            if kind == "SUBSCRIBED":
                self.data = self.data or decoded(event["subscribed"]["executor_info"].get("data", ""))
            elif kind == "LAUNCH":
                self._launch(event["launch"]["task"])
            elif kind == "KILL":
                self._kill(event["kill"])
            elif kind == "ACKNOWLEDGED":
                self.updates.acknowledged(event["acknowledged"])
            elif kind in ("SHUTDOWN", "ERROR"):
                if kind == "ERROR":
                    say(f"the agent says: {event['error'].get('message', '')}")
                self._stop_all()
        except (KeyError, TypeError, ValueError) as error:
            say(f"an event that makes no sense is let be: {kind} ({error!r})")

    def _linger(self) -> None:
        """Send the last updates for as long as somebody may acknowledge them."""
        until = time.monotonic() + (min(LINGER_S, self.grace_s) if self.stopping else LINGER_S)
        while self.updates.waiting and time.monotonic() < until and self._take_next():
            self._look()
            self.updates.repeat()

    # ------------------------------------------------------------------------------------------------------- tasks

    def _launch(self, info: dict[str, Any]) -> None:
        if str(info["task_id"]["value"]) in self.tasks:
            return
        self.data = self.data or decoded(info.get("executor", {}).get("data", ""))
        task = Task(info, self.data)
        hosted = any(not own.over and not own.guest for own in self.tasks.values())
        self.tasks[task.task_id], self.updates.tasks[task.task_id] = task, info
        if not task.guest:
            self._register()
            self.updates.send(task, "TASK_STARTING")
        try:
            if task.guest and not hosted:
                raise Refused("its host has ended")
            task.start(self.environ, self.sandbox, self.socket)
        except Refused as error:
            task.over = True
            self.updates.send(task, "TASK_FAILED", f"it is not begun here: {error}", refused=True)
        except (OSError, ValueError) as error:
            task.over = True
            self.updates.send(task, "TASK_FAILED", f"it could not be started: {error}", 127)
        else:
            if task.guest:  # only now is it certain that it begins here
                self.updates.send(task, "TASK_STARTING")
            self.updates.send(task, "TASK_RUNNING")

    def _register(self) -> None:
        """Once: the node actor moves this process before there are children."""
        name, first = self.data.get("key", ""), not self.registered
        self.registered = True
        if first and name and Path(self.socket).exists() and (why := register(self.socket, {"job": name})):
            say(f"the node actor does not take note of {name}: {why}")

    def _kill(self, kill: dict[str, Any]) -> None:
        task = self.tasks.get(str(kill["task_id"]["value"]))
        if task is not None and not task.over and task.process is not None:
            policy = kill.get("kill_policy") or task.info.get("kill_policy") or {}
            self._end(task, float(policy.get("grace_period", {}).get("nanoseconds", 3e9)) / 1e9)

    def _end(self, task: Task, grace_s: float) -> None:
        if task.kill_at == 0.0:
            task.signal(signal.SIGTERM)
            self.updates.send(task, "TASK_KILLING")
        deadline = time.monotonic() + grace_s
        task.kill_at = min(task.kill_at or deadline, deadline)

    def _stop_all(self) -> None:
        """The agent or the framework wants an end."""
        self.stopping = True
        for task in self.tasks.values():
            if not task.over:
                self._end(task, self.grace_s)

    def _look(self) -> None:
        """Who has ended, and whose grace is over?"""
        for task in self.tasks.values():
            if task.over or task.process is None:
                continue
            status = task.process.poll()
            if status is not None:
                task.over = True
                task.signal(signal.SIGKILL)  # what it has left behind
                self._report_end(task, status)
            elif task.kill_at and time.monotonic() >= task.kill_at:
                task.signal(signal.SIGKILL)

    def _report_end(self, task: Task, status: int) -> None:
        state, message = "TASK_FINISHED", ""
        if task.kill_at:
            state, message = "TASK_KILLED", "it was asked to end"
        elif status:
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            state, message = "TASK_FAILED", f"it {how}"
        self.updates.send(task, state, message, status)


def main() -> int:
    """Entry point. Exit status 0 when all is reported, 2 when Mesos did not start it."""
    needed = ("MESOS_AGENT_ENDPOINT", "MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID")
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        say(f"{', '.join(missing)} not set: this is started by a Mesos agent, not by hand")
        return 2
    return Executor(dict(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
