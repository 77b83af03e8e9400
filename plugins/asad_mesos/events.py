"""What comes into the state machine: events of the master, requests of users and of policies, and that time passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from asad_mesos.agent_offers import Offer, read_offer
from asad_mesos.job_spec import Spec
from asad_mesos.statuses import read_status


class Subscribed(NamedTuple):
    """A master has taken us, perhaps again. Every offer of before is void."""

    framework_id: str
    heartbeat_s: float = 0.0
    """How often it is heard of; 0: it has not said."""
    version: str = ""


class Disconnected(NamedTuple):
    """The connection is gone, or was given up; with a message if the master gave one."""

    message: str = ""


class Offered(NamedTuple):
    """New offers."""

    offers: Sequence[Offer]


class Rescinded(NamedTuple):
    """An offer is not valid any more."""

    offer_id: str


class Updated(NamedTuple):
    """A status update, or an answer to `RECONCILE`, as the master writes it."""

    status: Mapping[str, Any]


class AgentLost(NamedTuple):
    """The master has removed an agent."""

    agent_id: str


class Removed(NamedTuple):
    """The master says that our framework has been removed: Mesos kills its tasks."""

    message: str


class Submitted(NamedTuple):
    """A new job."""

    spec: Spec


class Cancelled(NamedTuple):
    """A job is to end."""

    job: str
    why: str


class Scaled(NamedTuple):
    """So many tasks of each named group of an elastic job are to run at one time; surplus ones are killed."""

    job: str
    tasks: Mapping[str, int]


class Held(NamedTuple):
    """A queued job is not placed before `until_s`."""

    job: str
    until_s: float


class Prioritised(NamedTuple):
    """Jobs of higher priority are placed before others."""

    job: str
    priority: float


class Extended(NamedTuple):
    """A running job may run longer, or of an elastic one the task of this unit."""

    job: str
    by_s: float
    unit: str = ""


class Beside(NamedTuple):
    """Start a queued job on these agents, beside a running one, if what they offer now lets it."""

    job: str
    unit: str
    host: str
    agents: Sequence[str]
    demand: float = math.nan
    """CPU that a guest which draws from pools is expected to use, as a fraction of its cores; NaN for a pair's."""


class TornDown(NamedTuple):
    """The framework is to end with all its tasks: an operator's explicit word."""

    why: str


class Ticked(NamedTuple):
    """Time has passed."""

    behind: bool = False
    """Many calls still wait for the master: what has not reached it, it cannot answer for."""


Event = (
    Subscribed
    | Disconnected
    | Offered
    | Rescinded
    | Updated
    | AgentLost
    | Removed
    | Submitted
    | Cancelled
    | Scaled
    | Held
    | Prioritised
    | Extended
    | Beside
    | TornDown
    | Ticked
)


def read_event(plain: Any) -> Event | None:
    """An event as the master writes it; None for one that nothing follows from.

    Raises LookupError, TypeError, ValueError, AttributeError, ArithmeticError or RecursionError for nonsense.
    """
    kind = plain["type"]
    body = plain.get(str(kind).lower(), {})
    match kind:
        case "SUBSCRIBED":
            version = str(body.get("master_info", {}).get("version", ""))
            return Subscribed(
                str(body["framework_id"]["value"]),
                float(body.get("heartbeat_interval_seconds", 0.0)),
                "".join(c for c in version if c.isprintable())[:40],
            )
        case "OFFERS":
            return Offered([read_offer(offer) for offer in body.get("offers", ())])
        case "UPDATE":
            return Updated(read_status(body["status"]))
        case "RESCIND":
            return Rescinded(str(body["offer_id"]["value"]))
        case "FAILURE" if "executor_id" not in body:
            return AgentLost(str(body["agent_id"]["value"]))
        case "ERROR":
            message = str(body.get("message", ""))
            return Removed(message) if "has been removed" in message else Disconnected(message)
    return None


def shown(event: Event) -> str:
    """An event in a word or two, for the story."""
    match event:
        case Offered():
            return f"Offered {len(event.offers)}"
        case Updated():
            task, state = event.status.get("task_id", {}).get("value", ""), event.status.get("state", "")
            return f"Updated {str(task)[:80]!r} {str(state)[:40]}"
        case Submitted():
            return f"Submitted {event.spec.tasks} tasks"
    return repr(event)[:200]
