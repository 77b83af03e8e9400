-- For how long jobs waited, by partition and by the cluster's own reason: sums by hour (step_s 3600), later by day
-- (86400). An entry is a look; it stands for the time since the one before it. They name neither jobs nor users.

CREATE TABLE wait_summaries (
    step_s BIGINT NOT NULL,
    -- The beginning of the hour or day (UTC).
    time_s DOUBLE PRECISION NOT NULL,
    -- Several (a,b) of jobs that wait in several.
    partition TEXT NOT NULL,
    -- One of: limit, no room, order, not eligible, other.
    reason TEXT NOT NULL,
    entries BIGINT NOT NULL,
    -- Seconds times jobs that waited, and times their cores; the largest of one look.
    job_s_sum DOUBLE PRECISION NOT NULL,
    job_s_max DOUBLE PRECISION,
    core_s_sum DOUBLE PRECISION NOT NULL,
    core_s_max DOUBLE PRECISION,
    PRIMARY KEY (step_s, time_s, partition, reason)
);
