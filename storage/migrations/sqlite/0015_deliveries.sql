-- Every try to deliver a message is kept with it. A message may ask for a decision; it is dropped when the
-- decision comes first. The rule about statuses gets one word more and nothing stored changes, so only the
-- text of the schema is rewritten.
ALTER TABLE notifications ADD COLUMN approval_id BLOB CHECK (length(approval_id) = 16);
ALTER TABLE notifications ADD COLUMN deliveries TEXT NOT NULL DEFAULT '[]';

PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''pending'', ''sent'', ''failed'', ''unknown'')',
    'status IN (''pending'', ''sent'', ''failed'', ''unknown'', ''dropped'')')
    WHERE type = 'table' AND name = 'notifications';

PRAGMA writable_schema = RESET;

-- One person may decide about one approval once, by a link that only they were sent. The link itself is in
-- their message alone.
CREATE TABLE approval_links (
    token_digest BLOB NOT NULL PRIMARY KEY CHECK (length(token_digest) = 32),
    tenant_id TEXT NOT NULL,
    run_id BLOB NOT NULL CHECK (length(run_id) = 16),
    approval_id BLOB NOT NULL CHECK (length(approval_id) = 16),
    actor TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000000 AS INTEGER))
) STRICT;
