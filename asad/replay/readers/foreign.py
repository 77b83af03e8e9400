"""Files of others that are given for a log: what they are by how they begin, and the way in.

`foreign` names accounting files of other resource managers, traces that were published, and what Slurm prints of its
queue and nodes. None of them is read as it is.

Columns were taken from the files as published, among them NREL's Eagle jobs (10.25984/2349244) and MIT's SuperCloud
data set (arXiv:2108.02037), whose slurm-log.csv is a dump of slurmdbd's table of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

MOST_CHARACTERS = 65536
MOST_LINES = 64
"""Lines that are looked at: comments and banners come first in some formats."""
LINE = 4096
"""Characters of a line that are looked at."""

# ------------------------------------------------------------------------------------------------------ what it is


class Foreign(NamedTuple):
    """Both parts of a LogError: `problem; remedy`."""

    problem: str
    remedy: str


def _way(columns: str, lines: str = "") -> str:
    """The way in. `columns` says what becomes sacct's columns; `lines`, of which lines."""
    of = f", {lines}" if lines else ""
    return (
        f"make an SWF of it, or a CSV with sacct's column names (docs/reference/logs.md){of}: {columns} "
        "(--columns and --format do not help)"
    )


def _accounting(whose: str, way: str) -> Foreign:
    return Foreign(f"this is the accounting of {whose}, which asad does not read", way)


def _trace(whose: str, way: str) -> Foreign:
    return Foreign(f"this is {whose}, which asad does not read", way)


