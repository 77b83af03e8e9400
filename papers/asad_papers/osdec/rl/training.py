"""Training of one network: teacher, lessons, PPO; evaluated as it goes, stopped early, resumed where it was left.

The stages of a recipe (`asad_papers.osdec.rl.recipes`):

1. the scale and the forecast of the capacity are fitted to the training trajectories;
2. a perceptron is evolved as a teacher (`asad_papers.osdec.rl.evolve`), if the recipe has generations;
3. the network learns from it (`asad_papers.osdec.rl.imitate`), and its auxiliary tasks from what both saw;
4. it learns what starting each job now is worth, played both ways ahead (`asad_papers.osdec.rl.improve`), and the
   size of its scores is set by playing the training trajectories;
5. PPO goes on from there (Algorithm 1 of the paper); what is best on trajectories kept aside is the model, of PPO only
   what beats what it began with by more than its standard error.

What each stage adds is measured on the same trajectories, so that the standard error of a difference is a paired one.

The same recipe, trajectories and seed give the same bytes on the same machine, also when interrupted and resumed.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger, configure
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from asad.defer.jobs import Trajectories
from asad.defer.network import Model
from asad.errors import UsageError
from asad.model import Floats
from asad_papers.osdec.deferral_figures import standard_error
from asad_papers.osdec.deferral_fitting import fit_coming, fit_forecast, learned_rollout
from asad_papers.osdec.rl import auxiliary, imitate, improve
from asad_papers.osdec.rl.batch import Batch, Sight
from asad_papers.osdec.rl.checkpoint import Progress, joined, load, parted, save
from asad_papers.osdec.rl.evolve import Teacher
from asad_papers.osdec.rl.ppo import Gaussian, Lockstep, Ppo, Reinforce
from asad_papers.osdec.rl.recipes import Data, Recipe, plain
from asad_papers.osdec.rl.torch_network import arrays_of, set_arrays

Report = Callable[[str, int, int, float, float], None]
"""Stage, step, steps of the stage, mean total in training, best so far on what is kept aside."""
CHECKPOINT = "checkpoint.npz"
MOST_LOGGED = 10**9
"""The library logs every so many iterations; we do it ourselves."""


class Training:
    """One network, one seed."""

    def __init__(
        self,
        recipe: Recipe,
        data: Data,
        seed: int,
        folder: Path,
        name: str,
        *,
        resume: bool = False,
        report: Report | None = None,
    ) -> None:
        """Checkpoints, and the logs for TensorBoard, go to `folder`.

        Raises UsageError for a checkpoint that it cannot resume, and for groups that do not divide the trajectories.
        """
        if recipe.group < 1 or recipe.trajectories < 1 or recipe.trajectories % recipe.group:
            raise UsageError(
                f"defer train: {recipe.trajectories} trajectories are not groups of {recipe.group}; "
                "set trajectories to a multiple of group"
            )
        self.recipe, self.data, self.seed, self.folder, self.name = recipe, data, seed, folder, name
        self._report = report or (lambda *_: None)
        self.sight = _sight(recipe, data)
        folder.mkdir(parents=True, exist_ok=True)
        self._lockstep = Lockstep(
            self._batch(recipe.trajectories),
            recipe.trajectories,
            self._next_trajectories,
        )
        self.progress = Progress()
        self.states: dict[str, dict[str, Floats]] = {}
        """Weights: the `best`, those of `start` and `improved` (what PPO begins with), and the `last`."""
        learner = {"ppo": Ppo, "reinforce": Reinforce}[recipe.algorithm]
        with warnings.catch_warnings():
            # the last mini-batch of a pass may be a smaller one: so it is in the paper too (2048 are no 21 · 96)
            warnings.filterwarnings("ignore", message="You have specified a mini-batch size")
            self.ppo = learner(
                Gaussian,
                self._lockstep,
                learning_rate=lambda _: self._falling(recipe.rate),
                n_steps=data.train.steps,
                batch_size=recipe.mini_batch,
                n_epochs=recipe.epochs,
                gamma=recipe.gamma,
                gae_lambda=recipe.lambda_,
                clip_range=recipe.clip,
                ent_coef=recipe.entropy,
                vf_coef=0.5,
                max_grad_norm=0.5,
                target_kl=recipe.most_change or None,
                policy_kwargs={"shape": recipe.shape, "value_rate": recipe.value_rate},
                seed=seed,
                device="cpu",
            )
        self.ppo.group = recipe.group
        assert isinstance(self.ppo.policy, Gaussian)
        self.policy = self.ppo.policy
        self.ppo.set_logger(_logger(folder))
        self._teacher = Teacher(recipe.teacher_hidden, seed)
        self._optimizers = {"optimizer": self.policy.optimizer}
        if self.policy.auxiliary is not None:
            self._optimizers["tasks"] = torch.optim.Adam(self.policy.auxiliary.parameters())
        if resume and (folder / CHECKPOINT).is_file():
            self._restore()

    # ------------------------------------------------------------------------------------------------- the stages

    def run(self, minutes: float = float("inf")) -> Model:
        """All stages that are left, or as many iterations of PPO as begin within so many minutes. Returns the best."""
        started, recipe, progress = time.monotonic(), self.recipe, self.progress
        for stage, work, after in (
            ("teacher", self._evolve, "lessons"),
            ("lessons", self._learn_lessons, "improve"),
            ("improve", self._improve, "resize"),
            ("resize", self._resize, "ppo"),
        ):
            if progress.stage == stage:
                work()
                progress.stage = after
                self._save()
        while progress.iteration < recipe.iterations:
            late = time.monotonic() - started > 60.0 * minutes
            idle = progress.iteration - progress.best_at > recipe.patience * recipe.evaluate_every
            if late or idle:
                break
            self._iterate()
        self._consider("last", progress.iteration)
        progress.figures |= progress.added()
        return self.model()

    def model(self, state: str = "best") -> Model:
        """With the weights of one of `states`."""
        recipe, sight = self.recipe, self.sight
        arrays = {
            **self.states[state],
            "forecast": sight.forecast,
            "coming": sight.coming,
            "unknown": sight.unknown,
            "worth": np.array(recipe.worth),
        }
        made = {
            "seed": self.seed, "state": state,
            "iterations_done": self.progress.iteration,
            "steps": self.progress.steps,
            **plain(recipe),
            "figures": self.progress.figures,
        }  # fmt: skip
        return Model(
            self.name, recipe.shape, sight.scale, sight.period, recipe.knows_end, recipe.hold, recipe.packing,
            sight.spread, arrays, made,
        )  # fmt: skip

    def _batch(self, many: int, sight: Sight | None = None) -> Batch:
        return Batch(sight or self.sight, many, self.recipe.worth, self.recipe.packing)

    def _evolve(self) -> None:
        generations, kept = self.recipe.generations, self.data.kept
        if not generations:
            return
        # it looks at each waiting job by itself
        sight = self.sight._replace(future=False, running=False, window=0)
        self._teacher.evolve(
            generations,
            self.data.train,
            lambda many: self._batch(many, sight),
            lambda step, mean: self._report("teacher", step, generations, mean, float("nan")),
        )
        self.progress.figures["teacher"] = self._teacher.total(
            self._teacher.weights, self._batch(len(kept), sight), kept
        )

    def _learn_lessons(self) -> None:
        recipe, many = self.recipe, min(self.recipe.improve_trajectories, len(self.data.train))
        batch = self._batch(many)
        if recipe.lessons:
            scores = np.empty((many, self.sight.most_rows))
            self._set_spread(self._teacher.spread(batch, self._different(2, 0, many), scores))
            batch.sight = self.sight

        def teacher(batch: Batch, _: Floats) -> Floats:
            self._teacher.ask(batch, scores)
            return np.tanh(scores / self.sight.spread)

        optimizer = torch.optim.Adam(self.policy.scores.parameters())
        lessons: list[imitate.Lesson] = []
        for k in range(recipe.lessons):
            lesson, earned = imitate.gather(
                self.policy, teacher, batch, self._different(2, k + 1, many), recipe.gamma, k > 0
            )
            self.progress.steps += len(lesson.taught)
            lessons = [*lessons[-2:], lesson]
            self._learn_tasks(batch.history, batch.targets(), recipe.auxiliary_rate[0], 2)
            rate = recipe.lesson_rate * (1.0 - 0.9 * k / recipe.lessons)
            imitate.learn(self.policy, optimizer, lessons, rate, recipe.lesson_passes, 256)
            self._report("lessons", k + 1, recipe.lessons, earned, self.progress.best)
        self._consider("start", 0)

    def _learn_tasks(self, history: Floats, targets: Floats, rate: float, passes: int) -> None:
        """The auxiliary tasks learn from what was seen, where there are any."""
        if self.policy.auxiliary is not None:
            error = auxiliary.learn(
                self.policy.auxiliary, self._optimizers["tasks"], history, targets, rate, passes
            )
            self.ppo.logger.record("auxiliary/error", error)

    def _set_spread(self, spread: float) -> None:
        self.sight = self._lockstep.batch.sight = self.sight._replace(spread=spread)

    def _improve(self) -> None:
        recipe, train = self.recipe, self.data.train
        if not recipe.improvements:
            return
        rollout = learned_rollout(
            train, int(self.data.period), futures=recipe.futures, depth=recipe.depth, delay=recipe.worth.delay,
            violation=recipe.worth.violation, seed=1_000_000 * self.seed,
        )  # fmt: skip
        many = min(recipe.improve_trajectories, len(train))
        batch, improver, scores = self._batch(many), improve.Improver(rollout), self.policy.scores
        optimizer = torch.optim.Adam(scores.parameters())
        # the mean of the last rounds is better than any one of them
        mean = AveragedModel(scores, multi_avg_fn=get_ema_multi_avg_fn(1.0 - recipe.newest))
        lessons: list[imitate.Lesson] = []
        for k in range(recipe.improvements):
            lesson, earned = imitate.gather(
                self.policy, improver, batch, self._different(3, k, many), recipe.gamma, True
            )
            self.progress.steps += len(lesson.taught)
            lessons = [*lessons[1 - recipe.remembered :], lesson]
            rate = recipe.improve_rate * (1.0 - 0.9 * k / recipe.improvements)
            imitate.learn(self.policy, optimizer, lessons, rate, recipe.improve_passes, 256)
            mean.update_parameters(scores)
            newest = copy.deepcopy(scores.state_dict())
            scores.load_state_dict(mean.module.state_dict())
            self._consider("improved", 0)
            if k < recipe.improvements - 1:
                scores.load_state_dict(newest)
            self._report("improve", k + 1, recipe.improvements, earned, self.progress.best)

    def _resize(self) -> None:
        if not self.recipe.sizes:
            return
        train = self.data.train

        def earned() -> float:
            self.progress.steps += train.capacity.size
            return float(imitate.played(self.policy, self._batch(len(train)), train).mean())

        set_arrays(self.policy.scores, self.policy.auxiliary, self.states["best"])
        improve.resize(self.policy.scores.mean, self.recipe.sizes, earned)
        # not chosen on what is kept aside: there is less of it, and sizes differ by less than its chance
        self.progress.best = -np.inf
        self._consider("improved", 0)

    def _iterate(self) -> None:
        recipe, progress = self.recipe, self.progress
        warm = bool(recipe.lessons) and progress.iteration < recipe.value_only
        for name, weights in self.policy.scores.named_parameters():
            weights.requires_grad_(not warm or name.startswith("value"))
        self.ppo.learn(
            self.ppo.n_steps * self.ppo.n_envs, reset_num_timesteps=False, log_interval=MOST_LOGGED
        )
        progress.iteration += 1
        progress.steps += self.ppo.n_steps * self.ppo.n_envs
        history, targets = self._lockstep.seen[-1]
        self._lockstep.seen.clear()
        self._learn_tasks(history, targets, self._falling(recipe.auxiliary_rate), 1)
        earned = self._lockstep.totals[-1]
        self.ppo.logger.record("rollout/total", earned)
        if progress.iteration % recipe.evaluate_every == 0 or progress.iteration == recipe.iterations:
            self._consider("", progress.iteration)
            self._save()
        self.ppo.logger.dump(progress.iteration)
        self._report("ppo", progress.iteration, recipe.iterations, earned, progress.best)

    def _consider(self, stage: str, iteration: int) -> None:
        """Is what it plays now, without chance, the best so far? What a stage reached is kept by its name.

        Of what PPO tries, only what beats the best by more than the standard error does: the best of so many is not.
        """
        progress, kept = self.progress, self.data.kept
        totals = imitate.played(self.policy, self._batch(len(kept)), kept)
        reached = float(totals.mean())
        self.ppo.logger.record("kept/total", reached)
        chance = standard_error(np.subtract(totals, progress.totals["best"])) if iteration else 0.0
        better = reached - progress.best > chance
        if better:
            progress.best, progress.best_at = reached, iteration
        arrays = arrays_of(self.policy.scores, self.policy.auxiliary)
        for state in ([stage] if stage else []) + (["best"] if better else []):
            self.states[state], progress.totals[state] = arrays, totals.tolist()

    # ------------------------------------------------------------------------------------------------- what goes on

    def _next_trajectories(self) -> Trajectories:
        rng = np.random.default_rng((self.seed, 1, self.progress.draws))
        self.progress.draws += 1
        many, size = len(self.data.train), self.recipe.trajectories // self.recipe.group
        rows = rng.choice(many, size, replace=many < size)
        return self.data.train.take(np.repeat(rows, self.recipe.group))

    def _different(self, stage: int, round_: int, many: int) -> Trajectories:
        """Trajectories of a round of a stage before PPO: nothing is by chance there, so that none is taken twice."""
        rng = np.random.default_rng((self.seed, stage, round_))
        return self.data.train.take(rng.choice(len(self.data.train), many, replace=False))

    def _falling(self, rate: tuple[float, float]) -> float:
        return rate[0] + (rate[1] - rate[0]) * (self.progress.iteration / max(self.recipe.iterations, 1))

    def _identity(self) -> dict[str, Any]:
        return {
            "recipe": plain(self.recipe),
            "shape": repr(self.recipe.shape),
            "seed": self.seed,
            "name": self.name,
        }

    def _save(self) -> None:
        save(
            self.folder / CHECKPOINT,
            {
                **self._identity(), **asdict(self.progress), "spread": self.sight.spread,
                "timesteps": self.ppo.num_timesteps, "updates": self.ppo._n_updates,
            },
            {"teacher": self._teacher.weights, **joined(self.states)},
            self.policy,
            self._optimizers,
        )  # fmt: skip

    def _restore(self) -> None:
        kept, arrays = load(self.folder / CHECKPOINT, self._identity(), self.policy, self._optimizers)
        self.progress = Progress(**{each.name: kept[each.name] for each in fields(Progress)})
        # the trajectories drawn last were not begun
        self.progress.draws -= bool(self.progress.iteration)
        self._set_spread(kept["spread"])
        self.states = {state: parted(arrays, state) for state in self.progress.totals}
        self._teacher.weights = arrays["teacher"]
        self.ppo.num_timesteps, self.ppo._n_updates = kept["timesteps"], kept["updates"]


def _sight(recipe: Recipe, data: Data) -> Sight:
    """What is seen, with what the training trajectories let expect."""
    scale = float(data.train.capacity.mean())
    return Sight(
        scale,
        data.period,
        fit_forecast(data.train.capacity, data.period, scale),
        *fit_coming(data.train, data.period),
        recipe.knows_end,
        recipe.shape.running,
        recipe.shape.window if recipe.shape.informed else 0,
        future=recipe.shape.future,
        hold=recipe.hold,
    )


def _logger(folder: Path) -> Logger:
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        return configure(str(folder), ["csv"])
    return configure(str(folder), ["tensorboard"])
