"""The machine of a file, whatever describes it: slurm.conf, records of `scontrol show node`, or JSON.

What a file is, its content says, never its name. What is none of these is refused by name where it is known.
"""

from __future__ import annotations

import re
from pathlib import Path

from asad.errors import LogError, MachineError
from asad.model import Machine
from asad.replay.described_nodes import WAYS
from asad.replay.node_json import from_json
from asad.replay.node_records import from_node_records, is_node_records
from asad.replay.readers.raw_bytes import plain_bytes
from asad.replay.slurm_conf_nodes import from_slurm_conf

MOST_BYTES = 2**30
"""More than the JSON of a hundred thousand nodes."""
OTHERS = (
    (r"(?i)\s*(?:PARTITION\s+AVAIL\b|(?:NODELIST|HOSTNAMES|NODEHOST)\W)", "a table of sinfo"),
    (r"Configuration data as of ", "the output of `scontrol show config`, which names no nodes"),
    (
        r"\s*PartitionName=\S+[^\n\\]*\n[ \t]+Allow\w+=|\s*PartitionName=\S+ AllowGroups=",
        "the output of `scontrol show partition`",
    ),
    (r"\s*(?:JobId=\d|JOBID\s+PARTITION\b|JobID\W)", "a list of jobs: that is a log, not a machine"),
    (r"\s*HOST_NAME\b", "a table of LSF (bhosts, lshosts)"),
    (r"\s*HOSTNAME\s+ARCH\b", "a table of Grid Engine (qhost)"),
    (r"[^\s=:]+\n\s+(?:Mom|state|ntype|np|pcpus|resources_available\S*) = ", "the output of pbsnodes"),
    (r"---\s|nodes:\s*\n|sinfo:\s*\n", "YAML"),
)
"""How other texts begin, and what they are."""


def read_machine(path: str | Path) -> Machine:
    """The machine of a file: slurm.conf, `scontrol show node` as text, `scontrol show nodes --json` or `sinfo --json`.

    Raises MachineError, which names file, place and remedy.
    """
    path = Path(path)
    text = read_text(path)
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return from_json(str(path), text)
    if is_node_records(text):
        return from_node_records(str(path), text)
    head = re.sub(r"\A(?:[ \t]*(?:#[^\n]*)?\n)+", "", text[:65536])
    for pattern, what in OTHERS:
        if re.match(pattern, head):
            raise MachineError(f"{path}: this is {what}; give {WAYS}")
    return from_slurm_conf(path, read_text)


def read_text(path: Path) -> str:
    """The text of a file, uncompressed; what is no Unicode is replaced, since it can only be a comment.

    Raises MachineError.
    """
    try:
        raw = plain_bytes(str(path), str(path), MOST_BYTES + 1)
    except LogError as error:
        raise MachineError(str(error)) from error
    if len(raw) > MOST_BYTES:
        raise MachineError(f"{path}: it has more than {MOST_BYTES} bytes; give {WAYS}")
    if b"\0" in raw[:65536]:
        raise MachineError(f"{path}: it is no text; give {WAYS}")
    return raw.decode("utf-8", "replace").replace("\r\n", "\n")
