"""Agents and what they offer: amounts as whole thousandths, as Mesos itself counts them.

Agents keep their number while the framework lives, so that amounts are rows of arrays and a gang is fitted into ten
thousand offers at once. Of an offer only what anybody may use is taken: volumes, shared resources, those of resource
providers and reservations with labels are somebody's, and are left alone. Of what is revocable only CPUs are taken:
a task and its executor must not mix revocable memory with other memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from asad_mesos.job_spec import MEBIBYTE, Group

Amounts = NDArray[np.int64]
NAMES = ("cpus", "mem", "gpus", "disk")
"""Rows of `Amounts`: CPUs, MiB, devices, MiB, each in thousandths."""
CPUS, MEM, GPUS = range(3)
MOST = 2**53
FIRST_CAPACITY = 64


def thousandths(value: float) -> int:
    """A scalar of Mesos, which has three decimals."""
    return round(value * 1000)


def need(group: Group) -> Amounts:
    """What one task of a group takes."""
    mebibytes = (group.memory_bytes / MEBIBYTE, group.disk_bytes / MEBIBYTE)
    return np.array(
        [
            thousandths(group.cpus),
            math.ceil(mebibytes[0] * 1000),
            1000 * group.gpus,
            math.ceil(mebibytes[1] * 1000),
        ],
        dtype=np.int64,
    )


@dataclass(slots=True)
class Piece:
    """Part of an offer: an amount of one resource with the role, reservation and allocation it comes with."""

    name: int
    amount: int
    plain: dict[str, Any]
    """The resource as it was offered."""
    revocable: bool

    def of(self, amount: int) -> dict[str, Any]:
        """The same resource, with so much of it."""
        return {**self.plain, "scalar": {"value": amount / 1000}}


@dataclass(frozen=True, slots=True)
class Offer:
    """What one agent offers at one time."""

    offer_id: str
    agent_id: str
    host: str
    address: str
    """Host and port of the agent, by which two agents of one host differ."""
    attributes: Mapping[str, str]
    pieces: tuple[Piece, ...]
    unavailable: bool
    """Its agent is to be maintained."""


def read_offer(plain: Mapping[str, Any]) -> Offer:
    """An offer as the master writes it. Raises KeyError, TypeError or ValueError for what is none."""
    pieces = []
    for resource in plain.get("resources", ()):
        name = resource["name"]
        usable = name in NAMES and resource.get("type", "SCALAR") == "SCALAR" and "scalar" in resource
        if not usable or (not MARKS.isdisjoint(resource) and _taken(resource)):
            continue
        if "revocable" in resource and name != NAMES[CPUS]:
            continue
        amount = thousandths(float(resource["scalar"]["value"]))
        if 0 < amount < MOST and _can_be_sent(resource):
            pieces.append(Piece(NAMES.index(name), amount, resource, "revocable" in resource))
    address = plain.get("url", {}).get("address", {})
    host = str(plain["hostname"])
    return Offer(
        offer_id=str(plain["id"]["value"]),
        agent_id=str(plain["agent_id"]["value"]),
        host=host,
        address=f"{host}:{address['port']}" if "port" in address else host,
        attributes={
            str(attribute["name"]): str(attribute["text"]["value"])
            for attribute in plain.get("attributes", ())
            if "text" in attribute
        },
        pieces=tuple(pieces),
        unavailable="unavailability" in plain,
    )


MARKS = frozenset(("shared", "provider_id", "disk", "reservation", "reservations"))
"""A resource without any of these is anybody's."""


def _can_be_sent(resource: Mapping[str, Any]) -> bool:
    """Could it be sent as it came? What is nested deeper than any resource is let be."""
    try:
        orjson.dumps(resource)
    except TypeError:
        return False
    return True


def _taken(resource: Mapping[str, Any]) -> bool:
    """Does it hold data, or was it set aside with a mark?"""
    if "shared" in resource or "provider_id" in resource:
        return True
    disk = resource.get("disk", {})
    if "persistence" in disk or "volume" in disk or "source" in disk:
        return True
    kept = [*resource.get("reservations", ()), resource.get("reservation", {})]
    return any("labels" in reservation for reservation in kept)


