"""Builds the Debian packages of this checkout for the Debian that it runs on: `make deb`.

A copy of what git knows (or, outside git, of everything) is built, so that nothing is left behind in the checkout. The
wheels that the packages hold come from Python's package index, in the versions of requirements.txt; the build itself
needs no network.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "/usr/bin/python3"
"""Debian's own: the packages depend on it."""
PROGRAMS = {"dpkg-buildpackage": "dpkg-dev", "dh": "debhelper", "lintian": "lintian"}
"""Program → Debian package."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    """A command that must succeed. Raises CalledProcessError."""
    subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
        stdin=subprocess.DEVNULL,
        check=True,
    )


def git(*words: str) -> str:
    """What git says of the checkout; nothing where there is no git, or no checkout."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def asad_version() -> str:
    """asad's version, as setup.cfg takes it."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "asad/__init__.py").read_text("utf-8"), re.M)
    assert found is not None
    return found[1]


def debian_version(version: str, changelog: str, commit: str, epoch_s: int) -> str:
    """A Debian version: asad's own if CHANGELOG.md has a section of it, else one before it that grows with commits.

    >>> debian_version("0.2.0", "## Unreleased", "abc1234", 0)
    '0.2.0~git19700101000000.abc1234'
    """
    version = re.sub(r"\.?(a|b|rc|dev)(?=\d)", r"~\1", version)
    if re.search(rf"^## {re.escape(version)}\b", changelog, re.M) or not commit:
        return version
    return f"{version}~git{time.strftime('%Y%m%d%H%M%S', time.gmtime(epoch_s))}.{commit}"


def changelog_of(version: str, maintainer: str, epoch_s: int) -> str:
    """debian/changelog with the one entry that a build needs; what changed stands in CHANGELOG.md."""
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(epoch_s))
    return f"""asad ({version}) unstable; urgency=medium

  * See /usr/share/doc/asad/changelog.gz.

 -- {maintainer}  {when}
"""


def copy_checkout(into: Path) -> None:
    """What git knows and what it does not ignore, with links as links."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z")
    if not listed:
        skipped = shutil.ignore_patterns("__pycache__", ".venv", "build")
        shutil.copytree(ROOT, into, symlinks=True, ignore=skipped)
        return
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name, follow_symlinks=False)


def gather_wheels(source: Path, folder: Path, tools: Path) -> None:
    """asad's wheel, and those of debian/requirements.txt, for Debian's Python."""
    if not (tools / "bin/pip").exists():
        run(PYTHON, "-m", "venv", "--clear", tools)
    pip = (tools / "bin/pip", "--disable-pip-version-check")
    pins = source / "debian/requirements.txt"
    run(
        *pip,
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        folder,
        "--requirement",
        pins,
    )
    for old in [*folder.glob("asad-*.whl"), *folder.glob("asad_hpc-*.whl")]:
        old.unlink()
    # by the Python that runs this, which has the setuptools that pyproject.toml asks for
    wheel = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    )
    copy = folder.parent / "asad"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, symlinks=True)
    run(*wheel, "--wheel-dir", folder, copy)
    shutil.rmtree(copy)


def build(out: Path, version: str, mkdocs: Path) -> list[Path]:
    """Build into `out`; the packages. Raises CalledProcessError, whose command has said why."""
    maintainer = re.search(r"^Maintainer: (.+)$", (ROOT / "debian/control").read_text("utf-8"), re.M)
    assert maintainer is not None
    epoch_s = int(git("log", "-1", "--format=%ct") or (ROOT / "CHANGELOG.md").stat().st_mtime)
    if not version:
        changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
        commit = git("log", "-1", "--format=%h", "--abbrev=10")
        version = debian_version(asad_version(), changes, commit, epoch_s)
    work = out / "work"
    source, wheels = work / "source", work / "wheels"
    shutil.rmtree(source, ignore_errors=True)
    copy_checkout(source)
    (source / "debian/changelog").write_text(changelog_of(version, maintainer[1], epoch_s), "utf-8")
    gather_wheels(source, wheels, work / "tools")
    for old in [*out.glob("*.deb"), *work.glob("*.deb")]:
        old.unlink()
    run(
        *("dpkg-buildpackage", "--build=binary", "--unsigned-source", "--unsigned-changes"),
        cwd=source,
        WHEELS=str(wheels),
        PIP=str(work / "tools/bin/pip"),
        MKDOCS=str(mkdocs),
    )
    return [built.rename(out / built.name) for built in sorted(work.glob("*.deb"))]


def main() -> int:
    """`build_packages.py [--out DIR] [--version VERSION] [--no-lintian]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/deb")
    parser.add_argument("--version", default="", help="Debian's; without it that of asad and the commit")
    parser.add_argument("--no-lintian", action="store_true")
    chosen = parser.parse_args()
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        print(f"build_packages.py: apt-get install {' '.join(missing)}", file=sys.stderr)
        return 1
    out = chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    packages = build(out, chosen.version, Path(sys.executable).with_name("mkdocs"))
    if not chosen.no_lintian:
        run("lintian", "--fail-on", "error", *packages)
    for package in packages:
        print(f"{package.stat().st_size / 1e6:7.1f} MB  {package}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
