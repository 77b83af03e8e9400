"""Limits that a log shows as it goes on: known from a moment on, lifted at another, and kept to in replays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from recorded_logs import BEGIN_S, HEADER, line, log_of

from asad.cli.asactl import asactl
from asad.ineligible import Ineligible
from asad.model import Machine
from asad.replay.cpu_demand import assign
from asad.replay.limits.binding import LimitBinding
from asad.replay.limits.inferred_limits import InferredLimits
from asad.replay.machine import uniform
from asad.replay.replay_settings import Settings
from asad.replay.waits.why_waited import OCCASIONS
from asad.replay.workbench import Bench, prepare

RUN_S = 6 * 3600
"""Five of them are longer than the day for which a ceiling has to stand."""


def nodes(count: int, cores: int) -> Machine:
    machine = uniform(count, cores, np.nan, "given")
    return replace(machine, node_names=tuple(f"n{k}" for k in range(1, count + 1)))


def one_after_the_other(count: int) -> list[dict[str, Any]]:
    """Jobs of one user, all submitted at the beginning, of which one runs at a time although three cores are free."""
    return [
        {"id": k + 1, "submit": k, "start": k * RUN_S, "run": RUN_S, "nodes": "n1", "user": "ben"}
        for k in range(count)
    ]


def bench_of(path: Path, jobs: Sequence[dict[str, Any]], **more: Any) -> Bench:
    chosen = Settings(("slurm", "measured"), baseline="recorded", vary_demand=False, **more)
    recorded = log_of(path, jobs)
    code, names = recorded.jobs.fingerprints()
    return prepare(recorded, nodes(1, 4), chosen, assign(recorded.jobs, code, names, chosen.demand, 0), [])


def inferred(path: Path, jobs: Sequence[dict[str, Any]]) -> InferredLimits:
    found = bench_of(path, jobs).shown.inferred
    assert found is not None
    return found


def of_user(limits: InferredLimits, resource: str) -> list[tuple[float, float]]:
    """The ceilings of a user, from when on (seconds of the log)."""
    number = limits.table.resources.index(resource)
    return [
        (moment - BEGIN_S, ceiling)
        for moment, group, of, ceiling in limits.changes.tolist()
        if of == number and limits.table.groups[int(group)].owner.startswith("user")
    ]


def test_a_ceiling_is_known_after_five_occasions_and_not_before(tmp_path: Path) -> None:
    found = inferred(tmp_path / "log", one_after_the_other(20))
    # an occasion is over as each job ends
    known = OCCASIONS * RUN_S
    assert of_user(found, "cores") == of_user(found, "jobs") == [(known, 1.0)]
    assert of_user(found, "gres") == []
    assert len(inferred(tmp_path / "log", one_after_the_other(OCCASIONS))) == 0


def test_a_ceiling_is_known_no_sooner_than_it_has_stood_for_a_day(tmp_path: Path) -> None:
    short, hour = one_after_the_other(40), 3600
    for k, job in enumerate(short):
        job["start"], job["run"] = k * hour, hour
    assert of_user(inferred(tmp_path / "log", short), "cores") == [(24 * hour, 1.0)]
    assert len(inferred(tmp_path / "log", short[:23])) == 0


def test_slurms_own_reasons_confirm_a_ceiling_before_the_day_is_over(tmp_path: Path) -> None:
    short, hour = one_after_the_other(12), 3600
    for k, job in enumerate(short):
        job["start"], job["run"], job["reason"] = k * hour, hour, "QOSMaxCpuPerUserLimit" if k else ""
    # five have started for which that was the reason by the end of the sixth
    assert of_user(inferred(tmp_path / "log", short), "cores") == [(6 * hour, 1.0)]
    for job in short:
        job["reason"] = "AssocMaxWallDurationPerJobLimit"
    assert len(inferred(tmp_path / "log", short)) == 0


def test_a_higher_hold_lifts_it_and_occasions_count_anew(tmp_path: Path) -> None:
    jobs = one_after_the_other(20)
    jobs[10]["start"] -= RUN_S  # beside the one before it
    lifted = 9 * RUN_S
    again = lifted + OCCASIONS * RUN_S
    for job in jobs[11:]:
        job["start"] -= RUN_S
    more = [{**job, "id": 100 + k, "name": "more"} for k, job in enumerate(jobs[11:])]
    found = inferred(tmp_path / "log", jobs + more)  # two at a time from then on
    assert of_user(found, "cores") == [(OCCASIONS * RUN_S, 1.0), (lifted, np.inf), (again, 2.0)]


def test_a_job_that_wants_more_by_itself_lifts_it_as_it_is_submitted(tmp_path: Path) -> None:
    jobs = one_after_the_other(12)
    jobs.append({**jobs[-1], "id": 50, "submit": 8 * RUN_S + 7, "start": 30 * RUN_S, "cores": 3})
    found = inferred(tmp_path / "log", jobs)
    assert of_user(found, "cores")[:2] == [(OCCASIONS * RUN_S, 1.0), (8 * RUN_S + 7, np.inf)]
    assert of_user(found, "jobs") == [(OCCASIONS * RUN_S, 1.0)]  # it is one job like others


def test_who_fills_the_machine_has_none(tmp_path: Path) -> None:
    jobs = [{**job, "cores": 4} for job in one_after_the_other(20)]
    assert len(inferred(tmp_path / "log", jobs)) == 0


def test_it_binds_from_the_moment_on_at_which_it_is_known(tmp_path: Path) -> None:
    limits = inferred(tmp_path / "log", one_after_the_other(20))
    shown = np.zeros(20, np.int8)
    binding = LimitBinding(limits, shown)
    queue, running = np.array([8, 9], np.int32), np.array([7], np.int32)
    none, known = np.zeros(0, np.int32), BEGIN_S + OCCASIONS * RUN_S
    binding.mark(queue, running, none, known - 1.0)
    assert not shown.any() and not binding.refusal(8, running, none)
    binding.mark(queue, running, none, known)
    assert shown[queue].tolist() == [Ineligible.LIMIT] * 2
    assert "never more than 1 jobs at one time so far" in binding.refusal(8, running, none)
    binding.mark(queue, none, none, known + 1.0)
    assert not shown.any()
    assert np.flatnonzero(binding.kept).tolist() == [8, 9]
    # each cluster learns by itself
    LimitBinding(limits, shown).mark(queue, running, none, known - 1.0)
    assert not shown.any()


def replayed(tmp_path: Path, *more: str) -> dict[str, Any]:
    log = tmp_path / "log"
    log.write_text("\n".join((HEADER, *map(line, one_after_the_other(20)))) + "\n")
    words = ["replay", str(log), "--json", "--store", "none", "--policy", "slurm,measured"]
    more = more if "--repeat" in more else (*more, "--repeat", "1")
    result = CliRunner().invoke(asactl, [*words, "--nodes", "1", "--cores", "4", *more])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_replay_offers_nothing_against_it_unless_none_are_to_be_inferred(tmp_path: Path) -> None:
    bound, free = replayed(tmp_path), replayed(tmp_path, "--no-infer")
    figures, others = bound["policies"]["measured"], free["policies"]["measured"]
    assert bound["log"]["limits_inferred"] > 0 and "limits_inferred" not in free["log"]
    assert figures["kept_by_limits"] > 0 and others["kept_by_limits"] is None
    assert figures["guests"] < others["guests"]
    assert any("ceilings of users, accounts and QOS are inferred" in note for note in bound["log"]["notes"])
    assert (bound["settings"]["infer_limits"], free["settings"]["infer_limits"]) == (True, False)
    # what the log says of its waits goes by the same switch
    parts = [
        {row["reason"]: row["share"] for row in one["baseline"]["why_waited"]["reasons"]}
        for one in (bound, free)
    ]
    assert parts[0]["limit"] == pytest.approx(1.0) and parts[1]["limit"] == 0.0


def test_no_seed_changes_what_a_log_shows(tmp_path: Path) -> None:
    jobs = one_after_the_other(20)
    for k, job in enumerate(jobs):
        job["nodes"] = ("n1", "n2")[k % 2]
    found = []
    for seed in (0, 1, 2):
        chosen = Settings(("slurm", "measured"), baseline="recorded", vary_demand=False, seed=seed)
        recorded = log_of(tmp_path / "log", jobs)
        code, names = recorded.jobs.fingerprints()
        bench = prepare(
            recorded, nodes(2, 4), chosen, assign(recorded.jobs, code, names, chosen.demand, seed), []
        )
        assert bench.shown.inferred is not None
        found.append(bench.shown.inferred.changes.tolist())
    assert found[0] == found[1] == found[2] != []
    repeated = replayed(tmp_path, "--repeat", "2")
    assert repeated["policies"]["measured"]["kept_by_limits"] > 0
    assert repeated["log"]["limits_inferred"] == replayed(tmp_path)["log"]["limits_inferred"]
