"""Dashboard and rules in profiles/: what they name exists, and a real Prometheus fires and resolves."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from grafana_models import unknown_to_grafana

from asad.daemon.gains import Gains
from asad.metrics import METRICS, Endpoint, Reading, Readings

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "profiles/prometheus/asad.rules.yml"
DASHBOARD = ROOT / "profiles/grafana/asad.json"
PAGE = ROOT / "docs/how-to/monitor.md"
OF_PROMETHEUS = {"job", "instance"}
"""Labels that every scrape adds."""


def written_rules() -> dict[str, str]:
    """Name of a rule → its expression."""
    found = re.findall(r"- (?:alert|record): (\S+)\n +expr: (?:>-\n)?(.+?)\n +(?=for:|labels:|- |#|$|\n)",
                       RULES.read_text(encoding="utf-8"), re.S)  # fmt: skip
    return {name: " ".join(expression.split()) for name, expression in found}


def board() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return parsed


def panels() -> dict[str, list[str]]:
    """Title of a panel → its expressions."""
    return {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in board()["panels"]
        if panel["type"] != "row"
    }


def legends() -> set[str]:
    text = DASHBOARD.read_text(encoding="utf-8") + RULES.read_text(encoding="utf-8")
    return set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))


EXPRESSIONS = [*written_rules().values(), *(one for several in panels().values() for one in several)]


def strangers(expression: str) -> list[str]:
    """Metrics, and labels beside them, that neither the daemon nor a recording rule has."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    wrong = [
        name
        for name in re.findall(r"\basad[_:][\w:]+", bare)
        if name not in METRICS and name not in written_rules()
    ]
    for name, selector in re.findall(r"\b(asad_\w+)\{([^}]*)\}", bare):
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        wrong += sorted(used - OF_PROMETHEUS - set(METRICS[name].labels) if name in METRICS else used)
    declared = {label for name in METRICS if name in bare for label in METRICS[name].labels} | OF_PROMETHEUS
    for grouped in re.findall(r"\b(?:by|without|on|ignoring) *\(([^)]*)\)", bare):
        wrong += sorted(set(re.findall(r"\w+", grouped)) - declared)
    return wrong


def test_every_rule_is_read() -> None:
    text = RULES.read_text(encoding="utf-8")
    assert [*written_rules()] == re.findall(r"(?:alert|record): (\S+)", text)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_metric_and_label_exists(expression: str) -> None:
    assert strangers(expression) == []


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("rate(asad_surprise_total[5m])", ["asad_surprise_total"]),
        ('asad_jobs{status="guest"}', ["status"]),
        ("sum by (kind) (asad_vetoes_total)", ["kind"]),
        ("asad:surprise:ratio", ["asad:surprise:ratio"]),
    ],
)
def test_what_does_not_exist_is_found(expression: str, wrong: list[str]) -> None:
    assert strangers(expression) == wrong


def test_what_legends_and_sentences_show_exists() -> None:
    assert legends() <= OF_PROMETHEUS | {label for item in METRICS.values() for label in item.labels}


def test_every_metric_is_on_the_dashboard_or_in_a_rule_that_is() -> None:
    shown = " ".join(EXPRESSIONS)
    assert [name for name in METRICS if not re.search(rf"\b{name}\b", shown)] == []


def test_the_dashboard_can_be_imported() -> None:
    """Its parts have numbers and places of their own, and name no datasource but the variable's."""
    parsed = board()
    ids = [panel["id"] for panel in parsed["panels"]]
    assert len(ids) == len(set(ids))
    assert [one["type"] for one in parsed["templating"]["list"]] == ["datasource", "query"]
    sources = re.findall(r'"uid": "([^"]+)"', DASHBOARD.read_text(encoding="utf-8"))
    assert set(sources) == {"${datasource}", parsed["uid"]}
    places = Counter(
        (x, y)
        for panel in parsed["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    )
    assert max(places.values()) == 1 and all(0 <= x < 24 for x, _ in places)
    assert all(panel["description"] for panel in parsed["panels"] if panel["type"] != "row")


def test_grafana_knows_all_of_the_dashboard() -> None:
    assert unknown_to_grafana(board()) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"unit": "percentunit"', '"unit": "fraction"'),
        ('"type": "stat"', '"type": "number"'),
        ('"mode": "thresholds"', '"mode": "treshold"'),
        ('"legendFormat"', '"legend"'),
        ('"includeAll"', '"all"'),
        ('"type": "prometheus"', '"type": "prometeus"'),
        ('"format": "table"', '"format": "tabel"'),
        ('"fieldConfig"', '"fields"'),
    ],
)
def test_what_grafana_does_not_know_is_found(before: str, after: str) -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    assert before in text
    assert unknown_to_grafana(json.loads(text.replace(before, after))) != []


