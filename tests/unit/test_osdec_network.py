"""The networks as they serve: equal to those that learn, refused when they are not what they say, quick."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from asad.defer.deferral_options import PACKINGS
from asad.defer.jobs import Waiting, Worth
from asad.defer.linear import Linear
from asad.defer.network import (
    INFORMATION,
    NETWORKS,
    Model,
    Shape,
    foresee,
    forward,
    inform,
    read,
    wanted,
    written,
)
from asad.defer.osdec import Osdec, load, look, recent, shipped
from asad.defer.outlook import (
    CLUSTER_WIDTH,
    JOB_WIDTH,
    LOOK,
    PAPER,
    PAPER_CLUSTER,
    TERMS,
)
from asad.errors import ConfigError
from asad_papers.osdec.deferral_fitting import fit_coming, fit_forecast
from asad_papers.osdec.deferral_instances import draw_trajectories, read_trajectories
from asad_papers.osdec.environment import World, play


def made(shape: Shape, seed: int = 0, **changed: object) -> Model:
    """A model of random weights."""
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(0.0, 0.3, size) for name, size in wanted(shape).items()}
    arrays["coming"] = np.array([[9.25, 2.0, 4.0], [2.5, 9.0, 4.0]])
    arrays["unknown"] = np.linspace(0.125, 1.0, len(arrays["unknown"]))
    arrays["worth"] = np.array([0.25, 1.0])
    arrays = {name: array.astype(np.float32).astype(np.float64) for name, array in arrays.items()}
    model = Model("made-up", shape, 45.0, 48.0, True, True, "skip-fit", 0.5, arrays, {"seed": seed})
    return replace(model, **changed)  # type: ignore[arg-type]


SHAPES = [
    *(Shape(network=network, width=16, feed=24, most_jobs=8) for network in NETWORKS),
    *(Shape(information=information, factor=10.0) for information in INFORMATION),
    Shape(heads=4, layers=3, job_columns=PAPER, cluster_columns=PAPER_CLUSTER, running=True),
]


@pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda shape: f"{shape.network}-{shape.information}-{shape.layers}"
)
def test_numpy_says_what_torch_says(shape: Shape) -> None:
    torch = pytest.importorskip("torch")
    from asad_papers.osdec.rl.torch_network import Auxiliary, Scores, set_arrays

    model = made(shape)
    scores, auxiliary = Scores(shape), Auxiliary(shape) if shape.informed else None
    set_arrays(scores, auxiliary, model.arrays)
    rng = np.random.default_rng(1)
    counts = [0, 1, 5, 13]
    jobs = rng.normal(size=(len(counts), 13, JOB_WIDTH))
    cluster = rng.normal(size=(len(counts), CLUSTER_WIDTH))
    known = [1, 3, shape.window, 2]
    steps = rng.normal(size=(len(counts), shape.window, 7))
    with torch.no_grad():
        if auxiliary is not None:
            shown = torch.tensor(steps, dtype=torch.float32)
            information, foreseen = auxiliary(shown, torch.tensor(known))
        else:
            information = torch.zeros((len(counts), 0))
        mean, deviation, value = scores(
            torch.tensor(jobs, dtype=torch.float32), torch.tensor(counts), torch.tensor(cluster, dtype=torch.float32),
            information,
        )  # fmt: skip
    for b, many in enumerate(counts):
        mine = inform(model, steps[b, : known[b]])
        assert np.allclose(mine, information[b].numpy(), atol=1e-5 * max(1.0, shape.factor))
        if auxiliary is not None:
            assert np.allclose(foresee(model, steps[b, : known[b]]), foreseen[b].numpy(), atol=1e-5)
        found = forward(model, jobs[b, :many], cluster[b], mine)
        assert np.allclose(found[0], mean[b, :many].numpy(), atol=1e-5)
        assert np.allclose(found[1], deviation[b, :many].numpy(), atol=1e-5)
        assert found[2] == pytest.approx(float(value[b]), abs=1e-5)
        assert found[0].shape == (many,)


@pytest.mark.parametrize(
    "shape",
    [Shape(), Shape(running=True, future=True), Shape(network="pointer", information="none", future=True)],
)
def test_what_is_learned_from_is_what_is_served(shape: Shape) -> None:
    pytest.importorskip("torch")
    from asad_papers.osdec.rl.batch import Batch, Sight

    trajectories = draw_trajectories([3, 4])
    scale = float(trajectories.capacity.mean())
    forecast = fit_forecast(trajectories.capacity, 48.0, scale)
    model = made(shape)
    coming, unknown = fit_coming(trajectories, 48.0)
    expected = {"forecast": forecast, "coming": coming, "unknown": unknown}
    model = replace(model, scale_cores=scale, arrays={**model.arrays, **expected})
    sight = Sight(
        scale, 48.0, forecast, coming, unknown, True, shape.running, shape.window, future=shape.future
    )
    batch = Batch(sight, 2, Worth(float(model.arrays["worth"][0])), "skip-fit")
    batch.begin(trajectories)
    rng = np.random.default_rng(0)
    for _ in range(60):
        for b in range(2):
            waiting = batch.world.view(b)
            jobs, cluster = look(model, waiting, scale)
            assert np.allclose(batch.cluster[b], cluster, atol=1e-5)
            assert batch.count[b] == len(jobs)
            # running jobs may stand in another order: a network does not see it
            n = len(waiting) if shape.future else int(waiting.startable.sum())
            assert np.allclose(batch.jobs[b, :n], jobs[:n], atol=1e-5)
            assert np.allclose(
                np.sort(batch.jobs[b, n : len(jobs)], axis=0), np.sort(jobs[n:], axis=0), atol=1e-5
            )
            assert batch.startable[b].sum() == waiting.startable.sum()
            assert not shape.future or (batch.startable[b, :n] == waiting.startable).all()
            shown = recent(waiting, scale)[-shape.window :]
            assert np.allclose(batch.steps[b, : batch.known], shown, atol=1e-5)
        batch.step(np.where(batch.startable, rng.normal(size=batch.startable.shape), -np.inf))


def test_the_forecast_sees_the_day_and_forgets_the_noise() -> None:
    steps = np.arange(96)
    rng = np.random.default_rng(0)
    capacity = 45.0 - 20.0 * np.sin(2 * np.pi * (steps / 48 + 0.1)) + rng.normal(0, 0.5, (40, 96))
    weights = fit_forecast(capacity, 48.0, 45.0)
    assert weights.shape == (LOOK, TERMS)
    phase = 2 * np.pi * 20 / 48
    terms = np.concatenate(([1.0, np.sin(phase), np.cos(phase)], capacity[0, [20, 19, 18, 17]] / 45.0))
    assert np.allclose(45.0 * weights @ terms, capacity[0, 20 : 20 + LOOK], atol=3.0)


def test_written_and_read_it_is_the_same_and_the_same_bytes() -> None:
    model = made(Shape())
    description, weights = written(model)
    again = read("here.json", description, weights)
    assert written(again) == (description, weights)
    assert again.shape == model.shape and again.recipe == model.recipe
    assert all((again.arrays[name] == model.arrays[name]).all() for name in wanted(model.shape))


def wrong(description: str, **changed: object) -> str:
    return json.dumps({**json.loads(description), **changed})


def test_what_does_not_fit_is_refused_with_place_and_remedy() -> None:
    description, weights = written(made(Shape()))
    plain = json.loads(description)
    other = written(made(Shape(width=16)))[1]
    for bad, text in (
        ("[]", "not a table"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("x" * 300_000, "longer than"),
        (wrong(description, schema=1), "schema 1 is not 2"),
        (wrong(description, scale_cores=0), "scale_cores 0"),
        (wrong(description, period_steps="day"), "period_steps is no number"),
        (wrong(description, hold="yes"), "hold"),
        (wrong(description, spread=-1.0), "spread -1 cannot be"),
        (wrong(description, weights_sha256="0"), "not those it describes"),
        (wrong(description, shape={}), "shape does not have the keys"),
        (wrong(description, shape={**plain["shape"], "width": -1}), "width -1"),
        (wrong(description, shape={**plain["shape"], "width": "32"}), "width is not of type int"),
        (wrong(description, shape={**plain["shape"], "heads": 3}), "heads"),
        (wrong(description, shape={**plain["shape"], "network": "conv"}), "does not know conv"),
        (
            wrong(description, shape={**plain["shape"], "job_columns": ["charm"]}),
            "does not know columns charm",
        ),
        (wrong(description, shape={**plain["shape"], "low": 6}), r"encode.*not \[32, 71"),
    ):
        with pytest.raises(ConfigError, match=rf"^here\.json: .*{text}"):
            read("here.json", bad, weights)
    with pytest.raises(ConfigError, match="not those it describes"):
        read("here.json", description, other)


def test_weights_are_data_never_code(tmp_path: Path) -> None:
    import hashlib
    import io

    description, _ = written(made(Shape()))
    right = dict(made(Shape()).arrays)
    for content, text in (
        (right | {"forecast": np.array([{}], object)}, "cannot be read"),
        ({name: array + np.nan for name, array in right.items()}, "no number"),
        ({name: array.astype(int) for name, array in right.items()}, "int64"),
        ({"forecast": np.zeros((LOOK, TERMS))}, "not those of its shape"),
        (right | {"coming": -right["coming"]}, "cannot be"),
        (right | {"unknown": 2 + right["unknown"]}, "no share"),
    ):
        whole = io.BytesIO()
        np.savez(whole, **content)  # type: ignore[arg-type]
        digest = hashlib.sha256(whole.getvalue()).hexdigest()
        with pytest.raises(ConfigError, match=text):
            read("here.json", wrong(description, weights_sha256=digest), whole.getvalue())
    digest = hashlib.sha256(b"PK").hexdigest()
    with pytest.raises(ConfigError, match="cannot be read"):
        read("here.json", wrong(description, weights_sha256=digest), b"PK")


def test_a_model_is_found_by_name_or_path_and_else_refused(tmp_path: Path) -> None:
    description, weights = written(made(Shape()))
    (tmp_path / "mine.json").write_text(description)
    with pytest.raises(ConfigError, match="cannot be read"):
        Osdec(str(tmp_path / "mine.json"))
    (tmp_path / "mine.npz").write_bytes(weights)
    assert Osdec(str(tmp_path / "mine.json")).model.name == "made-up"
    for name, text in (("nobody", "no model nobody ships"), ("../x", "neither a name nor the path")):
        with pytest.raises(ConfigError, match=text):
            load(name)
    with pytest.raises(ConfigError, match="scale_cores -1"):
        Osdec(scale_cores=-1.0)


def crowd(many: int) -> Waiting:
    rng = np.random.default_rng(0)
    earliest = rng.integers(50, 60, many).astype(np.int32)
    ones = np.ones(many, np.int32)
    return Waiting(
        55, rng.choice([1, 2, 4, 8, 16], many).astype(np.int32), rng.integers(1, 24, many).astype(np.int32), earliest,
        np.maximum(earliest, 55).astype(np.int32) + 3 * ones, 50 * ones, 300.0, np.array([4, 8], np.int32),
        np.array([3, 100], np.int32),
    )  # fmt: skip


def test_every_shipped_model_scores_whatever_comes() -> None:
    models = [one["model"] for seeds in shipped().values() for one in seeds]
    assert len(models) >= 3
    for name in models:
        scorer = Osdec(name)
        for many in (0, 1, 200):
            scores = scorer.score(crowd(many))
            assert scores.shape == (many,) and not np.isnan(scores).any()
            assert not scorer.model.hold or (scores[np.isfinite(scores)] > 0).all()


def test_serving_does_not_import_torch() -> None:
    code = (
        "import sys; import numpy as np; from asad.defer.osdec import Osdec; Osdec(); "
        "print([name for name in ('torch', 'stable_baselines3', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_network_sees_a_set() -> None:
    """No job is preferred by its place."""
    scorer, waiting = Osdec(), crowd(30)
    # `more_urgent` orders equals by their row: there are none here
    waiting = replace(
        waiting, latest=np.maximum(waiting.earliest, 55).astype(np.int32) + np.arange(30, dtype=np.int32)
    )
    order = np.random.default_rng(1).permutation(30)
    columns = ("cores", "duration", "earliest", "latest", "submitted")
    mixed = replace(waiting, **{name: getattr(waiting, name)[order] for name in columns})
    assert np.allclose(scorer.think(waiting)[0][order], scorer.think(mixed)[0], atol=1e-6, equal_nan=True)


def test_the_world_goes_on_whatever_a_network_says() -> None:
    trajectories = draw_trajectories([1])
    world = World(trajectories)
    while not world.done:
        free = world.free.copy()
        before = world.started >= 0
        world.step(np.full(world.rows.shape, np.nan if world.now % 2 else np.inf))
        begun = (world.started >= 0) & ~before
        assert trajectories.cores[begun].sum() <= max(free[0], 0)


@pytest.mark.slow
def test_the_shipped_networks_earn_more_than_a_tuned_score(data: Path) -> None:
    some = read_trajectories(data / "osdec" / "test_50.npz").take(range(12))
    worth = Worth()
    yardstick = play(some, Linear()).gains.total(worth).mean()
    for one in shipped()["osdec"]:
        scorer = Osdec(**one)
        found = [play(some, scorer, packing).gains.total(worth).mean() for packing in PACKINGS]
        # it holds back what does not fit, so a prefix is as good
        assert found[0] == found[1] > yardstick
