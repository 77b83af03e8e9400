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
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from asad.cluster.findings import Finding, Site, first_finding, judged
from asad.errors import AsadError, ConfigError
from asad_mesos.driver import INSTALL, missing
from asad_mesos.settings import Settings, read_settings

TIMEOUT_S = 5.0
MOST_BYTES = 64 << 20
MOST_AGENTS = 200
"""So many agents are asked for their flags."""
NAMED = 6
MOST_HOPS = 4
"""Masters that each send us to the next."""
SHAPE = (ValueError, KeyError, TypeError, AttributeError)
"""What comes of reading an answer that is none of Mesos'."""


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
    fresh = f"scontrol update PartitionName={name} State=DOWN, and the same in slurm.conf"
    down = f"State=DOWN for PartitionName={name} in slurm.conf, so that only Mesos runs its jobs"
    served = Finding("queue", "ok", f"jobs of the partition {name} wait for Mesos, Slurm starts none")
    closed = Finding("queue", "fail", f"the partition {name} is {state}: nobody can submit to it", fresh)
    shared = Finding("queue", "warn", f"the partition {name} is {state}: Slurm starts its jobs too", down)
    return first_finding(
        (state == "DOWN" or facts.get("Nodes", "(null)") == "(null)", served),
        (state in ("INACTIVE", "DRAIN"), closed),
        (True, shared),
    )


def _installed() -> Finding:
    if absent := missing():
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
    known = re.match(r"0*[1-9]\d*(?:\.|$)", version, re.ASCII) is not None
    shown = f"Mesos {_clean(version)}"
    tried = f"{leader} is {shown}; asad was tried with 1.12"
    return judged("mesos", known, f"{leader} answers, {shown}", "warn", tried)


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
        kind = str(event.get("type", ""))
        why = _clean(str((event.get("error") or {}).get("message", kind)))
    except NoAnswer as error:
        kind, why = "", str(error)
    return judged(
        "framework",
        kind == "SUBSCRIBED",
        f"the master takes a framework with {who}",
        "fail",
        f"the master refuses {who}: {why}",
        "correct [mesos] role, principal, secret_file",
    )


# ------------------------------------------------------------------------------------------------------------- agents


def _agents(leader: str, settings: Settings, secret: str) -> Iterator[Finding]:
    try:
        answer = json.loads(fetch(leader, "/slaves", settings.principal, secret))
        agents = [agent for agent in answer["slaves"] if agent.get("active", True)]
    except (NoAnswer, *SHAPE) as error:
        why = f"the master does not list its agents: {error}"
        yield Finding("agents", "warn", why, "may this principal see /slaves?")
        return
    if not agents:
        yield Finding("agents", "fail", "the master has no agent", "start mesos-agent on the nodes")
        return
    yield Finding("agents", "ok", f"{len(agents)} agents")
    seen = [
        (_clean(str(agent.get("hostname", "?"))), _gpus_of(agent), _flags(agent, settings, secret))
        for agent in agents[:MOST_AGENTS]
    ]
    asked = [(name, gpus, flags) for name, gpus, flags in seen if flags]
    if unasked := [name for name, _, flags in seen if not flags]:
        why = f"agents that do not give their flags: {_some(unasked)}"
        remedy = "open their port to this host, or look with curl AGENT:5051/flags"
        yield Finding("isolation", "warn", why, remedy)
    if asked:
        weak = [name for name, _, flags in asked if not re.search("cgroups/(?:cpu|all)", flags["isolation"])]
        yield judged(
            "isolation",
            not weak,
            f"{len(asked)} agents hold tasks to their CPUs by cgroups",
            "warn",
            f"agents without cgroups/cpu, so that tasks are not held to their CPUs: {_some(weak)}",
            "mesos-agent --isolation=cgroups/cpu,cgroups/mem --cgroups_enable_cfs",
        )
    if devices := int(sum(gpus for _, gpus, _ in seen)):
        bare = [name for name, gpus, flags in asked if gpus and "gpu/nvidia" not in flags["isolation"]]
        yield _gpus(settings, devices, bare)
    staying = [name for name, _, flags in asked if flags["switch_user"] == "false"]
    if staying and settings.executor_user == "root":
        why = f"agents that do not switch users: guests run there only beside their own user's jobs: {_some(staying)}"
        yield Finding("executor", "warn", why, "mesos-agent --switch_user, as root")
    if settings.revocable and asked:
        revocable = sum("Noop" not in flags["resource_estimator"] for _, _, flags in asked)
        within = "guests run within the executors of their hosts, where both are of one user"
        why = "guests wait for regular ones beside their hosts" if not settings.inside else within
        yield judged(
            "revocable",
            revocable > 0,
            f"{revocable} of {len(asked)} agents offer revocable resources, for guests",
            "warn",
            f"no agent offers revocable resources: {why}",
            "mesos-agent --resource_estimator=…, or [mesos] revocable = false",
        )
    if settings.executor.split()[0] == "asad-mesos-executor" and shutil.which("asad-mesos-executor") is None:
        why = "asad-mesos-executor is not on this machine's PATH; every agent needs it on its own"
        remedy = "install asad on the agents, or name its path in [mesos] executor"
        yield Finding("executor", "warn", why, remedy)


