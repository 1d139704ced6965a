-- Tables that may not carry a tenant, read together with their scope. A row without a scope is
-- nobody's and is not shown.

CREATE VIEW scoped_objectives AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM objectives r
    JOIN record_scopes s ON s.record_kind = 'objective' AND s.record_id = r.objective_id;

CREATE VIEW scoped_plans AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM plans r
    JOIN record_scopes s ON s.record_kind = 'plan' AND s.record_id = r.plan_id;

CREATE VIEW scoped_tasks AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM tasks r
    JOIN record_scopes s ON s.record_kind = 'task' AND s.record_id = r.task_id;

CREATE VIEW scoped_skill_invocations AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM skill_invocations r
    JOIN record_scopes s ON s.record_kind = 'skill_invocation' AND s.record_id = r.invocation_id;

CREATE VIEW scoped_trends AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM trends r
    JOIN record_scopes s ON s.record_kind = 'trend' AND s.record_id = r.trend_id;

CREATE VIEW scoped_audit_logs AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM audit_logs r
    JOIN record_scopes s ON s.record_kind = 'audit_log' AND s.record_id = r.audit_log_id;

CREATE VIEW scoped_agent_executions AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM agent_executions r
    JOIN record_scopes s ON s.record_kind = 'agent_execution' AND s.record_id = r.execution_id;

CREATE VIEW scoped_agents AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM agents r
    JOIN record_scopes s ON s.record_kind = 'agent' AND s.record_id = r.id;

CREATE VIEW scoped_agent_jobs AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM agent_jobs r
    JOIN record_scopes s ON s.record_kind = 'agent_job' AND s.record_id = r.id;

CREATE VIEW scoped_agent_outputs AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id
    FROM agent_outputs r
    JOIN record_scopes s ON s.record_kind = 'agent_output' AND s.record_id = r.id;

CREATE VIEW scoped_approvals AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id, d.action_digest, d.run_id, d.step_id,
        d.node_id, d.requester_actor, d.approvals_needed, d.approvers, d.decisions, d.risk, d.state_version
    FROM approval_requests r
    JOIN record_scopes s ON s.record_kind = 'approval_request' AND s.record_id = r.approval_request_id
    JOIN approval_details d ON d.approval_request_id = r.approval_request_id AND d.tenant_id = s.tenant_id;

-- The decision that counts for each result: the one that no other supersedes.
CREATE VIEW swarm_decisions_in_force AS
    SELECT d.*
    FROM swarm_judge_decisions d
    WHERE NOT EXISTS (
        SELECT 1 FROM swarm_judge_decisions later
        WHERE later.tenant_id = d.tenant_id AND later.worker_result_id = d.worker_result_id
            AND later.supersedes_round = d.round
    );
