"""What the live page asks of a daemon: one answer with all that it shows, made once a cycle however many look at it.

Whoever names the state that he knows (`as_of`) and asks before there is another one gets no more than that it is the
same, which costs the daemon nothing. What everybody may see of it is for `asad-web` to say, which knows who looks; the
socket shows `jobs` to everybody, and this is no more, but for statements of work, whose values are their owners'.
"""

from __future__ import annotations

import contextlib
import pwd
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from asad.api.control import Peer, Request, may_change
from asad.daemon.clusters import KeepsJobsPrivate
from asad.daemon.page_tables import job_columns, node_columns
from asad.errors import AsadError, UsageError
from asad.model import Json
from asad.share.drawn_experts import HasExperts
from asad.store.same_days import beside_replay
from asad.store.store import Store

if TYPE_CHECKING:
    from asad.daemon.daemon import Daemon


COMPARE_S = 600.0
"""So often is looked for a replay of the same days."""


class PageRequests:
    """Of one daemon."""

    def __init__(self, daemon: Daemon, table: Callable[[str, Callable[[], Json]], Json]) -> None:
        """`table` makes what is made once a cycle, in the main thread, or gives what was made."""
        self._daemon, self._table = daemon, table
        self._comparing, self._compare_s = threading.Lock(), 0.0
        self._compared: Json = None

    def answer(self, request: Request, peer: Peer, status: Callable[[], dict[str, Json]]) -> Json:
        """All parts, or `same` where the asker has them already. Raises AsadError."""
        daemon = self._daemon
        known = request.arguments.get("as_of")
        moment: dict[str, Json] = {
            "now_s": daemon.now_s,
            "doing": daemon.task_queue.doing(),
            "paused": daemon.cycle.paused,
        }
        if known == self._as_of():
            return {"as_of": known, "same": True, **moment}
        parts = cast("Mapping[str, Json]", self._table("page", self._parts))
        answer = {**parts, **moment, "status": status(), "replay": self._beside_replay()}
        if not self._trusts(peer):
            answer["statements"] = None
        return answer

    def _beside_replay(self) -> Json:
        """Gains beside those of a replay of the same days, from the store: looked for seldom, in the asker's thread."""
        now_s = time.monotonic()
        with self._comparing:
            if now_s >= self._compare_s:
                self._compare_s, self._compared = now_s + COMPARE_S, None
                run = self._daemon.writer.run_id
                with contextlib.suppress(AsadError):
                    if run is not None:
                        with Store.open(self._daemon.config.store_url, create=False) as store:
                            self._compared = beside_replay(store, run)
            return self._compared

    def _as_of(self) -> str:
        """Names what is reported now: another daemon counts its readings anew."""
        figures = self._daemon.figures
        return f"{figures.since_s:.3f}/{figures.number}"

    def _trusts(self, peer: Peer) -> bool:
        """May this peer see what is its owners' alone, to show it to them?"""
        config = self._daemon.config
        try:
            web = pwd.getpwnam(config.web.user).pw_uid if config.web.user else -1
        except KeyError:
            web = -1
        return peer.uid == web or may_change(peer, config.daemon.operators)

    def _parts(self) -> Json:
        """What there is to show, as of the last cycle. In the main thread."""
        daemon, cycle = self._daemon, self._daemon.cycle
        snapshot, share = cycle.snapshot, cycle.share
        actors, cluster = list(daemon.link.reports()), daemon.cluster
        parts: dict[str, Any] = {
            "as_of": self._as_of(),
            "private": self._private(),
            "operators": daemon.config.daemon.operators,
            "jobs": None,
            "nodes": None,
            "experts": None,
            "decisions": list(daemon.records.recent),
            "admission": _or_none(lambda: cycle.admit.admission.overview()),
            "deferral": _or_none(lambda: cycle.defer.deferral.overview()),
            "statements": _or_none(lambda: cycle.admit.statements.status(None)),
        }
        if snapshot is not None:
            parts["jobs"] = job_columns(snapshot, cluster.applications)
            parts["nodes"] = node_columns(snapshot, actors, daemon.nodes is not None, share.pool_cores())
            parts["experts"] = share.drawn_experts(snapshot) if isinstance(share, HasExperts) else None
        return parts

    def _private(self) -> bool:
        """Are others' jobs hidden from users, as the configuration or else the cluster says?"""
        wanted, cluster = self._daemon.config.web.private, self._daemon.cluster
        if wanted != "auto":
            return wanted == "yes"
        return isinstance(cluster, KeepsJobsPrivate) and cluster.hides_jobs()


def _or_none(make: Callable[[], Any]) -> Json:
    """What a stage reports; None if it is not configured."""
    try:
        return cast(Json, make())
    except UsageError:
        return None
