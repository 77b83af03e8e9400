-- A replay of a sweep names the sweep, and the task that it is the result of: a digest of all that decides the outcome.
ALTER TABLE runs ADD COLUMN sweep TEXT;

ALTER TABLE runs ADD COLUMN task TEXT;

CREATE INDEX runs_of_sweep ON runs (sweep, task);
