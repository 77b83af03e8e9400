"""The columns of sacct, of every release from 14.11 on: their names, and what stands in those that are not read.

Where the delimiter stands in a user's text, a line has more fields than columns. What the other columns can hold
(`SHAPES`) then says where the text ends.
"""

from __future__ import annotations

import re

_FIELDS = """
account admincomment alloccpus allocnodes alloctres associd avecpu avecpufreq avediskread avediskwrite
avepages averss avevmsize blockid cluster comment constraints consumedenergy consumedenergyraw container
cputime cputimeraw dbindex derivedexitcode elapsed elapsedraw eligible end exclusive exitcode extra
failednode flags gid group jobid jobidraw jobname layout licenses maxdiskread maxdiskreadnode
maxdiskreadtask maxdiskwrite maxdiskwritenode maxdiskwritetask maxpages maxpagesnode maxpagestask maxrss
maxrssnode maxrsstask maxvmsize maxvmsizenode maxvmsizetask mcslabel mincpu mincpunode mincputask ncpus
nnodes nodelist ntasks originalsluid oversubscribe partition planned plannedcpu plannedcpuraw priority
qos qosraw qosreq reason reqcpufreq reqcpufreqgov reqcpufreqmax reqcpufreqmin reqcpus reqmem reqnodes
reqreservation reqtres reservation reservationid restarts segmentsize sluid start state stderr stdin
stdout submit submitline suspended systemcomment systemcpu timelimit timelimitraw totalcpu tresusageinave
tresusageinmax tresusageinmaxnode tresusageinmaxtask tresusageinmin tresusageinminnode tresusageinmintask
tresusageintot tresusageoutave tresusageoutmax tresusageoutmaxnode tresusageoutmaxtask tresusageoutmin
tresusageoutminnode tresusageoutmintask tresusageouttot uid user usercpu wckey wckeyid workdir
"""
FIELDS = tuple(_FIELDS.split())
"""Those of 26.05, and `Exclusive` and `OverSubscribe` that came after, in the order of sacct's table, which decides
what an abbreviation means."""

ALIASES = {"reserved": "planned", "resvcpu": "plannedcpu", "resvcpuraw": "plannedcpuraw"}
"""The name of a column until 22.05 → its name since. (`NCPUS` and `AllocCPUS` are two columns that say the same.)"""

REMOVED = ("allocgres", "reqgres")
"""Columns until 20.02, which no other replaces: `AllocTRES` and `ReqTRES` write the same in another way."""

KNOWN = frozenset((*FIELDS, *ALIASES, *REMOVED))

_FREE_TEXT = """
admincomment comment constraints container extra jobname licenses mcslabel stderr stdin stdout submitline
systemcomment wckey workdir
"""
FREE_TEXT = frozenset(_FREE_TEXT.split())
"""Columns in which users or administrators write what they like, a delimiter included (in `Constraints` and
`Licenses` `|` is even an operator of Slurm's). `Reason` is none: sacct prints one of Slurm's own."""

_LISTS = """
alloctres allocgres failednode flags jobid nodelist partition qosreq reqgres reqreservation reqtres
tresusageinave tresusageinmax tresusageinmaxnode tresusageinmaxtask tresusageinmin tresusageinminnode
tresusageinmintask tresusageintot tresusageoutave tresusageoutmax tresusageoutmaxnode tresusageoutmaxtask
tresusageoutmin tresusageoutminnode tresusageoutmintask tresusageouttot
"""
LISTS = frozenset(_LISTS.split())
"""Columns that hold commas by themselves, which matters where a comma is the delimiter too."""

