"""The networks of OSDEC in numpy, as they serve: weights and a description in, scores out. Nothing here needs torch.

Source: section 4.2 of the OSDEC paper. Rows of jobs, each with the cluster's row and the auxiliary tasks' information
beside it, are encoded by a linear layer and Transformer encoders (attention and feed-forward, each with a residual
connection and then a norm); a head gives each row the mean of its score (tanh), another its deviation (softplus), a
third a value, whose mean over the rows is that of the state. `mlp` and `pointer` are the networks of two variants of
Table 1. `asad_papers.osdec.rl.torch_network` is the same in torch, and a test holds the two together.

Cost of 200 jobs: 1 to 2 ms at width 32.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asad.bounded import BROKEN_ARCHIVE, MOST_NUMBER, shown
from asad.compiling import compiled
from asad.defer.outlook import CLASSES, CLUSTER_COLUMNS, JOB_COLUMNS, LEAD, LOOK, TERMS
from asad.errors import ConfigError
from asad.model import Floats

SCHEMA = 2
"""Of a description. A model of another one is refused: its numbers would mean something else."""
NETWORKS = ("attention", "mlp", "pointer")
INFORMATION = ("none", "high", "low", "both")
"""What of the auxiliary tasks is put beside the state: nothing, AuxH, AuxL, or both."""
TASKS = ("capacity", "mean_cores", "mean_duration", "violation")
"""Of the auxiliary network: each at the next step, in the units of `STEP_COLUMNS`."""
STEP_COLUMNS = ("capacity", "held", "started", "waiting", "mean_cores", "mean_duration", "violation")
"""Of the auxiliary network, one row a step: what is known when it is decided. Capacity, what is held before starts, the
cores started and the violation of the step before, in parts of the scale; the number of waiting jobs in 32, the mean of
their cores in 16 and of their durations in 24 steps."""
EXPECTED = {"forecast": (LOOK, TERMS), "coming": (CLASSES, 3), "unknown": (LEAD,), "worth": (2,)}
"""What is to be expected, as `asad.defer.outlook` fits it, and ω1 and ω2 that it was trained for."""
LEAST_DEVIATION = 1e-3
MOST_CHARACTERS = 200_000
"""Of a description."""
EPSILON = 1e-5
"""Of the norms, as in torch."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a network looks like."""

    network: str = "attention"
    width: int = 32
    heads: int = 1
    layers: int = 1
    feed: int = 64
    """Width of the feed-forward layers."""
    most_jobs: int = 64
    """Of `mlp`, which takes a fixed number of rows."""
    job_columns: tuple[str, ...] = JOB_COLUMNS
    cluster_columns: tuple[str, ...] = CLUSTER_COLUMNS
    running: bool = False
    """Are running jobs rows too? What they hold is among the cluster's columns anyway."""
    future: bool = False
    """Are jobs that may not start yet rows too? What they will take is among the columns anyway."""
    information: str = "both"
    window: int = 16
    """Steps that the auxiliary network is shown, the present one included."""
    hidden: int = 16
    """Units of its GRU."""
    low: int = 5
    """Width of the layer that its tasks share (AuxL)."""
    high: int = 5
    """Width of each task's own layer (AuxH)."""
    factor: float = 1.0
    """By which this information is multiplied (Table 3 prints coefficients of 10)."""

    @property
    def informed(self) -> int:
        """Numbers of auxiliary information."""
        return {"none": 0, "high": self.high * len(TASKS), "low": self.low}.get(
            self.information, self.low + self.high * len(TASKS)
        )

    @property
    def inputs(self) -> int:
        """Numbers in an encoded row."""
        return len(self.job_columns) + len(self.cluster_columns) + self.informed


