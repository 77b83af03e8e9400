"""How the variants are trained, by name: those of Table 1 of the OSDEC paper, `osdec`, and `osdec-paper` (Table 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from asad.defer.deferral_options import Packing
from asad.defer.jobs import PAPER_WORTH, Trajectories, Worth
from asad.defer.network import Shape
from asad.defer.outlook import PAPER, PAPER_CLUSTER
from asad.errors import UsageError


class Data(NamedTuple):
    """What is learned from."""

    train: Trajectories
    kept: Trajectories
    """Kept aside: decides what is best and when to stop."""
    period: float
    """Steps of a day, 0 for none."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a training does. A figure that the paper does not print is marked so."""

    shape: Shape = field(default_factory=Shape)
    algorithm: str = "ppo"
    """`ppo` or `reinforce`."""
    worth: Worth = field(default_factory=Worth)
    packing: Packing = "skip-fit"
    hold: bool = True
    """Does a score of 0 or less hold a job back? Ours: in the paper whatever fits is started."""
    knows_end: bool = True
    """Does the network see how far the end of the trajectory is? Where time has no end it sees that it is far."""
    trajectories: int = 64
    """Of an iteration, all of them at once."""
    group: int = 8
    """So many of them are the same one, played with different chance: what an action is worth is seen by how it went
    beside the others of its group, without the chance that is in jobs and capacity. Ours; 1 is the paper's."""
    generations: int = 0
    """Of the teacher, by evolution strategies; 0 starts from nothing."""
    teacher_hidden: int = 0
    lessons: int = 5
    """Rounds of imitation of the teacher."""
    lesson_passes: int = 3
    lesson_rate: float = 1e-3
    improvements: int = 14
    """Rounds in which it learns what starting each job now is worth, played ahead (`.improve`); ours."""
    improve_trajectories: int = 64
    """Of a round."""
    improve_passes: int = 1
    """Over the rounds that are learned from together."""
    improve_rate: float = 4e-4
    """Of learning in the first round; it falls to a tenth."""
    futures: int = 48
    depth: int = 30
    """Steps that are played ahead in each."""
    remembered: int = 8
    """Rounds that are learned from together."""
    newest: float = 0.3
    """Weight of the newest round in the mean of weights that goes on."""
    sizes: tuple[float, ...] = (1.3, 1.6)
    """By which all scores are multiplied if that earns more in training."""
    iterations: int = 48
    """Of PPO."""
    value_only: int = 1
    """Of these, the first in which the value alone learns, where there was imitation."""
    mini_batch: int = 512
    epochs: int = 2
    """Passes over an iteration's steps (not printed)."""
    most_change: float = 0.04
    """Of the policy in an iteration (Kullback-Leibler): beyond, its passes end. 0 for no bound, as in the paper."""
    rate: tuple[float, float] = (3e-5, 1e-5)
    """Of learning, falling evenly from the first to the last iteration. Lower than the paper's: an iteration's gradient
    is mostly chance, which only many of them average out."""
    value_rate: float = 2.0
    """By which the value's head learns faster (Table 3: 2e-4 against 1e-4)."""
    gamma: float = 0.99
    lambda_: float = 0.95
    """Not printed."""
    clip: float = 0.2
    """ε of (8) (not printed)."""
    entropy: float = 0.0
    auxiliary_rate: tuple[float, float] = (1e-2, 1e-3)
    patience: int = 8
    """So many evaluations without a better one end the training."""
    evaluate_every: int = 5
    """Iterations between evaluations, on trajectories that are not trained on."""


_ATTENTION = Shape()
_TABLE_1 = Recipe()
VARIANTS: Mapping[str, Recipe] = {
    # without a critic there is nothing that the value alone could learn first
    "reinforce": replace(_TABLE_1, algorithm="reinforce", value_only=0),
    "ppo": replace(_TABLE_1, shape=replace(_ATTENTION, network="mlp", width=128, information="none")),
    "pointernet": replace(_TABLE_1, shape=replace(_ATTENTION, network="pointer", information="none")),
    "ppo-att": replace(_TABLE_1, shape=replace(_ATTENTION, information="none")),
    "ppo-att-auxh": replace(_TABLE_1, shape=replace(_ATTENTION, information="high")),
    "ppo-att-auxl": replace(_TABLE_1, shape=replace(_ATTENTION, information="low")),
    "osdec": _TABLE_1,
    "osdec-paper": Recipe(
        shape=Shape(job_columns=PAPER, cluster_columns=PAPER_CLUSTER, running=True, future=True, factor=10.0),
        worth=PAPER_WORTH,
        packing="prefix",
        hold=False,
        knows_end=False,
        trajectories=21,
        group=1,
        mini_batch=64,
        epochs=10,
        rate=(1e-4, 1e-5),
        iterations=300,
        lessons=0,
        improvements=0,
        sizes=(),
        value_only=0,
        most_change=0.0,
    ),
}
"""`osdec-paper`: a batch of 2048 steps (21 trajectories of 96 are the nearest), mini-batches of 64, learning rates from
1e-4 to 1e-5 and twice that for the value, γ 0.99, ω1 = 2, ω2 = 10, one head, auxiliary layers of 5 that count tenfold,
learned at 1e-2 to 1e-3, and the state as (2) has it."""


def with_steps(recipe: Recipe, data: Data, steps: int) -> Recipe:
    """With as many iterations of PPO as so many steps of trajectories leave after the stages before it, to the end.

    Raises UsageError where they leave none.
    """
    rounds = recipe.lessons + recipe.improvements
    before = rounds * min(recipe.improve_trajectories, len(data.train)) * data.train.steps
    if recipe.sizes:
        before += (1 + len(recipe.sizes)) * data.train.capacity.size
    left = (steps - before) // (recipe.trajectories * data.train.steps)
    if left < 1:
        raise UsageError(
            f"--steps {steps}: {before} are gone before {recipe.algorithm} begins, and an iteration takes "
            f"{recipe.trajectories * data.train.steps}; give more"
        )
    return replace(recipe, iterations=left, patience=left)


def plain(recipe: Recipe) -> dict[str, Any]:
    """For a description: numbers, truth values, texts and lists of them."""
    found = asdict(recipe)
    del found["shape"]
    found["worth"] = {"delay": recipe.worth.delay, "violation": recipe.worth.violation}
    return found


def changed(recipe: Recipe, options: Mapping[str, str]) -> Recipe:
    """With numbers of it set otherwise, from texts (`--set iterations=10`). Raises UsageError naming what there is."""
    known = {
        one.name: getattr(recipe, one.name)
        for one in fields(recipe)
        if isinstance(getattr(recipe, one.name), int | float)
    }
    made: dict[str, Any] = {}
    for key, text in options.items():
        if key not in known:
            raise UsageError(f"--set {key[:40]}: there are {', '.join(known)}")
        kind = type(known[key])
        try:
            value = {"true": True, "false": False}[text] if kind is bool else kind(text)
        except (ValueError, KeyError):
            raise UsageError(
                f"--set {key}={text[:40]}: not of type {kind.__name__}, as {known[key]} is"
            ) from None
        if not 0 <= value < 1e7:
            raise UsageError(f"--set {key}={text[:40]}: give 0 or more")
        made[key] = value
    return replace(recipe, **made)
