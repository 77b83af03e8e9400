"""What a report advises, and that no log, and no figure beside it, contradicts it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from report_samples import replay, with_metrics

from asad.ineligible import Ineligible, NodeIneligible
from asad.replay.results import INELIGIBLE, ReplayResult
from asad.report import funnel, units
from asad.report.first_screen import parts
from asad.share.pool.idle_funnel import REASONS


def spaced(text: str) -> str:
    return text.replace(units.THIN, " ").replace(units.SPACE, " ")


def words_of(result: ReplayResult) -> str:
    return " ".join(text for part in parts(result) for text in part.sentences)


IDLE = (("unmeasured", 4.0), ("headroom", 60.0), ("expert's share", 3.0), ("no memory", 2.0), ("lent", 0.0))


def advised(reasons: tuple[tuple[str, float], ...], *, guests: bool = True, **facts: Any) -> str:
    """The advice and the verdict of a replay with these reasons, in whose result `facts` are otherwise."""
    result = with_metrics(replay(40, ("slurm", "asax")), "asax", stretched_hosts=0)
    policy = dataclasses.replace(result.policies["asax"], funnel=reasons)
    if not guests:
        none = np.zeros(40, dtype=np.bool_)
        policy = dataclasses.replace(policy, host=none, guest=none)
    changed = dataclasses.replace(result, policies={**result.policies, "asax": policy})
    changed = dataclasses.replace(changed, **facts)
    return spaced(f"{funnel.advice_of(changed, 'asax')} {words_of(changed)}")


def settings_of(**changed: Any) -> dict[str, Any]:
    return {**replay(40).settings, **changed}


def log_of(*absent: str) -> dict[str, Any]:
    return {**replay(40).log, "absent": list(absent)}


def baseline_without_waits() -> dict[str, Any]:
    result = replay(40, ("slurm", "asax"))
    slurm = dataclasses.replace(result.policies["slurm"], start_s=result.submit_s + 20.0)
    asax = dataclasses.replace(
        result.policies["asax"], funnel=IDLE, host=np.zeros(40, bool), guest=np.zeros(40, bool)
    )
    return {"policies": {"slurm": slurm, "asax": asax}, "settings": settings_of(poll_s=30.0)}


def test_a_replay_is_not_advised_to_have_cpu_times_whose_absence_is_no_reason() -> None:
    for sources in ({"measured": 1.0}, {"measured": 0.5, "assumed": 0.5}, {"assumed": 1.0}):
        text = advised((("unmeasured", 9.0), ("lent", 1.0)), demand_sources=sources)
        assert "“unmeasured” (90 %): replay a longer log" in text and "CPU times" not in text
    assert "observe for longer" in funnel.advice((*IDLE[:1], ("lent", 1.0)), live=True)
    assert "replay" not in funnel.advice((*IDLE[:1], ("lent", 1.0)), live=True)


def test_a_replay_without_names_of_jobs_is_advised_to_have_them() -> None:
    text = advised((("unmeasured", 9.0), ("lent", 1.0)), log=log_of("application"))
    assert "replay a log with the names of jobs" in text


def test_nothing_is_advised_where_no_job_waited() -> None:
    text = advised((), **baseline_without_waits())
    assert "would have been lent; no job waited for longer than 30 s, the interval of asad’s cycle." in text
    assert "asax lent nothing: no job waited for longer than 30 s" in text
    assert "headroom" not in text and "found nothing to lend" not in text


def test_nothing_is_advised_where_no_job_that_waited_has_a_time_limit() -> None:
    nobody = np.zeros(40, dtype=np.bool_)
    text = advised(IDLE, guests=False, limited=nobody)
    assert "jobs that waited has a time limit, and asad offers nothing to jobs without one: give such" in text
    assert "headroom" not in text and "found nothing to lend" not in text
    text = advised(IDLE, guests=False, limited=nobody, log=log_of("time_limit_s"))
    assert "to jobs without one: replay a log with time limits" in text
    assert "headroom" in advised(IDLE, guests=False, limited=~nobody), "all have one"
    assert "headroom" in advised(IDLE, guests=False), "nobody knows"
    assert "headroom" in advised(IDLE, limited=nobody), "there were guests"


def test_nothing_is_advised_where_nothing_may_be_lent() -> None:
    assert "with --no-lending nothing is lent" in advised(
        IDLE, guests=False, settings=settings_of(lending=False)
    )


def test_headroom_is_not_to_be_lowered_where_hosts_are_stretched() -> None:
    assert "“headroom” (87 %)" in advised(IDLE)
    result = with_metrics(replay(40, ("slurm", "asax")), "asax", stretched_hosts=3)
    policy = dataclasses.replace(result.policies["asax"], funnel=IDLE)
    result = dataclasses.replace(result, policies={**result.policies, "asax": policy})
    assert "headroom" not in funnel.advice_of(result, "asax")


def test_memory_requests_are_advised_about_where_memory_counts_and_is_recorded() -> None:
    reasons = (("no memory", 9.0), ("lent", 1.0))
    assert "bring memory requests closer" in advised(reasons, settings=settings_of(memory=True), log=log_of())
    assert "memory requests" not in advised(reasons, settings=settings_of(memory=False), log=log_of())
    assert "memory requests" not in advised(
        reasons, settings=settings_of(memory=True), log=log_of("memory_bytes")
    )


def test_who_found_nobody_to_lend_to_did_not_find_nothing_to_lend() -> None:
    text = advised((("no waiting job that would gain", 9.0), ("lent", 0.0)), guests=False)
    assert "asax found nobody to lend to: no job became host or guest." in text
    assert "found nothing to lend" in advised((("p95 above the mean", 9.0), ("lent", 0.0)), guests=False)


@pytest.mark.parametrize(
    ("why", "change"),
    [
        (Ineligible.GRES.text, "by the option lend"),
        (Ineligible.SEVERAL_NODES.text, "by the option lend"),
        (Ineligible.PARTITION_OPTED_OUT.text, "ask those who opted out"),
        (Ineligible.NO_TIME_LIMIT.text, "state a time limit"),
        (Ineligible.RESERVATION.text, "nothing that kept the rest is for an operator to change"),
        (f"node: {NodeIneligible.DOWN.text}", "nothing that kept the rest is for an operator to change"),
        (f"node: {NodeIneligible.OPTED_OUT.text}", "take such nodes out of opt_out"),
        (f"node: {NodeIneligible.NO_ACTOR.text}", "why asad-node does not answer"),
    ],
)
def test_what_can_be_changed_about_ineligible_jobs_and_nodes_depends_on_why(why: str, change: str) -> None:
    assert change in funnel.advice(((f"{INELIGIBLE}{why}", 9.0), ("lent", 1.0)), live=True)


def test_reasons_of_ineligibility_are_those_of_the_funnel() -> None:
    reasons = {reason.removeprefix(INELIGIBLE) for reason, _ in REASONS if reason.startswith(INELIGIBLE)}
    assert reasons <= set(funnel.INELIGIBLE_CHANGES)
