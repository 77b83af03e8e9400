"""Who is there, by munge: the keys and the daemon that a Slurm site has anyway.

Each end sends one credential, which only the other end's user may open; inside is half of a secret. With both halves
every frame after is sealed (`wire.SealedChannel`). So munged is asked twice a connection and not for every frame, an
overheard credential opens no connection, and a frame that is sent again fits nowhere.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pwd
import secrets
import ssl
from collections.abc import Mapping
from typing import Any, Literal

from asad.api.wire import (
    PROTOCOL,
    Answer,
    AuthError,
    Channel,
    Greeting,
    SealedChannel,
    WireError,
    node_name,
    pack,
    unpack,
)
from asad.errors import ConfigError
from asad.model import Json

LIBRARY = "libmunge.so.2"
MAX_PAYLOAD_BYTES = 700_000
"""munged takes requests up to 1 MiB, and the credential is a third longer than what it holds."""
OPT_SOCKET, OPT_UID_RESTRICTION = 8, 9
EMUNGE_SUCCESS, EMUNGE_SOCKET = 0, 6
SECRET_BYTES = 32
ROOT = 0


class Munge:
    """Credentials that `open_by` may open, of the users `peers`.

    `socket` is munged's, if it is not where libmunge looks.
    """

    name = "munge"
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None

    def __init__(self, peers: frozenset[int], open_by: int, socket: str = "") -> None:
        self.peers, self.open_by, self.socket = peers, open_by, socket
        self._library = _load()

    def seal(self, payload: bytes) -> bytes:
        """A credential of this process's user that holds `payload`; only the user `open_by` can open it.

        Raises WireError if munged does not answer or the payload is above 700 kB.
        """
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise WireError(f"munge carries {MAX_PAYLOAD_BYTES} bytes at most, not {len(payload)}")
        return self._encode(payload, self.open_by)

    def open(self, credential: bytes) -> bytes:
        """What one of `peers` sealed for us. Raises AuthError if it is not so, too old, or opened before."""
        uid, payload = self._decode(credential)
        if uid not in self.peers:
            raise AuthError(f"a credential of uid {uid} came where one of {_users(self.peers)} was due")
        return payload

    def check(self) -> None:
        """Raises ConfigError if munged does not seal and open a credential of our own."""
        try:
            self._decode(self._encode(b"", os.geteuid()))
        except WireError as error:
            raise ConfigError(f'[nodes] auth = "munge": {error}') from None

    # The handshake: the actor's credential, then the daemon's, which names the first.

    def greet(self, node: str) -> Greeting:
        secret = secrets.token_bytes(SECRET_BYTES)
        message: dict[str, Json] = {"asad": PROTOCOL, "from": "actor", "node": node, "secret": secret.hex()}
        return Greeting(self.seal(pack(message)), secret)

    def answer(self, greeting: bytes, certificate: Mapping[str, Any] | None = None) -> Answer:
        message = unpack(self.open(greeting))
        theirs = _secret(message, "actor")
        secret = secrets.token_bytes(SECRET_BYTES)
        names: dict[str, Json] = {"asad": PROTOCOL, "from": "daemon", "secret": secret.hex()}
        credential = self.seal(pack({**names, "to": hashlib.sha256(greeting).hexdigest()}))
        channel = SealedChannel(theirs + secret, greeting + credential, "daemon")
        return Answer(credential, node_name(message.get("node")), channel)

    def accept(self, greeting: Greeting, answer: bytes) -> Channel:
        message = unpack(self.open(answer))
        theirs = _secret(message, "daemon")
        if message.get("to") != hashlib.sha256(greeting.frame).hexdigest():
            raise AuthError("the daemon's credential answers another greeting")
        return SealedChannel(greeting.secret + theirs, greeting.frame + answer, "actor")

    # libmunge. A context must not be used by two threads at once, so each call has its own.

    def _encode(self, payload: bytes, open_by: int) -> bytes:
        library, credential = self._library, ctypes.c_void_p()
        context = self._context()
        try:
            library.munge_ctx_set(context, OPT_UID_RESTRICTION, ctypes.c_uint32(open_by))
            status = library.munge_encode(ctypes.byref(credential), context, payload, len(payload))
            if status != EMUNGE_SUCCESS:
                raise WireError(self._why(status, context))
            return ctypes.string_at(credential.value or 0)
        finally:
            _libc().free(credential)
            library.munge_ctx_destroy(context)

    def _decode(self, credential: bytes) -> tuple[int, bytes]:
        library = self._library
        buffer, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        context = self._context()
        try:
            status = library.munge_decode(
                credential,
                context,
                ctypes.byref(buffer),
                ctypes.byref(length),
                ctypes.byref(uid),
                ctypes.byref(gid),
            )
            if status != EMUNGE_SUCCESS:
                raise AuthError(self._why(status, context))
            return uid.value, ctypes.string_at(buffer.value, length.value) if buffer.value else b""
        finally:
            _libc().free(buffer)  # also filled for a credential that is replayed or too old
            library.munge_ctx_destroy(context)

    def _context(self) -> ctypes.c_void_p:
        context = ctypes.c_void_p(self._library.munge_ctx_create())
        if not context:
            raise MemoryError("munge_ctx_create")
        if self.socket:
            self._library.munge_ctx_set(context, OPT_SOCKET, self.socket.encode())
        return context

    def _why(self, status: int, context: ctypes.c_void_p) -> str:
        text = self._library.munge_ctx_strerror(context) or self._library.munge_strerror(status)
        why = f"munge: {text.decode(errors='replace')}"
        return f"{why}; is munged running, and is munge.socket right?" if status == EMUNGE_SOCKET else why


def munge_for(end: Literal["actor", "daemon"], daemon_user: str, socket: str = "") -> Munge:
    """For the `actor`, who talks with the daemon's user, or for the `daemon`, who talks with root.

    Raises ConfigError if there is no such user or no libmunge.
    """
    if end == "daemon":
        return Munge(frozenset({ROOT}), ROOT, socket)
    try:
        uid = pwd.getpwnam(daemon_user).pw_uid
    except KeyError:
        raise ConfigError(
            f"[nodes] user: this machine has no user {daemon_user!r}; make it with the same number on every node"
        ) from None
    return Munge(frozenset({uid}), uid, socket)


def _secret(message: Mapping[str, Json], sender: str) -> bytes:
    text = message.get("secret")
    if message.get("asad") != PROTOCOL or message.get("from") != sender or not isinstance(text, str):
        raise AuthError(f"a credential is not the greeting of an asad {sender} of protocol {PROTOCOL}")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise AuthError("a credential holds no secret")
    return secret


def _users(uids: frozenset[int]) -> str:
    return ", ".join(f"uid {uid}" for uid in sorted(uids))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise ConfigError(
            f'[nodes] auth = "munge": there is no {LIBRARY}; install munge (Debian: libmunge2)'
        ) from None
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    library.munge_ctx_destroy.restype = None
    library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    library.munge_ctx_strerror.restype = ctypes.c_char_p
    library.munge_strerror.restype = ctypes.c_char_p
    library.munge_encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    library.munge_decode.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 5]
    return library
