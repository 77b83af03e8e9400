"""What crosses the network between daemon and node actors: frames, messages, and what an authenticator must do.

A frame is its length in four bytes (big endian) and so many bytes, at most 4 MiB. The first frame of each side proves
who it is (`Authenticator`); what follows are messages, one JSON object a frame, sealed by the connection's `Channel`.
Whatever comes in is checked before it is believed: a node may be broken, or worse.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import ssl
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from asad.config import split_address
from asad.errors import AsadError, ConfigError
from asad.model import Json
from asad.port import JobSample, Lease, NodeReport

MAX_FRAME_BYTES = 4 << 20
MAX_GREETING_BYTES = 16 << 10
"""Nobody may make us keep more before it has proved who it is."""
PROTOCOL = 1
HEADER = struct.Struct(">I")
TAG_BYTES = hashlib.sha256().digest_size
JOB_ID = re.compile(r"[A-Za-z0-9_+.\-]{1,64}", re.ASCII)
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,254}", re.ASCII)

Message = dict[str, Json]


class WireError(AsadError):
    """What came over a connection is not what was agreed, or a connection could not be had."""


class AuthError(WireError):
    """The other end did not prove that it is who it should be, or said something twice."""


# ---------------------------------------------------------------------------------------------------------- frames


def frame(payload: bytes) -> bytes:
    """`payload` behind its length. Raises WireError above 4 MiB."""
    if len(payload) > MAX_FRAME_BYTES:
        raise WireError(f"a message of {len(payload)} bytes is too long; {MAX_FRAME_BYTES} are allowed")
    return HEADER.pack(len(payload)) + payload


class Frames:
    """Cuts a stream into frames; holds at most one that is not complete."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete with `data`. Raises WireError for one above `limit` bytes."""
        self._held += data
        while len(self._held) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._held)
            if length > self.limit:
                raise WireError(f"a frame of {length} bytes is announced; {self.limit} are allowed")
            end = HEADER.size + length
            if len(self._held) < end:
                return
            complete = bytes(memoryview(self._held)[HEADER.size : end])
            del self._held[:end]
            yield complete


def pack(message: Mapping[str, Json]) -> bytes:
    """A message as JSON. It has no NaN: what is not known is null."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


def unpack(payload: bytes) -> Message:
    """The message that `pack` wrote. Raises WireError for anything that is not one JSON object."""
    try:
        message = json.loads(payload, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError("a message is not a JSON object")
    return message


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_address(text: str, key: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`; `key` names the setting in the ConfigError."""
    try:
        return split_address(text)
    except ValueError as error:
        raise ConfigError(f"{key}: {text!r} {error}") from None


# ------------------------------------------------------------------------------------------------- who is there


class Channel(Protocol):
    """One connection whose both ends have proved who they are."""

    def seal(self, payload: bytes) -> bytes:
        """What to send for `payload`."""
        ...

    def open(self, sealed: bytes) -> bytes:
        """What the other end sealed. Raises AuthError if it did not, or if this was here before."""
        ...


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first frame of an actor, and what it keeps to check the answer."""

    frame: bytes
    secret: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The first frame of the daemon to the actor of `node`, and the channel from then on."""

    frame: bytes
    node: str
    channel: Channel


class Authenticator(Protocol):
    """How both ends prove who they are. All methods may block for a moment, so not in an event loop."""

    name: str
    server_tls: ssl.SSLContext | None
    client_tls: ssl.SSLContext | None

    def check(self) -> None:
        """Raises ConfigError with the hint if there are no keys, or nobody who holds them."""
        ...

    def greet(self, node: str) -> Greeting:
        """The actor's first word."""
        ...

    def answer(self, greeting: bytes, certificate: Mapping[str, Any] | None) -> Answer:
        """The daemon's answer to it. Raises AuthError. `certificate` is the peer's, where the connection has one."""
        ...

    def accept(self, greeting: Greeting, answer: bytes) -> Channel:
        """What the actor makes of the answer. Raises AuthError."""
        ...


class TrustedChannel:
    """For a connection that guards itself (TLS): nothing to add."""

    def seal(self, payload: bytes) -> bytes:
        return payload

    def open(self, sealed: bytes) -> bytes:
        return sealed


