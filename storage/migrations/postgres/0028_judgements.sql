-- What the judge of a step decided last.
ALTER TABLE steps ADD COLUMN judgement JSONB;

-- The execution records of a run are found by its trace id.
CREATE INDEX idx_record_scopes_executions ON record_scopes(tenant_id, trace_id, record_id)
    WHERE record_kind = 'agent_execution';
