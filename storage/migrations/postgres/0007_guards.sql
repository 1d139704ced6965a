-- What the database itself refuses, whoever asks. Errors carry the SQLSTATE CH001 and the rule as
-- the name of the constraint. The triggers fire ALWAYS: a replica session can't switch them off.

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: %', TG_ARGV[0], TG_TABLE_NAME
        USING ERRCODE = 'CH001', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_ARGV[0];
END
$$;

-- Append-only tables: an upsert that would replace a row fires the update trigger.
CREATE TRIGGER audit_log_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('append_only');
CREATE TRIGGER audit_logs_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_logs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('append_only');
CREATE TRIGGER ledger_checkpoints_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_checkpoints
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('append_only');
CREATE TRIGGER record_scopes_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON record_scopes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('append_only');
CREATE TRIGGER swarm_judge_decisions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON swarm_judge_decisions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('append_only');
ALTER TABLE audit_log_entries ENABLE ALWAYS TRIGGER audit_log_entries_append_only;
ALTER TABLE audit_logs ENABLE ALWAYS TRIGGER audit_logs_append_only;
ALTER TABLE ledger_checkpoints ENABLE ALWAYS TRIGGER ledger_checkpoints_append_only;
ALTER TABLE record_scopes ENABLE ALWAYS TRIGGER record_scopes_append_only;
ALTER TABLE swarm_judge_decisions ENABLE ALWAYS TRIGGER swarm_judge_decisions_append_only;

-- An execution is completed once, then frozen; it is never removed.
CREATE TRIGGER agent_executions_frozen BEFORE UPDATE ON agent_executions
    FOR EACH ROW WHEN (OLD.completed_at IS NOT NULL OR OLD.execution_id <> NEW.execution_id)
    EXECUTE FUNCTION refuse_change('frozen');
CREATE TRIGGER agent_executions_kept BEFORE DELETE OR TRUNCATE ON agent_executions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('frozen');
ALTER TABLE agent_executions ENABLE ALWAYS TRIGGER agent_executions_frozen;
ALTER TABLE agent_executions ENABLE ALWAYS TRIGGER agent_executions_kept;

-- A task's specification and identity never change, and the task stays.
CREATE TRIGGER swarm_tasks_immutable BEFORE UPDATE ON swarm_tasks
    FOR EACH ROW WHEN (OLD.spec_json::text <> NEW.spec_json::text OR OLD.tenant_id <> NEW.tenant_id
        OR OLD.id <> NEW.id OR OLD.idempotency_key <> NEW.idempotency_key
        OR (OLD.plan_task_id IS NOT NULL AND OLD.plan_task_id IS DISTINCT FROM NEW.plan_task_id))
    EXECUTE FUNCTION refuse_change('immutable');
CREATE TRIGGER swarm_tasks_kept BEFORE DELETE OR TRUNCATE ON swarm_tasks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('immutable');
ALTER TABLE swarm_tasks ENABLE ALWAYS TRIGGER swarm_tasks_immutable;
ALTER TABLE swarm_tasks ENABLE ALWAYS TRIGGER swarm_tasks_kept;

-- A version of a workflow is what its digest says, for ever.
CREATE TRIGGER workflows_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON workflows
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('immutable');
ALTER TABLE workflows ENABLE ALWAYS TRIGGER workflows_immutable;
