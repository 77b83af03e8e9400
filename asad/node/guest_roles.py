"""Which jobs of a node are guests, and which are announced as guests before they come."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from asad.node.cgroups import Cgroups, JobGroup
from asad.node.kernel_files import journal_of, write_durably
from asad.port import Lease

PATIENCE_S = 60.0
"""So long an offer stays open where the daemon does not say for how long."""
UNCONFIRMED_S = 60.0
"""So much longer than an offer stays open its job counts as a guest although the daemon has not confirmed it since."""
MOST_ANNOUNCED_S = 86_400.0 + UNCONFIRMED_S
ANNOUNCED_JOBS = 10_000
PARTITION_LOOKS = 10
"""A job is so often asked in which partition it was started, if nothing answers."""


class GuestRoles:
    """Who is a guest on a node. `clock` never goes back (s); `partitions` are those of guests.

    What was announced outlives the actor in `folder`: a guest that starts while nobody looks is still held as one.
    """

    def __init__(
        self,
        cgroups: Cgroups,
        folder: Path,
        clock: Callable[[], float],
        partitions: Collection[str],
        is_idle: Callable[[JobGroup], bool],
    ) -> None:
        self.cgroups, self.clock, self.partitions, self.is_idle = cgroups, clock, partitions, is_idle
        self.file = folder / "guests.json"
        self.announced = self._load()
        """Jobs that the daemon has offered a place here → until when that makes guests of them, by `clock`."""
        self._patience_s = PATIENCE_S
        self._leased: dict[tuple[str, int], bool] = {}
        """The daemon's last answer for each job that was here then; it holds when its lease has run out."""
        self._partitions: dict[tuple[str, int], tuple[str, int]] = {}
        """What each job's environment says, and how often it was asked."""

    def is_guest(self, group: JobGroup) -> bool:
        """What the daemon says of a job that is here counts first. Else its environment can make it one by the
        partition that it names, but never make it none: that is the user's to write. Then what the daemon announced
        before it came, for a while (it may have started by itself since), and a predecessor's mark (the idle class
        itself)."""
        leased = self._leased.get((group.job_id, group.inode))
        if leased is not None:
            return leased
        return self._names_guest_partition(group) or group.job_id in self.announced or self.is_idle(group)

    def _names_guest_partition(self, group: JobGroup) -> bool:
        """Does the environment of its first process say so?"""
        key = (group.job_id, group.inode)
        partition, looks = self._partitions.get(key, ("", 0))
        if not partition and looks < PARTITION_LOOKS:
            partition = self.cgroups.partition(group)
            self._partitions[key] = (partition, looks + 1)
        return partition in self.partitions

    def follow_leases(self, leases: Iterable[Lease], jobs: Mapping[str, JobGroup], now_s: float) -> None:
        """The daemon names all guests of this node, those that it has offered a place among them: an offer that it
        does not name any more is withdrawn."""
        roles = {lease.job_id: lease.guest for lease in leases}
        here = [group for group in jobs.values() if group.job_id in roles]
        self._leased = {(group.job_id, group.inode): roles[group.job_id] for group in here}
        guests = {job_id for job_id, guest in roles.items() if guest}
        for job_id in guests - jobs.keys():
            self.announced[job_id] = now_s + self._patience_s + UNCONFIRMED_S
        self._drop([job_id for job_id in self.announced if job_id not in guests or job_id in jobs], jobs)

    def announce(self, job_id: str, patience_s: object) -> None:
        """A job will come as a guest, if its offer is taken within `patience_s`. Raises OSError where that cannot be
        written down."""
        # an older daemon does not say for how long
        if isinstance(patience_s, int | float) and 0 <= patience_s <= MOST_ANNOUNCED_S - UNCONFIRMED_S:
            self._patience_s = float(patience_s)
        self.announced[job_id] = self.clock() + self._patience_s + UNCONFIRMED_S
        while len(self.announced) > ANNOUNCED_JOBS:
            del self.announced[next(iter(self.announced))]
        self._save()

    def follow(self, ended: Collection[str], jobs: Mapping[str, JobGroup], now_s: float) -> None:
        """A job that has ended here may run again, as an ordinary one, and no offer stays open for ever."""
        if ended:
            here = {(group.job_id, group.inode) for group in jobs.values()}
            self._partitions = {key: found for key, found in self._partitions.items() if key in here}
        over = [job_id for job_id, until_s in self.announced.items() if job_id in ended or until_s < now_s]
        self._drop(over, jobs)

    def _drop(self, gone: list[str], jobs: Mapping[str, JobGroup]) -> None:
        """These are no guests any more by having been announced: if they are here, they have started by themselves."""
        for job_id in gone:
            del self.announced[job_id]
            if (group := jobs.get(job_id)) is not None:
                self._leased.setdefault((job_id, group.inode), self._names_guest_partition(group))
        if gone:
            with contextlib.suppress(OSError):
                self._save()

    def _load(self) -> dict[str, float]:
        # what was left then is left now: neither clock means anything across a restart
        left = journal_of(
            self.file,
            lambda plain: {str(job_id): float(left_s) for job_id, left_s in plain["announced"].items()},
            dict[str, float](),
            "; guests are known by their partition",
        )
        now_s, default_s = self.clock(), PATIENCE_S + UNCONFIRMED_S
        return {
            job_id: now_s + (left_s if 0 <= left_s <= MOST_ANNOUNCED_S else default_s)
            for job_id, left_s in left.items()
        }

    def _save(self) -> None:
        now_s = self.clock()
        left = {job_id: round(until_s - now_s, 3) for job_id, until_s in self.announced.items()}
        write_durably(self.file, json.dumps({"announced": left}))
