"""What a partition demands of its jobs, by the settings of slurm.conf or of `scontrol show partition`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from asad.model import Ints
from asad.replay.passed_over import PassedOver
from asad.replay.readers.accounting_log import quoted
from asad.replay.site import PartitionRules
from asad.replay.slurm_conf_partitions import Partition, limit_s

NOTHING = frozenset({"", "(null)", "n/a", "none"})
NO_BOUND = frozenset({"unlimited", "infinite", "-1"})
YES = frozenset({"yes", "true", "1", "up"})
STARTS = frozenset({"", "up", "drain"})
"""States of partitions that start jobs; one that drains takes no new ones, and its start."""
MOST = 65533
"""The largest tier and factor."""
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)


def partition_rules(partition: Partition, nodes: Ints, over: PassedOver) -> PartitionRules:
    """Its rules, Slurm's defaults where it does not say; `nodes` are numbers. What cannot be read goes `over`."""
    settings = {
        key: value for key, value in partition.settings.items() if value.strip().lower() not in NOTHING
    }

    def number(key: str, default: int, most: int = 10**9) -> int:
        text = settings.get(key, "").strip()
        if not text:
            return default
        if not _NUMBER.fullmatch(text) or int(text) > most:
            _say(partition, key, text, "no bound" if default < 0 else f"{default}", over)
            return default
        return int(text)

    def time_s(key: str, default_s: float, shown: str) -> float:
        if key not in settings:
            return default_s
        found_s = limit_s(settings[key])
        if not found_s > 0:
            _say(partition, key, settings[key], shown, over)
            return default_s
        return found_s

    both = number("priority", 1, MOST)  # which older versions have for tier and factor
    unbound = settings.get("maxnodes", "unlimited").strip().lower() in NO_BOUND
    most_nodes = -1 if unbound else number("maxnodes", -1)
    shared = settings.get("oversubscribe", settings.get("shared", "")).strip().lower()
    return PartitionRules(
        name=partition.name,
        nodes=nodes,
        max_time_s=time_s("maxtime", math.inf, "no limit"),
        default_time_s=time_s("defaulttime", math.nan, "that of MaxTime"),
        max_nodes=math.inf if most_nodes < 0 else float(most_nodes),
        min_nodes=number("minnodes", 0),
        tier=number("prioritytier", both, MOST),
        job_factor=number("priorityjobfactor", both, MOST),
        exclusive=shared.partition(":")[0] == "exclusive" or _is_yes(settings, "exclusiveuser"),
        default=_is_yes(settings, "default"),
        up=settings.get("state", "").strip().lower() in STARTS,
        qos=settings.get("qos", "").strip(),
    )


def _is_yes(settings: Mapping[str, str], key: str) -> bool:
    return settings.get(key, "").strip().lower() in YES


def _say(partition: Partition, key: str, text: str, instead: str, over: PassedOver) -> None:
    over.say(
        key,
        f"{partition.place}: {key}={quoted(text)} of partition {quoted(partition.name)} cannot be used: it is taken "
        f"for {instead}",
    )
