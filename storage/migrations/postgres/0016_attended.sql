-- A run with work left names the lane that drives it or the time at which somebody looks. Rows that name
-- neither were left behind by a process that ended too soon: they are due at once.
UPDATE runs SET next_deadline = created_at, state_version = state_version + 1
    WHERE workflow_id IS NOT NULL AND owner_lane IS NULL AND next_deadline IS NULL
      AND (completed_at IS NULL OR rollback ->> 'ended' = 'false');

ALTER TABLE runs ADD CONSTRAINT runs_attended CHECK (
    workflow_id IS NULL OR owner_lane IS NOT NULL OR next_deadline IS NOT NULL
    OR (completed_at IS NOT NULL AND (rollback IS NULL OR rollback ->> 'ended' = 'true')));
