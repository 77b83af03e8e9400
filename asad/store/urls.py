"""The URL of a state store: read, and shown without what is secret in it.

Of a URL only what is known to be harmless is ever shown. One that cannot be read is not shown at all: nobody knows
which part of it is the password.
"""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from asad.errors import UsageError

FORMS = "write a path, sqlite:///path or postgresql://user@host/database"
HARMLESS = frozenset(
    (
        *("application_name", "channel_binding", "connect_timeout", "gssencmode", "host", "hostaddr"),
        *("keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "load_balance_hosts"),
        *("passfile", "port", "require_auth", "service", "sslcert", "sslcrl", "sslmode", "sslrootcert"),
        *("target_session_attrs", "tcp_user_timeout"),
    )
)
"""Parameters of PostgreSQL that hold no secret; all others are left out of what is shown."""
MAY_HOLD_AT = HARMLESS | {"dbname", "options", "password", "sslkey", "sslpassword", "user"}
UNREADABLE = "a URL that cannot be read"


def parse(url: str) -> URL:
    """The URL of a store that is given as a path or a URL. Raises UsageError, which does not repeat it."""
    if not url:
        raise UsageError("the store's name is empty; give a path or a URL")
    parsed = _read(url)
    if parsed is None:
        raise UsageError(
            f"the store's URL cannot be read; {FORMS}. A password belongs into ~/.pgpass, or into the file that "
            "PGPASSFILE names; in a URL its @ is written %40, its / %2F, its ? %3F and its : %3A"
        )
    if "://" not in url:
        return parsed.set(database=str(Path(url).expanduser()))
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise UsageError(
            f"{shown(parsed)}: the store is kept by SQLite or PostgreSQL, not by {parsed.drivername}; {FORMS}"
        )
    return parsed


def shown(url: URL) -> str:
    """How operators know a store: the path, or the URL without password and without parameters that may hold one."""
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    harmless = {key: value for key, value in url.query.items() if key in HARMLESS}
    return url.set(query=harmless).render_as_string(hide_password=True)


def shown_text(url: str) -> str:
    """The same of a path or URL as somebody gave it."""
    parsed = _read(url)
    if parsed is None:
        return UNREADABLE
    return shown(parsed) if "://" in url else url


def shown_words(words: list[str]) -> list[str]:
    """The words of a command, with every URL in them as it may be shown."""
    return [
        re.sub(r"(?<![\w+])[\w+]+://.*", lambda url: shown_text(url[0]), word, flags=re.S) for word in words
    ]


def without_secrets(text: str, url: URL) -> str:
    """What a driver said, should it have repeated a secret of the URL."""
    secrets = [url.password or ""]
    for key, value in url.query.items():
        if key not in HARMLESS:
            secrets += [value] if isinstance(value, str) else value
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _read(url: str) -> URL | None:
    """A path is SQLite's. None where it cannot be determined for certain what is secret in it."""
    if "://" not in url:
        # `postgresql:/…`, `user:password@host` and `host=… password=…` are nobody's paths
        odd = re.match(r"[^/]*:", url) or re.search(r"password\s*=", url, re.IGNORECASE)
        return None if odd else URL.create("sqlite", database=url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None
    if parsed.get_backend_name() == "sqlite":
        return None if parsed.username or parsed.password or parsed.host else parsed
    # an @ that is not written %40 ends a password too early: the rest of it would be taken for host, database or key
    place, _, query = re.sub(r"^[\w+]+://([^:/]*(:[^@]*)?@)?", "", url).partition("?")
    keys = {pair.partition("=")[0] for pair in query.split("&")}
    return None if "@" in place or ("@" in query and not keys <= MAY_HOLD_AT) else parsed
