"""Who is there, by certificates: mutual TLS under one authority of the site's own.

The authority must sign nothing but asad's certificates. An actor's names its node, the daemon's the host name that
actors connect to; so a stolen node's certificate can pose as that node, and neither as another nor as the daemon.
"""

from __future__ import annotations

import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asad.api.wire import (
    PROTOCOL,
    Answer,
    AuthError,
    Channel,
    Greeting,
    TrustedChannel,
    node_name,
    pack,
    unpack,
)
from asad.errors import ConfigError


class Tls:
    """Certificate, key and authority are PEM files. Raises ConfigError, naming key and hint, if one will not do."""

    name = "tls"
    server_tls: ssl.SSLContext | None
    client_tls: ssl.SSLContext | None

    def __init__(self, certificate: str, key: str, authority: str) -> None:
        paths = {"cert": certificate, "key": key, "ca": authority}
        for name, path in paths.items():
            if not path:
                raise ConfigError(f'[nodes] {name}: auth = "tls" needs a PEM file here')
            if not Path(path).is_file():
                raise ConfigError(f"[nodes] {name}: there is no file {path}")
        if stat.S_IMODE(Path(key).stat().st_mode) & (stat.S_IRWXO | stat.S_IWGRP):
            raise ConfigError(f"[nodes] key: others can read or change {key}; chmod 0600 (or 0640) it")
        self.paths = paths
        self.server_tls = self._context(ssl.PROTOCOL_TLS_SERVER)
        self.client_tls = self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.paths["cert"], self.paths["key"], password=_no_passphrase)
            context.load_verify_locations(self.paths["ca"])
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"[nodes] cert, key, ca: {error}; give PEM files that belong together, the key without passphrase"
            ) from None
        return context

    def check(self) -> None:
        """Nothing to do: the files have been read."""

    def greet(self, node: str) -> Greeting:
        return Greeting(pack({"asad": PROTOCOL, "node": node}), b"")

    def answer(self, greeting: bytes, certificate: Mapping[str, Any] | None) -> Answer:
        message = unpack(greeting)
        if message.get("asad") != PROTOCOL:
            raise AuthError(f"the greeting is not that of an asad actor of protocol {PROTOCOL}")
        node = node_name(message.get("node"))
        names = certificate_names(certificate or {})
        if node not in names:
            raise AuthError(f"node {node} came with a certificate of {', '.join(sorted(names)) or 'nobody'}")
        return Answer(pack({"asad": PROTOCOL}), node, TrustedChannel())

    def accept(self, greeting: Greeting, answer: bytes) -> Channel:
        if unpack(answer).get("asad") != PROTOCOL:
            raise AuthError(f"the answer is not that of an asad daemon of protocol {PROTOCOL}")
        return TrustedChannel()


def certificate_names(certificate: Mapping[str, Any]) -> set[str]:
    """Subject alternative DNS names of a certificate as `ssl` shows it, else its common name."""
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    if names:
        return names
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    return {value for kind, value in subject if kind == "commonName"}


def _no_passphrase() -> str:
    raise ValueError("the key wants a passphrase")
