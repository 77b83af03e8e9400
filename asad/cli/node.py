"""`asad-node`: the actor on every node."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import resource
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from asad import __version__
from asad.api.auth import open_authenticator
from asad.api.node_client import Clients, NodeClient, Seniority
from asad.cli.output import schema_name
from asad.cli.services import run_service
from asad.config import DEFAULT_PATH, Config, load
from asad.errors import ClusterError, ConfigError, UsageError
from asad.node.actor import Actor, Settings, sample_to_json
from asad.node.cgroups import Cgroups
from asad.node.profile import Profile
from asad.node.progress_files import FOLDER, folder_of
from asad.node.quotas import Quotas

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,254}", re.ASCII)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="asad-node")
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_PATH,
    show_default=True,
    help="The tables [node] and [nodes] of this file say what to do.",
)
@click.option(
    "--node",
    default="",
    help="Name of this node in Slurm; without it [node] node, else the host name up to its first dot.",
)
@click.option(
    "--cgroup-root",
    type=click.Path(path_type=Path),
    default=Path("/sys/fs/cgroup"),
    show_default=True,
    help="Where cgroups are mounted.",
)
@click.option(
    "--once", is_flag=True, help="Look at the jobs once, print them as JSON, change nothing, and end."
)
@click.option(
    "--undo",
    is_flag=True,
    help="Lift the quotas and limits, and narrow the guests, that a killed actor has left here, and end; "
    "the exit status is 1 if the kernel refused one. Needs no keys.",
)
def asad_node(path: Path, node: str, cgroup_root: Path, once: bool, undo: bool) -> None:
    """Measure the jobs of this node, and hold guests to what the daemon leases them."""
    if once and undo:
        raise UsageError("--once changes nothing and --undo does: give one of them")
    config = load(path)
    node = node or config.node.node or socket.gethostname().partition(".")[0]
    if not NODE_NAME.fullmatch(node):
        raise UsageError(f"{node!r} is no name of a node; give it with --node, as Slurm has it")
    logging.basicConfig(
        level=config.daemon.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    _raise_file_limit()
    if undo and not (config.node.state_dir / node).exists():
        return  # no actor has ever run here; there may be no cgroups either
    cgroups = Cgroups(cgroup_root, node)
    if once:
        click.echo(look(cgroups))
    elif undo:
        sys.exit(undo_left(settings_of(config, node), cgroups))
    else:
        run(config, node, cgroups)


def run(config: Config, node: str, cgroups: Cgroups) -> None:
    """Run the actor until it is asked to stop (SIGTERM or SIGINT)."""
    settings = settings_of(config, node)
    try:
        authenticator = open_authenticator(config.nodes, "actor")
    except ConfigError:
        # nothing is begun without keys; but what a killed actor has left does not wait for them
        if settings.state_dir.exists():
            with contextlib.suppress(ClusterError):  # another one runs
                Actor(settings, cgroups).recover()
        raise
    progress = folder_of(os.environ)
    if progress == FOLDER and not progress.is_mount():
        logging.getLogger(__name__).warning(
            "%s is no file system of its own, and jobs can fill the one it is in: install run-asad\x2dprogress.mount",
            progress,
        )
    actor = Actor(settings, cgroups, progress=progress)
    seniority = Seniority()
    clients = Clients(
        [
            NodeClient(address, node, authenticator, actor.hear, cgroup=cgroups.version, seniority=seniority)
            for address in config.node.daemons
        ]
    )
    actor.link = clients
    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, lambda *_: actor.stop())
    # the kernel's word that somebody opens a file of which we hold the lease for a moment would end us
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    clients.start()
    try:
        actor.run()
    finally:
        clients.stop()


def settings_of(config: Config, node: str) -> Settings:
    """What the configuration says of the actor of `node`."""
    return Settings(
        node=node,
        state_dir=config.node.state_dir / node,
        sample_s=config.node.sample_s,
        pressure_s=config.node.pressure_s,
        guest_partitions=frozenset(config.node.guest_partitions),
        widen=config.node.widen,
        register=config.node.register,
    )


def undo_left(settings: Settings, cgroups: Cgroups) -> int:
    """Lift what a killed actor has left, print each file that was written, and return the exit status.

    Raises ClusterError where an actor runs: it would hold on.
    """
    actor = Actor(settings, cgroups)
    actor.recover()
    rows = list(actor.quotas.rows)
    actor.close()
    for row in rows:
        click.echo(f"{row.file}: {row.new}")
    return int(any(row.new.startswith("refused: ") for row in rows))


def look(cgroups: Cgroups) -> str:
    """The jobs of this node as JSON: what a report says, from one look (so means over a window are null)."""
    quotas = Quotas(cgroups, Path(os.devnull), time.time)
    profile = Profile(cgroups, quotas, time.time, folder_of(os.environ), offer_progress=False)
    now_s = time.monotonic()
    jobs = cgroups.jobs(now_s)
    profile.follow(jobs)
    guests = {job_id for job_id, group in jobs.items() if quotas.is_idle(group)}
    samples = {
        job_id: replace(found, idle_class=job_id in guests)
        for job_id, found in profile.look(now_s, guests).items()
    }
    profile.close()
    return json.dumps(
        {
            "schema": schema_name("asad-node"),
            "node": cgroups.node,
            "cgroup": cgroups.version,
            "jobs": {k: sample_to_json(v) for k, v in samples.items()},
        },
        indent=2,
    )


def _raise_file_limit() -> None:
    """Some files of each job are kept open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Entry point. Exit status: 0 stopped as instructed, 2 wrong usage, configuration or keys, 1 anything else."""
    run_service(asad_node, "asad-node")