PBS = _accounting(
    "PBS (OpenPBS, PBS Professional or Torque)",
    _way(
        "JobID the number of the id, Submit ctime, Start start, End end, Elapsed resources_used.walltime, "
        "NCPUS Resource_List.ncpus (Torque: nodes × ppn), NNodes Resource_List.nodect, Timelimit "
        "Resource_List.walltime, ReqMem Resource_List.mem, TotalCPU resources_used.cput, User user, "
        "JobName jobname, Partition queue",
        "a line for each record of type E",
    ),
)
SGE = _accounting(
    "Grid Engine (SGE, Univa or Altair)",
    _way(
        "JobID job_number, Submit submission_time, Start start_time, End end_time (seconds; Univa: "
        "milliseconds), Elapsed ru_wallclock, NCPUS slots, TotalCPU cpu, User owner, JobName job_name, "
        "Partition qname"
    ),
)
LSF = _accounting(
    "LSF (lsb.acct, lsb.events or bacct)",
    _way(
        "JobID jobId, Submit submitTime, Start startTime, End the time of the event, NCPUS numExHosts (a "
        "host for each slot), TotalCPU cpuTime (ru_utime and ru_stime), User userName, JobName jobName, "
        "Partition queue",
        "a line for each JOB_FINISH of lsb.acct",
    ),
)
CONDOR = _accounting(
    "HTCondor (condor_history or its event log)",
    _way(
        "JobID ClusterId_ProcId, Submit QDate, Start JobStartDate, End CompletionDate, Elapsed "
        "RemoteWallClockTime, NCPUS CpusProvisioned (or RequestCpus), ReqMem RequestMemory (MiB), TotalCPU "
        "RemoteUserCpu and RemoteSysCpu, User Owner",
        "a line for each job of condor_history",
    ),
)
MOAB = _accounting(
    "Moab or Maui (its events or its workload trace)",
    _way(
        "JobID the job's name, Submit, Start and End the times of the JOBEND record, NCPUS its tasks × "
        "processors of a task, User its user, Partition its class; the resource manager below it has a log "
        "of its own",
        "a line for each JOBEND",
    ),
)
FLUX = Foreign(
    "this is the output of `flux jobs`, which is none of `sacct --json`",
    _way(
        "JobID id, Submit t_submit, Start t_run, End t_cleanup, NCPUS ncores, NNodes nnodes, User "
        "username, JobName name"
    ),
)
JOB_COMPLETION = Foreign(
    "this is the file of Slurm's plugin jobcomp/filetxt, which asad does not read",
    "give the accounting of the same cluster, `sacct -aP` or `sacct -a --json`; without it make a CSV with "
    "sacct's column names (docs/reference/logs.md): JobID JobId, Submit SubmitTime, Start StartTime, End "
    "EndTime, NCPUS ProcCnt, NNodes NodeCnt, TimelimitRaw TimeLimit, State JobState, User UserId, JobName "
    "Name, Partition Partition",
)
QUEUE = Foreign(
    "this is what squeue or `scontrol show jobs` says of the queue now, which is no log of what ran",
    "give the output of `sacct --json` (sacct -a -S FROM -E UNTIL --json), or of sacct -aP "
    "(docs/reference/logs.md)",
)
NODES = Foreign(
    "this says what nodes there are (sinfo, `scontrol show nodes` or slurm.conf), which is no log of what "
    "ran",
    "give it with --machine; the log is the output of `sacct --json` or sacct -aP (docs/reference/logs.md)",
)
OTHER_SLURM = Foreign(
    "this is the output of another of Slurm's commands (sreport, sdiag, sshare, sstat, sprio, seff or "
    "sacctmgr), "
    "which is no log of what ran",
    "give the output of `sacct --json` or sacct -aP (docs/reference/logs.md)",
)
QSTAT = Foreign(
    "this is what PBS's qstat says of the queue now, which is no log of what ran and no output of `sacct "
    "--json`",
    "take PBS's accounting files (PBS_HOME/server_priv/accounting), and " + PBS.remedy,
)
QSTAT_SGE = Foreign(
    "this is what Grid Engine's qstat says of the queue now, which is no log of what ran",
    "take Grid Engine's file `accounting`, and " + SGE.remedy,
)
BJOBS = Foreign(
    "this is what LSF's bjobs or bhist says of its jobs, which asad does not read",
    "take LSF's file lsb.acct, and " + LSF.remedy,
)
YAML = Foreign(
    "this is YAML, which asad does not read (`sacct --yaml`?)",
    "give the same as JSON: the output of `sacct --json`",
)
WEB_PAGE = Foreign(
    "this is a web page or a part of one, and no log",
    "give the log itself: the output of `sacct --json` or sacct -aP, or an SWF (did the download ask for a login?)",
)
ELASTICSEARCH = Foreign(
    "this is what Slurm's plugin jobcomp/elasticsearch (or kafka) writes, which is no output of `sacct --json`",
    _way(
        "JobID jobid, Submit @submit, Start @start, End @end, ElapsedRaw elapsed, NCPUS total_cpus, NNodes "
        "total_nodes, TimelimitRaw time_limit, State state, User username, JobName job_name, Partition partition",
        "where the cluster's own accounting (sacct -aP) is gone",
    ),
)
PHILLY = Foreign(
    "this is Microsoft's Philly trace (cluster_job_log), which is no output of `sacct --json`",
    _way(
        "JobID a number for jobid, Submit submitted_time, Start the first start_time of attempts, End the "
        "last end_time, NCPUS the GPUs of detail (the trace has no cores), NNodes the entries of detail, "
        "State status, User user, Partition vc"
    ),
)
PHILLY_SERIES = Foreign(
    "this is one of the Philly trace's series of measurements, or its list of machines, and has no jobs",
    "jobs stand in its file cluster_job_log, of which an SWF, or a CSV with sacct's column names "
    "(docs/reference/logs.md), can be made",
)
SUPERCLOUD_SERIES = Foreign(
    "this is one of the series of measurements of the MIT SuperCloud data set, and has no jobs",
    "jobs stand in its file slurm-log.csv",
)
BATSIM = Foreign(
    "this is a workload of Batsim, which is no output of `sacct --json`",
    _way("JobID id, Submit subtime, NCPUS res, Timelimit walltime; its profile says how long a job runs"),
)
GOOGLE = _trace(
    "a table of Google's cluster data",
    _way(
        "JobID collection_id (job ID of 2011), Submit, Start and End the times of its events SUBMIT, "
        "SCHEDULE and FINISH; its cores are shares of a machine"
    ),
)
ALIBABA = _trace(
    "a table of Alibaba's cluster traces",
    _way(
        "JobID a number for job_name and task_name, Submit and Start start_time, End end_time, NCPUS "
        "plan_cpu ÷ 100 (cpu_milli ÷ 1000) × instance_num"
    ),
)
GWA = _trace(
    "a trace of the Grid Workloads Archive",
    "its first fourteen columns are those of SWF: write them as such, with -1 for the last four",
)

