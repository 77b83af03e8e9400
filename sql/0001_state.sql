-- The state store's first tables. Plain SQL that SQLite and PostgreSQL both understand.
-- Times are seconds: `*_at` by the wall clock (UTC epoch), `*_s` by the clock of the log. JSON is kept as text.
-- A statement ends with a semicolon at the end of a line.

-- One row: the number of the newest run. Numbers of removed runs are never given again.
CREATE TABLE run_number (
    newest INTEGER NOT NULL
);

INSERT INTO run_number (newest) VALUES (0);

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('replay', 'live', 'bench')),
    policy TEXT NOT NULL,
    log_path TEXT,
    log_sha256 TEXT,
    log TEXT NOT NULL,
    machine TEXT NOT NULL,
    settings TEXT NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,
    ended_at DOUBLE PRECISION,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'killed')),
    failure TEXT NOT NULL DEFAULT '',
    checkpoint_s DOUBLE PRECISION,
    decisions BIGINT NOT NULL DEFAULT 0,
    metrics TEXT NOT NULL,
    -- Which process writes it, so that others can say a run that goes on from one that was killed.
    host TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    pid_namespace TEXT NOT NULL,
    pid BIGINT NOT NULL,
    pid_started BIGINT NOT NULL
);

CREATE TABLE decisions (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    cycle BIGINT NOT NULL,
    time_s DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    job TEXT NOT NULL,
    job_row BIGINT NOT NULL,
    host TEXT,
    host_row BIGINT,
    share DOUBLE PRECISION,
    seconds DOUBLE PRECISION,
    -- What else the decision holds (nodes, …), a JSON object.
    more TEXT NOT NULL,
    policy TEXT NOT NULL,
    reason TEXT NOT NULL,
    -- done, refused or vetoed. Unchecked, since a check costs a tenth of the whole insert.
    outcome TEXT NOT NULL,
    outcome_reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
);

CREATE INDEX decisions_of_job ON decisions (job, run_id);

CREATE INDEX decisions_of_host ON decisions (host, run_id);

-- How the jobs that lending touched ended, beside how the same replay without lending ended them.
CREATE TABLE job_ends (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    job TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('host', 'guest')),
    submit_s DOUBLE PRECISION,
    start_s DOUBLE PRECISION,
    end_s DOUBLE PRECISION,
    baseline_end_s DOUBLE PRECISION,
    loser BOOLEAN NOT NULL,
    PRIMARY KEY (run_id, seq)
);

CREATE INDEX job_ends_of_job ON job_ends (job, run_id);

-- What the learner knows of each application: of one run, or (run_id is null) of a scope that outlives runs.
CREATE TABLE learner (
    scope TEXT NOT NULL,
    run_id INTEGER REFERENCES runs (id) ON DELETE CASCADE,
    application TEXT NOT NULL,
    weights TEXT NOT NULL,
    risk TEXT NOT NULL,
    rounds BIGINT NOT NULL,
    PRIMARY KEY (scope, application)
);

CREATE INDEX learner_of_run ON learner (run_id);
