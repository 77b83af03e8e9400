"""`sow-stochastic`: what jobs may come is known beforehand, as a distribution; prices are those of bundles of units.

Source: 004, section 5, Theorem 5.2 and appendix E. Each job's statement is drawn from a known distribution of finite
support; who draws the births is an adversary. Durations are reported at arrival (`Statement.with_signal("duration")`).

1. An LP (appendix E) schedules all that may come, in fractions: an outcome is a way in which a job may come and a start
   for it, taken with at most the probability of that way; the expected load is at most half of the supply.
2. Its solution is cut into bundles (a "fractional unit allocation"): each bundle reserves c_max units in consecutive
   rounds, and has outcomes within them of total weight (demand times fraction) at most c_max. No more bundles cover a
   round than half of the supply holds.
3. A unit of a bundle with outcomes of value V and weight W costs V/(2·W), whatever the run's start and duration within
   it, until W is sold. A job is asked the least price of the bundles that its run lies in.

Sold of a bundle is below W + c_max ≤ 2·c_max, so the expected load is at most the supply. By lemma E.3 the expected
value is at least half of what the bundles' outcomes are worth; `Bundles.value` is that. The paper cuts as Chawla,
Miller and Teng (SODA 2019) do, which keeps a constant part of the LP; that construction is not part of the paper. Here
outcomes of equal duration are gathered by start, and the bundles worth most for what they reserve are kept: what part
of the LP that keeps is measured (`Bundles.value` over `Bundles.lp_value`), not proved.

Options: `delta`, `error`, `confidence` as of `sow-paper`. Cost: the LP, once; a menu O(bundles in the window · window).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from asad.admit.sow.mechanism import Posted
from asad.admit.sow.statement import NEVER, Bounds, Statement, readable
from asad.admit.sow.unit_prices import paper_terms
from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Floats, Ints, Json
from asad_papers.sow.hindsight import Run, packed, starts_of

Prior = Sequence[Sequence[tuple[float, Statement]]]
"""Of each job: statements with the probability that it is this one; the rest to 1 is that it does not come."""

SOLD_OUT = 1e-9
LEAST_FRACTION = 1e-7
"""Fractions of the LP below it are rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class Bundles:
    """Reserved units with a price each; rows by bundle."""

    first: Ints
    """(B,) round."""
    end: Ints
    """(B,) round after its last."""
    weight: Floats
    """(B,) W: units of demand, times fractions; at most c_max."""
    price: Floats
    """(B,) of one unit of demand, whatever the start and duration."""
    value: float
    """Of all outcomes in bundles."""
    lp_value: float
    """Of the LP with half of the supply."""


def bundles_of(prior: Prior, bounds: Bounds, supply: float, rounds: int) -> Bundles:
    """Steps 1 to 3. Raises UsageError for a prior that is none, AsadError if the solver gives up."""
    runs, most = _runs(prior, bounds, rounds)
    fraction, lp_value = packed(runs, most, supply / 2.0, rounds)
    made: list[tuple[float, int, int, float, float]] = []
    for lasts in range(1, bounds.max_duration + 1):
        alike = [at for at, run in enumerate(runs) if run[2] == lasts]
        first, weight, worth, latest = -1, 0.0, 0.0, -1
        for outcome in sorted(alike, key=lambda at: runs[at][1]):
            demand, start, _, value, _ = runs[outcome]
            left = float(fraction[outcome])
            while left > LEAST_FRACTION:
                if first < 0:
                    first, weight, worth = start, 0.0, 0.0
                part = min(left, (bounds.max_demand - weight) / demand)
                weight += part * demand
                worth += part * value
                latest = start
                left -= part
                if weight >= bounds.max_demand * (1.0 - 1e-9) or latest - first >= lasts:
                    made.append((worth / (latest + lasts - first), first, latest + lasts, weight, worth))
                    first = -1
        if first >= 0:
            made.append((worth / (latest + lasts - first), first, latest + lasts, weight, worth))
    room = np.full(rounds + bounds.max_duration, supply / 2.0)
    kept = []
    for bundle in sorted(made, reverse=True):
        held = slice(bundle[1], bundle[2])
        if room[held].min() >= bounds.max_demand:
            room[held] -= bounds.max_demand
            kept.append(bundle)
    kept.sort(key=lambda bundle: bundle[1:3])
    _, first_of, end_of, weight_of, worth_of = np.array(kept).reshape(-1, 5).T
    return Bundles(
        first_of.astype(np.int32),
        end_of.astype(np.int32),
        np.ascontiguousarray(weight_of),
        worth_of / (2.0 * weight_of),
        float(worth_of.sum()),
        lp_value,
    )


