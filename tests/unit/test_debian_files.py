"""debian/ is true to setup.cfg and systemd/. The build itself takes minutes: `make deb` and `make test-deb`."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
DEBIAN, SYSTEMD = ROOT / "debian", ROOT / "systemd"
RULES = (DEBIAN / "rules").read_text(encoding="utf-8")
EXTRAS = ("postgres", "web")
"""What the environment of the packages holds beside asad's own requirements."""
SCRIPTS = sorted(path for path in DEBIAN.iterdir() if path.suffix in (".prerm", ".postrm", ".postinst"))

spec = importlib.util.spec_from_file_location("build_packages", DEBIAN / "build_packages.py")
assert spec is not None and spec.loader is not None
build_packages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build_packages)


def setup() -> configparser.ConfigParser:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return config


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_environment_holds_what_asad_requires_in_versions_that_it_accepts() -> None:
    pins = dict(line.split("==") for line in lines((DEBIAN / "requirements.txt").read_text(encoding="utf-8")))
    config = setup()
    wanted = lines(config["options"]["install_requires"])
    for extra in EXTRAS:
        wanted += lines(config["options.extras_require"][extra])
    for requirement in map(Requirement, wanted):
        version = pins.get(canonicalize_name(requirement.name))
        assert version and requirement.specifier.contains(version), requirement


def test_every_unit_is_in_one_package_and_runs_a_program_that_is_linked() -> None:
    units = {
        path.name for path in SYSTEMD.iterdir() if path.is_file() and not path.name.startswith("asad-web")
    }
    listed = re.findall(r"^UNITS_asad(?:-node)? := (.*)$", RULES, re.M)
    assert sorted(" ".join(listed).split()) == sorted(units)
    linked = {line.split()[0] for path in DEBIAN.glob("*.links") for line in lines(path.read_text("utf-8"))}
    programs = {
        word
        for name in units
        for word in re.findall(r"/opt/asad/bin/([\w-]+)", (SYSTEMD / name).read_text("utf-8"))
    }
    assert {f"usr/lib/asad/bin/{program}" for program in programs} <= linked
    scripts = {
        line.split("=")[0].strip() for line in lines(setup()["options.entry_points"]["console_scripts"])
    }
    assert {Path(link).name for link in linked} == scripts


def test_what_packages_take_from_the_tree_is_there() -> None:
    for kind in ("install", "examples", "docs"):
        for path in DEBIAN.glob(f"*.{kind}"):
            for line in lines(path.read_text(encoding="utf-8")):
                assert (ROOT / line.split()[0]).is_file(), f"{path.name}: {line}"
    for name, target in (("sysusers", "sysusers.d"), ("tmpfiles", "tmpfiles.d")):
        assert (DEBIAN / f"asad.{name}").resolve() == SYSTEMD / target / "asad.conf"


def test_nothing_is_enabled_or_started_by_installing() -> None:
    calls = re.findall(r"^\t.*(dh_installsystemd .*)$", RULES, re.M)
    assert len(calls) == 3
    for call in calls:
        assert {"--no-enable", "--no-start", "--restart-after-upgrade"} <= set(call.split())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_maintainer_scripts_are_shell_and_end_in_debhelpers_part(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/sh\n") and "\nset -e\n" in text and text.endswith("#DEBHELPER#\n")
    done = subprocess.run(["sh", "-n", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_users_that_a_purge_removes_are_those_that_were_made() -> None:
    made = re.findall(
        r'^u (\S+) \S+ "asad (.+?)"', (SYSTEMD / "sysusers.d/asad.conf").read_text("utf-8"), re.M
    )
    script = (DEBIAN / "asad.postrm").read_text(encoding="utf-8")
    assert f"for user in {' '.join(user for user, _ in made)}; do" in script
    assert f":asad ({'|'.join(description for _, description in made)}):" in script


def test_versions_grow_with_commits_and_end_in_the_release() -> None:
    version = build_packages.debian_version
    first = version("0.2.0", "## Unreleased\n", "abc", 1_000_000_000)
    later = version("0.2.0", "## Unreleased\n", "012", 1_000_000_001)
    release = version("0.2.0", "## Unreleased\n\n## 0.2.0\n", "def", 1_000_000_002)
    assert release == "0.2.0"
    for lower, higher in ((first, later), (later, release), (version("0.2.0.dev1", "", "", 0), first)):
        assert compare(lower, higher), f"{lower} is not below {higher}"


def compare(lower: str, higher: str) -> bool:
    """Debian's own order of versions."""
    dpkg = ("dpkg", "--compare-versions", lower, "lt", higher)
    try:
        return subprocess.run(dpkg, check=False).returncode == 0
    except FileNotFoundError:
        pytest.skip("no dpkg (Debian's)")


def test_the_changelog_is_one_that_debians_tools_read(tmp_path: Path) -> None:
    (tmp_path / "changelog").write_text(build_packages.changelog_of("0.2.0", "A <a@b.example>", 0), "utf-8")
    parser = ("dpkg-parsechangelog", "--file", str(tmp_path / "changelog"), "--show-field", "Date")
    try:
        done = subprocess.run(parser, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no dpkg-parsechangelog (apt-get install dpkg-dev)")
    assert done.stdout.strip() == "Thu, 01 Jan 1970 00:00:00 +0000", done.stderr


def test_a_copy_of_the_checkout_has_what_git_knows(tmp_path: Path) -> None:
    build_packages.copy_checkout(tmp_path / "copy")
    assert (tmp_path / "copy/debian/asad.sysusers").is_symlink()
    assert os.access(tmp_path / "copy/debian/rules", os.X_OK)
    assert not (tmp_path / "copy/build").exists()
