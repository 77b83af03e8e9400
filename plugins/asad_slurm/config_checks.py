"""What `asactl doctor` looks for in the settings of a Slurm: pure functions from texts to findings.

Nothing is read and nobody is asked here, so every shape of answer can be tested.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from asad.cluster.eligibility import Lend
from asad.cluster.findings import Finding, first_finding, judged
from asad_slurm.slurm_conf import NOTHING, Slurm

GUARD_MARK = "asad_user"
"""The variable by which the shipped job_submit.lua is known."""
CLOCK_WARN_S, CLOCK_FAIL_S = 5.0, 60.0
"""munge takes credentials up to 300 s old; estimates of starts are compared with our own clock long before."""
KILLS_BY_USER = re.compile(
    r"\b(?:pkill|killall|skill)\b[^\n]*\s-\w*[uU]\b|\bloginctl\s+(?:terminate|kill)-user\b"
    r"|\bps\b[^\n]*\s-[uU]\b[^\n]*\bkill\b|\bkill\b[^\n]*\b(?:ps|pgrep)\b[^\n]*\s-[uU]\b"
)
WIPES_TMP = re.compile(
    r"\brm\s+-[a-zA-Z]*[rR][a-zA-Z]*\s+[^\n]*(?:/tmp|/var/tmp|/dev/shm|\$\{?TMPDIR)"
    r"|\bfind\s+[^\n]*(?:/tmp|/var/tmp|/dev/shm)[^\n]*(?:-delete|\brm\b)|\btmp(?:watch|reaper)\b"
)
HARMFUL = ((KILLS_BY_USER, "kills processes by their user"), (WIPES_TMP, "wipes temporary files"))
MEMORY_OF = {"cr_core": "CR_Core_Memory", "cr_cpu": "CR_CPU_Memory", "cr_socket": "CR_Socket_Memory"}
"""What counts memory besides, by what is counted."""
NETWORKED = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "ceph",
    "fuse.ceph",
    "beegfs",
    "glusterfs",
    "ocfs2",
    "gfs2",
    "cifs",
)
"""File systems that several machines see."""


def head_finding(slurm: Slurm, controllers: int, journal_dir: Path, mounts: str) -> Finding | None:
    """Would another head node find the journal of offers? None where Slurm has one controller.

    `mounts` is /proc/mounts.
    """
    if controllers < 2:
        return None
    places = [line.split()[1:3] for line in mounts.splitlines() if len(line.split()) > 2]
    folder = str(journal_dir)
    around = [
        (len(place), kind) for place, kind in places if f"{folder}/".startswith(place.rstrip("/") + "/")
    ]
    kind = max(around, default=(0, ""))[1]
    return judged(
        "head nodes",
        kind in NETWORKED,
        f"{folder} is on {kind}: the other head node finds the journal there",
        "warn",
        f"Slurm has {controllers} controllers, and {folder} is on a local disk: without this head node, offered jobs "
        "that asked for certain nodes are given any",
        f"[slurm] journal_dir: a folder that both see, as {slurm.get('StateSaveLocation') or 'StateSaveLocation'} is; "
        "see docs/how-to/two-head-nodes.md",
    )


def cluster_findings(slurm: Slurm) -> Iterator[Finding]:
    """What of the whole cluster's settings lets a job be lent to, safely."""
    select, parameters = slurm.get("SelectType").lower(), slurm.words("SelectTypeParameters")
    units = next((word for word in parameters if word in MEMORY_OF), "cr_core")
    scheduler, tracking = slurm.get("SchedulerType"), slurm.get("ProctrackType")
    yield judged(
        "select",
        select in ("select/cons_tres", "select/cons_res"),
        f"SelectType is {select}",
        "fail",
        f"SelectType is {select or 'not set'}: whole nodes are given, and nothing is lent beside them",
        *2 * ("SelectType=select/cons_tres",),
    )
    yield judged(
        "memory",
        any(word.endswith("_memory") for word in parameters),
        "memory is consumable, so a guest waits until its memory fits",
        "fail",
        "memory is not consumable: a guest could take the memory that its host needs",
        *2 * (f"SelectTypeParameters={MEMORY_OF[units]}",),
    )
    yield _preemption(slurm)
    yield judged(
        "backfill",
        scheduler.lower() in ("sched/backfill", ""),
        "backfill estimates when waiting jobs will start",
        "warn",
        f"SchedulerType is {scheduler}: starts are not estimated, so no job becomes a guest",
        *2 * ("SchedulerType=sched/backfill",),
    )
    yield judged(
        "proctrack",
        tracking.lower() == "proctrack/cgroup",
        "jobs have cgroups, in which the node actor finds them",
        "fail",
        f"ProctrackType is {tracking or 'not set'}: the node actor finds jobs by their cgroups",
        *2 * ("ProctrackType=proctrack/cgroup",),
    )
    yield judged(
        "cores",
        "task/cgroup" in slurm.words("TaskPlugin") and slurm.get("ConstrainCores").lower() == "yes",
        "jobs are held to their cores",
        "warn",
        "jobs are not held to their cores, so a guest may run beside others than its host",
        "slurm.conf: TaskPlugin=task/affinity,task/cgroup; cgroup.conf: ConstrainCores=yes",
    )
    age = re.match(r"\d{1,9}", slurm.get("MinJobAge") or "300", re.ASCII)
    if age and int(age[0]) < 60:
        yield Finding(
            "finished jobs",
            "warn",
            f"MinJobAge is {age[0]} s: finished jobs are forgotten before a cycle has seen them",
            "MinJobAge=300",
            ("MinJobAge=300",),
        )
    if "jobs" in slurm.words("PrivateData"):
        yield Finding(
            "private data",
            "warn",
            "users do not see each other's jobs in Slurm, and asactl shows them to everybody who comes to its socket",
            "RuntimeDirectoryMode=0750 in asad.service: then only root and the group asad come to it",
        )
    if "associations" in slurm.words("AccountingStorageEnforce"):
        yield Finding(
            "associations",
            "warn",
            "associations are enforced: users who have one for the batch partition alone cannot be guests",
            "sacctmgr add user NAME account=ACCOUNT partition=guest, for all in `sacctmgr show assoc` with a partition",
        )


