"""Are jobs their users' alone? As Slurm is configured, and yes while that is not known."""

from __future__ import annotations

from pathlib import Path

import pytest
from asad_slurm.command import CommandTransport
from asad_slurm.private_data import ASK_S, PrivateData, ShowsConfiguration

from asad.errors import ClusterError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "doctor" / "config-22.05.txt"


class Configured:
    """A way to Slurm whose configuration a test sets; None: Slurm does not answer."""

    def __init__(self, private: str | None) -> None:
        self.private, self.asked = private, 0

    def configuration(self) -> str:
        self.asked += 1
        if self.private is None:
            raise ClusterError("slurmctld does not answer")
        return GOLDEN.read_text(encoding="utf-8").replace("= none\n", f"= {self.private}\n")


@pytest.mark.parametrize(
    ("private", "hides"),
    [("none", False), ("accounts,jobs", True), ("Jobs", True), ("accounts,users", False), (None, True)],
)
def test_it_is_as_slurm_says_and_yes_where_that_is_not_known(private: str | None, hides: bool) -> None:
    assert PrivateData(Configured(private), lambda: 0.0).hides_jobs() is hides


def test_slurm_is_asked_seldom_and_what_it_answered_last_holds_while_it_does_not_answer() -> None:
    slurm, now = Configured("none"), [0.0]
    data = PrivateData(slurm, lambda: now[0])
    assert [data.hides_jobs() for _ in range(5)] == [False] * 5 and slurm.asked == 1
    slurm.private = None
    now[0] += ASK_S
    assert not data.hides_jobs() and slurm.asked == 2
    slurm.private = "jobs"
    now[0] += ASK_S
    assert data.hides_jobs()


def test_a_way_that_cannot_say_hides_them_and_the_commands_can() -> None:
    assert PrivateData(object(), lambda: 0.0).hides_jobs()
    assert isinstance(CommandTransport(1.0), ShowsConfiguration)
