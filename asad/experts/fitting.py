"""Learn an expert from recorded history with scikit-learn, and get the tree that operators edit.

What is learned is no black box: it is written in the format of every other expert, and says in float32 on
every state exactly what scikit-learn's tree says.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from asad.bounded import BROKEN_ARCHIVE, printable
from asad.errors import ConfigError, LogError, UsageError
from asad.experts.files import MAX_FILE_BYTES
from asad.experts.state import ACTIONS, FEATURES, INDEX
from asad.experts.tree import NAME, Expert, Leaf, Node, faults, faults_of_actions, nearest
from asad.model import Floats, ShareCases

PROBABILITY_FLOOR = 0.01
"""Actions that were rarer than this count as this rare: one lucky draw shall not outweigh a hundred
others.
"""

SAME_SHARE = 1e-6
"""Shares that differ by less are one."""


def fit(
    X: NDArray[np.float32],
    y: NDArray[Any],
    *,
    name: str = "learned",
    about: str = "",
    actions: Sequence[float] = ACTIONS,
    weight: Floats | None = None,
    features: Sequence[str] | None = None,
    max_depth: int = 5,
    min_samples_leaf: int = 20,
    seed: int = 0,
) -> Expert:
    """An expert that knows by the state which share is best.

    `X` (rows, len(FEATURES)) are states in float32, NaN where unknown. `y` is either (rows,) the number of
    the action that each row speaks for, or (rows, m) the loss in [0, 1] of each action, NaN where it was
    not tried: then a row speaks for its best action (of equals the smallest share) as loudly as its best
    and worst differ. `weight` (rows,) ≥ 0 makes rows louder; rows of weight 0 are left out. `features` are
    those that the tree may test (default: those that are known in some row).

    Leaves hold how often each action was best there (weighted); scikit-learn's
    DecisionTreeClassifier grows the tree, and the same data and `seed` give the same one. Raises UsageError
    if arguments do not fit together, nothing can be learned, or the tree would be too large for its file.
    """
    X = np.asarray(X, dtype=np.float32)
    if X.ndim != 2 or X.shape[1] != len(FEATURES):
        raise UsageError(
            f"fit: states must be (rows, {len(FEATURES)}), these are {X.shape}; see asad.experts.FEATURES"
        )
    if np.isinf(X).any():
        raise UsageError("fit: a state is infinite; give NaN for what is unknown")
    if not NAME.fullmatch(name):
        raise UsageError(f"fit: {name[:80]!r} cannot name an expert; use letters, digits, _ . -, at most 64")
    if max_depth < 1 or min_samples_leaf < 1:
        raise UsageError("fit: max_depth and min_samples_leaf must be at least 1")
    for fault in faults_of_actions(actions):
        raise UsageError(f"fit: actions: {fault.problem}; {fault.remedy}")
    best, loudness = _targets(np.asarray(y), len(X), len(actions))
    if weight is not None:
        if np.shape(weight) != (len(X),) or not (
            np.isfinite(weight).all() and (np.asarray(weight) >= 0).all()
        ):
            raise UsageError(f"fit: weights must be {len(X)} numbers from 0")
        loudness = loudness * weight
    counts = loudness > 0
    if not counts.any():
        raise UsageError(
            "fit: no row says anything (none left, or all losses are 1 or equal); record more history"
        )
    columns = _columns(X[counts], features)

    classifier = DecisionTreeClassifier(
        max_depth=max_depth, min_samples_leaf=min_samples_leaf, random_state=seed
    )
    classifier.fit(X[counts][:, columns], best[counts], sample_weight=loudness[counts])
    expert = from_sklearn(
        classifier,
        features=[FEATURES[column].name for column in columns],
        name=name,
        about=about,
        actions=actions,
    )
    size = len(expert.to_toml().encode())
    if faults(expert) or size > MAX_FILE_BYTES:
        raise UsageError(
            f"fit: a tree of {len(expert.nodes) + len(expert.leaves)} nodes and leaves ({size} bytes) is too "
            "large to edit; lower --max-depth or raise --min-samples-leaf"
        )
    return expert


def from_sklearn(
    classifier: DecisionTreeClassifier,
    *,
    features: Sequence[str],
    name: str = "learned",
    about: str = "",
    actions: Sequence[float] = ACTIONS,
) -> Expert:
    """The expert that says what a fitted `classifier` says, on every float32 state, of unknown values too.

    `features` names the classifier's columns in their order; its classes are numbers of `actions`.
    """
    tree = classifier.tree_
    classes = np.asarray(classifier.classes_, dtype=np.intp)
    inner = tree.children_left >= 0
    names = _names(tree, inner, features, classes, actions)
    nodes: list[Node] = []
    leaves: list[Leaf] = []
    for entry in range(tree.node_count):
        if inner[entry]:
            no, yes = names[tree.children_left[entry]], names[tree.children_right[entry]]
            unknown = no if tree.missing_go_to_left[entry] else yes
            above = _round_down(tree.threshold[entry])
            nodes.append(Node(names[entry], features[tree.feature[entry]], above, yes, no, unknown))
        else:
            lend = np.zeros(len(actions))
            lend[classes] = tree.value[entry, 0]
            leaves.append(Leaf(names[entry], tuple(lend.tolist())))
    return Expert(name, about, tuple(actions), names[0], tuple(nodes), tuple(leaves))


def _targets(y: NDArray[Any], rows: int, actions: int) -> tuple[NDArray[np.intp], Floats]:
    """The action (rows,) that each row speaks for, and how loudly (rows,)."""
    if y.shape == (rows,) and y.dtype.kind in "iu":
        if rows and (y.min() < 0 or y.max() >= actions):
            raise UsageError(f"fit: actions must be numbered from 0 to {actions - 1}")
        return y.astype(np.intp), np.ones(rows)
    if y.shape == (rows, actions) and y.dtype.kind == "f":
        tried = ~np.isnan(y)
        if ((y[tried] < 0) | (y[tried] > 1)).any():
            raise UsageError("fit: a loss is not in [0, 1]")
        losses = np.where(tried, y, np.inf)
        best = np.argmin(losses, axis=1)
        worst = np.where(tried, y, -np.inf).max(axis=1, initial=-np.inf)
        gap = np.zeros(rows)
        np.subtract(worst, losses.min(axis=1, initial=np.inf), out=gap, where=tried.any(axis=1))
        return best, gap
    raise UsageError(f"fit: give ({rows},) numbers of actions, or ({rows}, {actions}) losses as floats")


def _columns(X: NDArray[np.float32], features: Sequence[str] | None) -> list[int]:
    if features is None:
        return [place for place in range(len(FEATURES)) if not np.isnan(X[:, place]).all()] or [0]
    for feature in features:
        if feature not in INDEX:
            hint = nearest(feature, INDEX)
            raise UsageError(
                f"fit: no feature is called {feature[:80]!r}; {hint}the features are {', '.join(INDEX)}"
            )
    if not features or len(set(features)) != len(features):
        raise UsageError("fit: name at least one feature, and none of them twice")
    return [INDEX[feature] for feature in features]


def _round_down(threshold: float) -> float:
    """The float32 that parts all float32 numbers as `threshold` does: the largest that is not above it."""
    rounded = np.float32(threshold)
    return float(np.nextafter(rounded, np.float32(-np.inf)) if float(rounded) > threshold else rounded)


def _names(
    tree: Any,
    inner: NDArray[np.bool_],
    features: Sequence[str],
    classes: NDArray[np.intp],
    actions: Sequence[float],
) -> list[str]:
    """A name for every node (`cpu over 0.31?`) and leaf (`mostly 30 %`), numbered where it would come
    twice.
    """

    def plain_name(entry: int) -> str:
        if not inner[entry]:
            return f"mostly {100 * actions[classes[np.argmax(tree.value[entry, 0])]]:.4g} %"
        feature, threshold = features[tree.feature[entry]], tree.threshold[entry]
        # scikit-learn parts the known from the unknown by a threshold that nothing exceeds
        return f"{feature} not known?" if threshold == np.inf else f"{feature} over {threshold:.3g}?"

    plain = [plain_name(entry) for entry in range(tree.node_count)]
    often = Counter(plain)
    seen: Counter[str] = Counter()
    names = []
    for name in plain:
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if often[name] > 1 else name)
    return names


# ---------------------------------------------------------------------------------------------------- history


@dataclass(frozen=True, slots=True)
class History:
    """What was lent in the past, in which state, and what came of it; one row a decision."""

    X: NDArray[np.float32]
    """(rows, len(FEATURES)) states, NaN where unknown."""
    action: NDArray[np.intp]
    """(rows,) number of the action taken."""
    weight: Floats
    """(rows,) `1 - loss`, over the probability with which the action was drawn where that was recorded."""
    features: tuple[str, ...]
    """Columns of features that the file has."""
    ignored: tuple[str, ...]
    """Columns that mean nothing here."""


def read_history(path: str | Path, actions: Sequence[float] = ACTIONS) -> History:
    """The history in a CSV file with a header, or in an .npz archive with one array (rows,) a column.

    Columns, in any order: `action` (share lent, one of `actions`), `loss` in [0, 1], any of the features
    (an empty cell or NaN: unknown) and, optionally, `probability` in (0, 1], with which the action was
    drawn: without it, actions that were tried more often weigh more. Others are ignored. Raises LogError
    with line and column.
    """
    path = Path(path)
    shown = printable(str(path))
    try:
        columns = _read_npz(path, shown) if path.suffix == ".npz" else _read_csv(path, shown)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise LogError(shown, None, None, reason, "name a file that can be read") from error
    first_line = 1 if path.suffix == ".npz" else 2  # rows of an archive are counted from 1

    for name in ("action", "loss"):
        if name not in columns:
            raise LogError(
                shown, None, name, "the column is missing", "add it (share lent; loss from 0 to 1)"
            )
    rows = len(columns["action"])
    if rows == 0:
        raise LogError(shown, None, None, "no rows", "record some history first")
    known = [feature for feature in FEATURES if feature.name in columns]
    if not known:
        raise LogError(shown, None, None, "no column is a feature", f"name columns {', '.join(INDEX)}")

    def column(name: str, low: float, high: float, *, may_lack: bool = False) -> Floats:
        values = columns[name]
        wrong = ~((low <= values) & (values <= high) & np.isfinite(values))
        if may_lack:
            wrong &= ~np.isnan(values)
        if wrong.any():
            row = int(np.argmax(wrong))
            limit = f"from {low:g} to {high:g}" if math.isfinite(high) else f"from {low:g}"
            remedy = f"give a number {limit}{', or nothing for unknown' if may_lack else ''}"
            raise LogError(shown, first_line + row, name, f"{values[row]:g} is out of range", remedy)
        return values

    weight = 1 - column("loss", 0, 1)
    if "probability" in columns:
        weight = weight / np.maximum(column("probability", 1e-12, 1), PROBABILITY_FLOOR)
    lent = column("action", 0, 1)
    action = lent_actions(lent, actions)
    far = action < 0
    if far.any():
        row = int(np.argmax(far))
        listed = ", ".join(f"{action:g}" for action in actions)
        problem = f"{lent[row]:g} is not among the actions"
        raise LogError(shown, first_line + row, "action", problem, f"use {listed}, or give --actions")

    X = np.full((rows, len(FEATURES)), np.nan, dtype=np.float32)
    for feature in known:
        X[:, INDEX[feature.name]] = column(feature.name, feature.low, feature.high, may_lack=True)
    return History(
        X=X,
        action=action,
        weight=weight,
        features=tuple(feature.name for feature in known),
        ignored=tuple(
            name for name in columns if name not in INDEX and name not in ("action", "loss", "probability")
        ),
    )


def history_of(cases: ShareCases, actions: Sequence[float] = ACTIONS) -> History:
    """The history in recorded cases, each of which lent one of `actions` (see `lent_actions`)."""
    return History(
        X=cases.state,
        action=lent_actions(cases.share, actions),
        weight=(1 - cases.loss) / np.maximum(cases.probability, PROBABILITY_FLOOR),
        features=tuple(FEATURES[place].name for place in _columns(cases.state, None)),
        ignored=(),
    )


def lent_actions(share: Floats, actions: Sequence[float]) -> NDArray[np.intp]:
    """(rows,) number of the action that lends that share; -1 if none does."""
    distance = np.abs(share[:, None] - np.asarray(actions)[None, :])
    return np.where(distance.min(axis=1) > SAME_SHARE, -1, np.argmin(distance, axis=1))


def _read_csv(path: Path, shown: str) -> dict[str, Floats]:
    """Column → numbers, NaN for an empty cell."""
    wanted = {*INDEX, "action", "loss", "probability"}
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) != len(header):
                twice = next(name for name in header if header.count(name) > 1)
                raise LogError(
                    shown, 1, printable(twice), "there are two of that name", "remove or rename one"
                )
            cells: dict[str, list[float]] = {name: [] for name in header}
            for row in reader:
                if not row:
                    raise LogError(shown, reader.line_num, None, "an empty line", "remove it")
                if len(row) != len(header):
                    problem = f"{len(row)} cells under {len(header)} columns"
                    raise LogError(shown, reader.line_num, None, problem, "give each column one")
                for name, cell in zip(header, row, strict=True):
                    if name not in wanted:
                        continue
                    try:
                        cells[name].append(float(cell) if cell.strip() else math.nan)
                    except ValueError:
                        problem = f"{cell[:80]!r} is not a number"
                        raise LogError(shown, reader.line_num, name, problem, "give a number") from None
        except UnicodeDecodeError as error:
            raise LogError(shown, None, None, "not UTF-8", "save the file as UTF-8") from error
        except csv.Error as error:
            raise LogError(shown, reader.line_num, None, f"not CSV: {error}", "correct the quotes") from error
    return {name: np.array(numbers, dtype=np.float64) for name, numbers in cells.items()}


def _read_npz(path: Path, shown: str) -> dict[str, Floats]:
    """Name of each array → its numbers; all (rows,)."""
    try:
        # opened by ourselves: numpy leaves a broken one open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            columns = {name: np.asarray(archive[name]) for name in archive.files}
    except BROKEN_ARCHIVE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # it cannot be read at all
        # numpy's own words would have it loaded as pickle
        remedy = "write it with numpy.savez, one array of numbers a column"
        raise LogError(shown, None, None, "not an archive of arrays", remedy) from error
    rows = {array.shape for array in columns.values()}
    if len(rows) > 1 or any(array.ndim != 1 or array.dtype.kind not in "iufb" for array in columns.values()):
        remedy = "write it with numpy.savez, one array (rows,) of numbers a column"
        raise LogError(shown, None, None, "the arrays are not columns of equal length", remedy)
    return {name: array.astype(np.float64) for name, array in columns.items()}


def write_expert(expert: Expert, path: str | Path, *, overwrite: bool = False) -> None:
    """Write an expert's file. Raises ConfigError if it is there already (unless `overwrite`) or cannot
    be written.
    """
    try:
        with Path(path).open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write(expert.to_toml())
    except FileExistsError:
        raise ConfigError(
            f"{printable(str(path))}: it is there already; choose another name or --force"
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{printable(str(path))}: {reason}; choose a place that can be written") from error
