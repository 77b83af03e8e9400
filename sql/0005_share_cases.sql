-- What hosts lent, in which state, and what it cost them: what trees are learned from.
CREATE TABLE share_cases (
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- When the share was drawn.
    time_s DOUBLE PRECISION NOT NULL,
    job TEXT NOT NULL,
    application TEXT NOT NULL,
    share DOUBLE PRECISION NOT NULL,
    -- With which it was drawn.
    probability DOUBLE PRECISION NOT NULL,
    -- From 0 to 1.
    loss DOUBLE PRECISION NOT NULL,
    -- What the experts saw of the host, by feature, a JSON object; unknown is left out.
    state TEXT NOT NULL
);

CREATE INDEX share_cases_of_run ON share_cases (run_id, time_s);
