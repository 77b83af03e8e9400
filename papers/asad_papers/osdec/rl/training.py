"""Training of one network: teacher, lessons, PPO; evaluated as it goes, stopped early, resumed where it was left.

The stages of a recipe (`asad_papers.osdec.rl.recipes`):

1. the scale and the forecast of the capacity are fitted to the training trajectories;
2. a perceptron is evolved as a teacher (`asad_papers.osdec.rl.evolve`), if the recipe has generations;
3. the network learns from it (`asad_papers.osdec.rl.imitate`), and its auxiliary tasks from what both saw;
4. it learns what starting each job now is worth, played both ways ahead (`asad_papers.osdec.rl.improve`);
5. PPO goes on from there (Algorithm 1 of the paper); what is best on trajectories kept aside is the model.

The same recipe, trajectories and seed give the same bytes on the same machine, also when interrupted and resumed.
"""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger, configure
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from asad.bounded import BROKEN_ARCHIVE
from asad.defer.jobs import Trajectories
from asad.defer.network import Model
from asad.defer.outlook import fit_coming, fit_forecast
from asad.defer.rollout import Rollout
from asad.errors import UsageError
from asad.model import Floats
from asad_papers.osdec.rl import auxiliary, imitate, improve
from asad_papers.osdec.rl.batch import Batch, Sight
from asad_papers.osdec.rl.evolve import Draws, Evolution, first_weights, score_all, total
from asad_papers.osdec.rl.ppo import Gaussian, Lockstep, Ppo, Reinforce
from asad_papers.osdec.rl.recipes import Data, Recipe, plain
from asad_papers.osdec.rl.torch_network import arrays_of

