"""Training of networks: every variant learns, an interrupted training gives the same bytes, commands say no well."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from asad.cli.asactl import asactl
from asad.defer.network import written
from asad.errors import UsageError
from asad_papers.osdec.deferral_instances import Setting, draw_trajectories

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")

from asad_papers.osdec.rl.improve import resize  # noqa: E402
from asad_papers.osdec.rl.recipes import VARIANTS, Data, Recipe, changed, with_steps  # noqa: E402
from asad_papers.osdec.rl.training import CHECKPOINT, Training  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("published_schemas")]

SETTING = Setting(steps=24, period=24)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The same sums in the same order."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def few() -> Data:
    drawn = draw_trajectories(range(7000, 7012), SETTING)
    return Data(drawn.take(range(8)), drawn.take(range(8, 12)), 24.0)


def short(name: str, **more: int) -> Recipe:
    """A variant's recipe, cut to seconds."""
    recipe = VARIANTS[name]
    base = {
        "trajectories": 4,
        "group": 2,
        "generations": 2,
        "lessons": 2,
        "improvements": min(recipe.improvements, 2),
        "improve_trajectories": 3,
        "futures": 2,
        "iterations": 2,
        "evaluate_every": 1,
        "mini_batch": 32,
        "epochs": 1,
    }
    return replace(recipe, **{**base, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_learns_and_serves(name: str, few: Data, tmp_path: Path) -> None:
    training = Training(short(name), few, 1, tmp_path, name)
    before = {key: value.clone() for key, value in training.policy.state_dict().items()}
    model = training.run()
    moved = [
        key for key, value in training.policy.state_dict().items() if not torch.equal(value, before[key])
    ]
    assert any(key.startswith("scores.encode") for key in moved)
    assert not model.shape.informed or any(key.startswith("auxiliary.gru") for key in moved)
    assert model.recipe["figures"]["best"] > 0
    description, weights = written(model)
    (tmp_path / "it.json").write_text(description)
    (tmp_path / "it.npz").write_bytes(weights)
    from asad.defer.osdec import Osdec
    from asad_papers.osdec.environment import play

    # what it reached in torch is what it reaches as it serves
    played = play(few.kept, Osdec(str(tmp_path / "it.json")), model.packing)  # type: ignore[arg-type]
    total = played.gains.total(VARIANTS[name].worth).mean()
    assert total == pytest.approx(model.recipe["figures"]["best"], rel=0.02)


@pytest.mark.parametrize("at", [("improve", 1), ("ppo", 3)])
def test_interrupted_and_resumed_it_gives_the_same_bytes(
    at: tuple[str, int], few: Data, tmp_path: Path
) -> None:
    recipe = short("osdec", iterations=4)
    whole = Training(recipe, few, 3, tmp_path / "whole", "it").run()

    class Killed(Exception):
        """As by a signal."""

    def kill(stage: str, step: int, *_: float) -> None:
        if (stage, step) == at:
            raise Killed

    with pytest.raises(Killed):
        Training(recipe, few, 3, tmp_path / "cut", "it", report=kill).run()
    resumed = Training(recipe, few, 3, tmp_path / "cut", "it", resume=True)
    assert resumed.run() is not whole
    assert written(resumed.model()) == written(whole)


def test_another_seed_gives_another_network(few: Data, tmp_path: Path) -> None:
    recipe = short("ppo-att", iterations=1)
    one, two = (Training(recipe, few, seed, tmp_path / str(seed), "it").run() for seed in (1, 2))
    assert written(one)[1] != written(two)[1]


def test_what_cannot_be_resumed_is_refused(few: Data, tmp_path: Path) -> None:
    recipe = short("ppo-att", iterations=1)
    Training(recipe, few, 1, tmp_path, "it").run()
    with pytest.raises(UsageError, match="of another recipe or seed"):
        Training(recipe, few, 2, tmp_path, "it", resume=True)
    (tmp_path / CHECKPOINT).write_bytes(b"broken")
    with pytest.raises(UsageError, match="cannot be resumed"):
        Training(recipe, few, 1, tmp_path, "it", resume=True)


def test_it_stops_early_when_nothing_gets_better(few: Data, tmp_path: Path) -> None:
    steps: list[int] = []
    recipe = replace(
        short("ppo-att", iterations=30, lessons=0, improvements=0, generations=0), patience=2, rate=(0.0, 0.0)
    )
    Training(recipe, few, 1, tmp_path, "it", report=lambda stage, step, *_: steps.append(step)).run()
    assert steps[-1] == 3


def test_progress_is_logged_for_tensorboard(few: Data, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    Training(short("ppo-att"), few, 1, tmp_path, "it").run()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("events.out.tfevents")]


def test_numbers_of_a_recipe_can_be_set_and_wrong_ones_are_named() -> None:
    recipe = changed(VARIANTS["osdec"], {"iterations": "7", "hold": "false", "gamma": "1.0"})
    assert (recipe.iterations, recipe.hold, recipe.gamma) == (7, False, 1.0)
    for options, text in (
        ({"speed": "1"}, "there are"),
        ({"iterations": "many"}, "not of type int"),
        ({"hold": "1"}, "not of type bool"),
        ({"iterations": "-1"}, "0 or more"),
    ):
        with pytest.raises(UsageError, match=text):
            changed(VARIANTS["osdec"], options)


def test_groups_divide_the_trajectories(few: Data, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="4 trajectories are not groups of 3"):
        Training(short("osdec", group=3), few, 1, tmp_path, "it")


def asked(*words: str) -> Result:
    return CliRunner().invoke(asactl, ["defer", *words])


def test_the_command_trains_and_shows(tmp_path: Path) -> None:
    small = ["trajectories=4", "group=2", "generations=1", "lessons=1", "iterations=1", "epochs=1"]
    small += ["improvements=1", "improve_trajectories=2", "futures=2"]
    words = [word for one in small for word in ("--set", one)]
    out = str(tmp_path / "out")
    done = asked("train", "--generate", "8", "--seeds", "1", "--out", out, "--json", *words)
    assert done.exit_code == 0, (done.output, done.exception)
    (row,) = json.loads(done.stdout)["models"]
    shown = asked("show", row["model"])
    assert shown.exit_code == 0 and "osdec-s1: attention" in shown.output
    plain = json.loads(asked("show", row["model"], "--json").stdout)["model"]
    assert plain["schema"] == 2 and plain["recipe"]["iterations"] == 1
    figures = plain["recipe"]["figures"]
    assert figures["gain"] == pytest.approx(figures["best"] - figures["start"])
    assert f"added to the warm start by a teacher: {figures['gain']:+,.1f} ±" in shown.output
    assert f"whichever state is kept: {figures['ppo_last_gain']:+,.1f} ±" in shown.output
    assert "osdec: osdec-s1" in asked("show").output


def test_what_needs_no_network_is_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from asad.defer.linear import Linear
    from asad.defer.rollout import Rollout
    from asad_papers.osdec import tuning

    # the search itself has tests of its own
    monkeypatch.setattr(tuning, "tune", lambda *_: np.arange(8.0))
    done = asked("fit", "--generate", "8", "--out", str(tmp_path))
    assert done.exit_code == 0, (done.output, done.exception)
    names = {"expected.toml", "sample.toml", "linear.toml"}
    assert names == {path.name for path in tmp_path.iterdir()}
    scorer = Rollout(expected=str(tmp_path / "expected.toml"), sample=str(tmp_path / "sample.toml"))
    assert scorer.sample is not None and len(scorer.sample[0]) == 400
    assert list(Linear(weights=str(tmp_path / "linear.toml")).weights) == list(range(8))


def test_several_variants_learn_from_as_many_steps_and_are_held_against_what_they_began_with(
    tmp_path: Path,
) -> None:
    small = ["trajectories=4", "group=2", "lessons=1", "epochs=1", "improvements=1", "improve_trajectories=2"]
    words = [word for one in (*small, "futures=2") for word in ("--set", one)]
    out = str(tmp_path / "out")
    done = asked(
        "train", "--generate", "8", "--seeds", "1", "--out", out, "--json", "--variant", "ppo-att,osdec", "--steps",
        "3200", *words,
    )  # fmt: skip
    assert done.exit_code == 0, (done.output, done.exception)
    rows = json.loads(done.stdout)["models"]
    # two rounds of 2 trajectories, three plays of all 6 that are learned from, two iterations of 4; of 96 steps each
    assert [row["steps"] for row in rows] == 2 * [96 * (2 * 2 + 3 * 6 + 2 * 4)]
    held = CliRunner().invoke(
        asactl,
        [
            "bench",
            "osdec",
            "--part",
            "trained",
            "--models",
            out,
            "--seeds",
            "3",
            "--first-seed",
            "9",
            "--json",
        ],
    )
    assert held.exit_code == 0, (held.output, held.exception)
    trained = {row["name"]: row for row in json.loads(held.stdout)["trained"]}
    assert list(trained) == ["osdec-s1", "ppo-att-s1"]
    for row in trained.values():
        assert row["gain"] == pytest.approx(row["best"] - row["start"]) and row["gain_error"] >= 0
        assert row["learner_gain"] == pytest.approx(row["last"] - row["improved"])
    assert trained["osdec-s1"]["information"] == pytest.approx(
        trained["osdec-s1"]["best"] - trained["ppo-att-s1"]["best"]
    )
    assert "information" not in trained["ppo-att-s1"]


def test_steps_that_leave_none_for_ppo_are_refused(few: Data) -> None:
    with pytest.raises(UsageError, match="are gone before ppo begins"):
        with_steps(short("osdec"), few, 100)


@pytest.mark.parametrize(("best", "size"), [(1.2, 1.3), (2.0, 1.6), (0.5, 1.0)])
def test_scores_take_the_size_that_earns_most(best: float, size: float) -> None:
    head = torch.nn.Linear(3, 1)
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    resize(head, (1.3, 1.6), lambda: -abs(float((head.bias / bias).detach()) - best))
    assert torch.equal(head.weight, size * weight) and torch.equal(head.bias, size * bias)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "give one of them"),
        (("--generate", "8", "--log", "x.npz"), "give one of them"),
        (("--generate", "8", "--variant", "dqn"), "--variant dqn: there are"),
        (("--generate", "8", "--setting", "mars"), "--setting mars: there are"),
        (("--generate", "8", "--set", "x"), "write KEY=VALUE"),
        (("--log", "nowhere.npz"), "nowhere.npz"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...], text: str) -> None:
    done = asked("train", *words)
    assert isinstance(done.exception, UsageError) and text in str(done.exception)


