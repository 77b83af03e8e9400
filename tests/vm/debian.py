"""The disk that the virtual machine boots: Debian 12 with systemd, Slurm and the packages that asad needs.

Built once as root (debootstrap, then `mkfs.ext4 -d`, so that nothing is mounted) and kept; a change of the package
lists or of asad's requirements makes another one. Packages run natively here and under emulation there: what is large
and does not depend on the checkout is installed here.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.debian import PROGRAMS as TREE_PROGRAMS
from lab.debian import ROOT, bootstrap, check_programs, digest, download, requirements, run

RELEASE, PYTHON = "bookworm", "3.11"
PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "linux-image-cloud-amd64", "kmod", "iproute2", "procps", "openssl"),
    *(
        "munge",
        "mariadb-server",
        "slurmctld",
        "slurmd",
        "slurmdbd",
        "slurm-client",
        "slurm-wlm-basic-plugins",
    ),
    *("python3", "python3-venv"),
)
PROGRAMS = {**TREE_PROGRAMS, "mkfs.ext4": "e2fsprogs", "qemu-system-x86_64": "qemu-system-x86"}
"""Program → Debian package."""
SIZE = "4G"  # sparse: about 1.5 GB are taken

FILES = {
    "etc/hostname": "n1\n",
    "etc/hosts": "127.0.0.1 localhost\n10.9.0.1 n1\n",
    "etc/fstab": "/dev/vdb /mnt/payload ext4 ro,nofail 0 0\n",
    # There is no network; yet glibc resolves no name, not even localhost, without an interface that has an address.
    "etc/systemd/network/10-vm.netdev": "[NetDev]\nName=vm0\nKind=dummy\n",
    "etc/systemd/network/10-vm.network": """[Match]
Name=vm0

[Network]
Address=10.9.0.1/24
LinkLocalAddressing=no
""",
    "etc/systemd/system/vm-probe.service": """[Unit]
Description=Runs what the test asks for
RequiresMountsFor=/mnt/payload
BindsTo=dev-virtio\\x2dports-probe.device
After=dev-virtio\\x2dports-probe.device network-online.target
Wants=network-online.target

[Service]
ExecStart=/usr/bin/python3 -u /mnt/payload/probe.py /dev/virtio-ports/probe
Environment=PATH=/opt/asad/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
""",
}
ENABLED = ("systemd-networkd.service", "systemd-networkd-wait-online.service", "vm-probe.service")
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
)
"""They would take the machine's time at moments of their own."""


@dataclass(frozen=True, slots=True)
class Image:
    """What qemu boots."""

    disk: Path
    kernel: Path
    initrd: Path
    wheels: Path
    """Folder with a wheel of every package that asad needs; they are installed on `disk` in /opt/asad."""


def prepare(folder: Path) -> Image:
    """The image, from `folder` if it is there, else made (three minutes, network needed).

    Raises LabError, CalledProcessError.
    """
    check_programs(PROGRAMS)
    folder.mkdir(parents=True, exist_ok=True)
    debian = digest(RELEASE, PACKAGES)
    complete = digest(debian, requirements(), FILES, ENABLED, MASKED, SIZE)
    image = Image(
        folder / f"debian-{complete}.ext4",
        folder / f"vmlinuz-{debian}",
        folder / f"initrd-{debian}",
        folder / f"wheels-{complete}",
    )
    if not image.disk.exists():
        remove_others(folder, debian)
        tree = folder / f"tree-{debian}"
        if not tree.exists():
            bootstrap(tree, RELEASE, PACKAGES)
        download(image.wheels, PYTHON, requirements())
        furnish(tree, image.wheels)
        shutil.copyfile(next((tree / "boot").glob("vmlinuz-*")), image.kernel)
        shutil.copyfile(next((tree / "boot").glob("initrd.img-*")), image.initrd)
        make_disk(tree, image.disk, SIZE)
    return image


def remove_others(folder: Path, debian: str) -> None:
    """What was made from other lists is of no use any more, and large."""
    for old in folder.glob("debian-*.ext4"):
        old.unlink()
    for pattern in ("tree-*", "wheels-*"):
        for old in folder.glob(pattern):
            if old.name != f"tree-{debian}":
                shutil.rmtree(old)


def furnish(tree: Path, wheels: Path) -> None:
    """asad's environment without asad, and the few files that make a probed machine out of Debian."""
    shutil.rmtree(tree / "opt/asad", ignore_errors=True)
    shutil.copytree(wheels, tree / "opt/wheels")
    inside = ("unshare", "--mount", "chroot", tree)
    run(*inside, "python3", "-m", "venv", "/opt/asad")
    pip = (
        "/opt/asad/bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--find-links=/opt/wheels",
    )
    run(*inside, *pip, *requirements())
    shutil.rmtree(tree / "opt/wheels")
    for name, text in FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")
    run(*inside, "systemctl", "enable", "--quiet", *ENABLED)
    run(*inside, "systemctl", "mask", "--quiet", *MASKED)


def make_disk(tree: Path, disk: Path, size: str) -> None:
    """An ext4 file system of `size` that holds `tree`; there at once or not at all."""
    with tempfile.TemporaryDirectory(dir=disk.parent) as folder:
        partial = Path(folder) / disk.name
        run("mkfs.ext4", "-q", "-F", "-d", tree, partial, size)
        partial.rename(disk)


def build_wheel(into: Path, packages: Sequence[str] = ("asad", "profiles", "sql", "plugins")) -> Path:
    """asad's wheel of this checkout, built from a copy so that nothing is left behind here."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "asad"
        source.mkdir()
        for package in packages:
            shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        pip = (
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
        )
        run(*pip, "--wheel-dir", into, source)
    (wheel,) = into.glob("asad_hpc-*.whl")
    return wheel


__all__ = ["ROOT", "Image", "build_wheel", "make_disk", "prepare"]
