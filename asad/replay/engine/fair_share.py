"""Priority, as Slurm's multifactor plugin has it: age, fair share, and what of it never changes.

Fair share is that of a tree of accounts and users (Slurm's `fair_tree`): each account's part of what its siblings may
use over its part of what they did orders them, and who comes first of all users has the factor 1, or the classic
formula, 2^(-use / share). What each has used decays with a half-life. It begins with nothing: what was used before the
log nobody knows.
"""

from __future__ import annotations

import numpy as np

from asad.compiling import allocating, borrowing
from asad.replay.engine.simulation_state import ADMISSION, ENDED, FRONT, GUESTS, NEVER, RUN, State

FIRST = 1e15
"""More than any priority: who is admitted comes before all others."""


@borrowing
def priority(s: State, job: int, now: float) -> float:
    """What orders those that wait, the highest first."""
    rule, terms = s.rules.rule[job], s.rules.terms[0]
    value = rule.base
    if terms.age > 0:
        value += terms.age * min(1.0, max(0.0, now - s.job[job].eligible) / terms.max_age)
    if rule.leaf >= 0 and terms.fair_share > 0:
        value += terms.fair_share * s.rules.account[rule.leaf].factor
    if s.c[ADMISSION] and s.job[job].at < s.c[FRONT]:
        value += FIRST
    return value


@borrowing
def share_anew(s: State, now: float) -> None:
    """Charge what was used since the last time, and compute fair share anew, if it is time to."""
    account, terms = s.rules.account, s.rules.terms
    if len(account) == 0 or terms[0].fair_share <= 0 or now < terms[0].shared + terms[0].period:
        return
    last = terms[0].shared
    if last > -NEVER:
        decay = 0.5 ** ((now - last) / terms[0].half_life)
        for row in range(len(account)):
            account[row].usage *= decay
    for i in range(terms[0].charged, s.c[ENDED]):
        job = s.job[i].ended
        _charge(s, job, last, s.job[job].end)
    terms[0].charged = s.c[ENDED]
    for i in range(s.c[RUN]):
        _charge(s, s.run[i].job, last, now)
    for i in range(s.c[GUESTS]):
        _charge(s, s.job[i].guest_row, last, now)
    terms[0].shared = now
    for row in range(len(account)):
        account[row].total = account[row].usage
    for row in range(len(account) - 1, -1, -1):
        if account[row].parent >= 0:
            account[account[row].parent].total += account[row].total
    if terms[0].tree:
        _rank(s)
    else:
        _classic(s)


@borrowing
def _charge(s: State, job: int, since: float, until: float) -> None:
    leaf = s.rules.rule[job].leaf
    if leaf >= 0 and until > max(since, s.job[job].start):
        s.rules.account[leaf].usage += s.job[job].cores * (until - max(since, s.job[job].start))


@borrowing
def _level(s: State, row: int) -> float:
    """Its part of what its siblings may use, over its part of what they did."""
    account = s.rules.account
    share, used, other = 0.0, 0.0, account[account[row].parent].child
    while other >= 0:
        share += account[other].share
        used += account[other].total
        other = account[other].sibling
    if account[row].total <= 0 or share <= 0:
        return NEVER
    return (account[row].share / share) / (account[row].total / used)


@allocating
def _rank(s: State) -> None:
    """Users in the order of a walk through the tree, at each account those below it by their level."""
    account = s.rules.account
    users = 0
    for row in range(len(account)):
        users += account[row].user
        account[row].level = _level(s, row) if account[row].parent >= 0 else NEVER
    stack, children = np.empty(len(account), np.int32), np.empty(len(account), np.int32)
    stack[0], height, rank, seen = 0, 1, users, 0
    before = np.nan
    while height > 0:
        height -= 1
        row = stack[height]
        if account[row].user:
            seen += 1
            # who is equal to the one before has the same rank
            if account[row].level != before:
                rank = users - seen + 1
            before = account[row].level
            account[row].factor = rank / users
            continue
        before = np.nan
        count, other = 0, account[row].child
        while other >= 0:
            children[count] = other
            count += 1
            other = account[other].sibling
        levels = np.empty(count)
        for k in range(count):
            levels[k] = account[children[k]].level
        # the best comes off the stack first, and of equals the first
        for k in np.argsort(-levels, kind="mergesort")[::-1]:
            stack[height] = children[k]
            height += 1


@borrowing
def _classic(s: State) -> None:
    """2^(-use / share), where the use of an account weighs on all below it."""
    account = s.rules.account
    for row in range(len(account)):
        parent = account[row].parent
        if parent < 0:
            account[row].level = account[row].factor = 1.0
            continue
        # `level` is here the part of the cluster that is its share, `factor` the use that counts
        share, other = 0.0, account[parent].child
        while other >= 0:
            share += account[other].share
            other = account[other].sibling
        part = account[row].share / share if share > 0 else 0.0
        own = account[row].total / account[0].total if account[0].total > 0 else 0.0
        account[row].level = account[parent].level * part
        above = account[parent].factor if account[parent].parent >= 0 else 1.0
        account[row].factor = own + (above - own) * part
    for row in range(len(account) - 1, -1, -1):
        if account[row].user:
            share = account[row].level
            account[row].factor = 2.0 ** (-account[row].factor / share) if share > 0 else 0.0
