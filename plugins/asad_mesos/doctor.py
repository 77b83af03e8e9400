"""What `asactl doctor` finds out about a Mesos: pymesos, the master, whether it takes us, and what its agents can do.

It asks with the standard library alone, so that it works where pymesos does not. To learn whether role and principal
are accepted it subscribes a framework of its own, which ends with the connection and never holds an offer.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import importlib
import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from asad.cluster.findings import Finding, Site
from asad.errors import AsadError, ConfigError
from asad_mesos.driver import INSTALL, missing
from asad_mesos.settings import Settings, read_settings

TIMEOUT_S = 5.0
MOST_BYTES = 64 << 20
MOST_AGENTS = 200
"""So many agents are asked for their flags."""
NAMED = 6


class NoAnswer(Exception):
    """A master or an agent could not be asked; the message says why."""


def examine(site: Site) -> Iterator[Finding]:
    """All findings about the Mesos that a site's `[mesos]` names, in the order in which they should be put right."""
    yield _installed()
    try:
        settings = read_settings({key: value for key, value in site.table.items() if key != "queue"})
        secret = settings.secret()
    except ConfigError as error:
        yield Finding("mesos", "fail", str(error), "correct [mesos] in asad.toml")
        return
    try:
        leader, version = _leader(settings)
    except NoAnswer as error:
        remedy = "is mesos-master running, and does [mesos] master name it?"
        yield Finding("mesos", "fail", f"no master answers: {error}", remedy)
        return
    yield _version(leader, version)
    yield _subscribed(leader, settings, secret)
    yield from _agents(leader, settings, secret)


def examine_queue(site: Site) -> Iterator[Finding]:
    """The same, and what of Slurm's queue can be seen: the partition that `[mesos.queue]` names."""
    from asad_mesos.queue_settings import read_queue

    yield from examine(site)
    try:
        queue = read_queue(site.table.get("queue", {}))
    except ConfigError as error:
        yield Finding("queue", "fail", str(error), "correct [mesos.queue] in asad.toml")
        return
    from asad_mesos.slurm_side import Commands

    try:
        text = Commands(queue.timeout_s).partition(queue.partition)
    except AsadError as error:
        remedy = f"add PartitionName={queue.partition} Nodes=ALL State=DOWN to slurm.conf, then scontrol reconfigure"
        yield Finding("queue", "fail", str(error), remedy)
        return
    yield partition_finding(queue.partition, text)


def partition_finding(name: str, text: str) -> Finding:
    """Of what `scontrol show partition` says: does Slurm itself start its jobs?"""
    facts = dict(word.split("=", 1) for word in text.split() if "=" in word)
    state = facts.get("State", "")
    if state == "DOWN" or facts.get("Nodes", "(null)") == "(null)":
        return Finding("queue", "ok", f"jobs of the partition {name} wait for Mesos, Slurm starts none")
    if state in ("INACTIVE", "DRAIN"):
        remedy = f"scontrol update PartitionName={name} State=DOWN, and the same in slurm.conf"
        return Finding("queue", "fail", f"the partition {name} is {state}: nobody can submit to it", remedy)
    remedy = f"State=DOWN for PartitionName={name} in slurm.conf, so that only Mesos runs its jobs"
    return Finding("queue", "warn", f"the partition {name} is {state}: Slurm starts its jobs too", remedy)


def _installed() -> Finding:
    absent = missing()
    if absent:
        return Finding("pymesos", "fail", f"not installed: {', '.join(absent)}", INSTALL)
    try:
        importlib.import_module("httptools")
    except ImportError as error:
        return Finding("pymesos", "fail", f"httptools cannot be loaded: {error}", INSTALL)
    return Finding("pymesos", "ok", "pymesos and what it needs are installed")


# ------------------------------------------------------------------------------------------------------------- master


def _leader(settings: Settings) -> tuple[str, str]:
    """Address and version of the first master that answers. Raises NoAnswer."""
    troubles = []
    masters = settings.master
    if masters[0].startswith("zk://"):
        masters = (_from_zookeeper(masters[0]),)
    for address in masters:
        try:
            answer = json.loads(fetch(address, "/version"))
            return address, str(answer["version"])
        except NoAnswer as error:
            troubles.append(f"{address}: {error}")
        except (ValueError, KeyError, TypeError):
            troubles.append(f"{address}: what answers there is no Mesos")
    raise NoAnswer("; ".join(troubles))


