"""What may stand beside a description of nodes: what `scontrol show partition`, `config` and `reservation` print.

None of these describes a machine. Given with one, they say what partitions demand, how jobs are ordered and backfilled,
and which nodes are kept for whom.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from asad.errors import MachineError
from asad.model import Ints, Machine
from asad.replay.described_nodes import NO_NODE, names_in, shown_names, split_names
from asad.replay.described_site import NO_RULES, numbers_of
from asad.replay.partition_rules import partition_rules
from asad.replay.passed_over import PassedOver
from asad.replay.readers import fields
from asad.replay.readers.accounting_log import BadValue, quoted
from asad.replay.scheduling_settings import backfill_rules, priority_rules
from asad.replay.site import Reservation, Site, site_of
from asad.replay.slurm_conf_partitions import Partition, sharing_notes, time_limits_s

PARTITIONS, CONFIG, RESERVATIONS = "partition", "config", "reservation"
BEGINNINGS = (
    (CONFIG, re.compile(r"\s*Configuration data as of ")),
    (
        PARTITIONS,
        re.compile(r"\s*PartitionName=[^\n\\]*\n[ \t]+Allow\w+=|\s*PartitionName=[^\n=]* AllowGroups="),
    ),
    (RESERVATIONS, re.compile(r"\s*ReservationName=|\s*No reservations in the system")),
)
"""How each text begins."""
HINT = "it may stand beside one, as another --machine"
UNSET = frozenset({"", "(null)", "n/a"})
REPEATS = frozenset({"HOURLY", "DAILY", "WEEKLY", "WEEKDAY", "WEEKEND"})
"""Flags of reservations of which scontrol shows the next time alone."""
FLOATS = "TIME_FLOAT"
_FIELD = re.compile(r"(?:^|\s)([A-Za-z_]+)=(\S*)")
_NEXT = re.compile(r"\s[A-Za-z_]+=")
_TEXT = re.compile(r"\sComment=")
_CORE_IDS = re.compile(r"\sNodeName=\S+\s+CoreIDs=")
_CPUS = re.compile(r"(?:^|,)cpu=(\d{1,9})(?:,|\Z)", re.ASCII)
_SETTING = re.compile(r"([A-Za-z_]\w*)\s*=(?:[ \t]+(.*\S))?\s*")


class Record(NamedTuple):
    """One partition or reservation."""

    place: str
    name: str
    """As it is: it may have blanks. Hostile text."""
    fields: dict[str, str]
    """By key in lower case."""
    has_core_ids: bool


@dataclass(slots=True)
class BesideNodes:
    """What was read of all such files."""

    partitions: list[Partition] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    """Of the cluster; keys in lower case, those that are not set left out."""
    place: str = ""
    """Of the settings."""
    reservations: list[Record] = field(default_factory=list)

    def take(self, kind: str, path: str, text: str) -> None:
        """Add a text of that kind. Raises MachineError where it has nothing of it."""
        if kind == CONFIG:
            read = config_settings(text)
            if not read:
                raise MachineError(f"{path}: no line is a setting; write `scontrol show config` again")
            self.settings.update(read)
            self.place = path
        elif kind == PARTITIONS:
            for record in _records(path, text, "PartitionName"):
                own = {**record.fields, "partitionname": record.name}
                self.partitions.append(Partition(record.place, record.name, own, own))
        else:
            self.reservations += _records(path, text, "ReservationName")


def kind_beside(head: str) -> str | None:
    """Which of these texts begins so; None if it is none."""
    return next((kind for kind, pattern in BEGINNINGS if pattern.match(head)), None)


def config_settings(text: str) -> dict[str, str]:
    """`scontrol show config` by key in lower case, without what is not set; the first of equal keys counts."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        match = _SETTING.fullmatch(line)
        if match and (value := match[2] or "").lower() not in UNSET:
            found.setdefault(match[1].lower(), value)
    return found


def _records(path: str, text: str, begins: str) -> Iterator[Record]:
    """Records begin with the name, at the beginning of a line, and end where another does. Raises MachineError."""
    mark = re.compile(rf"(?m)^[ \t]*(?={begins}=)")
    starts = [match.end() for match in mark.finditer(text)]
    line, counted = 1, 0
    for start, end in itertools.pairwise((*starts, len(text))):
        line += text.count("\n", counted, start)
        counted = start
        record = _TEXT.split(text[start:end], maxsplit=1)[0]
        after = _NEXT.search(record)
        name = " ".join(record[len(begins) + 1 : after.start() if after else None].split())
        if not name:
            raise MachineError(f"{path}:{line}: {begins} has no name; write the output of scontrol again")
        of_record: dict[str, str] = {}
        for key, value in _FIELD.findall(record, after.start() if after else len(record)):
            of_record.setdefault(key.lower(), value)
        yield Record(f"{path}:{line}", name, of_record, _CORE_IDS.search(record) is not None)


