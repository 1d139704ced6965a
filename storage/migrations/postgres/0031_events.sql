-- Wait nodes, and the events that they wait for; a further policy of schedules.
ALTER TABLE steps DROP CONSTRAINT steps_node_type_check, ADD CONSTRAINT steps_node_type_check
    CHECK (node_type IN ('function', 'agent', 'hitl', 'swarm', 'workflow', 'map', 'wait'));
ALTER TABLE steps DROP CONSTRAINT steps_status_check, ADD CONSTRAINT steps_status_check
    CHECK (status IN ('pending', 'ready', 'awaiting_approval', 'running', 'judging', 'completed', 'failed',
        'skipped', 'cancelled', 'rolled_back', 'retry_wait', 'paused', 'outcome_unknown', 'waiting'));
ALTER TABLE schedules DROP CONSTRAINT schedules_overlap_check, ADD CONSTRAINT schedules_overlap_check
    CHECK (overlap IN ('skip', 'queue', 'allow', 'cancel_previous'));

CREATE TABLE external_events (
    id UUID PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    event_name TEXT NOT NULL,
    event_key TEXT NOT NULL,
    event_id TEXT NOT NULL,
    payload JSONB NOT NULL,
    payload_digest BYTEA NOT NULL,
    sent_by TEXT NOT NULL,
    sent_by_kind TEXT NOT NULL,
    runs INTEGER NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    expires_at TIMESTAMPTZ NOT NULL,
    UNIQUE (tenant_id, event_id)
);
CREATE INDEX idx_external_events_channel ON external_events(tenant_id, event_name, event_key, id);
CREATE INDEX idx_external_events_tenant_id ON external_events(tenant_id, id);
CREATE INDEX idx_external_events_expires_at ON external_events(expires_at, id);

CREATE TABLE event_waits (
    step_id UUID PRIMARY KEY,
    run_id UUID NOT NULL,
    tenant_id TEXT NOT NULL,
    event_name TEXT NOT NULL,
    event_key TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX idx_event_waits_channel ON event_waits(tenant_id, event_name, event_key, step_id);

-- The last wait that began on each channel.
CREATE TABLE event_channels (
    tenant_id TEXT NOT NULL,
    event_name TEXT NOT NULL,
    event_key TEXT NOT NULL,
    last_wait UUID NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, event_name, event_key)
);
CREATE INDEX idx_event_channels_updated_at ON event_channels(updated_at);
