-- What is left of rows of live runs that were removed for their age: sums by hour (step_s 3600), later by day (86400).
-- A row is in its own table, or in one of these, never in both: it moves in one transaction. They name neither jobs nor
-- users; an account is a charge account.

CREATE TABLE decision_summaries (
    step_s BIGINT NOT NULL,
    -- The beginning of the hour or day (UTC).
    time_s DOUBLE PRECISION NOT NULL,
    policy TEXT NOT NULL,
    kind TEXT NOT NULL,
    outcome TEXT NOT NULL,
    entries BIGINT NOT NULL,
    share_sum DOUBLE PRECISION NOT NULL,
    -- Null: none of these decisions has a share.
    share_max DOUBLE PRECISION,
    PRIMARY KEY (step_s, time_s, policy, kind, outcome)
);

CREATE TABLE job_end_summaries (
    step_s BIGINT NOT NULL,
    time_s DOUBLE PRECISION NOT NULL,
    role TEXT NOT NULL,
    loser BOOLEAN NOT NULL,
    entries BIGINT NOT NULL,
    -- From submission to end.
    response_s_sum DOUBLE PRECISION NOT NULL,
    response_s_max DOUBLE PRECISION,
    PRIMARY KEY (step_s, time_s, role, loser)
);

CREATE TABLE ledger_summaries (
    step_s BIGINT NOT NULL,
    time_s DOUBLE PRECISION NOT NULL,
    account TEXT NOT NULL,
    role TEXT NOT NULL,
    entries BIGINT NOT NULL,
    lent_core_s_sum DOUBLE PRECISION NOT NULL,
    lent_core_s_max DOUBLE PRECISION,
    extended_s_sum DOUBLE PRECISION NOT NULL,
    extended_s_max DOUBLE PRECISION,
    PRIMARY KEY (step_s, time_s, account, role)
);

CREATE TABLE quota_summaries (
    step_s BIGINT NOT NULL,
    time_s DOUBLE PRECISION NOT NULL,
    node TEXT NOT NULL,
    file TEXT NOT NULL,
    entries BIGINT NOT NULL,
    PRIMARY KEY (step_s, time_s, node, file)
);

-- By which what is old is found without a look at every row.
CREATE INDEX decisions_by_time ON decisions (run_id, time_s);

CREATE INDEX job_ends_by_time ON job_ends (run_id, end_s);

CREATE INDEX statements_by_change ON statements (changed_s);
