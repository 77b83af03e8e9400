"""Who looks at the page, and what he may see of others' jobs."""

from __future__ import annotations

import asyncio
import grp
import pwd
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

Sees = Literal["all", "own", "none"]
"""Which jobs somebody may see: everybody's, his own, or none (figures of nodes alone)."""
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?")
"""What a proxy may call a user."""
KEPT_S = 60.0
"""So long holds what was found of somebody's name and groups."""
ANSWERS_S = 5.0
"""Whom the directory does not know by then is nobody until it does."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who looks."""

    user: str
    """His name on this machine; empty where nobody vouches for one."""
    sees: Sees


def user_of_uid(uid: int) -> str:
    """The name of a user; his number where he has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def viewer_of(user: str, private: bool, operators: str) -> Viewer:
    """What `user` (empty: nobody known) may see, where jobs are `private` to their users or not; root and members of
    the group `operators` see everything."""
    if not user:
        return Viewer("", "none")
    if not private or user == "root" or is_member(user, operators):
        return Viewer(user, "all")
    return Viewer(user, "own")


def is_member(user: str, group: str) -> bool:
    """Does the user belong to the group (empty: no group)?"""
    if not group:
        return False
    try:
        found = grp.getgrnam(group)
        return user in found.gr_mem or pwd.getpwnam(user).pw_gid == found.gr_gid
    except KeyError:
        return False


Found = TypeVar("Found", str, Viewer)


class Directory:
    """Users and groups, where the site keeps them, asked in threads of its own: one that hangs keeps nobody waiting
    whom it has named within the last minute, nor whoever needs no name."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, "directory")
        self._found: dict[object, str | Viewer] = {}
        self._forget_s = 0.0

    async def ask(self, unknown: Found, find: Callable[..., Found], *asked: object) -> Found:
        """What `find` finds, or has found lately; `unknown` where that takes too long."""
        now_s, key = time.monotonic(), (find, *asked)
        if now_s >= self._forget_s:
            self._forget_s = now_s + KEPT_S
            self._found.clear()
        if key not in self._found:
            looking = asyncio.get_running_loop().run_in_executor(self._threads, find, *asked)
            try:
                self._found[key] = await asyncio.wait_for(looking, ANSWERS_S)
            except TimeoutError:
                return unknown
        return self._found[key]  # type: ignore[return-value]
