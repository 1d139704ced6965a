-- What an actor is told in its inbox needs no sending: it is one row, in the order in which it is read. One about the
-- end of a run has no data of its own: the run has it. The outbox keeps the messages that have to reach an address.
CREATE TABLE inbox_messages (
    tenant_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    id UUID NOT NULL,
    run_id UUID NOT NULL,
    event_type TEXT NOT NULL,
    data JSONB,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, actor, id)
);

INSERT INTO inbox_messages (tenant_id, actor, id, run_id, event_type, data, created_at)
    SELECT tenant_id, target, id, run_id, coalesce(payload ->> 'type', ''), payload -> 'data', created_at
    FROM notifications
    WHERE channel = 'inbox' AND run_id IS NOT NULL;
DELETE FROM notifications WHERE channel = 'inbox';
DROP INDEX idx_notifications_inbox;
-- Nobody reads messages by their tenant alone.
DROP INDEX idx_notifications_tenant;

ALTER TABLE notifications DROP CONSTRAINT notifications_channel_check;
ALTER TABLE notifications ADD CONSTRAINT notifications_channel_check
    CHECK (channel IN ('webhook', 'email', 'console', 'alert'));
