"""What an offer has changed of a job, written on the job itself: for a daemon that has not the journal of the one that
made the offer.

The mark stands in AdminComment, at the end. Nobody is believed who has not the key: what a mark says becomes the node
list of a job.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
from pathlib import Path

from asad_slurm.records import JobRecord

MARK = re.compile(r" ?asad-home=([A-Za-z0-9_-]{1,4000})\.([0-9a-f]{32})$", re.ASCII)
KEY_BYTES = 32
LEAST_KEY_BYTES = 16
MOST_KEY_BYTES = 4096


class Marks:
    """Makes and reads marks. `key_file` is made if it is not there; without a key there are no marks."""

    def __init__(self, key_file: Path) -> None:
        self.key_file = key_file
        self.trouble = ""
        """Why there is no key, as one sentence."""
        self._key = b""

    def load(self) -> None:
        """Read the key, or make it. Never raises: `trouble` says what is wrong."""
        if self._key:
            return
        try:
            with contextlib.suppress(FileExistsError):
                handle = os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
            if self.key_file.stat().st_mode & 0o007:
                self.trouble = f"{self.key_file}: others may read or write the key; chmod 0600"
                return
            with self.key_file.open("rb") as file:
                key = file.read(MOST_KEY_BYTES).strip()
        except OSError as error:
            self.trouble = f"{self.key_file}: {error.strerror}"
            return
        short = len(key) < LEAST_KEY_BYTES
        self.trouble = f"{self.key_file}: a key of fewer than {LEAST_KEY_BYTES} bytes" if short else ""
        self._key = b"" if short else key

    def marked(self, record: JobRecord, num_nodes: str) -> str:
        """AdminComment of a job with the mark of where it waits now; the empty string without a key.

        `num_nodes` restores how many nodes its user wanted, where an offer changes that.
        """
        if not self._key:
            return ""
        home = json.dumps([record.partition, record.required_nodes, num_nodes], separators=(",", ":"))
        text = base64.urlsafe_b64encode(home.encode()).decode().rstrip("=")
        if len(text) > 4000:
            return ""
        return f"{unmarked(record.admin_comment)} asad-home={text}.{self._mac(record, text)}".lstrip()

    def home(self, record: JobRecord) -> tuple[str, str, str] | None:
        """Partition, required nodes and what restores their number, by a mark of ours; None if there is none."""
        found = MARK.search(record.admin_comment) if self._key else None
        if found is None or not hmac.compare_digest(self._mac(record, found[1]), found[2]):
            return None
        try:
            partition, nodes, number = json.loads(
                base64.urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4))
            )
        except ValueError:
            return None
        return str(partition), str(nodes), str(number)

    def _mac(self, record: JobRecord, text: str) -> str:
        about = (
            f"{record.text} {record.submit_s:.0f} {text}".encode()
        )  # a task that is split off has a new number
        return hmac.new(self._key, about, hashlib.sha256).hexdigest()[:32]


def unmarked(admin_comment: str) -> str:
    """AdminComment without a mark."""
    return MARK.sub("", admin_comment)