TABLES: tuple[tuple[frozenset[str], Foreign], ...] = (
    (
        frozenset(("job_id", "wallclock_req", "processors_req", "submit_time", "run_time")),
        _trace(
            "NREL's trace of Eagle",
            _way(
                "JobID a number for each row (tasks of an array share job_id), Submit submit_time, Start "
                "start_time, End "
                "end_time, ElapsedRaw run_time, ReqCPUS processors_req (most jobs held whole nodes of 36 cores), "
                "ReqNodes "
                "nodes_req, TimelimitRaw wallclock_req ÷ 60, State state, User user, JobName name, Partition partition"
            ),
        ),
    ),
    (
        frozenset(("id_job", "time_submit", "time_start", "time_end", "cpus_req")),
        _trace(
            "slurmdbd's table of jobs, as in the MIT SuperCloud data set (slurm-log.csv)",
            _way(
                "JobID id_job, Submit time_submit, Start time_start, End time_end, NNodes nodes_alloc, AllocTRES "
                "tres_alloc with cpu= for 1=, mem= for 2= (followed by M) and node= for 4=, TimelimitRaw timelimit "
                "(none "
                "above 4294967293), State state (3 COMPLETED, 4 CANCELLED, 5 FAILED, 6 TIMEOUT), UID id_user, JobName "
                "name_job, Partition partition; where it is your own cluster's, sacct -aP writes all of it"
            ),
        ),
    ),
    (
        frozenset(("jid", "adt", "sdt", "edt", "cnumat")),
        _trace(
            "F-Data, the trace of Fugaku",
            _way(
                "JobID a number for jid, Submit adt, Start sdt, End edt, ElapsedRaw duration, NCPUS "
                "cnumat, NNodes nnuma, TimelimitRaw elpl ÷ 60, TotalCPU usctmut ÷ 1000, User usr, JobName "
                "jnam"
            ),
        ),
    ),
    (
        frozenset(("job_id", "num_cores_alloc", "num_nodes_alloc", "submit_time", "run_time")),
        _trace(
            "the trace of Marconi100 (M100, PM100)",
            _way(
                "JobID job_id, Submit submit_time, Start start_time, End end_time, ElapsedRaw run_time, "
                "AllocCPUS num_cores_alloc, NNodes num_nodes_alloc, TimelimitRaw time_limit, State "
                "job_state, UID user_id, Partition partition"
            ),
        ),
    ),
    (
        frozenset(("cobalt_jobid", "queued_timestamp", "runtime_seconds")),
        _trace(
            "Cobalt's accounting, as ALCF publishes it (DIM_JOB_COMPOSITE)",
            _way(
                "JobID COBALT_JOBID, Submit QUEUED_TIMESTAMP, Start START_TIMESTAMP, End END_TIMESTAMP, "
                "ElapsedRaw RUNTIME_SECONDS, NCPUS CORES_USED, NNodes NODES_USED, TimelimitRaw "
                "WALLTIME_SECONDS ÷ 60, User USERNAME_GENID, JobName JOB_NAME, Partition QUEUE_NAME"
            ),
        ),
    ),
    (
        frozenset(("job_id", "gpu_num", "cpu_num", "node_num", "submit_time")),
        _trace(
            "SenseTime's Helios trace",
            _way(
                "JobID job_id, Submit submit_time, Start start_time, End end_time, ElapsedRaw duration, "
                "NCPUS cpu_num, NNodes node_num, State state, User user, Partition queue"
            ),
        ),
    ),
    (
        frozenset(
            ("submit_time", "start_time", "end_time", "wallclock_limit", "node_count", "tasks_requested")
        ),
        _trace(
            "LANL's trace of Mustang or Trinity (ATLAS)",
            _way(
                "JobID a number for each row, Submit submit_time, Start start_time, End end_time, NCPUS node_count × "
                "the cores of a node (Mustang 24, Trinity 32), NNodes node_count, Timelimit wallclock_limit, State "
                "job_status, UID user_ID"
            ),
        ),
    ),
    (frozenset(("cpu_milli", "memory_mib", "creation_time", "deletion_time")), ALIBABA),
    (frozenset(("task_name", "job_name", "plan_cpu", "start_time")), ALIBABA),
    (frozenset(("job_name", "inst_id", "user", "start_time", "end_time")), ALIBABA),
    (frozenset(("collection_id", "instance_index")), GOOGLE),
    (frozenset(("collection_id", "collection_logical_name")), GOOGLE),
    (frozenset(("job_id", "task_index", "machine_id", "event_type")), GOOGLE),
    (frozenset(("machineid", "gpu0_util")), PHILLY_SERIES),
    (frozenset(("time", "machine_id", "cpu_util")), PHILLY_SERIES),
    (frozenset(("time", "machineid", "cpu_util")), PHILLY_SERIES),
    (frozenset(("machine_id", "mem_total", "mem_free")), PHILLY_SERIES),
    (frozenset(("machineid", "number of gpus")), PHILLY_SERIES),
    (frozenset(("step", "node", "series", "cpufrequency")), SUPERCLOUD_SERIES),
    (frozenset(("timestamp", "gpu_index", "utilization_gpu_pct")), SUPERCLOUD_SERIES),
    (
        frozenset(("jobid", "submittime", "waittime", "runtime", "nprocs")),
        GWA,
    ),
    (
        frozenset(("qname", "hostname", "owner", "job_number", "submission_time", "ru_wallclock")),
        SGE,
    ),
)
"""Columns in lower case → what a table with all of them is; the first counts."""

