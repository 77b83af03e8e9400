"""How many real cores this machine has: Slurm may take each hyper-thread for one."""

from __future__ import annotations

from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")


def hyperthreaded_cores(folder: Path = CPUS) -> int:
    """Cores of a machine some of whose cores have several hyper-threads; 0 if none has, or the kernel does not say."""
    siblings = []
    for path in folder.glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            siblings.append(path.read_text().strip())
        except OSError:  # taken offline meanwhile
            continue
    cores = len(set(siblings))
    return cores if cores < len(siblings) else 0