def test_an_accounting_log_is_learned_from(tmp_path: Path) -> None:
    from asad.replay.readers import read_log
    from asad_papers.osdec.deferral_logs import from_log, parse_deferrable

    rng = np.random.default_rng(0)
    lines = ["; MaxNodes: 4", "; MaxProcs: 64"]
    submitted = np.sort(rng.integers(0, 9 * 86400, 3000))
    for k, at in enumerate(submitted):
        run, cores = rng.integers(600, 9000), rng.choice([1, 2, 4])
        lines.append(f"{k + 1} {at} 60 {run} {cores} -1 -1 {cores} 9000 -1 1 1 1 1 -1 -1 -1 -1")
    log = tmp_path / "log.swf"
    log.write_text("\n".join(lines) + "\n")
    jobs = read_log(log).jobs
    share, window_s = parse_deferrable("share=0.25,window=3h")
    assert (share, window_s) == (0.25, 3 * 3600.0)
    trajectories, period = from_log(jobs, 64, 1800.0, share, window_s)
    assert period == 48.0 and trajectories.steps == 96 and len(trajectories) == 4
    assert 0.15 * 3000 < len(trajectories.cores) < 0.3 * 3000
    assert ((trajectories.latest - trajectories.earliest) <= 6).all()
    # what on-demand jobs leave: all cores less three quarters of the work, in the mean
    held = 0.75 * float((jobs.cores * jobs.run_s).sum()) / (9 * 86400)
    assert trajectories.capacity.mean() == pytest.approx(64 - held, rel=0.1)
    for wrong in ("share=2", "window=soon", "share=0.2;window=4h", "cores=3"):
        with pytest.raises(UsageError, match="write share="):
            parse_deferrable(wrong)
    with pytest.raises(UsageError, match="does not divide a day"):
        from_log(jobs, 64, 7000.0, share, window_s)
    with pytest.raises(UsageError, match="shorter than 2 days"):
        from_log(jobs.take(np.arange(10)), 64, 1800.0, share, window_s)
