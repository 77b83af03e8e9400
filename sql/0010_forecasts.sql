-- Forecasts of when jobs that wait would start by themselves, and when they did: written when a job has started. They
-- name neither jobs nor users.

CREATE TABLE forecasts (
    -- When the job started.
    time_s DOUBLE PRECISION NOT NULL,
    made_s DOUBLE PRECISION NOT NULL,
    forecast_s DOUBLE PRECISION NOT NULL,
    partition TEXT NOT NULL,
    is_first BOOLEAN NOT NULL
);

CREATE INDEX forecasts_by_time ON forecasts (time_s);
