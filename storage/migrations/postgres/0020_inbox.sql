-- The inbox of an actor is read newest first.
CREATE INDEX idx_notifications_inbox ON notifications(tenant_id, target, id) WHERE channel = 'inbox';