# ---------------------------------------------------------------------------------------------------- texts and JSON

EPOCH = r"\d{9,10}(?:\d{3})?"
LINES: tuple[tuple[re.Pattern[str], Foreign], ...] = tuple(
    (re.compile(pattern, re.ASCII), found)
    for pattern, found in (
        (r"(?:\d\d/\d\d/\d{4}|\d{4}-\d\d-\d\d) \d\d:\d\d:\d\d(?:\.\d+)?;[A-Za-z];[^;]*;", PBS),
        (r"Job Id: \S|Job id +Name +User +Time Use|Job ID +Username +Queue +Jobname", QSTAT),
        (r"job-ID +prior +name +user +state", QSTAT_SGE),
        (r"Summary of time in seconds spent in various states", BJOBS),
        (r"<!DOCTYPE classads|<classads>", CONDOR),
        (r"(?i:<!DOCTYPE html|<html|<head|<body|<pre)", WEB_PAGE),
        (r"Job ID: \d+$", OTHER_SLURM),
        (
            r'"?(?:JOB|EVENT|QUEUE|HOST|MBD|JGRP|LOAD|PRE|CHKPNT|MIG)_[A-Z_0-9]{2,30}"? +"[\d.]{1,10}" +\d{9,10}\b',
            LSF,
        ),
        (r"Accounting information about jobs that are:", LSF),
        (r"\d{3} \(\d+\.\d{3}\.\d{3}\) \d", CONDOR),
        (r"\*\*\* Offset = \d+ ClusterId = \d+", CONDOR),
        (r"\d\d:\d\d:\d\d \d{9,10}(?::\d+)? +(?:job|node|rsv|sched|scheduler|rm|trigger)\b", MOAB),
        (r"JobId=\d+ +UserId=.* (?:JobState|ProcCnt|EndTime)=", JOB_COMPLETION),
        (r"JobId=\d+ .*JobName=|JobId=\d+ *$", QUEUE),
        (r"\*{20,}|sdiag output at", OTHER_SLURM),
        (
            r"(?:Cluster Utilization|Top \d+ Users|Cluster/(?:Account|User)|User/Account/|Account/User/)",
            OTHER_SLURM,
        ),
        (r"M?[\w.]*,\d+,j_\d+,\w+,\w+,\d+,\d+,[\d.]*,[\d.]*$", ALIBABA),
    )
)
"""How one of the first lines of each begins."""
SLURM_CONF = re.compile(
    r"(?:NodeName|ClusterName|SlurmctldHost|ControlMachine|PartitionName|SelectType)\s*=\s*\S"
)
"""How some line of slurm.conf or of `scontrol show node` begins."""
FULL_HEADS: tuple[tuple[frozenset[str], frozenset[str], Foreign], ...] = (
    (frozenset(("JOBID", "STAT")), frozenset(("QUEUE", "FROM_HOST", "JOB_NAME", "EXEC_HOST")), BJOBS),
    (frozenset(("JOBID", "PEND", "PSUSP")), frozenset(("USUSP", "SSUSP")), BJOBS),
    (frozenset(("OWNER", "SUBMITTED")), frozenset(("RUN_TIME", "BATCH_NAME")), CONDOR),
    (
        frozenset(("Cluster",)),
        frozenset(("Share", "ControlHost", "GrpJobs")),
        OTHER_SLURM,
    ),
    (frozenset(("User", "Def Acct")), frozenset(("Admin",)), OTHER_SLURM),
    (frozenset(("Name", "GraceTime")), frozenset(("Priority",)), OTHER_SLURM),
    (frozenset(("JOBID",)), frozenset(("ST", "TIME", "NODELIST(REASON)", "TIME_LEFT", "SUBMIT_TIME")), QUEUE),
    (
        frozenset(("NODELIST", "STATE")),
        frozenset(("AVAIL", "NODES", "NODES(A/I/O/T)", "CPUS(A/I/O/T)", "CPUS")),
        NODES,
    ),
    (frozenset(("NODELIST", "S:C:T")), frozenset(("MEMORY", "CPUS")), NODES),
    (frozenset(("JOBID", "PRIORITY", "AGE")), frozenset(("FAIRSHARE", "PARTITION", "JOBSIZE")), OTHER_SLURM),
    (frozenset(("Account", "RawShares")), frozenset(("NormShares", "FairShare")), OTHER_SLURM),
)
"""Words of a head as Slurm writes them, all of the first and any of the second."""
SGE_FIELDS = 40
"""Fields of a line of its accounting: 43 and more, of old versions a few fewer; names may hold escaped colons."""