_MISSING = (
    r"(?:unknown|none|none assigned|n/?a|nan|nat|null|\(null\)|invalid|infinite|unlimited|partition_limit)?"
)
_KINDS = {
    # sacct's own, minutes:seconds.milliseconds of CPU time, and seconds
    r"[+-]?(?:\d+-)?\d+(?::\d+){0,2}(?:\.\d+)?": """
        avecpu cputime mincpu planned plannedcpu reserved resvcpu suspended systemcpu usercpu
    """,
    # counts and sizes, with a unit where sacct puts one, and as spreadsheets write them
    r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?[kmgtpezy]?i?b?": """
        associd avediskread avediskwrite avepages averss avevmsize consumedenergy consumedenergyraw cputimeraw dbindex
        gid maxdiskread maxdiskreadtask maxdiskwrite maxdiskwritetask maxpages maxpagestask maxrss maxrsstask maxvmsize
        maxvmsizetask mincputask ntasks plannedcpuraw priority qosraw reservationid restarts resvcpuraw segmentsize
        wckeyid
    """,
    # kHz, a step of it by name, or a governor; `low-high:governor`
    r"[\w.:,+-]*": "avecpufreq reqcpufreq reqcpufreqgov reqcpufreqmax reqcpufreqmin",
    # status:signal
    r"-?\d+(?:\.0)?(?::-?\d+)?": "derivedexitcode exitcode",
    # however SLURM_TIME_FORMAT writes it (`Ystday 16:28`), or epoch seconds
    r"\d+(?:\.\d+)?|(?=.*\d)[\w:./,+ -]{1,48}": "eligible",
    # name=value, name=value, …
    r"[^=,|;\s]+=[^=,|;\s]*(?:,[^=,|;\s]+=[^=,|;\s]*)*": """
        tresusageinave tresusageinmax tresusageinmaxnode tresusageinmaxtask tresusageinmin tresusageinminnode
        tresusageinmintask tresusageintot tresusageoutave tresusageoutmax tresusageoutmaxnode tresusageoutmaxtask
        tresusageoutmin tresusageoutminnode tresusageoutmintask tresusageouttot
    """,
    # gpu:tesla:2(S:0-1),craynetwork:1
    r"[^|;\s]*": "allocgres reqgres",
    # a host, or a list of hosts
    r"[\w.,\[\]-]*": """
        blockid failednode maxdiskreadnode maxdiskwritenode maxpagesnode maxrssnode maxvmsizenode mincpunode
    """,
    # words of Slurm's own
    r"[\w,:*+-]*": "exclusive flags originalsluid oversubscribe sluid",
    r"(?:cyc(?:lic)?|f|bl(?:oc)?k|arbitrary|plane|user|nodelist|(?:no)?pack|c|[,:=_*\d -])*": "layout",
    r"[\w ,.:;/()=+'-]*": "reason",
    # names that administrators give; groups of a directory have blanks and backslashes
    r"[^|;\x00-\x1f]*": "account cluster group qos qosreq reqreservation reservation",
}
SHAPES = {
    name: re.compile(f"(?:{_MISSING}|{shape})", re.IGNORECASE)
    for shape, names in _KINDS.items()
    for name in names.split()
}
"""A column that is not read and holds no free text → what all that sacct prints in it matches (`fullmatch`), if not
more. It may always be empty, as it is for steps."""


_PATH = re.compile(r"(?:" + _MISSING + r"|/.*|[\w./+@=-]*%[\w.%/+@=-]*)", re.IGNORECASE | re.DOTALL)
USUAL_SHAPES = dict.fromkeys(("stderr", "stdin", "stdout", "workdir"), _PATH)
"""A column of free text → what nearly all matches that stands in it: paths from the root on, and names in which Slurm
fills in ids (`slurm-%j.out`)."""


def column_name(text: str, *, abbreviated: bool = False) -> str | None:
    """The column that `text` names, in lower case and by its newest name; None if sacct has none of that name.

    `text` is what stands in a header or was given to `sacct -o`: in any case, in quotes, with a width (`JobName%20`).
    With `abbreviated` it may be the beginning of a name as well, and means the first column of sacct's table that
    begins so. Headers are never abbreviated, and `Time` or `Node` in another table's is no column of sacct's.
    """
    name = text.strip().strip("\"'").partition("%")[0].strip().lower()
    if name in KNOWN:
        return ALIASES.get(name, name)
    if not abbreviated or not name or "all".startswith(name):  # `ALL` is every column, even as `a`
        return None
    begun = next((known for known in (*FIELDS, *ALIASES, *REMOVED) if known.startswith(name)), None)
    return begun and ALIASES.get(begun, begun)
