"""Who looks at the page, and what he may see of others' jobs."""

from __future__ import annotations

import grp
import pwd
import re
from dataclasses import dataclass
from typing import Literal

Sees = Literal["all", "own", "none"]
"""Which jobs somebody may see: everybody's, his own, or none (figures of nodes alone)."""
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?")
"""What a proxy may call a user."""


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