class Agents:
    """All agents that have been seen, and the offers of them that we withhold."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}
        """Row by agent id."""
        self.ids: list[str] = []
        self.hosts: list[str] = []
        self.addresses: list[str] = []
        self.attributes: list[Mapping[str, str]] = []
        self.free: Amounts = np.zeros((len(NAMES), FIRST_CAPACITY), np.int64)
        """Withheld now, by resource and agent."""
        self.revocable: Amounts = np.zeros_like(self.free)
        """The same of revocable resources."""
        self.used: Amounts = np.zeros_like(self.free)
        """What our tasks hold there, of regular resources."""
        self.total: Amounts = np.zeros_like(self.free)
        """The most that was seen at one time lately, ours included; 0 for a lost agent."""
        self._recent: Amounts = np.zeros_like(self.free)
        self.offers: dict[str, tuple[Offer, float]] = {}
        """By id, oldest first: every offer withheld, and since when."""
        self.of_agent: list[list[str]] = []
        """By agent the ids of its offers."""
        self.version = 0
        """Rises when totals or attributes have changed."""
        self._names: tuple[tuple[int, int], list[str]] = ((-1, -1), [])

    def __len__(self) -> int:
        return len(self.ids)

    def know(self, agent_id: str, host: str = "", address: str = "") -> int:
        """The row of an agent, a new one if need be."""
        row = self.number.get(agent_id)
        if row is not None:
            if address and self.addresses[row] == self.hosts[row]:
                self.addresses[row] = address
                self.version += 1
        else:
            row = self.number[agent_id] = len(self.ids)
            self.ids.append(agent_id)
            self.hosts.append(host)
            self.addresses.append(address or host)
            self.attributes.append({})
            self.of_agent.append([])
            if row >= self.free.shape[1]:
                for name in ("free", "revocable", "used", "total", "_recent"):
                    old = getattr(self, name)
                    new = np.zeros((len(NAMES), 2 * old.shape[1]), np.int64)
                    new[:, : old.shape[1]] = old
                    setattr(self, name, new)
        return row

    def names(self) -> list[str]:
        """By row what no other agent that is there is called: its host, or where several are on that host its address,
        or with its id where the port is not known, or was another's before."""
        known = (self.version, len(self))
        if self._names[0] != known:
            count = len(self)
            here = (self.total[CPUS, :count] > 0) | (self.used[:, :count].max(axis=0) > 0)
            there = np.flatnonzero(here).tolist()
            hosts = Counter(self.hosts[row] for row in there)
            addresses = Counter(self.addresses[row] for row in there)
            names = []
            for row, mine in enumerate(here.astype(int).tolist()):
                host, address = self.hosts[row], self.addresses[row]
                if hosts[host] == mine:
                    names.append(host)
                elif address != host and addresses[address] == mine:
                    names.append(address)
                else:
                    names.append(f"{address}#{self.ids[row]}")
            self._names = (known, names)
        return self._names[1]

    def add(self, offer: Offer, now_s: float) -> None:
        """Withhold an offer."""
        if offer.offer_id in self.offers:
            return
        row = self.know(offer.agent_id, offer.host, offer.address)
        there = (self.hosts[row], self.addresses[row], self.attributes[row])
        if there != (offer.host, offer.address, offer.attributes):
            self.hosts[row], self.addresses[row] = offer.host, offer.address
            self.attributes[row] = offer.attributes
            self.version += 1
        self.offers[offer.offer_id] = (offer, now_s)
        self.of_agent[row].append(offer.offer_id)
        for piece in offer.pieces:
            (self.revocable if piece.revocable else self.free)[piece.name, row] += piece.amount
        self.see(row)

    def see(self, row: int) -> None:
        """The most that was there at one time may be more now."""
        seen = self.free[:, row] + self.used[:, row]
        np.maximum(self._recent[:, row], seen, out=self._recent[:, row])
        if (seen > self.total[:, row]).any():
            np.maximum(self.total[:, row], seen, out=self.total[:, row])
            self.version += 1

    def look_anew(self) -> None:
        """Forget what was seen before the last call of this: an offer of what a task has left may come before the news
        of its end, and others may have taken or brought something."""
        self.total, self._recent = self._recent, self.free + self.used
        np.maximum(self.total, self._recent, out=self.total)
        self.version += 1

    def remove(self, offer_id: str) -> bool:
        """It is not ours any more; was it?"""
        held = self.offers.pop(offer_id, None)
        if held is None:
            return False
        row = self.number[held[0].agent_id]
        self.of_agent[row].remove(offer_id)
        for piece in held[0].pieces:
            (self.revocable if piece.revocable else self.free)[piece.name, row] -= piece.amount
        return True

    def clear(self) -> None:
        """The connection is gone, and with it every offer."""
        self.offers.clear()
        for ids in self.of_agent:
            ids.clear()
        self.free[:] = 0
        self.revocable[:] = 0

    def consume(self, row: int) -> tuple[list[str], list[Piece]]:
        """Take all offers of an agent: their ids, and their pieces for `draw`."""
        ids = list(self.of_agent[row])
        pieces = [piece for offer_id in ids for piece in self.offers[offer_id][0].pieces]
        for offer_id in ids:
            self.remove(offer_id)
        return ids, pieces

    def lose(self, agent_id: str) -> None:
        """The agent is gone: nothing of it is counted on."""
        row = self.number.get(agent_id)
        if row is not None:
            self.total[:, row] = self._recent[:, row] = 0
            self.version += 1

    def with_attributes(self, wanted: Mapping[str, str]) -> NDArray[np.bool_]:
        """Which agents have all of these."""
        return np.fromiter(
            (all(found.get(key) == value for key, value in wanted.items()) for found in self.attributes),
            dtype=bool,
            count=len(self.ids),
        )


