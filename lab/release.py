"""`python -m lab.release RELEASE PYTEST-ARGUMENTS`: tests on the Slurm of another Debian. `make test-slurm` calls it.

The other Debian (`trixie`, `sid`) is a folder with its packages, made once with debootstrap, and in it a virtual
environment of its own Python. Tests run there under `chroot`, in a mount namespace that ends with them: processes,
cgroups, devices and network are this machine's, programs and libraries the other one's. The checkout is the same.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab import LabError
from lab.debian import ROOT, bootstrap, check_programs, digest, download, requirements, run

BUILD = ROOT / "build" / "releases"
PACKAGES = (
    *(
        "munge",
        "mariadb-server",
        "slurmctld",
        "slurmd",
        "slurmdbd",
        "slurm-client",
        "slurm-wlm-basic-plugins",
    ),
    *("python3", "python3-venv", "iproute2", "procps"),
)
PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "mount": "mount", "chroot": "coreutils"}
"""Program → Debian package."""
EXTRAS = ("test", "mesos")
PYMESOS = "pymesos==0.3.15"
"""Comes without what it requires; docs/reference/mesos-plugin.md says why."""
CHECKOUT, VENV = "/asad", "/opt/asad"
"""In the tree: where this checkout is mounted, and its environment."""
CACHE = "/var/cache/asad"
"""Of what numba compiles there."""

ENTER = """
tree=$1 checkout=$2
shift 2
mount --bind "$tree" "$tree"  # `ip netns` wants a root that is a mount
for folder in proc sys dev; do mount --rbind "/$folder" "$tree/$folder"; done
mount -t tmpfs -o mode=0755 tmpfs "$tree/run"
mkdir -p "$tree/asad"
mount --bind "$checkout" "$tree/asad"
for file in hosts resolv.conf; do touch "$tree/etc/$file"; mount --bind "/etc/$file" "$tree/etc/$file"; done
exec chroot "$tree" sh -c 'cd /asad && exec "$@"' sh "$@"
"""


def inside(tree: Path, *command: str) -> int:
    """Run a command in the tree, from the checkout; its status."""
    environment = {
        "PATH": f"{VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "NUMBA_CACHE_DIR": CACHE,
        **{name: os.environ[name] for name in ("CI", "TERM", "COLUMNS", "ASAD_GOLDEN") if name in os.environ},
    }
    enter = ("unshare", "--mount", "sh", "-euc", ENTER, "sh", str(tree), str(ROOT))
    # every word is ours, or pytest's argument from whoever runs this
    return subprocess.run([*enter, *command], env=environment, check=False).returncode  # noqa: S603


def must(tree: Path, *command: str) -> None:
    """The same of a command that must succeed. Raises LabError."""
    if status := inside(tree, *command):
        raise LabError(
            f"{tree.name}: {' '.join(command)} ended with status {status}; remove {tree} to begin anew"
        )


def prepare(release: str) -> Path:
    """The tree of a release, as it was made before, or made now (some minutes, network needed).

    Raises LabError, CalledProcessError.
    """
    check_programs(PROGRAMS)
    tree = BUILD / f"{release}-{digest(PACKAGES)}"
    if not tree.exists():
        for old in BUILD.glob(f"{release}-*"):
            shutil.rmtree(old)
        bootstrap(tree, release, PACKAGES)
    wanted = requirements(*EXTRAS)
    stamp = tree / "opt" / f"asad-{digest(wanted, PYMESOS, (ROOT / 'setup.cfg').read_text())}"
    if not stamp.exists():
        furnish(tree, wanted)
        stamp.touch()
    return tree


def furnish(tree: Path, wanted: list[str]) -> None:
    """A virtual environment of the tree's own Python, with what asad and its tests need, and asad in place."""
    shutil.rmtree(tree / VENV[1:], ignore_errors=True)
    for stamp in (tree / "opt").glob("asad-*"):
        stamp.unlink()
    (tree / CACHE[1:]).mkdir(exist_ok=True)
    python = subprocess.run(  # noqa: S603 (our own words)
        ["chroot", str(tree), "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    wheels = tree / "opt" / "wheels"
    # out here pip knows its proxies, mirrors and certificates
    download(wheels, python, wanted)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, PYMESOS)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-index", "--find-links=/opt/wheels")
    pip = (f"{VENV}/bin/python", "-m", "pip", "install", *quiet)
    must(tree, "python3", "-m", "venv", VENV)
    must(tree, *pip, *wanted)
    must(tree, *pip, "--no-deps", PYMESOS)
    must(tree, *pip, "--no-deps", "--no-build-isolation", "--editable", CHECKOUT)
    shutil.rmtree(wheels)


def main(argv: list[str]) -> int:
    """Run pytest in the tree of a release; its status."""
    if not argv or not argv[0].isalnum():
        print("python -m lab.release RELEASE PYTEST-ARGUMENTS, as in: trixie tests/slurm", file=sys.stderr)
        return 2
    try:
        tree = prepare(argv[0])
        must(tree, "slurmctld", "-V")
        return inside(tree, "python", "-m", "pytest", *argv[1:])
    except (LabError, subprocess.CalledProcessError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
