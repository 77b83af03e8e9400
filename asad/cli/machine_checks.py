"""What `asactl doctor` makes of the machine: its systemd units and its kernel's cgroups. Pure functions of texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from asad.cluster.findings import Finding

UNITS = ("asad.service", "asad-undo.service")
PROPERTIES = (
    "Id",
    "LoadState",
    "ExecStart",
    "ExecStopPost",
    "ProtectSystem",
    "StateDirectory",
    "ReadWritePaths",
)
CHECK = "state folder"


def state_dir_findings(shown: str, state_dir: Path, config: Path) -> Iterator[Finding]:
    """Do daemon and `asad-undo` use one folder, and may their units write there?

    `shown` is what `systemctl show` prints of `PROPERTIES` of `UNITS`; `state_dir` is what `config` says. Nothing where
    no unit is installed.
    """
    units = [unit for unit in map(_properties, shown.split("\n\n")) if unit.get("LoadState") == "loaded"]
    commands = [(unit["Id"], words) for unit in units for words in _commands(unit)]
    for (
        _,
        words,
    ) in commands:  # what the daemon is given on its command line counts more than the configuration
        if words[0].endswith("/asad") and (given := _option(words, "--state-dir")):
            state_dir = Path(given)
    faults = 0
    for name, words in commands:
        if not words[0].endswith("/asad-undo"):
            continue
        given, read = _option(words, "--state-dir"), Path(_option(words, "--config") or config)
        if given and Path(given) != state_dir:
            why = f"{name} has asad-undo look in {given}, but the daemon's journal is in {state_dir}"
        elif not given and read != config:
            why = f"{name} has asad-undo read {read}, and not {config}"
        else:
            continue
        faults += 1
        yield Finding(
            CHECK,
            "fail",
            f"{why}: what a dead daemon leaves behind would stay",
            f"in {name}: asad-undo --config {config}, without --state-dir (systemd/{name} of this version has it so)",
        )
    for unit in units:
        if unit.get("ProtectSystem") == "strict" and not _may_write(unit, state_dir):
            faults += 1
            why = f"{unit['Id']} may not write to {state_dir}"
            yield Finding(
                CHECK, "fail", why, f"systemctl edit {unit['Id']}: [Service] ReadWritePaths={state_dir}"
            )
    if units and not faults:
        yield Finding(CHECK, "ok", f"daemon and asad-undo both use {state_dir}")


def _properties(block: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in block.splitlines():
        key, _, value = line.partition("=")
        found[key] = f"{found[key]} {value}" if key in found else value
    return found


def _commands(unit: Mapping[str, str]) -> Iterator[list[str]]:
    for key in ("ExecStart", "ExecStopPost"):
        for command in re.findall(r"argv\[\]=([^;]+?) ;", unit.get(key, "")):
            yield command.split()


def _option(words: list[str], name: str) -> str:
    """What follows an option, or stands behind its `=`; empty without it."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _may_write(unit: Mapping[str, str], folder: Path) -> bool:
    places = [Path("/var/lib", name.partition(":")[0]) for name in unit.get("StateDirectory", "").split()]
    places += [Path(path.lstrip("-+")) for path in unit.get("ReadWritePaths", "").split()]
    return any(folder.is_relative_to(place) for place in places)


def cgroup_finding(mounts: str, controllers: str, cpu_idle: bool) -> Finding:
    """The kernel's cgroups here. `mounts` is /proc/mounts, `controllers` the v2 root's cgroup.controllers, or empty."""
    rows = [line.split() for line in mounts.splitlines()]
    v1 = {name for row in rows if len(row) > 3 and row[2] == "cgroup" for name in row[3].split(",")} & {
        "cpu",
        "cpuacct",
        "freezer",
        "cpuset",
        "memory",
    }
    v2 = any(len(row) > 2 and row[2] == "cgroup2" for row in rows)
    least = "" if cpu_idle else "; it has no cpu.idle, so guests get the least weight"
    if v2 and not v1:
        lacking = {"cpu", "cpuset", "memory"} - set(controllers.split())
        if not lacking:
            return Finding("cgroup", "ok", f"cgroup v2 with cpu, cpuset and memory{least}")
        return Finding(
            "cgroup",
            "fail",
            f"cgroup v2 lacks {', '.join(sorted(lacking))}",
            "remove cgroup_disable= from the kernel's command line",
        )
    if {"cpu", "freezer"} <= v1:
        return Finding("cgroup", "ok", f"cgroup v1 with {', '.join(sorted(v1))}{least}")
    return Finding(
        "cgroup",
        "fail",
        f"the controller cpu is not mounted (v1 has {', '.join(sorted(v1)) or 'none'})",
        "boot with systemd.unified_cgroup_hierarchy=1, or mount cpu and freezer under /sys/fs/cgroup",
    )
