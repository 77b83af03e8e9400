"""Accounts and users as the tree that fair share goes by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asad.model import Ints, JobLog, name_of
from asad.replay import engine
from asad.replay.limits.sacctmgr_output import Association

ROOT = "root"


class Charged(NamedTuple):
    """Whose use each job is: accounts and users by name, and the number of its pair."""

    pairs: tuple[tuple[str, str], ...]
    of_job: Ints


def charged_to(jobs: JobLog) -> Charged:
    """The account and user of each job; where the log names no account, that of root."""
    account = np.full(len(jobs), -1, np.int32) if jobs.account is None else jobs.account
    pairs, of_job = np.unique(np.column_stack((account, jobs.user)), axis=0, return_inverse=True)
    names = tuple(
        ((name_of(jobs.accounts, a) if a >= 0 else ROOT).casefold(), name_of(jobs.users, u) if u >= 0 else "")
        for a, u in pairs.tolist()
    )
    return Charged(names, of_job.reshape(-1).astype(np.int32))


def share_tree(associations: Sequence[Association], charged: Charged) -> tuple[NDArray[np.void], Ints]:
    """The tree, accounts before those below them, and the row that the use of each job is charged to.

    Shares are those of the associations; who is in none of them has one share below its account, and an account that is
    in none has one below root.
    """
    parents: dict[str, str] = {}
    shares: dict[tuple[str, str], float] = {}
    for one in associations:
        share = getattr(one, "share", 1.0)
        shares[one.account.casefold(), one.user] = 1.0 if np.isnan(share) else share
        if not one.user:
            parents[one.account.casefold()] = (one.parent or ROOT).casefold()
    rows: dict[tuple[str, str], int] = {(ROOT, ""): 0}
    parent_of, share_of, is_user = [-1], [1.0], [False]

    def row_of(account: str, seen: tuple[str, ...] = ()) -> int:
        if (account, "") not in rows:
            above = parents.get(account, ROOT)
            parent = row_of(above, (*seen, account)) if above != account and above not in seen else 0
            rows[account, ""] = len(parent_of)
            parent_of.append(parent)
            share_of.append(shares.get((account, ""), 1.0))
            is_user.append(False)
        return rows[account, ""]

    pairs = dict.fromkeys([*charged.pairs, *(key for key in shares if key[1])])
    for account, user in pairs:
        parent = row_of(account)
        rows[account, user or "-"] = len(parent_of)
        parent_of.append(parent)
        share_of.append(shares.get((account, user), 1.0))
        is_user.append(True)
    tree = np.zeros(len(parent_of), engine.ACCOUNT)
    tree["parent"], tree["share"], tree["user"] = parent_of, share_of, is_user
    tree["child"] = tree["sibling"] = -1
    for row in range(len(parent_of) - 1, 0, -1):
        tree["sibling"][row] = tree["child"][parent_of[row]]
        tree["child"][parent_of[row]] = row
    leaves = np.array([rows[account, user or "-"] for account, user in charged.pairs], np.int32)
    return tree, leaves[charged.of_job]
