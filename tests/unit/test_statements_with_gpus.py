"""Statements that name GPUs, licences or memory: matched, priced, charged, on a made-up cluster and by the daemon."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configured_policies import put_policy
from slotted_cluster import Job
from stated_cluster import EPOCH, OPTIONS, World, announced, job
from test_daemon import configuration, wait_for
from test_daemon_statements import Live, run, seen

from asad.admit.sow.mechanisms import mechanism_of
from asad.admit.sow.statements_policy import Statements
from asad.api.control import Refused
from asad.daemon import Daemon
from asad.decisions import Decline
from asad.errors import UsageError
from asad.model import HOUSE, Snapshot, Tres

pytestmark = pytest.mark.usefixtures("published_schemas")

NAMES = ("gres/gpu", "gres/gpu:a100", "gres/gpu:v100", "license/x")
HAS = {"gres/gpu": 4.0, "gres/gpu:a100": 2.0, "gres/gpu:v100": 2.0, "license/x": 0.0}
GIB = 2.0**30
NODE = 16.0 * GIB
"""Memory of the node of four cores."""
HALF = OPTIONS._replace(most_tres=0.5)


def with_gpus(
    cluster: Any, wants: Mapping[str, Mapping[str, float]], memory: Mapping[str, float] | None = None
) -> None:
    """The cluster has two GPUs of each type and three licences; jobs want what stands by their names."""
    plain = cluster.snapshot

    def snapshot() -> Snapshot:
        found = plain()
        rows = {one: row for row, one in enumerate(str(name) for name in found.jobs.job_id)}
        jobs = {
            rows[name]: np.array([units.get(one, 0.0) for one in NAMES])
            for name, units in wants.items()
            if name in rows
        }
        nodes = np.array([[HAS[one] for one in NAMES]])
        tres = Tres(NAMES, nodes, np.array([0.0, 0.0, 0.0, 3.0]), jobs, {})
        by_core = found.jobs.memory_bytes_per_core.copy()
        for name, amount in (memory or {}).items():
            by_core[rows[name]] = amount / found.jobs.cores[rows[name]]
        machine = replace(found.machine, memory_bytes=np.full(len(found.machine.cores), NODE))
        columns = {name: getattr(found.jobs, name) for name in type(found.jobs).__dataclass_fields__}
        kept = type(found.jobs)(**(columns | {"memory_bytes_per_core": by_core}))
        return replace(found, tres=tres, machine=machine, jobs=kept)

    cluster.snapshot = snapshot


def world_of(
    jobs: Sequence[Job],
    wants: Mapping[str, Mapping[str, float]],
    memory: Mapping[str, float] | None = None,
) -> World:
    world = World(jobs, options=HALF, make=partial(mechanism_of, "sow"))
    with_gpus(world.cluster, wants, memory)
    return world


def declined(world: World) -> list[str]:
    done = [decision for _, decision in world.cluster.done]
    return [decision.cause.reason for decision in done if isinstance(decision, Decline)]


A100 = {"gres/gpu": 1.0, "gres/gpu:a100": 1.0}


def test_a_job_with_gpus_runs_by_its_plan_and_pays_for_them() -> None:
    jobs = [job("7", at=1, cores=1, hint="sow=2"), job("8", at=1, cores=1, hint="sow=1")]
    world = world_of(jobs, {"7": A100 | {"license/x": 1.0}})
    (alone,) = world.submit(announced("", due=2))
    (more,) = world.submit(announced("", due=2, gres="gpu:a100", licences="x"))
    assert more["gres"] == "gpu:a100" and more["licenses"] == "x" and "gres" not in alone
    quote = partial(world.policy.quote, 1, world.cluster.now_s)
    cores, gpu = quote()["price"], quote({"gres": "gpu:a100", "licenses": "x"})["price"]
    assert gpu[8][1] > cores[8][1] > 0.0  # type: ignore[index, call-overload, operator]
    world.run(3)
    world.restart()
    assert world.policy.register.open[2].tres == {"gres/gpu": 1, "gres/gpu:a100": 1, "license/x": 1}
    assert [*world.memory["mechanism"]["state"]["tres"]] == ["gres/gpu", "gres/gpu:a100", "license/x"]  # type: ignore[index, call-overload]
    world.run(6)
    assert world.state_of(1) == world.state_of(2) == "completed" and not declined(world)
    paid = world.charged(2)
    assert paid[HOUSE] == -paid["ann"] == round(1e6 * float(more["expected_payment"]))  # type: ignore[arg-type]
    assert world.cluster.illegal == []


@pytest.mark.parametrize("hint", ["sow=1", ""])
@pytest.mark.parametrize(
    ("wants", "stated", "why"),
    [
        (
            {"gres/gpu": 2.0},
            {"gres": "gpu"},
            "it asks for 2 of gres/gpu, and statement 1 is of 1 of gres/gpu",
        ),
        (A100, {"gres": "gpu:1"}, "it asks for 1 of gres/gpu:a100, and statement 1 is of 1 of gres/gpu"),
        (A100, {"gres": "gpu:v100"}, "it asks for 1 of gres/gpu:a100, and statement 1"),
        (A100, {}, "it asks for 1 of gres/gpu, 1 of gres/gpu:a100, and statement 1 is of cores alone"),
        ({"license/x": 2.0}, {"licences": "x:1"}, "it asks for 2 of license/x, and statement 1 is of 1"),
        ({"gres/gpu": 1.0}, {"gres": "gpu:a100"}, None),
        ({}, {"gres": "gpu:2"}, None),
    ],
)
def test_who_asks_for_more_than_was_stated_does_not_ride_on_it(
    hint: str, wants: dict[str, float], stated: dict[str, str], why: str | None
) -> None:
    world = world_of([job("1", run=2, cores=4), job("7", at=1, hint=hint)], {"7": wants})
    world.submit(announced(due=3, **stated))
    world.run(10)
    reasons = declined(world)
    assert [str(why) in one for one in reasons] == ([True] if why else [])
    assert (world.rows[1]["job"] == "7") == (why is None)


def test_of_two_statements_of_one_name_a_job_has_the_one_that_is_of_its_gpus() -> None:
    world = world_of([job("7", at=2.5)], {"7": A100})
    world.submit(announced(due=3), announced(due=3, gres="gpu:a100"))
    world.run(6)
    assert (world.rows[2]["job"], world.rows[1]["job"]) == ("7", "") and not declined(world)


@pytest.mark.parametrize(
    ("memory", "stated", "taken"),
    [(4.0, 0, True), (9.0, 0, False), (9.0, 12, True), (13.0, 12, False), (math.nan, 0, True)],
)
def test_memory_beyond_the_share_of_its_cores_has_to_be_stated(
    memory: float, stated: int, taken: bool
) -> None:
    world = world_of([job("7", at=1, hint="sow=1")], {}, {"7": memory * GIB})
    world.submit(announced("", due=2, memory_bytes=int(stated * GIB)))
    assert world.policy.register.open[1].demand == max(1, stated // 4), "as many cores as it is the share of"
    world.run(6)
    assert (world.rows[1]["job"] == "7") == taken
    assert ["state its memory" in one for one in declined(world)] == ([] if taken else [True])


def test_what_others_hold_of_gpus_is_in_the_risk_and_who_is_full_up_is_refused() -> None:
    world = world_of([job("1", run=20)], {"1": {"gres/gpu": 2.0, "gres/gpu:a100": 2.0}})
    world.run(1)
    assert world.policy.quote(1, world.cluster.now_s, {"gres": "gpu:2"})["failure"][0][0] == 0.0  # type: ignore[index, call-overload]
    assert world.policy.quote(1, world.cluster.now_s, {"gres": "gpu:a100"})["failure"][0][0] == 1.0  # type: ignore[index, call-overload]
    for facts, why in (
        ({"gres": "gpu:h100"}, "gres: the cluster has no gres/gpu:h100; it has gres/gpu, gres/gpu:a100"),
        ({"licences": "y"}, "licenses: the cluster has no license/y"),
        ({"gres": "gpu:3"}, "gres/gpu: 3 are more than the 2 that one job may have here"),
        ({"memory_bytes": 2**40}, r"cores: 256 \(the share of its memory\) are more than the 4"),
    ):
        with pytest.raises(UsageError, match=why):
            world.submit(announced(due=3, **facts))


def test_prices_of_gpus_begin_anew_where_the_cluster_has_others_and_plans_stand() -> None:
    world = world_of([job("7", at=3, hint="sow=1")], {"7": A100})
    world.submit(announced("", due=4, gres="gpu:a100"))
    world.run(1)
    HAS["gres/gpu:a100"], HAS["gres/gpu"] = 6.0, 8.0
    try:
        world.run(2)
        mechanism = world.policy.planning.mechanism
        assert mechanism is not None and world.policy.register.known == {1}
        assert {name: one.capacity for name, one in mechanism.counted.items()} == {
            "gres/gpu": 8,
            "gres/gpu:a100": 6,
        }
        world.run(7)
        assert world.state_of(1) == "completed"
    finally:
        HAS["gres/gpu:a100"], HAS["gres/gpu"] = 2.0, 4.0


FILE = f"""\
version = 1
[[statement]]
name = "train"
cores = 1
gres = "gpu:a100:1"
due = {EPOCH + 400:.0f}
runs = [[0, 200, 1.0]]
value = 40
deadline = "1000s"
"""


@pytest.mark.slow
def test_a_statement_of_a_gpu_from_its_quote_to_its_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(names: Sequence[str]) -> Statements:
        return Statements("sow", partial(mechanism_of, "sow"), names, HALF)

    put_policy(monkeypatch, "admit", made)
    jobs = [job(name, at=1, hint=hint, begin_s=EPOCH + 150) for name, hint in (("7", ""), ("8", "sow=1"))]
    cluster = Live(jobs)
    with_gpus(cluster, {"7": A100, "8": {"gres/gpu": 2.0}})
    daemon = Daemon(configuration(tmp_path, "enforce"), cluster=cluster, clock=lambda: cluster.now_s)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        wait_for(lambda: not thread.is_alive() or daemon.endpoint is not None, 300)
        seen(cluster, 2)
        socket, file = tmp_path / "s", tmp_path / "gpu.toml"
        file.write_text(FILE)
        words = ("sow", "quote", "--cores", "1", "-t", "200s", "--json")
        plain, gpu = (
            json.loads(run(*words, *more, socket=socket)) for more in ((), ("--gres", "gpu:a100:1"))
        )
        assert gpu["gres"] == "gpu:a100:1" and "gres" not in plain
        assert gpu["menu"][3]["price"] > plain["menu"][3]["price"] > 0.0
        assert "1 cores, gpu:a100:1 for 200s" in run(*words[:-1], "--gres", "gpu:a100:1", socket=socket)
        for text in ("gpu:\x1b[2J", "gpu:h100", "gpu:1e9", "a" * 5000, "gpu,,"):
            with pytest.raises(Refused) as refused:
                run(*words, "--gres", text, socket=socket)
            assert str(refused.value).isprintable() and len(str(refused.value)) < 400
        assert "1 statements, nothing wrong" in run("sow", "submit", str(file), "--dry-run", socket=socket)
        run("sow", "submit", str(file), "--user", "ann", socket=socket)
        cluster.pass_rounds(7)
        facts = json.loads(run("sow", "status", "1", "--json", socket=socket))["statements"][0]
        assert (facts["state"], facts["job"], facts["gres"]) == ("completed", "7", "gpu:a100:1")
        assert facts["paid"] == pytest.approx(facts["expected_payment"], abs=1e-6)
        assert "1 cores, gpu:a100:1, due" in run("sow", "status", "1", socket=socket)
        assert any("it asks for 2 of gres/gpu" in reason for reason in declined_by(cluster, "8"))
    finally:
        daemon.stop()
        thread.join(300)


def declined_by(cluster: Live, name: str) -> list[str]:
    done = [decision for _, decision in cluster.done]
    return [
        one.cause.reason for one in done if isinstance(one, Decline) and one.cause.detail.get("job") == name
    ]