Tell = Callable[[str, int, int, float, float], None]
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
        workers: Executor | None = None,
        tell: Tell | None = None,
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
        self._workers, self._tell = workers, tell or (lambda *_: None)
        scale = float(data.train.capacity.mean())
        self.sight = Sight(
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
        folder.mkdir(parents=True, exist_ok=True)
        self._lockstep = Lockstep(
            Batch(self.sight, recipe.trajectories, recipe.worth, recipe.packing),  # type: ignore[arg-type]
            recipe.trajectories,
            self._next_trajectories,
        )
        self._draws = 0
        self._stage, self._iteration = "teacher", 0
        self._best, self._best_at, self._best_arrays = -np.inf, 0, dict[str, Floats]()
        self.figures: dict[str, float] = {}
        """What was reached on what is kept aside, by stage."""
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
        self._teacher = first_weights(recipe.teacher_hidden, np.random.default_rng(seed))
        self._auxiliary = (
            torch.optim.Adam(self.policy.auxiliary.parameters())
            if self.policy.auxiliary is not None
            else None
        )
        if resume:
            self._restore()

    # ------------------------------------------------------------------------------------------------- the stages

    def run(self, minutes: float = float("inf")) -> Model:
        """All stages that are left, or as many iterations of PPO as begin within so many minutes. Returns the best."""
        started = time.monotonic()
        if self._stage == "teacher":
            self._evolve()
            self._stage = "lessons"
            self._save()
        if self._stage == "lessons":
            self._learn_lessons()
            self._consider(0)
            self._stage = "improve"
            self._save()
        if self._stage == "improve":
            self._improve()
            self._stage = "ppo"
            self._save()
        while self._iteration < self.recipe.iterations:
            late = time.monotonic() - started > 60.0 * minutes
            idle = self._iteration - self._best_at > self.recipe.patience * self.recipe.evaluate_every
            if late or idle:
                break
            self._iterate()
        return self.model()

    def model(self) -> Model:
        """The best so far."""
        recipe = self.recipe
        arrays = {**self._best_arrays, **self._expected()}
        told = {
            "seed": self.seed,
            "iterations_done": self._iteration,
            **plain(recipe),
            "figures": self.figures,
        }
        return Model(
            self.name, recipe.shape, self.sight.scale, self.sight.period, recipe.knows_end, recipe.hold,
            recipe.packing, self.sight.spread, arrays, told,
        )  # fmt: skip

    def _expected(self) -> dict[str, Floats]:
        sight, worth = self.sight, self.recipe.worth
        return {
            "forecast": sight.forecast,
            "coming": sight.coming,
            "unknown": sight.unknown,
            "worth": np.array([worth.delay, worth.violation]),
        }

    def _evolve(self) -> None:
        recipe = self.recipe
        if not recipe.generations:
            return
        evolution = Evolution(self._teacher, Draws(), self.seed)
        job = partial(
            _earned, recipe.teacher_hidden, self._teacher_sight(), recipe, self.data.train, self.seed
        )
        mean = 0.0
        for k in range(recipe.generations):
            rate = Draws().rate * (1.0 - 0.8 * k / recipe.generations)

            def evaluate(candidates: list[Floats], generation: int) -> Floats:
                work = [(one, generation) for one in candidates]
                run = map if self._workers is None else partial(self._workers.map, chunksize=8)
                return np.array(list(run(job, work)))

            mean = evolution.step(evaluate, rate)
            self._tell("teacher", k + 1, recipe.generations, mean, float("nan"))
        self._teacher = evolution.mean
        batch = Batch(self._teacher_sight(), len(self.data.kept), recipe.worth, recipe.packing)  # type: ignore[arg-type]
        self.figures["teacher"] = float(
            total(self._teacher, recipe.teacher_hidden, batch, self.data.kept).mean()
        )

    def _teacher_sight(self) -> Sight:
        return replace_sight(self.sight)

    def _learn_lessons(self) -> None:
        recipe = self.recipe
        if not recipe.lessons:
            return
        scores = np.empty((recipe.trajectories, self.sight.most_rows))
        self._set_spread(self._spread(scores))

        def teacher(batch: Batch, _: Floats) -> Floats:
            self._ask_teacher(batch, scores)
            return np.tanh(scores / self.sight.spread)

        optimizer = torch.optim.Adam(self.policy.scores.parameters())
        lessons: list[imitate.Lesson] = []
        for k in range(recipe.lessons):
            lesson, earned = imitate.gather(
                self.policy,
                teacher,
                self._lockstep.batch,
                self._next_trajectories(),
                recipe.gamma,
                k > 0,
            )
            lessons = [*lessons[-2:], lesson]
            if self._auxiliary is not None and self.policy.auxiliary is not None:
                batch = self._lockstep.batch
                auxiliary.learn(
                    self.policy.auxiliary,
                    self._auxiliary,
                    batch.history,
                    batch.targets(),
                    recipe.auxiliary_rate[0],
                    2,
                )
            rate = recipe.lesson_rate * (1.0 - 0.9 * k / recipe.lessons)
            imitate.learn(self.policy, optimizer, lessons, rate, recipe.lesson_passes, 256)
            self._tell("lessons", k + 1, recipe.lessons, earned, self._best)

    def _ask_teacher(self, batch: Batch, scores: Floats) -> None:
        """Into `scores` (B, n) what it says of all rows, also of those that may not start."""
        score_all(
            self._teacher, self.recipe.teacher_hidden, batch.jobs, batch.count, batch.startable, batch.cluster,
            scores, False,
        )  # fmt: skip

    def _spread(self, scores: Floats) -> float:
        """By what its scores are divided, so that the network's tanh can say them: twice their root mean square.

        Its scores are gains as the column `gain_all` has them, so the network's tell gains too.
        """
        batch, squares, many = self._lockstep.batch, 0.0, 0
        batch.begin(self._next_trajectories())
        while not batch.done:
            self._ask_teacher(batch, scores)
            said = scores[batch.startable]
            squares, many = squares + float((said * said).sum()), many + len(said)
            batch.step(batch.chosen(scores))
        return 2.0 * float(np.sqrt(squares / max(many, 1))) or 1.0

    def _set_spread(self, spread: float) -> None:
        self.sight = self.sight._replace(spread=spread)
        self._lockstep.batch.sight = self.sight

    def _improve(self) -> None:
        recipe, train = self.recipe, self.data.train
        if not recipe.improvements:
            return
        rollout = Rollout.learned(
            train, int(self.data.period), futures=recipe.futures, depth=recipe.depth, delay=recipe.worth.delay,
            violation=recipe.worth.violation, seed=1_000_000 * self.seed,
        )  # fmt: skip
        many = min(recipe.improve_trajectories, len(train))
        batch = Batch(self.sight, many, recipe.worth, recipe.packing)  # type: ignore[arg-type]
        improver = improve.Improver(rollout)
        optimizer = torch.optim.Adam(self.policy.scores.parameters())
        # the mean of the last rounds is better than any one of them
        mean = AveragedModel(self.policy.scores, multi_avg_fn=get_ema_multi_avg_fn(1.0 - recipe.newest))
        lessons: list[imitate.Lesson] = []
        for k in range(recipe.improvements):
            rows = np.random.default_rng((self.seed, 3, k)).choice(len(train), many, replace=False)
            lesson, earned = imitate.gather(
                self.policy, improver, batch, train.take(rows), recipe.gamma, True
            )
            lessons = [*lessons[1 - recipe.remembered :], lesson]
            rate = recipe.improve_rate * (1.0 - 0.9 * k / recipe.improvements)
            imitate.learn(self.policy, optimizer, lessons, rate, recipe.improve_passes, 256)
            mean.update_parameters(self.policy.scores)
            newest = copy.deepcopy(self.policy.scores.state_dict())
            self.policy.scores.load_state_dict(mean.module.state_dict())
            self._consider(0)
            if k < recipe.improvements - 1:
                self.policy.scores.load_state_dict(newest)
            self._tell("improve", k + 1, recipe.improvements, earned, self._best)

    def _iterate(self) -> None:
        recipe = self.recipe
        warm = bool(recipe.lessons) and self._iteration < recipe.value_only
        for name, weights in self.policy.scores.named_parameters():
            weights.requires_grad_(not warm or name.startswith("value"))
        self.ppo.learn(
            self.ppo.n_steps * self.ppo.n_envs, reset_num_timesteps=False, log_interval=MOST_LOGGED
        )
        self._iteration += 1
        history, targets = self._lockstep.seen[-1]
        self._lockstep.seen.clear()
        if self._auxiliary is not None and self.policy.auxiliary is not None:
            error = auxiliary.learn(
                self.policy.auxiliary,
                self._auxiliary,
                history,
                targets,
                self._falling(recipe.auxiliary_rate),
                1,
            )
            self.ppo.logger.record("auxiliary/error", error)
        earned = self._lockstep.totals[-1]
        self.ppo.logger.record("rollout/total", earned)
        if self._iteration % recipe.evaluate_every == 0 or self._iteration == recipe.iterations:
            self._consider(self._iteration)
            self._save()
        self.ppo.logger.dump(self._iteration)
        self._tell("ppo", self._iteration, recipe.iterations, earned, self._best)

    def _consider(self, iteration: int) -> None:
        """Is what it plays now, without chance, the best so far?"""
        recipe = self.recipe
        batch = Batch(self.sight, len(self.data.kept), recipe.worth, recipe.packing)  # type: ignore[arg-type]
        reached = float(imitate.played(self.policy, batch, self.data.kept).mean())
        self.ppo.logger.record("kept/total", reached)
        if iteration == 0:
            self.figures["start" if self._stage == "lessons" else "improved"] = reached
        if reached > self._best:
            self._best, self._best_at = reached, iteration
            self._best_arrays = arrays_of(self.policy.scores, self.policy.auxiliary)
            self.figures["best"] = reached
            self.figures["best_iteration"] = iteration

    # ------------------------------------------------------------------------------------------------- what is kept

    def _next_trajectories(self) -> Trajectories:
        rng = np.random.default_rng((self.seed, 1, self._draws))
        self._draws += 1
        many, size = len(self.data.train), self.recipe.trajectories // self.recipe.group
        rows = rng.choice(many, size, replace=many < size)
        return self.data.train.take(np.repeat(rows, self.recipe.group))

    def _falling(self, rate: tuple[float, float]) -> float:
        done = self._iteration / max(self.recipe.iterations, 1)
        return rate[0] + (rate[1] - rate[0]) * done

    def _identity(self) -> dict[str, Any]:
        return {
            "recipe": plain(self.recipe),
            "shape": repr(self.recipe.shape),
            "seed": self.seed,
            "name": self.name,
        }

    def _save(self) -> None:
        """All that goes on, in one file that is there whole or not at all."""
        kind, keys, position, _, _ = np.random.get_state(legacy=True)  # noqa: NPY002  # what stable-baselines3 draws from
        told = {
            **self._identity(),
            "stage": self._stage, "spread": self.sight.spread, "iteration": self._iteration, "draws": self._draws,
            "best": self._best, "best_at": self._best_at, "figures": self.figures,
            "generator": [str(kind), int(position)], "timesteps": self.ppo.num_timesteps,
            "updates": self.ppo._n_updates,
        }  # fmt: skip
        arrays: dict[str, Any] = {
            "told": np.frombuffer(json.dumps(told).encode(), np.uint8),
            "generator": keys,
            "torch": torch.get_rng_state().numpy(),
            "teacher": self._teacher,
        }
        arrays |= {f"best.{name}": array for name, array in self._best_arrays.items()}
        arrays |= {f"policy.{name}": tensor.numpy() for name, tensor in self.policy.state_dict().items()}
        for name, optimizer in self._optimizers():
            arrays |= _optimizer_arrays(name, optimizer)
        whole = BytesIO()
        np.savez(whole, **arrays)
        partly = self.folder / f"{CHECKPOINT}.part"
        partly.write_bytes(whole.getvalue())
        partly.replace(self.folder / CHECKPOINT)

    def _restore(self) -> None:
        path = self.folder / CHECKPOINT
        if not path.is_file():
            return
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            told = json.loads(arrays["told"].tobytes())
        except BROKEN_ARCHIVE as error:
            raise UsageError(f"{path}: cannot be resumed ({error}); train without --resume") from error
        mine = json.loads(json.dumps(self._identity()))
        if any(told.get(key) != value for key, value in mine.items()):
            raise UsageError(
                f"{path}: is of another recipe or seed; train without --resume, or into another folder"
            )
        self._stage, self._iteration = told["stage"], told["iteration"]
        self._set_spread(told["spread"])
        # the trajectories drawn last were not begun
        self._draws = told["draws"] - (1 if self._iteration else 0)
        self._best, self._best_at, self.figures = told["best"], told["best_at"], told["figures"]
        self._best_arrays = {
            name.removeprefix("best."): array for name, array in arrays.items() if name.startswith("best.")
        }
        self._teacher = arrays["teacher"]
        self.policy.load_state_dict(
            {name: torch.from_numpy(arrays[f"policy.{name}"]) for name in self.policy.state_dict()}
        )
        for name, optimizer in self._optimizers():
            _set_optimizer(name, optimizer, arrays)
        self.ppo.num_timesteps, self.ppo._n_updates = told["timesteps"], told["updates"]
        kind, position = told["generator"]
        np.random.set_state((kind, arrays["generator"], position, 0, 0.0))  # noqa: NPY002
        torch.set_rng_state(torch.from_numpy(arrays["torch"]))

    def _optimizers(self) -> list[tuple[str, torch.optim.Optimizer]]:
        found = [("optimizer", self.policy.optimizer)]
        return [*found, ("tasks", self._auxiliary)] if self._auxiliary is not None else found


def replace_sight(sight: Sight) -> Sight:
    """For a policy that looks at each waiting job by itself."""
    return sight._replace(future=False, running=False, window=0)


def _earned(
    hidden: int, sight: Sight, recipe: Recipe, trajectories: Trajectories, seed: int, work: tuple[Floats, int]
) -> float:
    """What weights earn on the generation's trajectories: 16 of them, the same for all of the generation."""
    weights, generation = work
    rng = np.random.default_rng((seed, 2, generation))
    rows = rng.choice(len(trajectories), min(16, len(trajectories)), replace=False)
    batch = Batch(sight, len(rows), recipe.worth, recipe.packing)  # type: ignore[arg-type]
    return float(total(weights, hidden, batch, trajectories.take(rows)).mean())


def _optimizer_arrays(name: str, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {
        f"{name}.{number}.{key}": np.asarray(value)
        for number, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
    }


def _set_optimizer(name: str, optimizer: torch.optim.Optimizer, arrays: dict[str, Any]) -> None:
    state = optimizer.state_dict()
    state["state"] = {}
    for key, array in arrays.items():
        if key.startswith(f"{name}."):
            _, number, what = key.split(".")
            state["state"].setdefault(int(number), {})[what] = torch.from_numpy(np.array(array))
    optimizer.load_state_dict(state)


def _logger(folder: Path) -> Logger:
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        return configure(str(folder), ["csv"])
    return configure(str(folder), ["tensorboard"])
