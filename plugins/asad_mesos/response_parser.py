"""The few names that pymesos takes from `http_parser`, over httptools.

http-parser is C made by an old Cython and does not build on Python 3.11 and later. This is loaded under its name in the
child process alone (`driver_child`).
"""

from __future__ import annotations

from typing import Any

import httptools  # type: ignore[import-not-found, unused-ignore]


class HttpParser:
    """One response, as it comes in: status, headers, and the body without its transfer coding."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._headers_complete = self._complete = False

    # ------------------------------------------------------------------------------------------ called by httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header line."""
        self._headers[name.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The empty line after them."""
        self._headers_complete = True

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The last chunk, or as many bytes as were announced."""
        self._complete = True

    # -------------------------------------------------------------------------------------------- asked by pymesos

    def execute(self, data: bytes, length: int) -> int:
        """Take `length` bytes in; how many could be parsed: fewer if this is no HTTP."""
        if self._complete:
            return length  # the master closes after the last chunk; what follows is nobody's
        try:
            self._parser.feed_data(data[:length])
        except httptools.HttpParserError:
            return length if self._complete else 0
        return length

    def get_errno(self) -> int:
        """A number for an error that `execute` has shown by taking fewer bytes."""
        return 1

    def is_headers_complete(self) -> bool:
        """Are status and headers known?"""
        return self._headers_complete

    def is_message_complete(self) -> bool:
        """Has the whole response been seen?"""
        return self._complete

    def is_partial_body(self) -> bool:
        """Is there a part of the body that `recv_body` has not given?"""
        return bool(self._body)

    def is_chunked(self) -> bool:
        """Does the body come in chunks?"""
        headers = {name.lower(): value for name, value in self._headers.items()}
        return "chunked" in headers.get("transfer-encoding", "").lower()

    def get_status_code(self) -> int:
        """200 and the like."""
        return int(self._parser.get_status_code())

    def get_headers(self) -> dict[str, str]:
        """By name, as they were written."""
        return dict(self._headers)

    def recv_body(self) -> bytes:
        """What of the body has come since the last call."""
        body = b"".join(self._body)
        self._body.clear()
        return body
