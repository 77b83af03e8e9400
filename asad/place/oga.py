"""`oga`: OgaSched: ports climb the gradient of the reward, slot by slot, and are projected onto what is feasible.

y(1) is Fairness among all ports. After slot t with arrivals x, z = y + η_t ∇q(x, y), of which the exact projection is
the next y; η_t = η_0 · decay^t. In ∇q (30), the resource k* that dominates a port's overhead is found for each port
anew; of several, the first.

- `strict`: the paper. The allocation of a slot is chosen before its arrivals are known. Capacity kept for ports
  without an arrival is lost in that slot; the reward approaches that of the best fixed allocation.
- `reactive`: the step on x(t) comes first, then the allocation of slot t.
- `reclaim`: as `reactive`; and then what absent ports would hold goes to those present: from y(t), with absent ports at
  nothing, one more step of `reach` · η along the gradient there is projected among the present alone (k* still of y(t)
  before its step). It lasts for the slot and is not learned from, so that an absent port finds its place again. What a
  live cluster wants.

Options: `eta`, `decay`, `eta_least`, `reach`. Without `eta`, η_0 scales with the mean capacity: as the paper's 25 does
at its capacities for `strict`, and as 64 for the others, which need not average over arrivals. Resources that differ by
orders of magnitude should be given in units in which they do not: one η serves all.

Cost of a slot: O(E · K), one compiled pass over the edges. Paper: Zhao et al., *Scheduling Multi-Server
Jobs with Sublinear Regrets via Online Learning*, Algorithm 1, equations (30) to (32), with the projection of
`projection.py` in place of the one printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from asad.compiling import compiled
from asad.errors import UsageError
from asad.model import Codes, Floats, Ints, Json
from asad.place.fairness import fair
from asad.place.ports import OgaOptions, PortPolicy, Ports
from asad.place.projection import project_all, project_one
from asad.place.utilities import slope
from asad.policy import check_options

Mode = Literal["strict", "reactive", "reclaim"]
MODES: tuple[Mode, ...] = ("strict", "reactive", "reclaim")

PAPER_ETA = 25.0
REACTIVE_ETA = 64.0
PAPER_CAPACITY = 60.0
"""Mean capacity, over all resources, of the paper's instances, at which its η_0 = 25 (Table II)."""


class Options(NamedTuple):
    """Of all modes."""

    eta: float | None = None
    """η_0, above 0; None: see above."""
    decay: float = 0.9999
    """Of η a slot, above 0. The paper finds 0.995 to 0.9999 best."""
    eta_least: float = 0.0
    """The share of η_0, in [0, 1], below which η does not fall: so that what never ends never stops to learn."""
    reach: float = 8.0
    """Mode `reclaim`: the step among the ports present is so many times η; above 0."""


def default_eta(ports: Ports, mode: Mode) -> float:
    """η_0 in proportion to the mean capacity; 1 where there is none."""
    mean = float(ports.capacities.mean()) if ports.capacities.size else 0.0
    return (PAPER_ETA if mode == "strict" else REACTIVE_ETA) * mean / PAPER_CAPACITY or 1.0


