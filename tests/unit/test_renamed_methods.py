"""Names that have changed: a site's policy, plugin or column with the old one still works, and is warned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from asad.admit.everyone import Everyone
from asad.config import Config
from asad.daemon import NoNodes, clusters
from asad.decisions import Outcome
from asad.model import blank_jobs
from asad.share import SharePolicy


def test_override_under_the_old_name_is_asked_and_warned() -> None:
    with pytest.warns(DeprecationWarning, match="heed is called on_outcomes now; rename it"):

        class OfSite(Everyone):
            def __init__(self) -> None:
                self.seen: list[Sequence[Outcome]] = []

            def heed(self, outcomes: Sequence[Outcome]) -> None:
                super().heed(outcomes)  # type: ignore[misc]
                self.seen.append(outcomes)

    class Derived(OfSite):
        def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
            super().on_outcomes([*outcomes, *outcomes])

    of_site, derived = OfSite(), Derived()
    none: list[Outcome] = []
    of_site.on_outcomes(none)
    derived.on_outcomes(none)
    assert of_site.seen == [[]] and derived.seen == [[]]


def test_other_stages_may_use_the_old_names_for_something_else() -> None:
    class OfShare(SharePolicy):
        def relax(self) -> int:
            return 1

    assert OfShare().relax() == 1


def test_a_column_by_its_old_name_is_the_one_of_the_new_name() -> None:
    jobs = blank_jobs(1)
    with pytest.warns(DeprecationWarning, match="own_start_s is Jobs.counterfactual_start_s"):
        assert jobs.own_start_s is jobs.counterfactual_start_s
    with pytest.raises(AttributeError):
        _ = jobs.own_start


def test_notices_of_a_plugin_by_their_old_name_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_site = SimpleNamespace(said=["a job of the site was requeued"])
    point = SimpleNamespace(name=Config().daemon.cluster, load=lambda: lambda *_, **__: of_site)
    monkeypatch.setattr(clusters, "entry_points", lambda group: [point])
    with pytest.warns(DeprecationWarning, match="`said` of a cluster is called `notices` now"):
        opened = clusters.open_cluster(Config(), NoNodes(), tmp_path)
    assert opened.notices is of_site.said
