"""What Prometheus scrapes: one reading a cycle, kept, so that a scrape costs the cluster nothing.

The names stand in `METRICS` and in docs/reference/metrics.md; a test holds the two to each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import start_wsgi_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from asad.config import split_address
from asad.errors import AsadError

log = logging.getLogger(__name__)


class Described(NamedTuple):
    """A metric's kind, help and labels."""

    kind: Literal["gauge", "counter"]
    about: str
    labels: tuple[str, ...] = ()


METRICS: dict[str, Described] = {
    "asad_info": Described(
        "gauge", "Version, mode and policy of the daemon; always 1.", ("version", "mode", "policy", "cluster")
    ),
    "asad_paused": Described("gauge", "Whether an operator has paused lending."),
    "asad_cycles_total": Described("counter", "Cycles that were completed."),
    "asad_cycles_failed_total": Described(
        "counter", "Cycles that failed: the cluster did not answer, or a fault."
    ),
    "asad_cycles_skipped_total": Described("counter", "Cycles that were due while an earlier one still ran."),
    "asad_cycle_duration_seconds": Described("gauge", "Wall time of the last completed cycle."),
    "asad_last_cycle_timestamp_seconds": Described(
        "gauge", "When the last completed cycle began (UTC epoch)."
    ),
    "asad_nodes": Described("gauge", "Nodes of the cluster."),
    "asad_cores": Described("gauge", "Cores of the cluster."),
    "asad_cores_allocated": Described("gauge", "Cores that batch jobs hold."),
    "asad_cores_shared": Described("gauge", "Cores on which a guest runs."),
    "asad_jobs": Described("gauge", "Jobs by state: waiting, running, guest, offered.", ("state",)),
    "asad_waiting_jobs": Described(
        "gauge",
        "Jobs that wait, by the cluster's own reason: limit, no room, order, not eligible, other. Not shown where the "
        "cluster gives no reasons.",
        ("reason",),
    ),
    "asad_hosts_under_pressure": Described("gauge", "Hosts of guests that wait for CPU more than allowed."),
    "asad_decisions_total": Described(
        "counter",
        "Decisions by kind and outcome: done, advised, refused, vetoed.",
        ("kind", "outcome"),
    ),
    "asad_vetoes_total": Described(
        "counter", "Decisions that the guard held back, by property.", ("property",)
    ),
    "asad_guests_total": Described("counter", "Guests that have started."),
    "asad_lent_core_seconds_total": Described(
        "counter", "Core-seconds that ended guests got from their hosts."
    ),
    "asad_extended_seconds_total": Described("counter", "Seconds by which time limits were extended."),
    "asad_saved_wait_seconds_total": Described(
        "counter", "Seconds by which guests started before the start that was estimated for them."
    ),
    "asad_jobs_ended_total": Described(
        "counter",
        "Hosts and guests that are over, by how they ended: in_time; late, more than 60 s and 5 % of its "
        "response after the end that it would have had alone; killed at a time limit of which lending took "
        "more than it was extended by; unknown. On Slurm a host would have started alone when it did, a "
        "guest when Slurm foresaw at the offer, and both would have run faster by what lending took, as far "
        "as that was measured. Jobs that shared nothing are not counted, though lending can move them in "
        "the queue.",
        ("role", "end"),
    ),
    "asad_forecast_starts_total": Described(
        "counter",
        "Jobs that waited, were neither offered a place nor held back by asad, and have started, whose start the "
        "cluster had estimated.",
    ),
    "asad_forecast_wait_seconds_total": Described(
        "counter",
        "Their waits from when that was first seen: forecast, as it was estimated then; recorded, as it came.",
        ("wait",),
    ),
    "asad_deferrable_missed_total": Described(
        "counter", "Deferrable jobs that still waited when their latest start had come, whatever kept them."
    ),
    "asad_actors_connected": Described("gauge", "Node actors that report."),
    "asad_actors_silent": Described("gauge", "Nodes whose actor does not answer."),
    "asad_actors_refused_total": Described("counter", "Connections refused for want of proof who they are."),
    "asad_store_away": Described("gauge", "Whether the state store cannot be written."),
    "asad_store_rows_dropped_total": Described(
        "counter", "Rows lost because the state store was away too long."
    ),
}

Reading = Mapping[str, float | Mapping[tuple[str, ...], float]]
"""Name of a metric → its value, or its value by labels. A metric that is not there is not shown."""


class Readings(Collector):
    """The last reading, as Prometheus wants it."""

    def __init__(self) -> None:
        self._reading: Reading = {}

    def set(self, reading: Reading) -> None:
        """Take the place of the last reading. Raises KeyError for a metric that `METRICS` does not describe."""
        unknown = reading.keys() - METRICS.keys()
        if unknown:
            raise KeyError(f"not described: {sorted(unknown)}")
        self._reading = reading

    def collect(self) -> Iterable[Metric]:
        """Families in the order of `METRICS`."""
        reading = self._reading  # a scrape sees one reading, whatever the daemon does meanwhile
        for name, described in METRICS.items():
            if name not in reading:
                continue
            value = reading[name]
            kind = CounterMetricFamily if described.kind == "counter" else GaugeMetricFamily
            family = kind(name, described.about, labels=described.labels)
            rows = value if isinstance(value, Mapping) else {(): value}
            for labels, number in sorted(rows.items()):
                family.add_metric(list(labels), number)
            yield family

    def text(self) -> str:
        """The text that a scrape gets."""
        return generate_latest(_registry(self)).decode("utf-8")


REQUEST_S = 10.0
"""A client that says or takes nothing for so long is let go: each has a thread."""


class Endpoint:
    """The HTTP server that is scraped, in threads of its own."""

    def __init__(self, listen: str, readings: Readings, *, request_s: float = REQUEST_S) -> None:
        """Listen at `listen` (`host:port`; port 0: any). Raises AsadError if that cannot be had."""
        host, port = split_address(listen)
        self._server: WSGIServer
        self._thread: threading.Thread
        try:
            self._server, self._thread = start_wsgi_server(port, host, _registry(readings))
        except OSError as error:
            raise AsadError(
                f"[metrics] listen: {listen} cannot be had: {error.strerror or error}; "
                "name another address, or none with an empty text"
            ) from None
        server: Any = self._server
        server.RequestHandlerClass = type("Scrape", (server.RequestHandlerClass,), {"timeout": request_s})
        server.handle_error = _let_go
        self.port = int(self._server.server_port)

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)


def _let_go(request: object, address: object) -> None:
    """A client has gone, or was silent: nothing that the log need know, which anybody could fill so."""
    log.debug("a scrape from %s was broken off", address, exc_info=True)


def _registry(readings: Readings) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(readings)
    return registry
