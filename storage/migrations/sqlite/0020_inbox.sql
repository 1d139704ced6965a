-- A message that no address gets goes to the inbox of an actor, which is read newest first. The rule about
-- channels gets one word more and nothing stored changes, so only the text of the schema is rewritten.
PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql,
    'channel IN (''webhook'', ''email'', ''console'', ''alert'')',
    'channel IN (''webhook'', ''email'', ''console'', ''alert'', ''inbox'')')
    WHERE type = 'table' AND name = 'notifications';

PRAGMA writable_schema = RESET;

CREATE INDEX idx_notifications_inbox ON notifications(tenant_id, target, id) WHERE channel = 'inbox';