def threads_finding(slurm: Slurm, threads: Collection[int]) -> Finding:
    """Are whole cores lent? `threads` are the ThreadsPerCore of the nodes, as Slurm has them; empty if not known."""
    counted = any(word.startswith("cr_cpu") for word in slurm.words("SelectTypeParameters"))
    by_core = re.sub("cr_cpu", "CR_Core", slurm.get("SelectTypeParameters"), flags=re.IGNORECASE)
    unaware = "Slurm knows of no hyper-threads; on a machine that has some, nothing is lent (`asactl nodes` says so)"
    small = "under CR_CPU a job has whole cores and is counted by hyper-threads, so its quota is computed too small"
    setting = f"SelectTypeParameters={by_core}"
    return first_finding(
        (
            not threads,
            Finding("threads", "warn", "ThreadsPerCore of the nodes is not known", "see `sinfo -o '%N %Z'`"),
        ),
        (max(threads, default=1) == 1, Finding("threads", "ok", unaware)),
        (counted, Finding("threads", "fail", small, setting, (setting,))),
        (True, Finding("threads", "ok", "hyper-threads of one core go to one job")),
    )


def _preemption(slurm: Slurm) -> Finding:
    kind = slurm.get("PreemptType").lower()
    return first_finding(
        (
            "gang" in slurm.words("PreemptMode"),
            Finding(
                "preemption",
                "fail",
                "PreemptMode has GANG: Slurm would stop hosts and guests in turns",
                "PreemptMode=OFF (and no PreemptType)",
                ("PreemptMode=OFF",),
            ),
        ),
        (
            kind == "preempt/partition_prio",
            Finding(
                "preemption",
                "warn",
                "partitions preempt each other by PriorityTier, and guest partitions have the higher one: "
                "every partition that lends needs PreemptMode=OFF (checked below)",
            ),
        ),
        (
            kind not in ("", "preempt/none"),
            Finding(
                "preemption",
                "warn",
                f"{kind}: a job of a higher QOS can end hosts and guests, as it can end any job",
                "leave the guests' QOS without Preempt, and expect requeued guests to be restored",
            ),
        ),
        (True, Finding("preemption", "ok", "no job preempts another")),
    )


