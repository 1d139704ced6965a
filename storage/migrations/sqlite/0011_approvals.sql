-- SQLite keeps no statistics here and would walk over all scopes to find the approvals of one run. The
-- scope is looked up last, so that the run, or the status, decides where to begin.
DROP VIEW scoped_approvals;

CREATE VIEW scoped_approvals AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id,
        d.action_digest, d.run_id, d.step_id, d.node_id, d.requester_actor, d.approvals_needed, d.approvers, d.decisions,
        d.risk, d.state_version
    FROM approval_requests r
    JOIN approval_details d ON d.approval_request_id = r.approval_request_id
    CROSS JOIN record_scopes s ON s.record_kind = 'approval_request' AND s.record_id = r.approval_request_id
        AND s.tenant_id = d.tenant_id;
