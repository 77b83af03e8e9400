"""From the table `[nodes]` of the configuration to the authenticator of this end."""

from __future__ import annotations

from typing import Literal, Protocol

from asad.api.munge import munge_for
from asad.api.tls import Tls
from asad.api.wire import Authenticator
from asad.errors import ConfigError


class AuthSettings(Protocol):
    """What `[nodes]` says of keys."""

    @property
    def auth(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def munge_socket(self) -> str: ...
    @property
    def cert(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def ca(self) -> str: ...


def open_authenticator(settings: AuthSettings, end: Literal["actor", "daemon"]) -> Authenticator:
    """Ready to use, or ConfigError: nobody starts without keys."""
    authenticator: Authenticator
    if settings.auth == "munge":
        authenticator = munge_for(end, settings.user, settings.munge_socket)
    elif settings.auth == "tls":
        authenticator = Tls(settings.cert, settings.key, settings.ca)
    else:
        raise ConfigError(f'[nodes] auth: {settings.auth!r} is neither "munge" nor "tls"')
    authenticator.check()
    return authenticator