class Oga(PortPolicy):
    """OgaSched over ports that may come and go.

    In every mode `observe(x)` takes in the arrivals of a slot, and `play()` gives the allocation to use next. A loop
    that first sees who is there and then decides calls observe, then play; `allot(x)` does what the mode calls for: of
    `strict`, play before observe.
    """

    name = "oga"

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Those of learning, too."""
        return super().defaults() | OgaOptions()._asdict()

    def __init__(self, ports: Ports, mode: Mode = "reclaim", options: Options | None = None) -> None:
        """Raises UsageError for a mode or option that cannot be."""
        if mode not in MODES:
            raise UsageError(f"oga: mode {mode!r}; there are {', '.join(MODES)}")
        self.options = options or Options()
        eta, decay, least, reach = self.options
        check_options(
            ("eta", eta, eta is None or 0 < eta < math.inf, "give a number above 0, or none"),
            ("decay", decay, 0 < decay < math.inf, "give a number above 0, best 0.995 to 0.9999"),
            ("eta_least", least, 0 <= least <= 1, "give a share of eta, 0 to 1"),
            ("reach", reach, 0 < reach < math.inf, "give a number above 0"),
        )
        self.mode: Mode = mode
        self.name = f"oga-{mode}"
        self.slot = 0
        self._begin(ports)

    def _begin(self, ports: Ports) -> None:
        self.ports = ports
        self.eta_0 = default_eta(ports, self.mode) if self.options.eta is None else self.options.eta
        self._y = fair(ports, np.ones(len(ports.requests)))
        self._tau = np.zeros_like(ports.capacities)
        self._totals = totals(ports, self._y)
        self._played = np.zeros_like(self._y)
        self._seen = False
        self._played_tau = np.zeros_like(ports.capacities)

    @property
    def eta(self) -> float:
        """η of the next step."""
        decay = self.options.decay
        faded = math.exp(min(700.0, self.slot * math.log(decay)))
        return self.eta_0 * max(self.options.eta_least, faded)

    def play(self) -> Floats:
        """The allocation (E, K) in force from now on; the caller's own."""
        return np.array(self._played if self._seen and self.mode == "reclaim" else self._y)

    def observe(self, x: Floats) -> None:
        """Learn from the arrivals x (L,) of a slot: 1 where a port has a job, else 0."""
        if np.shape(x) != (len(self.ports.requests),):
            raise UsageError(
                f"x: {np.shape(x)}; give one number for each of {len(self.ports.requests)} ports"
            )
        x = np.ascontiguousarray(x, np.float64)
        self._totals = self._ascend(x, self.eta, self._played if self.mode == "reclaim" else None)
        self._seen = True
        self.slot += 1

    def among(self, x: Floats) -> Floats:
        """What `reclaim` would give the ports in x (L,), others having nothing. Nothing is learned."""
        y = np.zeros_like(self._y)
        self._ascend(np.ascontiguousarray(x, np.float64), 0.0, y)
        return y

    def _ascend(self, x: Floats, eta: float, reclaimed: Floats | None) -> Floats:
        p = self.ports
        return ascend(
            p.first, p.port, p.requests, p.capacities, p.alpha, p.form, p.beta, x, eta,
            0.0 if reclaimed is None else self.options.reach * self.eta,
            self._totals, self._y, self._tau, self._y if reclaimed is None else reclaimed, self._played_tau,
        )  # fmt: skip

    def allot(self, x: Floats) -> Floats:
        """The allocation of the slot in which x arrives."""
        if self.mode == "strict":
            y = self.play()
            self.observe(x)
            return y
        self.observe(x)
        return self.play()

    def resize(self, ports: Ports) -> None:
        """Ports or instances came, went or changed: what was learned of pairs that are still there is kept, by name.

        New pairs begin at Fairness; all is projected onto what is feasible now. The resources must be the same.
        """
        if ports.requests.shape[1] != self.ports.requests.shape[1]:
            raise UsageError(
                f"oga: {ports.requests.shape[1]} resources instead of {self.ports.requests.shape[1]}; "
                "make a new one"
            )
        kept = {
            (self.ports.names[port], self.ports.instances[instance]): row
            for port, instance, row in zip(self.ports.port, self.ports.instance, self._y, strict=True)
        }
        self._begin(ports)
        self._take(kept)

    def _take(self, kept: Mapping[tuple[str, str], Floats]) -> None:
        p = self.ports
        for edge, (port, instance) in enumerate(zip(p.port, p.instance, strict=True)):
            row = kept.get((p.names[port], p.instances[instance]))
            if row is not None:
                self._y[edge] = row
        project_all(p.first, p.port, p.requests, p.capacities, self._y, self._tau)
        self._totals = totals(p, self._y)

    def state(self) -> dict[str, Any]:
        """What was learned, as plain data: {"slot", "y": {port: {instance: [of each resource]}}}."""
        y: dict[str, dict[str, Json]] = {}
        for port, instance, row in zip(self.ports.port, self.ports.instance, self._y, strict=True):
            y.setdefault(self.ports.names[port], {})[self.ports.instances[instance]] = row.tolist()
        return {"slot": self.slot, "y": y}

    def restore(self, kept: Json) -> None:
        """Go on from what `state` described, of pairs that are still there. What cannot be read is passed over."""
        if not isinstance(kept, dict):
            return
        slot, ports = kept.get("slot"), kept.get("y")
        if isinstance(slot, int) and not isinstance(slot, bool) and 0 <= slot < 2**53:
            self.slot = slot
        rows: dict[tuple[str, str], Floats] = {}
        for port, held in ports.items() if isinstance(ports, dict) else ():
            for instance, row in held.items() if isinstance(held, dict) else ():
                if isinstance(row, list) and len(row) == len(self.ports.beta):
                    values = [one for one in row if isinstance(one, int | float) and 0 <= one < math.inf]
                    if len(values) == len(row):
                        rows[port, instance] = np.array(values, np.float64)
        if rows:
            self._take(rows)


def totals(ports: Ports, y: Floats) -> Floats:
    """(L, K) Σ_r y of each port."""
    found = np.zeros_like(ports.requests)
    np.add.at(found, ports.port, y)
    return found


