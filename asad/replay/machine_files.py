"""The machine of a file, whatever describes it: slurm.conf, records of `scontrol show node`, or JSON.

What a file is, its content says, never its name. What is none of these is refused by name where it is known.
"""

from __future__ import annotations

import re
from pathlib import Path

from asad.errors import LogError, MachineError
from asad.model import Machine
from asad.replay.described_nodes import UNFILLED, WAYS
from asad.replay.node_json import from_json
from asad.replay.node_records import from_node_records, is_node_records
from asad.replay.readers.accounting_log import quoted
from asad.replay.readers.raw_bytes import plain_bytes
from asad.replay.slurm_conf_nodes import from_slurm_conf

MOST_BYTES = 2**30
"""More than the JSON of a hundred thousand nodes."""
_COMMENTS = re.compile(r"\A(?:[ \t]*+(?:#[^\n]*+)?\n)++")
_DATE = re.compile(r"\A(?:[^\W\d]{2,9}\.?,? )[^\n=]{0,40}\d\d:\d\d:\d\d[^\n=]{0,20}\n")
"""What `sinfo -l` prints first."""
_TEMPLATE = re.compile(r"\{[{%#]|<%|%\{")
_TABLE = re.compile(r"(\[{1,2})\s*(?!(?:null|true|false)\b)[A-Za-z_][\w.:\- ]*\]{1,2}\s*$", re.MULTILINE)
_JSON_LINE = re.compile(r"(?m)^[ \t]*[{\[]\s*[\"{\[\]}]")
MOST_WARNINGS = 20
"""Lines before JSON."""
OTHERS = (
    (r"\s*(?:JobId=\d|JobID\W)|[^\n=]*\bJOBID\b", "a list of jobs: that is a log, not a machine"),
    (
        r"(?=[^\n]*\b(?:NODELIST|HOSTNAMES|NODEHOST|PARTITION|S:C:T|NODES\(A/I)\b)[^\na-z=]+(?:\n|\Z)",
        "a table of sinfo",
    ),
    (r"(?i)\s*PARTITION\s+AVAIL\b", "a table of sinfo"),
    (r"Configuration data as of ", "the output of `scontrol show config`, which names no nodes"),
    (
        r"\s*PartitionName=\S+[^\n\\]*\n[ \t]+Allow\w+=|\s*PartitionName=\S+ AllowGroups=",
        "the output of `scontrol show partition`",
    ),
    (r"\s*ReservationName=", "the output of `scontrol show reservation`"),
    (r"\s*;|\s*(?:-?\d+(?:\.\d+)?[ \t]+){17}-?\d+", "a log in SWF: that is no machine"),
    (r"\s*HOST_NAME\b", "a table of LSF (bhosts, lshosts)"),
    (r"\s*HOSTNAME\s+ARCH\b", "a table of Grid Engine (qhost)"),
    (r"[^\s=:]+\n\s+(?:Mom|state|ntype|np|pcpus|resources_available\S*) = ", "the output of pbsnodes"),
    (
        r"---\s|-[ \t]+[\w.\-]+:(?:\s|\Z)|[A-Za-z_][\w.\-]*:[ \t]*\n\s*-[ \t]|[A-Za-z_][\w.\-]*:[ \t]*\n[ \t]+[\w.\-]+:"
        r"|(?:nodes|sinfo):\s*\n",
        "YAML",
    ),
    (r"\s*<(?:\?xml|!DOCTYPE|html)", "XML or HTML"),
    (r"Architecture:\s", "the output of lscpu"),
    (r"\S+[ \t]+slots=\d", "a host file of MPI"),
    (r"(?:[A-Za-z_ ]+,){2,}[A-Za-z_ ]+(?:\n|\Z)", "a table (CSV)"),
)
"""How other texts begin, and what they are."""


def read_machine(path: str | Path) -> Machine:
    """The machine of a file: slurm.conf, `scontrol show node` as text, `scontrol show nodes --json` or `sinfo --json`.

    Raises MachineError, which names file, place and remedy.
    """
    path = Path(path)
    text = read_text(path)
    _refuse_others(path, text)
    if text.lstrip()[:1] in ("{", "["):
        return from_json(str(path), text)
    if is_node_records(text):
        return from_node_records(str(path), text)
    if (warnings := _lines_before_json(text)) is not None:
        note = f"{path}: {warnings} lines before its JSON are passed over"
        start = len("".join(text.splitlines(keepends=True)[:warnings]))
        return from_json(str(path), "\n" * warnings + text[start:], [note])
    return from_slurm_conf(path, read_text)


def _refuse_others(path: Path, text: str) -> None:
    """Raise MachineError for what is known to be something else."""
    if not text.strip():
        raise MachineError(f"{path}: it is empty; give {WAYS}")
    head = _COMMENTS.sub("", text[:65536])
    line = text[:65536].count("\n", 0, len(text[:65536]) - len(head.lstrip())) + 1
    if _TEMPLATE.match(head.lstrip()):
        begin = head.lstrip().split("\n", 1)[0]
        raise MachineError(f"{path}:{line}: {UNFILLED.format(quoted(begin))}")
    if table := _TABLE.match(head.lstrip()):
        what = "TOML" if table[1] == "[[" else "INI or TOML"
        raise MachineError(f"{path}:{line}: this is {what}; give {WAYS}")
    head = _DATE.sub("", head)
    for pattern, what in OTHERS:
        if re.match(pattern, head):
            raise MachineError(f"{path}: this is {what}; give {WAYS}")


def _lines_before_json(text: str) -> int | None:
    """How many lines of warnings stand before JSON; None if there is none behind a few lines."""
    match = _JSON_LINE.search(text[:65536])
    if not match:
        return None
    lines = text.count("\n", 0, match.start())
    before = text[: match.start()]
    is_conf = re.search(r"(?im)^\s*(?:nodename|include)\b", before)
    return lines if 0 < lines <= MOST_WARNINGS and not is_conf else None


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
