"""Why jobs of a real Slurm wait, as a daemon that only observes reports it, and whether they start as was forecast."""

from __future__ import annotations

from typing import Any

from asad_under_test import PATIENCE_S, Asad, until

from asad.api.control import ask
from asad.store import start_forecasts, wait_hours
from asad.store.store import Store
from lab.slurm import RealSlurm

RUN_S = 75
"""Longer than the minute between two looks that are kept."""


def test_what_waits_is_reported_and_kept_and_starts_are_held_against_forecasts(slurm: RealSlurm) -> None:
    with Asad(slurm, {"daemon": {"interval_s": 1.0, "mode": "observe"}}) as asad:
        first = [
            slurm.submit(f"sleep {RUN_S}", "--time=2", f"--nodelist={node}") for node in slurm.node_names
        ]
        slurm.wait(*first, state="RUNNING")
        turn = slurm.submit("sleep 5", "--time=1")
        held = slurm.submit("true", "--time=1", "--hold")
        after = slurm.submit("true", "--time=1", f"--dependency=afterok:{held}")

        def waits() -> dict[str, Any]:
            return {row["reason"]: row for row in ask(asad.socket, "waits")["reasons"]}

        def shown() -> bool:
            found = waits()
            room = found["no room"]["jobs"] + found["order"]["jobs"]
            return bool(room == 1 and found["not eligible"]["jobs"] == 2)

        until(shown, lambda: str(waits()))
        assert waits()["not eligible"]["names"].keys() == {"Dependency", "JobHeldUser"}
        live = ask(asad.socket, "explain", job=held)["live"]
        assert live["wait_reason"] == "JobHeldUser" and live["guest_bar"]
        assert ask(asad.socket, "explain", job=after)["live"]["wait_reason"] == "Dependency"

        slurm.wait(turn, timeout_s=PATIENCE_S)
        until(lambda: asad.status()["forecasts"]["jobs"], lambda: str(asad.status()["forecasts"]))
        found = asad.status()["forecasts"]
        assert found["jobs"] == 1 and 0 < found["recorded_mean_s"] < PATIENCE_S
        assert found["forecast_mean_s"] > 0
        url = asad.store_url
    with Store.open(url, create=False) as store:
        forecast_s, recorded_s, is_first = start_forecasts.load(store)
        assert is_first.tolist() == [True] and recorded_s[0] == found["recorded_mean_s"]
        assert forecast_s[0] == found["forecast_mean_s"]
        kept = wait_hours.hours(store)["batch"]
    assert kept["not eligible"][0] > 0 and kept.keys() & {"no room", "order"}