def test_the_page_lists_every_alert_with_its_severity() -> None:
    listed = re.findall(r"^\| `(Asad\w+)` \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    text = RULES.read_text(encoding="utf-8")
    assert listed == re.findall(r"- alert: (\w+)\n.*?severity: (\w+)\}", text, re.S)


@pytest.mark.parametrize(
    "command", [("check", "rules", RULES), ("test", "rules", ROOT / "tests/unit/asad.rules.test.yml")]
)
def test_promtool_accepts_the_rules(command: tuple[str | Path, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (apt-get install prometheus)")
    done = subprocess.run([promtool, *command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


GUEST = ("co-allocate", "done")
WELL: dict[str, float | Mapping[tuple[str, ...], float]] = {
    **{name: 0.0 for name, item in METRICS.items() if not item.labels},
    "asad_info": {("1", "enforce", "asax", "c"): 1.0},
    "asad_cores": 8.0,
    "asad_nodes": 4.0,
    "asad_jobs": {("guest",): 1.0},
    "asad_waiting_jobs": {("limit",): 1.0},
    "asad_forecast_wait_seconds_total": {("forecast",): 60.0, ("recorded",): 60.0},
    "asad_vetoes_total": {("pool",): 0.0},
}
ENDED = {ended: float(count) for ended, count in Gains().ended.items()}
"""As a daemon reports it that has just begun."""
ILL = {
    "asad_paused": 1.0,
    "asad_hosts_under_pressure": 2.0,
    "asad_actors_silent": 3.0,
    "asad_store_away": 1.0,
}
ILL_A_STEP = ("asad_cycles_failed_total", "asad_cycles_skipped_total", "asad_actors_refused_total",
              "asad_store_rows_dropped_total", "asad_deferrable_missed_total")  # fmt: skip
"""Counters that go up while it is ill; `asad_cycles_total` does while it is well."""


class Patient:
    """What a daemon would report that is well or ill, in steps."""

    def __init__(self) -> None:
        self.readings = Readings()
        self.counts: Counter[str] = Counter()

    def step(self, ill: bool) -> None:
        for name in ILL_A_STEP if ill else ("asad_cycles_total",):
            self.counts[name] += 10
        self.counts["refused" if ill else "done"] += 10
        decided = {
            GUEST: float(self.counts["done"]),
            **{(kind, outcome): float(self.counts["refused"] if outcome == "refused" else 0)
               for kind, outcome in [("co-allocate", "refused"), ("withdraw", "done")]},
        }  # fmt: skip
        counted = {name: float(self.counts[name]) for name in (*ILL_A_STEP, "asad_cycles_total")}
        ended = ENDED | {("host", "in_time"): counted["asad_cycles_total"],
                         ("guest", "killed"): counted["asad_deferrable_missed_total"]}  # fmt: skip
        several = {"asad_decisions_total": decided, "asad_jobs_ended_total": ended}
        reading = WELL | (ILL if ill else {}) | counted | several
        self.readings.set(cast(Reading, reading))


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[Patient, Endpoint, Callable[[str], Any]]]:
    """A real Prometheus that scrapes a patient by the shipped rules, whose spans of time are seconds here."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus (apt-get install prometheus)")
    hasty = re.sub(r"\[\d+[mh]\]", "[4s]", re.sub(r"for: \d+[mhd]", "for: 1s", RULES.read_text()))
    (tmp_path / "rules.yml").write_text(hasty)
    patient = Patient()
    patient.step(ill=False)
    endpoint = Endpoint("127.0.0.1:0", patient.readings)
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms}\n"
        "rule_files: [rules.yml]\n"
        "scrape_configs: [{job_name: asad, static_configs: "
        f"[{{targets: ['127.0.0.1:{endpoint.port}']}}]}}]\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"http://{address}/api/v1/{path}", timeout=60) as answer:
            return json.load(answer)["data"]

    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(
            [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
             f"--web.listen-address={address}"], stdout=log, stderr=log, env={"GOMAXPROCS": "1"},
        )  # fmt: skip
    try:
        yield patient, endpoint, get
    finally:
        running.terminate()
        running.wait(60)
        endpoint.close()


def until(wanted: Callable[[], bool], step: Callable[[], None], most_s: float = 120.0) -> None:
    """Step four times a second until it is so."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        step()
        try:
            if wanted():
                return
        except (urllib.error.URLError, ConnectionError):
            pass  # it is starting
        time.sleep(0.25)
    raise AssertionError("not within the time")


@pytest.mark.slow
def test_a_real_prometheus_fires_every_alert_and_resolves_it(
    prometheus: tuple[Patient, Endpoint, Callable[[str], Any]],
) -> None:
    patient, endpoint, get = prometheus
    alerts = {name for name in written_rules() if ":" not in name}

    def firing() -> set[str]:
        return {one["labels"]["alertname"] for one in get("alerts")["alerts"] if one["state"] == "firing"}

    def empty() -> list[str]:
        """Queries of the dashboard that have no answer."""
        without = []
        for expression in (one for several in panels().values() for one in several):
            query = re.sub(r"\$__(?:rate_interval|range)", "4s", expression.replace("$instance", ".+"))
            if not get("query?" + urllib.parse.urlencode({"query": query}))["result"]:
                without.append(expression)
        return without

    def rules() -> list[dict[str, Any]]:
        return [rule for group in get("rules")["groups"] for rule in group["rules"]]

    until(lambda: bool(firing() == set() and not empty()), lambda: patient.step(ill=False))
    until(lambda: firing() == alerts - {"AsadDown"}, lambda: patient.step(ill=True))
    assert [rule["name"] for rule in rules() if rule["health"] != "ok"] == []
    fired = {one["labels"]["alertname"]: one for one in get("alerts")["alerts"]}
    for one in fired.values():
        assert set(one["annotations"]) == {"summary", "description"}
        assert not re.search(r"\{\{|error|%!", one["annotations"]["summary"]), one
    assert fired["AsadActorsSilent"]["annotations"]["summary"] == "The actors of 3 nodes are silent."
    until(lambda: firing() == set(), lambda: patient.step(ill=False))
    endpoint.close()
    until(lambda: firing() == {"AsadDown"}, lambda: None)
    again = Endpoint(f"127.0.0.1:{endpoint.port}", patient.readings)
    try:
        until(lambda: firing() == set(), lambda: patient.step(ill=False))
    finally:
        again.close()
