-- A message that no address gets goes to the inbox of an actor, which is read newest first.
ALTER TABLE notifications DROP CONSTRAINT notifications_channel_check;
ALTER TABLE notifications ADD CONSTRAINT notifications_channel_check
    CHECK (channel IN ('webhook', 'email', 'console', 'alert', 'inbox'));

CREATE INDEX idx_notifications_inbox ON notifications(tenant_id, target, id) WHERE channel = 'inbox';
