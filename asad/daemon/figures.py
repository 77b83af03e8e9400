"""What `status` and the metrics report: read once a cycle by the main thread, reported from then on in any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from asad import __version__
from asad.api.node_server import NodeServer
from asad.config import Config
from asad.cycle import Cycle
from asad.daemon.clusters import LiveCluster
from asad.daemon.forecasts import Forecasts
from asad.daemon.gains import Gains
from asad.daemon.tally import Tally
from asad.daemon.waiting import now_by_reason
from asad.metrics import Reading, Readings
from asad.model import Json, Snapshot
from asad.port import NodeLink
from asad.status import cluster_counts, hosts_of, lending
from asad.store.writer import Writer

STATES = (("waiting", "waiting"), ("running", "running"), ("guest", "guests"), ("offered", "offered"))
"""Of jobs: as the metric is labelled, and as `cluster_counts` reports them."""


class Figures:
    """Of one daemon, since it started."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.completed = self.failed = 0
        """Cycles."""
        self.skipped = 0
        """Cycles that were due while an earlier one still ran."""
        self.number = 0
        """How often they were read: what was made of an earlier reading is out of date."""
        self.failing = 0
        """Cycles that failed since the last that was completed."""
        self.gains = Gains()
        self.forecasts = Forecasts()
        self.tally = Tally()
        self.readings = Readings()
        self.sentence = "no cycle yet"
        """The last cycle for an operator."""
        self._last_cycle: dict[str, Json] = {
            "number": 0,
            "time_s": None,
            "wall_ms": None,
            "sentence": self.sentence,
        }
        self._cluster: dict[str, Json] = {"sentence": "", "nodes": 0, "cores": 0}
        self._lending: list[Json] = []
        self.waits: list[dict[str, Json]] = []
        """Why jobs wait, as `asad.daemon.waiting.now_by_reason` has it."""
        self._vetoes: dict[str, Json] = {}
        self._funnel: list[Json] = []
        self._actors: dict[str, Json] = {"connected": 0, "silent": []}

    @property
    def cycles(self) -> int:
        """Those that are over, whether they were completed or not."""
        return self.completed + self.failed

    def count(self, completed: bool) -> None:
        """A cycle was completed, or failed."""
        self.completed += completed
        self.failed += not completed
        self.failing = 0 if completed else self.failing + 1

    def end_cycle(self, cycle: Cycle, wall_s: float, sentence: str) -> None:
        """A cycle is over, whether it was completed or not."""
        self.sentence = sentence
        self._last_cycle = {
            "number": cycle.number,
            "time_s": None if cycle.snapshot is None else cycle.snapshot.time_s,
            "wall_ms": round(1000 * wall_s, 1),
            "sentence": sentence,
        }

    def read(
        self, config: Config, cycle: Cycle, cluster: LiveCluster, link: NodeLink, writer: Writer
    ) -> None:
        """Report what is so now until the next time."""
        self.number += 1
        reports = link.reports()
        silent: list[str] = []
        reading: dict[str, float | Mapping[tuple[str, ...], float]] = {
            "asad_info": {(__version__, cycle.mode, cycle.share.name, config.daemon.cluster): 1.0},
            "asad_paused": float(cycle.paused),
            "asad_cycles_total": float(self.completed),
            "asad_cycles_failed_total": float(self.failed),
            "asad_cycles_skipped_total": float(self.skipped),
            "asad_decisions_total": {key: float(count) for key, count in self.tally.outcomes.items()},
            "asad_vetoes_total": {(name,): float(count) for name, count in self.tally.vetoes.items()},
            "asad_guests_total": float(self.gains.guests),
            "asad_lent_core_seconds_total": self.gains.lent_core_s,
            "asad_extended_seconds_total": self.gains.extended_s,
            "asad_saved_wait_seconds_total": self.gains.saved_wait_s,
            "asad_jobs_ended_total": {key: float(count) for key, count in self.gains.ended.items()},
            "asad_forecast_starts_total": float(self.forecasts.jobs),
            "asad_forecast_wait_seconds_total": {
                ("forecast",): self.forecasts.forecast_s,
                ("recorded",): self.forecasts.waited_s,
            },
            "asad_store_away": float(bool(writer.trouble)),
            "asad_store_rows_dropped_total": float(writer.dropped),
            "asad_actors_refused_total": float(link.refused) if isinstance(link, NodeServer) else 0.0,
        }
        if cycle.defer.holds:
            reading["asad_deferrable_missed_total"] = float(cycle.defer.deferral.deferrable.late)
        snapshot = cycle.snapshot
        if snapshot is not None:
            if isinstance(link, NodeServer):
                silent = [name for name in snapshot.machine.node_names if name not in reports]
            counts = cluster_counts(snapshot)
            reading |= _of_snapshot(snapshot, counts, config.guard.pressure)
            reading["asad_cycle_duration_seconds"] = cast(float, self._last_cycle["wall_ms"] or 0.0) / 1000
            self._cluster = {"sentence": cluster.sentence(), **counts}
            self._lending = lending(snapshot, cluster.applications)
            self.waits = now_by_reason(snapshot)
            if self.waits:
                reading["asad_waiting_jobs"] = {
                    (str(row["reason"]),): float(cast(int, row["jobs"])) for row in self.waits
                }
        reading["asad_actors_connected"] = float(len(reports))
        reading["asad_actors_silent"] = float(len(silent))
        self._actors = {"connected": len(reports), "silent": list(silent)}
        self._funnel = [
            {"reason": reason, "core_h": core_s / 3600.0} for reason, core_s in cycle.share.funnel()
        ]
        self._vetoes = dict(sorted(self.tally.vetoes.items()))
        self.readings.set(cast(Reading, reading))

    def forget_rows(self) -> None:
        """Another cluster object numbers jobs anew."""
        self.gains.forget_rows()
        self.forecasts.forget_rows()

    def of_run(self) -> dict[str, Json]:
        """What the store keeps of a run that ends."""
        return self.gains.to_json() | {"cycles": self.completed, "cycles_failed": self.failed}

    def to_json(self) -> dict[str, Json]:
        """For `status`."""
        return {
            "since_s": self.since_s,
            "cycle": self._last_cycle,
            "cycles": {
                "completed": self.completed,
                "failed": self.failed,
                "failing": self.failing,
                "skipped": self.skipped,
            },
            "cluster": self._cluster,
            "lending": self._lending,
            "waits": cast(Json, self.waits),
            "gains": self.gains.to_json(),
            "forecasts": self.forecasts.to_json(),
            "vetoes": self._vetoes,
            "funnel": self._funnel,
            "actors": self._actors,
        }


def _of_snapshot(
    snapshot: Snapshot, counts: Mapping[str, Json], pressure: float
) -> dict[str, float | Mapping[tuple[str, ...], float]]:
    """Metrics of what the last cycle saw; hosts are pressed above a `pressure` in [0, 1]."""
    figures = {name: float(cast(int, value)) for name, value in counts.items()}
    hosts = sorted({host for beside in hosts_of(snapshot).values() for host in beside})
    pressed = snapshot.jobs.pressure[hosts] > pressure
    return {
        "asad_nodes": figures["nodes"],
        "asad_cores": figures["cores"],
        "asad_cores_allocated": figures["allocated_cores"],
        "asad_cores_shared": figures["shared_cores"],
        "asad_jobs": {(state,): figures[name] for state, name in STATES},
        "asad_hosts_under_pressure": float(np.count_nonzero(pressed)),
        "asad_last_cycle_timestamp_seconds": snapshot.time_s,
    }
