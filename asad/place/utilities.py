"""The utilities f_r^k of OgaSched (equation 60): what y of a resource on an instance is worth to a port.

| form | f(y) | f'(y) |
|---|---|---|
| `linear` | αy | α |
| `log` | α ln(1 + y) | α / (1 + y) |
| `reciprocal` | 1/α' - 1/(y + α') with α' = α · scale | 1 / (y + α')² |
| `poly` | α√(y + 1) - α | α / 2√(y + 1) |

The paper prints `reciprocal` with the scale 1; the recorded instances were made with 3, without which f'(0) = 1/α² is
the steepest of all. `effective` puts the scale into α once, so that nothing that runs in a slot knows of it. All are
0 at 0, concave, and f'(0) is finite: what the paper calls a nice setup.
"""

from __future__ import annotations

import math

import numpy as np

from asad.compiling import compiled
from asad.model import Codes, Floats

FORMS = ("linear", "log", "reciprocal", "poly")
LINEAR, LOG, RECIPROCAL, POLY = range(4)


def effective(alpha: Floats, form: Codes, reciprocal_scale: float) -> Floats:
    """α with the scale of `reciprocal` in it, in the shape of both."""
    found: Floats = np.where(form == RECIPROCAL, alpha * reciprocal_scale, alpha)
    return found


@compiled(error_model="numpy")
def gain(form: int, alpha: float, y: float) -> float:
    """f(y)."""
    if form == LINEAR:
        return alpha * y
    if form == LOG:
        return alpha * math.log1p(y)
    if form == RECIPROCAL:
        return y / (alpha * (y + alpha))
    return alpha * (math.sqrt(y + 1.0) - 1.0)


@compiled(error_model="numpy")
def slope(form: int, alpha: float, y: float) -> float:
    """f'(y)."""
    if form == LINEAR:
        return alpha
    if form == LOG:
        return alpha / (1.0 + y)
    if form == RECIPROCAL:
        return 1.0 / ((y + alpha) * (y + alpha))
    return 0.5 * alpha / math.sqrt(y + 1.0)


@compiled(error_model="numpy")
def curvature(form: int, alpha: float, y: float) -> float:
    """f''(y), 0 or below."""
    if form == LINEAR:
        return 0.0
    if form == LOG:
        return -alpha / ((1.0 + y) * (1.0 + y))
    if form == RECIPROCAL:
        return -2.0 / ((y + alpha) * (y + alpha) * (y + alpha))
    return -0.25 * alpha / ((y + 1.0) * math.sqrt(y + 1.0))


@compiled(error_model="numpy")
def taken_at(form: int, alpha: float, price: float, most: float) -> float:
    """The y in [0, most] that maximises f(y) - price · y; of `linear` at its own price, `most`."""
    if price <= 0.0:
        return most
    if form == LINEAR:
        return most if alpha >= price else 0.0
    if form == LOG:
        y = alpha / price - 1.0
    elif form == RECIPROCAL:
        y = 1.0 / math.sqrt(price) - alpha
    else:
        y = (0.5 * alpha / price) * (0.5 * alpha / price) - 1.0
    return min(max(y, 0.0), most)