def _from_zookeeper(url: str) -> str:
    """Address of the leading master. Raises NoAnswer."""
    hosts, _, path = url.removeprefix("zk://").partition("/")
    try:
        from kazoo.client import KazooClient  # type: ignore[import-untyped]

        client = KazooClient(hosts.rpartition("@")[2], read_only=True)
        client.start(timeout=TIMEOUT_S)
        try:
            nodes = [name for name in client.get_children(f"/{path}") if name.startswith("json.info_")]
            raw, _ = client.get(f"/{path}/{min(nodes)}")
            address = json.loads(raw)["address"]
            return f"{address['ip']}:{address['port']}"
        finally:
            client.stop()
            client.close()
    except Exception as error:  # kazoo has many of its own
        raise NoAnswer(f"{url}: {type(error).__name__} {str(error)[:100]}".rstrip()) from None


def _version(leader: str, version: str) -> Finding:
    first = version.split(".")[0]
    if not first.isdigit() or int(first) < 1:
        return Finding("mesos", "warn", f"{leader} is Mesos {_clean(version)}; asad was tried with 1.12")
    return Finding("mesos", "ok", f"{leader} answers, Mesos {_clean(version)}")


def _subscribed(leader: str, settings: Settings, secret: str) -> Finding:
    """Does a master take a framework of this role, principal and secret?"""
    info: dict[str, Any] = {
        "user": settings.user,
        "name": f"{settings.framework}-doctor",
        "failover_timeout": 0,
        "roles": [settings.role],
        "capabilities": [{"type": "MULTI_ROLE"}],
    }
    if settings.principal:
        info["principal"] = settings.principal
    # offers of this framework would be kept from others: it asks for none
    subscribe = {"framework_info": info, "suppressed_roles": [settings.role]}
    who = f"role {settings.role!r}" + (f" and principal {settings.principal!r}" if settings.principal else "")
    try:
        event = first_event(leader, {"type": "SUBSCRIBE", "subscribe": subscribe}, settings.principal, secret)
    except NoAnswer as error:
        return Finding(
            "framework",
            "fail",
            f"the master refuses {who}: {error}",
            "correct [mesos] role, principal, secret_file",
        )
    if event.get("type") == "SUBSCRIBED":
        return Finding("framework", "ok", f"the master takes a framework with {who}")
    said = _clean(str((event.get("error") or {}).get("message", event.get("type", ""))))
    return Finding(
        "framework",
        "fail",
        f"the master refuses {who}: {said}",
        "correct [mesos] role, principal, secret_file",
    )


# ------------------------------------------------------------------------------------------------------------- agents


def _agents(leader: str, settings: Settings, secret: str) -> Iterator[Finding]:
    try:
        answer = json.loads(fetch(leader, "/slaves", settings.principal, secret))
        agents = [agent for agent in answer["slaves"] if agent.get("active", True)]
    except (NoAnswer, ValueError, KeyError, TypeError) as error:
        yield Finding(
            "agents",
            "warn",
            f"the master does not list its agents: {error}",
            "may this principal see /slaves?",
        )
        return
    if not agents:
        yield Finding("agents", "fail", "the master has no agent", "start mesos-agent on the nodes")
        return
    yield Finding("agents", "ok", f"{len(agents)} agents")
    weak, unasked, bare, devices, revocable, staying = [], [], [], 0.0, 0, []
    for agent in agents[:MOST_AGENTS]:
        name = _clean(str(agent.get("hostname", "?")))
        gpus = _gpus_of(agent)
        devices += gpus
        try:
            flags = json.loads(fetch(_address(agent), "/flags", settings.principal, secret))["flags"]
            isolation = str(flags.get("isolation", ""))
            estimator = str(flags.get("resource_estimator", ""))
        except (NoAnswer, ValueError, KeyError, TypeError):
            unasked.append(name)
            continue
        if "cgroups/cpu" not in isolation and "cgroups/all" not in isolation:
            weak.append(name)
        if gpus and "gpu/nvidia" not in isolation:
            bare.append(name)
        if str(flags.get("switch_user", "true")) == "false":
            staying.append(name)
        revocable += bool(estimator) and "Noop" not in estimator
    asked = min(len(agents), MOST_AGENTS) - len(unasked)
    if unasked:
        why = f"agents that do not tell their flags: {_some(unasked)}"
        yield Finding(
            "isolation", "warn", why, "open their port to this host, or look with curl AGENT:5051/flags"
        )
    if weak:
        yield Finding(
            "isolation",
            "warn",
            f"agents without cgroups/cpu, so that tasks are not held to their CPUs: {_some(weak)}",
            "mesos-agent --isolation=cgroups/cpu,cgroups/mem --cgroups_enable_cfs",
        )
    elif asked:
        yield Finding("isolation", "ok", f"{asked} agents hold tasks to their CPUs by cgroups")
    if devices:
        yield _gpus(settings, int(devices), bare)
    if staying and settings.executor_user == "root":
        why = f"agents that do not switch users: guests run there only beside their own user's jobs: {_some(staying)}"
        yield Finding("executor", "warn", why, "mesos-agent --switch_user, as root")
    if settings.revocable and asked:
        if revocable:
            yield Finding(
                "revocable", "ok", f"{revocable} of {asked} agents offer revocable resources, for guests"
            )
        else:
            within = "guests run within the executors of their hosts, where both are of one user"
            why = "guests wait for regular ones beside their hosts" if not settings.inside else within
            remedy = "mesos-agent --resource_estimator=…, or [mesos] revocable = false"
            yield Finding("revocable", "warn", f"no agent offers revocable resources: {why}", remedy)
    if settings.executor.split()[0] == "asad-mesos-executor" and shutil.which("asad-mesos-executor") is None:
        why = "asad-mesos-executor is not on this machine's PATH; every agent needs it on its own"
        yield Finding(
            "executor", "warn", why, "install asad on the agents, or name its path in [mesos] executor"
        )


