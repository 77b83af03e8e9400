"""Debian's packages of any release in a folder, and a wheel of each Python package that asad needs there.

For tests that need another machine than this one: `tests/vm` boots such a tree, `lab.release` changes its root to one.
"""

from __future__ import annotations

import configparser
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import LabError

ROOT = Path(__file__).resolve().parents[1]
MIRROR = os.environ.get("ASAD_DEBIAN_MIRROR", "http://deb.debian.org/debian")
PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux"}
"""Program → Debian package, to make a tree."""
PLATFORMS = (
    "manylinux1",
    "manylinux2010",
    "manylinux2014",
    *(f"manylinux_2_{minor}" for minor in range(5, 37)),
)
"""What the C library of Debian 12 and later can load, whatever Python runs out here."""


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """A command that must succeed. Raises CalledProcessError; what the command says is the caller's to see."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    subprocess.run(  # noqa: S603 (an argv list, no shell)
        [str(word) for word in command], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, check=True
    )


def check_programs(programs: Mapping[str, str]) -> None:
    """Raises LabError with what to install."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    missing = [package for program, package in programs.items() if shutil.which(program, path=path) is None]
    if missing:
        raise LabError(f"install {' '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
    if os.geteuid() != 0:
        raise LabError("only root can make a Debian tree with its owners and devices: run this as root")


def digest(*parts: object) -> str:
    """A name for what was made from these: when they change it is made anew."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def requirements(*extras: str) -> list[str]:
    """What asad says that it needs, and what it needs for these extras."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = [config["options"]["install_requires"]]
    wanted += [config["options.extras_require"][extra] for extra in extras]
    return [word for lines in wanted for word in lines.split("\n") if word and not word.startswith("#")]


def bootstrap(tree: Path, release: str, packages: Sequence[str]) -> None:
    """Debian's packages in `tree`; what debootstrap mounts there vanishes with its mount namespace."""
    partial = tree.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    options = ("--variant=minbase", f"--include={','.join(packages)}")
    run("unshare", "--mount", "debootstrap", *options, release, partial, MIRROR)
    shutil.rmtree(partial / "var/cache/apt/archives")
    partial.rename(tree)


def download(wheels: Path, python: str, packages: Sequence[str]) -> None:
    """A wheel of each of these and of what they require, for that Python (`3.11`)."""
    partial = wheels.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(wheels, ignore_errors=True)
    platforms = [f"--platform={platform}_x86_64" for platform in PLATFORMS]
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check")
    for_there = (f"--python-version={python}", "--implementation=cp", "--only-binary=:all:", *platforms)
    run(*pip, *for_there, "--dest", partial, *packages)
    partial.rename(wheels)


__all__ = [
    "ROOT",
    "bootstrap",
    "check_programs",
    "digest",
    "download",
    "requirements",
    "run",
]
