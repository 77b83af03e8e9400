"""The machine of a file, whatever describes it: slurm.conf, records of `scontrol show node`, or JSON.

What a file is, its content says, never its name. What is none of these is refused by name where it is known, and what
may stand beside a description of nodes (`beside_nodes`) where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from asad.errors import LogError, MachineError
from asad.model import Machine
from asad.replay.beside_nodes import (
    CONFIG,
    HINT,
    PARTITIONS,
    RESERVATIONS,
    BesideNodes,
    completed,
    kind_beside,
)
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
_PROMPT = re.compile(r"\A\s*(?:[^\n=$#>%]{0,80}[$#>%] ?)?scontrol [^\n=]{0,200}\n")
"""A line with the command, as it is copied from a terminal."""
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
BESIDE = {
    CONFIG: "the output of `scontrol show config`, which names no nodes",
    PARTITIONS: "the output of `scontrol show partition`",
    RESERVATIONS: "the output of `scontrol show reservation`",
}
"""What describes no nodes, and may stand beside what does."""


def read_machine(path: str | Path, *others: str | Path) -> Machine:
    """The machine of a file: slurm.conf, `scontrol show node` as text, `scontrol show nodes --json` or `sinfo --json`.

    With `others` one of all the files describes the nodes, and the rest are what `scontrol show partition`, `config`
    and `reservation` print, in any order. Raises MachineError, which names file, place and remedy.
    """
    beside = BesideNodes()
    of_nodes: list[tuple[Path, str]] = []
    kinds: list[tuple[Path, str]] = []
    for one in map(Path, (path, *others)):
        text = read_text(one)
        kind = kind_beside(_head(text))
        if kind is None:
            of_nodes.append((one, text))
        else:
            kinds.append((one, kind))
            beside.take(kind, str(one), text)
    if not of_nodes:
        where, kind = kinds[0]
        raise MachineError(f"{where}: this is {BESIDE[kind]}; give {WAYS}; {HINT}")
    where, text = of_nodes[0]
    if len(of_nodes) > 1:
        for one, other in of_nodes:
            _refuse_others(one, other)
        raise MachineError(
            f"{of_nodes[1][0]}: it would describe nodes, as {where} does; give one description of nodes, and beside it "
            "only the text that `scontrol show partition`, `scontrol show config` and `scontrol show reservation` print"
        )
    machine = _described(where, text, beside.settings)
    return completed(machine, beside) if kinds else machine


def _described(path: Path, text: str, configured: Mapping[str, str]) -> Machine:
    """The machine of a description of nodes; `configured` has settings of the cluster. Raises MachineError."""
    _refuse_others(path, text)
    if text.lstrip()[:1] in ("{", "["):
        return from_json(str(path), text, configured=configured)
    if is_node_records(text):
        return from_node_records(str(path), text, configured)
    if (warnings := _lines_before_json(text)) is not None:
        note = f"{path}: {warnings} lines before its JSON are passed over"
        start = len("".join(text.splitlines(keepends=True)[:warnings]))
        return from_json(str(path), "\n" * warnings + text[start:], [note], configured)
    return from_slurm_conf(path, read_text, configured)


def _head(text: str) -> str:
    """How a text begins, without comments and a line that has the command alone."""
    return _PROMPT.sub("", _DATE.sub("", _COMMENTS.sub("", text[:65536])))


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
