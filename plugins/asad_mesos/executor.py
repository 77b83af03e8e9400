"""The executor: runs the tasks of one job on one agent, tells the agent how they fare, and the node actor who they are.

Mesos starts it under the job's user. It speaks the executor API v1 with the standard library alone, so an agent needs
this file and Python 3.9 or newer and nothing else. It outlives a restart of its agent: what was not acknowledged is
told again when it is back. Where no node actor answers, tasks run all the same, only unwatched.

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
"""An update that nobody has acknowledged is told again after this."""
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
"""What the process of a task says once what fails is the task's own fault."""
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
HIDDEN = ("MESOS_EXECUTOR_AUTHENTICATION_TOKEN",)
"""Not for tasks."""


def seconds(text: str, default: float) -> float:
    """A duration as Mesos writes it (`15mins`)."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)(ns|us|ms|secs|mins|hrs|days|weeks)\s*", text)
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
        self._said = ""

    def _say_once(self, text: str) -> None:
        """An agent that is away for minutes is asked a thousand times."""
        if text != self._said:
            say(text)
        self._said = text

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        host, _, port = self.endpoint.rpartition(":")
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)

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
        connection = self._connect(CALL_S)
        try:
            response = self._post(connection, body)
            if response.status != 200:
                why = f"the agent answered {response.status}: {response.read(300)!r}"
                connection.close()
                if 400 <= response.status < 500 and response.status not in LATER:
                    raise Forgotten(why)
                self._say_once(why)
                return False
        except (OSError, http.client.HTTPException) as error:
            self._say_once(f"the agent does not answer: {error}")
            connection.close()
            return False
        self._said = ""
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

    def tell(self, update: dict[str, Any]) -> bool:
        """Send a status update; False if the agent did not take it now."""
        connection = self._connect(CALL_S)
        try:
            response = self._post(connection, {"type": "UPDATE", "update": update})
            response.read()
            return 200 <= response.status < 300
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Task:
    """A task of ours."""

    def __init__(self, info: dict[str, Any], place: dict[str, Any], own: dict[str, Any]) -> None:
        self.info, self.place = info, place
        self.task_id = str(info["task_id"]["value"])
        job = place.get("job")
        self.guest = isinstance(job, dict)
        """Is it one of another job, beside ours?"""
        self.job: dict[str, Any] = job if isinstance(job, dict) else own
        self.process: subprocess.Popen[bytes] | None = None
        self.kill_at = 0.0
        """When it is killed for good; 0 if nobody wants it to end."""
        self.over = False


class Executor:
    """Tasks of one job on this agent."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.agent = Agent(environ)
        self.sandbox = Path(environ.get("MESOS_SANDBOX") or environ.get("MESOS_DIRECTORY") or ".")
        self.recovery_s = seconds(environ.get("MESOS_RECOVERY_TIMEOUT", ""), RECOVERY_S)
        self.retry_s = seconds(environ.get(PATIENCE, ""), PATIENCE_S) / TRIES
        self.checkpoint = environ.get("MESOS_CHECKPOINT") == "1"
        self.grace_s = seconds(environ.get("MESOS_EXECUTOR_SHUTDOWN_GRACE_PERIOD", ""), 5.0)
        self.socket = environ.get(VARIABLE) or REGISTER
        self.data: dict[str, Any] = {}
        self.tasks: dict[str, Task] = {}
        self.unknown: dict[str, dict[str, Any]] = {}
        """Tasks that the agent has not acknowledged anything of."""
        self.updates: dict[str, tuple[dict[str, Any], float]] = {}
        """By uuid: updates that are not acknowledged, and when each was sent."""
        self.registered = False
        self.stopping = False

    # ------------------------------------------------------------------------------------------------------- life

    def run(self) -> int:
        """Until all tasks are over and told."""
        alone_s, wait_s, connected = 0.0, 0.0, False
        idle_s = time.monotonic()
        while True:
            now = time.monotonic()
            if not connected and now >= wait_s:
                alone_s = alone_s or now
                wait_s = now + self.retry_s
                try:
                    connected = self.agent.subscribe(
                        list(self.unknown.values()), [update for update, _ in self.updates.values()]
                    )
                except Forgotten as error:
                    say(f"{error}; its tasks end")
                    wait_s = math.inf
                    self._stop_all()
                if connected:
                    alone_s, idle_s = 0.0, now
            try:
                event = self.agent.inbox.get(timeout=POLL_S)
            except queue.Empty:
                pass
            else:
                if event is None:
                    connected, alone_s = False, time.monotonic()
                    if not self.checkpoint:
                        self._stop_all()
                else:
                    self._take(event)
            self._look(connected)
            if any(not task.over for task in self.tasks.values()):
                idle_s = now
            expected = int(self.data.get("tasks", 1))
            own = sum(not task.guest for task in self.tasks.values())
            complete = own >= expected and not self.updates
            # an agent that is away must hear how its tasks ended, or they are taken for lost and run again
            lingered = now - idle_s > LINGER_S and (connected or not self.updates)
            if all(task.over for task in self.tasks.values()) and (
                (complete and self.tasks) or self.stopping or lingered
            ):
                self._tell_all()
                return 0
            if not connected and alone_s and now - alone_s > self.recovery_s:
                say(f"the agent did not come back within {self.recovery_s:.0f} s; its tasks end")
                self._stop_all()

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
                self.updates.pop(event["acknowledged"]["uuid"], None)
                self.unknown.pop(event["acknowledged"]["task_id"]["value"], None)
            elif kind == "SHUTDOWN":
                self._stop_all()
            elif kind == "ERROR":
                say(f"the agent says: {event['error'].get('message', '')}")
                self._stop_all()
        except (KeyError, TypeError, ValueError) as error:
            say(f"an event that makes no sense is let be: {kind} ({error!r})")

    # ------------------------------------------------------------------------------------------------------- tasks

    def _launch(self, info: dict[str, Any]) -> None:
        if str(info["task_id"]["value"]) in self.tasks:
            return
        if not self.data:
            self.data = decoded(info.get("executor", {}).get("data", ""))
        task = Task(info, decoded(info.get("data", "")), self.data)
        self.tasks[task.task_id] = task
        self.unknown[task.task_id] = info
        if not self.registered and not task.guest:
            self.registered = True
            self._register()
        if not task.guest:
            self._tell(task, "TASK_STARTING")
        try:
            if task.guest and not any(not own.over and not own.guest for own in self.tasks.values()):
                raise Refused("its host has ended")
            task.process = self._start(task)
        except Refused as error:
            task.over = True
            self._tell(task, "TASK_FAILED", f"it is not begun here: {error}", refused=True)
            return
        except (OSError, ValueError) as error:
            task.over = True
            self._tell(task, "TASK_FAILED", f"it could not be started: {error}", 127)
            return
        if task.guest:  # only now is it certain that it begins here
            self._tell(task, "TASK_STARTING")
        self._tell(task, "TASK_RUNNING")

    def _register(self) -> None:
        """Tell the node actor; it moves this process before there are children."""
        name = self.data.get("key", "")
        if not name or not Path(self.socket).exists():
            return
        why = register(self.socket, {"job": name})
        if why:
            say(f"the node actor does not take note of {name}: {why}")

    def _start(self, task: Task) -> subprocess.Popen[bytes]:
        """Begin a task. Raises OSError or ValueError where it cannot be started, Refused where it may not."""
        account = self._account(task)
        if task.guest or account is not None:
            return self._become(task, account)
        sandbox = self.sandbox.resolve()
        argv = command_of(task.job, task.place, sandbox, task.task_id)
        write_script(task.job, sandbox, task.task_id)
        output: Any = None
        if task.job.get("output"):
            output = output_of(task.job, sandbox, task.task_id).open("ab")
        try:
            return subprocess.Popen(  # noqa: S603 (the user's own command, under the user's own name)
                argv,
                cwd=task.job.get("directory") or sandbox,
                env=self._environment(task),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT if output is not None else None,
                start_new_session=True,
            )
        finally:
            if output is not None:
                output.close()

    def _environment(self, task: Task) -> dict[str, str]:
        data, place = task.job, task.place
        environment = {name: value for name, value in self.environ.items() if name not in HIDDEN}
        environment.update({str(name): str(value) for name, value in data.get("environment", {}).items()})
        environment.update(
            ASAD_JOB_ID=str(data.get("job", "")),
            ASAD_JOB_KEY=str(data.get("key", "")),
            ASAD_TASK_ID=task.task_id,
            ASAD_GROUP=str(place.get("group", "")),
            ASAD_TASK_INDEX=str(place.get("index", 0)),
            ASAD_GROUP_TASKS=str(place.get("of", 1)),
            ASAD_RANK=str(place.get("rank", 0)),
            ASAD_TASKS=str(place.get("tasks", 1)),
            ASAD_NODES=str(place.get("nodes", "")),
            ASAD_ATTEMPT=str(place.get("attempt", 1)),
        )
        return environment

    def _account(self, task: Task) -> pwd.struct_passwd | None:
        """As whom it runs, if that is another user than ours. Raises Refused."""
        uid, name = task.job.get("uid"), str(task.job.get("user", ""))
        if not isinstance(uid, int) or uid == os.geteuid():
            return None
        if os.geteuid() != 0:
            if not task.guest:
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

    def _become(self, task: Task, account: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
        """Start a task in a folder of its own, as its user. Raises OSError, ValueError and Refused."""
        job, folder = task.job, self.sandbox.resolve() / f"asad-{task.task_id}"
        switch: dict[str, Any] = {}
        environment = self._environment(task)
        environment.update(MESOS_SANDBOX=str(folder), MESOS_DIRECTORY=str(folder))
        files = [folder / "stdout", folder / "stderr"] if task.guest else []
        if job.get("output"):
            files = [output_of(job, folder, task.task_id)] * 2
        message = {"job": job.get("key"), **{key: task.place.get(key) for key in ("inside", "memory_bytes")}}
        argv = command_of(job, task.place, folder, task.task_id)
        folder.mkdir(mode=0o700)
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
            self.sandbox.chmod(self.sandbox.stat().st_mode | 0o011)  # or he could not come to it
            groups = os.getgrouplist(account.pw_name, account.pw_gid)
            switch = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
            own = {"USER": account.pw_name, "LOGNAME": account.pw_name, "HOME": account.pw_dir}
            given = job.get("environment", {})
            environment.update({name: value for name, value in own.items() if name not in given})
        reading, writing = os.pipe()

        def prepare() -> None:
            """In the new process, which is the task's user by now, before it becomes the task."""
            try:
                why = register(self.socket, message) if task.guest else ""
                if why:
                    os.write(writing, f"the node actor does not take note of it: {why}".encode()[:500])
                    raise Refused(why)
                os.write(writing, BEGUN)
                os.chdir(folder)
                write_script(job, folder, task.task_id)
                for number, path in enumerate(files, 1):
                    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                    os.dup2(descriptor, number)
                os.chdir(job.get("directory") or folder)
            except OSError as error:
                os.write(writing, str(error).encode()[:500])
                raise

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
            os.close(writing)
            writing = -1
            said = os.read(reading, 4096)
            if said.startswith(BEGUN):
                raise OSError(said[len(BEGUN) :].decode(errors="replace") or str(error)) from None
            raise Refused(said.decode(errors="replace") or f"no process could be started ({error})") from None
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)

    def _kill(self, kill: dict[str, Any]) -> None:
        task = self.tasks.get(str(kill["task_id"]["value"]))
        if task is None or task.over or task.process is None:
            return
        policy = kill.get("kill_policy") or task.info.get("kill_policy") or {}
        grace_s = float(policy.get("grace_period", {}).get("nanoseconds", 3e9)) / 1e9
        self._end(task, grace_s)

    def _end(self, task: Task, grace_s: float) -> None:
        if task.kill_at == 0.0:
            self._signal(task, signal.SIGTERM)
            self._tell(task, "TASK_KILLING")
        deadline = time.monotonic() + grace_s
        task.kill_at = min(task.kill_at or deadline, deadline)

    def _signal(self, task: Task, number: signal.Signals) -> None:
        if task.process is not None:
            with contextlib.suppress(OSError):
                os.killpg(task.process.pid, number)

    def _stop_all(self) -> None:
        """The agent or the framework wants an end."""
        self.stopping = True
        for task in self.tasks.values():
            if not task.over:
                self._end(task, self.grace_s)

    def _look(self, connected: bool) -> None:
        """Who has ended, whose grace is over, and what is still to be told."""
        now = time.monotonic()
        for task in self.tasks.values():
            if task.over or task.process is None:
                continue
            status = task.process.poll()
            if status is not None:
                task.over = True
                self._signal(task, signal.SIGKILL)  # what it has left behind
                self._tell_end(task, status)
            elif task.kill_at and now >= task.kill_at:
                self._signal(task, signal.SIGKILL)
        if connected:
            for key, (update, sent_s) in list(self.updates.items()):
                if now - sent_s > AGAIN_S:
                    self.updates[key] = (update, now)
                    self.agent.tell(update)

    def _tell_end(self, task: Task, status: int) -> None:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        if task.kill_at:
            self._tell(task, "TASK_KILLED", "it was told to end", status)
        else:
            state = "TASK_FAILED" if status else "TASK_FINISHED"
            self._tell(task, state, f"it {how}" if status else "", status)

    def _tell(
        self, task: Task, state: str, message: str = "", status: int | None = None, *, refused: bool = False
    ) -> None:
        identity = uuid.uuid4()
        key = base64.b64encode(identity.bytes).decode("ascii")
        told: dict[str, Any] = {
            "task_id": {"value": task.task_id},
            "state": state,
            "source": "SOURCE_EXECUTOR",
            "executor_id": self.agent.executor_id,
            "timestamp": time.time(),
            "uuid": key,
        }
        if message:
            told["message"] = message
        marks = {
            "exit": "" if status is None else str(status),
            "refused": "yes" if refused else "",
            # where it is missing, an earlier version would run a guest as a task of ours
            "guests": "yes" if state == "TASK_RUNNING" and not task.guest else "",
        }
        if labels := [{"key": name, "value": value} for name, value in marks.items() if value]:
            told["labels"] = {"labels": labels}
        update = {"status": told}
        self.updates[key] = (update, time.monotonic())
        self.agent.tell(update)

    def _tell_all(self) -> None:
        """The last words, for as long as somebody may acknowledge them."""
        until = time.monotonic() + (LINGER_S if not self.stopping else min(LINGER_S, self.grace_s))
        while self.updates and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                event = self.agent.inbox.get(timeout=POLL_S)
                if event is not None:
                    self._take(event)
                else:
                    return
            self._look(True)


def command_of(job: dict[str, Any], place: dict[str, Any], folder: Path, task_id: str) -> list[str]:
    """What a task runs. Raises ValueError."""
    command = str(place.get("command", ""))
    if not job.get("script"):
        return ["/bin/sh", "-c", command]
    return [str(folder / f"script-{task_id}"), *shlex.split(command)]


def write_script(job: dict[str, Any], folder: Path, task_id: str) -> None:
    """Its script, if it has one, into the folder. Raises OSError."""
    if job.get("script"):
        script = folder / f"script-{task_id}"
        descriptor = os.open(script, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(str(job["script"]))


def output_of(job: dict[str, Any], folder: Path, task_id: str) -> Path:
    """The file that its user named for what it prints."""
    name = str(job["output"]).replace("%j", str(job.get("job", ""))).replace("%t", task_id)
    return Path(job.get("directory") or folder) / name


def main() -> int:
    """Entry point. Exit status 0 when all is told, 2 when Mesos did not start it."""
    needed = ("MESOS_AGENT_ENDPOINT", "MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID")
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        say(f"{', '.join(missing)} not set: this is started by a Mesos agent, not by hand")
        return 2
    return Executor(dict(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