def lending_findings(
    slurm: Slurm, sources: Collection[str], lend: Lend, share_users: str
) -> Iterator[Finding]:
    """Who lends, who borrows, and with whom: `[slurm.lend]` and `share_users`, and what Slurm says of `sources`."""
    for kind, (whose, why) in SWITCHES.items():
        if getattr(lend, kind) and not getattr(Lend(), kind):
            yield Finding("lend", "warn", f"{whose} lend here: {why}", f"[slurm.lend] {kind} = false")
    off = [whose for kind, (whose, _) in SWITCHES.items() if not getattr(lend, kind)]
    if off:
        yield Finding("lend", "ok", f"these do not lend: {', '.join(off)}")
    yield judged(
        "share_users",
        share_users != "any",
        "on a node meets whom Slurm would put there"
        if share_users == "as-slurm"
        else f"host and guest are of one {ONE_OF.get(share_users, 'user')}",
        "warn",
        "jobs meet whom Slurm would keep apart: other MCS labels, other users under ExclusiveUser",
        '[slurm] share_users = "as-slurm"',
    )
    for source in (name for name in sources if name in slurm.partitions):
        yield judged(
            "time limits",
            not {slurm.of(source, key).lower() for key in ("MaxTime", "DefaultTime")} <= NOTHING,
            f"every job of {source} has a time limit",
            "warn",
            f"jobs of {source} that name no --time have no limit, and are never guests",
            f"in the line PartitionName={source}: DefaultTime=1-00:00:00",
        )
    yield judged(
        "accounting",
        _has_slurmdbd(slurm),
        "extensions stop at limits of associations and QOS",
        "warn",
        "without slurmdbd no limit of an association or a QOS is known, and no extension stops at one",
        "AccountingStorageType=accounting_storage/slurmdbd",
    )


def _has_slurmdbd(slurm: Slurm) -> bool:
    return slurm.get("AccountingStorageType").lower() == "accounting_storage/slurmdbd"


ONE_OF = {"same": "user", "account": "account"}


SWITCHES = {
    "multi_node": ("jobs on several nodes", "one that is slowed on one node is slowed on all"),
    "gres": ("jobs with gres", "what slows one keeps its GPUs waiting too"),
    "whole_memory": ("jobs with --mem=0", "Slurm finds no memory for a guest beside them"),
    "exclusive": ("jobs with --exclusive", "Slurm starts no guest beside them"),
}
"""Kinds of hosts that `[slurm.lend]` switches: who they are, and what comes of it if they lend."""


def calibration_finding(path: str) -> Finding:
    """Is it known what sharing costs on these nodes? `path` is `[guard] calibration`."""
    return judged(
        "calibration",
        bool(path),
        f"what sharing costs is in {path}",
        "warn",
        "what two memory-bound jobs cost each other was measured on another machine, and vetoes their pairs here",
        "asactl calibrate on a node; its file into [guard] calibration",
    )


def script_findings(
    slurm: Slurm, scripts: Mapping[str, Sequence[tuple[str, str | None]]]
) -> Iterator[Finding]:
    """Prologs and epilogs, by setting: path and text of each, None where it could not be read here."""
    for key, files in scripts.items():
        for path, text in files:
            if text is None:
                yield Finding(
                    key,
                    "warn",
                    f"{path} cannot be read here",
                    "see on a node that it neither kills by user nor wipes /tmp: host and guest may be of one user",
                )
                continue
            code = "\n".join(re.sub(r"(^|\s)#.*", "", line) for line in text.splitlines())
            what = [words for pattern, words in HARMFUL if pattern.search(code)]
            yield judged(
                key,
                not what,
                f"{path} touches nothing of other jobs, as far as can be seen",
                "warn",
                f"{path} {' and '.join(what)}: when a host or guest ends, that hits the other if of the same user",
                "let it touch only what is of its own job ($SLURM_JOB_ID)",
            )