def draw(pieces: list[Piece], amounts: Iterable[int], revocable: bool) -> list[dict[str, Any]]:
    """Resources of these amounts out of the pieces, which become less.

    Raises ValueError if the pieces do not hold them: then the caller has miscounted.
    """
    drawn = []
    for name, wanted in enumerate(amounts):
        left = int(wanted)
        for piece in pieces:
            if left <= 0:
                break
            if piece.name == name and piece.amount > 0 and piece.revocable == revocable:
                part = min(left, piece.amount)
                piece.amount -= part
                left -= part
                drawn.append(piece.of(part))
        if left > 0:
            raise ValueError(f"{left / 1000:g} of {NAMES[name]} are missing")
    return drawn


def fit(
    free: Amounts,
    wanted: Amounts,
    most: int,
    once: int,
    charged: NDArray[np.bool_],
    may: NDArray[np.bool_] | None,
    each: int = MOST,
) -> NDArray[np.int64]:
    """First fit: how many tasks of `wanted` go to each agent, at most `most` in all. Takes them off `free` at once.

    `once` thousandths of MiB more are taken from an agent that is not in `charged` yet, whatever number goes there;
    `may` bars agents, and no agent gets more than `each`.
    """
    mem = free[MEM] - np.where(charged, 0, once) if once else free[MEM]
    counts = np.full(free.shape[1], min(each, most), np.int64)
    for name in range(len(NAMES)):
        if wanted[name] > 0:
            np.minimum(counts, (mem if name == MEM else free[name]) // wanted[name], out=counts)
    np.maximum(counts, 0, out=counts)
    if may is not None:
        counts[~may] = 0
    ends = np.cumsum(counts)
    last = int(np.searchsorted(ends, most))
    if last < len(counts):
        counts[last + 1 :] = 0
        counts[last] -= int(ends[last]) - most
    there = np.flatnonzero(counts)
    free[:, there] -= wanted[:, None] * counts[there]
    if once:
        fresh = there[~charged[there]]
        free[MEM, fresh] -= once
        charged[fresh] = True
    return counts
