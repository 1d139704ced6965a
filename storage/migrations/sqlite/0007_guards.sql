-- What the database itself refuses, whoever asks. Messages begin with the rule and the table.
-- A replacing insert deletes without firing delete triggers on a connection that has not asked
-- for recursive_triggers, so an insert over an existing key is refused too. These tables have no
-- rowid, which would be one more key to replace by.

-- Append-only tables.
CREATE TRIGGER audit_log_entries_no_update BEFORE UPDATE ON audit_log_entries
    BEGIN SELECT RAISE(ABORT, 'append_only: audit_log_entries'); END;
CREATE TRIGGER audit_log_entries_no_delete BEFORE DELETE ON audit_log_entries
    BEGIN SELECT RAISE(ABORT, 'append_only: audit_log_entries'); END;
CREATE TRIGGER audit_log_entries_no_replace BEFORE INSERT ON audit_log_entries
    WHEN EXISTS (SELECT 1 FROM audit_log_entries WHERE lane = NEW.lane AND seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'append_only: audit_log_entries (key exists)'); END;
CREATE TRIGGER audit_logs_no_update BEFORE UPDATE ON audit_logs
    BEGIN SELECT RAISE(ABORT, 'append_only: audit_logs'); END;
CREATE TRIGGER audit_logs_no_delete BEFORE DELETE ON audit_logs
    BEGIN SELECT RAISE(ABORT, 'append_only: audit_logs'); END;
CREATE TRIGGER audit_logs_no_replace BEFORE INSERT ON audit_logs
    WHEN EXISTS (SELECT 1 FROM audit_logs WHERE audit_log_id = NEW.audit_log_id)
    BEGIN SELECT RAISE(ABORT, 'append_only: audit_logs (key exists)'); END;
CREATE TRIGGER ledger_checkpoints_no_update BEFORE UPDATE ON ledger_checkpoints
    BEGIN SELECT RAISE(ABORT, 'append_only: ledger_checkpoints'); END;
CREATE TRIGGER ledger_checkpoints_no_delete BEFORE DELETE ON ledger_checkpoints
    BEGIN SELECT RAISE(ABORT, 'append_only: ledger_checkpoints'); END;
CREATE TRIGGER ledger_checkpoints_no_replace BEFORE INSERT ON ledger_checkpoints
    WHEN EXISTS (SELECT 1 FROM ledger_checkpoints WHERE seq = NEW.seq)
    BEGIN SELECT RAISE(ABORT, 'append_only: ledger_checkpoints (key exists)'); END;
CREATE TRIGGER record_scopes_no_update BEFORE UPDATE ON record_scopes
    BEGIN SELECT RAISE(ABORT, 'append_only: record_scopes'); END;
CREATE TRIGGER record_scopes_no_delete BEFORE DELETE ON record_scopes
    BEGIN SELECT RAISE(ABORT, 'append_only: record_scopes'); END;
CREATE TRIGGER record_scopes_no_replace BEFORE INSERT ON record_scopes
    WHEN EXISTS (SELECT 1 FROM record_scopes WHERE record_kind = NEW.record_kind AND record_id = NEW.record_id)
    BEGIN SELECT RAISE(ABORT, 'append_only: record_scopes (key exists)'); END;
CREATE TRIGGER swarm_judge_decisions_no_update BEFORE UPDATE ON swarm_judge_decisions
    BEGIN SELECT RAISE(ABORT, 'append_only: swarm_judge_decisions'); END;
CREATE TRIGGER swarm_judge_decisions_no_delete BEFORE DELETE ON swarm_judge_decisions
    BEGIN SELECT RAISE(ABORT, 'append_only: swarm_judge_decisions'); END;
CREATE TRIGGER swarm_judge_decisions_no_replace BEFORE INSERT ON swarm_judge_decisions
    WHEN EXISTS (SELECT 1 FROM swarm_judge_decisions WHERE tenant_id = NEW.tenant_id AND id = NEW.id)
        OR EXISTS (SELECT 1 FROM swarm_judge_decisions WHERE tenant_id = NEW.tenant_id
                AND worker_result_id = NEW.worker_result_id AND round = NEW.round)
    BEGIN SELECT RAISE(ABORT, 'append_only: swarm_judge_decisions (key exists)'); END;

-- An execution is completed once, then frozen; it is never removed.
CREATE TRIGGER agent_executions_no_update BEFORE UPDATE ON agent_executions
    WHEN OLD.completed_at IS NOT NULL OR OLD.execution_id <> NEW.execution_id
    BEGIN SELECT RAISE(ABORT, 'frozen: agent_executions'); END;
CREATE TRIGGER agent_executions_no_delete BEFORE DELETE ON agent_executions
    BEGIN SELECT RAISE(ABORT, 'frozen: agent_executions'); END;
CREATE TRIGGER agent_executions_no_replace BEFORE INSERT ON agent_executions
    WHEN EXISTS (SELECT 1 FROM agent_executions WHERE execution_id = NEW.execution_id)
    BEGIN SELECT RAISE(ABORT, 'frozen: agent_executions (key exists)'); END;

-- A task's specification and identity never change, and the task stays.
CREATE TRIGGER swarm_tasks_no_update BEFORE UPDATE ON swarm_tasks
    WHEN OLD.spec_json <> NEW.spec_json OR OLD.tenant_id <> NEW.tenant_id
        OR OLD.id <> NEW.id OR OLD.idempotency_key <> NEW.idempotency_key
        OR (OLD.plan_task_id IS NOT NEW.plan_task_id AND (OLD.plan_task_id IS NOT NULL
            OR EXISTS (SELECT 1 FROM swarm_tasks WHERE plan_task_id = NEW.plan_task_id)))
    BEGIN SELECT RAISE(ABORT, 'immutable: swarm_tasks'); END;
CREATE TRIGGER swarm_tasks_no_delete BEFORE DELETE ON swarm_tasks
    BEGIN SELECT RAISE(ABORT, 'immutable: swarm_tasks'); END;
CREATE TRIGGER swarm_tasks_no_replace BEFORE INSERT ON swarm_tasks
    WHEN EXISTS (SELECT 1 FROM swarm_tasks WHERE tenant_id = NEW.tenant_id AND id = NEW.id)
        OR EXISTS (SELECT 1 FROM swarm_tasks WHERE plan_task_id = NEW.plan_task_id)
        OR EXISTS (SELECT 1 FROM swarm_tasks WHERE tenant_id = NEW.tenant_id AND idempotency_key = NEW.idempotency_key)
    BEGIN SELECT RAISE(ABORT, 'immutable: swarm_tasks (key exists)'); END;

-- A version of a workflow is what its digest says, for ever.
CREATE TRIGGER workflows_no_update BEFORE UPDATE ON workflows
    BEGIN SELECT RAISE(ABORT, 'immutable: workflows'); END;
CREATE TRIGGER workflows_no_delete BEFORE DELETE ON workflows
    BEGIN SELECT RAISE(ABORT, 'immutable: workflows'); END;
CREATE TRIGGER workflows_no_replace BEFORE INSERT ON workflows
    WHEN EXISTS (SELECT 1 FROM workflows WHERE tenant_id = NEW.tenant_id AND workflow_id = NEW.workflow_id
            AND version = NEW.version)
    BEGIN SELECT RAISE(ABORT, 'immutable: workflows (key exists)'); END;
