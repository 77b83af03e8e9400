"""The shipped job_submit.lua, run by lua with a stand-in for slurmctld's `slurm` table."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "profiles" / "slurm" / "job_submit.lua"
LUA = shutil.which("lua5.3") or shutil.which("lua")
STUB = """
logged = {}
slurm = { SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002, NO_VAL = 4294967294,
          log_user = function(form, ...) logged[#logged + 1] = string.format(form, ...) end }
dofile(arg[1])
asad_user, slurm_user = "nobody", "daemon"
guest_partitions = { guest = true, ["guest-long"] = true }
local partition = arg[3] ~= "-" and arg[3] or nil
local answer
if arg[2] == "submit" then answer = slurm_job_submit({ partition = partition }, {}, tonumber(arg[4]))
else
   desc = desc or { min_nodes = slurm.NO_VAL, max_nodes = slurm.NO_VAL }
   desc.partition = partition
   answer = slurm_job_modify(desc, rec or { partition = "guest" }, {}, tonumber(arg[4]))
end
print(answer)
print(table.concat(logged, "\\n"))
"""
NOBODY, DAEMON, SOMEBODY = 65534, 1, 31_337

pytestmark = pytest.mark.skipif(LUA is None, reason="no lua (Debian: lua5.3)")


def call(verb: str, partition: str | None, uid: int, change: str = "") -> tuple[int, str]:
    """What slurmctld would be answered, and what the user would read."""
    assert LUA is not None
    words = [LUA, "-", str(SCRIPT), verb, partition or "-", str(uid)]
    stub = STUB.replace("local answer\n", f"{change}\nlocal answer\n")
    done = subprocess.run(words, input=stub, capture_output=True, text=True, check=True)
    code, output = done.stdout.split("\n", 1)
    return int(code), output.strip()


@pytest.mark.parametrize("verb", ["submit", "modify"])
@pytest.mark.parametrize("partition", ["guest", "guest-long", "batch,guest", "guest,batch", " guest "])
def test_a_user_is_kept_out_of_guest_partitions(verb: str, partition: str) -> None:
    code, seen = call(verb, partition, SOMEBODY)
    assert code == 2002
    assert "is asad's: it moves waiting jobs there by itself" in seen


@pytest.mark.parametrize("verb", ["submit", "modify"])
@pytest.mark.parametrize("partition", [None, "batch", "guests", "my-guest", "batch,long"])
def test_everything_else_is_let_be(verb: str, partition: str | None) -> None:
    assert call(verb, partition, SOMEBODY) == (0, "")


@pytest.mark.parametrize("verb", ["submit", "modify"])
@pytest.mark.parametrize("uid", [0, NOBODY, DAEMON])
def test_root_asads_user_and_slurm_user_may(verb: str, uid: int) -> None:
    assert call(verb, "guest", uid) == (0, "")


@pytest.mark.parametrize("change", ['req_nodes = ""', 'req_nodes = "n2"', "min_nodes = 2", "max_nodes = 4"])
def test_a_job_that_asad_has_sent_there_is_on_no_other_nodes(change: str) -> None:
    desc = f"desc = {{ {change} }}"
    code, seen = call("modify", None, SOMEBODY, desc)
    assert code == 2002 and "move it to its own partition first" in seen
    assert call("modify", "batch", SOMEBODY, desc) == (0, "")
    assert call("modify", None, NOBODY, desc) == call("modify", None, 0, desc) == (0, "")
    assert call("modify", None, SOMEBODY, f'{desc}; rec = {{ partition = "batch" }}') == (0, "")


def test_a_user_that_is_not_in_passwd_has_its_number_in_the_script() -> None:
    renamed = 'asad_user = "only-in-ldap"'
    assert call("modify", "guest", SOMEBODY, renamed)[0] == 2002
    assert call("modify", "guest", SOMEBODY, f'{renamed}; user_ids["only-in-ldap"] = {SOMEBODY}') == (0, "")


def test_hostile_names_are_reported_as_they_are() -> None:
    code, seen = call("submit", "guest,%s%n", SOMEBODY)
    assert code == 2002
    assert json.dumps(seen).isascii()


def test_the_doctor_knows_the_script() -> None:
    from asad_slurm.config_checks import job_submit_finding
    from asad_slurm.slurm_conf import Slurm

    slurm = Slurm({"jobsubmitplugins": "lua"}, {})
    assert job_submit_finding(slurm, SCRIPT.read_text(), "asad", ["guest"]).state == "ok"