def gradient(ports: Ports, y: Floats, x: Floats) -> Floats:
    """∇q(x, y) of (30), (E, K); where several resources dominate, that of the first, a subgradient."""
    worst = np.argmax(ports.beta * totals(ports, y), axis=1)
    found = np.empty_like(y)
    for edge, (port, r) in enumerate(zip(ports.port, ports.instance, strict=True)):
        for k in range(y.shape[1]):
            found[edge, k] = slope(ports.form[r, k], ports.alpha[r, k], y[edge, k])
        found[edge, worst[port]] -= ports.beta[worst[port]]
        found[edge] *= x[port]
    return found


@compiled(error_model="numpy")
def ascend(
    first: Ints,
    port: Ints,
    requests: Floats,
    capacities: Floats,
    alpha: Floats,
    form: Codes,
    beta: Floats,
    x: Floats,
    eta: float,
    reclaim_eta: float,
    before: Floats,
    y: Floats,
    tau: Floats,
    reclaimed: Floats,
    reclaimed_tau: Floats,
) -> Floats:
    """y <- Π(y + η ∇q(x, y)), where it stands; `before` (L, K) are its totals. Returns those of the new y.

    With `reclaim_eta` above 0, `reclaimed` (E, K) becomes what ports with an arrival have when others have nothing.
    `tau`, `reclaimed_tau` (R, K) are the last thresholds of either projection. An instance without an arrival stays.
    """
    ports, resources = before.shape
    after = np.zeros((ports, resources))
    widest = 1
    for r in range(len(first) - 1):
        widest = max(widest, first[r + 1] - first[r])
    z, most = np.empty((resources, widest + 1)), np.empty((resources, widest + 1))
    _ascend(
        first, port, requests, capacities, alpha, form, beta, x, eta, reclaim_eta, before, y, tau, reclaimed,
        reclaimed_tau, np.zeros(ports, np.int64), after, z, most,
    )  # fmt: skip
    return after


@compiled(error_model="numpy", _nrt=False)
def _ascend(
    first: Ints,
    port: Ints,
    requests: Floats,
    capacities: Floats,
    alpha: Floats,
    form: Codes,
    beta: Floats,
    x: Floats,
    eta: float,
    reclaim_eta: float,
    before: Floats,
    y: Floats,
    tau: Floats,
    reclaimed: Floats,
    reclaimed_tau: Floats,
    dominant: Ints,
    after: Floats,
    z: Floats,
    most: Floats,
) -> None:
    """The same on given scratch arrays, which it borrows; `after` (L, K) becomes the totals of the new y."""
    ports, resources = before.shape
    for p in range(ports):
        for k in range(1, resources):
            if beta[k] * before[p, k] > beta[dominant[p]] * before[p, dominant[p]]:
                dominant[p] = k
    for r in range(len(first) - 1):
        begin, end = first[r], first[r + 1]
        many = end - begin
        present = 0
        for e in range(begin, end):
            if x[port[e]] > 0.0:
                present += 1
        if present == 0:
            for e in range(begin, end):
                for k in range(resources):
                    after[port[e], k] += y[e, k]
                    if reclaim_eta > 0.0:
                        reclaimed[e, k] = 0.0
            continue
        # port by port, so that who is present is asked once for all resources
        for i in range(many):
            p = port[begin + i]
            there = eta * x[p]
            for k in range(resources):
                z[k, i], most[k, i] = y[begin + i, k], requests[p, k]
            if there > 0.0:
                for k in range(resources):
                    z[k, i] += there * slope(form[r, k], alpha[r, k], z[k, i])
                z[dominant[p], i] -= there * beta[dominant[p]]
        for k in range(resources):
            tau[r, k] = project_one(z[k], most[k], many, capacities[r, k], tau[r, k])
        j = 0
        for i in range(many):
            p = port[begin + i]
            for k in range(resources):
                y[begin + i, k] = z[k, i]
                after[p, k] += z[k, i]
            if reclaim_eta > 0.0 and x[p] > 0.0:
                there = reclaim_eta * x[p]
                for k in range(resources):
                    z[k, j] = z[k, i] + there * slope(form[r, k], alpha[r, k], z[k, i])
                    most[k, j] = most[k, i]
                z[dominant[p], j] -= there * beta[dominant[p]]
                j += 1
        if reclaim_eta <= 0.0:
            continue
        for k in range(resources):
            reclaimed_tau[r, k] = project_one(z[k], most[k], j, capacities[r, k], reclaimed_tau[r, k])
        j = 0
        for i in range(many):
            present_here = x[port[begin + i]] > 0.0
            for k in range(resources):
                reclaimed[begin + i, k] = z[k, j] if present_here else 0.0
            j += present_here
