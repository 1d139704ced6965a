-- The messages about a run are found by the run.
CREATE INDEX idx_notifications_run ON notifications(run_id, id) WHERE run_id IS NOT NULL;
