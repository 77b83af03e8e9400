"""The commands of docs/tutorial/replay-your-log.md, run one after the other as they stand there.

`make demo` is run by .ci/run, from an empty clone.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pages import ROOT, commands
from reader import SOME_JOB, Reader, needs_a_shell

pytestmark = pytest.mark.slow


def test_the_commands_of_the_tutorial_run_in_their_order(tmp_path: Path) -> None:
    needs_a_shell()
    reader = Reader(tmp_path)
    printed: dict[str, str] = {}
    for command in commands("docs/tutorial/replay-your-log.md"):
        text = command.text.replace("\\\n", "")
        words = [word for word in shlex.split(text) if not word.startswith("TZ=")]
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
            continue
        asked = text.replace(SOME_JOB, reader.some_job()) if SOME_JOB in text else text
        printed[" ".join(words[:2])] = reader.type(asked, on_the_cluster=words[0] == "sacct")
    assert list(printed) == [
        ". .venv/bin/activate", "sacct -aP", "scp cluster:january.sacct", "asactl replay", "asactl runs",
        "asactl explain",
    ]  # fmt: skip
    assert (reader.root / "sacct-was-asked").read_text().startswith("UTC -aP ")
    page = (reader.folder / "january.html").read_text(encoding="utf-8")
    assert "<svg" in page and "Who pays" in page
    for title in ("What the log says", "What lending would have brought", "Who would be worse off"):
        assert title in printed["asactl replay"] and title in page
    for policy in ("measured", "asax"):
        assert policy in page and policy in printed["asactl runs"]
    assert reader.some_job() in printed["asactl explain"]
