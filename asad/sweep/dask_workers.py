"""Workers of other machines: a Dask cluster by its address, or one that is started for a sweep on the nodes of a Slurm.

Needs the extra `cluster`. Tasks and results are pickled between machines: who reaches a scheduler can have
anything run. One that is started here therefore talks over TLS alone, with a key of its own.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from asad.bounded import printable
from asad.errors import ClusterError, UsageError, how_to_install

CONNECT_S = 20
LOOK_S = 1.0
"""Between two looks at how many workers there are."""
RENEW_S = 30.0
"""Between two looks at what has become of jobs; those that ended before the sweep did are submitted again."""
LOG_LINES = 15
ROLES = ("scheduler", "worker", "client")

Result = TypeVar("Result")


class DaskWorkers:
    """The workers of a Dask cluster, as many as there are at the time."""

    def __init__(self, client: Any, renew: Callable[[bool], None] = lambda working: None) -> None:
        """`client` is a `distributed.Client`; `renew` hears every half minute whether anybody is there."""
        self._client, self._renew = client, renew
        self._executor = client.get_executor(pure=False)
        self._threads, self._looked_s, self._renewed_s = 0, float("-inf"), time.monotonic()

    def at_once(self) -> int:
        """One task for each thread: one that waited behind another would be blamed with it for a worker's death.

        Raises ClusterError if the scheduler is gone.
        """
        now = time.monotonic()
        if now - self._looked_s >= LOOK_S:
            if self._client.status != "running":
                raise ClusterError(
                    "the Dask scheduler is gone; the same command goes on with what is missing"
                )
            self._looked_s, self._threads = now, sum(self._client.nthreads().values())
        if now - self._renewed_s >= RENEW_S:
            self._renewed_s = now
            self._renew(self._threads > 0)
        return self._threads

    def submit(self, function: Callable[[Any], Result], task: Any, /) -> Future[Result]:
        """Begin a task. Its future fails where its worker died time and again, and is cancelled with the cluster."""
        future: Future[Result] = self._executor.submit(function, task)
        return future


@contextmanager
def by_address(address: str) -> Iterator[DaskWorkers]:
    """The workers of the scheduler at `tcp://HOST:PORT` or `tls://…` (its keys are in Dask's own configuration).

    Raises UsageError where none answers, or the extra is missing.
    """
    distributed, _ = _needed("--dask")
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = printable(str(error).split("\n")[0][:200]) or type(error).__name__
        raise UsageError(
            f"--dask {printable(address)}: no scheduler answers ({reason}); start one: dask scheduler"
        ) from None
    with client:
        yield DaskWorkers(client)


@contextmanager
def on_slurm(
    nodes: int, cpus: int, options: Sequence[str], folder: Path, interface: str | None
) -> Iterator[DaskWorkers]:
    """A cluster of `nodes` jobs, of `cpus` processes each, that ends with the sweep.

    `options` are further ones of sbatch. Keys and logs of the workers are in a folder of their own in `folder`, which
    all nodes must share. A job that ends before the sweep is submitted again; jobs whose coordinator is gone end by
    themselves within a minute. Raises ClusterError where sbatch refuses or all jobs end without having worked,
    UsageError if the extra is missing.
    """
    distributed, jobqueue = _needed("--slurm")
    if shutil.which("sbatch") is None:
        raise UsageError("--slurm: there is no sbatch here; run the sweep on a login node of the cluster")
    own = Path(tempfile.mkdtemp(prefix=".asad-sweep-", dir=folder)).absolute()
    given = [
        "--job-name=asad-sweep", "--nodes=1", "--ntasks=1", f"--cpus-per-task={cpus}", f"--output={own}/worker-%j.log",
        *options,
    ]  # fmt: skip
    wrong = [one for one in given if not one.isprintable()]
    if wrong:
        raise UsageError(f"--slurm: {printable(wrong[0])}: options of sbatch hold no control characters")
    try:
        with jobqueue.SLURMCluster(
            cores=cpus,
            processes=cpus,
            memory="1GB",  # each must have some; what counts is Slurm's own limit
            worker_extra_args=["--memory-limit", "0"],
            nanny=cpus > 1,  # it starts again what died; of one process the job is
            job_directives_skip=["#SBATCH"],
            job_extra_directives=given,
            python=shlex.quote(sys.executable),
            security=_keys(distributed, own),
            scheduler_options={"dashboard": False, "dashboard_address": ":0"},
            interface=interface,
        ) as cluster:
            _tried(cluster.job_script())
            cluster.scale(jobs=nodes)
            with distributed.Client(cluster, set_as_default=False) as client:
                yield DaskWorkers(client, lambda working: _renewed(cluster, nodes, working, own))
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _keys(distributed: Any, own: Path) -> Any:
    """Key and certificate of this sweep alone, in files of `own`, which nobody else can enter."""
    made = distributed.Security.temporary()
    cert, key = own / "cert.pem", own / "key.pem"
    cert.write_text(made.tls_worker_cert)
    key.write_text(made.tls_worker_key)
    files = {f"tls_{role}_{kind}": str(own / f"{kind}.pem") for role in ROLES for kind in ("cert", "key")}
    return distributed.Security(require_encryption=True, tls_ca_file=str(cert), **files)


def _needed(option: str) -> tuple[Any, Any]:
    """distributed and dask_jobqueue. Raises UsageError that names the extra."""
    try:
        import cryptography  # noqa: F401
        import dask_jobqueue
        import distributed
    except ImportError as error:
        raise UsageError(f"{option} needs {error.name}; {how_to_install('cluster')}") from None
    return distributed, dask_jobqueue


def _asked(*words: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """One of Slurm's commands, as PATH has it."""
    return subprocess.run(words, input=script, text=True, capture_output=True, check=False)  # noqa: S603


def _tried(script: str) -> None:
    """Would sbatch take it? Raises ClusterError with its own words."""
    done = _asked("sbatch", "--test-only", script=script)
    if done.returncode:
        raise ClusterError(
            f"sbatch refuses: {printable(done.stderr.strip()[-500:])}; correct the options of --slurm"
        )


def _renewed(cluster: Any, nodes: int, working: bool, own: Path) -> None:
    """Submit again what has ended. Raises ClusterError if nobody works, and nobody ever will."""
    cluster.scale(jobs=nodes)  # of those that it has it submits none
    jobs = [str(job.job_id) for job in list(cluster.workers.values()) if job.job_id]
    if working or not jobs:
        return
    done = _asked("squeue", "--noheader", "--format=%i", f"--jobs={','.join(jobs)}")
    if done.stdout.strip() or (done.returncode and "Invalid job id" not in done.stderr):
        return
    logs = sorted(own.glob("worker-*.log"))
    lines = logs[-1].read_text(errors="replace").splitlines()[-LOG_LINES:] if logs else ["nothing"]
    written = "\n".join(printable(line[:300]) for line in lines)
    raise ClusterError(
        f"jobs {', '.join(jobs)} have ended and none has worked; the last one wrote:\n{written}"
    )
