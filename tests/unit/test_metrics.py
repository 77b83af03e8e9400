"""The metrics endpoint, as Prometheus and promtool see it."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from asad.errors import AsadError
from asad.metrics import METRICS, Endpoint, Reading, Readings

ROOT = Path(__file__).resolve().parents[2]


def everything() -> Reading:
    """A value for each metric there is."""
    return {
        name: {tuple(f'{label} "x"\n' for label in described.labels): 2.0} if described.labels else 3.5
        for name, described in METRICS.items()
    }


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
    return text


def test_a_scrape_shows_the_last_reading() -> None:
    readings = Readings()
    readings.set(
        {"asad_cores": 8.0, "asad_jobs": {("guest",): 2.0, ("waiting",): 1.0}, "asad_cycles_total": 3.0}
    )
    endpoint = Endpoint("127.0.0.1:0", readings)
    try:
        text = scrape(endpoint.port)
        assert "asad_cores 8.0\n" in text
        assert 'asad_jobs{state="guest"} 2.0\n' in text
        assert "asad_cycles_total 3.0\n" in text
        assert "# TYPE asad_cycles_total counter\n" in text
        assert "asad_nodes" not in text, "what was not read is not shown"
        readings.set({"asad_cores": 9.0})
        assert "asad_cores 9.0\n" in scrape(endpoint.port)
        assert readings.text() == scrape(endpoint.port)
    finally:
        endpoint.close()


def test_a_metric_that_is_not_described_is_refused() -> None:
    with pytest.raises(KeyError, match="asad_surprise"):
        Readings().set({"asad_surprise": 1.0})


@pytest.mark.slow
def test_who_connects_and_says_nothing_is_let_go_and_fills_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    endpoint = Endpoint("127.0.0.1:0", Readings(), request_s=0.2)
    try:
        with contextlib.ExitStack() as opened:
            address = ("127.0.0.1", endpoint.port)
            silent = [opened.enter_context(socket.create_connection(address, timeout=300)) for _ in range(20)]
            assert [connection.recv(1) for connection in silent] == [b""] * 20
    finally:
        endpoint.close()
    assert capfd.readouterr().err == ""


def test_an_address_that_is_taken_is_named() -> None:
    first = Endpoint("127.0.0.1:0", Readings())
    try:
        with pytest.raises(
            AsadError, match=r"\[metrics\] listen: 127\.0\.0\.1:\d+ cannot be had: Address already"
        ):
            Endpoint(f"127.0.0.1:{first.port}", Readings())
    finally:
        first.close()


def test_promtool_has_nothing_to_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (apt-get install prometheus)")
    readings = Readings()
    readings.set(everything())
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=readings.text(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_reference_lists_every_metric_and_no_other() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(asad_\w+)` \| (\w+) \|([^|]*)\|", page, re.M)
    documented = [(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows]
    assert documented == [(name, item.kind, item.labels) for name, item in METRICS.items()]
    assert set(re.findall(r"\basad_[a-z_]+[a-z]", page)) <= set(METRICS)
