"""Do jobs wait for memory on a cluster, by its slurm.conf?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from asad.replay.described_nodes import DescribedNodes, shown_names
from asad.replay.slurm_conf_partitions import Partition

OF_CORES = frozenset({"cr_cpu", "cr_core", "cr_socket", "cr_board"})
KINDS = OF_CORES | {f"{kind}_memory" for kind in OF_CORES} | {"cr_memory"}
"""What of SelectTypeParameters says what jobs wait for."""
FLAGS = frozenset(
    {
        *("cr_lln", "cr_one_task_per_core", "cr_pack_nodes", "cr_core_default_dist_block", "other_cons_res"),
        *("other_cons_tres", "ll_shared_gres", "multiple_sharing_gres_pj", "enforce_binding_gres"),
        *("one_task_per_sharing_gres",),
    }
)
"""The rest."""
CONSUMING = ("cons_tres", "cons_res")
"""Plugins that allocate single cores."""


def memory_counts(
    found: DescribedNodes, settings: Mapping[str, str], partitions: Sequence[Partition]
) -> tuple[bool, list[str]]:
    """Do jobs wait for memory there, and what is to be noted of it?

    With `_Memory` in SelectTypeParameters they do. Without the parameter, they do where single cores are allocated
    (cons_tres, cons_res) and do not where whole nodes are (linear). A partition may have it otherwise.
    """
    plugin = settings.get("selecttype", "").lower().removeprefix("select/")
    stated = settings.get("selecttypeparameters", "")
    words = {word.strip().lower() for word in re.split(r"[,|;]", stated)} - {"", "none"}
    kinds = words & KINDS
    parameters = f"SelectTypeParameters={_shown(stated)}"
    if kinds:
        counts, why = any(map(_is_memory, kinds)), parameters
    elif plugin in (*CONSUMING, "linear"):
        counts, why = plugin in CONSUMING, f"SelectType={_shown(settings['selecttype'])}"
    else:
        counts, why = True, ""
    if refused := _refused(plugin, stated, words, kinds):
        taken = "jobs wait for memory" if counts else "no job waits for memory"
        return counts, [f"{parameters}: {refused}, so it is not known whether memory is scheduled: {taken}"]
    by_partition = _by_partition(partitions, kinds, plugin)
    if by_partition and len(set(by_partition.values())) == 1 and len(by_partition) == len(partitions):
        counts, why = next(iter(by_partition.values())), "SelectTypeParameters of its partitions"
    elif other := [name for name, one in by_partition.items() if one != counts]:
        holds = "is" if counts else "is not"
        return counts, [
            f"partitions differ in whether memory is scheduled ({shown_names(other)}): here it {holds}, for all"
        ]
    if not counts:
        return False, [f"memory is not scheduled there ({why}): no job waits for it"]
    if not why and found.memory_is_known():
        return True, [
            f"{found.path} does not say whether memory is scheduled (SelectType, SelectTypeParameters): jobs wait "
            "for it, as is usual since Slurm 23.11"
        ]
    return True, []


def _is_memory(word: str) -> bool:
    return word.endswith("_memory")


def _refused(plugin: str, stated: str, words: set[str], kinds: set[str]) -> str | None:
    """Why Slurm does not start with these parameters, as far as that is known."""
    if not kinds and words - FLAGS:
        return "this is not known here"
    if len(kinds) > 1:
        return "Slurm 22.05 refuses two of these at once"
    if re.search(r"[|;]", stated):
        return "Slurm 22.05 refuses what commas do not part"
    cores = {kind for kind in kinds if kind != "cr_memory"}
    if plugin == "linear" and cores:
        return "Slurm 22.05 refuses it with select/linear"
    if plugin in CONSUMING and words and not cores:
        return f"Slurm 22.05 refuses it with select/{plugin} without CR_CPU, CR_Core or CR_Socket"
    return None


def _by_partition(partitions: Sequence[Partition], kinds: set[str], plugin: str) -> dict[str, bool]:
    """By partition that says so itself (not by its DEFAULT), whether memory is scheduled there.

    Slurm applies it where cores or sockets are allocated.
    """
    by_cores = plugin != "linear" and (
        not kinds or any(kind.removesuffix("_memory") in ("cr_core", "cr_socket") for kind in kinds)
    )
    found: dict[str, bool] = {}
    for partition in partitions:
        stated = partition.own.get("selecttypeparameters", "").lower()
        if by_cores and stated.startswith(("cr_core", "cr_socket")):
            found[partition.name] = stated.startswith(("cr_core_memory", "cr_socket_memory"))
    return found


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:100])