def job_submit_finding(slurm: Slurm, lua: str | None, user: str, guests: Collection[str]) -> Finding:
    """Who may send jobs into the partitions `guests`. `lua` is job_submit.lua, None where none can be read."""
    remedy = (
        "JobSubmitPlugins=lua, and asad's job_submit.lua beside slurm.conf (profiles/slurm/job_submit.lua)"
    )
    installed = slurm.words("JobSubmitPlugins") & {"lua", "job_submit/lua"}
    code = re.sub(r"--.*", "", lua or "")
    match = re.search(GUARD_MARK + r'\s*=\s*"([^"]*)"', code)
    owner = match[1] if match else ""
    table = re.search(r"guest_partitions\s*=\s*\{([^}]*)\}", code)
    open_to_all = sorted(set(guests) - set(re.findall(r"[\w-]+", table[1] if table else "")))
    names = ", ".join(f'["{name}"] = true' for name in guests)
    users = "users could send their own jobs into the guest partitions"
    another = f"job_submit.lua lets {owner} into the guest partitions, and the daemon's user is {user}"
    unguarded = f"job_submit.lua does not guard {', '.join(open_to_all)}"
    check = "job_submit"
    return first_finding(
        (not installed, Finding(check, "fail", users, remedy, ("JobSubmitPlugins=lua",))),
        (lua is None, Finding(check, "warn", "job_submit.lua cannot be read here", remedy)),
        (not match, Finding(check, "fail", "job_submit.lua does not guard the guest partitions", remedy)),
        (
            user not in (owner, "root"),
            Finding(check, "fail", another, f'job_submit.lua: {GUARD_MARK} = "{user}"'),
        ),
        (
            open_to_all,
            Finding(check, "fail", unguarded, f"job_submit.lua: guest_partitions = {{ {names} }}"),
        ),
        (
            True,
            Finding(check, "ok", f"only {user}, root and SlurmUser send jobs into the guest partitions"),
        ),
    )


def rights_finding(slurm: Slurm, users: str, user: str) -> Finding:
    """May the daemon's user change jobs? `users` is `sacctmgr -Pn show user name=NAME format=User,AdminLevel`."""
    slurm_user = slurm.get("SlurmUser").partition("(")[0]
    rows = dict(line.split("|")[:2] for line in users.splitlines() if line.count("|") >= 1)
    level = rows.get(user, "")
    change, why = (
        (f"modify user {user} set adminlevel=Operator", f"{user} has AdminLevel {level or 'None'}")
        if user in rows
        else (
            f"add user {user} account=root adminlevel=Operator",
            f"the accounting database knows no user {user}",
        )
    )
    return first_finding(
        (user in ("root", slurm_user), Finding("rights", "ok", f"{user} may change every job")),
        (
            not _has_slurmdbd(slurm),
            Finding(
                "rights",
                "fail",
                f"without slurmdbd nobody but root and {slurm_user or 'SlurmUser'} may change other users' jobs",
                f'asad.toml, [nodes]: user = "{slurm_user or "slurm"}", '
                f"and User={slurm_user or 'slurm'} in asad.service",
            ),
        ),
        (
            level in ("Operator", "Administrator"),
            Finding("rights", "ok", f"{user} has AdminLevel {level}"),
        ),
        (True, Finding("rights", "fail", why, f"sacctmgr -i {change}")),
    )


def clock_finding(config: str, now: datetime) -> Finding:
    """The controller's clock, as `scontrol show config` begins with it, against ours (`now`, local time)."""
    match = re.search(r"as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", config)
    if not match:
        return Finding(
            "clocks", "warn", "the controller did not show its time", "compare `date` on both machines"
        )
    apart_s = abs((datetime.fromisoformat(match[1]) - now).total_seconds())
    return judged(
        "clocks",
        apart_s <= CLOCK_WARN_S,
        "this machine's clock agrees with the controller's",
        "fail" if apart_s > CLOCK_FAIL_S else "warn",
        f"this machine's clock and the controller's are {apart_s:.0f} s apart",
        "run chrony or another NTP service on both",
    )
