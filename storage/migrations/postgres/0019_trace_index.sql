-- The UNIQUE constraint on trace_id keeps an index of its own. The second one on the same column cost every
-- run a random write and answered nothing, so the constraint's index takes its name.
DROP INDEX idx_runs_trace_id;
ALTER TABLE runs RENAME CONSTRAINT runs_trace_id_key TO idx_runs_trace_id;
