"""What users ask of a Mesos through the daemon: `submit`, `cancel` and `tasks`, and who may ask what; and `teardown`,
which the control socket lets operators ask alone.

A job runs as the user who asks, whom the kernel has named; root alone may name another. Everyone sees that a job is
there; what it runs and with which environment is for its owner and root.
"""

from __future__ import annotations

import pwd
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asad.errors import AsadError, ExitStatus, UsageError
from asad.model import Json
from asad_mesos.job_spec import spec_from_json

if TYPE_CHECKING:
    from asad_mesos.mesos_cluster import MesosCluster

PRIVATE = ("command", "script", "environment", "directory", "output", "hint")
"""Fields of a job that only its owner may see."""
MOST_SHOWN = 1000
"""Jobs in one answer, the latest."""


class NotYours(AsadError):
    """It is another user's job."""

    exit_status = ExitStatus.NOT_ALLOWED


def answer(jobs: MesosCluster, verb: str, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
    """The answer to a request of that user. Raises UsageError, NotYours, or what `jobs` raises."""
    match verb:
        case "submit":
            return _submit(jobs, arguments, user, uid)
        case "cancel":
            return _cancel(jobs, arguments, user, uid)
        case "tasks":
            job = arguments.get("job", "")
            if not isinstance(job, str):
                raise UsageError("tasks: job is not a text")
            found = jobs.status(job)
            return {"total": len(found), "jobs": [_shown(one, uid) for one in found[-MOST_SHOWN:]]}
        case "teardown":
            ended, killed = jobs.teardown(f"torn down by {user}")
            return {"jobs": ended, "tasks": killed}
    raise UsageError(f"Mesos does not know how to {verb}")


def _submit(jobs: MesosCluster, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
    owner, number = _owner(arguments.get("user"), user, uid)
    spec = spec_from_json(arguments.get("spec"), user=owner, uid=number)
    if spec.origin:
        raise UsageError("job: origin is for jobs that asad takes from another queue; leave it out")
    if arguments.get("dry_run") is True:
        return {"job": "", "spec": spec.to_json()}
    return {"job": jobs.submit(spec, bounded=True), "spec": spec.to_json()}


def _owner(wanted: Json, user: str, uid: int) -> tuple[str, int]:
    """Name and number of the user as whom it runs."""
    if wanted in (None, "", user):
        return user, uid
    if not isinstance(wanted, str):
        raise UsageError("submit: user is not a text")
    if uid != 0:
        raise NotYours(f"only root may submit for another user; leave --user out, and it runs as {user}")
    try:
        return wanted, pwd.getpwnam(wanted).pw_uid
    except (KeyError, ValueError):
        raise UsageError(f"--user {wanted!r:.40}: the daemon's machine has no such user") from None


def _cancel(jobs: MesosCluster, arguments: Mapping[str, Json], user: str, uid: int) -> Json:
    job = arguments.get("job")
    if not isinstance(job, str) or not job:
        raise UsageError("cancel: job is missing or is not a text")
    (found,) = jobs.status(job)
    if not _may(found, uid):
        raise NotYours(f"{job} is not yours; its owner and root may cancel it")
    return {"job": job, "cancelled": jobs.cancel(job, f"cancelled by {user}")}


def _may(found: Mapping[str, Any], uid: int) -> bool:
    return uid in (0, found["spec"]["uid"])


def _shown(found: dict[str, Any], uid: int) -> dict[str, Any]:
    """The same, without what is private if it is somebody else's."""
    if _may(found, uid):
        return found

    def public(table: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in table.items() if name not in PRIVATE}

    spec = public(found["spec"])
    return {**found, "spec": {**spec, "groups": [public(group) for group in spec["groups"]]}}
