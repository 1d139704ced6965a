-- What the judge of a step decided last.
ALTER TABLE steps ADD COLUMN judgement TEXT;

-- The execution records of a run are found by its trace id. SQLite prefers the primary key to an index that does not
-- cover the view.
CREATE INDEX idx_record_scopes_executions ON record_scopes(tenant_id, trace_id, record_id, campaign_id, task_id)
    WHERE record_kind = 'agent_execution';