FLAGS = {"isolation": "", "resource_estimator": "Noop", "switch_user": "true"}
"""What is looked at of an agent's flags, and what it means where one is not set."""


def _flags(agent: Mapping[str, Any], settings: Settings, secret: str) -> dict[str, str]:
    """These flags; none if the agent does not give them."""
    try:
        address = str(agent["pid"]).rpartition("@")[2]  # of `slave(1)@10.0.0.1:5051`
        if not address:
            return {}
        flags = json.loads(fetch(address, "/flags", settings.principal, secret))["flags"]
        return {name: str(flags.get(name) or unset) for name, unset in FLAGS.items()}
    except (NoAnswer, *SHAPE):
        return {}


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
    return judged(
        "gpus",
        not bare,
        f"{devices} GPUs, given whole, and tasks are kept to theirs",
        "warn",
        f"nothing keeps tasks to the GPUs that they were given: {_some(bare)}",
        "mesos-agent --isolation=…,cgroups/devices,gpu/nvidia",
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:200])


# --------------------------------------------------------------------------------------------------------------- HTTP


def fetch(address: str, path: str, principal: str = "", secret: str = "") -> bytes:
    """What is at a path. Raises NoAnswer."""

    def whole(response: http.client.HTTPResponse) -> bytes:
        data = response.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise NoAnswer("an answer without an end")
        return data

    return _asked(address, path, None, principal, secret, whole)


def first_event(address: str, call: Mapping[str, Any], principal: str, secret: str) -> dict[str, Any]:
    """What a master sends first to a subscriber; the connection is closed then. Raises NoAnswer."""

    def record(response: http.client.HTTPResponse) -> bytes:
        length = response.readline(32).strip()
        if not length.isdigit() or int(length) > MOST_BYTES:
            raise NoAnswer("what it sends is no RecordIO")
        return response.read(int(length))

    try:
        event = json.loads(
            _asked(address, "/api/v1/scheduler", json.dumps(call).encode(), principal, secret, record)
        )
    except ValueError as error:
        raise NoAnswer(str(error)) from None
    if not isinstance(event, dict):
        raise NoAnswer("what it sends is no event")
    return event


def _asked(
    address: str,
    path: str,
    body: bytes | None,
    principal: str,
    secret: str,
    read: Callable[[http.client.HTTPResponse], bytes],
) -> bytes:
    """What `read` takes of an answer, from the leader where a master names it. Raises NoAnswer."""
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if principal:
        coded = base64.b64encode(f"{principal}:{secret}".encode()).decode("ascii")
        headers["Authorization"] = f"Basic {coded}"
    try:
        for _ in range(MOST_HOPS):
            with contextlib.closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
                connection.request("POST" if body else "GET", path, body, headers)
                response = connection.getresponse()
                if response.status == 200:
                    return read(response)
                leader = response.headers.get("Location")
                if response.status != 307 or not leader:
                    why = _clean(response.read(500).decode(errors="replace")) if body else ""
                    who = ", who are you?" if response.status in (401, 403) and not body else ""
                    raise NoAnswer(f"status {response.status}{who} {why}".rstrip())
            address = leader.removeprefix("http:").removeprefix("//").partition("/")[0]
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(str(error) or type(error).__name__) from None
    raise NoAnswer("masters that send each to the other")