def _gpus_of(agent: Mapping[str, Any]) -> float:
    """Devices of an agent, as the master lists it."""
    resources = agent.get("resources")
    found = resources.get("gpus", 0.0) if isinstance(resources, Mapping) else 0.0
    return float(found) if isinstance(found, int | float) else 0.0


def _gpus(settings: Settings, devices: int, bare: list[str]) -> Finding:
    """Are the agents' GPUs asked for, and does anything keep tasks to theirs?"""
    if not settings.gpus:
        why = f"agents have {devices} GPUs, and are offered to nobody who does not ask for them"
        return Finding("gpus", "warn", why, "[mesos] gpus = true, if asad shall use these agents")
    if bare:
        why = f"nothing keeps tasks to the GPUs that they were given: {_some(bare)}"
        return Finding("gpus", "warn", why, "mesos-agent --isolation=…,cgroups/devices,gpu/nvidia")
    return Finding("gpus", "ok", f"{devices} GPUs, given whole, and tasks are kept to theirs")


def _address(agent: Mapping[str, Any]) -> str:
    """Host and port out of `slave(1)@10.0.0.1:5051`. Raises ValueError."""
    address = str(agent["pid"]).rpartition("@")[2]
    if not address:
        raise ValueError("an agent without an address")
    return address


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:200])


# --------------------------------------------------------------------------------------------------------------- HTTP


def fetch(address: str, path: str, principal: str = "", secret: str = "") -> bytes:
    """What is at a path, from the leader where a master says who that is. Raises NoAnswer."""
    for _ in range(4):
        with _asked(address, "GET", path, b"", principal, secret) as (status, headers, response):
            if status == 307 and headers.get("Location"):
                address = _other(headers["Location"])
                continue
            if status != 200:
                raise NoAnswer(f"status {status}" + (", who are you?" if status in (401, 403) else ""))
            data = response.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise NoAnswer("an answer without an end")
            return data
    raise NoAnswer("masters that send each to the other")


def first_event(address: str, call: Mapping[str, Any], principal: str, secret: str) -> dict[str, Any]:
    """What a master says first to a subscriber; the connection is closed then. Raises NoAnswer."""
    body = json.dumps(call).encode()
    for _ in range(4):
        with _asked(address, "POST", "/api/v1/scheduler", body, principal, secret) as (
            status,
            headers,
            response,
        ):
            if status == 307 and headers.get("Location"):
                address = _other(headers["Location"])
                continue
            if status != 200:
                raise NoAnswer(
                    f"status {status} {_clean(response.read(500).decode(errors='replace'))}".rstrip()
                )
            length = response.readline(32).strip()
            if not length.isdigit() or int(length) > MOST_BYTES:
                raise NoAnswer("what it sends is no RecordIO")
            event = json.loads(response.read(int(length)))
            if not isinstance(event, dict):
                raise NoAnswer("what it sends is no event")
            return event
    raise NoAnswer("masters that send each to the other")


def _other(location: str) -> str:
    """The address in `//host:5050/path`."""
    return location.removeprefix("http:").removeprefix("//").partition("/")[0]


@contextlib.contextmanager
def _asked(
    address: str, method: str, path: str, body: bytes, principal: str, secret: str
) -> Iterator[tuple[int, Mapping[str, str], http.client.HTTPResponse]]:
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if principal:
        coded = base64.b64encode(f"{principal}:{secret}".encode()).decode("ascii")
        headers["Authorization"] = f"Basic {coded}"
    connection = None
    try:
        connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        yield response.status, response.headers, response  # type: ignore[misc]
    except (OSError, http.client.HTTPException, ValueError, socket.gaierror) as error:
        raise NoAnswer(str(error) or type(error).__name__) from None
    finally:
        if connection is not None:
            connection.close()
