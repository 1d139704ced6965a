-- Wait nodes, and the events that they wait for; a further policy of schedules. What is stored keeps its meaning, so
-- only the text of the checks is rewritten.

PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql,
    'node_type = ''map''',
    'node_type = ''map'' OR node_type = ''wait''')
    WHERE type = 'table' AND name = 'steps';
UPDATE sqlite_schema SET sql = replace(sql,
    'status = ''outcome_unknown''',
    'status = ''outcome_unknown'' OR status = ''waiting''')
    WHERE type = 'table' AND name = 'steps';

UPDATE sqlite_schema SET sql = replace(sql,
    'overlap IN (''skip'', ''queue'', ''allow'')',
    'overlap IN (''skip'', ''queue'', ''allow'', ''cancel_previous'')')
    WHERE type = 'table' AND name = 'schedules';

PRAGMA writable_schema = RESET;

CREATE TABLE external_events (
    id BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    tenant_id TEXT NOT NULL,
    event_name TEXT NOT NULL,
    event_key TEXT NOT NULL,
    event_id TEXT NOT NULL,
    payload TEXT NOT NULL,
    payload_digest BLOB NOT NULL,
    sent_by TEXT NOT NULL,
    sent_by_kind TEXT NOT NULL,
    runs INTEGER NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    expires_at INTEGER NOT NULL,
    UNIQUE (tenant_id, event_id)
) STRICT;
CREATE INDEX idx_external_events_channel ON external_events(tenant_id, event_name, event_key, id);
CREATE INDEX idx_external_events_tenant_id ON external_events(tenant_id, id);
CREATE INDEX idx_external_events_expires_at ON external_events(expires_at, id);

CREATE TABLE event_waits (
    step_id BLOB PRIMARY KEY NOT NULL CHECK (length(step_id) = 16),
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    tenant_id TEXT NOT NULL,
    event_name TEXT NOT NULL,
    event_key TEXT NOT NULL,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;
CREATE INDEX idx_event_waits_channel ON event_waits(tenant_id, event_name, event_key, step_id);

-- The last wait that began on each channel.
CREATE TABLE event_channels (
    tenant_id TEXT NOT NULL,
    event_name TEXT NOT NULL,
    event_key TEXT NOT NULL,
    last_wait BLOB NOT NULL CHECK (length(last_wait) = 16),
    updated_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (tenant_id, event_name, event_key)
) STRICT;
CREATE INDEX idx_event_channels_updated_at ON event_channels(updated_at);
