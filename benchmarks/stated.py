"""A measured figure beside the one that was stated: printed, never asserted, as machines differ and are shared."""

from __future__ import annotations


def beside(what: str, measured: float, stated: float, unit: str) -> str:
    """`what: 0.21 s (stated: 0.25 s; 0.84 of it)`. `stated` is what the documentation or the issue names."""
    ratio = measured / stated if stated else float("nan")
    return f"{what}: {number(measured)} {unit} (stated: {number(stated)} {unit}; {ratio:.2f} of it)"


def number(value: float) -> str:
    """Three digits that matter; whole numbers from 1000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
