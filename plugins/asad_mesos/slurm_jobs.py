"""A batch job of Slurm as a job for Mesos: what squeue shows of it → a gang that runs its own script. Pure.

The first group is one task, which runs the batch script as sbatch would; the second holds the rest of what the job
asked for until the script has ended (the first group's end is the job's). Scripts that want more of Slurm than an
environment (job steps by srun, licences, features, …) are left to Slurm, with the reason.
"""

from __future__ import annotations

import base64
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from asad.cluster.lending_rules import first_reason
from asad.cluster.slurm_json import loads, memory_bytes
from asad.cluster.slurm_json import number as number_of
from asad.errors import ClusterError, UsageError
from asad_mesos.job_spec import MEBIBYTE, MOST_TEXT, USER, Group, Spec

PENDING = "PENDING"
RUNS = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
ITS_TURN = frozenset(
    (
        "None",
        "Priority",
        "Resources",
        "PartitionDown",
        "PartitionConfig",
        "PartitionInactive",
        "ReqNodeNotAvail",
    )
)
"""Reasons for which a job waits that do not speak against running it elsewhere."""
DEFAULT_MEMORY_MIB = 256.0
BATCH, NODE = "batch", "node"
"""Names of the groups."""
HOLD = "hold"
"""Argument of the wrapped script by which a task knows that it only holds its place."""
STEPS = re.compile(r"(?m)^[^#\n]*(?<![\w./-])(?:srun|sattach|sbcast|scontrol|mpiexec\.slurm)(?![\w.-])")
"""Commands of Slurm that need an allocation of Slurm's."""
MEMORY_SET = frozenset(("JOB_MEM_SET", "EXACT_MEMORY_REQUESTED"))
"""Its user has asked for an amount of memory: in 22.05, and since 23.02."""
ALONE = re.compile(r"(\d{1,9})(?:%\d{1,9})?", re.ASCII)
"""The last waiting task of an array, written as a list of tasks: 26.05 does so for as long as it waits. It has the
array's number for its own, and nothing is left to be split off."""
PATTERN = re.compile(r"%(\d{0,2})([%A-Za-z])")


@dataclass(frozen=True, slots=True)
class Queued:
    """What squeue says of one job that matters here."""

    job: int
    submit_s: float
    user: str
    uid: int
    name: str
    partition: str
    state: str
    reason: str
    priority: float
    tasks: int
    cpus: int
    cpus_per_task: int
    nodes: int
    """Least nodes."""
    most_nodes: int
    """0 for no bound."""
    tasks_per_node: int
    memory_per_node: float
    memory_per_cpu: float
    """MiB; NaN if not given."""
    tres: str
    gpus_per_node: int
    time_limit_s: float
    directory: str
    output: str
    errors: str
    input: str
    command: str
    arguments: tuple[str, ...]
    """Of its script, as far as blanks separate them."""
    name_alone: bool
    """Slurm shows the name of its script, and perhaps not its arguments: newer ones keep those back, and show how it
    was submitted instead (26.05), or give that to accounting alone (24.11)."""
    array: int
    """Number of the array that it is of; 0 for none."""
    task: int
    """Its number in the array; -1 while it stands for all tasks of `tasks_left`."""
    tasks_left: str
    """Tasks of an array that wait in this record, as Slurm writes them (`0-3,7%2`)."""
    dependency: str
    """What of other jobs it waits for still."""
    most_running: int
    """So many tasks of the array may run at one time; 0 for no bound."""
    account: str
    qos: str
    comment: str
    admin_comment: str
    requeue: bool
    restarts: int
    bar: str
    """What speaks against running it elsewhere; empty for nothing."""

    @property
    def is_task(self) -> bool:
        """Is it one task of an array?"""
        return self.array > 0 and self.task >= 0

    @property
    def slurm_id(self) -> str:
        """By which Slurm's commands know it, and not its whole array."""
        return f"{self.array}_{self.task}" if self.is_task else str(self.job)


def read_jobs(answer: bytes) -> Iterator[Queued]:
    """The jobs of `squeue --json`, of any version. Raises ClusterError if it is none."""
    try:
        jobs = loads(answer)["jobs"]
        for job in jobs:
            yield read_job(job)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ClusterError(
            f"squeue --json: {type(error).__name__}: {str(error)[:80]}; is this a known Slurm?"
        ) from None


