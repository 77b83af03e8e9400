"""Frames, seals and messages between daemon and node actors."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asad.api.wire import (
    MAX_FRAME_BYTES,
    AuthError,
    Frames,
    Message,
    SealedChannel,
    WireError,
    frame,
    lease_to_json,
    pack,
    parse_address,
    report_from_json,
    sample_from_json,
    unpack,
)
from asad.errors import ConfigError
from asad.node.actor import lease_from_json, sample_to_json
from asad.port import JobSample, Lease

SAMPLE = JobSample(
    job_id="12_3",
    guest=True,
    cores=2,
    core_ids=(0, 4),
    cpu_fraction=math.nan,
    cpu_peak=0.75,
    cpu_time_s=12.5,
    memory_bytes=2e9,
    throttled=math.nan,
    pressure=0.125,
    read_bytes=1.0,
    written_bytes=2.0,
    threads=3,
    parallel=False,
    progress=math.nan,
    since_s=1.7e9,
    quota=0.5,
    idle_class=True,
    steps_done=4,
)


def same(one: JobSample | Lease, other: JobSample | Lease) -> bool:
    """Equal, NaN being equal to NaN."""
    return repr(one) == repr(other)


@given(st.lists(st.binary(max_size=300), max_size=6), st.data())
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(map(frame, payloads))
    frames, found = Frames(1000), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += list(frames.feed(stream[:cut]))
        stream = stream[cut:]
    assert found == payloads


def test_a_frame_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(WireError, match="17 bytes is announced; 16 are allowed"):
        list(Frames(16).feed(b"\0\0\0\x11"))
    with pytest.raises(WireError, match="too long"):
        frame(bytes(MAX_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"3", b'{"a":NaN}', b'{"a":Infinity}', b"\xff", b"[" * 100_000, b"1" * 5000]
)
def test_what_is_not_an_object_of_json_is_refused(payload: bytes) -> None:
    with pytest.raises(WireError):
        unpack(payload)


def test_nan_is_never_sent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack({"quota": math.nan})


def ends() -> tuple[SealedChannel, SealedChannel]:
    return SealedChannel(b"s", b"t", "actor"), SealedChannel(b"s", b"t", "daemon")


def test_a_channel_opens_what_the_other_end_sealed_in_both_directions() -> None:
    actor, daemon = ends()
    for k in range(3):
        assert daemon.open(actor.seal(b"up %d" % k)) == b"up %d" % k
        assert actor.open(daemon.seal(b"down %d" % k)) == b"down %d" % k


def test_a_channel_refuses_what_is_repeated_left_out_changed_or_sent_back() -> None:
    actor, daemon = ends()
    first, second = actor.seal(b"first"), actor.seal(b"second")
    with pytest.raises(AuthError):
        daemon.open(second)
    assert daemon.open(first) == b"first"
    for bad in (first, second[:-1] + b"x", b"", second[:10], daemon.seal(b"second")):
        with pytest.raises(AuthError):
            daemon.open(bad)
    assert daemon.open(second) == b"second"


def test_channels_of_other_secrets_or_transcripts_do_not_fit() -> None:
    sealed = SealedChannel(b"s", b"t", "actor").seal(b"x")
    for secret, transcript in ((b"s", b"u"), (b"r", b"t")):
        with pytest.raises(AuthError):
            SealedChannel(secret, transcript, "daemon").open(sealed)


def test_samples_and_leases_round_trip() -> None:
    assert same(sample_from_json(json.loads(pack(sample_to_json(SAMPLE)))), SAMPLE)
    for lease in (Lease("12", True, "7", math.nan, 2), Lease("7+1", False, "", 0.25, 64)):
        assert same(lease_from_json(json.loads(pack(lease_to_json(lease)))), lease)


def test_a_sample_carries_every_field_of_the_model() -> None:
    assert list(sample_to_json(SAMPLE)) == [field.name for field in dataclasses.fields(JobSample)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job_id", "../../etc"),
        ("job_id", "x" * 65),
        ("job_id", "\x1b[2J"),
        ("job_id", 12),
        ("guest", 1),
        ("cores", -1),
        ("cores", 1.5),
        ("cores", True),
        ("core_ids", "0"),
        ("core_ids", [-1]),
        ("cpu_fraction", -0.1),
        ("cpu_fraction", "1"),
        ("cpu_fraction", True),
        ("memory_bytes", 10**400),
        ("quota", [0.5]),
        ("idle_class", None),
    ],
)
def test_a_wrong_field_of_a_sample_is_refused(field: str, value: object) -> None:
    with pytest.raises(WireError):
        sample_from_json({**sample_to_json(SAMPLE), field: value})  # type: ignore[dict-item]


def test_a_missing_field_is_named() -> None:
    plain = sample_to_json(SAMPLE)
    del plain["threads"]
    with pytest.raises(WireError, match="lacks threads"):
        sample_from_json(plain)


def test_a_fraction_that_is_a_little_above_one_is_one() -> None:
    assert sample_from_json({**sample_to_json(SAMPLE), "pressure": 1.0000001}).pressure == 1.0


def test_a_report_holds_each_job_under_its_own_name() -> None:
    plain = sample_to_json(SAMPLE)
    report = report_from_json({"kind": "report", "jobs": {"12_3": plain}}, "n1", 1, 5.0)
    assert (report.node, report.time_s, report.cgroup, list(report.jobs)) == ("n1", 5.0, 1, ["12_3"])
    assert report.hyperthreaded_cores == 0
    record = {"kind": "report", "jobs": {}, "hyperthreaded_cores": 32}
    assert report_from_json(record, "n1", 1, 5.0).hyperthreaded_cores == 32
    wrong: list[Message] = [
        {"jobs": {"13": plain}},
        {"jobs": []},
        {},
        {"jobs": {}, "cgroup": 3},
        {"jobs": {}, "hyperthreaded_cores": -1},
    ]
    for bad in wrong:
        with pytest.raises(WireError):
            report_from_json(bad, "n1", 1, 5.0)


def test_addresses() -> None:
    assert parse_address("0.0.0.0:6820", "k") == ("0.0.0.0", 6820)
    assert parse_address("[::1]:1", "k") == ("::1", 1)
    for bad in ("6820", "host", "host:", ":1", "host:x", "host:65536", "host:²"):
        with pytest.raises(ConfigError, match=r"^\[nodes\] listen: "):
            parse_address(bad, "[nodes] listen")