JSON_KEY = re.compile(r'"([A-Za-z_@][\w.-]{0,40})"\s*:', re.ASCII)
SACCT_KEYS = frozenset(("time", "association", "steps"))
"""Two of these are in each job of `sacct --json`."""
JSON_KINDS: tuple[tuple[frozenset[str], Foreign], ...] = (
    (frozenset(("status", "vc", "jobid", "attempts")), PHILLY),
    (frozenset(("ClusterId", "ProcId")), CONDOR),
    (frozenset(("COMMAND", "RECORDS")), BJOBS),
    (frozenset(("jobid", "@submit", "@start")), ELASTICSEARCH),
    (frozenset(("pbs_version", "Jobs")), QSTAT),
    (frozenset(("t_submit", "t_run")), FLUX),
    (frozenset(("t_submit", "ranks")), FLUX),
    (frozenset(("jobs", "profiles", "subtime")), BATSIM),
    (frozenset(("subtime", "walltime", "profile")), BATSIM),
    (frozenset(("collection_id", "instance_index")), GOOGLE),
    (frozenset(("job_number", "submission_time", "qname")), SGE),
    (frozenset(("submit_time", "job_state")), QUEUE),
    (frozenset(("submit_time", "eligible_time", "job_id")), QUEUE),
    (frozenset(("nodes", "real_memory")), NODES),
    (frozenset(("sinfo",)), NODES),
    (frozenset(("partitions", "maximums")), NODES),
    (frozenset(("statistics", "schedule_cycle_max")), OTHER_SLURM),
    (frozenset(("shares", "usage")), OTHER_SLURM),
    (frozenset(("associations", "default")), OTHER_SLURM),
)
"""Keys of JSON → what has all of them; the first counts."""