def read_job(job: Mapping[str, Any]) -> Queued:
    """One job. Raises KeyError, TypeError or ValueError if it is none."""

    def text(key: str) -> str:
        value = job.get(key)
        return value if isinstance(value, str) else ""

    def number(key: str, default: float = 0.0) -> float:
        return number_of(job.get(key), default)

    state = job["job_state"]
    tres = dict(word.partition("=")[::2] for word in text("tres_req_str").split(","))
    per_node, per_cpu = number("memory_per_node", math.nan), number("memory_per_cpu", math.nan)
    gpus, gpu_bar = _gpus(job)
    command, bar = text("command"), gpu_bar or _unserved(job, text, number)
    task, tasks_left = int(number("array_task_id", -1)), text("array_task_string")
    if alone := ALONE.fullmatch(tasks_left):
        task, tasks_left = int(alone[1]), ""
    given = re.match(rf"(?s)/(?:.*?/)?{re.escape(text('name'))} ", command)  # as 22.05 does
    name_alone = not isinstance(state, str) and command.startswith("/") and given is None
    read = Queued(
        job=int(job["job_id"]),
        submit_s=number("submit_time"),
        user=text("user_name"),
        uid=int(number("user_id", -1)),
        name=text("name"),
        partition=text("partition"),
        state=state if isinstance(state, str) else str(next(iter(state), "")),
        reason=text("state_reason") or "None",
        priority=number("priority"),
        tasks=max(1, int(number("tasks", 1))),
        cpus=max(1, int(_finite(tres.get("cpu", ""), number("cpus", 1)))),
        cpus_per_task=int(number("cpus_per_task", 0)),
        nodes=max(1, int(_finite(tres.get("node", ""), number("node_count", 1)))),
        most_nodes=int(number("max_nodes", 0)),
        tasks_per_node=int(number("tasks_per_node", 0)),
        memory_per_node=per_node if per_node > 0 else math.nan,
        memory_per_cpu=per_cpu if per_cpu > 0 else math.nan,
        tres=text("tres_req_str"),
        gpus_per_node=gpus,
        time_limit_s=60.0 * number("time_limit", math.inf),
        directory=text("current_working_directory"),
        output=text("standard_output"),
        errors=text("standard_error"),
        input=text("standard_input"),
        command=command,
        arguments=arguments_of(command, text("name")),
        name_alone=name_alone,
        array=int(number("array_job_id")),
        task=-1 if tasks_left else task,
        tasks_left=tasks_left,
        dependency=text("dependency"),
        most_running=int(number("array_max_tasks")),
        account=text("account"),
        qos=text("qos"),
        comment=text("comment"),
        admin_comment=text("admin_comment"),
        requeue=bool(job.get("requeue")),
        restarts=int(number("restart_cnt")),
        bar=bar or _blanks(command),
    )
    if not name_alone or not text("submit_line"):
        return read
    try:
        return argued(read, text("submit_line"))
    except UsageError as error:
        return replace(read, bar=bar or str(error))


def argued(job: Queued, line: str) -> Queued:
    """The job with the arguments of its script, by the command line that has submitted it.

    Raises UsageError if they cannot be found: the script's name must be in that line once, and what looks like a path
    with blanks must not be one without, and arguments.
    """
    if not job.name_alone:
        return job
    name = job.command.rpartition("/")[2]
    found = list(re.finditer(rf"(?<!\S)(?:\S*/)?{re.escape(name)}(?!\S)", line))
    rest = line[found[0].end() :] if found else ""
    if len(found) != 1 or (not rest and " " in job.command and name != job.name):
        raise UsageError("Slurm does not show whether its script has arguments")
    if blanks := _blanks(rest):
        raise UsageError(blanks)
    return replace(job, command=job.command + rest, arguments=tuple(rest.split()), name_alone=False)


def _blanks(command: str) -> str:
    if "  " in command or command.endswith(" "):
        return "its script has arguments with blanks, or empty ones, which Slurm does not separate"
    return ""


