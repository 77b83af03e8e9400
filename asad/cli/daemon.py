"""`asad`: the daemon beside Slurm, or over a recorded log in accelerated time."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asad import __version__
from asad.cli.services import run_service
from asad.config import DEFAULT_PATH, MODES, Config, load
from asad.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="asad")
@click.option(
    "--config",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Configuration [default: {DEFAULT_PATH}; a recorded cluster needs none].",
)
@click.option(
    "--check", is_flag=True, help="Read the configuration and all it names, say what is wrong, run nothing."
)
@click.option(
    "--warm-up",
    is_flag=True,
    help="Compile the configured policies into numba's cache (NUMBA_CACHE_DIR), run "
    "nothing; asad.service does it before each start.",
)
@click.option("--rehearse", is_flag=True, hidden=True)  # what it was called before, for one release
@click.option("--mode", type=click.Choice(MODES), help="Instead of the configured mode.")
@click.option("--cluster", metavar="NAME", help="Cluster plugin, or recorded.")
@click.option(
    "--state-dir", type=click.Path(file_okay=False, path_type=Path), help="Folder of lock, journal and store."
)
@click.option("--socket", type=click.Path(dir_okay=False, path_type=Path), help="Where asactl asks.")
@click.option("--metrics", metavar="HOST:PORT", help="Where Prometheus scrapes; none: nowhere.")
@click.option(
    "--log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The log of a recorded cluster.",
)
@click.option(
    "--speed", type=click.FloatRange(0, min_open=True), metavar="X", help="Seconds of the log in one second."
)
@click.option(
    "--nodes", type=click.IntRange(1), metavar="N", help="Nodes of the recorded machine (with --cores)."
)
@click.option("--cores", type=click.IntRange(1), metavar="N", help="Cores of each node.")
@click.option("--memory", metavar="SIZE", help="Memory of each node (128G); memory then counts.")
@click.option("--demand", metavar="FILE|beta:MEAN", help="CPU demand where the log has no CPU times.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", help="Seed of everything drawn in a recorded cluster."
)
@click.option("--stay", is_flag=True, default=None, help="Stay and answer when the log has ended.")
def asad(path: Path | None, check: bool, warm_up: bool, rehearse: bool, **given: Any) -> None:
    """Watch a live queue, and lend idle CPU shares of running jobs to waiting ones.

    What it may do is the mode's: observe (the default) only measures, advise records what it would do, enforce acts.

    \b
    Examples:
      asad --check
      asad --cluster recorded --log log.txt --nodes 16 --cores 32 --speed 1000
    """
    from asad import stages
    from asad.daemon import Daemon
    from asad.daemon import check as check_all

    def read() -> Config:
        return configured(path, given)

    config = read()
    if check:
        check_all(config)
        click.echo(f"{config.path or 'the defaults'}: nothing is wrong")
        return
    if rehearse:
        click.echo("asad: --rehearse is called --warm-up now, and goes with the next release", err=True)
    if warm_up or rehearse:
        stages.warm_up(config)
        return
    set_up_log(config.daemon.log_level)
    daemon = Daemon(config, reread=read if config.path is not None else None)
    daemon.main_thread.handle_signals()
    if config.daemon.cluster == "recorded":
        click.echo(f"asactl status --socket {config.daemon.socket}", err=True)
    status = daemon.run()
    if status:
        sys.exit(status)


def configured(path: Path | None, given: Mapping[str, Any]) -> Config:
    """The configuration with the options of the command line over it. Raises ConfigError."""
    recorded = given.get("cluster") == "recorded" or (
        given.get("cluster") is None and given.get("log") is not None
    )
    if path is not None:
        config = load(path)
    elif DEFAULT_PATH.exists() and not recorded:
        config = load(DEFAULT_PATH)
    elif recorded:
        config = _trial()
    else:
        raise ConfigError(
            f"there is no {DEFAULT_PATH}; write one, name another with --config, or play a log: "
            "asad --cluster recorded --log FILE"
        )
    folder, socket = given.get("state_dir"), given.get("socket")
    if folder is not None and socket is None and path is None and recorded:
        socket = folder / "asad.sock"
    daemon = {
        "mode": given.get("mode"),
        "cluster": "recorded" if recorded else given.get("cluster"),
        "state_dir": None if folder is None else folder.absolute(),
        "socket": None if socket is None else socket.absolute(),
    }
    played = {
        name: given.get(name) for name in ("speed", "nodes", "cores", "memory", "demand", "seed", "stay")
    }
    played["log"] = None if given.get("log") is None else str(given["log"].absolute())
    metrics = given.get("metrics")
    config = dataclasses.replace(
        config,
        daemon=_over(config.daemon, daemon),
        recorded=_over(config.recorded, played),
        metrics=_over(config.metrics, {"listen": "" if metrics == "none" else metrics}),
    )
    if (config.recorded.nodes > 0) != (config.recorded.cores > 0):
        raise ConfigError("--nodes and --cores go together: give both, or neither to infer the machine")
    if config.recorded.memory and not config.recorded.nodes:
        raise ConfigError("--memory is memory of each node: give --nodes and --cores with it")
    return config


def _trial() -> Config:
    """A recorded cluster without a configuration: in the user's own folder, and in mode enforce, as nothing is real."""
    state_home = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state_home) if Path(state_home).is_absolute() else Path.home() / ".local" / "state"
    folder = base / "asad" / "recorded"
    config = Config()
    return dataclasses.replace(
        config,
        daemon=dataclasses.replace(
            config.daemon, mode="enforce", state_dir=folder, socket=folder / "asad.sock", cluster="recorded"
        ),
    )


def _over(settings: Any, given: Mapping[str, Any]) -> Any:
    """`settings` with what was given; None is nothing."""
    return dataclasses.replace(settings, **{key: value for key, value in given.items() if value is not None})


class Plain(logging.Formatter):
    """Lines for a terminal or the journal: what users called their jobs steers neither."""

    def format(self, record: logging.LogRecord) -> str:
        """The record with all that is not printable spelt out, line ends of tracebacks aside."""
        text = super().format(record)
        return "".join(
            char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode("ascii")
            for char in text
        )


def set_up_log(level: str) -> None:
    """The log goes to standard error, where systemd takes it with its priority."""
    handler = logging.StreamHandler()
    handler.setFormatter(Plain("%(levelname)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def main() -> None:
    """Entry point. Exit status: 0 stopped, 1 another daemon runs or a fatal error, 2 wrong usage or configuration."""
    run_service(asad, "asad")