def completed(machine: Machine, beside: BesideNodes) -> Machine:
    """The machine with what stands beside its nodes. Raises MachineError for lists of nodes that are none."""
    site = site_of(machine) or _empty(machine)
    over, notes = PassedOver(), list(site.notes)
    number = {name: node for node, name in enumerate(machine.node_names)}
    more: list[str] = []
    if beside.partitions:
        rules = dict(site.partitions)
        missing: dict[str, None] = {}
        for partition in beside.partitions:
            names = _names(partition.place, partition.settings.get("nodes", ""))
            missing.update((name, None) for name in names or () if name not in number)
            rules[partition.name] = partition_rules(partition, numbers_of(names, number), over)
        if not site.partitions.keys() - {partition.name for partition in beside.partitions}:
            notes = [note for note in notes if note != NO_RULES]
        if missing:
            notes.append(
                f"{len(missing)} nodes of partitions are not on the machine, and are left out of them "
                f"({shown_names(list(missing))})"
            )
        site = replace(site, partitions=rules)
        limits_s = {**machine.time_limits_s, **time_limits_s(beside.partitions)}
        more = [note for note in sharing_notes(beside.partitions) if note not in machine.notes]
        machine = replace(machine, time_limits_s=limits_s)
    if beside.settings:
        site = replace(
            site,
            priority=priority_rules(beside.settings, beside.place, over),
            backfill=backfill_rules(beside.settings, beside.place, over),
        )
    if beside.reservations:
        kept = [_reservation(record, machine, number, over) for record in beside.reservations]
        site = replace(site, reservations=tuple(one for one in kept if one is not None))
    site = replace(site, notes=(*notes, *over.notes()))
    return replace(machine, site=site, notes=(*machine.notes, *more))


def in_times_of(machine: Machine, *, local_times: bool) -> Machine:
    """The same machine; with a note where the log that is replayed has times that are not local ones, and reservations
    may have local ones."""
    site = site_of(machine)
    if local_times or site is None or not site.reservations:
        return machine
    note = (
        "the times of the log have a zone or are epoch seconds, those of reservations without a zone count as UTC: "
        "where they are local times, reservations begin and end off by the zone"
    )
    return replace(machine, site=replace(site, notes=(*site.notes, note)))


def _empty(machine: Machine) -> Site:
    nodes = len(machine.cores)
    return Site(gres=({},) * nodes, features=(frozenset(),) * nodes, weight=np.ones(nodes))


def _names(place: str, text: str) -> list[str] | None:
    """The names of nodes that `Nodes=` has; None for ALL. Raises MachineError."""
    if text.strip().upper() == "ALL":
        return None
    parts = [] if text.strip().lower() in NO_NODE else split_names(text)
    return [one for part in parts for one in names_in(place, part)]


def _reservation(
    record: Record,
    machine: Machine,
    number: Mapping[str, int],
    over: PassedOver,
) -> Reservation | None:
    """A reservation; None, with a note, for one without a time. Raises MachineError."""
    of = f"{record.place}: reservation {quoted(record.name)}"
    start_s, end_s = (_time_s(record, key, of) for key in ("starttime", "endtime"))
    if math.isnan(start_s) or not start_s < end_s:
        over.say("times", f"{of} has no start before an end: it is left out")
        return None
    names = _names(record.place, record.fields.get("nodes", ""))
    if missing := [name for name in names or () if name not in number]:
        over.say(
            "nodes",
            f"{of}: {len(missing)} of its nodes are not on the machine, and are left out ({shown_names(missing)})",
        )
    nodes = numbers_of(names, number)
    flags = tuple(word.upper() for word in _list(record.fields.get("flags", "")))
    if REPEATS.intersection(flags):
        over.say(
            "repeats",
            f"{of} comes again ({quoted(','.join(flags))}): the time that is shown is all that is known",
        )
    if FLOATS in flags:
        over.say("floats", f"{of} begins later and later (TIME_FLOAT): it is taken to begin when it is shown")
    return Reservation(
        name=record.name,
        start_s=start_s,
        end_s=end_s,
        nodes=nodes,
        cores=_cores(record, machine, nodes, bool(missing), of, over),
        flags=flags,
        users=tuple(_list(record.fields.get("users", ""))),
        accounts=tuple(_list(record.fields.get("accounts", ""))),
    )


def _time_s(record: Record, key: str, of: str) -> float:
    """A time of a reservation as readers of logs take it; NaN if it is not set, inf for one that never comes.

    Raises MachineError.
    """
    text = record.fields.get(key, "")
    if text.lower() in ("unlimited", "infinite"):
        return math.inf
    try:
        return fields.time(text)
    except BadValue as bad:
        raise MachineError(f"{of}: {key}: {bad.problem}; {bad.remedy}") from bad


def _cores(
    record: Record, machine: Machine, nodes: Ints, some_missing: bool, of: str, over: PassedOver
) -> int | None:
    """The cores that a reservation keeps of its nodes; None if it is all of them, or not known."""
    found = _CPUS.search(record.fields.get("tres", ""))
    counted = record.fields.get("corecnt", "")
    if found:
        cores = int(found[1])
    elif record.has_core_ids and re.fullmatch(r"\d{1,9}", counted, re.ASCII):
        cores = int(counted)
    else:
        return None
    if cores >= int(machine.cores[nodes].sum()):
        return None
    if some_missing:
        over.say("cores", f"{of}: it is taken to keep the nodes that are there wholly")
        return None
    return cores


def _list(text: str) -> Sequence[str]:
    """The words of a list with commas; none if it is not set."""
    return [] if text.strip().lower() in UNSET else [one for one in text.split(",") if one]
