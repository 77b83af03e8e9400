"""What `asactl doctor` finds out about a Slurm: it asks the controller, or reads a slurm.conf; see `config_checks`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from asad.cluster.eligibility import Lend, lend_of
from asad.cluster.findings import Finding, Site, read, run
from asad.errors import ConfigError
from asad_slurm import config_checks, partition_checks
from asad_slurm.slurm_conf import Slurm, read_config, read_partitions, read_slurm_conf, read_threads

SCRIPTS = ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld")


def examine(site: Site) -> Iterator[Finding]:
    """All findings about the Slurm of this machine, in the order in which they should be put right."""
    asked_at = datetime.now()  # scontrol prints local time
    text, partitions, found = _texts(site.config_file)
    yield found
    if found.state == "fail":
        return
    offline, table = site.config_file is not None, site.table
    slurm = read_slurm_conf(text) if offline else Slurm(read_config(text), read_partitions(partitions))
    given = table.get("guest_partitions", {"batch": "guest"})
    pairs = given.items() if isinstance(given, Mapping) else ()
    guest_of = {str(source): str(guest) for source, guest in pairs}
    yield from config_checks.cluster_findings(slurm)
    threads = text if offline else _answer("sinfo", "--all", "--noheader", "--format=%Z")
    yield config_checks.threads_finding(slurm, read_threads(threads))
    yield from partition_checks.partition_findings(slurm, guest_of)
    yield partition_checks.actor_finding(guest_of, site.guest_partitions)
    folder = Path(site.config_file or slurm.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
    lua = read(folder / "job_submit.lua")
    yield config_checks.job_submit_finding(slurm, lua, site.user, guest_of.values())
    yield from config_checks.script_findings(slurm, {key: _scripts(slurm.get(key)) for key in SCRIPTS})
    if not offline:
        yield config_checks.clock_finding(text, asked_at)
        shown = ("--immediate", "--parsable2", "--noheader", "show", "user", f"name={site.user}")
        yield config_checks.rights_finding(
            slurm, _answer("sacctmgr", *shown, "format=User,AdminLevel"), site.user
        )
    share_users = str(table.get("share_users", "as-slurm"))
    yield from config_checks.lending_findings(slurm, guest_of, _lend(table), share_users)
    yield config_checks.calibration_finding(site.calibration)
    journal = Path(str(table.get("journal_dir") or site.state_dir))
    controllers = len(re.findall(r"(?mi)^[ \t]*SlurmctldHost(?:\[\d+\])?[ \t]*=", text))
    head = config_checks.head_finding(slurm, controllers, journal, read(Path("/proc/mounts")) or "")
    if head is not None:
        yield head


def _lend(table: Mapping[str, object]) -> Lend:
    """Which hosts lend; the defaults where the table is wrong, which is another check's."""
    try:
        return lend_of(table)
    except ConfigError:
        return Lend()


def _texts(slurm_conf: str | None) -> tuple[str, str, Finding]:
    """The configuration, the partitions (both as text), and whether they could be had."""
    if slurm_conf is not None:
        try:
            text = slurm_conf_text(Path(slurm_conf)) + (read(Path(slurm_conf).parent / "cgroup.conf") or "")
        except OSError as error:
            why = f"{slurm_conf}: {error.strerror}"
            return "", "", Finding("slurm", "fail", why, "name a slurm.conf that you may read")
        return text, "", Finding("slurm", "ok", f"{slurm_conf} is read; the controller is not asked")
    try:
        config = run("scontrol", "show", "config")
        partitions = run("scontrol", "show", "partition", "--all", "--oneliner")
    except OSError as error:
        remedy = "install slurm-client, or see `scontrol ping`; --slurm-conf FILE looks at a file instead"
        return "", "", Finding("slurm", "fail", f"the controller cannot be asked: {error}", remedy)
    version = read_config(config).get("slurm_version", "unknown")
    return config, partitions, Finding("slurm", "ok", f"the controller answers, Slurm {version}")


def slurm_conf_text(path: Path, depth: int = 0) -> str:
    """slurm.conf with its included files in place. Raises OSError."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match = re.match(r"\s*include\s+(\S+)", line, re.IGNORECASE)
        if match and depth < 8:
            lines.append(slurm_conf_text(path.parent / match[1], depth + 1))
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _answer(*words: str) -> str:
    """What a command prints; nothing where it fails."""
    try:
        return run(*words)
    except OSError:
        return ""


def _scripts(setting: str) -> list[tuple[str, str | None]]:
    """Path and text of the scripts that a setting names, which may be patterns and several."""
    patterns = [Path(word.strip()) for word in setting.split(",") if word.strip()]
    paths = [path for pattern in patterns for path in sorted(pattern.parent.glob(pattern.name)) or [pattern]]
    return [(str(path), read(path)) for path in paths]
