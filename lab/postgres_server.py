"""A PostgreSQL server of our own, for tests and benchmarks: made, started, and gone at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory


class NoServer(Exception):
    """What is missing, and how it is installed."""


@contextlib.contextmanager
def postgres_server(within: str) -> Iterator[str]:
    """The folder of the socket of a server whose data lie in a folder of `within`. Raises NoServer."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found += [Path(path) for path in [shutil.which("initdb")] if path]
    if not found:
        raise NoServer("no initdb (apt-get install postgresql)")
    programs = found[-1].parent
    as_user: list[str] = []
    # short, for the socket, and open to the account of the server, unlike the folders of pytest
    with TemporaryDirectory(prefix="asad-pg-", dir=within) as folder:
        if os.geteuid() == 0:  # PostgreSQL refuses root
            as_user = ["runuser", "-u", "postgres", "--"]
            shutil.chown(folder, "postgres", "postgres")
        data = f"{folder}/data"

        def run(*command: str) -> None:
            subprocess.run(  # noqa: S603
                [*as_user, *command], check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=300
            )

        run(str(programs / "initdb"), "-D", data, "-A", "trust", "-U", "asad", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        control = str(programs / "pg_ctl")
        run(control, "-D", data, "-o", options, "-l", f"{folder}/log", "-w", "start")
        try:
            yield folder
        finally:
            run(control, "-D", data, "-m", "immediate", "-w", "stop")
