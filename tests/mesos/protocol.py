"""What Mesos makes of the JSON of a call: fields and types of the v1 messages, and what master and agent refuse.

The tables are those of `scheduler.proto`, `executor.proto` and `mesos.proto` (v1, 1.11), as far as asad may come to use
them. Mesos itself passes over a field that it does not know; here that is an error, since it would be a slip of ours.
The sentences are Mesos' own where it has some.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

REQUIRED = "!"
REPEATED = "*"
"""Marks before the name of a type."""

STATES = {
    *("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_FINISHED", "TASK_FAILED"),
    *("TASK_KILLED", "TASK_ERROR", "TASK_LOST", "TASK_DROPPED", "TASK_UNREACHABLE", "TASK_GONE"),
    *("TASK_GONE_BY_OPERATOR", "TASK_UNKNOWN"),
}
ENUMS = {
    "TaskState": STATES,
    "Source": {"SOURCE_MASTER", "SOURCE_AGENT", "SOURCE_EXECUTOR"},
    "ExecutorType": {"UNKNOWN", "DEFAULT", "CUSTOM"},
    "ValueType": {"SCALAR", "RANGES", "SET", "TEXT"},
    "OperationType": {"LAUNCH", "LAUNCH_GROUP", "RESERVE", "UNRESERVE", "CREATE", "DESTROY"},
    "CapabilityType": {
        "REVOCABLE_RESOURCES",
        "TASK_KILLING_STATE",
        "GPU_RESOURCES",
        "SHARED_RESOURCES",
        "PARTITION_AWARE",
        "MULTI_ROLE",
        "RESERVATION_REFINEMENT",
        "REGION_AWARE",
    },
    "CallType": {
        *("SUBSCRIBE", "TEARDOWN", "ACCEPT", "DECLINE", "REVIVE", "SUPPRESS"),
        *("KILL", "ACKNOWLEDGE", "RECONCILE", "MESSAGE"),
    },
    "ExecutorCallType": {"SUBSCRIBE", "UPDATE", "MESSAGE", "HEARTBEAT"},
}
ID = {"value": "!id"}
MESSAGES: dict[str, Mapping[str, str]] = {
    "Id": ID,
    "Call": {
        "framework_id": "Id",
        "type": "CallType",
        "subscribe": "Subscribe",
        "accept": "Accept",
        "decline": "Decline",
        "revive": "Roles",
        "suppress": "Roles",
        "kill": "Kill",
        "acknowledge": "Acknowledge",
        "reconcile": "Reconcile",
    },
    "Subscribe": {"framework_info": "!FrameworkInfo", "suppressed_roles": "*string"},
    "FrameworkInfo": {
        "user": "!string",
        "name": "!string",
        "id": "Id",
        "failover_timeout": "double",
        "checkpoint": "bool",
        "role": "string",
        "roles": "*string",
        "hostname": "string",
        "principal": "string",
        "webui_url": "string",
        "capabilities": "*Capability",
        "labels": "Labels",
    },
    "Capability": {"type": "CapabilityType"},
    "Accept": {"offer_ids": "*Id", "operations": "*Operation", "filters": "Filters"},
    "Decline": {"offer_ids": "*Id", "filters": "Filters"},
    "Filters": {"refuse_seconds": "double"},
    "Roles": {"roles": "*string"},
    "Operation": {"type": "OperationType", "launch": "Launch"},
    "Launch": {"task_infos": "*TaskInfo"},
    "TaskInfo": {
        "name": "!string",
        "task_id": "!Id",
        "agent_id": "!Id",
        "resources": "*Resource",
        "executor": "ExecutorInfo",
        "command": "CommandInfo",
        "kill_policy": "KillPolicy",
        "data": "bytes",
        "labels": "Labels",
    },
    "ExecutorInfo": {
        "type": "ExecutorType",
        "executor_id": "!Id",
        "framework_id": "Id",
        "command": "CommandInfo",
        "resources": "*Resource",
        "name": "string",
        "source": "string",
        "data": "bytes",
        "shutdown_grace_period": "Duration",
        "labels": "Labels",
    },
    "CommandInfo": {"shell": "bool", "value": "string", "arguments": "*string", "user": "string"},
    "KillPolicy": {"grace_period": "Duration"},
    "Duration": {"nanoseconds": "!int64"},
    "Resource": {
        "name": "!string",
        "type": "!ValueType",
        "scalar": "Scalar",
        "ranges": "any",
        "role": "string",
        "allocation_info": "AllocationInfo",
        "reservation": "any",
        "reservations": "any",
        "disk": "any",
        "revocable": "Nothing",
        "shared": "Nothing",
        "provider_id": "Id",
    },
    "Scalar": {"value": "!double"},
    "AllocationInfo": {"role": "string"},
    "Nothing": {},
    "Labels": {"labels": "*Label"},
    "Label": {"key": "!string", "value": "string"},
    "Kill": {"task_id": "!Id", "agent_id": "Id", "kill_policy": "KillPolicy"},
    "Acknowledge": {"agent_id": "!Id", "task_id": "!Id", "uuid": "!bytes"},
    "Reconcile": {"tasks": "*ReconcileTask"},
    "ReconcileTask": {"task_id": "!Id", "agent_id": "Id"},
    "ExecutorCall": {
        "executor_id": "!Id",
        "framework_id": "!Id",
        "type": "ExecutorCallType",
        "subscribe": "ExecutorSubscribe",
        "update": "Update",
        "message": "any",
    },
    "ExecutorSubscribe": {"unacknowledged_tasks": "*TaskInfo", "unacknowledged_updates": "*Update"},
    "Update": {"status": "!TaskStatus"},
    "TaskStatus": {
        "task_id": "!Id",
        "state": "!TaskState",
        "message": "string",
        "source": "Source",
        "reason": "string",
        "data": "bytes",
        "agent_id": "Id",
        "executor_id": "Id",
        "timestamp": "double",
        "uuid": "bytes",
        "healthy": "bool",
        "labels": "Labels",
    },
}
WITH_A_BODY = {"SUBSCRIBE", "ACCEPT", "DECLINE", "KILL", "ACKNOWLEDGE", "RECONCILE"}
"""Calls that say what they are about in a field of their own name."""


def misfit(value: Any, kind: str, where: str = "") -> str:
    """Why a JSON value is no message or scalar of this kind, with its place; empty if it is one."""
    if kind == "any":
        return ""
    if kind not in MESSAGES:
        return "" if _is_scalar(value, kind) else f"Not expecting {value!r:.60} for field '{where}'"
    if not isinstance(value, dict):
        return f"Not expecting {value!r:.60} for field '{where}'"
    fields = MESSAGES[kind]
    for name, one in value.items():
        if name not in fields:
            return f"{kind} has no field '{name}' ({where})"
        marked = fields[name]
        there = f"{where}.{name}".lstrip(".")
        if not marked.startswith(REPEATED):
            if why := misfit(one, marked.removeprefix(REQUIRED), there):
                return why
            continue
        if not isinstance(one, list):
            return f"Not expecting {one!r:.60} for field '{there}'"
        for item in one:
            if why := misfit(item, marked.removeprefix(REPEATED), there):
                return why
    missing = [name for name, marked in fields.items() if marked.startswith(REQUIRED) and name not in value]
    return f"Missing required fields: {', '.join(missing)} ({kind} {where})" if missing else ""


def _is_scalar(value: Any, kind: str) -> bool:
    if kind in ENUMS:
        return value in ENUMS[kind]
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "int64":
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    if kind == "double":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not isinstance(value, str):
        return False
    if kind == "bytes":
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            return False
    return kind != "id" or _is_id(value)


def _is_id(text: str) -> bool:
    """May it name a task, an executor, a framework? (`common/validation.cpp`)"""
    bad = any(char in "/\\" or char.isspace() or not char.isprintable() for char in text)
    return 0 < len(text) <= 255 and text not in (".", "..") and not bad


def refused_headers(headers: Mapping[str, str], kind: str) -> tuple[str, str]:
    """Status and sentence with which a request is refused for its headers (lower case); empty if it is not."""
    content = headers.get("content-type")
    if content is None:
        return "400 Bad Request", "Expecting 'Content-Type' to be present"
    if content != "application/json":
        return "415 Unsupported Media Type", "Expecting 'Content-Type' of application/json"
    if kind == "SUBSCRIBE" and not {"application/json", "*/*"} & set(
        headers.get("accept", "*/*").split(", ")
    ):
        return "406 Not Acceptable", "Expecting 'Accept' to allow 'application/json'"
    if kind == "SUBSCRIBE" and "mesos-stream-id" in headers:
        return "400 Bad Request", "Subscribe calls should not include the 'Mesos-Stream-Id' header"
    return "", ""


def refused_call(call: Mapping[str, Any]) -> str:
    """Why a master does not take a call of a scheduler (`master/validation.cpp`); empty if it does."""
    kind = str(call.get("type"))
    if kind in WITH_A_BODY and kind.lower() not in call:
        return f"Expecting '{kind.lower()}' to be present"
    if kind == "SUBSCRIBE":
        info = call["subscribe"]["framework_info"]
        if info.get("id", {}).get("value", "") != call.get("framework_id", {}).get("value", ""):
            return "'framework_id' differs from 'subscribe.framework_info.id'"
    if kind == "ACKNOWLEDGE":
        return _no_uuid(call["acknowledge"]["uuid"])
    return ""


def refused_framework(info: Mapping[str, Any], known: Mapping[str, Any] | None) -> str:
    """Why a subscription ends with an ERROR; `known` is what the framework stated of itself before."""
    roles = info.get("roles", [])
    if {"type": "MULTI_ROLE"} in info.get("capabilities", []):
        if "role" in info:
            return "'FrameworkInfo.role' must not be set when the framework is MULTI_ROLE capable"
    elif roles:
        return "'FrameworkInfo.roles' must not be set when the framework is not MULTI_ROLE capable"
    if len(set(roles)) != len(roles):
        return f"'FrameworkInfo.roles' contains duplicate items: {sorted(roles)}"
    for role in roles:
        if ".." in role.split("/"):
            return f"'FrameworkInfo.roles' contains invalid role: Role '{role}' cannot include '..' as a component"
    if known is not None and known.get("principal") != info.get("principal"):
        return "Changing framework's principal is not allowed."
    return ""


def refused_executor(executor: Mapping[str, Any], framework_id: str) -> str:
    """Why a task with this executor is TASK_ERROR."""
    if executor.get("type", "CUSTOM") != "CUSTOM":
        return "'ExecutorInfo.type' must be 'CUSTOM'"
    if "command" not in executor:
        return "'ExecutorInfo.command' must be set"
    given = executor.get("framework_id", {}).get("value", framework_id)
    if given != framework_id:
        return f"ExecutorInfo has an invalid FrameworkID (Actual: {given} vs Expected: {framework_id})"
    return ""


def refused_resources(*lists: list[dict[str, Any]]) -> str:
    """Why these, of a task and its executor, cannot be used together."""
    resources = [resource for one in lists for resource in one]
    if len({resource.get("allocation_info", {}).get("role") for resource in resources}) > 1:
        return "Invalid task resources: The resources have multiple allocation roles"
    for resource in resources:
        if resource["name"] == "gpus" and resource["scalar"]["value"] % 1:
            return "The 'gpus' resource must be an unsigned integer"
    for name in {resource["name"] for resource in resources}:
        if len({"revocable" in resource for resource in resources if resource["name"] == name}) > 1:
            return f"Cannot use both revocable and non-revocable '{name}' at the same time"
    return ""


def refused_executor_call(call: Mapping[str, Any]) -> str:
    """Why an agent does not take a call of an executor (`common/validation.cpp`); empty if it does."""
    if why := misfit(call, "ExecutorCall"):
        return why
    kind = str(call.get("type"))
    if kind in ("SUBSCRIBE", "UPDATE") and kind.lower() not in call:
        return f"Expecting '{kind.lower()}' to be present"
    updates = (
        [call["update"]] if kind == "UPDATE" else call.get("subscribe", {}).get("unacknowledged_updates", [])
    )
    for update in updates:
        status = update["status"]
        if "uuid" not in status:
            return "Expecting 'uuid' to be present"
        if why := _no_uuid(status["uuid"]):
            return why
        if status.get("executor_id", call["executor_id"]) != call["executor_id"]:
            return "ExecutorID in Call does not match ExecutorID in TaskStatus"
        if status.get("source") != "SOURCE_EXECUTOR":
            return "Received Call from executor with invalid source, expecting 'SOURCE_EXECUTOR'"
        if status["state"] == "TASK_STAGING":
            return "Received TASK_STAGING from executor which is not allowed"
    return ""


def _no_uuid(coded: str) -> str:
    return "" if len(base64.b64decode(coded)) == 16 else "Not a valid UUID"


__all__ = [
    "misfit",
    "refused_call",
    "refused_executor",
    "refused_executor_call",
    "refused_framework",
    "refused_headers",
    "refused_resources",
]
