"""How a cluster orders and backfills jobs, by its settings: those of slurm.conf, or of `scontrol show config`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from asad.replay.passed_over import PassedOver
from asad.replay.readers.accounting_log import quoted
from asad.replay.site import BackfillRules, PriorityRules
from asad.replay.slurm_conf_partitions import limit_s

PRIORITY = frozenset(
    {
        *("prioritytype", "priorityweightage", "priorityweightfairshare", "priorityweightjobsize"),
        *("priorityweightpartition", "priorityweightqos", "priorityweighttres", "prioritymaxage"),
        *("prioritydecayhalflife", "prioritycalcperiod", "priorityfavorsmall", "priorityflags"),
        *("priorityweightassoc", "priorityusageresetperiod", "prioritysitefactorplugin"),
    }
)
BACKFILL = frozenset({"schedulertype", "schedulerparameters"})
OF_SCHEDULING = PRIORITY | BACKFILL
"""The settings, in lower case, of which something is read here."""
NOTHING = frozenset({"", "(null)", "n/a", "none"})
WEIGHTS = ("age", "fairshare", "jobsize", "partition", "qos")
NO_PART = {
    "priorityweightassoc": "0",
    "priorityusageresetperiod": "none",
    "prioritysitefactorplugin": "site_factor/none",
}
"""Settings that count in priorities of Slurm and not here → what they are where they do not count there either."""
_WEIGHT = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
_SIGNED = re.compile(r"-?\d{1,12}(?:\.\d{1,9})?", re.ASCII)
_VERSION = re.compile(r"(\d{1,4})\.", re.ASCII)
FAIR_TREE_SINCE = 19
"""The version of Slurm (19.05) from which on fair share is that of Fair Tree unless flags say otherwise."""


def priority_rules(settings: Mapping[str, str], place: str, over: PassedOver) -> PriorityRules:
    """What the settings say (keys in lower case), Slurm's defaults where they do not; what cannot be read goes `over`.

    Without PriorityType priorities count where a weight is given: it is the default from Slurm 23.11 on.
    """
    values = {key: value for key, value in settings.items() if value.strip().lower() not in NOTHING}
    weights = {name: _weight(values, f"priorityweight{name}", place, over) for name in WEIGHTS}
    tres = _tres(values.get("priorityweighttres", ""), place, over)
    weighted = any(weights.values()) or any(tres.values())
    plugin = values.get("prioritytype", "").strip().lower().removeprefix("priority/")
    if plugin not in ("", "basic", "multifactor"):
        over.say(
            "prioritytype",
            f"{place}: PriorityType={quoted(values['prioritytype'])} is not known here: priorities are taken to be "
            + ("multifactor" if weighted else "basic"),
        )
    multifactor = plugin == "multifactor" or (plugin != "basic" and weighted)
    if not plugin and weighted:
        over.say(
            "prioritytype",
            f"{place}: weights of priorities without PriorityType: they count from Slurm 23.11 on, and are taken to",
        )
    if multifactor:
        for key, none in NO_PART.items():
            if (value := values.get(key, none).strip().lower()) != none:
                over.say(key, f"{place}: {key}={quoted(value)} counts in priorities there, and not here")
    flags = {word.strip().upper() for word in values.get("priorityflags", "").split(",")}
    version = _VERSION.match(values.get("slurm_version", ""))
    is_old = version is not None and int(version[1]) < FAIR_TREE_SINCE
    return PriorityRules(
        multifactor=multifactor,
        age=weights["age"],
        fair_share=weights["fairshare"],
        job_size=weights["jobsize"],
        partition=weights["partition"],
        qos=weights["qos"],
        max_age_s=_time_s(values, "prioritymaxage", PriorityRules().max_age_s, place, over),
        half_life_s=_time_s(values, "prioritydecayhalflife", PriorityRules().half_life_s, place, over, 0.0),
        calc_period_s=_time_s(values, "prioritycalcperiod", PriorityRules().calc_period_s, place, over),
        favor_small=values.get("priorityfavorsmall", "").strip().lower() in ("yes", "up", "true", "1"),
        fair_tree=not flags & {"NO_FAIR_TREE", "DEPTH_OBLIVIOUS"} and (not is_old or "FAIR_TREE" in flags),
        small_relative_to_time="SMALL_RELATIVE_TO_TIME" in flags,
        tres=tres,
    )


def _weight(values: Mapping[str, str], key: str, place: str, over: PassedOver) -> float:
    text = values.get(key, "0").strip()
    if not _WEIGHT.fullmatch(text):
        over.say(key, f"{place}: {key}={quoted(text)} is no weight: it is taken for 0")
        return 0.0
    return float(text)


def _tres(text: str, place: str, over: PassedOver) -> dict[str, float]:
    """`CPU=1000,Mem=2000,GRES/gpu=3000` by resource in lower case."""
    found = {}
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        if equals and name.strip() and _SIGNED.fullmatch(weight.strip()):
            found[name.strip().lower()] = float(weight)
        elif part.strip():
            over.say("tres", f"{place}: PriorityWeightTRES has {quoted(part.strip())}: it is passed over")
    return found


def _time_s(
    values: Mapping[str, str],
    key: str,
    default_s: float,
    place: str,
    over: PassedOver,
    least_s: float = 1.0,
) -> float:
    """A time of at least `least_s`, and one that ends."""
    if key not in values:
        return default_s
    time_s = limit_s(values[key])
    if not least_s <= time_s < math.inf:
        over.say(
            key, f"{place}: {key}={quoted(values[key])} cannot be used: it is taken for {default_s:.0f} s"
        )
        return default_s
    return time_s


def backfill_rules(settings: Mapping[str, str], place: str, over: PassedOver) -> BackfillRules:
    """The same of backfill."""
    plugin = settings.get("schedulertype", "").strip().lower().removeprefix("sched/")
    if plugin not in (*NOTHING, "backfill", "builtin"):
        over.say(
            "schedulertype",
            f"{place}: SchedulerType={quoted(settings['schedulertype'])} is not known here: it is taken for backfill",
        )
    given: dict[str, str] = {}
    for part in settings.get("schedulerparameters", "").split(","):
        name, _, value = part.strip().partition("=")
        given[name.strip().lower()] = value.strip()

    def number(name: str, default: int, least: int, most: int) -> int:
        text = given.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            over.say(
                name,
                f"{place}: {name}={quoted(text)} of SchedulerParameters is not from {least} to {most}: it is taken for "
                f"{default}",
            )
            return default
        return int(text)

    never = given.get("bf_interval") == "-1"
    if never:
        del given["bf_interval"]
    depth = number("max_job_bf", BackfillRules().depth, 1, 10**6)  # its name until Slurm 14.03
    return BackfillRules(
        enabled=plugin != "builtin" and not never,
        depth=number("bf_max_job_test", depth, 1, 10**6),
        window_s=60.0 * number("bf_window", 1440, 1, 43200),
        interval_s=float(number("bf_interval", 30, 1, 10800)),
        resolution_s=float(number("bf_resolution", 60, 1, 3600)),
        per_user=number("bf_max_job_user", 0, 0, 10**6),
        per_partition=number("bf_max_job_part", 0, 0, 10**6),
        user_start=number("bf_max_job_start", 0, 0, 10000),
    )
