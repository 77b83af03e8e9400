"""What a calibration found, as the file that replay and guard read (profiles/contention.toml)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from asad.calibrate.fitting import Estimate, Sample, fit, predicted_rates, spread_of
from asad.calibrate.workloads import workload_kind
from asad.model import Json


@dataclass(frozen=True, slots=True)
class Provenance:
    """On what, and how, the constants were measured."""

    kernel: str
    cpu_model: str
    cgroup: str
    """`v1`, `v2` or `none`."""
    quotas: str
    """`real`, or `none` when no cgroup could be written: then nothing capped the guest."""
    idle_class: str
    """`cpu.idle`, `lowest weight` or `SCHED_IDLE`."""
    cores: int
    seconds: float
    repeats: int
    array_bytes: int
    """Memory that each streaming worker walks over."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured."""

    samples: tuple[Sample, ...]
    provenance: Provenance
    leftovers: tuple[str, ...] = ()
    """Groups of killed calibrations that were removed first."""
    crowds: tuple[Mapping[str, Json], ...] = ()
    """What several hosts and guests did on the same cores (`asad.calibrate.crowds.crowd_figures`)."""

    @property
    def other_fraction(self) -> float:
        """Median share of the cores that went to somebody else while pairs ran."""
        return median(sample.other_fraction for sample in self.samples)

    def to_json(self) -> dict[str, Json]:
        """The constants (clipped to 1), their spread and how they were measured; what `to_toml` writes.

        At the top those of the idle class, which is how asad lends; in `static` those of quotas on both.
        `predicted_*` of a pair includes μ; `*_error` is the median of measured minus predicted.
        """
        modes = {key: fit(self.samples, key) for key in dict.fromkeys(s.lending.mode for s in self.samples)}
        constants = {mode: constants_of(estimates) for mode, estimates in modes.items()}
        pairs = [
            pair_figures([s for s in self.samples if (s.host, s.guest, s.lending) == key], modes[key[2].mode])
            for key in dict.fromkeys((s.host, s.guest, s.lending) for s in self.samples)
        ]
        facts = self.provenance
        return {
            **constants.pop("idle"),
            **constants,
            "measured": {
                "kernel": facts.kernel,
                "cpu_model": facts.cpu_model,
                "cgroup": facts.cgroup,
                "quotas": facts.quotas,
                "idle_class": facts.idle_class,
                "cores": facts.cores,
                "seconds": facts.seconds,
                "repeats": facts.repeats,
                "array_bytes": facts.array_bytes,
                "other_fraction": round(self.other_fraction, 4),
                "pair": list(pairs),
                "crowd": [dict(row) for row in self.crowds],
            },
        }

    def to_toml(self) -> str:
        """The file that the replay loads (profiles/contention.toml)."""
        return (
            "# Constants of the contention model, as `asactl calibrate` measured them on one machine:\n"
            "# factors on the rates of host and guest. At the top: guests in the idle class; in [static]:\n"
            "# quotas on host and guest.\n" + toml_table(self.to_json(), "")
        )


def constants_of(estimates: dict[str, Estimate]) -> dict[str, Json]:
    """The four μ, clipped to 1, with their spread (interquartile range) and their medians before clipping."""
    return {
        **{key: round(min(1.0, estimate.median), 4) for key, estimate in estimates.items()},
        "spread": {key: round(estimate.iqr, 4) for key, estimate in estimates.items()},
        "unclipped": {key: round(estimate.median, 4) for key, estimate in estimates.items()},
    }


def pair_figures(samples: Sequence[Sample], mu: dict[str, Estimate]) -> dict[str, Json]:
    """Medians of one pair under one lending: predicted (with μ) and measured rates of both, and the error."""
    first = samples[0]
    kinds = {workload_kind(first.host), workload_kind(first.guest)}
    row: dict[str, Json] = {
        "host": first.host,
        "guest": first.guest,
        "mode": first.lending.mode,
        "share": first.lending.share,
    }
    bare = [predicted_rates(s.lending, s.host_demand, s.guest_demand) for s in samples]
    measured = [(s.host_rate, s.guest_rate) for s in samples]
    for index, role in enumerate(("host", "guest")):
        factor = fmean(
            min(1.0, mu[f"mu_{role}_{kind}"].median) for kind in kinds
        )  # a mixed pair lies halfway
        predicted = [rates[index] * factor for rates in bare]
        seen = spread_of([rates[index] for rates in measured])
        errors = [m[index] - p for m, p in zip(measured, predicted, strict=True)]
        row[f"{role}_demand"] = round(median(getattr(s, f"{role}_demand") for s in samples), 4)
        row[f"predicted_{role}"] = round(median(predicted), 4)
        row[f"measured_{role}"] = round(seen.median, 4)
        row[f"measured_{role}_iqr"] = round(seen.iqr, 4)
        row[f"{role}_error"] = round(median(errors), 4)
    return row


def toml_table(table: dict[str, Any], name: str) -> str:
    """A table as TOML text: plain values first, then tables, then arrays of tables. Keys must be bare."""
    lines = []
    for key, value in table.items():
        if isinstance(value, str):
            value = "".join(c for c in value if c.isprintable())
        if isinstance(value, str | int | float):
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    for key, value in table.items():
        inner = f"{name}.{key}" if name else key
        if isinstance(value, dict):
            lines.append(f"\n[{inner}]\n{toml_table(value, inner).rstrip()}")
        elif isinstance(value, list):
            lines.extend(f"\n[[{inner}]]\n{toml_table(row, inner).rstrip()}" for row in value)
    return "\n".join(lines) + "\n"
