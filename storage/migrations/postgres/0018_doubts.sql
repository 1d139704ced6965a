-- Calls whose outcome nobody knows are found without looking through everything that has ended. A step in doubt
-- says since when; its run says it of the oldest.
ALTER TABLE steps ADD COLUMN in_doubt_since TIMESTAMPTZ;
ALTER TABLE runs ADD COLUMN in_doubt_since TIMESTAMPTZ;

UPDATE steps SET in_doubt_since = coalesce(
        (SELECT max(e.settled_at) FROM effects e
            WHERE e.run_id = steps.run_id AND e.step_id = steps.id AND e.status = 'unknown'),
        started_at, created_at)
    WHERE status = 'outcome_unknown'
        OR (status IN ('completed', 'failed') AND id IN (
            SELECT e.step_id FROM effects e JOIN runs r ON r.id = e.run_id
            WHERE e.kind = 'compensation' AND e.status = 'unknown' AND r.status <> 'rolled_back'));
UPDATE runs SET in_doubt_since = (SELECT min(s.in_doubt_since) FROM steps s WHERE s.run_id = runs.id)
    WHERE id IN (SELECT run_id FROM steps WHERE in_doubt_since IS NOT NULL);

CREATE INDEX idx_steps_in_doubt ON steps(tenant_id, id) WHERE in_doubt_since IS NOT NULL;
CREATE INDEX idx_runs_in_doubt ON runs(tenant_id, id) WHERE in_doubt_since IS NOT NULL;

-- Runs that are not over and that no look would find. There must be none; a metric counts them.
CREATE INDEX idx_runs_without_owner_and_deadline ON runs(id)
    WHERE owner_lane IS NULL AND next_deadline IS NULL AND completed_at IS NULL;
