-- What an actor is told in its inbox needs no sending: it is one row, in the order in which it is read. One about the
-- end of a run has no data of its own: the run has it. The outbox keeps the messages that have to reach an address.
CREATE TABLE inbox_messages (
    tenant_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    id BLOB NOT NULL CHECK (length(id) = 16),
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    event_type TEXT NOT NULL,
    data TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
    PRIMARY KEY (tenant_id, actor, id)
) STRICT, WITHOUT ROWID;

INSERT INTO inbox_messages (tenant_id, actor, id, run_id, event_type, data, created_at)
    SELECT tenant_id, target, id, run_id, coalesce(payload ->> '$.type', ''), payload -> '$.data', created_at
    FROM notifications
    WHERE channel = 'inbox' AND run_id IS NOT NULL;
DELETE FROM notifications WHERE channel = 'inbox';
DROP INDEX idx_notifications_inbox;
-- Nobody reads messages by their tenant alone.
DROP INDEX idx_notifications_tenant;

PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql,
    'channel IN (''webhook'', ''email'', ''console'', ''alert'', ''inbox'')',
    'channel IN (''webhook'', ''email'', ''console'', ''alert'')')
    WHERE type = 'table' AND name = 'notifications';

PRAGMA writable_schema = RESET;
