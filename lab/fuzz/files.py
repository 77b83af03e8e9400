"""Readers of files that people bring along: logs, machines, configurations, expert trees, statements, models."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
from asad_slurm.slurm_conf import read_config, read_partitions, read_slurm_conf

from asad.admit.hints import read_hint
from asad.admit.sow.announcements import MOST_CHARACTERS, announcement_of, read_announcements
from asad.admit.sow.statement import LaunchPlan, Statement
from asad.admit.utility import parse_utility, worth_by_slot
from asad.cli.config import faults_of, located
from asad.config import key_lines, load
from asad.contention import load_contention
from asad.defer.expected import read_expected
from asad.defer.linear import read_weights
from asad.defer.network import read as read_network
from asad.defer.rollout import read_sample
from asad.defer.windows import read_duration, read_window
from asad.errors import ConfigError, MachineError, UsageError
from asad.experts import check_experts, load_expert
from asad.experts.compiled import compile_experts
from asad.experts.fitting import read_history
from asad.model import Ints, Machine
from asad.node.progress_files import parse as parse_progress
from asad.replay.cpu_demand import assign, read_demand
from asad.replay.inferred_machine import infer
from asad.replay.limits.sacctmgr_output import read_limits
from asad.replay.machine_files import read_machine
from asad.replay.readers import Recorded, read_log
from asad.replay.replay_settings import Settings
from asad.replay.site import site_of
from asad.replay.workload import build_workload
from asad_papers.oasis.scheme_instances import read_instance
from asad_papers.oga.port_instances import read_port_instance
from asad_papers.osdec.deferral_instances import read_trajectories
from asad_papers.sow.statement_instances import read_sow_instance
from lab.fuzz import samples
from lab.fuzz.mutations import Form, hostile
from lab.fuzz.run import FaultError, Read, Reader, unfit
from lab.fuzz.samples import NOW_S, PROFILES


def readers() -> list[Reader]:
    """All of these rooms; what is only recorded elsewhere is left out where it is not."""
    found = [
        Reader("log: SWF", "text", samples.swf(), _log("swf"), 8),
        Reader("log: sacct -P and CSV", "text", samples.sacct(), _log("sacct"), 12),
        Reader("log: sacct --json", "json", samples.sacct_json(), _log("sacct-json"), 8),
        Reader("machine: slurm.conf", "text", [samples.SLURM_CONF], _machine),
        Reader("machine: scontrol show node", "text", [samples.NODE_RECORDS], _machine),
        Reader("machine: sinfo --json", "json", samples.sinfo(), _machine),
        Reader("machine: scontrol beside nodes", "text", samples.BESIDE_NODES, _beside_nodes),
        Reader("limits: sacctmgr -P", "text", [samples.LIMITS], _limits),
        Reader("configuration", "toml", [samples.CONFIGURATION, _read("asad.toml")], _configuration, 6),
        Reader("expert trees", "toml", [path.read_bytes() for path in _experts()], _expert, 8),
        Reader("statements of work", "toml", [samples.STATEMENTS], _statements, 8),
        Reader("statements as kept", "json", [_a_statement()], _statement_json),
        Reader("hints and utilities", "text", samples.HINTS, _hint, 8),
        Reader("demand profiles", "toml", [samples.DEMAND], _on_file(lambda path: read_demand(str(path))), 2),
        Reader("contention constants", "toml", [_read("contention.toml")], _on_file(load_contention), 2),
        Reader("deferral: expected.toml", "toml", [_read("defer/expected.toml")], _named(read_expected), 2),
        Reader("deferral: linear.toml", "toml", [_read("defer/linear.toml")], _named(_weights), 2),
        Reader(
            "deferral: sample.toml",
            "toml",
            [_sample()],
            _named(read_sample),
            2,
        ),
        Reader("deferral: network.json", "json", [_read("osdec/osdec-s1.json")], _network_json, 2),
        Reader("deferral: network.npz", "text", [_read("osdec/ppo-att-s1.npz")], _network_npz, 2),
        Reader("history of cases: CSV", "text", [_cases_csv()], _on_file(read_history, ".csv"), 2),
        Reader("history of cases: npz", "text", [_cases_npz()], _on_file(read_history, ".npz"), 2),
        Reader("answers of scontrol: doctor", "text", _doctor(), _doctor_texts, 2),
    ]
    for name, form, recorded, open_ in (
        (
            "instances: OASiS",
            "json",
            samples.statements_of_data("oasis/*.json", "jobs"),
            _on_file(read_instance),
        ),
        (
            "instances: SoW",
            "json",
            samples.statements_of_data("sow/*.json", "statements"),
            _on_file(read_sow_instance),
        ),
        ("instances: OSDEC", "text", [_trajectories()], _on_file(read_trajectories, ".npz")),
        ("instances: OgaSched", "text", [_ports()], _on_file(read_port_instance, ".npz")),
    ):
        if recorded:
            form_: Form = "json" if form == "json" else "text"
            found.append(Reader(name, form_, recorded, open_, 2))
    return found


def _read(name: str) -> bytes:
    return (PROFILES / name).read_bytes()


def _sample() -> bytes:
    """The first rows of many."""
    return b"\n".join([*_read("defer/sample.toml").split(b"\n")[:30], b"]"])


def _experts() -> list[Path]:
    return sorted((PROFILES / "experts").glob("**/*.toml"))


# --------------------------------------------------------------------------------------------------------------- logs


def _log(form: str) -> Callable[[Path], Read]:
    def open_(folder: Path) -> Read:
        path = folder / "log"

        def read(data: bytes, chance: Random) -> bool:
            path.write_bytes(data)
            # what it is, is found out; or said, and sacct's table then has columns by name
            text = form if form != "sacct" and chance.random() < 0.3 else None
            delimiter = chance.choice((",", "|", ";")) if form == "sacct" and chance.random() < 0.1 else None
            recorded = read_log(path, skip_bad=chance.random() < 0.7, format=text, delimiter=delimiter)
            _require_sound(recorded)
            try:
                machine = infer(recorded)
                demand = assign(recorded.jobs, *recorded.jobs.fingerprints(), read_demand("beta:0.5"), 1)
                notes: list[str] = []
                build_workload(recorded, machine, Settings(), demand, notes)
            except MachineError:
                return True
            return True

        return read

    return open_


def _require_sound(recorded: Recorded) -> None:
    """Every line is a row or is counted, every row is a job that ran, and all names can be written."""
    jobs = recorded.jobs
    left_out = sum(number for reason, number in recorded.counts.items() if reason != "lines")
    sound = (
        recorded.counts["lines"] == len(jobs) + left_out
        and recorded.counts.get("bad", 0) == len(recorded.bad)
        and (jobs.run_s > 0).all()
        and (jobs.cores > 0).all()
        and np.isfinite(jobs.submit_s).all()
        and np.isfinite(jobs.run_s).all()
        and (np.diff(jobs.submit_s) >= 0).all()
        and (jobs.depends_on < np.arange(len(jobs))).all()
    )
    if not sound:
        raise FaultError(f"lines are lost, or a row is no job that ran: {recorded.counts}")
    for names in (jobs.users, jobs.applications, jobs.partitions, jobs.hints, *recorded.notes):
        "".join(names).encode()
    for bad in recorded.bad:
        if why := unfit(str(bad)):
            raise FaultError(f"a bad line gives {why}")


def _machine(folder: Path) -> Read:
    return _on_file(lambda path: _require_sound_site(read_machine(path)))(folder)


def _beside_nodes(folder: Path) -> Read:
    nodes = folder / "nodes"
    nodes.write_bytes(samples.NODE_RECORDS)
    return _on_file(lambda path: _require_sound_site(read_machine(path, nodes)))(folder)


def _require_sound_site(machine: Machine) -> None:
    """What is known of scheduling has a row for each node, numbers of nodes that there are, and values in range."""
    site, nodes = site_of(machine), len(machine.node_names)
    if site is None or {nodes} != {len(site.gres), len(site.features), len(site.weight)}:
        raise FaultError("what is known of scheduling does not have the nodes of the machine")
    for rules in site.partitions.values():
        _require_numbers(rules.name, rules.nodes, nodes)
        if not (rules.max_time_s > 0 and not rules.default_time_s <= 0 and rules.max_nodes >= 0):
            raise FaultError(f"values of partition {rules.name!r} are out of range")
    for one in site.reservations:
        _require_numbers(one.name, one.nodes, nodes)
        if not one.start_s < one.end_s:
            raise FaultError(f"reservation {one.name!r} ends before it begins")
    for note in (*machine.notes, *site.notes):
        if why := unfit(note):
            raise FaultError(f"a note has {why}")


def _require_numbers(name: str, numbers: Ints, nodes: int) -> None:
    if not set(numbers.tolist()) <= set(range(nodes)) or (np.diff(numbers) <= 0).any():
        raise FaultError(f"{name!r} has nodes that are not there, or in another order")


def _limits(folder: Path) -> Read:
    return _on_file(lambda path: read_limits([path]))(folder)


# ----------------------------------------------------------------------------------------------- TOML that people write


def _configuration(folder: Path) -> Read:
    """As `asactl config check` reads it."""
    path = folder / "asad.toml"

    def read(data: bytes, chance: Random) -> bool:
        path.write_bytes(data)
        config = load(path)
        faults = faults_of(config)
        if faults:
            lines = key_lines(path.read_text(encoding="utf-8"))
            raise ConfigError("\n".join(located(str(path), lines, fault) for fault in faults))
        config.to_json()
        return True

    return read


def _expert(folder: Path) -> Read:
    path = folder / "expert.toml"

    def read(data: bytes, chance: Random) -> bool:
        path.write_bytes(data)
        for problem in check_experts([path]):
            if why := unfit(str(problem)):
                raise FaultError(f"a problem gives {why}")
        expert = load_expert(path)
        compile_experts([expert])
        path.write_text(expert.to_toml())
        if load_expert(path) != expert:
            raise FaultError("an expert comes back from its file as another")
        return True

    return read


def _statements(folder: Path) -> Read:
    def read(data: bytes, chance: Random) -> bool:
        try:
            text = data[: 4 * MOST_CHARACTERS + 1].decode("utf-8")
        except UnicodeDecodeError:
            return False
        for one in read_announcements(text, "statements.toml", NOW_S):
            again = announcement_of(one.to_json(), NOW_S)
            if again.name != one.name or again.later(3).due_s < again.due_s:
                raise FaultError("a statement comes back as another")
        return True

    return read


def _a_statement() -> bytes:
    worth = {"kind": "linear", "value": 12.0, "deadline": 40, "span": 20}
    rows = [[10, 6, 0.7, 0], [11, 9, 0.3, 0]]
    own = {"kind": "own", "value": 3.0, "deadline": 40, "table": [3.0, 2.0, 1.0]}
    return json.dumps(
        {
            "statement": {"birth": 8, "demand": 2, "rows": rows, "worth": worth},
            "other": {"birth": 8, "demand": 2, "rows": rows, "worth": own},
            "plan": [[10, 0, 12], [11, 0, -1]],
            "announced": {
                "name": "nightly", "cores": 8, "due": NOW_S, "every": 0.0, "runs": [[0.0, 3600.0, 1.0]],
                "value": 12.0, "shape": "deadline", "deadline": 7200.0, "eviction": "cancel",
            },
        }
    ).encode()  # fmt: skip


def _statement_json(folder: Path) -> Read:
    def read(data: bytes, chance: Random) -> bool:
        try:
            plain = json.loads(data)
            parts = [plain[key] for key in ("statement", "other", "plan", "announced")]
        except (ValueError, KeyError, TypeError, RecursionError):
            return False
        for part in parts[:2]:
            made = Statement.from_json(part)
            Statement.from_json(made.to_json()).worth.by_finish(made.birth, 50)
        LaunchPlan.from_json(parts[2]).row_of(10)
        if isinstance(parts[3], dict):
            announcement_of(parts[3], NOW_S)
        return True

    return read


def _hint(folder: Path) -> Read:
    """What users write into comments and progress files."""

    def read(data: bytes, chance: Random) -> bool:
        text = data.decode("utf-8", "replace").removeprefix("asad:")
        parse_progress(text)
        read_window(text)
        read_duration(text.partition("=")[2])
        try:
            hint = read_hint(text)
        except ValueError as error:
            raise UsageError(str(error)) from None
        utility = hint.utility or hostile("text", chance)
        worth = worth_by_slot(parse_utility(utility, chance.choice((1.0, 600.0, 86_400.0))), 50)
        if not np.isfinite(worth).all() or (np.diff(worth) > 0).any():
            raise FaultError("a worth that rises, or is no number")
        return True

    return read


# -------------------------------------------------------------------------------------------------------------- models


def _on_file(function: Callable[[Path], object], suffix: str = "") -> Callable[[Path], Read]:
    """A reader of one file that reports by errors alone."""

    def open_(folder: Path) -> Read:
        path = folder / f"file{suffix}"

        def read(data: bytes, chance: Random) -> bool:
            path.write_bytes(data)
            function(path)
            return True

        return read

    return open_


def _named(function: Callable[[str], object]) -> Callable[[Path], Read]:
    return _on_file(lambda path: function(str(path)))


def _weights(path: str) -> object:
    return read_weights("skip-fit", path)


def _network_json(folder: Path) -> Read:
    weights = _read("osdec/osdec-s1.npz")

    def read(data: bytes, chance: Random) -> bool:
        read_network("model.json", data.decode("utf-8", "replace"), weights)
        return True

    return read


def _network_npz(folder: Path) -> Read:
    description = json.loads(_read("osdec/ppo-att-s1.json"))

    def read(data: bytes, chance: Random) -> bool:
        description["weights_sha256"] = hashlib.sha256(data).hexdigest()
        read_network("model.json", json.dumps(description), data)
        return True

    return read


def _cases_csv() -> bytes:
    return (
        b"cpu_p95,pressure,action,loss,probability\n0.5,0.5,0.1,0.01,0.5\n0.9,,0.2,0.0,1\n0.1,0.9,0,0.5,0.2\n"
    )


def _cases_npz() -> bytes:
    cases = {"action": [0.1, 0.2], "loss": [0.01, 0.0], "probability": [0.5, 1.0], "cpu_p95": [0.5, np.nan]}
    return _npz(**{name: np.array(column) for name, column in cases.items()})


def _trajectories() -> bytes:
    jobs = np.array([[1, 2, 0, 3, 0], [2, 1, 1, 4, 0], [1, 1, 2, 3, 1]], np.int32)
    return _npz(jobs=jobs, offsets=np.array([0, 2, 3]), capacity=np.full((2, 6), 4, np.int32))


def _ports() -> bytes:
    return _npz(
        A=np.ones((2, 3)),
        C=np.full((4, 3), 8.0),
        adj=np.ones((2, 4), np.bool_),
        X=np.ones((5, 2)),
        alphas=np.ones((3, 4)),
        betas=np.ones(3),
        utils=np.array(["linear", "log", "poly", "linear"]),
        eta0=np.float64(5.0),
        decay=np.float64(0.99),
    )


def _npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def _doctor() -> list[bytes]:
    return [samples.head(path, 60) for path in sorted(samples.DOCTOR.iterdir())]


def _doctor_texts(folder: Path) -> Read:
    def read(data: bytes, chance: Random) -> bool:
        text = data.decode(errors="replace")
        read_config(text)
        read_partitions(text)
        read_slurm_conf(text)
        return True

    return read
