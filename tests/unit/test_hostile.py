"""What hostile input once did to readers: each of these took minutes, all memory, or ended in a traceback."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from asad_mesos import queue_undo, statuses
from asad_mesos.agent_offers import read_offer
from asad_mesos.events import Subscribed
from asad_mesos.framework import Framework
from asad_mesos.framework_journal import NAME, JournalError
from asad_mesos.in_hand import JOURNAL as QUEUE
from asad_mesos.in_hand import InHand
from asad_mesos.job_spec import spec_from_json
from asad_mesos.queue_settings import read_queue
from asad_mesos.session import Session
from asad_mesos.settings import Settings as MesosSettings
from asad_mesos.settings import read_settings
from asad_mesos.slurm_jobs import read_jobs
from asad_mesos.slurm_side import Commands
from asad_slurm import partition_checks, slurm_conf, undo
from asad_slurm.answers import JobReader, NodeReader
from asad_slurm.command import CommandTransport
from asad_slurm.limits import Limits
from asad_slurm.nodesets import expand
from asad_slurm.offers import Offer
from slurm_samples import a_job, running
from small_cluster import HOST, NOW, cluster

from asad.admit.hints import read_hint
from asad.admit.sow.statement import Worth
from asad.api.control import Request
from asad.api.node_server import NodeServer, _Connection
from asad.api.wire import TrustedChannel, WireError, frame, pack, unpack
from asad.bounded import MOST_PARTS, toml_of
from asad.config import key_lines, parse
from asad.contention import load_contention
from asad.daemon.statement_requests import StatementRequests
from asad.defer.expected import read_expected
from asad.defer.linear import read_weights
from asad.defer.rollout import read_sample
from asad.errors import ClusterError, ConfigError, LogError, MachineError, UsageError
from asad.experts import parse_expert
from asad.experts.fitting import read_history
from asad.model import Finished, Machine
from asad.node.actor import lease_from_json
from asad.replay.cpu_demand import read_demand
from asad.replay.inferred_machine import infer
from asad.replay.machine_files import read_machine
from asad.replay.readers import read_log
from asad.replay.readers.accounting_log import BadValue
from asad.replay.readers.node_sets import runs_of
from asad.share.measured import Measured
from asad.share.pool import Options
from asad.share.static import Static
from asad.stages import Circumstances, policy_of
from asad.status import node_rows
from asad.store.encoding import object_of
from asad_papers.instance_files import read_archive
from asad_papers.oasis.scheme_instances import read_instance
from asad_papers.sow.statement_instances import read_sow_instance
from lab.fuzz.slurm import LENDING, _cycles

HUGE = 10**400
"""JSON and TOML have such integers, and no float holds them."""
DEEP = "[" * 5000 + "]" * 5000
NOW_S = 1_800_000_000.0


# --------------------------------------------------------------------------------------------------------------- TOML


@pytest.mark.parametrize("dot", [".", " . ", "\t.\t"])
def test_a_key_of_many_parts_is_refused_before_it_costs(dot: str) -> None:
    with pytest.raises(ValueError, match="parts"):
        toml_of(dot.join(["a"] * 100_000) + " = 1")
    assert toml_of(dot.join(["a"] * 3) + " = 1") == {"a": {"a": {"a": 1}}}


@pytest.mark.parametrize("part", ['"#"', "'='", '"["', '" "', "'\"'"])
@pytest.mark.parametrize("before", ["", "[", 'a = {b = """\n""", '])
def test_no_quote_hides_how_many_parts_a_key_has(before: str, part: str) -> None:
    with pytest.raises(ValueError, match="parts"):
        toml_of(before + ".".join([part] * 50_000) + " = 1")


def test_many_quotes_are_looked_through_at_once() -> None:
    with pytest.raises(ValueError, match="line 1"):
        toml_of('a = \\"' * 50_000 + "." * 200)


def test_text_with_many_dots_is_no_key() -> None:
    dots = "." * 500
    prose = "One word. " * MOST_PARTS
    assert toml_of(f'# {dots}\na = "{dots}"\nb = """\n{prose}\n{prose}"""\n')["a"] == dots


@pytest.mark.parametrize("line", ["[" + " " * 5000, "[a" + " " * 5000 + "x", "[ a ]" + " " * 5000 + "x"])
def test_blanks_in_a_header_of_a_table_are_passed_over_at_once(line: str) -> None:
    assert key_lines(f"{line}\n[ \tb . c ] # d\nkey = 1") == {("b", "c"): 2, ("b", "c", "key"): 3}


READ_TOML: dict[str, Callable[[Path], object]] = {
    "demand": lambda path: read_demand(str(path)),
    "contention": load_contention,
    "expected": lambda path: read_expected(str(path)),
    "linear": lambda path: read_weights("skip-fit", str(path)),
    "sample": lambda path: read_sample(str(path)),
    "configuration": lambda path: parse(path.read_text(), path),
}


@pytest.mark.parametrize("text", [f"a = {DEEP}", f"a = {'9' * 5000}", ".".join(["a"] * 9999) + " = 1"])
@pytest.mark.parametrize("name", READ_TOML)
def test_every_reader_of_toml_refuses_what_cannot_be_parsed(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        READ_TOML[name](path)
    assert parse_expert(text, "file.toml")[0] is None


def test_integers_that_no_float_holds_are_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        parse(f"[daemon]\nretention_days = {HUGE}", tmp_path / "asad.toml")
    config = parse(f"[share.asax]\nagain_s = {HUGE}", tmp_path / "asad.toml")
    with pytest.raises(ConfigError, match="give a number"):
        policy_of(config, "share", Circumstances([], 0))
    for read in (read_settings, read_queue):
        with pytest.raises(ConfigError, match="no number"):
            read({"timeout_s": HUGE})


# --------------------------------------------------------------------------------------------------------------- logs

HEADER = "JobID|JobName|Submit|Start|ElapsedRaw|NCPUS\n"


def log(folder: Path, text: str) -> Path:
    path = folder / "log"
    path.write_text(text)
    return path


def test_a_name_full_of_delimiters_is_found_or_refused_at_once(tmp_path: Path) -> None:
    name = "|" * 90
    recorded = read_log(log(tmp_path, f"{HEADER}1|{name}|10|20|30|4\n"))
    assert recorded.jobs.applications == (name,)
    with pytest.raises(LogError, match="too many delimiters"):
        read_log(log(tmp_path, f"{HEADER}1|{'|' * 20_000}|10|20|30|4\n"))
    # two columns of free text: one way only, and found among thousands
    two = "JobID|JobName|Submit|Comment|Start|ElapsedRaw|NCPUS\n"
    parts = "|".join("abcdefgh" * 5)
    recorded = read_log(log(tmp_path, f"{two}1|{parts}|1700000000|{parts}|1700000001|30|4\n"))
    assert recorded.jobs.applications == (parts,)


def test_blanks_in_the_header_of_a_log_are_passed_over_at_once(tmp_path: Path) -> None:
    job = "1 0 0 10 2 -1 -1 2 20 -1 1 1 1 1 1 1 -1 -1\n"
    header = f"; Note{' ' * 100_000}: a{' ' * 100_000}b \t\n;;Note:c\n; {' ' * 100_000}\n ; Note: no header\n"
    recorded = read_log(log(tmp_path, header + job))
    assert recorded.header == {"Note": f"a{' ' * 100_000}b\nc"}


def test_a_log_whose_machine_would_have_more_cores_than_any_has_is_refused(tmp_path: Path) -> None:
    columns = HEADER.strip() + "|NodeList\n"
    for nodes in ("n1|n1", "n1|n2", "|"):  # more on one node, on two, and on nobody knows which
        one, two = nodes.split("|")
        jobs = f"1|a|10|20|30|2147483647|{one}\n2|a|10|20|30|4|{two}\n"
        recorded = read_log(log(tmp_path, columns + jobs if one else HEADER + jobs.replace("|\n", "\n")))
        with pytest.raises(MachineError, match="too many"):
            infer(recorded)


@pytest.mark.parametrize(
    "odd", [{"user": 7}, {"partition": ["a"]}, {"name": {}}, {"association": {"user": 1}}]
)
def test_a_bad_record_of_a_log_leaves_no_part_behind(odd: dict[str, Any], tmp_path: Path) -> None:
    good: dict[str, Any] = {"required": {"CPUs": 1}, "state": "COMPLETED"}
    good |= {"time": {"submission": 1, "start": 2, "end": 5}}
    jobs = [
        {**good, "job_id": 1, "name": "a"},
        {**good, "job_id": 2, **odd},
        {**good, "job_id": 3, "name": "c"},
    ]
    recorded = read_log(log(tmp_path, json.dumps({"jobs": jobs})), skip_bad=True)
    assert recorded.jobs.applications == ("a", "c")
    assert len(recorded.bad) == 1


def test_half_a_character_in_a_log_becomes_a_question_mark(tmp_path: Path) -> None:
    job: dict[str, Any] = {"job_id": 1, "name": "a\ud800", "user": "é", "comment": {"job": "asad:\udfff"}}
    job |= {"required": {"CPUs": 1}, "time": {"submission": 1, "start": 2, "end": 5}, "state": "COMPLETED"}
    jobs = read_log(log(tmp_path, json.dumps({"jobs": [job]}))).jobs
    assert (jobs.applications, jobs.users, jobs.hints) == (("a?",), ("é",), ("?",))


def test_a_log_is_refused_whatever_is_nested_in_it(tmp_path: Path) -> None:
    for depth in range(300, 1000, 5):  # somewhere there it can be read, and not be written
        nested = '{"a":' * depth + "1" + "}" * depth
        with pytest.raises(LogError):
            read_log(log(tmp_path, '{"jobs": [{"job_id": 1, "name": ' + nested + "}]}"))


def test_an_elapsed_time_without_end_is_none(tmp_path: Path) -> None:
    job: dict[str, Any] = {"job_id": 1, "required": {"CPUs": 1}, "state": "COMPLETED"}
    job |= {"time": {"submission": 1, "start": 2, "end": 5, "elapsed": 4294967295}}
    assert read_log(log(tmp_path, json.dumps({"jobs": [job]}))).jobs.run_s.tolist() == [3.0]


def test_lists_of_nodes_of_several_racks_are_as_long_as_they_are() -> None:
    racks = "a[1-500],b[1-500],c[1-500],login"
    assert sum(last - first + 1 for _, first, last in runs_of(racks)) == len(expand(racks)) == 1501
    for text in (
        *("n[1-99999999]", "n[1-2000]x[1-2000]", "a[1-700000],b[1-700000]"),
        *(f"n[1-{'3' * 60}]", f"n[{'3' * 60}-{'4' * 60}]"),
    ):
        with pytest.raises(BadValue, match=r"more than|not a list"):
            runs_of(text)
        with pytest.raises(ValueError, match="more than"):
            expand(text)
    for text in ("@all,n1", "n[1-x],m", "n[1-", ",[", f"n[2-3]{'9' * 30}"):
        with pytest.raises(ValueError, match="no node set"):
            expand(text)


def test_a_key_that_begins_as_nodename_is_another(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("NodeNameX=1\nNodeName=n[1-3] CPUs=4\n")
    assert len(read_machine(path).cores) == 3


@pytest.mark.parametrize("workers", ["0" * 12 + "9" * 9, "0" * 900 + "8", "9" * 900])
def test_leading_zeros_hide_no_number_of_workers(workers: str) -> None:
    with pytest.raises(ValueError, match="no number up to"):
        read_hint(f"utility=constant(1);workers={workers}")


def test_members_and_limits_of_partitions_are_read_at_once() -> None:
    assert partition_checks._members("n[1-3,5]x[2],B") == {"n[1-3,5]x[2]", "b"}
    assert partition_checks._members("a[" * 50_000) == {"a[" * 50_000}
    for text in ("9" * 400, "1-" + "9" * 5000):  # no float holds it, and no number has so many digits
        assert slurm_conf.minutes(text) == math.inf
    assert slurm_conf.read_threads("\n" * 100_000) == set()
    assert slurm_conf.read_threads("2\n" + "9" * 5000) == {2}


def test_a_configuration_that_is_no_toml_is_looked_through_at_once(tmp_path: Path) -> None:
    path = tmp_path / "asad.toml"
    path.write_text("\n" * 100_000 + '[daemon]\nmode = "observe"\nstate_dir = "/a"\n' + "\n" * 100_000 + "[x")
    assert undo.configured(path)[:2] == (Path("/a"), Path("/a"))


def test_priority_tiers_in_odd_digits_are_none() -> None:
    for tier in ("²", "9" * 5000):
        slurm = slurm_conf.read_slurm_conf(f"PartitionName=p PriorityTier={tier}\n")
        assert partition_checks._tier(slurm, "p") == 1


# ------------------------------------------------------------------------------------------------------------ archives


def broken_archives() -> dict[str, bytes]:
    file = io.BytesIO()
    np.savez(file, action=np.zeros(2), loss=np.zeros(2))
    whole = file.getvalue()
    entry = whole.index(b"PK\x01\x02")
    encrypted, newer, cut = bytearray(whole), bytearray(whole), bytearray(whole)
    encrypted[entry + 8] |= 1
    newer[entry + 6] = 109
    cut[60:200] = b"\xff" * 140
    return {
        "encrypted": bytes(encrypted),
        "newer": bytes(newer),
        "overwritten": bytes(cut),
        "short": whole[:90],
        **{header: archive(header.encode()) for header in HEADERS},
        "damaged": damaged(
            archive(b"{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}", zipfile.ZIP_LZMA)
        ),
    }


HEADERS = (
    "{'descr': ('<f8', 'fortran_order': False",
    "{'descr': (), 'fortran_order': False, 'shape': (2,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (1" + "0" * 400 + ",)}",
    "if 1:\n    2\n  3L",
    "(" * 400,
)
"""What stands before an array in an archive: Python, of all things."""


def archive(header: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    """One whose arrays begin so."""
    file = io.BytesIO()
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(16)
    with zipfile.ZipFile(file, "w", compression) as made:
        for name in ("action", "loss"):
            made.writestr(f"{name}.npy", array)
    return file.getvalue()


def damaged(data: bytes) -> bytes:
    """An archive whose first compressed bytes are others."""
    begin = data.index(b"action.npy") + 10
    return data[: begin + 9] + b"\xff" * 20 + data[begin + 29 :]


@pytest.mark.parametrize("how", broken_archives())
def test_broken_archives_are_refused(how: str, tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    path.write_bytes(broken_archives()[how])
    with pytest.raises(ConfigError, match="cannot be read as"):
        read_archive(path, ("action", "loss"), "the docs")
    with pytest.raises(LogError, match="not an archive"):
        read_history(path)


@pytest.mark.parametrize("read", [read_instance, read_sow_instance])
def test_instances_with_numbers_that_no_float_holds(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    document = {
        "slots": 1,
        "resources": ["cpu"],
        "worker_servers": [[HUGE]],
        "parameter_servers": [],
        "jobs": [],
    }
    document |= {
        "capacity": 1,
        "max_demand": 1,
        "max_duration": 1,
        "max_value": HUGE,
        "span": 1,
        "rounds": 2,
        "statements": [],
    }
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="0 or more"):
        read(path)


# ------------------------------------------------------------------------------------------------------ Slurm's answers


def answer(*jobs: dict[str, Any]) -> bytes:
    return json.dumps({"jobs": list(jobs)}, indent=1).encode()


INFINITE = {"set": True, "infinite": True, "number": 0}


def test_numbers_beyond_any_column_are_cut() -> None:
    odd = {"cpus": HUGE, "node_count": INFINITE, "nice": INFINITE, "restart_cnt": INFINITE}
    array = {"array_job_id": 7, "array_task_string": "0-9999999999", "array_max_tasks": 1e300}
    (job,) = JobReader().read(answer(a_job(7, **odd, **array) | {"cpus": 1e300}))
    assert job.cores == job.nodes == job.tasks == job.restarts == job.throttle == 2**31 - 1
    assert abs(job.nice) < 2**31
    (node,) = NodeReader().read(
        json.dumps({"nodes": [{"name": "n1", "cpus": 1e300, "threads": -5}]}).encode()
    )
    assert (node.cpus, node.threads) == (65_536, 1)


@pytest.mark.parametrize(
    "odd",
    [
        {"job_id": 1e300},
        {"job_id": -1},
        {"nodes": ["n1"]},
        {"comment": 5},
        {"features": {"a": 1}},
        {"name": [1]},
        {"job_resources": {"nodes": {"allocation": [{"name": "n1", "cpus": 3}]}}},
    ],
    ids=str,
)
def test_an_answer_of_odd_kinds_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="cannot be read"):
        JobReader().read(answer(running(7, {"n1": 2}) | odd))


@pytest.mark.parametrize("read", [JobReader().read, NodeReader().read, lambda text: list(read_jobs(text))])
@pytest.mark.parametrize("text", [f'{{"jobs": {DEEP}}}', '{"jobs": [5], "nodes": 5}', "[]"])
def test_what_is_nested_or_no_list_is_refused(read: Callable[[bytes], object], text: str) -> None:
    with pytest.raises(ClusterError):
        read(text.encode())


@pytest.mark.parametrize("key", ["tasks", "array_job_id", "max_nodes", "restart_cnt"])
@pytest.mark.parametrize("value", [INFINITE, HUGE])
def test_numbers_that_are_infinite_are_no_job_for_mesos(key: str, value: Any) -> None:
    with pytest.raises(ClusterError, match="known Slurm"):
        list(read_jobs(answer(a_job(7) | {key: value})))


def test_words_that_no_command_can_be_given_are_a_refusal_and_no_silence() -> None:
    transport = CommandTransport(1.0)
    for word in ("a\0b", "\ud800"):
        answer_ = transport.update(7, {"Comment": word})
        assert (answer_.done, answer_.certain) == (False, True)
        assert "no command" in answer_.why
    assert transport.answers


def test_what_is_reported_of_partitions_that_cannot_be_read_is_short_and_plain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = CommandTransport(1.0)
    monkeypatch.setattr(transport, "_run", lambda argv: b"PartitionName=p PriorityTier=\x1b[2J" + b"x" * 9999)
    why = Limits().ask(transport, NOW_S)
    assert why is not None and why.isprintable() and len(why) < 400


def test_a_cluster_that_shows_no_nodes_breaks_no_cycle(tmp_path: Path) -> None:
    read = _cycles(LENDING)(tmp_path)
    assert read(b'{"nodes": []}', Random(1))


def test_beyond_the_last_core_nothing_is_looked_for_a_node_that_has_none() -> None:
    shown = cluster()
    memory = np.append(shown.core_owner, np.int32(HOST))  # what happens to lie behind the cores of the others
    machine = Machine(("n0", "n1", "n2"), np.array([4, 4, 0], np.int32), np.full(3, 16.0), "made up")
    shown = replace(shown, machine=machine, core_owner=memory[:8], node_bar=np.zeros(3, np.int8))
    nothing = np.zeros(0)
    for policy in (Measured(["ann/sim/4"], Options()), Static(0.5)):
        policy.learn(shown, Finished(np.zeros(0, np.int32), nothing, nothing, nothing, nothing))
        policy.decide(shown)
        if isinstance(policy, Measured):
            assert policy._memo is not None
            assert policy._memo.node[HOST] == 0
    rows = node_rows(shown, {}, NOW)
    assert [row["cores"] for row in rows] == [4, 4, 0]


def test_what_turns_the_direction_of_text_is_no_part_of_a_name() -> None:
    (job,) = JobReader().read(answer(a_job(7, name="a\u2066b\u200fc\u202ed e\u3000f")))
    assert job.name == "a�b�c�d e\u3000f"


@pytest.mark.parametrize(
    "nice", [-(2**31), 2**31, -(2**40), {"set": True, "infinite": False, "number": 2**31}]
)
def test_every_nice_can_be_turned_round(nice: Any) -> None:
    (job,) = JobReader().read(answer(a_job(7, nice=nice)))
    assert job.nice == 1 - 2**31


def test_half_a_character_is_no_job_for_mesos() -> None:
    with pytest.raises(ClusterError, match="known Slurm"):
        list(read_jobs(answer(a_job(7, command="\ud800"))))


def test_digits_of_other_scripts_and_long_ones_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = f"²|1|2|00:01|COMPLETED\n{'9' * 5000}|1|2|00:01|COMPLETED\n7|1|2|00:01|COMPLETED\n"
    transport = CommandTransport(1.0)
    monkeypatch.setattr(transport, "_run", lambda argv: lines.encode())
    assert list(transport.ended([7])) == [7]
    side = Commands(1.0)
    monkeypatch.setattr(
        side, "_run", lambda *argv: f"²|1|PENDING|5|p|\n1|1|PENDING|{'9' * 5000}|p|\n7|7|PENDING|5|p|\n"
    )
    assert list(side.look()) == [7]


# ------------------------------------------------------------------------------------------------------------ journals


def lines(*events: Any) -> str:
    return "".join(event if isinstance(event, str) else json.dumps(event) + "\n" for event in events)


OFFER = {
    "what": "offer", "time_s": 1.0, "job": "12", "raw": 12, "partition": "batch", "required_nodes": "",
    "guest_partition": "guest", "nodes": "n2", "host": "7", "estimate_s": None, "share": 0.5, "capped": False,
}  # fmt: skip


def test_lines_of_a_journal_that_make_no_sense_stop_nobody(tmp_path: Path) -> None:
    path = tmp_path / undo.JOURNAL
    broken = [DEEP + "\n", {"what": {}, "job": "1"}, {"what": ["offer"], "job": "1"}, [1], {"what": "offer"}]
    late = {"what": "changed", "job": "9", "key": "StartTime", "was": 1e300, "ours": [1], "time_s": 1.0}
    many = late | {"job": "9" * 5000, "was": 1}
    path.write_text(lines(*broken, late, many, OFFER))
    assert list(undo.open_offers(path)) == ["12"]
    assert undo.open_changes(path) == {}
    held = {"job": 1, "take": 1, "array": 0, "task": -1, "submit_s": 1.0, "facts": {}, "state": "served"}
    broken.append(held | {"since_s": HUGE})
    (tmp_path / queue_undo.QUEUE).write_text(lines(*broken))
    assert queue_undo.held_jobs(tmp_path / queue_undo.QUEUE) == {}
    (tmp_path / queue_undo.GANGS).write_text(lines(DEEP + "\n"))
    with pytest.raises(ValueError, match="no record"):
        queue_undo.gangs(tmp_path / queue_undo.GANGS)


@pytest.mark.parametrize("time_s", ["soon", None, [], HUGE, math.inf])
def test_an_offer_of_no_time_is_taken_back_as_an_old_one(
    time_s: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / undo.JOURNAL
    path.write_text(lines(OFFER | {"time_s": time_s}))
    monkeypatch.setattr(undo, "_look", lambda job, timeout_s: ("PENDING", "guest", "n2"))
    monkeypatch.setattr(undo, "_update", lambda job, words, timeout_s: "")
    assert undo.undo(path, older_than_s=60.0, now_s=NOW_S) == (["12: waits in batch again"], 0)


def test_a_zero_byte_in_one_line_does_not_keep_the_others_from_being_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / undo.JOURNAL
    names = [("12", "a\0b"), ("13_4", "\ud800"), ("1; reboot", "batch")]
    path.write_text(lines(*(OFFER | {"job": job, "partition": partition} for job, partition in names)))
    monkeypatch.setattr(undo, "_look", lambda job, timeout_s: ("PENDING", "guest", "n2"))
    text, failed = undo.undo(path, older_than_s=0.0, now_s=NOW_S)
    assert failed == len(text) == 2
    assert all("journal is broken" in sentence for sentence in text)


@pytest.mark.parametrize(
    "odd", [{"partition": "\x1b[2J"}, {"host": "\ud800"}, {"nodes": "n{1-2]"}, {"nodes": "@all"}]
)
def test_an_offer_whose_names_cannot_be_shown_or_found_is_kept_unread(odd: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"name|node set"):
        Offer.from_json(OFFER | odd)


def test_an_offer_with_an_infinite_number_is_kept_unread() -> None:
    with pytest.raises(OverflowError):
        Offer.from_json(OFFER | {"restarts": math.inf})


TAKEN = {"job": 17, "submit_s": 1.0, "restarts": 0, "take": 1, "state": "holding"}


def test_entries_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    odd = [
        {"job": [17]},
        {"take": "1"},
        {"submit_s": "x"},
        {"facts": {"wrote": 5}},
        {"state": {}},
        {"job": HUGE},
    ]
    journal = lines(DEEP + "\n", *(TAKEN | one for one in odd), TAKEN)
    (tmp_path / QUEUE).write_text(journal)
    assert list(InHand(tmp_path, lambda: NOW_S).now) == [17]
    (tmp_path / QUEUE).write_text(
        lines(TAKEN | {"why": "a\x1b[2J", "facts": {"back": "\ud800"}, "comment": "a\nb"})
    )
    (entry,) = InHand(tmp_path, lambda: NOW_S).now.values()
    assert (entry.why, entry.facts, entry.comment) == ("a?[2J", {"back": "?"}, "a\nb")


@pytest.mark.parametrize(
    "odd", [{"hold_until_s": {}}, {"attempt": "1"}, {"priority": True}, {"guests": ["x"]}, {"spec": None}]
)
def test_a_journal_with_a_job_of_other_kinds_cannot_be(odd: dict[str, Any], tmp_path: Path) -> None:
    framework = Framework(MesosSettings())
    framework.handle(Subscribed("f"), now_s=1.0)
    spec = spec_from_json({"user": "u", "uid": 1, "command": "x"}).to_json()
    record = {"what": "job", "job": "m1", "number": 1, "spec": spec, "submit_s": 1.0, "state": odd}
    (tmp_path / NAME).write_text(lines(record))
    with pytest.raises(JournalError, match="cannot be"):
        Session(read_settings({}), tmp_path, lambda: NOW_S)


def test_a_journal_whose_records_are_nested_too_deeply_to_be_shown_cannot_be(tmp_path: Path) -> None:
    framework = Framework(MesosSettings())
    framework.handle(Subscribed("f"), now_s=1.0)
    spec = spec_from_json({"user": "u", "uid": 1, "command": "x"}).to_json()
    job = {"what": "job", "job": "m1", "number": 1, "spec": spec, "submit_s": 1.0}
    for depth in range(300, 1000, 5):  # somewhere there it can still be read
        kind = '{"a":' * depth + "1" + "}" * depth
        (tmp_path / NAME).write_text(lines(job, f'{{"what":{kind},"job":"m1"}}\n', job))
        with pytest.raises(JournalError):
            Session(read_settings({}), tmp_path, lambda: NOW_S)


# --------------------------------------------------------------------------------------------------------------- Mesos


@pytest.mark.parametrize(
    "labels",
    [5, [], {"labels": 5}, {"labels": [5, None]}, {"labels": [{"key": "exit"}]}, {"labels": [{"value": []}]}],
    ids=str,
)
def test_labels_that_are_none_show_nothing(labels: Any) -> None:
    status = {"labels": labels, "reason": ["x"]}
    assert statuses.exit_of(status) is None
    assert not statuses.takes_guests(status)
    assert not statuses.refused(status)
    assert statuses.not_to_blame(status)


def test_of_a_status_and_an_offer_only_what_can_be_sent_back_is_taken() -> None:
    nested = json.loads("[" * 400 + "]" * 400)
    plain = {
        "task_id": {"value": 7, "x": nested},
        "agent_id": {"value": "S", "x": nested},
        "state": 1,
        "uuid": 5,
    }
    assert statuses.read_status(plain | {"x": nested}) == {
        "task_id": {"value": "7"}, "agent_id": {"value": "S"}, "state": "1", "uuid": "5"
    }  # fmt: skip
    cpus = [{"name": "cpus", "scalar": {"value": 1.0}} | more for more in ({}, {"x": nested})]
    offer = {"hostname": "n1", "id": {"value": "O"}, "agent_id": {"value": "S"}, "resources": cpus}
    assert len(read_offer(offer).pieces) == 1


def test_an_exit_status_that_no_journal_holds_is_none() -> None:
    assert statuses.exit_of({"labels": {"labels": [{"key": "exit", "value": "9" * 30}]}}) is None
    assert statuses.exit_of({"labels": {"labels": [{"key": "exit", "value": "-9"}]}}) == -9


def test_events_that_make_no_sense_are_let_be(tmp_path: Path) -> None:
    session = Session(read_settings({}), tmp_path, lambda: NOW_S)
    try:
        cpus = {"name": "cpus", "scalar": {"value": math.inf}}
        offer = {"hostname": "n1", "id": {"value": "O"}, "agent_id": {"value": "S"}, "resources": [cpus]}
        status = {"task_id": {"value": "t"}, "state": "TASK_RUNNING", "agent_id": "S"}
        for event in (
            {"type": "OFFERS", "offers": {"offers": [offer]}},
            {"type": "UPDATE", "update": {"status": status}},
        ):
            assert session.link._read(event, 0.0) == []
        nested: Any = []
        for _ in range(1000):
            nested = [nested]
            assert session.link._read({"type": "RESCIND", "rescind": nested}, 0.0) == []
    finally:
        session.close()


@pytest.mark.parametrize("key", ["script", "command"])
def test_half_a_character_would_break_the_journal_for_all_and_is_refused(key: str) -> None:
    job: dict[str, Any] = {"user": "u", "uid": 1, "command": "x"}
    with pytest.raises(UsageError, match="UTF-8"):
        spec_from_json(job | {key: "echo \ud800"})
    with pytest.raises(UsageError, match="UTF-8"):
        spec_from_json(job | {"environment": {"A": "\udfff"}})
    assert spec_from_json(job | {key: "echo é"})


def test_a_job_with_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(UsageError, match="cpus"):
        spec_from_json({"user": "u", "uid": 1, "command": "x", "groups": [{"cpus": HUGE}]})


# ------------------------------------------------------------------------------------------------------------ messages


class Transport:
    """Stands for a connection."""

    def abort(self) -> None:
        """It is closed."""


def server_sent(payload: bytes) -> NodeServer:
    server = NodeServer("127.0.0.1:0", Transport(), 90.0, clock=lambda: NOW_S)  # type: ignore[arg-type]
    connection = _Connection(server, None)  # type: ignore[arg-type]
    connection._transport = Transport()  # type: ignore[assignment]
    connection.state, connection.node, connection._channel = "open", "n1", TrustedChannel()
    connection.data_received(frame(payload))
    return server


@pytest.mark.parametrize(
    "row",
    [
        {"time_s": HUGE},
        {"time_s": -1},
        {"time_s": 1.0, "old": [[]]},
        {"time_s": 1.0, "file": {"a": 1}},
        {"time_s": True},
    ],
    ids=lambda row: str(row)[:30],
)
def test_rows_of_an_audit_that_no_store_takes_close_the_connection(row: dict[str, Any]) -> None:
    server = server_sent(pack({"kind": "audit", "rows": [row]}))
    assert server.refused == 1
    assert not server.audit


def test_what_is_nested_as_deep_as_can_be_read_closes_the_connection() -> None:
    for depth in range(700, 1000):  # json reads some levels more than repr shows
        nested = b"[" * depth + b"]" * depth
        assert server_sent(b'{"kind": "hello", "cgroup": ' + nested + b"}").refused == 1
        assert server_sent(b'{"kind": "report", "jobs": {"1": ' + nested + b"}}").refused == 1


def test_messages_beyond_json_are_no_messages() -> None:
    with pytest.raises(WireError):
        unpack(b'{"a": ' + DEEP.encode() + b"}")


@pytest.mark.parametrize("key", ["quota", "cores", "memory_high_bytes"])
def test_a_lease_with_a_number_that_no_float_holds_makes_no_sense(key: str) -> None:
    plain = {"job_id": "2", "guest": True, "host_id": "1", "quota": 0.5, "cores": 2}
    with pytest.raises(ValueError, match="no number"):
        lease_from_json(plain | {key: HUGE})


@pytest.mark.parametrize("cores", [HUGE, -HUGE, True, 1.5, None])
def test_a_quote_for_no_number_of_cores_is_refused(cores: Any) -> None:
    requests = StatementRequests(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cores"):
        requests._quote(None, Request("sow-quote", {"cores": cores}))  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------- store


def test_what_the_store_holds_is_an_object_of_numbers_or_nothing() -> None:
    assert object_of('{"a": 12, "b": -3}') == {"a": 12, "b": -3}
    assert object_of(json.dumps({"a": HUGE})) == {"a": math.inf}
    assert [object_of(text) for text in ("[]", "5", "{", DEEP, "")] == [None] * 5


def test_a_kept_statement_whose_value_falls_over_more_rounds_than_a_number_holds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"span 10+: write the rounds in which the value falls to 0"):
        Worth("linear", 1.0, 40, 10**400)
