"""What a daemon may answer to `page`, made up: three users, one of whom chose hostile names."""

from __future__ import annotations

from typing import Any

HOSTILE = "<img src=x onerror=alert(1)></script><script>window.pwned=1</script>\u202e\x1b[31m"
JOBS = (
    # number, state, user, name, cores, host
    ("900", "guest", "ann", "sweep", 4, ""),
    ("901", "running", "bob", HOSTILE, 8, ""),
    ("902", "running", "ann", "solver", 8, ""),
    ("903", "waiting", "cleo", "secret-project", 16, ""),
    ("904", "offered", "bob", "late", 2, ""),
)


def columns_of_jobs(jobs: Any = JOBS) -> dict[str, list[Any]]:
    """As the daemon passes on jobs."""
    count = len(jobs)
    columns = dict(
        zip(
            ("job", "state", "user", "name", "cores", "host"), map(list, zip(*jobs, strict=True)), strict=True
        )
    )
    waits = [state in ("waiting", "offered") for state in columns["state"]]
    return columns | {
        "submit_s": [1000] * count,
        "start_s": [None if wait else 1500 for wait in waits],
        "limit_end_s": [None if wait else 9000 for wait in waits],
        "estimated_start_s": [4000 if wait else None for wait in waits],
        "cpu_fraction": [None if wait else 0.4 for wait in waits],
        "pressure": [None if wait else 0.05 for wait in waits],
        "happiness": [None] * count,
        "share": [None] * count,
        "host_bar": ["" if wait else "it opted out" for wait in waits],
        "guest_bar": ["it opted out" if wait else "" for wait in waits],
    }


def columns_of_nodes(count: int = 3, cores: int = 16) -> dict[str, list[Any]]:
    """As the daemon passes on nodes."""
    return {
        "node": [f"n{number:04}" for number in range(count)],
        "cores": [cores] * count,
        "allocated": [number % (cores + 1) for number in range(count)],
        "used": [None if number % 5 == 4 else round(0.5 * (number % cores), 2) for number in range(count)],
        "lent": [0.25 * (number % 4) for number in range(count)],
        "pressure": [0.01 * (number % 40) for number in range(count)],
        "guests": [number % 2 for number in range(count)],
        "bar": ["it opted out" if number % 7 == 6 else "" for number in range(count)],
        "silent": [False] * count,
        "pool": [0.5 * (number % 8) for number in range(count)],
    }


def tree(name: str) -> dict[str, Any]:
    """An expert with one test."""
    return {
        "name": name,
        "about": f"What {name} says.",
        "actions": [0.0, 0.5],
        "root": "busy?",
        "nodes": [
            {
                "name": "busy?",
                "feature": "cpu",
                "above": 0.5,
                "yes": "little",
                "no": "much",
                "unknown": "little",
            }
        ],
        "leaves": [{"name": "little", "lend": [1.0, 0.0]}, {"name": "much", "lend": [0.2, 0.8]}],
    }


def answer(number: int = 1, *, private: bool = True, **parts: Any) -> dict[str, Any]:
    """One answer of a daemon; `parts` replace those of the made-up one."""
    lending = {
        "guest": "900",
        "host": None,
        "nodes": ["n0001"],
        "share": None,
        "needs": {"n0001": 2.0},
        "from": {"n0001": {"901": 1.2, "902": 0.5, "free": 0.3}},
        "since_s": 1500.0,
        "guest_user": "ann",
        "host_user": None,
        "pace": 0.5,
        "host_pace": None,
        "happiness": 1.1,
        "host_happiness": None,
        "host_pressure": None,
    }
    offer = {
        "number": 7,
        "time_s": 1490.0,
        "kind": "co-allocate",
        "jobs": ["900"],
        "users": ["ann"],
        "nodes": ["n0001"],
        "reason": "it needs 2 cores of n0001: 1.2 from 901, 0.5 from 902, 0.3 free; it should end 1309 s sooner",
        "verdict": "done",
        "outcome": "",
    }
    share = {
        "number": 8,
        "time_s": 1495.0,
        "kind": "set-share",
        "jobs": ["901"],
        "users": ["bob"],
        "nodes": [],
        "reason": "it lends up to 30% of its cores to the pools of its nodes",
        "verdict": "vetoed",
        "outcome": "vetoed (better off): 903 would end later",
    }
    status = {
        "version": "9.9",
        "mode": "enforce",
        "paused": False,
        "policy": "asax",
        "admit": "everyone",
        "defer": "at-once",
        "place": "native",
        "since_s": 1.0,
        "cycle": {"number": number, "time_s": 2000.0, "wall_ms": 12.5, "sentence": f"cycle {number}: it is quiet"},
        "cluster": {
            "sentence": "made up", "nodes": 3, "cores": 48, "allocated_cores": 16, "shared_cores": 4, "waiting": 2,
            "running": 2, "guests": 1, "offered": 1,
        },
        "lending": [lending],
        "gains": {"guests": 3, "lent_core_s": 7200.0, "extended_s": 0.0, "saved_wait_s": 900.0},
        "vetoes": {"better off": 2},
        "funnel": [{"reason": "headroom", "core_h": 3.0}, {"reason": "lent", "core_h": 1.0}],
        "actors": {"connected": 3, "silent": []},
        "store": {"url": "/secret/place.db", "run": 1, "trouble": "", "dropped": 0},
    }  # fmt: skip
    experts = {
        "actions": [0.0, 0.5],
        "experts": [tree("cpu"), tree("memory")],
        "weights": [0.75, 0.25],
        "applications": [["bob/render/8", 12, [0.5, 0.5]]],
        "last": {"job": "901", "time_s": 1900.0, "share": 0.3, "leaves": ["much", "little"]},
        "reached": [{"much": 2}, {"little": 2}],
    }
    return {
        "as_of": f"1/{number}",
        "private": private,
        "operators": "",
        "now_s": 2000.0,
        "doing": "",
        "paused": False,
        "jobs": columns_of_jobs(),
        "nodes": columns_of_nodes(),
        "experts": experts,
        "decisions": [offer, share],
        "admission": None,
        "deferral": None,
        "statements": {
            "policy": "sow",
            "statements": [
                {
                    "statement": 5, "owner": "cleo", "name": "night", "job": None, "state": "planned", "cores": 4,
                    "start_s": 5000.0, "value": 77.0, "reason": "",
                }
            ],
        },
        "status": status,
    } | parts  # fmt: skip


def story(job: str) -> dict[str, Any]:
    """What a daemon explains of a job."""
    return {
        "job": job,
        "live": {"job": job, "state": "guest", "user": "ann", "name": HOSTILE, "host": "901", "nodes": ["n0001"]},
        "deferral": None,
        "gang": None,
        "run": {"id": 1},
        "others": [],
        "decisions": [
            {
                "time_s": 1490.0, "kind": "co-allocate", "job": job, "host": "901", "outcome": "done",
                "reason": "1.2 cores from 901", "outcome_reason": "",
            }
        ],
        "ends": [],
        "quotas": [],
    }  # fmt: skip
