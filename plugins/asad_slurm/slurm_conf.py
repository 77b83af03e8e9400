"""What Slurm is configured to do: of `scontrol show config` and `scontrol show partition`, or of a slurm.conf. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULTS = {
    "allowgroups": "ALL",
    "allowaccounts": "ALL",
    "allowqos": "ALL",
    "allocnodes": "ALL",
    "maxtime": "UNLIMITED",
    "maxnodes": "UNLIMITED",
    "maxcpuspernode": "UNLIMITED",
    "maxmempernode": "UNLIMITED",
    "maxmempercpu": "UNLIMITED",
    "minnodes": "0",
    "oversubscribe": "NO",
    "prioritytier": "1",
    "state": "UP",
}
NOTHING = {"", "(null)", "n/a", "none", "unlimited", "infinite", "-1"}


@dataclass(frozen=True, slots=True)
class Slurm:
    """What is configured; keys in lower case."""

    settings: Mapping[str, str]
    partitions: Mapping[str, Mapping[str, str]]

    def get(self, key: str) -> str:
        """A setting of the cluster; empty if it is not set."""
        return _plain(self.settings.get(key.lower(), ""))

    def words(self, key: str) -> set[str]:
        """The same as a list of words, in lower case."""
        return {word.strip().lower() for word in self.get(key).split(",") if word.strip()}

    def of(self, partition: str, key: str) -> str:
        """A setting of a partition, or Slurm's default where there is one."""
        value = _plain(self.partitions[partition].get(key.lower(), ""))
        return value or DEFAULTS.get(key.lower(), "")


def _plain(value: str) -> str:
    return "" if value in ("(null)", "N/A") else value


def read_config(text: str) -> dict[str, str]:
    """`scontrol show config` → settings."""
    pairs = (line.partition(" = ") for line in text.splitlines() if " = " in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def read_partitions(text: str) -> dict[str, dict[str, str]]:
    """`scontrol show partition`, with `--oneliner` or without → settings of each."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals:
            continue
        if key == "PartitionName":
            current = found.setdefault(value, {})
        current[key.lower()] = value
    return found


def read_slurm_conf(text: str) -> Slurm:
    """slurm.conf, its included files already in place: keys in any case, continued lines, comments, DEFAULT lines."""
    settings: dict[str, str] = {}
    partitions: dict[str, dict[str, str]] = {}
    defaults: dict[str, str] = {}
    joined = re.sub(r"\\[ \t]*\n", " ", re.sub(r"(?<!\\)#.*", "", text))
    for line in joined.splitlines():
        pairs = {
            match[1].lower(): match[2].strip('"')
            for match in re.finditer(r'\b(\w+)\s*=\s*("[^"]*"|\S+)', line)
        }
        if "partitionname" not in pairs:
            settings |= pairs
            continue
        if "shared" in pairs:  # what OverSubscribe was called before
            pairs.setdefault("oversubscribe", pairs.pop("shared"))
        if "priority" in pairs:
            pairs.setdefault("prioritytier", pairs["priority"])
        name = pairs["partitionname"]
        if name.upper() == "DEFAULT":
            defaults |= pairs
        else:
            for each in name.split(","):
                partitions[each] = {**defaults, **pairs, "partitionname": each}
    return Slurm(settings, partitions)


def read_threads(text: str) -> set[int]:
    """The numbers that `sinfo --format=%Z` prints, or those of the `NodeName` lines of a slurm.conf."""
    named = re.findall(r"^[ \t]*NodeName[ \t]*=.*", text, re.MULTILINE | re.IGNORECASE)
    if not named:
        return {int(word) for word in text.split() if word.isascii() and word.isdecimal() and len(word) < 10}
    found = (re.search(r"\bThreadsPerCore\s*=\s*(\d{1,4})", line, re.IGNORECASE) for line in named)
    return {int(match[1]) if match else 1 for match in found}


def minutes(text: str) -> float:
    """Slurm's way of writing a time limit: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s; inf for none or nonsense."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text, re.ASCII)
    if not match:
        return float("inf")
    days, first, second, third = (None if part is None else int(part) for part in match.groups())
    if days is not None:
        return days * 1440.0 + first * 60.0 + (second or 0) + (third or 0) / 60.0  # type: ignore[operator]
    if third is not None:
        return first * 60.0 + second + third / 60.0  # type: ignore[operator]
    return first + (second or 0) / 60.0  # type: ignore[operator]