def _runs(prior: Prior, bounds: Bounds, rounds: int) -> tuple[list[Run], list[float]]:
    """All runs of which the LP chooses parts, and how likely each way is of which they are."""
    runs: list[Run] = []
    most: list[float] = []
    # jobs that may be the same are one with the sum of their chances: the LP is no smaller for keeping them apart
    chances: dict[int, tuple[float, Statement]] = {}
    for choices in prior:
        if sum(chance for chance, _ in choices) > 1.0 + 1e-9 or not all(
            chance > 0.0 for chance, _ in choices
        ):
            raise UsageError(
                "sow-stochastic: probabilities of a job's statements have to be above 0, and their sum at most 1"
            )
        for chance, statement in choices:
            before = chances.get(id(statement), (0.0, statement))[0]
            chances[id(statement)] = (before + chance, statement)
    for chance, one in chances.values():
        ways = zip(one.arrival.tolist(), one.duration.tolist(), one.probability.tolist(), strict=True)
        for arrival, lasts, probability in ways:
            starts = starts_of(one, arrival, lasts, bounds, rounds)
            runs += [(one.demand, start, lasts, value, len(most)) for start, value in starts]
            most.append(chance * probability)
    return runs, most


class BundlePrices:
    """The relaxed scheduler of lemma E.3 (`asad.admit.sow.mechanism.Relaxed`)."""

    def __init__(self, bounds: Bounds, bundles: Bundles) -> None:
        self.bounds, self.bundles = bounds, bundles
        self._sold = np.zeros(len(bundles.first))

    def advance(self, now: int) -> None:
        """What is sold of a bundle is sold for good."""

    def prices(self, demand: int, first: int, out: Floats) -> None:
        """(S, D) the least price of a bundle that the run lies in and that is not sold."""
        one = self.bundles
        _least(one.first, one.end, one.weight, one.price, self._sold, first, demand, out)

    def take(self, start: Ints, duration: Ints, weight: Floats, demand: int) -> None:
        """Each task goes to the bundle of its price."""
        one = self.bundles
        for begin, lasts, part in zip(start.tolist(), duration.tolist(), weight.tolist(), strict=True):
            at = _cheapest(one.first, one.end, one.weight, one.price, self._sold, begin, begin + lasts)
            if begin != NEVER and at >= 0:
                self._sold[at] += part * demand

    def state(self) -> dict[str, Json]:
        """What is sold."""
        return {"sold": cast(Json, self._sold.tolist())}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Raises UsageError for what is of other bundles."""
        with readable("sow-stochastic: kept prices"):
            sold = np.array(kept["sold"], np.float64)
        if sold.shape != self._sold.shape:
            raise UsageError("sow-stochastic: kept prices are of other bundles; begin anew")
        self._sold = sold


class SowStochastic(Posted):
    """Algorithm 2 over the prices of bundles."""

    name = "sow-stochastic"

    def __init__(
        self,
        bounds: Bounds,
        prior: Prior,
        rounds: int,
        delta: float = 0.0,
        error: float = 0.05,
        confidence: float = 0.99,
        cancel_waiting: bool = True,
        seed: int = 0,
    ) -> None:
        """`rounds`: how many the prior speaks of. Raises UsageError for options out of range."""
        self.bundles = bundles_of(prior, bounds, paper_terms(bounds, delta).supply, rounds)
        super().__init__(
            bounds, BundlePrices(bounds, self.bundles), error=error, confidence=confidence, threshold=error,
            cancel_waiting=cancel_waiting, seed=seed,
        )  # fmt: skip


@compiled
def _cheapest(
    first: Ints, end: Ints, weight: Floats, price: Floats, sold: Floats, begin: int, finish: int
) -> int:
    at = -1
    for k in range(len(first)):
        if first[k] > begin:
            break
        if end[k] >= finish and sold[k] < weight[k] - SOLD_OUT and (at < 0 or price[k] < price[at]):
            at = k
    return at


@compiled
def _least(
    first: Ints, end: Ints, weight: Floats, price: Floats, sold: Floats, now: int, demand: int, out: Floats
) -> None:
    starts, durations = out.shape
    out[:] = np.inf
    for k in range(len(first)):
        if end[k] <= now or sold[k] >= weight[k] - SOLD_OUT:
            continue
        if first[k] >= now + starts:
            break
        for i in range(max(0, first[k] - now), min(starts, end[k] - now)):
            for d in range(min(durations, end[k] - now - i)):
                out[i, d] = min(out[i, d], demand * price[k])