@dataclass(frozen=True, slots=True)
class Model:
    """A trained network: what its numbers mean, and the numbers."""

    name: str
    shape: Shape
    scale_cores: float
    """Cores that count as 1: the mean capacity of the training trajectories."""
    period_steps: float
    """Steps after which the capacity repeats; 0 for never."""
    knows_end: bool
    """Does it see how far the end of a trajectory is?"""
    hold: bool
    """Does a score of 0 or less hold a job back? In the paper every job that fits is started."""
    packing: str
    """That it was trained with."""
    spread: float
    """Above 0: its scores are gains (`asad.defer.packing.score_of`), and the set that gains most together is started.
    0: the highest are, as the packing takes them."""
    arrays: Mapping[str, Floats]
    recipe: Mapping[str, Any]
    """How it was trained, and the figures then."""


def wanted(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Arrays by name that a model of this shape has: `EXPECTED`, and those of the networks as torch names them."""
    w, f = shape.width, shape.feed
    found: dict[str, tuple[int, ...]] = dict(EXPECTED)

    def linear(name: str, out: int, into: int) -> None:
        found[f"{name}.weight"] = (out, into)
        found[f"{name}.bias"] = (out,)

    def gru(name: str, hidden: int, into: int) -> None:
        for end, width in (("ih", into), ("hh", hidden)):
            found[f"{name}.weight_{end}_l0"] = (3 * hidden, width)
            found[f"{name}.bias_{end}_l0"] = (3 * hidden,)

    if shape.network == "mlp":
        linear(
            "encode",
            w,
            shape.most_jobs * len(shape.job_columns) + len(shape.cluster_columns) + shape.informed,
        )
        linear("between", w, w)
        for head, out in (("mean", shape.most_jobs), ("deviation", shape.most_jobs), ("value", 1)):
            linear(head, out, w)
    else:
        linear("encode", w, shape.inputs)
        if shape.network == "pointer":
            gru("encoder", w, w)
            linear("key", w, w)
            linear("query", w, w)
        else:
            for k in range(shape.layers):
                linear(f"layers.{k}.attend", 3 * w, w)
                linear(f"layers.{k}.out", w, w)
                linear(f"layers.{k}.up", f, w)
                linear(f"layers.{k}.down", w, f)
                for norm in ("norm_1", "norm_2"):
                    found[f"layers.{k}.{norm}.weight"] = found[f"layers.{k}.{norm}.bias"] = (w,)
        for head in ("mean", "deviation"):
            linear(f"{head}_1", w, w)
            linear(head, 1, w)
        linear("value_1", w, w)
        linear("value", 1, w)
    if shape.informed:
        gru("auxiliary.gru", shape.hidden, len(STEP_COLUMNS))
        linear("auxiliary.shared", shape.low, shape.hidden)
        for task in TASKS:
            linear(f"auxiliary.own.{task}", shape.high, shape.low)
            linear(f"auxiliary.head.{task}", 1, shape.high)
    return found


# ------------------------------------------------------------------------------------------------------ the networks


def forward(model: Model, jobs: Floats, cluster: Floats, information: Floats) -> tuple[Floats, Floats, float]:
    """Mean and deviation of each job's score, (n,) and (n,), and the value of the state.

    `jobs` (n, JOB_WIDTH) and `cluster` (CLUSTER_WIDTH,) as `asad.defer.outlook.describe` fills them; `information` as
    `inform` says it.
    """
    shape = model.shape
    rows = jobs[:, [JOB_COLUMNS.index(name) for name in shape.job_columns]]
    beside = np.concatenate(
        [cluster[[CLUSTER_COLUMNS.index(name) for name in shape.cluster_columns]], information]
    )
    if shape.network == "mlp":
        return _mlp(model, rows, beside)
    many = len(rows)
    # the last row stands for the cluster, so that a state without jobs has a value too
    table = np.zeros((many + 1, shape.inputs))
    table[:many, : rows.shape[1]] = rows
    table[:, rows.shape[1] :] = beside
    x = _linear(model, "encode", table)
    if shape.network == "pointer":
        encoded = _gru_of(model, "encoder", x)
        query = _linear(model, "query", encoded[-1])
        x = np.tanh(_linear(model, "key", encoded) + query)
    else:
        for k in range(shape.layers):
            x = _layer(model, k, x)
    mean = np.tanh(_linear(model, "mean", _relu(_linear(model, "mean_1", x[:many])))[:, 0])
    raw = _linear(model, "deviation", _relu(_linear(model, "deviation_1", x[:many])))[:, 0]
    values = _linear(model, "value", _relu(_linear(model, "value_1", x)))
    return mean, np.logaddexp(0.0, raw) + LEAST_DEVIATION, float(values.mean())


def inform(model: Model, steps: Floats) -> Floats:
    """(informed,) What the auxiliary network makes of the last steps, (up to window, STEP_COLUMNS)."""
    shape = model.shape
    if not shape.informed:
        return np.zeros(0)
    shared = np.maximum(_linear(model, "auxiliary.shared", _last(model, steps)), 0.0)
    parts = []
    if shape.information in ("low", "both"):
        parts.append(shared)
    if shape.information in ("high", "both"):
        parts += [_relu(_linear(model, f"auxiliary.own.{task}", shared)) for task in TASKS]
    return shape.factor * np.concatenate(parts)


def foresee(model: Model, steps: Floats) -> Floats:
    """(4,) What the auxiliary tasks say of the next step, in the order of `TASKS`."""
    shared = _relu(_linear(model, "auxiliary.shared", _last(model, steps)))
    return np.array(
        [
            _linear(model, f"auxiliary.head.{task}", _relu(_linear(model, f"auxiliary.own.{task}", shared)))[
                0
            ]
            for task in TASKS
        ]
    )


def _last(model: Model, steps: Floats) -> Floats:
    found: Floats = _gru_of(model, "auxiliary.gru", steps[-model.shape.window :])[-1]
    return found


def _linear(model: Model, name: str, x: Floats) -> Floats:
    found: Floats = x @ model.arrays[f"{name}.weight"].T + model.arrays[f"{name}.bias"]
    return found


def _relu(x: Floats) -> Floats:
    found: Floats = np.maximum(x, 0.0)
    return found


def _norm(model: Model, name: str, x: Floats) -> Floats:
    middle = x - x.mean(axis=1, keepdims=True)
    spread = np.sqrt((middle * middle).mean(axis=1, keepdims=True) + EPSILON)
    found: Floats = middle / spread * model.arrays[f"{name}.weight"] + model.arrays[f"{name}.bias"]
    return found


def _layer(model: Model, k: int, x: Floats) -> Floats:
    heads, many = model.shape.heads, len(x)
    width = x.shape[1] // heads
    query, key, value = np.split(_linear(model, f"layers.{k}.attend", x), 3, axis=1)
    # (heads, rows, width of a head)
    query, key, value = (part.reshape(many, heads, width).transpose(1, 0, 2) for part in (query, key, value))
    weight = query @ key.transpose(0, 2, 1) / math.sqrt(width)
    weight = np.exp(weight - weight.max(axis=2, keepdims=True))
    weight /= weight.sum(axis=2, keepdims=True)
    seen = (weight @ value).transpose(1, 0, 2).reshape(many, heads * width)
    x = _norm(model, f"layers.{k}.norm_1", x + _linear(model, f"layers.{k}.out", seen))
    more = _linear(model, f"layers.{k}.down", _relu(_linear(model, f"layers.{k}.up", x)))
    return _norm(model, f"layers.{k}.norm_2", x + more)


def _mlp(model: Model, rows: Floats, beside: Floats) -> tuple[Floats, Floats, float]:
    most, many = model.shape.most_jobs, len(rows)
    flat = np.zeros((most, rows.shape[1]))
    flat[: min(many, most)] = rows[:most]
    x = _relu(_linear(model, "encode", np.concatenate([flat.ravel(), beside])))
    x = _relu(_linear(model, "between", x))
    # jobs beyond the fixed number come last
    mean, deviation = np.full(many, -1.0), np.full(many, LEAST_DEVIATION)
    mean[:most] = np.tanh(_linear(model, "mean", x))[:many]
    deviation[:most] = (np.logaddexp(0.0, _linear(model, "deviation", x)) + LEAST_DEVIATION)[:many]
    return mean, deviation, float(_linear(model, "value", x)[0])


def _gru_of(model: Model, name: str, rows: Floats) -> Floats:
    get = model.arrays
    found: Floats = _gru(
        np.ascontiguousarray(rows, dtype=np.float64),
        get[f"{name}.weight_ih_l0"],
        get[f"{name}.bias_ih_l0"],
        get[f"{name}.weight_hh_l0"],
        get[f"{name}.bias_hh_l0"],
    )
    return found


@compiled
def _gru(rows: Floats, into: Floats, bias: Floats, back: Floats, bias_back: Floats) -> Floats:
    """(n, hidden) The states after each of n rows, as `torch.nn.GRU` has them, from a state of 0."""
    many, hidden = len(rows), back.shape[1]
    found = np.zeros((many, hidden))
    state = np.zeros(hidden)
    for k in range(many):
        left = bias.copy()
        right = bias_back.copy()
        for out in range(3 * hidden):
            for j in range(rows.shape[1]):
                left[out] += into[out, j] * rows[k, j]
            for j in range(hidden):
                right[out] += back[out, j] * state[j]
        for j in range(hidden):
            reset = 1.0 / (1.0 + np.exp(-(left[j] + right[j])))
            keep = 1.0 / (1.0 + np.exp(-(left[hidden + j] + right[hidden + j])))
            new = np.tanh(left[2 * hidden + j] + reset * right[2 * hidden + j])
            found[k, j] = (1.0 - keep) * new + keep * state[j]
        state = found[k]
    return found


# ------------------------------------------------------------------------------------------------------ as files


def written(model: Model) -> tuple[str, bytes]:
    """The description (JSON) and the weights (npz, float32) of a model; the same model gives the same bytes."""
    weights = _npz({name: np.asarray(model.arrays[name], np.float32) for name in wanted(model.shape)})
    plain = {**described(model), "weights_sha256": hashlib.sha256(weights).hexdigest()}
    return json.dumps(plain, indent=1) + "\n", weights


def described(model: Model) -> dict[str, Any]:
    """A model without its numbers, as plain data."""
    shape = model.shape
    return {
        "schema": SCHEMA,
        "name": model.name,
        "scale_cores": model.scale_cores,
        "period_steps": model.period_steps,
        "knows_end": model.knows_end,
        "hold": model.hold,
        "packing": model.packing,
        "spread": model.spread,
        "shape": asdict(shape),
        "arrays": {name: list(size) for name, size in wanted(shape).items()},
        "recipe": dict(model.recipe),
    }


def read(place: str, description: str, weights: bytes) -> Model:
    """A model from its two files. `place` is named in errors. Raises ConfigError. Nothing is executed."""
    plain = _table(place, description)
    if plain.get("schema") != SCHEMA:
        raise ConfigError(
            f"{place}: schema {shown(str(plain.get('schema')))} is not {SCHEMA}; "
            "train the model anew with asactl defer train"
        )
    shape = _shape(place, plain.get("shape"))
    scale, period = _number(place, plain, "scale_cores"), _number(place, plain, "period_steps")
    spread = _number(place, plain, "spread")
    for key, value, fits in (
        ("scale_cores", scale, 0.0 < scale < 1e9),
        ("period_steps", period, 0.0 <= period < 1e9),
        ("spread", spread, 0.0 <= spread < 1e3),
    ):
        if not fits:
            raise ConfigError(f"{place}: {key} {value:g} cannot be; train the model anew")
    flags = [plain.get(key) for key in ("knows_end", "hold")]
    if not all(isinstance(flag, bool) for flag in flags) or plain.get("packing") not in (
        "prefix",
        "skip-fit",
    ):
        raise ConfigError(f"{place}: knows_end, hold or packing is missing; train the model anew")
    if hashlib.sha256(weights).hexdigest() != plain.get("weights_sha256"):
        raise ConfigError(
            f"{place}: the weights beside it are not those it describes; copy both files together"
        )
    recipe = plain.get("recipe")
    return Model(
        str(plain.get("name"))[:80],
        shape,
        scale,
        period,
        bool(flags[0]),
        bool(flags[1]),
        str(plain["packing"]),
        spread,
        _arrays(place, shape, weights),
        recipe if isinstance(recipe, dict) else {},
    )


def _table(place: str, description: str) -> dict[str, Any]:
    if len(description) > MOST_CHARACTERS:
        raise ConfigError(
            f"{place}: longer than {MOST_CHARACTERS} characters; this is no description of a model"
        )
    try:
        plain = json.loads(description)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not JSON ({shown(str(error), 80)}); train the model anew") from None
    if not isinstance(plain, dict):
        raise ConfigError(f"{place}: not a table; train the model anew")
    return plain


def _number(place: str, plain: Mapping[str, Any], key: str) -> float:
    value = plain.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MOST_NUMBER:
        raise ConfigError(f"{place}: {key} is no number; train the model anew")
    return float(value)


def _shape(place: str, plain: Any) -> Shape:
    default = asdict(Shape())
    if not isinstance(plain, dict) or set(plain) != set(default):
        raise ConfigError(f"{place}: shape does not have the keys {', '.join(default)}; train the model anew")
    given: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
    }
    for key, value in given.items():
        kind = type(default[key])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ConfigError(f"{place}: shape: {key} is not of type {kind.__name__}; train the model anew")
        if kind is int and not 0 < value <= 4096:
            raise ConfigError(f"{place}: shape: {key} {value} is not within 1 to 4096; train the model anew")
    shape = Shape(**given)
    unknown = [
        shown(str(name))
        for names, known in ((shape.job_columns, JOB_COLUMNS), (shape.cluster_columns, CLUSTER_COLUMNS))
        for name in names
        if name not in known
    ]
    if shape.network not in NETWORKS or shape.information not in INFORMATION or unknown:
        what = (
            f"columns {', '.join(unknown[:4])}"
            if unknown
            else f"{shown(shape.network)}, {shown(shape.information)}"
        )
        raise ConfigError(f"{place}: this version of asad does not know {what}; train the model anew")
    if shape.width % shape.heads or not abs(shape.factor) <= MOST_NUMBER:
        raise ConfigError(f"{place}: shape: width, heads or factor cannot be; train the model anew")
    return shape


def _arrays(place: str, shape: Shape, weights: bytes) -> dict[str, Floats]:
    sizes = wanted(shape)
    try:
        with np.load(io.BytesIO(weights), allow_pickle=False) as file:
            if set(file.files) != set(sizes):
                odd = sorted(set(file.files) ^ set(sizes))[:4]
                raise ConfigError(
                    f"{place}: its arrays are not those of its shape ({shown(', '.join(odd), 120)}); train it anew"
                )
            found = {name: np.asarray(file[name]) for name in sizes}
    except BROKEN_ARCHIVE as error:
        raise ConfigError(
            f"{place}: its weights cannot be read ({shown(str(error), 80)}); copy them anew"
        ) from None
    for name, size in sizes.items():
        if found[name].shape != size or found[name].dtype.kind != "f":
            raise ConfigError(
                f"{place}: array {name} is {found[name].dtype} {list(found[name].shape)}, not {list(size)}; "
                "train it anew"
            )
        if not np.isfinite(found[name]).all():
            raise ConfigError(f"{place}: array {name} holds what is no number; train it anew")
    coming, unknown = found["coming"], found["unknown"]
    used = coming[coming[:, 0] > 0.0]
    if (coming < 0).any() or (coming > 1e6).any() or (used[:, 1] < 1).any() or (found["worth"] < 0).any():
        raise ConfigError(f"{place}: arrays coming or worth cannot be; train it anew")
    if (unknown < 0).any() or (unknown > 1).any():
        raise ConfigError(f"{place}: array unknown is no share; train it anew")
    return {name: np.ascontiguousarray(array, np.float64) for name, array in found.items()}


def _npz(arrays: Mapping[str, Floats]) -> bytes:
    """As `numpy.savez_compressed`, without the time of day in it."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
        for name, array in arrays.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, np.ascontiguousarray(array), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), one.getvalue())
    return whole.getvalue()
