-- What a live daemon keeps beyond its runs.

-- What a policy has learned of each application (and of the cluster, '*'), by scope: the name of the cluster and policy.
CREATE TABLE learned (
    scope TEXT NOT NULL,
    application TEXT NOT NULL,
    saved_at DOUBLE PRECISION NOT NULL,
    memory TEXT NOT NULL,
    PRIMARY KEY (scope, application)
);

-- What lending gave to and took from whom: a row for each guest and host that ended.
CREATE TABLE ledger (
    job TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('host', 'guest')),
    time_s DOUBLE PRECISION NOT NULL,
    account TEXT NOT NULL,
    lent_core_s DOUBLE PRECISION NOT NULL,
    extended_s DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (job, role, time_s)
);

CREATE INDEX ledger_of_account ON ledger (account, time_s);

CREATE INDEX ledger_by_time ON ledger (time_s);

-- Every change of a quota or idle class that a node actor made.
CREATE TABLE quota_audit (
    node TEXT NOT NULL,
    time_s DOUBLE PRECISION NOT NULL,
    job TEXT NOT NULL,
    file TEXT NOT NULL,
    old TEXT,
    new TEXT,
    why TEXT NOT NULL
);

CREATE INDEX quota_audit_by_time ON quota_audit (time_s);

CREATE INDEX quota_audit_of_job ON quota_audit (job, time_s);