def _finite(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


def _gpus(job: Mapping[str, Any]) -> tuple[int, str]:
    """GPUs of each node, and what cannot be served of the rest."""
    per_node = job.get("tres_per_node") or ""
    others = [job.get(f"tres_per_{of}") or "" for of in ("job", "socket", "task")]
    # newer ones say --cpus-per-task there as well
    if any(not re.fullmatch(r"(?:cpu[:=]\d{1,9})?", word) for words in others for word in words.split(",")):
        return (
            0,
            "it asks for resources by job, socket or task (--gpus, --gpus-per-task); by node they could be had",
        )
    asked = [
        re.fullmatch(r"(?:gres[:/])?gpu(?:[:=](\d{1,4}))?", word) for word in per_node.split(",") if word
    ]
    gpus = sum(int(found[1] or 1) for found in asked if found)
    return (gpus, "") if all(asked) else (0, "it asks for a gres that Mesos does not know")


UNSERVED = {
    "licenses": "it wants licences",
    "resv_name": "it wants a reservation",
    "features": "it wants features of nodes (--constraint)",
    "required_nodes": "it wants certain nodes",
    "excluded_nodes": "it excludes nodes",
    "burst_buffer": "it wants a burst buffer",
    "container": "it runs in a container of Slurm's",
}
"""What of a job's wishes Mesos cannot serve, by the key that names one."""


def _unserved(job: Mapping[str, Any], text: Callable[[str], str], number: Callable[[str], float]) -> str:
    """What of its wishes Mesos cannot serve; empty if it can all of them."""
    shared = job.get("shared")
    words = shared if isinstance(shared, list) else [shared]
    amount = number("memory_per_node") > 0 or number("memory_per_cpu") > 0
    return first_reason(
        ("it is a part of a heterogeneous job", number("het_job_id") > 0),
        ("it has no batch script", not job.get("batch_flag", True)),
        *((why, text(key)) for key, why in UNSERVED.items()),
        (
            "it wants whole nodes (--exclusive)",
            any(word in ("none", "user", "mcs", "topo") for word in words)
            or job.get("exclusive") in ("true", ["true"]),
        ),
        (
            "it wants all memory of its nodes (--mem=0)",
            not amount and not MEMORY_SET.isdisjoint(job.get("flags") or ()),
        ),
    )


def arguments_of(command: str, name: str) -> tuple[str, ...]:
    """Arguments of a script. Slurm joins path and arguments by blanks, so one that holds blanks counts as several.

    The path may hold blanks where the job bears the script's name, which is so unless its user has named it.
    """
    found = re.match(rf"(?s)(/(?:.*?/)?{re.escape(name)})(?: |$)", command) if name else None
    path = found[1] if found else command.partition(" ")[0]
    return tuple(command[len(path) :].split())


def first_of(tasks: str) -> int:
    """The lowest number in a list of an array's tasks (`3,5-9:2%4`); -1 if there is none."""
    found = re.match(r"\[?(\d{1,9})", tasks)
    return int(found[1]) if found else -1


def not_taken(job: Queued, partition: str, arguments: bool = True) -> str:
    """Why a job stays with Slurm, or the empty string. `arguments`: may those be separated at blanks?"""
    return first_reason(
        ("it does not wait", job.state != PENDING),
        (f"it may run in other partitions than {partition}", job.partition != partition),
        (
            f"it waits for something other than its turn ({job.reason})",
            job.reason not in ITS_TURN or not job.priority > 0,
        ),
        ("its user has no name", not USER.fullmatch(job.user) or job.uid < 0),
        (
            "its script has arguments, which Slurm does not separate ([mesos.queue] arguments)",
            job.arguments and not arguments,
        ),
        (job.bar, job.bar),
    )


def translated(job: Queued, script: str, origin: str) -> Spec:
    """The gang that runs it. Raises UsageError that says why Mesos cannot."""
    if not script.startswith("#!"):
        raise UsageError("its script does not say by what it is run")
    if STEPS.search(script):
        raise UsageError("its script starts job steps (srun), which only an allocation of Slurm's can")
    # it named no nodes: its tasks go wherever there is room
    spread = (
        job.most_nodes == job.tasks_per_node == job.gpus_per_node == 0
        and job.nodes == 1
        and math.isnan(job.memory_per_node)
    )
    groups = _groups(job, spread)
    wrapped = wrap(job, script, spread, alone=sum(group.tasks for group in groups) == 1)
    if len(wrapped.encode()) > MOST_TEXT:
        raise UsageError(f"its script is too long: wrapped it may have {MOST_TEXT >> 10} KiB")
    return Spec(
        user=job.user,
        uid=job.uid,
        command="",
        groups=groups,
        name="".join(char for char in job.name if char.isprintable())[:128],
        script=wrapped,
        time_limit_s=job.time_limit_s if job.time_limit_s > 0 else math.inf,
        environment=_environment(job),
        retries=-1 if job.requeue else 0,
        origin=origin,
    )


def _groups(job: Queued, spread: bool) -> tuple[Group, ...]:
    """Its tasks, wherever there is room (`spread`); or so many agents, each with the part of one node."""
    cpus_per_task = job.cpus_per_task or max(1, math.ceil(job.cpus / job.tasks))
    if spread:
        count, cpus = job.tasks, cpus_per_task
    else:
        count = job.nodes
        tasks = job.tasks_per_node or math.ceil(job.tasks / count)
        cpus = max(tasks * cpus_per_task, math.ceil(job.cpus / count))
    if job.memory_per_node > 0:
        memory_mib = job.memory_per_node
    elif job.memory_per_cpu > 0:
        memory_mib = cpus * job.memory_per_cpu
    else:  # it named none: what Slurm counts for the whole job, or a little for each CPU
        counted_mib = memory_bytes(job.tres) / MEBIBYTE
        whole_mib = DEFAULT_MEMORY_MIB * job.cpus if math.isnan(counted_mib) else max(4.0, counted_mib)
        memory_mib = whole_mib / count
    first = Group(
        BATCH,
        command=BATCH,
        cpus=float(cpus),
        memory_bytes=max(4.0, memory_mib) * MEBIBYTE,
        gpus=job.gpus_per_node,
        apart=not spread and count > 1,
    )
    return (first,) if count == 1 else (first, replace(first, name=NODE, tasks=count - 1, command=HOLD))


def _environment(job: Queued) -> dict[str, str]:
    """What is known before it is placed; the rest (`wrap`) comes from where its tasks are."""
    by_node = job.memory_per_node > 0
    given = {
        "SLURM_JOB_ID": str(job.job),
        "SLURM_JOBID": str(job.job),
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_UID": str(job.uid),
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_ACCOUNT": job.account,
        "SLURM_JOB_QOS": job.qos,
        "SLURM_NTASKS": str(job.tasks),
        "SLURM_NPROCS": str(job.tasks),
        "SLURM_SUBMIT_DIR": job.directory,
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "0",
        "SLURM_ARRAY_JOB_ID": str(job.array) if job.is_task else "",
        "SLURM_ARRAY_TASK_ID": str(job.task) if job.is_task else "",
        "SLURM_CPUS_PER_TASK": str(job.cpus_per_task or ""),
        "SLURM_MEM_PER_NODE": f"{job.memory_per_node:.0f}" if by_node else "",
        "SLURM_MEM_PER_CPU": f"{job.memory_per_cpu:.0f}" if job.memory_per_cpu > 0 and not by_node else "",
        "ENVIRONMENT": "BATCH",
        # libraries for message passing would ask Slurm to start their ranks
        "OMPI_MCA_plm": "^slurm",
        "OMPI_MCA_ras": "^slurm",
        "HYDRA_BOOTSTRAP": "ssh",
        "HYDRA_RMK": "user",
    }
    return {key: value.replace("\0", "") for key, value in given.items() if value}


def file_name(pattern: str, job: Queued, default: str) -> str:
    """Path of an output file as sbatch writes it, absolute. Parts of it that only Slurm's nodes have are left out."""
    known = {"j": str(job.job), "A": str(job.job), "J": str(job.job), "x": job.name, "u": job.user, "%": "%"}
    known |= {"a": "4294967294", "n": "0", "t": "0", "s": "batch", "N": "mesos", "b": "4294967294"}
    if job.is_task:
        known |= {"A": str(job.array), "a": str(job.task), "b": str(job.task % 10)}
        default = default.replace("%j", "%A_%a")

    def filled(match: re.Match[str]) -> str:
        value = known.get(match[2], match[0])
        return value.zfill(int(match[1])) if match[1] and value.isdecimal() else value

    path = PATTERN.sub(filled, pattern or default).replace("\0", "")
    return path if path.startswith("/") else f"{job.directory or '/tmp'}/{path}"  # noqa: S108 (Slurm's own rule)


PLACES = r"""
# hosts in the order of ranks, each once, and how many tasks are on each: n1*4,n2*2
asad_places() {
  printf '%s' "$ASAD_NODES" | tr ',' '\n' | awk -F'*' -v want="$1" -v apart="$2" -v tasks="$3" '
    $1 != "" { if (!($1 in count)) { order[++hosts] = $1 } count[$1] += ($2 == "" ? 1 : $2) }
    function run(value, times) { out = out (out == "" ? "" : ",") value (times > 1 ? "(x" times ")" : "") }
    END {
      if (want == "hosts") { for (k = 1; k <= hosts; k++) out = out (k > 1 ? "," : "") order[k]; print out; exit }
      if (want == "count") { print hosts; exit }
      for (k = 1; k <= hosts; k++) {
        each = apart ? int(tasks / hosts) + (k <= tasks % hosts) : count[order[k]]
        if (k > 1 && each != last) { run(last, times); times = 0 }
        last = each; times++
      }
      if (hosts) run(last, times)
      print out
    }'
}
"""


def wrap(job: Queued, script: str, spread: bool, alone: bool = False) -> str:
    """A script around the job's own: it sets where that is, and runs it where and with the output as sbatch would."""
    output = file_name(job.output, job, "slurm-%j.out")
    errors = file_name(job.errors, job, "slurm-%j.out") if job.errors else ""
    stdin = file_name(job.input, job, "/dev/null") if job.input else "/dev/null"
    encoded = base64.encodebytes(script.encode()).decode("ascii")
    quoted = shlex.quote
    lines = [
        "#!/bin/sh",
        f"# the batch script of Slurm's job {job.job}, on Mesos",
        f'if [ "$1" = {HOLD} ]; then exec sleep 2147483647; fi',
        # the executor sets where the gang is; of one task that is here
        'if [ -z "$ASAD_NODES" ]; then',
        "  ASAD_NODES=$(hostname)"
        if alone
        else "  echo 'asad: the executor does not set ASAD_NODES; is it of the same version?' >&2; exit 78",
        "fi",
        PLACES.strip(),
        f"SLURM_JOB_NODELIST=$(asad_places hosts {int(not spread)} {job.tasks})",
        "SLURM_NODELIST=$SLURM_JOB_NODELIST",
        f"SLURM_JOB_NUM_NODES=$(asad_places count {int(not spread)} {job.tasks})",
        "SLURM_NNODES=$SLURM_JOB_NUM_NODES",
        f"SLURM_TASKS_PER_NODE=$(asad_places tasks {int(not spread)} {job.tasks})",
        "SLURMD_NODENAME=${SLURM_JOB_NODELIST%%,*}",
        "export SLURM_JOB_NODELIST SLURM_NODELIST SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_TASKS_PER_NODE",
        "export SLURMD_NODENAME",
        'folder=${MESOS_SANDBOX:-}; if [ -z "$folder" ] || [ ! -w "$folder" ]; then folder=$(mktemp -d) || exit 1; fi',
        "script=$folder/slurm_script",
        "umask 077",
        "base64 -d > \"$script\" <<'END_OF_SCRIPT' || exit 1",
        encoded.rstrip("\n"),
        "END_OF_SCRIPT",
        'chmod 700 "$script" || exit 1',
        "umask 022",
        f"cd {quoted(job.directory or '/tmp')} || cd /tmp || exit 1",  # noqa: S108 (as slurmstepd does)
        f"exec < {quoted(stdin)} > {quoted(output)} {'2> ' + quoted(errors) if errors else '2>&1'}",
        f'exec "$script" {shlex.join(job.arguments)}'.rstrip(),
    ]
    return "\n".join(lines) + "\n"