def foreign(start: str) -> Foreign | None:
    """What a file is that is no log asad reads, and the way in; None of a log, and of what is not known here.

    `start` is its beginning, decoded; more than `MOST_CHARACTERS` are not looked at.
    """
    start = start[:MOST_CHARACTERS]
    if start.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return _json(start)
    lines = [line[:LINE].lstrip("\ufeff").rstrip() for line in start.splitlines()[:MOST_LINES]]
    written = [line for line in lines if line.strip()]
    if not written:
        return None
    plain = [line for line in written if line.lstrip()[0] not in "#;"] or written
    found = _table(line.lstrip("# \t") for line in written[:4])
    found = found or next(
        (found for line in plain[:4] for form, found in LINES if form.match(line.lstrip())), None
    )
    found = found or (NODES if _configuration(plain) else None) or _yaml(plain)
    return found or _grid_engine(written, plain) or (CONDOR if _classad(plain) else None)


def _json(start: str) -> Foreign | None:
    """By its keys, since its beginning is no whole document."""
    keys = frozenset(JSON_KEY.findall(start))
    if len(SACCT_KEYS & keys) > 1:
        return None
    return next((found for wanted, found in JSON_KINDS if wanted <= keys), None)


def _table(lines: Iterable[str]) -> Foreign | None:
    """By the names of its columns, which stand in one of the first lines."""
    for line in lines:
        words = _head(line)
        held = frozenset(words)
        for all_of, any_of, found in FULL_HEADS:
            if all_of <= held and any_of & held:
                return found
        lower = frozenset(word.lower() for word in words)
        for wanted, found in TABLES:
            if wanted <= lower:
                return found
    return None


def _head(line: str) -> Sequence[str]:
    """The words of a head, separated by a delimiter, else by blanks."""
    by = next((by for by in (",", "|", "\t", ";", "^", "~") if by in line), None)
    return [word.strip().strip("\"'") for word in line.split(by)]


def _configuration(lines: Sequence[str]) -> bool:
    """Whether these are lines of slurm.conf, or of `scontrol show node`, from the first one on."""
    key = re.compile(r"\w+(?:\.\w+)?\s*=|include\s", re.IGNORECASE | re.ASCII)
    return key.match(lines[0]) is not None and any(SLURM_CONF.match(line) for line in lines)


def _yaml(lines: Sequence[str]) -> Foreign | None:
    """YAML of Slurm's commands, by its first keys."""
    start = "\n".join(lines)
    if not re.match(
        r"(?:%YAML.*\n)?(?:---\n)?(?:meta|jobs|errors|warnings|nodes|sinfo): *(?:\n|\[|$)", start
    ):
        return None
    if re.search(r"^[ -]*(?:job_state|eligible_time):", start, re.MULTILINE):
        return QUEUE
    return NODES if re.search(r"^(?:nodes|sinfo):|^[ -]*real_memory:", start, re.MULTILINE) else YAML


def _grid_engine(written: Sequence[str], plain: Sequence[str]) -> Foreign | None:
    """A line of its accounting, or of `qacct -j`."""
    if len(written) > 1 and written[0].startswith("=====") and written[1].startswith("qname "):
        return SGE
    fields = plain[0].split(":")
    if len(fields) < SGE_FIELDS:
        return None
    # qname:hostname:group:owner:job_name:job_number:account:priority:submission_time:start_time:end_time:…
    for more in range(4):  # a name may hold colons
        times = fields[8 + more : 11 + more]
        if fields[5 + more].isdecimal() and all(re.fullmatch(rf"0|{EPOCH}", one) for one in times):
            return SGE
    return None


def _classad(lines: Sequence[str]) -> bool:
    """Whether each of the first lines is an attribute of a ClassAd."""
    first = lines[:8]
    attributes = re.compile(r"[A-Za-z_]\w* = \S")
    named = any(
        re.match(r"(?:ClusterId|ProcId|GlobalJobId|MyType|QDate|JobStatus) = ", line) for line in lines
    )
    return named and all(attributes.match(line) for line in first)
