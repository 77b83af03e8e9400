"""A job log of a few jobs, given by what matters of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from asad.model import Ints, JobLog


def log_of(rows: Sequence[Mapping[str, Any]]) -> JobLog:
    """Of each row `user`, `account`, `qos`, `partition`, `gres`, `reason`, `start_flag`, `constraint`, `reservation`
    (names), `cores`, `memory` (bytes), `nodes`, `submit`, `start`, `run`, `limit` (seconds) and `priority` count; what
    is left out is not recorded, or of one core for 100 s.
    """
    count = len(rows)

    def column(name: str, default: float) -> Any:
        return np.array([float(row.get(name, default)) for row in rows])

    def coded(name: str) -> tuple[Ints, tuple[str, ...]]:
        names = tuple(dict.fromkeys(str(row[name]) for row in rows if row.get(name)))
        codes = [names.index(str(row[name])) if row.get(name) else -1 for row in rows]
        return np.array(codes, np.int32), names

    user, account, qos = coded("user"), coded("account"), coded("qos")
    partition, gres = coded("partition"), coded("gres")
    reason, constraint, reservation = coded("reason"), coded("constraint"), coded("reservation")
    start_flag, priority = coded("start_flag"), column("priority", np.nan)
    submit = column("submit", 0.0)
    return JobLog(
        job_id=np.arange(1, count + 1),
        submit_s=submit,
        start_s=np.where(np.isnan(column("start", np.nan)), submit, column("start", np.nan)),
        run_s=column("run", 100.0),
        cores=column("cores", 1).astype(np.int32),
        nodes=column("nodes", 0).astype(np.int32),
        time_limit_s=column("limit", 200.0),
        memory_bytes=column("memory", np.nan),
        cpu_time_s=np.full(count, np.nan),
        user=user[0],
        application=np.zeros(count, np.int32),
        partition=partition[0],
        depends_on=np.full(count, -1, np.int32),
        think_s=np.zeros(count),
        users=user[1],
        applications=("a",),
        partitions=partition[1],
        gres=gres[0] if gres[1] else None,
        gres_texts=gres[1],
        account=account[0] if account[1] else None,
        accounts=account[1],
        qos=qos[0] if qos[1] else None,
        qos_names=qos[1],
        reason=reason[0] if reason[1] else None,
        reasons=reason[1],
        priority=None if np.isnan(priority).all() else priority,
        start_flag=start_flag[0] if start_flag[1] else None,
        start_flags=start_flag[1],
        constraint=constraint[0] if constraint[1] else None,
        constraints=constraint[1],
        reservation=reservation[0] if reservation[1] else None,
        reservations=reservation[1],
    )