class SealedChannel:
    """Every payload carries the HMAC-SHA256 of its number on this connection and itself.

    A frame that was changed, left out, repeated, or taken from another connection or direction does not fit. Payloads
    can be read by whoever sees the network, as Slurm's own messages can.
    """

    def __init__(self, secret: bytes, transcript: bytes, end: Literal["actor", "daemon"]) -> None:
        keys = {
            sender: hmac.digest(secret, sender.encode() + hashlib.sha256(transcript).digest(), "sha256")
            for sender in ("actor", "daemon")
        }
        self._own, self._other = keys[end], keys["daemon" if end == "actor" else "actor"]
        self._sent = self._received = 0

    def seal(self, payload: bytes) -> bytes:
        sealed = self._tag(self._own, self._sent, payload) + payload
        self._sent += 1
        return sealed

    def open(self, sealed: bytes) -> bytes:
        payload = sealed[TAG_BYTES:]
        if not hmac.compare_digest(sealed[:TAG_BYTES], self._tag(self._other, self._received, payload)):
            raise AuthError("a frame was not sealed by the other end, or not at this place")
        self._received += 1
        return payload

    @staticmethod
    def _tag(key: bytes, number: int, payload: bytes) -> bytes:
        return hmac.digest(key, number.to_bytes(8, "big") + payload, "sha256")


# --------------------------------------------------------------------------------------------------------- messages


def sample_from_json(plain: Json) -> JobSample:
    """The sample that an actor sent, every field by its name and NaN as null.

    Raises WireError for a missing field, a wrong type or a value out of range.
    """
    if not isinstance(plain, dict):
        raise WireError("a sample is not an object")
    try:
        core_ids = plain["core_ids"]
        if not isinstance(core_ids, list) or len(core_ids) > 65536:
            raise WireError("core_ids is not a list of core numbers")
        return JobSample(
            job_id=_name(plain["job_id"], JOB_ID),
            guest=_flag(plain["guest"]),
            cores=_count(plain["cores"]),
            core_ids=tuple(_count(core) for core in core_ids),
            cpu_fraction=_amount(plain["cpu_fraction"]),
            cpu_peak=_amount(plain["cpu_peak"]),
            cpu_time_s=_amount(plain["cpu_time_s"]),
            memory_bytes=_amount(plain["memory_bytes"]),
            throttled=_amount(plain["throttled"], 1.0),
            pressure=_amount(plain["pressure"], 1.0),
            read_bytes=_amount(plain["read_bytes"]),
            written_bytes=_amount(plain["written_bytes"]),
            threads=_count(plain["threads"]),
            parallel=_flag(plain["parallel"]),
            progress=_amount(plain["progress"], 1.0),
            since_s=_amount(plain["since_s"]),
            quota=_amount(plain["quota"]),
            idle_class=_flag(plain["idle_class"]),
            delayed=_amount(plain.get("delayed"), 1.0),
            steps_done=_count(plain.get("steps_done", 0)),  # actors of before have not sent it
        )
    except KeyError as error:
        raise WireError(f"a sample lacks {error.args[0]}") from None


def report_from_json(message: Mapping[str, Json], node: str, cgroup: int, time_s: float) -> NodeReport:
    """The report in a message of the actor of `node` that came at `time_s`. Raises WireError."""
    version = message.get("cgroup", cgroup)
    if version not in (1, 2):
        raise WireError(f"cgroup version {version!r:.40} is neither 1 nor 2")
    jobs = message.get("jobs")
    if not isinstance(jobs, dict):
        raise WireError("a report has no jobs")
    samples = {job_id: sample_from_json(plain) for job_id, plain in jobs.items()}
    if any(sample.job_id != job_id for job_id, sample in samples.items()):
        raise WireError("a sample stands under the name of another job")
    cores = _count(message.get("hyperthreaded_cores", 0))
    return NodeReport(
        node=node,
        time_s=time_s,
        cgroup=1 if version == 1 else 2,
        jobs=samples,
        hyperthreaded_cores=cores,
        widens=message.get("widens") is True,  # an older actor does not say
    )


def lease_to_json(lease: Lease) -> Message:
    """A lease as it is sent; no quota is null, and a memory limit or a wider place is only sent where there is one."""
    plain: Message = {
        "job_id": lease.job_id,
        "guest": lease.guest,
        "host_id": lease.host_id,
        "quota": _or_null(lease.quota),
        "cores": lease.cores,
    }
    if not math.isnan(lease.memory_high_bytes):
        plain["memory_high_bytes"] = lease.memory_high_bytes
    if lease.widen:
        plain["widen"] = True
    return plain


def _or_null(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _name(value: Json, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise WireError(f"{str(value)[:64]!r} is not a name")
    return value


def node_name(value: Json) -> str:
    """`value` if it can be a node's name. Raises WireError."""
    return _name(value, NODE_NAME)


def _flag(value: Json) -> bool:
    if not isinstance(value, bool):
        raise WireError(f"{str(value)[:64]!r} is neither true nor false")
    return value


def _count(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise WireError(f"{str(value)[:64]!r} is not a count")
    return value


def _amount(value: Json, most: float = math.inf) -> float:
    """A number from 0 to `most`, NaN for null. What is above by rounding or by the meter's error is cut."""
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1e300:
        raise WireError(f"{str(value)[:64]!r} is not an amount")
    return min(float(value), most)
