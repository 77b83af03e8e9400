-- When a job would have started without lending, beside when it would have ended; and jobs that lending moved although
-- they neither lent nor borrowed.
CREATE TABLE job_ends_with_starts (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    job TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('host', 'guest', 'displaced')),
    submit_s DOUBLE PRECISION,
    start_s DOUBLE PRECISION,
    end_s DOUBLE PRECISION,
    baseline_start_s DOUBLE PRECISION,
    baseline_end_s DOUBLE PRECISION,
    loser BOOLEAN NOT NULL,
    PRIMARY KEY (run_id, seq)
);

INSERT INTO job_ends_with_starts
SELECT run_id, seq, job, role, submit_s, start_s, end_s, NULL, baseline_end_s, loser FROM job_ends;

DROP TABLE job_ends;

ALTER TABLE job_ends_with_starts RENAME TO job_ends;

CREATE INDEX job_ends_of_job ON job_ends (job, run_id);

CREATE INDEX job_ends_by_time ON job_ends (run_id, end_s);
