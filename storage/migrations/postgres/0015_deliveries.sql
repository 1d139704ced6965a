-- Every try to deliver a message is kept with it. A message may ask for a decision; it is dropped when the
-- decision comes first.
ALTER TABLE notifications ADD COLUMN approval_id UUID;
ALTER TABLE notifications ADD COLUMN deliveries JSONB NOT NULL DEFAULT '[]';
ALTER TABLE notifications DROP CONSTRAINT notifications_status_check;
ALTER TABLE notifications ADD CONSTRAINT notifications_status_check
    CHECK (status IN ('pending', 'sent', 'failed', 'unknown', 'dropped'));

-- One person may decide about one approval once, by a link that only they were sent. The link itself is in
-- their message alone.
CREATE TABLE approval_links (
    token_digest BYTEA NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    tenant_id TEXT NOT NULL,
    run_id UUID NOT NULL,
    approval_id UUID NOT NULL,
    actor TEXT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    used_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ NOT NULL DEFAULT NOW()
);
