-- Who asked for a run, changed it or holds it, and what the registry said of them then. A pause without a name
-- was a person's. Co-requesters are those who count as having asked for something beside the actor of the run:
-- whoever changed what would run, and whoever asked for the run that this one repeats.
ALTER TABLE runs ADD COLUMN actor_kind TEXT;
ALTER TABLE runs ADD COLUMN co_requesters TEXT;
ALTER TABLE runs ADD COLUMN paused_by TEXT;
ALTER TABLE runs ADD COLUMN paused_by_kind TEXT;
ALTER TABLE run_patches ADD COLUMN actor_kind TEXT;
ALTER TABLE approval_details ADD COLUMN co_requesters TEXT;

DROP VIEW scoped_approvals;
CREATE VIEW scoped_approvals AS
    SELECT r.*, s.tenant_id, s.campaign_id, s.task_id AS swarm_task_id, s.trace_id,
        d.action_digest, d.run_id, d.step_id, d.node_id, d.requester_actor, d.approvals_needed, d.approvers, d.decisions,
        d.risk, d.state_version, d.co_requesters
    FROM approval_requests r
    JOIN approval_details d ON d.approval_request_id = r.approval_request_id
    CROSS JOIN record_scopes s ON s.record_kind = 'approval_request' AND s.record_id = r.approval_request_id
        AND s.tenant_id = d.tenant_id;
